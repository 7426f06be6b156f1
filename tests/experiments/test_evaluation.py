"""The comparison of subtracting, refining and retraining, against values computed elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from unweave.errors import ConfigError
from unweave.experiments.evaluation.membership import _FORGOTTEN, _KEPT, _OUT, _judge, attack
from unweave.experiments.evaluation.methods import Trial, compare, deletions
from unweave.experiments.evaluation.scores import log_density
from unweave.graph import graphs
from unweave.models import (
    BetaBernoulli,
    BetaExponential,
    LogisticRegression,
    NormalKnownVariance,
)
from unweave.models.fitted.calibration import calibration_curve, calibration_error
from unweave.solvers import optimum


def durations(agents: int = 4, rows: int = 30) -> Trial:
    rng = np.random.default_rng(5)
    model, graph = BetaExponential(), graphs.ring(agents)
    means = rng.uniform(0.2, 0.9, agents)
    shards = [
        model.shard(rng.exponential(mean, rows), name)
        for mean, name in zip(means, graph.agents, strict=True)
    ]
    return Trial(model, shards, graph, test=rng.exponential(0.5, (50, 1)))


def test_methods_are_measured_against_the_optimum_of_the_remaining_data() -> None:
    case = durations()
    subtract, refine, retrain = compare(case, ["a2"])
    assert [m.method for m in (subtract, refine, retrain)] == ["subtract", "refine", "retrain"]
    rest = [case.model.summary(shard) for shard in case.shards if shard.agent != "a2"]
    family, best = case.model.family, optimum(case.model, case.model.combine(np.stack(rest)))
    # The same numbers by hand: learn all, subtract the factor, and compare with the optimum.
    learned = case.start()[0].learn(progress=False)
    gone = learned.units - learned.factor("a2")
    assert subtract.kl_to_reference == pytest.approx(
        float(family.kl(case.model.decode(gone), best)), rel=1e-3
    )
    assert subtract.kl_from_reference == pytest.approx(
        float(family.kl(best, case.model.decode(gone))), rel=1e-3
    )
    assert refine.kl_to_reference < subtract.kl_to_reference / 100
    assert retrain.kl_to_reference < 1e-8
    assert refine.grid_change < subtract.grid_change
    assert (subtract.visits, subtract.visits < refine.visits < retrain.visits) == (0, True)
    assert subtract.hops < refine.hops < retrain.hops
    assert subtract.bytes > 8 * case.model.grid.dim * subtract.hops
    # The mean of −log p over draws of θ, against the closed predictive.
    predictive = case.model.posterior(learned.units).predict()
    exact = predictive.log_prob(case.test[:, 0])
    assert np.allclose(log_density(learned.posterior, case.test), exact, atol=0.02)
    assert subtract.nll == pytest.approx(-exact.mean(), abs=0.05)


def test_records_can_be_forgotten_and_a_conjugate_model_is_exact() -> None:
    case = durations()
    assert compare(case, records={"a1": [0, 1, 2]})[0].kl_to_reference < 1e-2
    model, graph = BetaBernoulli(), graphs.complete(3)
    rng = np.random.default_rng(0)
    shards = [model.shard(rng.integers(0, 2, 20), name) for name in graph.agents]
    exact, retrain = compare(Trial(model, shards, graph), ["a1"])
    assert (exact.method, exact.kl_to_reference, exact.grid_change) == ("exact", 0.0, 0)
    assert retrain.hops > exact.hops


def test_many_erasures_add_up_unless_they_are_refined() -> None:
    rows = deletions(durations(), 8)
    assert [row.erased for row in rows] == list(range(1, 9))
    assert rows[-1].subtracted > 3 * rows[0].subtracted
    assert all(row.refined < 1e-6 for row in rows)
    assert rows[-1].hops > rows[0].hops


def scores(shift: float, runs: int = 60, records: int = 400):
    """Normal scores whose mean is `shift` standard deviations higher for forgotten records."""
    rng = np.random.default_rng(1)
    status = rng.choice([_OUT, _KEPT, _FORGOTTEN], (runs, records), p=(0.4, 0.4, 0.2))
    level = rng.normal(0, 5, records)  # records differ more than their presence does
    return level + rng.normal(size=status.shape) + shift * (status == _FORGOTTEN), status


@pytest.mark.parametrize("shift", [0.0, 1.0, 3.0])
def test_the_attack_finds_what_theory_allows(shift: float) -> None:
    found, status = scores(shift)
    every = np.ones(found.shape[1], dtype=bool)
    result = _judge("subtract", "forgotten", found, status.astype(np.int8), _FORGOTTEN, every)
    # Two normal distributions at distance d: AUC = Φ(d/√2), TPR = Φ(d − Φ⁻¹(0.99)).
    assert result.auc == pytest.approx(norm.cdf(shift / np.sqrt(2)), abs=0.03)
    assert result.tpr == pytest.approx(norm.cdf(shift - norm.ppf(0.99)), abs=0.06)
    assert result.decisions == (status == _FORGOTTEN).sum()


def test_forgotten_records_of_a_network_are_found_by_chance_only() -> None:
    case = durations(agents=3, rows=40)
    results = {(one.method, one.records): one for one in attack(case, 24)}
    assert set(results) == {
        (method, what)
        for method in ("subtract", "refine", "retrain")
        for what in ("forgotten", "remaining")
    }
    for method in ("refine", "retrain"):
        assert results[method, "forgotten"].tpr < 0.04
        assert 0.4 < results[method, "forgotten"].auc < 0.6
    # The same attacker does find records that are still there.
    assert results["retrain", "remaining"].auc > results["retrain", "forgotten"].auc + 0.02
    with pytest.raises(ConfigError, match="at least 12"):
        attack(case, 3)


def test_the_calibration_error_is_the_mean_gap_of_the_bins() -> None:
    p, y = np.array([0.1, 0.1, 0.9, 0.9]), np.array([0.0, 1.0, 1.0, 1.0])
    found = calibration_error(calibration_curve(p, y, bins=2))
    assert found == pytest.approx((abs(1 - 0.2) + abs(2 - 1.8)) / 4)
    rng = np.random.default_rng(2)
    p, u = rng.uniform(size=20_000), rng.uniform(size=20_000)
    assert calibration_error(calibration_curve(p, (u < p).astype(float))) < 0.02
    assert calibration_error(calibration_curve(p, (u < p**3).astype(float))) > 0.1


def test_every_method_of_a_classifier_has_a_calibration_curve() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(360, 2))
    y = rng.uniform(size=360) < 1 / (1 + np.exp(-2 * x[:, 0]))
    rows = np.column_stack([x, y])
    model, graph = LogisticRegression(2, intercept=True), graphs.ring(4)
    shards = [
        model.shard(part, name)
        for part, name in zip(np.array_split(rows[:200], 4), graph.agents, strict=True)
    ]
    for found in compare(Trial(model, shards, graph, test=rows[200:]), ["a2"]):
        assert sum(one.records for one in found.calibration) == 160
        assert found.ece == calibration_error(found.calibration)
        assert found.row()["calibration"][0]["records"] == found.calibration[0].records
    for one in compare(durations(), ["a2"]):
        assert one.ece is None
        assert one.calibration == []


def test_densities_are_those_of_the_posterior() -> None:
    """Of a conjugate model too, and with a temperature: that weighs what is learned only."""
    rows = np.array([[0.3], [-2.0]])
    for model in (NormalKnownVariance(), NormalKnownVariance(alpha=2.0)):
        prior = model.posterior(model.eta0)
        assert np.allclose(log_density(prior, rows), prior.predict().log_prob(rows[:, 0]))


def test_a_model_without_a_density_per_record_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model = BetaExponential()
    monkeypatch.delattr(BetaExponential, "log_density")
    monkeypatch.delattr(type(model.posterior(model.eta0).predict()), "log_prob")
    with pytest.raises(ConfigError, match=r"no density per record. Fix: --held-out 0"):
        log_density(model.posterior(model.eta0), np.zeros((2, 1)))
