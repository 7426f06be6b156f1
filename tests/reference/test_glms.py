"""NumPyro, statsmodels and scikit-learn still say what tests/golden/glms.json says; agents learn
the data sets that come with statsmodels."""

import json
from math import sqrt

import numpy as np
import pytest

from tests.reference.glms import FILE, best_coefficients, nuts
from tests.support.glm import split
from unweave import Federation
from unweave.models import by_name
from unweave.solvers import Variational

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


def statsmodels_case(kind, name):
    """A data set that statsmodels brings: standardised features, target, and the exposure."""
    from statsmodels import datasets

    table = getattr(datasets, name).load_pandas().data
    if name == "star98":  # pupils above the national median, of all pupils of a district
        x, y = table[["LOWINC", "PERASIAN", "PERBLACK", "PERHISP", "PTRATIO"]], table["NABOVE"]
    else:
        target = {
            "spector": "GRADE",
            "fair": "affairs",
            "randhie": "mdvis",
            "anes96": "PID",
            "stackloss": "STACKLOSS",
            "statecrime": "murder",
        }[name]
        x, y = table.drop(columns=target).select_dtypes("number"), table[target]
    settings, y = {}, y.to_numpy(dtype=float)
    if kind in ("logistic-regression", "probit-regression"):
        y = (y > 0).astype(float)
    elif kind == "softmax-regression":
        settings["classes"] = int(y.max()) + 1
    elif kind == "robust-regression":
        y, settings["noise"] = (y - y.mean()) / y.std(), 0.5
    x = x.to_numpy(dtype=float)
    rows = np.column_stack([(x - x.mean(axis=0)) / x.std(axis=0), y])
    if name == "star98":
        rows = np.column_stack([rows, table["NABOVE"] + table["NBELOW"]])
        settings["exposure"] = "pupils"
    features = x.shape[1]
    return by_name(kind, **{"features": features, "intercept": True, **settings}), rows[:5000]


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("logistic-regression", "fair"),
        ("probit-regression", "fair"),
        ("probit-regression", "spector"),
        ("poisson-regression", "randhie"),
        ("poisson-regression", "star98"),
        ("negative-binomial-regression", "randhie"),
        ("negative-binomial-regression", "star98"),
        ("softmax-regression", "anes96"),
        ("robust-regression", "stackloss"),
        ("robust-regression", "statecrime"),
    ],
)
def test_the_data_sets_of_statsmodels_need_few_visits(kind, name, covariance):
    """KL 1e-4 to the central optimum within 10 visits of each of up to ten agents."""
    model, rows = statsmodels_case(kind, name)
    model = by_name(kind, **{**model.settings(), "covariance": covariance})
    factor = Variational(steps=400).update(model, model.shard(rows), model.carrier_prior, None)[0]
    goal = model.decode(model.grid.encode(model.carrier_prior + factor))
    network = Federation(model, split(rows, min(10, len(rows) // 4)), "complete")
    passes = 0
    while True:
        passes += 1
        network.learn(iterations=len(network.agents))
        far = float(model.family.kl(model.decode(network.units), goal))
        if far <= 1e-4:
            break
        assert passes < 10, far
