"""Conversion of a user's graph (name, Topology, networkx graph, pairs of agents) and shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np

from unweave.arguments import is_whole, shown
from unweave.errors import ConfigError, DataError, GraphError
from unweave.graph.builders import by_name
from unweave.graph.edges import from_edges, from_networkx
from unweave.graph.topology import Topology, agent_names
from unweave.text import listed

__all__ = ["as_topology", "match"]

_FORMS = (
    'give a name ("ring"), graphs.ring(5), pairs of agents [("a1", "a2"), …], or a networkx graph'
)


def match(graph: Any, shards: Any) -> tuple[Topology, list[Any]]:
    """The topology, and one data set per agent in the topology's order.

    The keys of a mapping must be the names of the graph's agents.
    """
    if isinstance(shards, Mapping):
        named = {str(name): part for name, part in shards.items()}
        if len(named) != len(shards):
            raise ConfigError(
                "two agents have the same name, written as a number and as text. Fix: rename one"
            )
        topology = as_topology(graph, list(named))
        extra = sorted(set(named) - set(topology.agents))
        absent = [name for name in topology.agents if name not in named]
        if extra or absent:
            raise ConfigError(
                "the shards and the graph name different agents: "
                f"no shard for {listed(absent)}; not in the graph: {listed(extra)}. Fix: use the "
                "same names in both"
            )
        return topology, [named[name] for name in topology.agents]
    parts = _parts(shards)
    topology = as_topology(graph, len(parts))
    if len(parts) != len(topology.agents):
        raise ConfigError(
            f"{len(parts)} shards for {len(topology.agents)} agents. Fix: give one data set per "
            "agent"
        )
    return topology, parts


def _parts(shards: Any) -> list[Any]:
    """The shards as a list, with errors for data that is not split."""
    expected = "one data set per agent: a list of them, or a mapping by name"
    if hasattr(shards, "columns"):
        raise DataError(
            f"the shards are one table. Fix: give {expected}; partition(table, 5) makes one"
        )
    if isinstance(shards, str | bytes) or not isinstance(shards, Iterable):
        what = "None" if shards is None else f"of type {type(shards).__name__}"
        raise DataError(f"the shards are {what}. Fix: give {expected}")
    try:
        parts = list(shards)
    except TypeError:  # an array without dimensions
        raise DataError(f"the shards are a single value. Fix: give {expected}") from None
    if parts and all(isinstance(part, Number | np.generic | str | bytes) for part in parts):
        raise DataError(
            f"the shards are single values. Fix: give {expected}; partition(values, 5) makes one"
        )
    return parts


def as_topology(graph: Any, agents: int | Sequence[str]) -> Topology:
    """`graph` as a Topology, for a number of agents or for their names."""
    if isinstance(graph, Topology):
        return graph
    if isinstance(graph, str):
        return by_name(graph, agents)
    if hasattr(graph, "adj") and hasattr(
        graph, "is_directed"
    ):  # a networkx graph, or a class with its interface
        return from_networkx(graph)
    if isinstance(graph, np.ndarray) and (graph.ndim != 2 or graph.shape[1] != 2):
        raise GraphError(
            f"graph: an array of shape {graph.shape} is no list of edges. Fix: shape (edges, 2); "
            "np.argwhere(matrix) makes one of an adjacency matrix"
        )
    if isinstance(graph, Mapping):
        pairs = [(a, b) for a, others in graph.items() for b in _listed(others)]
        return _from_pairs(pairs, agents)
    if callable(graph) or isinstance(graph, str | bytes) or not isinstance(graph, Iterable):
        name = getattr(graph, "__name__", "")
        what = f"the function {name}: write graphs.{name}(…)" if callable(graph) else shown(graph)
        raise GraphError(f"graph = {what}. Fix: {_FORMS}")
    return _from_pairs(_listed(graph), agents)


def _listed(values: Any) -> list[Any]:
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    return [listed] if isinstance(listed, str) or is_whole(listed) else list(listed)


def _from_pairs(pairs: list[Any], agents: int | Sequence[str]) -> Topology:
    """Numbers in `pairs` are names if agents have these names, and indices otherwise."""
    counted = is_whole(agents)
    names = agent_names(agents)
    ends = [end for pair in pairs if isinstance(pair, list | tuple) for end in pair]
    if all(is_whole(end) for end in ends) and not {str(end) for end in ends} <= set(names):
        return Topology(names, pairs)
    if counted and not {str(end) for end in ends} <= set(names):
        return from_edges(pairs)  # shards without names: the edges name the agents
    return from_edges(pairs, names)
