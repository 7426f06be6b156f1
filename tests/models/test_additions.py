"""Durations with censoring, class labels as text, and groups: closed forms by SciPy, by name, in
`Federation`, with plots and predictives."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from unweave import Federation
from unweave.errors import ConfigError, DataError
from unweave.models import (
    BetaBernoulli,
    BetaExponential,
    ConjugateModel,
    DirichletCategorical,
    DirichletMultinomial,
    GammaEvents,
    GammaExponential,
    GammaPoisson,
    Grouped,
    NormalKnownVariance,
    NormalUnknown,
    by_name,
)
from unweave.models.fitted.posterior import Posterior
from unweave.testing.models import settings_round_trip


def fit(model: ConjugateModel, data: Any) -> Posterior:
    return model.posterior(model.grid.add(model.eta0, model.factor(model.shard(data))))


# ------------------------------------------------------------------- durations with censoring


def test_censored_durations_have_the_gamma_posterior() -> None:
    rng = np.random.default_rng(3)
    times, ends = rng.exponential(400.0, 300), rng.uniform(0, 600, 300)
    died, observed = times <= ends, np.minimum(times, ends)
    data = {"exposure": observed, "events": died}
    post = fit(GammaEvents(a=1.5, b=200.0, scale={"exposure": 100}), data)
    theirs = stats.gamma(1.5 + died.sum(), scale=1 / (200.0 + observed.sum()))
    assert post.mean() == pytest.approx(theirs.mean(), rel=1e-6)
    assert post.sd() == pytest.approx(theirs.std(), rel=1e-6)
    assert post.interval(0.9) == pytest.approx(theirs.interval(0.9), rel=1e-6)
    # Quadrature of prior times likelihood: density at an event, survival at a censored time.
    rate = np.linspace(theirs.ppf(1e-9), theirs.ppf(1 - 1e-9), 4001)
    log = stats.gamma(1.5, scale=1 / 200.0).logpdf(rate)
    log += stats.expon.logpdf(observed[died][:, None], scale=1 / rate).sum(axis=0)
    log += stats.expon.logsf(observed[~died][:, None], scale=1 / rate).sum(axis=0)
    weights = np.exp(log - log.max())
    mean = integrate.simpson(rate * weights, x=rate) / integrate.simpson(weights, x=rate)
    assert post.mean() == pytest.approx(mean, rel=1e-6)


def test_all_durations_observed_is_the_exponential_model() -> None:
    x = np.random.default_rng(1).exponential(2.0, 50)
    plain = fit(GammaExponential(a=2, b=3), x)
    events = fit(GammaEvents(a=2, b=3), {"events": np.ones(50), "exposure": x})
    assert np.array_equal(plain.units, events.units)
    assert plain.predict() == events.predict()


def test_predictives_of_events() -> None:
    post = fit(GammaEvents(a=2, b=3), {"events": [1, 0, 2], "exposure": [0.5, 2.5, 1.25]})
    a, b = 5.0, 7.25
    lomax = stats.lomax(a, scale=b)
    x = np.array([0.0, 0.3, 2.0, 10.0])
    np.testing.assert_allclose(post.predict().log_prob(x), lomax.logpdf(x), rtol=1e-10)
    theirs = stats.nbinom(a, b / (b + 4.0))
    k = np.arange(8)
    np.testing.assert_allclose(post.predict(4.0).log_prob(k), theirs.logpmf(k), rtol=1e-9)
    assert post.predict(exposure=4.0).mean() == pytest.approx(theirs.mean())
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(ConfigError, match="exposure"):
            post.predict(wrong)
    with pytest.raises(ConfigError, match="a scale of the exposure only"):
        GammaEvents(scale={"events": 2})
    assert fit(GammaEvents(), {"events": ["true", "FALSE"], "exposure": [1, 1]}).params["a"] == 2


# --------------------------------------------------------------------------- labels as text

LABELS = ("mild", "severe", "none")


def test_text_labels_are_the_classes_of_the_manifest() -> None:
    rng = np.random.default_rng(5)
    positions = rng.integers(0, 3, 60)
    texts = np.array(LABELS)[positions]
    model = DirichletCategorical(LABELS, concentration=[1, 2, 3])
    post = fit(model, texts)
    same = fit(DirichletCategorical(3, concentration=[1, 2, 3]), positions)
    assert np.array_equal(post.units, same.units)
    theirs = stats.dirichlet(np.array([1, 2, 3]) + np.bincount(positions, minlength=3))
    np.testing.assert_allclose(post.mean(), theirs.mean())
    assert [row.name for row in post.table()] == [f"theta[{label}]" for label in LABELS]
    assert list(post.to_arviz(10, 1).posterior.coords["class"].values) == list(LABELS)
    new = post.predict()
    np.testing.assert_allclose(np.exp(new.log_prob(LABELS)), post.mean())
    assert new.log_prob(["secret"])[0] == -np.inf
    assert set(new.sample(50)) <= set(LABELS)
    settings_round_trip(model)
    with pytest.raises(
        DataError, match=r"is no known level\. Fix: one of 'mild', 'severe', 'none'"
    ):
        model.shard(["mild", "secret"])
    for wrong in (["a"], ["a", "a"], []):
        with pytest.raises(ConfigError, match="Fix: "):
            DirichletCategorical(wrong)


def test_named_counts() -> None:
    model = DirichletMultinomial(LABELS)
    assert model.columns == LABELS
    post = fit(model, {"severe": [1, 2], "none": [0, 1], "mild": [4, 0]})
    np.testing.assert_allclose(post.params["alpha"], [5, 4, 2])
    with pytest.raises(ConfigError, match="twice"):
        DirichletMultinomial(["a", "a"])


# ---------------------------------------------------------------------------------- groups

WARDS = ("north", "south", "west")
EACH: dict[str, tuple[ConjugateModel, Any]] = {
    "beta": (BetaBernoulli(a=1, b=2), lambda rng, n: rng.integers(0, 2, n)),
    "gamma": (GammaPoisson(a=2, b=0.5), lambda rng, n: rng.poisson(3.0, n)),
    "times": (GammaExponential(scale={"x": 10}), lambda rng, n: rng.exponential(30.0, n)),
    "normal": (
        NormalKnownVariance(noise=3.0, center={"x": 100}, scale={"x": 10}),
        lambda rng, n: rng.normal(105, 3, n),
    ),
    "both": (NormalUnknown(scale={"x": 5}), lambda rng, n: rng.normal(5, 3, n)),
    "classes": (DirichletCategorical(["a", "b"]), lambda rng, n: rng.choice(["a", "b"], n)),
}


@pytest.mark.parametrize("name", EACH)
@given(seed=st.integers(0, 2**20), sizes=st.tuples(*[st.integers(0, 12)] * 3))
def test_each_group_is_its_own_model(name: str, seed: int, sizes: tuple[int, ...]) -> None:
    """The posterior of a group is that of the model with the group's records alone."""
    one, draw = EACH[name]
    rng = np.random.default_rng(seed)
    model = Grouped(WARDS, by="ward", each=one)
    parts = {ward: draw(rng, n) for ward, n in zip(WARDS, sizes, strict=True)}
    ward = np.concatenate([np.repeat(w, len(parts[w])) for w in WARDS])
    x = np.concatenate([np.asarray(parts[w], dtype=object) for w in WARDS])
    if not len(x):
        return
    mixed = rng.permutation(len(x))
    post = fit(model, {"x": x[mixed], "ward": ward[mixed]})
    laws = iter(post.marginals)
    for w in WARDS:
        alone = fit(one, parts[w]) if len(parts[w]) else one.posterior(one.eta0)
        for law in alone.marginals:
            found = next(laws)
            assert found.name == f"{law.name}[{w}]"
            assert found.mean() == pytest.approx(law.mean(), rel=1e-12, nan_ok=True)
            assert found.sd() == pytest.approx(law.sd(), rel=1e-12, nan_ok=True)
        assert np.array_equal(model.eta_of(post.eta, w), alone.eta)
        point = ["a"] if name == "classes" else [1.0]
        new, theirs = post.predict(w), alone.predict()
        np.testing.assert_array_equal(new.log_prob(point), theirs.log_prob(point))
    params = post.params
    for key, value in alone.params.items():
        np.testing.assert_allclose(params[key][-1], value, rtol=1e-9)


@pytest.mark.parametrize("name", EACH)
def test_draws_of_groups_are_in_the_users_units_with_named_coordinates(name: str) -> None:
    one, draw = EACH[name]
    rng = np.random.default_rng(7)
    ward = rng.choice(WARDS, 400)
    post = fit(Grouped(WARDS, by="ward", each=one), {"ward": ward, "x": draw(rng, 400)})
    draws = post.sample(4000, seed=1)
    theta = np.asarray(draws)
    assert np.isfinite(post.log_prob(theta)).all()
    found = post.to_arviz(500, 2)
    for variable in found.posterior.data_vars:
        assert list(found.posterior[variable].coords["ward"].values) == list(WARDS)
    means = np.concatenate([np.moveaxis(v.mean(axis=0), 0, 0).reshape(3, -1) for v in
                            draws.values()], axis=1)  # fmt: skip
    per = len(one.quantities)
    np.testing.assert_allclose(means.ravel(), post.mean(), rtol=0.1, atol=0.05)
    assert len(post.mean()) == 3 * per
    post.plot()


def test_groups_by_name_and_in_a_federation() -> None:
    each = {"name": "gamma-poisson", "a": 2.0, "b": 1.0}
    model = by_name("grouped", groups=["x", "y"], by="site", each=each)
    assert isinstance(model, Grouped)
    assert model.each == GammaPoisson(a=2.0, b=1.0)
    settings_round_trip(model)
    json.dumps(model.settings())
    tables = [{"site": ["x", "y", "x"], "x": [1, 2, 3]}, {"site": ["y"], "x": [5]}]
    fed = Federation(model, tables).learn()
    np.testing.assert_allclose(fed.posterior.params["a"], [6, 9])
    np.testing.assert_allclose(fed.posterior.params["b"], [3, 3])
    fed.forget(records={"a1": [2]})
    np.testing.assert_allclose(fed.posterior.params["a"], [3, 9])
    fed.forget("a2")
    assert fed.posterior == Federation(model, [{"site": ["x", "y"], "x": [1, 2]}]).learn().posterior
    assert by_name("grouped", groups=3).levels == ("1", "2", "3")


@pytest.mark.parametrize(
    "settings",
    [
        {"groups": ["a"]},
        {"groups": ["a", "a"]},
        {"groups": ["a", "b"], "each": "no-model"},
        {"groups": ["a", "b"], "each": {"a": 1}},
        {"groups": ["a", "b"], "each": BetaExponential()},
        {"groups": ["a", "b"], "each": {"name": "beta-bernoulli", "alpha": 2.0}},
        {"groups": ["a", "b"], "by": "x"},
        {"groups": ["a", "b"], "bits": [24, 24, 20, 24]},
        {"groups": ["a", "b"], "each": {"name": "grouped", "groups": 2}},
    ],
)
def test_groups_that_cannot_work(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="Fix: "):
        by_name("grouped", **settings)


def test_an_unknown_group_is_refused() -> None:
    model = Grouped(WARDS, by="ward")
    with pytest.raises(DataError, match="column 'ward', row 1: the value is no known level"):
        model.shard({"ward": ["north", "secret"], "x": [0, 1]})
    with pytest.raises(ConfigError, match="no group 'east'"):
        model.posterior(model.eta0).predict("east")
