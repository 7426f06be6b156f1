"""Without JAX, a model of one's own says what to install."""

import sys

import pytest

from unweave import CustomModel
from unweave.errors import MissingExtra


def test_a_custom_model_without_jax_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(MissingExtra, match=r"unweave\[jax\]"):
        CustomModel(lambda params, record: record["x"], {"w": 0.0}, records=["x"])
