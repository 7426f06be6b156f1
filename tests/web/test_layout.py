"""Pictures of graphs: inside the square, apart from each other, neighbours close."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unweave import graphs
from unweave.graph import Topology
from unweave.web.layout import places

GRAPHS = [
    graphs.star(2),
    graphs.star(9),
    graphs.star(400),
    graphs.ring(3),
    graphs.ring(11),
    graphs.complete(8),
    graphs.complete(80),
    graphs.path(5),
    graphs.path(50),
    graphs.grid(24),
    graphs.grid(30, columns=15),
    graphs.erdos_renyi(60, 0.1, seed=1),
    graphs.watts_strogatz(200, 4, 0.1, seed=2),
    graphs.barabasi_albert(300, 2, seed=3),
]


@pytest.mark.parametrize("graph", GRAPHS, ids=repr)
def test_agents_lie_apart_in_the_square(graph: Topology) -> None:
    found = np.array(places(graph))
    assert found.shape == (len(graph), 2)
    assert (found >= 0.0).all()
    assert (found <= 1.0).all()
    apart = np.hypot(*(found[:, None] - found[None]).transpose(2, 0, 1))
    np.fill_diagonal(apart, np.inf)
    assert apart.min() > 0.1 / len(graph)
    assert places(graph) == places(graph)


@pytest.mark.parametrize("graph", [g for g in GRAPHS if len(g) > 20 and 1 < g.diameter < 50])
def test_neighbours_are_closer_than_others(graph: Topology) -> None:
    found = np.array(places(graph))
    heads, tails = graph.edge_array.T
    neighbours = np.hypot(*(found[heads] - found[tails]).T).mean()
    everybody = np.hypot(*(found[:, None] - found[None]).transpose(2, 0, 1)).mean()
    assert neighbours < 0.8 * everybody


def test_a_ring_is_a_circle_in_its_own_order() -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    order = ["a", "d", "b", "f", "c", "e"]
    graph = Topology(names, [*pairwise(order), ("e", "a")])
    found = dict(zip(names, np.array(places(graph)) - 0.5, strict=True))
    assert np.allclose([np.hypot(*place) for place in found.values()], 0.46, atol=0.05)
    steps = [np.hypot(*(found[a] - found[b])) for a, b in pairwise(order)]
    assert np.allclose(steps, steps[0], atol=1e-3)


def test_a_grid_is_a_grid() -> None:
    found = np.array(places(graphs.grid(12, columns=4))).reshape(3, 4, 2)
    assert np.allclose(np.diff(found[..., 0], axis=1), 0.3067, atol=2e-4)
    assert np.allclose(found[:, :, 1], found[:, :1, 1])


def test_a_hub_is_in_the_middle() -> None:
    assert places(graphs.star(9))[0] == (0.5, 0.5)


@given(st.integers(1, 30), st.integers(0, 100))
def test_any_graph_has_places(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = [(k, int(rng.integers(0, k))) for k in range(1, size)]
    more = rng.integers(0, size, (size, 2))
    edges += [(int(a), int(b)) for a, b in more if a != b]
    found = np.array(places(Topology(size, edges)))
    assert np.isfinite(found).all()
    assert ((found >= 0.0) & (found <= 1.0)).all()


def test_two_thousand_agents_have_places() -> None:
    assert len(places(graphs.barabasi_albert(2000, 2, seed=0))) == 2000
