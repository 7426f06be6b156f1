"""Every builder makes the graph that its name promises, the same one for the same seed."""

import builtins

import networkx as nx
import numpy as np
import pytest

from unweave.errors import GraphError, MissingExtra
from unweave.graph import Topology, graphs
from unweave.graph.random_graphs import _bernoulli_pairs, connecting_p


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 12])
@pytest.mark.parametrize(
    ("build", "reference"),
    [
        (graphs.star, lambda k: nx.star_graph(k - 1)),
        (graphs.ring, lambda k: nx.cycle_graph(k) if k > 1 else nx.empty_graph(1)),
        (graphs.path, nx.path_graph),
        (graphs.complete, nx.complete_graph),
    ],
)
def test_fixed_graphs_equal_networkx(build, reference, count):
    g = reference(count)
    g = nx.relabel_nodes(g, {k: f"a{k + 1}" for k in range(count)})
    assert build(count) == Topology.from_networkx(g)


def test_the_hub_is_first_and_names_are_kept():
    t = graphs.star(["centre", "north", "south"])
    assert t.neighbours("centre") == ("north", "south")
    assert t.neighbours("north") == ("centre",)


def test_grid_is_rows_of_columns():
    t = graphs.grid(12)
    reference = nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4), ordering="sorted")
    assert nx.is_isomorphic(t.to_networkx(), reference)
    assert t.neighbours("a6") == ("a2", "a5", "a7", "a10")
    assert graphs.grid(12, columns=6).neighbours("a1") == ("a2", "a7")
    assert graphs.grid(7) == graphs.path(7)
    with pytest.raises(GraphError, match="divisor of 12"):
        graphs.grid(12, columns=5)


def test_erdos_renyi_has_the_right_number_of_edges():
    edges = [len(graphs.erdos_renyi(40, 0.3, seed).edges) for seed in range(200)]
    # 780 pairs, sd of one graph 12.8, of the mean 0.9
    assert abs(np.mean(edges) - 234) < 4
    assert 11 < np.std(edges) < 15


def test_erdos_renyi_pairs_are_equally_likely():
    hits = np.zeros((8, 8))
    for key in range(3000):
        pairs = _bernoulli_pairs(8, 0.25, key)
        hits[pairs[:, 0], pairs[:, 1]] += 1
    upper = hits[np.triu_indices(8, 1)] / 3000
    assert upper.size == 28
    assert np.abs(upper - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / 3000)
    assert hits[np.tril_indices(8)].sum() == 0


def test_erdos_renyi_extremes():
    assert graphs.erdos_renyi(6, 1.0) == graphs.complete(6)
    assert len(graphs.erdos_renyi(1, 0.0)) == 1
    big = graphs.erdos_renyi(20_000, connecting_p(20_000), seed=3)
    assert abs(big.degrees.mean() / (19_999 * connecting_p(20_000)) - 1) < 0.02


@pytest.mark.parametrize(("count", "p"), [(100, 0.001), (30, 0.04)])
def test_a_hopeless_p_is_refused_with_one_that_works(count, p):
    with pytest.raises(GraphError, match=f"p = {connecting_p(count):g} would do") as caught:
        graphs.erdos_renyi(count, p)
    assert "erdos_renyi" in str(caught.value)
    assert len(graphs.erdos_renyi(count, connecting_p(count))) == count


def test_the_suggested_p_connects_nearly_always():
    alone = sum(
        not nx.is_connected(nx.gnp_random_graph(60, connecting_p(60), seed=s)) for s in range(300)
    )
    assert alone <= 9


def test_a_disconnected_draw_is_drawn_again():
    """At p = 0.12 about half of the graphs of 30 agents are disconnected; the builder is not."""
    for seed in range(30):
        assert len(graphs.erdos_renyi(30, 0.12, seed)) == 30


def test_watts_strogatz():
    lattice = nx.relabel_nodes(nx.circulant_graph(10, [1, 2]), {k: f"a{k + 1}" for k in range(10)})
    assert graphs.watts_strogatz(10, 4, 0.0).to_networkx().edges == lattice.edges
    kept = []
    for seed in range(50):
        t = graphs.watts_strogatz(50, 4, 0.3, seed)
        assert len(t.edges) == 100
        span = np.abs(t.edge_array[:, 0] - t.edge_array[:, 1])
        kept.append(np.mean((span <= 2) | (span >= 48)))
    # An edge survives with 0.7, and a rewired one falls back near with probability about 4%.
    assert 0.68 < np.mean(kept) < 0.74
    for k in (0, 3, 10):
        with pytest.raises(GraphError, match="even number from 2 to 8"):
            graphs.watts_strogatz(10, k, 0.1)


def test_a_disconnected_watts_strogatz_is_an_error_with_a_fix(monkeypatch):
    monkeypatch.setattr("unweave.graph.random_graphs._ATTEMPTS", 1)
    with pytest.raises(GraphError, match="choose k ≥ 4"):
        for seed in range(20):  # about one in four comes out connected
            graphs.watts_strogatz(400, 2, 1.0, seed)


def test_barabasi_albert():
    t = graphs.barabasi_albert(500, 3, seed=1)
    assert len(t.edges) == 3 + 496 * 3
    assert t.degrees[4:].min() >= 3
    # Early agents are hubs: preferential attachment gives degree ≈ m·sqrt(K/i).
    assert t.degrees[:10].mean() > 5 * t.degrees[250:].mean()
    with pytest.raises(GraphError, match="1 ≤ m ≤ 4"):
        graphs.barabasi_albert(5, 5)


@pytest.mark.parametrize("name", ["erdos-renyi", "watts-strogatz", "barabasi-albert"])
def test_a_seed_names_one_graph(name):
    assert graphs.by_name(name, 30, seed=5) == graphs.by_name(name, 30, seed=5)
    assert graphs.by_name(name, 30, seed=5) != graphs.by_name(name, 30, seed=6)


@pytest.mark.parametrize("name", graphs.NAMES)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 11])
def test_every_name_works_for_every_small_number(name, count):
    assert len(graphs.by_name(name, count)) == count


def test_by_name_accepts_spellings_and_names_the_graphs():
    assert graphs.by_name("Erdős–Rényi", 9, p=0.8) == graphs.erdos_renyi(9, 0.8)
    assert graphs.by_name("cycle", 5) == graphs.ring(5)
    assert graphs.by_name("barabasi_albert", 9, m=3) == graphs.barabasi_albert(9, 3)
    with pytest.raises(GraphError, match="did you mean 'ring'"):
        graphs.by_name("rnig", 5)
    with pytest.raises(GraphError, match="'ring' has no setting p"):
        graphs.by_name("ring", 5, p=0.5)
    with pytest.raises(GraphError, match=r"agents = 0\. Fix: at least one"):
        graphs.by_name("ring", 0)
    with pytest.raises(GraphError, match="choose a sparse graph"):
        graphs.complete(10_000)


def test_edge_files(tmp_path):
    file = tmp_path / "edges.csv"
    file.write_text("source,target\n# ours\na10,a2\n\na1 , a2 # the first\n")
    assert graphs.from_edges(file).agents == ("a1", "a2", "a10")
    file.write_text("a1 a2\na2\ta10\n")
    assert graphs.from_edges(str(file)).edges == (("a1", "a2"), ("a2", "a10"))
    assert graphs.from_edges([("x", "y"), (1, "x")]).agents == ("1", "x", "y")
    assert graphs.from_edges([("x", "y")], agents=["y", "x"]).agents == ("y", "x")


@pytest.mark.parametrize("delimiter", [" ", ",", "\t"])
@pytest.mark.parametrize("data", [True, False])
def test_edge_lists_of_networkx_are_read(tmp_path, data, delimiter):
    g = nx.Graph()
    g.add_edge("north", "east", weight=3, colour="#ff0000")
    g.add_edge("east", "west", road={"name": "a, b {c}"})
    g.add_edge("west", 4)
    file = tmp_path / "edges"
    nx.write_edgelist(g, file, data=data, delimiter=delimiter)
    file.write_text("# ours\n" + file.read_text() + "4 north {} # {and a comment}\n")
    g.add_edge(4, "north")
    found = graphs.from_edges(file)
    assert found.agents == ("4", "east", "north", "west")
    assert set(map(frozenset, found.edges)) == {frozenset(map(str, edge)) for edge in g.edges}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a {}\n", r"edges.csv:1: .* is not an edge. Fix: two agents"),
        ("a b c {}\n", r"edges.csv:1: .* is not an edge. Fix: two agents"),
        ("a b {\n", r"edges.csv:1: .* is not an edge. Fix: two agents"),
        ("a,b\na,b,c\n", r"edges.csv:2: .* is not an edge. Fix: two agents"),
        ("a\n", r"edges.csv:1: .* is not an edge. Fix: two agents"),
        ("a,\n", r"edges.csv:1: .* is not an edge. Fix: two agents"),
        ("# nothing\n", r"edges.csv: there is no edge"),
        ("a,b\nc,d\n", r"edges.csv: the graph is disconnected.*\{a, b\}, \{c, d\}"),
        ("a,a\n", r"edges.csv: edge \(a, a\)"),
    ],
)
def test_bad_edge_files_name_the_place(tmp_path, text, message):
    file = tmp_path / "edges.csv"
    file.write_text(text)
    with pytest.raises(GraphError, match=message):
        graphs.from_edges(file)


def test_unreadable_edge_files(tmp_path):
    with pytest.raises(GraphError, match=r"none.csv: cannot read"):
        graphs.from_edges(tmp_path / "none.csv")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(GraphError, match="not UTF-8"):
        graphs.from_edges(tmp_path / "bytes")


def test_networkx_round_trip_and_refusals(monkeypatch):
    t = graphs.erdos_renyi(20, 0.3)
    assert graphs.from_networkx(graphs.to_networkx(t)) == t
    with pytest.raises(GraphError, match="directed"):
        graphs.from_networkx(nx.DiGraph([(1, 2)]))
    with pytest.raises(GraphError, match="itself"):
        graphs.from_networkx(nx.Graph([(1, 2), (2, 2)]))
    with pytest.raises(GraphError, match="graph = a list"):
        graphs.from_networkx([(1, 2)])
    with pytest.raises(GraphError, match="two agents are named '1'"):
        graphs.from_networkx(nx.Graph([(1, "1")]))
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "networkx":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"unweave\[graph\]"):
        graphs.to_networkx(t)
