"""Figure 5: when agent 10 is removed, what it leaves behind, and that refining takes that away."""

import numpy as np
import pytest

from unweave.experiments.paper import FIGURES
from unweave.experiments.paper.experiment import THETA_OTHER, exponential
from unweave.experiments.paper.fig4 import Method, floor, run
from unweave.experiments.replicas import Forget
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
        for case in ("paper", "similar", "dissimilar"):
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
    residual = far["subtract"]["kl"] - far["floor"]
    assert residual > 4 * far["subtract"]["kl_standard_error"]
    assert residual > {"sum": 100, "mean": 0.2}[reduction] * far["floor"]
    assert abs(far["refine"]["largest_excess_over_floor"]) < 1e-6
    assert abs(far["retrain"]["largest_excess_over_floor"]) < 1e-6
    assert far["refine"]["kl"] == pytest.approx(far["retrain"]["kl"], abs=1e-8)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_similar_agent_leaves_little_behind(report, reduction):
    near, far = (report.results[reduction][case] for case in ("similar", "dissimilar"))
    left = near["subtract"]["kl"] - near["floor"]
    assert 0 < left < 0.1 * (far["subtract"]["kl"] - far["floor"])
    assert near["subtract"]["kl"] < near["before"]
    assert abs(near["refine"]["largest_excess_over_floor"]) < 1e-6


def test_the_floor_is_that_of_the_others_alone(report):
    """Agent 10's data must not matter for what the others could know."""
    for reduction in REDUCTIONS:
        model = BetaExponential(a=3, b=3, reduction=reduction)
        entry = report.results[reduction]
        assert entry["similar"]["floor"] == entry["dissimilar"]["floor"]
        data = exponential(SEED, REPLICAS, last=THETA_OTHER)
        assert floor(model, data).mean() != entry["dissimilar"]["floor"]
        assert entry["dissimilar"]["retrain"] == entry["similar"]["retrain"]


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
    assert entry["subtract"]["kl"] == pytest.approx(entry["retrain"]["kl"], rel=0.1)
