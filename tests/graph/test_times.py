"""Expected times against closed forms, brute force and simulation of the rules themselves."""

import math
from itertools import permutations, product

import networkx as nx
import numpy as np
import pytest

from unweave import BetaBernoulli, Federation
from unweave.errors import GraphError
from unweave.graph import Topology, first_agent, graphs, metropolis_next, route_key
from unweave.graph.cover import (
    cover_closed_form,
    cover_exact,
    cover_monte_carlo,
    expected_cover,
    harmonic,
)
from unweave.graph.forecast import forecast, paper_formulas, seek_forecast, sweep_times
from unweave.graph.schedules import sweep_next
from unweave.graph.times import (
    first_visit,
    hitting_times,
    move_probabilities,
    transition_matrix,
)
from unweave.persistent import NOBODY, Stack
from unweave.rng import Purpose, derive

LOLLIPOP = Topology(list("abcdefg"), [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (4, 5), (4, 6)])
SMALL = [LOLLIPOP, graphs.grid(6), graphs.star(5), graphs.path(5), graphs.barabasi_albert(7, 2)]


def simulate(t, agent, runs, seed):
    """Iterations to schedule everybody, and `agent`, by the routing rule itself."""
    everybody, one = [], []
    for r in range(runs):
        own = derive(seed, Purpose.REPLICA, r)
        k, hop = first_agent(len(t), own), 1
        first = {k: 1}
        while len(first) < len(t):
            k = metropolis_next(t, k, route_key(own, 1, hop))
            hop += 1
            first.setdefault(k, hop)
        everybody.append(hop)
        one.append(first[agent])
    return np.asarray(everybody, dtype=float), np.asarray(one, dtype=float)


# ---------------------------------------------------------------------- the transition matrix


@pytest.mark.parametrize("name", graphs.NAMES)
def test_the_walk_is_doubly_stochastic_so_uniform_is_stationary(name):
    t = graphs.by_name(name, 17)
    P = transition_matrix(t)
    assert (P >= 0).all()
    np.testing.assert_allclose(P.sum(axis=1), 1, atol=1e-14)
    np.testing.assert_array_equal(P, P.T)
    np.testing.assert_allclose(np.full(17, 1 / 17) @ P, 1 / 17, atol=1e-15)
    for k in range(17):
        for j in t.adjacency[k]:
            rule = 1 / t.degree(k) * min(1, t.degree(k) / t.degree(j))
            assert P[k, j] == pytest.approx(rule, rel=1e-14)


def test_moves_are_the_entries_of_the_matrix():
    P = transition_matrix(LOLLIPOP)
    moves, stay = move_probabilities(LOLLIPOP)
    heads = np.repeat(np.arange(7), LOLLIPOP.degrees)
    np.testing.assert_array_equal(P[heads, LOLLIPOP.indices], moves)
    np.testing.assert_array_equal(np.diag(P), stay)
    with pytest.raises(GraphError, match="too large"):
        transition_matrix(graphs.ring(10_000))


# ---------------------------------------------------------------------- first visits


@pytest.mark.parametrize("K", [2, 3, 10, 57])
def test_first_visits_on_the_complete_graph_are_the_papers(K):
    assert first_visit(graphs.complete(K), K - 1) == pytest.approx(1 / K + K - 1, rel=1e-12)


def test_first_visits_on_ring_path_and_star():
    K = 12
    d = np.minimum(np.arange(K), K - np.arange(K))
    np.testing.assert_allclose(hitting_times(graphs.ring(K), 0), d * (K - d), rtol=1e-11)
    # Path: an end keeps the token half of the time, so from s to the far end n it takes
    # n(n+1) − s(s+1) steps (a walk on the doubled line).
    s, n = np.arange(K), K - 1
    expected = n * (n + 1) - s * (s + 1)
    np.testing.assert_allclose(hitting_times(graphs.path(K), n), expected, rtol=1e-11)
    # Star with n leaves: from the hub h = 1 + (n−1)/n·l, from another leaf l = n + h.
    hub, leaf = np.linalg.solve([[1, -(n - 1) / n], [-1, 1]], [1, n])
    h = hitting_times(graphs.star(K), K - 1)
    np.testing.assert_allclose(h, [hub] + [leaf] * (n - 1) + [0], rtol=1e-11)


def test_first_visits_on_a_regular_graph_agree_with_resistance_distances():
    """A simple walk: h(k→t) + h(t→k) = 2·E·R(k, t) (Chandra et al. 1989)."""
    g = nx.random_regular_graph(4, 20, seed=2)
    t = Topology.from_networkx(g)
    position = {str(node): node for node in g}
    for b in (3, 11):
        there, back = hitting_times(t, b)[0], hitting_times(t, 0)[b]
        resistance = nx.resistance_distance(g, position[t.agents[0]], position[t.agents[b]])
        assert there + back == pytest.approx(2 * 40 * resistance, rel=1e-9)


def test_one_agent_is_found_at_once():
    assert first_visit(graphs.path(1), 0) == 1.0


@pytest.mark.parametrize(
    "t",
    [graphs.erdos_renyi(300, 0.03), graphs.path(301), graphs.grid(320), graphs.star(300)],
    ids=["fast", "slow", "grid", "star"],
)
def test_large_graphs_use_the_same_equations(t, monkeypatch):
    dense = hitting_times(t, 7)
    monkeypatch.setattr("unweave.graph.times._DENSE", 10)
    np.testing.assert_allclose(hitting_times(t, 7), dense, rtol=1e-8)
    monkeypatch.setattr("unweave.graph.times._MOST_ITERATIONS", 1)
    np.testing.assert_allclose(hitting_times(t, 7), dense, rtol=1e-8)


# ---------------------------------------------------------------------- cover times


def brute_force_cover(t, tolerance=1e-13):
    """Σ_i P(not covered after i steps), by pushing the distribution over (subset, agent)."""
    P = transition_matrix(t)
    K, full = len(t), (1 << len(t)) - 1
    state = {(1 << k, k): 1 / K for k in range(K) if K > 1}
    expected = 1.0
    while (alive := sum(state.values())) > tolerance:
        expected += alive
        following: dict[tuple[int, int], float] = {}
        for (seen, k), weight in state.items():
            for j in np.flatnonzero(P[k]):
                now = seen | 1 << int(j)
                if now != full:
                    key = (now, int(j))
                    following[key] = following.get(key, 0.0) + weight * P[k, j]
        state = following
    return expected


@pytest.mark.parametrize(
    "t", [graphs.grid(4), graphs.star(4), Topology(list("abcd"), [(0, 1), (0, 2), (1, 2), (2, 3)])]
)
def test_exact_cover_equals_brute_force(t):
    assert cover_exact(t) == pytest.approx(brute_force_cover(t), rel=1e-9)


@pytest.mark.parametrize("K", [1, 2, 3, 4, 7, 10])
@pytest.mark.parametrize("name", ["complete", "ring", "star", "path"])
def test_closed_forms_equal_the_exact_computation(name, K):
    t = graphs.by_name(name, K)
    closed = cover_closed_form(t)
    assert closed is not None
    assert closed == pytest.approx(cover_exact(t), rel=1e-11)


def test_known_numbers():
    assert expected_cover(graphs.complete(10)).value == pytest.approx(26.46, abs=0.005)
    assert expected_cover(graphs.ring(10)).value == 1 + 10 * 9 / 2
    assert expected_cover(graphs.complete(1000)).value == pytest.approx(1 + 999 * harmonic(999))
    assert harmonic(0) == 0.0
    assert harmonic(4) == pytest.approx(25 / 12)


def test_closed_forms_are_recognised_whatever_the_names_and_order():
    hub_last = Topology(["x", "y", "z", "hub"], [(3, 0), (3, 1), (3, 2)])
    assert cover_closed_form(hub_last) == cover_closed_form(graphs.star(4))
    assert cover_closed_form(LOLLIPOP) is None
    # Two leaves and a hub of degree three is no path.
    bull = Topology(list("abcde"), [(0, 1), (1, 2), (2, 0), (0, 3), (1, 4)])
    assert cover_closed_form(bull) is None


@pytest.mark.parametrize("t", SMALL)
def test_exact_times_equal_the_simulated_rule(t):
    agent = len(t) - 1
    runs = 1500
    everybody, one = simulate(t, agent, runs, seed=2)
    for samples, exact in ((everybody, cover_exact(t)), (one, first_visit(t, agent))):
        assert abs(samples.mean() - exact) < 4 * samples.std() / math.sqrt(runs)


@pytest.mark.parametrize("t", SMALL)
def test_monte_carlo_is_unbiased(t):
    found = cover_monte_carlo(t, replicas=20_000, seed=1)
    assert found.method == "monte-carlo"
    assert found.replicas == 20_000
    low, high = found.ci95
    assert abs(found.value - cover_exact(t)) < 4 * (high - low) / 2 / 1.96
    assert low < found.value < high


def test_confidence_intervals_cover_about_95_percent():
    exact = cover_exact(LOLLIPOP)
    hits = 0
    for seed in range(300):
        low, high = cover_monte_carlo(LOLLIPOP, replicas=150, seed=seed).ci95
        hits += low <= exact <= high
    assert 0.90 <= hits / 300 <= 0.99


def test_counting_stays_by_expectation_lowers_the_variance():
    t = graphs.star(5)
    plain, _ = simulate(t, 0, 800, seed=3)
    low, high = cover_monte_carlo(t, replicas=800, seed=3).ci95
    assert (high - low) / 2 < 1.96 * plain.std() / math.sqrt(800)


def test_monte_carlo_does_not_depend_on_batches(monkeypatch):
    t = graphs.grid(20)
    whole = cover_monte_carlo(t, replicas=3000, seed=5)
    monkeypatch.setattr("unweave.graph.cover._BATCH_CELLS", 20 * 1000)
    parts = cover_monte_carlo(t, replicas=3000, seed=5)
    assert parts.replicas == 3000
    assert parts.ci95[0] < whole.ci95[1]
    assert whole.ci95[0] < parts.ci95[1]
    assert cover_monte_carlo(t, replicas=3000, seed=5) == parts


def test_limits_of_the_simulation_are_errors_with_a_fix():
    with pytest.raises(GraphError, match="at least 2"):
        cover_monte_carlo(graphs.grid(6), replicas=1)
    with pytest.raises(GraphError, match="simulate beyond 20"):
        cover_exact(graphs.ring(21))
    with pytest.raises(GraphError, match="sweep, which visits all in 798 hops"):
        cover_monte_carlo(graphs.grid(400), replicas=1000, max_moves=100)
    slow = forecast(graphs.grid(400), 0, replicas=1000, max_moves=100)["metropolis"]
    assert slow.learn is None
    assert "not scheduled all" in slow.note
    assert slow.forget.value > 1


# ---------------------------------------------------------------------- sweep and seek


def every_sweep(t, agent):
    """Brute force: all starts and all orders of neighbours, each with the same weight."""
    learn, forget = [], []
    for orders in product(*(list(permutations(row)) for row in t.adjacency)):
        for start in range(len(t)):
            k, stack, visited, hop, first = start, Stack(), NOBODY, 1, {start: 1}
            while len(first) < len(t):
                k, stack, visited, _ = sweep_next(t, k, stack, visited, orders[k])
                hop += 1
                first.setdefault(k, hop)
            learn.append(hop)
            forget.append(first[agent])
    return np.mean(learn), np.mean(forget)


TREE = Topology(list("abcdefg"), [(0, 1), (1, 2), (1, 3), (3, 4), (3, 5), (5, 6)])


@pytest.mark.parametrize("agent", [0, -1])
@pytest.mark.parametrize(
    "t",
    [TREE, graphs.star(5), graphs.path(5), graphs.ring(5), graphs.complete(4), graphs.path(2)],
    ids=["tree", "star", "path", "ring", "complete", "two"],
)
def test_exact_sweep_times_are_the_mean_over_every_start_and_every_order(t, agent):
    agent %= len(t)
    learn, forget = sweep_times(t, agent)
    assert learn.method == forget.method == "exact"
    assert (learn.value, forget.value) == pytest.approx(every_sweep(t, agent), rel=1e-12)


@pytest.mark.parametrize(
    "t", [graphs.grid(6), Topology(list("abcde"), [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4)])]
)
def test_simulated_sweep_times_are_unbiased(t):
    found = sweep_times(t, 1, replicas=4000, seed=3)
    for time, exact in zip(found, every_sweep(t, 1), strict=True):
        assert time.method == "monte-carlo"
        assert time.replicas == 4000
        assert abs(time.value - exact) < 4 * (time.ci95[1] - time.ci95[0]) / 2 / 1.96


def test_sweep_times_are_those_of_networks_with_other_seeds():
    """The simulated samples are what a Federation of that seed takes."""
    t, agent, seed = graphs.erdos_renyi(12, 0.3, seed=1), 7, 5
    assert t.indices.size > 2 * 11
    times = []
    for r in range(50):
        own = derive(seed, Purpose.REPLICA, r)
        federation = Federation(BetaBernoulli(), [[1]] * 12, t, "sweep", seed=own).learn()
        path = [step.agent for step in federation.history]
        times.append((len(path), path.index(t.agents[agent]) + 1))
    learn, forget = sweep_times(t, agent, replicas=50, seed=seed)
    assert (learn.value, forget.value) == pytest.approx(np.mean(times, axis=0))


def test_sweep_on_known_graphs():
    learn, forget = sweep_times(graphs.complete(10), 9)
    assert (learn.value, forget.value) == (10, 5.5)
    # Star: from the hub the last leaf comes at 2(K−1), from a leaf one iteration earlier.
    assert sweep_times(graphs.star(10), 9)[0].value == pytest.approx(17.1)
    assert sweep_times(graphs.path(1), 0)[0].value == 1


def test_large_graphs_have_fewer_sweeps(monkeypatch):
    t = graphs.grid(50)
    many = sweep_times(t, 0)[1]
    monkeypatch.setattr("unweave.graph.forecast._SWEEP_BUDGET", 1)
    few = sweep_times(t, 0)[1]
    assert (many.replicas, few.replicas) == (1000, 30)
    assert few.ci95[0] < many.ci95[1]
    assert many.ci95[0] < few.ci95[1]


@pytest.mark.parametrize("t", [graphs.complete(6), graphs.ring(6), graphs.star(6), LOLLIPOP])
def test_retraining_is_learning_on_the_graph_without_the_agent(t):
    agent = t.agents[-1]
    rest = Topology(t.agents[:-1], [edge for edge in t.edges if agent not in edge])
    found = forecast(t, agent)
    assert found["metropolis"].retrain == expected_cover(rest)
    assert found["sweep"].retrain == sweep_times(rest, 0)[0]
    assert found["seek"].retrain is None
    assert not found["metropolis"].note


def test_a_graph_that_is_disconnected_without_the_agent_has_no_retraining_time():
    for t, why in (
        (graphs.star(5), "the others are not connected"),
        (graphs.path(1), "no agent remains"),
    ):
        found = forecast(t, 0)
        for name in ("metropolis", "sweep"):
            assert found[name].retrain is None
            assert found[name].note.startswith(f"without a1 {why}")
            assert found[name].learn is not None


def test_seek_is_one_more_than_the_mean_distance():
    assert seek_forecast(graphs.complete(10), 9).forget.value == pytest.approx(1.9)
    assert seek_forecast(graphs.star(10), 0).forget.value == pytest.approx(1.9)
    assert seek_forecast(graphs.path(5), 4).forget.value == 3.0
    assert seek_forecast(graphs.path(5), 4).learn is None


def test_the_papers_formulas():
    paper = paper_formulas(10)
    assert paper["cover"] == pytest.approx(25.4607, abs=1e-4)
    assert paper["cover_approximation"] == pytest.approx(9 * math.log(9))
    assert paper["unlearn"] == pytest.approx(9.1)
    assert paper["retrain"] == pytest.approx(8 * harmonic(8))
    for K in (1, 2, 3):
        assert all(math.isfinite(value) for value in paper_formulas(K).values())
