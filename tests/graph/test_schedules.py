"""The routing rules: the right frequencies, the right bounds, from local knowledge only."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from unweave.graph import (
    Topology,
    first_agent,
    graphs,
    metropolis_next,
    route_key,
    seek_next,
    sweep_next,
    sweep_order,
    sweep_walk,
)
from unweave.graph.times import transition_matrix
from unweave.persistent import NOBODY, Bitmap, Stack
from unweave.rng import Purpose, derive, uniform


@st.composite
def connected(draw, most=14):
    count = draw(st.integers(1, most))
    edges = [(draw(st.integers(0, k - 1)), k) for k in range(1, count)]
    if count > 1:
        node = st.integers(0, count - 1)
        edges += [e for e in draw(st.lists(st.tuples(node, node), max_size=count)) if e[0] != e[1]]
    return Topology([f"a{k + 1}" for k in range(count)], edges)


def walk_sweep(t, start, seed, skip=frozenset()):
    """The agents in the order in which the token is at them, until the pass is done."""
    k, stack, visited = start, Stack(), NOBODY
    at = [k]
    while True:
        step = sweep_next(t, k, stack, visited, sweep_order(t, k, seed), skip)
        if step.done:
            assert step.stack == Stack()
            assert step.next == k or step.next in t.adjacency[k]
            return at + [step.next] * (step.next != k), step.visited
        assert step.next in t.adjacency[k]
        k, stack, visited = step.next, step.stack, step.visited
        at.append(k)


# ---------------------------------------------------------------------- metropolis


@pytest.mark.parametrize("name", ["star", "grid", "barabasi-albert", "complete"])
def test_metropolis_frequencies_match_the_transition_matrix(name):
    t = graphs.by_name(name, 9)
    P = transition_matrix(t)
    draws = 4000
    statistic = freedom = 0
    for k in range(len(t)):
        seen = np.zeros(len(t))
        for hop in range(draws):
            seen[metropolis_next(t, k, route_key(11, k + 1, hop))] += 1
        possible = P[k] > 1e-12
        assert seen[~possible].sum() == 0
        expected = draws * P[k][possible]
        statistic += float(((seen[possible] - expected) ** 2 / expected).sum())
        freedom += int(possible.sum()) - 1
    assert chi2.sf(statistic, freedom) > 1e-3


def test_metropolis_uses_the_agreed_draws():
    """Neighbour floor(u0·deg), accepted iff u1·deg(j) < deg(k); then the next pair."""
    t = graphs.barabasi_albert(12, 2, seed=4)
    redrawn = stayed = 0
    for hop in range(400):
        key = derive(9, 1, hop, Purpose.ROUTE)
        assert key == route_key(9, 1, hop)
        k = hop % 12
        skip = frozenset({t.adjacency[k][0]}) if hop % 3 else frozenset()
        attempt = 0
        while True:
            j = t.adjacency[k][int(uniform(key, 2 * attempt) * t.degree(k))]
            if j not in skip:
                break
            attempt += 1
            redrawn += 1
        accepted = uniform(key, 2 * attempt + 1) * t.degree(j) < t.degree(k)
        stayed += not accepted
        assert metropolis_next(t, k, key, skip) == (j if accepted else k)
    assert redrawn > 20
    assert stayed > 20


def test_metropolis_stays_without_remaining_neighbours():
    assert metropolis_next(graphs.star(1), 0, 5) == 0
    assert metropolis_next(graphs.star(4), 1, 5, frozenset({0})) == 1
    assert metropolis_next(graphs.star(4), 0, 5, frozenset({1, 2})) == 3


def test_the_first_agent_is_uniform():
    counts = np.bincount([first_agent(5, seed) for seed in range(5000)], minlength=5)
    assert counts.size == 5
    assert ((counts - 1000) ** 2 / 1000).sum() < chi2.isf(1e-3, 4)


# ---------------------------------------------------------------------- sweep


@given(connected(), st.integers(0, 2**64 - 1))
def test_sweep_visits_all_within_its_bound_from_every_start(t, seed):
    K = len(t)
    for start in range(K):
        at, visited = walk_sweep(t, start, seed)
        assert visited == set(range(K))
        assert at[0] == at[-1] == start
        assert len(at) - 1 <= 2 * (K - 1)
        last_new = max(at.index(k) for k in range(K))
        # Behind the last new agent, nobody but the one before the root is a neighbour of the root.
        assert not set(at[last_new:-2]) & set(t.adjacency[start])
        if all(k == start or start in t.adjacency[k] for k in range(K)):
            assert len(at) - 1 == last_new + (K > 1)


@pytest.mark.parametrize("K", [3, 4, 10])
@pytest.mark.parametrize("name", ["complete", "ring"])
def test_a_pass_over_a_complete_graph_or_a_ring_costs_one_hop_per_agent(name, K):
    """Nobody is visited twice, and the next pass begins where the last one ended: at its root."""
    t = graphs.by_name(name, K)
    for seed in range(20):
        walk = [k for k, _ in islice(sweep_walk(t, seed % K, seed), 3 * K)]
        assert sorted(walk[:K]) == list(range(K))
        assert walk[:K] == walk[K : 2 * K] == walk[2 * K :]


@given(connected(), st.integers(0, 2**32))
def test_everybody_has_one_first_visit_in_every_pass(t, seed):
    K = len(t)
    steps = list(islice(sweep_walk(t, seed % K, seed), 4 * 2 * K))
    firsts = [k for k, first in steps if first]
    for i in range(0, len(firsts) - K + 1, K):
        assert sorted(firsts[i : i + K]) == list(range(K))
        assert firsts[i] == firsts[0]


def step(t, k, stack, visited, order, skip=frozenset()):
    """`sweep_next` on plain values."""
    found = sweep_next(t, k, Stack.of(stack), Bitmap(visited), order, skip)
    return found.next, list(found.stack), set(found.visited), found.done


def test_a_sweep_returns_directly_only_after_all_agents_were_visited():
    """Agent 2 suspects agent 3. Others may reach it, so the pass goes back depth first; once 3 was
    visited, or is gone for good, agent 2 goes straight to the root."""
    t, order, skip = graphs.complete(4), (3, 0, 1), frozenset({3})
    assert step(t, 2, (0, 1), (0, 1), order, skip) == (1, [0], {0, 1, 2}, False)
    assert step(t, 2, (0, 1), (0, 1, 3), order, skip) == (0, [], {0, 1, 2, 3}, True)
    assert step(t, 1, (0,), (0, 1, 2), (0, 3, 2)) == (3, [0, 1], {0, 1, 2}, False)


def test_the_direct_way_is_taken_to_a_root_that_answers_and_is_a_neighbour():
    t, order = graphs.complete(4), (3, 0, 1)
    away = step(t, 2, (0, 1, 3), (0, 1, 3), order, frozenset({0}))
    assert away == (3, [0, 1], {0, 1, 2, 3}, False)
    far = step(graphs.path(4), 3, (0, 1, 2), (0, 1, 2), (2,))
    assert far == (2, [0, 1], {0, 1, 2, 3}, False)


@given(connected(), st.integers(0, 2**32), st.data())
def test_sweep_around_suspects_visits_what_can_be_reached(t, seed, data):
    skip = frozenset(data.draw(st.sets(st.integers(0, len(t) - 1), max_size=4)))
    start = data.draw(st.sampled_from([k for k in range(len(t)) if k not in skip] or [0]))
    at, visited = walk_sweep(t, start, seed, skip - {start})
    reach = t.distances_avoiding(start, skip - {start}) >= 0
    assert visited == set(np.flatnonzero(reach).tolist())
    assert at[-1] == start


def test_an_agent_without_a_parent_to_return_to_becomes_the_root():
    path = graphs.path(3)
    gone = sweep_next(path, 2, Stack.of([0, 1]), Bitmap([0, 1]), (1,), frozenset({1}))
    assert gone == (2, Stack(), {0, 1, 2}, True)
    stranger = sweep_next(path, 2, Stack.of([0]), Bitmap([0, 1]), (1,))
    assert stranger == (2, Stack(), {0, 1, 2}, True)


def test_sweep_order_is_a_seeded_local_permutation():
    t = graphs.complete(9)
    orders = [sweep_order(t, k, 3) for k in range(9)]
    for k, order in enumerate(orders):
        assert sorted(order) == [j for j in range(9) if j != k]
        key = derive(3, Purpose.ORDER, k)
        assert [uniform(key, j) for j in order] == sorted(uniform(key, j) for j in order)
    assert len({sweep_order(t, 0, seed) for seed in range(30)}) > 25


# ---------------------------------------------------------------------- seek


@given(connected(), st.data())
def test_seek_takes_a_shortest_path(t, data):
    k, target = (data.draw(st.integers(0, len(t) - 1)) for _ in range(2))
    distance, hops = int(t.distances(target)[k]), 0
    while k != target:
        following = seek_next(t, k, target)
        assert following in t.adjacency[k]
        k, hops = following, hops + 1
    assert hops == distance
    assert seek_next(t, target, target) == target


@given(connected(), st.data())
def test_seek_goes_around_suspects(t, data):
    k, target = (data.draw(st.integers(0, len(t) - 1)) for _ in range(2))
    skip = frozenset(data.draw(st.sets(st.integers(0, len(t) - 1), max_size=4)))
    to_target = t.distances_avoiding(target, skip - {k})
    following = seek_next(t, k, target, skip)
    if k == target or to_target[k] < 0:
        assert following == k
    else:
        assert following not in skip
        assert to_target[following] == to_target[k] - 1


def test_seek_breaks_ties_by_the_smallest_index():
    assert seek_next(graphs.ring(6), 0, 3) == 1
    assert seek_next(graphs.ring(6), 0, 3, frozenset({1})) == 5
    assert seek_next(graphs.ring(6), 0, 3, frozenset({1, 4})) == 0
