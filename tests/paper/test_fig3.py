"""Figure 3: a better connected graph learns sooner, and a conjugate model is learned exactly."""

import numpy as np
import pytest
from scipy.special import betaln, digamma

from unweave.experiments.paper import FIGURES
from unweave.experiments.paper.experiment import bernoulli
from unweave.experiments.replicas import simulate
from unweave.experiments.replicas.paths import paths, replica_seeds
from unweave.graph import graphs
from unweave.models import BetaBernoulli

REPLICAS, SEED = 300, 5


@pytest.fixture(scope="module")
def report():
    return FIGURES["fig3"].compute(REPLICAS, SEED, lambda done: None)


def mean_kl(report, graph):
    return report.table.where(graph=graph).values("kl_mean")


def test_complete_is_fastest_and_star_slowest(report):
    star, ring, complete = (mean_kl(report, name) for name in ("star", "ring", "complete"))
    for i in (4, 9, 19, 39, 59):
        assert complete[i] < ring[i] < star[i]
    needed = [
        report.results[name]["iterations_to_mean_kl_below_0.01"]
        for name in ("complete", "ring", "star")
    ]
    assert needed == sorted(needed)


def test_the_first_visit_by_hand(report):
    """One agent's counts against everybody's, in SciPy's words."""
    x = np.asarray(bernoulli(SEED, REPLICAS, 0.5).data)
    ones = x.sum(axis=2)
    start = paths(graphs.ring(10), "metropolis", replica_seeds(SEED, REPLICAS), 1)[:, 0]
    own = ones[np.arange(REPLICAS), start]
    a, b = 2 + own, 2 + 100 - own
    c, d = 2 + ones.sum(axis=1), 2 + 1000 - ones.sum(axis=1)
    kl = betaln(c, d) - betaln(a, b) + (a - c) * digamma(a) + (b - d) * digamma(b)
    kl += (c + d - a - b) * digamma(a + b)
    assert mean_kl(report, "ring")[0] == pytest.approx(kl.mean(), rel=1e-10)
    assert mean_kl(report, "star")[0] == pytest.approx(kl.mean(), rel=1e-10)  # the same start
    low = report.table.where(graph="ring").values("kl_low")[0]
    assert low == pytest.approx(np.quantile(kl, 0.125, method="inverted_cdf"), rel=1e-10)


def test_kl_is_zero_once_all_were_visited(report):
    for name in ("star", "ring", "complete"):
        assert report.results[name]["largest_kl_once_all_were_visited"] == 0.0
        seeds = replica_seeds(SEED, REPLICAS)
        path = paths(graphs.by_name(name, 10), "metropolis", seeds, 600)
        covered = np.logical_and.reduce(
            [np.logical_or.accumulate(path == k, axis=1) for k in range(10)]
        )
        share = report.table.where(graph=name).values("share_exact")
        np.testing.assert_allclose(share, covered.mean(axis=0), rtol=0, atol=1e-12)
    assert report.results["complete"]["share_of_replicas_exact_at_the_end"] == 1.0


def test_eta_is_the_posterior_bit_for_bit():
    data = bernoulli(SEED, 20, 0.5)
    run = simulate(BetaBernoulli(a=2, b=2), data, graphs.complete(10), replicas=20, iterations=200)
    ones = np.asarray(data.data).sum(axis=(1, 2))
    assert np.array_equal(run.eta[:, -1], np.stack([2 + ones, 2 + 1000 - ones], axis=1))
    assert run.units[:, -1].tolist() == (run.eta[:, -1] * 2**24).astype(int).tolist()


def test_private_rounds_show_the_prior_until_they_end_and_then_the_exact_posterior(report):
    masked = FIGURES["fig3"].computed("masked")(6, SEED, lambda done: None)
    modes = [
        {s.name: s.value for s in FIGURES["fig3"].settings_of(SEED, r)} for r in (report, masked)
    ]
    assert [found["privacy"] for found in modes] == ["plain", "masked"]
    for name in ("ring", "complete"):
        rows, result = masked.table.where(graph=name), masked.results[name]
        assert result["largest_kl_once_a_round_was_complete"] == 0.0
        assert result["share_of_replicas_exact_at_the_end"] == 1.0
        kl, exact = rows.values("kl_mean"), rows.values("share_exact")
        assert np.ptp(kl[exact == 0.0]) == 0.0  # the prior, whoever has given already
        assert kl[0] > 0.0
        assert kl[-1] == 0.0
        middle = int(np.argmax(exact >= 0.5))
        assert 0.5 * result["expected_round"] < middle < 2.0 * result["expected_round"]
