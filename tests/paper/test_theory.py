"""Times: formula, exact and simulated agree on all three graphs."""

import numpy as np
import pytest

from unweave.experiments.paper import FIGURES
from unweave.experiments.paper.theory import forget_formula, simulated_times, without_last
from unweave.graph import graphs
from unweave.graph.times import first_visit

REPLICAS, SEED = 4000, 1
TIMES = [(g, t) for g in ("star", "ring", "complete") for t in ("learn", "forget", "retrain")]


@pytest.fixture(scope="module")
def report():
    return FIGURES["theory"].compute(REPLICAS, SEED, lambda done: None)


@pytest.mark.parametrize(("graph", "time"), TIMES)
def test_formula_exact_and_simulated_agree(report, graph, time):
    one = report.results[graph][time]
    assert one["formula"] == pytest.approx(one["exact"], rel=1e-9)
    error = (one["ci95"][1] - one["ci95"][0]) / (2 * 1.96)
    assert one["simulated"] == pytest.approx(one["exact"], abs=4 * error)
    assert error < 0.02 * one["exact"]


def test_the_papers_numbers(report):
    complete = report.results["complete"]
    assert complete["learn"]["exact"] == pytest.approx(26.46, abs=0.005)
    assert complete["forget"]["exact"] == pytest.approx(9.1)
    assert complete["retrain"]["exact"] == pytest.approx(22.74, abs=0.005)
    rows = report.table.where(graph="complete")
    about = rows.values("paper_approximation")
    assert about[[0, 2]] == pytest.approx([20.78, 17.64], abs=0.005)
    assert np.isnan(about[1])
    np.testing.assert_allclose(rows.values("paper_formula"), rows.values("exact"), rtol=1e-9)


@pytest.mark.parametrize("K", [3, 4, 7, 15])
@pytest.mark.parametrize("name", ["star", "ring", "complete"])
def test_forget_formulas_for_any_size(name, K):
    assert forget_formula(name, K) == pytest.approx(first_visit(graphs.by_name(name, K), K - 1))


def test_retraining_uses_the_graph_of_the_remaining_agents():
    for name in ("star", "ring", "complete"):
        whole, left = graphs.by_name(name, 6), without_last(name, 6)
        kept = {edge for edge in whole.edges if "a6" not in edge}
        assert set(left.edges) == kept


def test_a_longer_walk_begins_with_the_shorter_one():
    """Times do not depend on how far the simulation looked ahead, or on the other replicas."""
    few, _ = simulated_times(graphs.star(10), SEED, 3)
    many, _ = simulated_times(graphs.star(10), SEED, 500)
    assert few.tolist() == many[:3].tolist()
