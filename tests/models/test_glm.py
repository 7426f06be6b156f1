"""GLMs: their losses, integrals, units, priors and predictives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import expit
from tests.support.glm import CASES, GlmCase

from unweave import Federation
from unweave.errors import ConfigError, DataError
from unweave.models import (
    LogisticRegression,
    NegativeBinomialRegression,
    PoissonRegression,
    ProbitRegression,
    RobustRegression,
    SoftmaxRegression,
    by_name,
)
from unweave.models.glm.quadrature import expectations, softplus, tilted_moments

all_cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
TARGETS = {
    "logistic-regression": st.sampled_from([0.0, 1.0]),
    "probit-regression": st.sampled_from([0.0, 1.0]),
    "poisson-regression": st.sampled_from([0.0, 1.0, 7.0, 60.0]),
    "negative-binomial-regression": st.sampled_from([0.0, 3.0, 40.0]),
    "softmax-regression": st.just(1.0),
    "robust-regression": st.floats(-3.0, 3.0),
}


def integral(f: Any, a: float, s: float, peak: float | None = None) -> float:
    def weighted(t: float) -> float:
        return float(f(t)) * stats.norm.pdf(t, a, s)

    points = sorted({a, a - 3 * s, a + 3 * s, *([] if peak is None else [peak])})
    found = integrate.quad(
        weighted, a - 12 * s, a + 12 * s, points=points, limit=200, epsabs=1e-12, epsrel=1e-10
    )
    return float(found[0])


@all_cases
@given(data=st.data(), t=st.floats(-6, 6))
@settings(max_examples=20, deadline=None)
def test_pointwise_losses_are_those_of_scipy(case: GlmCase, data: st.DataObject, t: float) -> None:
    y = data.draw(TARGETS[case.model.name])
    f, first, second = (v.item() for v in case.model.pointwise(np.array(t), np.array(y)))
    base = case.model.pointwise(np.array(0.1), np.array(y))[0].item()
    wanted = case.loss(np.array([t, 0.1]), np.array([y, y]))
    assert f - base == pytest.approx(wanted[0] - wanted[1], rel=1e-9, abs=1e-9)
    h = 1e-4
    up, down = (case.model.pointwise(np.array(t + e), np.array(y)) for e in (h, -h))
    assert first == pytest.approx((up[0] - down[0]).item() / (2 * h), rel=1e-5, abs=1e-5)
    assert second == pytest.approx((up[1] - down[1]).item() / (2 * h), rel=1e-5, abs=1e-5)


@all_cases
@given(data=st.data(), a=st.floats(-6, 6), s=st.floats(0.01, 3.0))
@settings(max_examples=12, deadline=None)
def test_expectations_are_integrals(case: GlmCase, data: st.DataObject, a: float, s: float) -> None:
    y = data.draw(TARGETS[case.model.name])
    found = case.model.derivatives(np.array([a]), np.array([s * s]), np.array([y]))
    for j, value in enumerate(found):
        wanted = integral(lambda t, j=j: case.model.pointwise(np.array(t), np.array(y))[j], a, s, y)
        if j == 2 and not case.model.convex:
            wanted = max(wanted, 0.0)
        assert value.item() == pytest.approx(wanted, rel=1e-8, abs=1e-9)


@given(a=st.floats(-60, 60), s=st.floats(3.9, 40.0))
@settings(max_examples=15, deadline=None)
def test_softplus_of_a_wide_predictor(a: float, s: float) -> None:
    """Two rules meet at s = 4; both agree with an integral."""
    found = softplus(np.array([a]), np.array([s * s]))
    for value, f in zip(
        found,
        (lambda t: np.logaddexp(0, t), expit, lambda t: expit(t) * expit(-t)),
        strict=True,
    ):
        assert value.item() == pytest.approx(integral(f, a, s, 0.0), rel=1e-9, abs=1e-10)


@pytest.mark.parametrize(
    "case", [c for c in CASES.values() if c.model.convex], ids=lambda c: c.model.name
)
@given(data=st.data(), a=st.floats(-4, 4), s=st.floats(0.05, 6.0))
@settings(max_examples=12, deadline=None)
def test_tilted_moments_are_integrals(
    case: GlmCase, data: st.DataObject, a: float, s: float
) -> None:
    y = data.draw(TARGETS[case.model.name])
    model = case.model
    mean, var = (x.item() for x in model.tilted(np.array([a]), np.array([s * s]), np.array([y])))
    grid = np.linspace(mean - 14 * np.sqrt(var), mean + 14 * np.sqrt(var), 40_001)
    log = -model.pointwise(grid, np.array(y))[0] - 0.5 * ((grid - a) / s) ** 2
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    assert mean == pytest.approx((weight * grid).sum(), rel=1e-7, abs=1e-7)
    assert var == pytest.approx((weight * (grid - mean) ** 2).sum(), rel=1e-6)


def test_mixed_widths_are_sorted_into_rules() -> None:
    a, v = np.array([0.3, -2.0, 1.0, 5.0]), np.array([0.01, 900.0, 4.0, 90.0])
    together = expectations(lambda t: (np.cos(t) ** 2,), a, v, 0.5)
    alone = [expectations(lambda t: (np.cos(t) ** 2,), a[[j]], v[[j]], 0.5)[0][0] for j in range(4)]
    np.testing.assert_allclose(together[0], alone, rtol=1e-12)
    np.testing.assert_allclose(together[0], 0.5 + 0.5 * np.cos(2 * a) * np.exp(-2 * v), atol=1e-12)


def test_a_huge_count_has_a_narrow_tilted_distribution() -> None:
    """The likelihood is 300 times as narrow as the cavity."""
    model = CASES["poisson-regression"].model
    mean, var = tilted_moments(
        model.pointwise, np.array([0.0]), np.array([900.0]), model.width, np.array([100.0])
    )
    assert mean.item() == pytest.approx(np.log(100.0) - 0.5e-2, abs=2e-4)
    assert var.item() == pytest.approx(1e-2, rel=2e-2)


@all_cases
def test_settings_round_trip(case: GlmCase) -> None:
    again = by_name(case.model.name, **case.model.settings())
    assert again == case.model
    diagonal = by_name(case.model.name, **{**case.model.settings(), "covariance": "diagonal"})
    assert diagonal.grid.names == case.model.grid.names
    assert diagonal.family.dim == 2 * case.model.size


@all_cases
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_results_are_in_the_users_units(case: GlmCase, covariance: str) -> None:
    """The same model of raw columns, with center and scale, predicts the same."""
    rows = case.rows(160, 3)
    raw = rows.copy()
    raw[:, :3] = rows[:, :3] * [20.0, 0.01, 3.0] + [50.0, 0.5, -7.0]
    names = {"x1": (50.0, 20.0), "x2": (0.5, 0.01), "x3": (-7.0, 3.0)}
    scaled = by_name(
        case.model.name,
        **{
            **{k: v for k, v in case.model.settings().items() if k != "bits"},
            "covariance": covariance,
            "center": {k: c for k, (c, _) in names.items()},
            "scale": {k: s for k, (_, s) in names.items()},
        },
    )
    plain = by_name(case.model.name, **{**case.model.settings(), "covariance": covariance})
    one = Federation(plain, np.array_split(rows, 4), "ring").learn(tol=1e-9).posterior
    two = Federation(scaled, np.array_split(raw, 4), "ring").learn(tol=1e-9).posterior
    np.testing.assert_allclose(one.predict(rows[:5, :3]).mean(), two.predict(raw[:5, :3]).mean())
    slope, user = one.marginals[1], two.marginals[1]
    assert float(user.mean()) == pytest.approx(float(slope.mean()) / 20.0, rel=1e-4)
    assert float(user.sd()) == pytest.approx(float(slope.sd()) / 20.0, rel=1e-4)
    # The intercept moves to x = 0: the predictor there is the same.
    at_zero = (-np.array([50.0, 0.5, -7.0]) / [20.0, 0.01, 3.0])[None]
    if not isinstance(plain, SoftmaxRegression):
        a, s = plain.predictor(one.eta, at_zero)
        assert float(two.marginals[0].mean()) == pytest.approx(a.item(), rel=1e-4)
        assert float(two.marginals[0].sd()) == pytest.approx(s.item(), rel=1e-4)
        if covariance == "diagonal":
            np.testing.assert_allclose(two.params["sd"][0], s.item(), rtol=1e-4)


def test_priors_by_coefficient() -> None:
    model = LogisticRegression(
        features=["age", "dose"], intercept=True, mean={"age": 0.2}, sd={"dose": 3, "intercept": 10}
    )
    params = model.prior.params
    np.testing.assert_allclose(params["mean"], [0.0, 0.2, 0.0], atol=1e-12)
    np.testing.assert_allclose(np.sqrt(np.diag(params["cov"])), [10.0, 1.0, 3.0])


def test_what_cannot_work_is_refused() -> None:
    for wrong, message in (
        (lambda: LogisticRegression(features=2, covariance="half"), "covariance"),
        (lambda: LogisticRegression(features=2, bits=12), "12 bits are too few"),
        (lambda: LogisticRegression(features=2, scale={"y": 10.0}), "no scale"),
        (lambda: LogisticRegression(features=2, center={"x1": 1.0}), "intercept"),
        (lambda: PoissonRegression(features=2, exposure="x1"), "exposure"),
        (lambda: SoftmaxRegression(features=2, classes=1), "classes"),
        (lambda: RobustRegression(features=2, df=0), "df"),
        (lambda: NegativeBinomialRegression(features=2, shape=-1), "shape"),
    ):
        with pytest.raises(ConfigError, match=message):
            wrong()
    wide = LogisticRegression(features=2, sd=300.0, bits=24)
    wide.check_agents(50)
    with pytest.raises(ConfigError, match="rounding 1000 factors may take"):
        wide.check_agents(1000)
    with pytest.raises(DataError, match="a whole number"):
        PoissonRegression(features=1).shard([[1.0, 0.5]])
    assert LogisticRegression(features=30, intercept=True).min_records() == 63


def test_exposure_is_an_offset() -> None:
    rng = np.random.default_rng(4)
    x, time = rng.standard_normal((300, 1)), rng.uniform(0.1, 9.0, 300)
    y = rng.poisson(time * np.exp(-0.5 + 0.7 * x[:, 0])).astype(float)
    rows = np.column_stack([x, y, time])
    rates = PoissonRegression(features=1, intercept=True, exposure="time", sd=10)
    posterior = Federation(rates, np.array_split(rows, 3), "ring").learn(tol=1e-9).posterior
    means = [float(m.mean()) for m in posterior.marginals]
    assert means == pytest.approx([-0.5, 0.7], abs=0.1)
    with pytest.warns(UserWarning, match=r"no exposure \(column 'time'\), and 1 is"):
        one = posterior.predict([[0.0]])
    many = posterior.predict([[0.0]], exposure=8.0)
    assert many.mean() == pytest.approx(8.0 * one.mean(), rel=1e-9)
    named = posterior.predict({"x1": [0.0, 0.0], "time": [8.0, 2.0]})
    assert named.mean() == pytest.approx(np.array([8.0, 2.0]) * one.mean(), rel=1e-9)
    assert posterior.predict({"x1": 0.0, "time": 3}).mean() == pytest.approx(3 * one.mean())
    framed = posterior.predict(pd.DataFrame({"x1": [0.0], "time": [8.0]}), exposure=[1.0])
    assert framed.mean() == pytest.approx(one.mean()), "what is given comes first"
    with pytest.raises(DataError, match="exposure"):
        posterior.predict({"x1": [0.0], "time": [0.0]})
    with pytest.raises(DataError, match="exposure"):
        posterior.predict([[0.0]], exposure=[1.0, 2.0])


def test_piecewise_exponential_survival_with_censoring() -> None:
    """One record per person and interval: events as y, time at risk as exposure. With a flat prior
    and one interval the rate is events over time at risk."""
    rng = np.random.default_rng(8)
    life, censored = rng.exponential(2.0, 400), rng.uniform(0.5, 4.0, 400)
    time, event = np.minimum(life, censored), (life <= censored).astype(float)
    cuts = np.array([0.0, 1.0, 2.0, np.inf])
    rows = [
        [float(j == 1), float(j == 2), event[i] * (time[i] <= cuts[j + 1]), at_risk]
        for i in range(400)
        for j in range(3)
        if (at_risk := min(time[i], cuts[j + 1]) - cuts[j]) > 0
    ]
    table = np.array(rows)
    model = PoissonRegression(
        features=["second", "third"], target="event", exposure="at risk", intercept=True, sd=100
    )
    posterior = Federation(model, np.array_split(table, 4), "ring").learn(tol=1e-9).posterior
    first = (table[:, 0] == 0) & (table[:, 1] == 0)
    for name, chosen in (("", first), ("second", table[:, 0] == 1), ("third", table[:, 1] == 1)):
        wanted = np.log(table[chosen, 2].sum() / table[chosen, 3].sum())
        draws = posterior.sample(4000)
        found = draws["intercept"] + (draws[name] if name else 0.0)
        assert found.mean() == pytest.approx(wanted, abs=0.03)


@all_cases
def test_predictives_agree_with_draws(case: GlmCase) -> None:
    rows = case.rows(120, 5)
    posterior = Federation(case.model, np.array_split(rows, 3), "ring").learn().posterior
    predictive = posterior.predict(rows[:4, :3])
    draws = np.asarray(predictive.sample(60_000, seed=1), dtype=float)
    assert draws.shape == (60_000, 4)
    if isinstance(case.model, SoftmaxRegression):
        shares = np.stack([(draws == c).mean(axis=0) for c in range(3)], axis=1)
        np.testing.assert_allclose(predictive.proba, shares, atol=0.01)
        np.testing.assert_allclose(predictive.proba.sum(axis=1), 1.0, rtol=1e-12)
        first = np.exp(predictive.log_prob([0, 0, 0, 0]))
        np.testing.assert_allclose(first, predictive.proba[:, 0])
        low, high = predictive.probability_interval(0.9)
        assert ((low < predictive.proba) & (predictive.proba < high)).all()
        return
    np.testing.assert_allclose(draws.mean(axis=0), predictive.mean(), rtol=0.05, atol=0.02)
    if not isinstance(case.model, LogisticRegression | ProbitRegression):
        np.testing.assert_allclose(draws.std(axis=0), predictive.sd(), rtol=0.1)
        low, high = predictive.interval(0.9)
        inside = ((draws >= low) & (draws <= high)).mean(axis=0)
        assert (inside > 0.88).all()
        median = np.quantile(draws, 0.5, axis=0)
        np.testing.assert_allclose(predictive.quantile(0.5), median, atol=0.03)
    if isinstance(case.model, RobustRegression):
        return
    total = np.exp([predictive.log_prob(np.full(4, float(k))) for k in range(400)]).sum(axis=0)
    np.testing.assert_allclose(total, 1.0, atol=1e-6)


@pytest.mark.parametrize("name", ["logistic-regression", "probit-regression"])
def test_probabilities_have_an_uncertainty(name: str) -> None:
    case = CASES[name]
    rows = case.rows(120, 6)
    posterior = Federation(case.model, np.array_split(rows, 3), "ring").learn().posterior
    found = posterior.predict(rows[:3, :3])
    link = (lambda t: 1 / (1 + np.exp(-t))) if "logistic" in name else stats.norm.cdf
    theta = np.asarray(posterior.sample(50_000))
    p = link(np.column_stack([np.ones(3), rows[:3, :3]]) @ theta.T)
    np.testing.assert_allclose(found.proba[:, 1], p.mean(axis=1), atol=2e-3)
    np.testing.assert_allclose(found.probability_sd(), p.std(axis=1), rtol=0.03)
    low, high = found.probability_interval(0.9)
    np.testing.assert_allclose(low, np.quantile(p, 0.05, axis=1), atol=5e-3)
    np.testing.assert_allclose(high, np.quantile(p, 0.95, axis=1), atol=5e-3)
    np.testing.assert_allclose(posterior.predict_proba(rows[:3, :3]), found.proba)


def test_classes_of_softmax_are_numbers_or_texts():
    """The order of the texts is that of the numbers; results have the names."""
    x = np.arange(30) % 7
    codes = np.arange(30) % 3
    texts = np.array(["mild", "severe", "fatal"])[codes]
    numbers = SoftmaxRegression(["age"], classes=3, target="sev")
    named = SoftmaxRegression(["age"], classes=["mild", "severe", "fatal"], target="sev")
    ours, theirs = (
        Federation(model, [{"age": x, "sev": y}], "path").learn()
        for model, y in ((named, texts), (numbers, codes))
    )
    assert ours.units.tolist() == theirs.units.tolist()
    assert [row.name for row in ours.posterior.table()] == [
        "age[mild]",
        "age[severe]",
        "age[fatal]",
    ]
    assert "p[fatal]" in ours.posterior.predict_table({"age": [1.0]})
    assert named == by_name(named.name, **named.settings())
    with pytest.raises(DataError, match="one of 'mild', 'severe', 'fatal'"):
        named.shard({"age": [1.0], "sev": ["unknown"]})
