"""GLMs on real data against golden values of NumPyro, statsmodels and scikit-learn (`make golden`
writes them)."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.support.glm import split
from tests.support.real_data import real_case

from unweave import Federation

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "glms.json").read_text())

# What was found: the largest |mean − NUTS| in sd, the smallest and the largest ratio of sds. Of
# this, up to 0.02 is the error of NUTS. A variational posterior is narrower. Softmax regression has
# a bound in place of its likelihood (one-vs-each), robust regression clips curvatures at 0.
VI = {
    ("logistic-regression", "breast_cancer"): (0.035, 0.95, 1.04),
    ("logistic-regression", "digits"): (0.09, 0.81, 1.01),
    ("logistic-regression", "wine"): (0.02, 0.955, 1.0),
    ("probit-regression", "wine"): (0.03, 0.91, 0.985),
    ("poisson-regression", "digits"): (0.015, 0.965, 1.03),
    ("negative-binomial-regression", "diabetes"): (0.015, 0.97, 1.02),
    ("softmax-regression", "iris"): (0.11, 0.945, 1.03),
    ("robust-regression", "diabetes"): (0.015, 0.965, 1.02),
}
EP = (0.04, 0.95, 1.04)


def named(cases, *keys):
    return pytest.mark.parametrize("case", cases, ids=["-".join(c[k] for k in keys) for c in cases])


def compared(case, solver):
    """The posterior of five agents: distances of means from NUTS in sd, and ratios of sds."""
    model, rows = real_case(case["model"], case["data"], **case["settings"])
    shards = split(rows, 5, by_label=False)
    network = Federation(model, shards, "ring", solver=solver).learn(tol=1e-7)
    found, sd = network.posterior.distribution.params, np.array(case["sd"])
    far = np.abs(found["mean"] - case["mean"]) / sd
    ratio = np.sqrt(np.diag(found["cov"])) / sd
    return far.max(), ratio.min(), ratio.max()


def check(found, limits):
    far, least, most = found
    assert far <= limits[0]
    assert limits[1] <= least <= most <= limits[2]


@named(
    [case for case in GOLDEN["posteriors"] if case["model"] != "robust-regression"], "model", "data"
)
def test_expectation_propagation_is_near_nuts(case):
    one_vs_each = case["model"] == "softmax-regression"
    check(compared(case, "ep"), VI[case["model"], case["data"]] if one_vs_each else EP)


@named(GOLDEN["posteriors"], "model", "data")
def test_variational_inference_is_as_near_to_nuts_as_it_was(case):
    check(compared(case, "vi"), VI[case["model"], case["data"]])


@named(GOLDEN["fits"], "program", "model", "data")
def test_other_software_finds_the_best_coefficients_of_the_same_likelihood(case):
    """At its solution, Newton's step by our gradient and curvature is zero, and our curvature gives
    its standard errors. scikit-learn's solution is the mode with the prior Normal(0, 1)."""
    theta = np.array(case["coefficients"])
    model, rows = real_case(case["model"], case["data"], **case["settings"])
    _, gradient, curvature = model.curvature(theta, model.shard(rows))
    if case["program"] == "scikit-learn":
        gradient, curvature = gradient + theta, curvature + np.eye(len(theta))
    inverse = np.linalg.inv(curvature)
    sd = np.sqrt(np.diag(inverse))
    robust = case["model"] == "robust-regression"
    assert np.abs(inverse @ gradient / sd).max() < (5e-4 if robust else 1e-5)
    if "standard_errors" in case:  # ours has the clipped curvature of robust regression
        np.testing.assert_allclose(sd, case["standard_errors"], rtol=0.01 if robust else 1e-9)


@named([case for case in GOLDEN["fits"] if case["program"] == "statsmodels"], "model", "data")
def test_a_wide_prior_gives_the_estimates_of_statsmodels(case):
    """Up to the skewness of the likelihood, which moves a mean away from the mode."""
    settings = {**case["settings"], "sd": 30.0, "bits": 40}
    model, rows = real_case(case["model"], case["data"], **settings)
    found = Federation(model, split(rows, 4), "ring").learn(tol=1e-8).posterior
    rows = found.table()
    errors = np.array(case["standard_errors"])
    np.testing.assert_allclose([row.sd for row in rows], errors, rtol=0.06)
    far = np.abs([row.mean for row in rows] - np.array(case["coefficients"])) / errors
    assert far.max() < 0.25
