"""NumPyro, statsmodels and scikit-learn still say what tests/golden/glms.json says; agents learn the
data sets that come with statsmodels."""

import json
from math import sqrt

import numpy as np
import pytest

from tests.reference.glms import FILE, best_coefficients, nuts

pytestmark = [
    pytest.mark.reference,
    pytest.mark.filterwarnings("default"),  # the other software's warnings are its own
]
pytest.importorskip("numpyro", reason="NumPyro is not installed: run `make test-slow`")
pytest.importorskip("statsmodels", reason="statsmodels is not installed: run `make test-slow`")
GOLDEN = json.loads(FILE.read_text(encoding="utf-8"))


def named(cases, *keys):
    return pytest.mark.parametrize("case", cases, ids=["-".join(c[k] for k in keys) for c in cases])


@named(GOLDEN["posteriors"], "model", "data")
def test_nuts_agrees_with_the_golden_values(case):
    found = nuts(case["model"], case["data"], **case["settings"])
    for key in ("mean", "sd"):
        # Two Monte Carlo estimates, each with its own error.
        effective = [
            1 / sqrt(1 / a + 1 / b)
            for a, b in zip(found["effective"], case["effective"], strict=True)
        ]
        error = 5 * np.array(case["sd"]) / effective
        assert (np.abs(np.subtract(found[key], case[key])) < error).all(), key
    assert max(found["r_hat"]) < 1.01


@named(GOLDEN["fits"], "program", "model", "data")
def test_fits_agree_with_the_golden_values(case):
    found = best_coefficients(case["program"], case["model"], case["data"], **case["settings"])
    for key in ("coefficients", "standard_errors", "log_likelihood"):
        if key in case:
            assert found[key] == pytest.approx(case[key], rel=1e-4, abs=1e-6), key
