"""Graphs that users bring: pairs of agents, edge list files, and networkx graphs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from unweave.arguments import shown
from unweave.bounded import read_bytes
from unweave.errors import GraphError, MissingExtra
from unweave.graph.topology import Topology, agent_names

__all__ = ["from_edges", "from_networkx", "to_networkx"]

_MOST_BYTES = 256 << 20  # of an edge list: some 10⁷ edges
_HEADERS = {("source", "target"), ("from", "to")}
# The attributes that networkx.write_edgelist appends: {} or {'weight': 3}, maybe with a "#".
_ATTRIBUTES = re.compile(r"""^([^#]*?[\s,])\{(?:["'].*)?\}\s*(#.*)?$""")


def from_edges(
    source: str | os.PathLike[str] | Iterable[tuple[object, object]],
    agents: int | Sequence[str] | None = None,
) -> Topology:
    """A graph from pairs of names, or from a file with one edge per line: `a,b` or `a b`.

    In a file `#` starts a comment, and a first line `source,target` or `from,to` is a header; the
    attributes that `networkx.write_edgelist` adds (`a b {'weight': 3}`) are ignored.
    Without `agents` the names are those in the edges, in natural order (a2 before a10), so the
    order of the lines does not matter.
    """
    if isinstance(source, (str, os.PathLike)):
        pairs = _read(Path(source))
        where = f"{source}: "
    else:
        if not isinstance(source, Iterable):
            raise GraphError(f"edges = {shown(source)}. Fix: give pairs of agents, or a file")
        pairs = [_pair(edge) for edge in source]
        where = ""
    if agents is None:
        names = tuple(sorted({name for pair in pairs for name in pair}, key=_natural))
        if not names:
            raise GraphError(f"{where}there is no edge. Fix: give at least one pair of agents")
    else:
        names = agent_names(agents)
    try:
        return Topology(names, pairs)
    except GraphError as error:
        raise type(error)(f"{where}{error}") from None


def _pair(edge: object) -> tuple[str, str]:
    if isinstance(edge, (tuple, list)) and len(edge) == 2:
        return str(edge[0]), str(edge[1])
    raise GraphError(f"edge {edge!r} is not a pair. Fix: give two agents")


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key: digits compare as numbers, and before letters."""
    parts = (part for part in re.split(r"(\d+)", name) if part)
    return tuple((0, int(p), p) if p.isdecimal() else (1, 0, p) for p in parts)


def _read(file: Path) -> list[tuple[str, str]]:
    try:
        text = read_bytes(file, _MOST_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise GraphError(
            f"{file}: cannot read the edge list ({error.strerror}). Fix: name a readable file"
        ) from None
    except UnicodeDecodeError:
        raise GraphError(
            f"{file}: the edge list is not UTF-8 text. Fix: save it as UTF-8"
        ) from None
    except ValueError as error:
        raise GraphError(f"{file}: {error}. Fix: give a smaller edge list") from None
    pairs: list[tuple[str, str]] = []
    first = True
    for number, line in enumerate(text.split("\n"), start=1):
        attributed = _ATTRIBUTES.match(line)
        head = attributed[1].strip(", \t") if attributed else line.partition("#")[0]
        content = head.strip()
        if not content:
            continue
        fields = [f.strip().strip('"') for f in content.split(",")]
        if len(fields) == 1:
            fields = content.split()
        if len(fields) != 2 or not all(fields):
            raise GraphError(
                f'{file}:{number}: {content!r} is not an edge. Fix: two agents, "a,b" or "a b"'
            )
        a, b = fields
        if not (first and (a.lower(), b.lower()) in _HEADERS):
            pairs.append((a, b))
        first = False
    return pairs


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
