"""What users expect of a fitted model: evidence, covariance, draws, checks, predictions, JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats
from sklearn.calibration import calibration_curve
from tests.support.glm import CASES as GLMS

from unweave import Federation
from unweave.errors import ConfigError, DataError
from unweave.models import (
    BetaBernoulli,
    BetaBinomial,
    BetaExponential,
    ConjugateModel,
    DirichletCategorical,
    DirichletMultinomial,
    GammaEvents,
    GammaExponential,
    GammaPoisson,
    Grouped,
    LinearRegression,
    LinearRegressionUnknownNoise,
    LogisticRegression,
    MultivariateNormalModel,
    NormalKnownVariance,
    NormalUnknown,
    PoissonRegression,
    SoftmaxRegression,
    Weibull,
)
from unweave.models.fitted.posterior import Posterior
from unweave.testing.models import CASES, Case

SCALED: list[Case] = [
    Case(GammaExponential(a=2, scale={"x": 10}), lambda rng, n: rng.exponential(30.0, (n, 1))),
    Case(
        NormalKnownVariance(noise=3.0, center={"x": 100}, scale={"x": 10}),
        lambda rng, n: rng.normal(105, 3, (n, 1)),
    ),
    Case(NormalUnknown(center={"x": 30}, scale={"x": 5}), lambda rng, n: rng.normal(33, 3, (n, 1))),
    Case(
        MultivariateNormalModel(2, center={"x1": 50}, scale={"x2": 10}),
        lambda rng, n: np.column_stack([rng.normal(50, 1, n), rng.normal(3, 9, n)]),
    ),
    Case(
        LinearRegression(1, noise=4, intercept=True, center={"x1": 20, "y": 5}, scale={"y": 10}),
        lambda rng, n: rng.normal([20, 7], [1, 9], (n, 2)),
    ),
    Case(
        LinearRegressionUnknownNoise(1, intercept=True, center={"x1": 20}, scale={"y": 10}),
        lambda rng, n: rng.normal([20, 7], [1, 9], (n, 2)),
    ),
]
ALL = [*CASES, *SCALED]


def name(case: Case) -> str:
    return f"{case.id}{'*' * (case in SCALED)}"


def fit(model: ConjugateModel, rows: Any) -> Posterior:
    return model.posterior(model.grid.add(model.eta0, model.factor(model.shard(rows))))


def log_predictive(model: ConjugateModel, eta: np.ndarray, row: np.ndarray) -> float:
    """log p(one record | those before)."""
    if isinstance(model, Grouped):
        group = model.levels[int(row[0])]
        return log_predictive(model.model, model.eta_of(eta, group), row[1:])
    if isinstance(model, BetaBinomial):
        return float(model.predictive(eta, int(row[1])).log_prob(row[0]))
    if isinstance(model, DirichletMultinomial):
        return float(model.predictive(eta, int(row.sum())).log_prob(row))
    if isinstance(model, LinearRegression | LinearRegressionUnknownNoise):
        return float(model.predictive(eta, row[None, :-1]).log_prob(row[-1:])[0])
    if isinstance(model, MultivariateNormalModel):
        return float(model.predictive(eta).log_prob(row))
    if isinstance(model, GammaEvents):
        k, t = row
        counts = model.predictive(eta, t).log_prob(k)  # a count; its times have k!/t^k as density
        return float(counts + (0.0 if k == 0 else -np.log(t)))
    return float(np.ravel(model.predictive(eta).log_prob(row))[0])


@pytest.mark.parametrize("case", ALL, ids=name)
def test_log_evidence_is_the_product_of_the_predictives(case: Case) -> None:
    rows = case.rows(9, seed=3)
    model, units, total = case.model, case.model.eta0, 0.0
    for row in rows:
        total += log_predictive(model, model.decode(units), row)
        units = model.grid.add(units, model.factor(model.shard(row[None])))
    # Few atoms: the predictive of atoms integrates at nodes of its own.
    slack = 0.02 if case.id.endswith("atoms") else 2e-4
    assert model.posterior(units).log_evidence(rows) == pytest.approx(total, abs=slack, rel=1e-5)


def test_log_evidence_by_quadrature() -> None:
    x = np.random.default_rng(0).poisson(3.0, 20)
    found = fit(GammaPoisson(a=2, b=0.5), x).log_evidence(x)
    prior = stats.gamma(2, scale=2)
    value, _ = integrate.quad(
        lambda t: prior.pdf(t) * np.exp(stats.poisson.logpmf(x, t).sum() + 40), 0, 20
    )
    assert found == pytest.approx(np.log(value) - 40, rel=1e-6)


def test_log_evidence_needs_the_records_behind_the_posterior() -> None:
    x = [1, 0, 1]
    post = fit(BetaBernoulli(), x)
    with pytest.raises(DataError, match="not the records behind"):
        post.log_evidence([1, 1, 1])
    with pytest.raises(ConfigError, match="has no closed one"):
        fit(BetaBernoulli(alpha=2.0), x).log_evidence(x)
    loss = BetaExponential()
    with pytest.raises(ConfigError, match="has no closed one"):
        loss.posterior(loss.eta0).log_evidence([0.5])
    fed = Federation(BetaBernoulli(), [x, [0, 0, None, 1]], missing="drop").learn()
    assert fed.log_evidence() == pytest.approx(fed.posterior.log_evidence([*x, 0, 0, 1]))
    fed.forget(records={"a2": [0]})
    assert fed.log_evidence() == pytest.approx(
        fit(BetaBernoulli(), [*x, 0, 1]).log_evidence([*x, 0, 1])
    )


@pytest.mark.parametrize("case", ALL, ids=name)
def test_covariance_is_that_of_the_draws(case: Case) -> None:
    post = fit(case.model, case.rows(80, seed=5))
    found = post.covariance()
    np.testing.assert_allclose(np.diag(found), np.ravel(post.sd()) ** 2, rtol=1e-9)
    theta = np.asarray(post.sample(60_000, seed=2))
    theta = theta.reshape(len(theta), -1)
    if isinstance(case.model, MultivariateNormalModel):
        rows = case.model.to_user().rows
        theta = theta[:, list(rows)]
    drawn = np.atleast_2d(np.cov(theta.T))
    scale = np.sqrt(np.outer(np.diag(found), np.diag(found)))
    np.testing.assert_allclose(drawn / scale, found / scale, atol=0.05)


@pytest.mark.parametrize("case", ALL, ids=name)
def test_json_holds_every_bit(case: Case, tmp_path: Path) -> None:
    post = fit(case.model, case.rows(7, seed=1))
    assert Posterior.from_json(post.to_json()) == post
    post.save(tmp_path / "p.json")
    assert Posterior.load(tmp_path / "p.json") == post
    values = json.loads(post.to_json())
    values["units"][0] = int(values["units"][0]) + 1
    with pytest.raises(ConfigError, match="digest"):
        Posterior.from_json(values)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"model": "beta-bernoulli"}', "no json"])
def test_other_json_is_no_posterior(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no posterior as JSON"):
        Posterior.from_json(text)
    with pytest.raises(ConfigError, match="cannot be read"):
        Posterior.load(tmp_path / "absent.json")
    (tmp_path / "all.csv").write_text(text)
    with pytest.raises(ConfigError, match=r"all\.csv: this is no posterior as JSON"):
        Posterior.load(tmp_path / "all.csv")


@pytest.mark.parametrize("case", ALL, ids=name)
def test_draws_have_one_named_column_per_number(case: Case) -> None:
    post = fit(case.model, case.rows(40, seed=5))
    table = post.draws(3000, seed=1)
    assert all(values.shape == (3000,) for values in table.values())
    means = {row.name: (row.mean, row.sd) for row in post.table()}
    for label, (mean, sd) in means.items():
        assert label in table or label == "theta[0]", (label, list(table))
        assert table[label].mean() == pytest.approx(mean, abs=0.15 * sd)
    found = post.to_arviz(50, 2)
    assert set(found.posterior.data_vars) == set(post.sample(1))


@pytest.mark.parametrize("case", ALL, ids=name)
def test_densities_of_one_record_after_another_are_the_evidence(case: Case) -> None:
    model, rows = case.model, case.rows(12, seed=3)
    steps = [fit(model, rows[:n]) if n else model.posterior(model.eta0) for n in range(12)]
    total = sum(float(q.log_density(rows[n : n + 1])[0]) for n, q in enumerate(steps))
    assert total == pytest.approx(fit(model, rows).log_evidence(rows), rel=1e-9, abs=1e-6)
    assert steps[-1].score(rows[:3]) == pytest.approx(steps[-1].log_density(rows[:3]).mean())


def test_the_score_is_the_density_of_the_predictive() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = (x[:, 0] + rng.normal(size=60) > 0).astype(float)
    records = np.column_stack([x, y])
    for model in (LogisticRegression(2), LinearRegression(2)):
        post = Federation(model, [records]).learn().posterior
        wanted = post.predict(x).log_prob(y).mean()
        assert post.score(records) == pytest.approx(wanted, abs=1e-4)
    times = rng.weibull(1.5, 80)
    post = Federation(Weibull(), [times]).learn().posterior
    assert post.score(times) == pytest.approx(post.predict().log_prob(times).mean())
    for nothing in (np.empty(0), []):
        with pytest.raises(DataError, match=r"^score: no records. Fix: give at least one$"):
            post.score(nothing)
    with pytest.raises(DataError, match=r"^score: the data, column 't', row 0: the value"):
        post.score([-1.0])


def test_densities_of_records_with_levels() -> None:
    """Texts are coded once."""
    model = LogisticRegression(["ward"], levels={"ward": ["north", "south"]}, intercept=True)
    records = {"ward": ["north", "south", "south"], "y": [0, 1, 0]}
    prior = model.posterior(model.eta0)
    wanted = prior.predict({"ward": records["ward"]}).log_prob(records["y"])
    assert prior.log_density(records) == pytest.approx(wanted)
    assert len(prior.check(records, draws=5)) == 4
    assert sum(one.records for one in prior.calibration(records)) == 3


def test_arguments_that_a_prediction_does_not_take() -> None:
    prior = BetaBernoulli().posterior(BetaBernoulli().eta0)
    with pytest.raises(ConfigError, match=r"predicts no classes. Fix: use predict$"):
        prior.predict_proba([1])
    with pytest.raises(ConfigError, match=r"Fix: write predict\(\)$"):
        prior.predict([1])


@pytest.mark.parametrize("case", ALL, ids=name)
def test_checks_find_data_of_another_kind_only(case: Case) -> None:
    """p is calibrated where the records come from the model: no value is extreme."""
    model, rng = case.model, np.random.default_rng(4)
    prior = model.posterior(model.eta0)
    theta = np.asarray(fit(model, case.rows(60, seed=8)).sample(1, seed=3))[0]
    rows = model.replicate(theta, case.rows(60, seed=8), rng)
    shares = [row.p for row in fit(model, rows).check(rows, draws=200, seed=1)]
    assert all(0.0 <= p <= 1.0 for p in shares)
    centre = {"mean": lambda x: float(x.mean())}
    for row in fit(model, rows).check(rows, centre, draws=300, seed=1):
        assert 0.005 < row.p < 0.995, row
    assert prior.check(rows, draws=10)[0].observed == fit(model, rows).check(rows)[0].observed


@pytest.mark.parametrize("name", GLMS)
def test_checks_replicate_the_targets_of_regressions(name: str) -> None:
    """Of every GLM, in the user's units: features at 50 ± 10, and counts over exposures."""
    case = GLMS[name]
    rows = case.rows(300, seed=2)
    x, y = rows[:, :3] * 10 + 50, rows[:, 3:]
    named = {f"x{j}": 10.0 for j in range(1, 4)}
    settings = {"center": dict.fromkeys(named, 50.0), "scale": named}
    if name == "robust-regression":
        y = 20 + 5 * y
        settings = {"center": {**settings["center"], "y": 20.0}, "scale": {**named, "y": 5.0}}
        settings["noise"] = 2.5  # in the units of y
    elif name == "poisson-regression":
        time = np.random.default_rng(0).uniform(1, 9, (300, 1))
        y = np.column_stack([np.random.default_rng(1).poisson(np.exp(rows[:, :1]) * time), time])
        settings["exposure"] = "time"
    model = replace(case.model, **settings)
    records = np.column_stack([x, y])
    post = Federation(model, [records]).learn().posterior
    target = records[:, 3]
    order = np.argsort(x[:, 0])
    checks = {  # the last one depends on the order of records: targets must belong to features
        "mean": lambda z: float(z.mean()),
        "trend": lambda z: float(z[order[150:]].mean() - z[order[:150]].mean()),
    }
    for row in post.check(records, checks, draws=300, seed=1):
        assert 0.005 < row.p < 0.995, row
        assert row.observed == pytest.approx(checks[row.name](target))
    assert np.abs(post.check(records, checks)[1].mean) > 2 * post.check(records, checks)[1].sd


def test_a_check_shows_a_misfit() -> None:
    rng = np.random.default_rng(2)
    heavy = rng.negative_binomial(0.5, 0.05, 400)  # far more spread than a Poisson
    found = {row.name: row for row in fit(GammaPoisson(), heavy).check(heavy)}
    assert found["sd"].p < 0.01
    assert 0.2 < found["mean"].p < 0.8


# ------------------------------------------------------------------------------- predictions


def test_predictions_of_rows() -> None:
    rng = np.random.default_rng(1)
    table = {"dose": rng.normal(size=50), "ward": rng.choice(["a", "b"], 50)}
    table["y"] = 2 * table["dose"] + (table["ward"] == "b")
    model = LinearRegressionUnknownNoise(["dose", "ward"], levels={"ward": ["a", "b"]})
    post = fit(model, table)
    rows = {"dose": [0.0, 1.0], "ward": ["b", "a"]}
    found = post.predict_table(rows, 0.9)
    law = post.predict(rows)
    np.testing.assert_array_equal(found["mean"], law.mean())
    np.testing.assert_array_equal(found["low"], law.interval(0.9)[0])
    counts = fit(BetaBinomial(), {"successes": [1, 2], "trials": [3, 4]})
    by_row = counts.predict_table({"trials": [10, 20, 10]})
    assert by_row["mean"].tolist() == [counts.predict(t).mean() for t in (10, 20, 10)]
    grouped = fit(Grouped(["a", "b"], by="ward"), {"ward": ["a", "b", "a"], "x": [1, 0, 1]})
    means = grouped.predict_table({"ward": ["b", "a"]})["mean"]
    assert means.tolist() == [grouped.predict("b").mean(), grouped.predict("a").mean()]
    labels = fit(DirichletCategorical(["mild", "severe"]), ["mild", "mild"])
    assert set(labels.predict_table({"id": [1, 2]})) == {"p[mild]", "p[severe]"}
    events = fit(GammaEvents(), {"events": [1], "exposure": [2.0]})
    assert events.predict_table({"exposure": [4.0]})["mean"][0] == events.predict(4.0).mean()
    with pytest.raises(DataError, match="lacks the column 'ward'"):
        grouped.predict_table({"x": [1]})
    with pytest.raises(DataError, match="no rows"):
        labels.predict_table({})


def test_a_fitted_glm() -> None:
    """Draws, covariance, predictions by row and JSON work for models that a solver fits."""
    rng = np.random.default_rng(3)
    table = {"dose": rng.normal(50, 10, 200), "ward": rng.choice(["a", "b"], 200)}
    logit = 0.1 * (table["dose"] - 50) + 1.5 * (table["ward"] == "b")
    table["y"] = (rng.random(200) < 1 / (1 + np.exp(-logit))).astype(float)
    model = LogisticRegression(
        ["dose", "ward"],
        levels={"ward": ["a", "b"]},
        intercept=True,
        center={"dose": 50},
        scale={"dose": 10},
    )
    post = Federation(model, [table]).learn().posterior
    assert Posterior.from_json(post.to_json()) == post
    np.testing.assert_allclose(np.diag(post.covariance()), post.sd() ** 2)
    draws = post.draws(60_000, seed=1)
    assert list(draws) == ["intercept", "dose", "ward[b]"]
    drawn = np.cov(np.stack(list(draws.values())))
    scale = np.sqrt(np.outer(post.sd(), post.sd()))
    np.testing.assert_allclose(drawn / scale, post.covariance() / scale, atol=0.05)
    rows = {"dose": [40.0, 60.0], "ward": ["a", "b"]}
    found = post.predict_table(rows)
    np.testing.assert_array_equal(found["p[1]"], post.predict_proba(rows)[:, 1])
    ends = post.predict(rows).probability_interval(0.95)
    np.testing.assert_array_equal([found["low[1]"], found["high[1]"]], ends)
    classes = SoftmaxRegression(["dose"], classes=3)
    three = classes.posterior(classes.eta0).predict_table({"dose": [0.5]}, 0.8)
    assert all(three[f"low[{c}]"] < three[f"p[{c}]"] < three[f"high[{c}]"] for c in range(3))
    post3 = classes.posterior(classes.eta0)
    found3 = post3.to_arviz(draws=10, chains=1).posterior["dose"]
    assert found3.dims == ("chain", "draw", "class")
    np.testing.assert_array_equal(found3.sel({"class": 2})[0], post3.draws(10)["dose[2]"])
    assert set(post3.draws(2)) == {row.name for row in post3.table()}
    rates = PoissonRegression(["dose"], exposure="years")  # the column has the user's name
    by_years = rates.posterior(rates.eta0).predict_table({"dose": [0.1] * 2, "years": [1.0, 2.0]})
    assert by_years["mean"][1] == pytest.approx(2 * by_years["mean"][0])
    counts = PoissonRegression(["dose"])
    flat = counts.posterior(counts.eta0)
    with_exposure = flat.predict_table({"dose": [0.1, 0.1], "exposure": [1.0, 2.0]})
    assert with_exposure["mean"][1] == pytest.approx(2 * with_exposure["mean"][0])


def test_the_calibration_curve_is_the_one_of_scikit_learn() -> None:
    rng = np.random.default_rng(8)
    x = rng.normal(size=(400, 2))
    y = (rng.uniform(size=400) < 1 / (1 + np.exp(-x[:, 0]))).astype(float)
    post = Federation(LogisticRegression(2), [(x[:150], y[:150])]).learn().posterior
    test = np.column_stack([x[150:], y[150:]])
    found = post.calibration(test, bins=8)
    p = post.predict_proba(x[150:])[:, 1]
    observed, predicted = calibration_curve(y[150:], p, n_bins=8)
    np.testing.assert_allclose([one.observed for one in found], observed)
    np.testing.assert_allclose([one.predicted for one in found], predicted)
    assert sum(one.records for one in found) == 250
    other = post.calibration(test, bins=8, label=0)
    np.testing.assert_allclose([1 - one.observed for one in reversed(other)], observed)
    with pytest.raises(ConfigError, match="label = 2"):
        post.calibration(test, label=2)
    with pytest.raises(ConfigError, match="no classes"):
        Federation(BetaBernoulli(), [[1, 0]]).learn().posterior.calibration([[1]])


def test_the_calibration_of_many_classes_is_that_of_the_prediction() -> None:
    rng = np.random.default_rng(9)
    x = rng.normal(size=(300, 2))
    y = (x + rng.gumbel(size=(300, 2))).argmax(axis=1) + (rng.uniform(size=300) < 0.2)
    model = SoftmaxRegression(2, classes=3)
    post = Federation(model, [(x, y.astype(float))]).learn().posterior
    found = post.calibration((x, y.astype(float)))
    right = (post.predict_proba(x).argmax(axis=1) == y).mean()
    assert sum(one.records * one.observed for one in found) == pytest.approx(300 * right)
