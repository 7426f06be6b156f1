"""NumPyro and statsmodels still say what tests/golden says: `make test` compares with that."""

import json
from math import sqrt

import pytest

from tests.reference.posteriors import FILE, references

pytestmark = [
    pytest.mark.reference,
    pytest.mark.filterwarnings("default"),  # the other software's warnings are its own
]
CASES = json.loads(FILE.read_text(encoding="utf-8"))["cases"]


@pytest.mark.parametrize("name", CASES)
def test_references_agree_with_the_golden_values(name):
    pytest.importorskip("numpyro", reason="NumPyro is not installed: run `make test-slow`")
    pytest.importorskip("statsmodels", reason="statsmodels is not installed: run `make test-slow`")
    case = CASES[name]
    found = references(name, case["settings"], case["records"])
    for quantity, golden in case["numpyro"].items():
        new = found["numpyro"][quantity]
        # Two Monte Carlo estimates, each with its own error.
        error = 5 * golden["sd"] * sqrt(1 / golden["effective"] + 1 / new["effective"])
        assert abs(new["mean"] - golden["mean"]) < error, quantity
        assert abs(new["sd"] - golden["sd"]) < error, quantity
    for key, golden in case.get("statsmodels", {}).items():
        assert found["statsmodels"][key] == pytest.approx(golden, rel=1e-9), key
