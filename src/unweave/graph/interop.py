"""Conversion to and from networkx. The functions import networkx when they are called."""

from __future__ import annotations

from typing import Any

from unweave.arguments import shown
from unweave.errors import GraphError, MissingExtra
from unweave.graph.topology import Topology

__all__ = ["from_networkx", "to_networkx"]


def _networkx() -> Any:
    try:
        import networkx
    except ImportError:
        raise MissingExtra("networkx", "graph", "converting graphs") from None
    return networkx


def from_networkx(graph: Any) -> Topology:
    """The topology of an undirected networkx graph.

    The agents are the nodes in the graph's order, named by `str(node)`. Weights are ignored.
    """
    networkx = _networkx()
    if not isinstance(graph, networkx.Graph):
        raise GraphError(f"graph = {shown(graph)}. Fix: give a networkx graph")
    if graph.is_directed():
        raise GraphError(
            "the graph is directed, but neighbours talk both ways. Fix: use to_undirected()"
        )
    nodes = list(graph.nodes)
    position = {node: k for k, node in enumerate(nodes)}
    return Topology(
        [str(node) for node in nodes], [(position[a], position[b]) for a, b in graph.edges()]
    )


def to_networkx(topology: Topology) -> Any:
    """A `networkx.Graph` whose nodes are the agents' names, in order."""
    graph = _networkx().Graph()
    graph.add_nodes_from(topology.agents)
    graph.add_edges_from(topology.edges)
    return graph
