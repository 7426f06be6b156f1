"""Figure 5: when agent 10 is removed, what it leaves behind, and that refining takes that away."""

import json

import numpy as np
import pytest

from unweave.experiments.paper import FIGURES
from unweave.experiments.paper.experiment import (
    THETA_DROP,
    THETA_OTHER,
    ending,
    exponential,
    outside_note,
    summarised,
)
from unweave.experiments.paper.fig4 import Method, floor, run
from unweave.experiments.replicas import Curves, Forget
from unweave.models import BetaExponential

REPLICAS, SEED = 40, 2
REDUCTIONS = ["mean", "sum"]


@pytest.fixture(scope="module")
def report():
    return FIGURES["fig5"].compute(REPLICAS, SEED, lambda done: None)


def test_removal_lands_after_nine_iterations():
    """While an agent is forgotten eta changes once, when it is reached: 1/K + K − 1 = 9.1."""
    replicas, learn = 3000, 40
    found = run(
        BetaExponential(a=3, b=3),
        exponential(SEED, replicas),
        Method("exact", None, 1),
        learn,
        replicas=replicas,
        seed=SEED,
        forget=Forget("a10", "subtract", 200),
    )
    # Who was not scheduled while learning has nothing to remove.
    known = (found.path[:, :learn] == 9).any(axis=1)
    units = found.units[known][:, learn - 1 :]
    moved = (units[:, 1:] != units[:, :-1]).any(axis=2)
    assert (moved.sum(axis=1) == 1).all()
    landing = moved.argmax(axis=1) + 1
    error = landing.std(ddof=1) / np.sqrt(len(landing))
    assert landing.mean() == pytest.approx(9.1, abs=4 * error)
    assert error < 0.2


def test_the_report_agrees(report):
    assert report.results["expected_removal"] == pytest.approx(9.1)
    for reduction in REDUCTIONS:
        for case in ("paper", "drop", "similar", "dissimilar"):
            landing = report.results[reduction][case]["removed_at_iteration"]
            assert landing["mean"] == pytest.approx(9.1, abs=4 * landing["standard_error"])
            rows = report.table.where(reduction=reduction, case=case, how="subtract")
            share = rows.values("share_removed")
            assert share[0] == 0.0
            assert share[-1] == 1.0
            assert (np.diff(share) >= 0).all()


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_dissimilar_agent_stays_until_refined(report, reduction):
    far = report.results[reduction]["dissimilar"]
    residual = far["subtract"]["kl_median"] - far["floor"]
    assert residual > 4 * far["subtract"]["kl_standard_error"]
    assert residual > {"sum": 100, "mean": 0.2}[reduction] * far["floor"]
    assert abs(far["refine"]["largest_excess_over_floor"]) < 1e-6
    assert abs(far["retrain"]["largest_excess_over_floor"]) < 1e-6
    assert far["refine"]["kl_median"] == pytest.approx(far["retrain"]["kl_median"], abs=1e-8)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_similar_agent_leaves_little_behind(report, reduction):
    near, far = (report.results[reduction][case] for case in ("similar", "dissimilar"))
    left = near["subtract"]["kl_median"] - near["floor"]
    assert 0 < left < 0.1 * (far["subtract"]["kl_median"] - far["floor"])
    assert near["subtract"]["kl_median"] < near["before"]
    assert abs(near["refine"]["largest_excess_over_floor"]) < 1e-6


def test_the_floor_is_that_of_the_others_alone(report):
    """Agent 10's data must not matter for what the others could know."""
    for reduction in REDUCTIONS:
        model = BetaExponential(a=3, b=3, reduction=reduction)
        entry = report.results[reduction]
        assert entry["similar"]["floor"] == entry["dissimilar"]["floor"]
        data = exponential(SEED, REPLICAS, last=THETA_OTHER)
        assert np.median(floor(model, data)) != entry["dissimilar"]["floor"]
        assert entry["dissimilar"]["retrain"] == entry["similar"]["retrain"]
        assert entry["drop"]["retrain"] == entry["paper"]["retrain"]


def test_retraining_starts_from_the_prior(report):
    rows = report.table.where(reduction="sum", case="dissimilar")
    retrain, subtract = (
        rows.where(how=how, iteration=0).values("kl_mean")[0] for how in ("retrain", "subtract")
    )
    assert retrain > 10 * subtract
    first = report.table.where(how="retrain", iteration=0, reduction="sum").values("kl_mean")
    assert len(set(first.tolist())) == 1  # the prior does not depend on the case


def test_reinforce_unlearns_what_retraining_would_take_long_for(report):
    """The paper's claim, where its noise allows one to see it: the mean loss."""
    entry = report.results["mean"]["paper"]
    rows = report.table.where(reduction="mean", case="paper")
    soon = rows.where(how="retrain", iteration=10).values("kl_mean")[0]
    done = rows.where(how="subtract", iteration=10).values("kl_mean")[0]
    assert done < 0.2 * soon
    ends = (entry[how]["kl_median"] for how in ("subtract", "retrain"))
    assert next(ends) == pytest.approx(next(ends), rel=0.1)


@pytest.mark.parametrize(("reduction", "factor"), [("sum", 4), ("mean", 1.05)])
def test_the_papers_gradient_shows_the_drop(report, reduction, factor):
    """The median falls when agent 10 is reached, to what retraining takes 800 iterations for."""
    drop = report.results[reduction]["drop"]
    assert drop["before"] > factor * drop["subtract"]["kl_median"]
    assert drop["subtract"]["kl_median"] < 4 * drop["retrain"]["kl_median"]
    rows = report.table.where(reduction=reduction, case="drop", how="subtract")
    median = rows.values("kl_median")
    assert (median[0], median[-1]) == (drop["before"], drop["subtract"]["kl_median"])


def test_replicas_outside_the_domain_are_counted_and_ranked_last():
    """One such replica made `paper fig5 --seed 1` end without a figure."""
    replicas, learn, more = 200, 800, 60
    model = BetaExponential(a=3, b=3)
    data = exponential(SEED, replicas, last=THETA_DROP)
    found = run(
        model,
        data,
        Method("reinforce", 5e-3, 10),
        learn,
        replicas=replicas,
        seed=SEED,
        forget=Forget("a10", "subtract", more),
    )
    a, b = found.eta[:, -1].T
    gone = (a <= 1.0) | (b <= 0.0)
    assert 0 < gone.sum() < 0.1 * replicas
    kl = found.kl(at=np.array([learn, learn + more]))
    assert np.isfinite(kl.values[:, 0]).all()
    assert np.array_equal(np.isinf(kl.values[:, 1]), gone)
    median, mean, low, high, outside = list(summarised(kl))[1]
    assert outside == gone.sum()
    assert mean == pytest.approx(kl.values[~gone, 1].mean())
    ranked = np.sort(kl.values[:, 1])  # infinite ones last
    assert (low, median, high) == (ranked[24], ranked[99], ranked[174])
    end = ending(kl, np.zeros(replicas))
    assert end["outside_rate"] == gone.mean()
    note = outside_note(replicas, {"subtract": end, "retrain": {**end, "outside": 0}})
    assert f"subtract {gone.sum()} ({100 * gone.mean():.1f}%); none in the other 1 runs" in note


def test_a_band_that_is_infinite_has_an_empty_cell():
    curves = Curves(np.array([[1.0], [2.0], [np.inf], [np.inf]]))
    assert list(summarised(curves)) == [(2.0, 1.5, 1.0, None, 2)]
    assert list(summarised(Curves(np.full((2, 1), np.inf)))) == [(None, None, None, None, 2)]
    json.dumps(ending(Curves(np.full((2, 1), np.inf)), np.zeros(2)), allow_nan=False)


def test_atoms_forget_exactly_whatever_agent_10_holds(report):
    """No refining: the KL is that of the posterior with agent 10, until the walk reaches it."""
    for reduction in ("mean", "sum"):
        for case in ("similar", "dissimilar"):
            curve = report.table.where(reduction=reduction, case=case, how="atoms")
            assert curve.values("kl_high")[-1] < 1e-6
            removed = curve.values("share_removed")
            assert (curve.values("kl_high")[removed == 1.0] < 1e-6).all()
    far = report.table.where(reduction="sum", case="dissimilar", how="atoms")
    assert far.values("kl_median")[0] > 0.1
