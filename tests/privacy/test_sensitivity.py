"""Clipping and sensitivities: no record moves a sum by more than Δ, and some record does by Δ."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unweave.errors import ConfigError
from unweave.models import (
    BetaBernoulli,
    BetaBinomial,
    DirichletCategorical,
    LinearRegression,
    NormalKnownVariance,
    by_name,
)
from unweave.node.data.duckdb_sql import form
from unweave.privacy.sensitivity import clipped, sensitivity
from unweave.privacy.terms import Bounds
from unweave.testing.models import CASES

NONE = Bounds()
NORMAL = NormalKnownVariance(noise=0.7, center={"x": 3}, scale={"x": 2.0}, mean=3.0, sd=10.0)
LINE = LinearRegression(2, intercept=True, noise=0.5, scale={"x1": 2.0})
BALL = LinearRegression(3, noise=0.5)
MODELS = [
    (BetaBernoulli(), NONE),
    (BetaBernoulli(bits=(24, 3)), NONE),
    (BetaBinomial(trials=5), NONE),
    (DirichletCategorical(4), NONE),
    (NORMAL, Bounds({"x": (-1.0, 8.5)})),
    (LINE, Bounds(norm=3.0)),
    (BALL, Bounds(norm=2.5)),
    (LinearRegression(1, noise=0.5, bits=(30, 24)), Bounds(norm=2.5)),
]
IDS = [f"{model.name}-{k}" for k, (model, _) in enumerate(MODELS)]


def moved(model, row):
    """How far one record moves the sum, in units of the scales: exact, squared."""
    scales = sensitivity(model).scales
    sums = model.sums(np.array([row], dtype=np.float64))
    return sum((Fraction(int(s)) / a) ** 2 for s, a in zip(sums, scales, strict=True))


def extreme(model):
    """Records that move the sum most, and records of any size."""
    if model.name == "beta-binomial":
        return [[0.0], [5.0], [2.0]]
    if model.name in ("beta-bernoulli", "dirichlet-categorical"):
        return [[0.0], [1.0]]
    width = len(model.schema)
    rows = [np.full(width, v) for v in (0.0, 8.5, -1.0, 1e9, -1e300, 1e-300)]
    rows += [v * np.eye(width)[j] for j in range(width) for v in (1.0, 2.5, 1e6, -1e200)]
    return rows


@pytest.mark.parametrize(("model", "bounds"), MODELS, ids=IDS)
def test_no_record_moves_a_sum_by_more_and_one_moves_it_as_far(model, bounds):
    bounded = clipped(model, bounds)
    most = max(moved(bounded, row) for row in extreme(model))
    limit = sensitivity(bounded).squared
    assert most <= limit
    # The constant feature of LINE takes part of every record's length.
    assert most >= (0.7 if model is LINE else 0.999) * limit


@given(row=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=4, max_size=4))
@settings(max_examples=300)
def test_regression_records_of_any_size_are_within_the_sensitivity(row):
    for model, bounds in ((BALL, Bounds(norm=2.5)), (LINE, Bounds(norm=3.0))):
        bounded = clipped(model, bounds)
        values = row[: len(model.schema)]
        assert moved(bounded, values) <= sensitivity(bounded).squared
        z, _ = bounded.z(np.array([values]))
        assert sum(int(v) ** 2 for v in z[0]) <= bounded.radius**2


def test_the_formulas_of_the_table():
    def delta(model, bounds=NONE):
        return float(sensitivity(clipped(model, bounds)).squared) ** 0.5

    assert delta(BetaBernoulli()) == delta(DirichletCategorical(7)) == 1.0
    assert delta(BetaBinomial(trials=5)) == 5.0
    b = max(abs(-1 - 3), abs(8.5 - 3)) / 2.0
    assert delta(NORMAL, Bounds({"x": (-1.0, 8.5)})) == pytest.approx((1 + b * b) ** 0.5, rel=1e-6)
    # In units of (scale/noise)²: the regression divides features and target by the noise.
    whole = clipped(BALL, Bounds(norm=2.5))
    assert delta(BALL, Bounds(norm=2.5)) / whole.multiplier**2 == pytest.approx(2.5**2, rel=1e-3)


@pytest.mark.parametrize(("model", "bounds"), MODELS, ids=IDS)
def test_records_within_the_bounds_are_summed_as_they_are(model, bounds):
    rng = np.random.default_rng(1)
    n = 200
    rows = {
        "beta-bernoulli": rng.integers(0, 2, (n, 1)),
        "beta-binomial": rng.integers(0, 6, (n, 1)),
        "dirichlet-categorical": rng.integers(0, 4, (n, 1)),
        "normal-known-variance": rng.uniform(-1, 8.5, (n, 1)),
    }.get(model.name, rng.uniform(-0.5, 0.5, (n, len(model.schema)))).astype(np.float64)
    bounded = clipped(model, bounds)
    assert bounded.sums(rows) == model.sums(rows)
    assert bounded.settings() == model.settings()
    assert by_name(bounded.name, **bounded.settings()) == model
    np.testing.assert_array_equal(bounded.rounding(rows), model.rounding(rows))


def test_longer_records_keep_their_direction():
    bounded = clipped(BALL, Bounds(norm=2.5))
    rows = np.array([[3.0, 4.0, 0.0, 12.0], [30.0, 40.0, 0.0, 120.0]])
    z, _ = bounded.z(rows)
    np.testing.assert_allclose(z / bounded.radius, [[3 / 13, 4 / 13, 0, 12 / 13]] * 2, atol=1e-4)
    values = clipped(NORMAL, Bounds({"x": (-1.0, 8.5)})).sums(np.array([[99.0], [-99.0]]))
    assert values == NORMAL.sums(np.array([[8.5], [-1.0]]))


def test_engines_do_not_sum_past_the_clipping():
    """The engine's sums in SQL know no bounds: a model that clips is summed in batches."""
    assert form(NORMAL) is not None
    assert form(clipped(NORMAL, Bounds({"x": (-1.0, 8.5)}))) is None
    assert form(clipped(BetaBernoulli(), NONE)) is not None


SUPPORTED = {
    *("beta-bernoulli", "dirichlet-categorical", "normal-known-variance", "linear-regression"),
    "beta-binomial",
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_other_models_are_refused_by_name(case):
    model = case.model
    if model.name in SUPPORTED:
        return
    with pytest.raises(ConfigError, match=f"^{model.name}: no differential privacy"):
        clipped(model, NONE)


REFUSED = {
    "bounds": (BetaBernoulli(), Bounds({"x": (0, 1)}), "need no bounds"),
    "norm": (BetaBernoulli(), Bounds(norm=1.0), "need no bounds"),
    "column": (NORMAL, Bounds({"y": (0, 1)}), "no column. Fix: choose from x"),
    "order": (NORMAL, Bounds({"x": (1, 1)}), "the lower one first"),
    "no bounds": (NORMAL, NONE, "needs bounds of x"),
    "norm of a normal": (NORMAL, Bounds({"x": (0, 1)}, 2.0), "and no norm"),
    "no norm": (LINE, NONE, "needs a norm"),
    "norm below the constant": (LINE, Bounds(norm=1.0), "above 1"),
    "norm beyond the grid": (LINE, Bounds(norm=1e9), "and below"),
    "agents' intercepts": (
        LinearRegression(1, intercept=True, agent_sd=1.0),
        Bounds(norm=3.0),
        "no differential privacy with agent_sd",
    ),
    "trials": (BetaBinomial(), NONE, "the setting trials"),
    "alpha": (BetaBernoulli(alpha=2.0), NONE, "alpha = 1"),
    "mean": (BetaBernoulli(reduction="mean"), NONE, 'reduction = "sum"'),
}


@pytest.mark.parametrize("why", REFUSED)
def test_settings_without_a_bound_are_refused(why):
    model, bounds, text = REFUSED[why]
    with pytest.raises(ConfigError, match=text):
        clipped(model, bounds)
