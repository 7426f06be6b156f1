"""A topology knows its neighbours and shortest paths, and refuses what cannot carry a token."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unweave.errors import GraphError
from unweave.graph import Disconnected, Topology, graphs


@st.composite
def connected(draw, most=12):
    """A random spanning tree plus random further edges."""
    count = draw(st.integers(1, most))
    edges = [(draw(st.integers(0, k - 1)), k) for k in range(1, count)]
    if count > 1:
        node = st.integers(0, count - 1)
        edges += [e for e in draw(st.lists(st.tuples(node, node), max_size=count)) if e[0] != e[1]]
    return Topology([f"a{k + 1}" for k in range(count)], edges)


def test_names_edges_and_arrays_agree():
    t = Topology(["x", "y", "z"], [("z", "y"), ("x", "y"), ("y", "z")])
    assert t.edges == (("x", "y"), ("y", "z"))
    assert t.indptr.tolist() == [0, 1, 3, 4]
    assert t.indices.tolist() == [1, 0, 2, 1]
    assert t.adjacency == ((1,), (0, 2), (1,))
    assert t.neighbours("y") == ("x", "z")
    assert t.neighbours(1) == (0, 2)
    assert t.degree("y") == 2
    assert t.degrees.tolist() == [1, 2, 1]
    assert len(t) == 3


def test_it_cannot_be_changed():
    t = graphs.ring(4)
    with pytest.raises(AttributeError):
        t.agents = ("b",)
    for array in (t.indptr, t.indices, t.degrees, t.edge_array, t.distances(0)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


def test_equality_is_by_names_and_edges():
    a = Topology(["x", "y", "z"], [(0, 1), (1, 2)])
    b = Topology(["x", "y", "z"], [("z", "y"), ("y", "x")])
    assert a == b
    assert hash(a) == hash(b)
    assert a != Topology(["x", "y", "w"], [(0, 1), (1, 2)])
    assert a != Topology(["x", "y", "z"], [(0, 1), (0, 2)])


@pytest.mark.parametrize(
    ("agents", "edges", "message"),
    [
        ([], [], "no agents. Fix: at least one"),
        (["a", "a"], [(0, 1)], "two agents are named 'a'"),
        (["a", ""], [(0, 1)], "agent 2 is named ''"),
        (["a", "b"], [("a", "a")], r"edge \(a, a\) joins an agent to itself"),
        (
            ["alice", "bob"],
            [("alicia", "bob")],
            "no agent is named 'alicia'. Fix: did you mean alice",
        ),
        (["a", "b"], [(0, 2)], "indices from 0 to 1"),
        (["a", "b"], [(0, -1)], "indices from 0 to 1"),
        (["a", "b"], [(0, 1, 2)], "not a pair"),
    ],
)
def test_refusals_name_the_cause(agents, edges, message):
    with pytest.raises(GraphError, match=message):
        Topology(agents, edges)


def test_a_disconnected_graph_is_refused_with_its_components():
    with pytest.raises(Disconnected) as caught:
        Topology(["a", "b", "c", "d", "e"], [("a", "c"), ("b", "d")])
    assert "3 components: {a, c}, {b, d}, {e}" in str(caught.value)
    with pytest.raises(Disconnected, match=r"1000 components.*, … \(1000 in all\)"):
        Topology([f"a{k}" for k in range(1000)], [])


def test_an_unknown_agent_gets_near_names():
    t = graphs.ring(12)
    with pytest.raises(GraphError, match=r"did you mean .*a1"):
        t.index("a13")
    with pytest.raises(GraphError, match="choose from a1, a2"):
        t.index("zzz")
    with pytest.raises(GraphError, match="choose from 0 to 11"):
        t.index(12)


def test_one_agent_is_a_graph():
    t = Topology(["only"], [])
    assert t.diameter == 0
    assert t.distances(0).tolist() == [0]
    assert t.next_hop(0, 0) == 0


@given(connected(), st.data())
def test_paths_agree_with_networkx(t, data):
    g = t.to_networkx()
    target = data.draw(st.integers(0, len(t) - 1))
    expected = nx.single_source_shortest_path_length(g, t.agents[target])
    assert t.distances(target).tolist() == [expected[name] for name in t.agents]
    assert t.diameter == nx.diameter(g)
    for k in range(len(t)):
        if k != target:
            closer = [j for j in t.adjacency[k] if t.distances(j)[target] < t.distances(k)[target]]
            assert t.next_hop(k, target) == min(closer)


@given(connected(), st.data())
def test_distances_around_others(t, data):
    avoid = frozenset(data.draw(st.sets(st.integers(0, len(t) - 1), max_size=3)))
    target = data.draw(st.integers(0, len(t) - 1))
    g = t.to_networkx()
    g.remove_nodes_from([t.agents[k] for k in avoid])
    name = t.agents[target]
    expected = nx.single_source_shortest_path_length(g, name) if name in g else {}
    found = t.distances_avoiding(target, avoid)
    assert found.tolist() == [expected.get(name, -1) for name in t.agents]


def test_searches_are_remembered_in_a_bounded_way():
    t = graphs.ring(200)
    first = t.distances(0)
    assert t.distances(0) is first
    for k in range(150):
        t.distances(k)
    assert len(t._distances) <= 64
    assert np.array_equal(t.distances(0), first)


def test_a_hundred_thousand_agents_fit():
    t = graphs.grid(100_000)
    assert len(t) == 100_000
    assert t.indices.nbytes + t.indptr.nbytes < 5_000_000
    assert t.next_hop(0, 99_999) in t.neighbours(0)


@given(connected(), st.data())
def test_the_nearest_target_is_the_first_by_distance(t, data):
    agents = st.integers(0, len(t) - 1)
    for _ in range(2):  # another set of targets, and another answer
        targets = data.draw(st.frozensets(agents, min_size=1))
        nearest = t.nearest(targets)
        for k in range(len(t)):
            away = t.distances(k)
            assert nearest[k] == min(targets, key=lambda target: (away[target], target))
        assert t.nearest(targets) is nearest
