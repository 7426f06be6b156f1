"""Graphs by name: `graphs.star(5)`, `graphs.ring(["north", "east", "south", "west"])`, ….

Every builder takes the number of agents (then named a1 … aK) or the names in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from difflib import get_close_matches

import numpy as np

from unweave.arguments import shown, whole_number
from unweave.errors import GraphError
from unweave.graph.edges import from_edges, from_networkx, to_networkx
from unweave.graph.random_graphs import barabasi_albert, connecting_p, erdos_renyi, watts_strogatz
from unweave.graph.topology import Topology, agent_names

__all__ = [
    "NAMES",
    "barabasi_albert",
    "by_name",
    "complete",
    "erdos_renyi",
    "from_edges",
    "from_networkx",
    "grid",
    "path",
    "ring",
    "star",
    "to_networkx",
    "watts_strogatz",
]

_MOST_EDGES = 20_000_000  # 320 MB while a complete graph is sorted


def star(agents: int | Sequence[str]) -> Topology:
    """The first agent is the hub; every other agent is a neighbour of the hub only."""
    names = agent_names(agents)
    leaves = np.arange(1, len(names))
    return Topology(names, np.stack([np.zeros_like(leaves), leaves], axis=1))


def ring(agents: int | Sequence[str]) -> Topology:
    """Each agent is a neighbour of the agents before and after it (two agents share one edge)."""
    names = agent_names(agents)
    k = np.arange(len(names) if len(names) > 1 else 0)
    return Topology(names, np.stack([k, (k + 1) % len(names)], axis=1))


def path(agents: int | Sequence[str]) -> Topology:
    """A line: a ring without its last edge."""
    names = agent_names(agents)
    k = np.arange(len(names) - 1)
    return Topology(names, np.stack([k, k + 1], axis=1))


def complete(agents: int | Sequence[str]) -> Topology:
    """Every agent is a neighbour of every other agent."""
    names = agent_names(agents)
    edges = len(names) * (len(names) - 1) // 2
    if edges > _MOST_EDGES:
        raise GraphError(
            f"a complete graph of {len(names)} agents has {edges} edges, more than the "
            f"{_MOST_EDGES} that fit. Fix: choose a sparse graph"
        )
    return Topology(names, np.stack(np.triu_indices(len(names), k=1), axis=1))


def grid(agents: int | Sequence[str], columns: int | None = None) -> Topology:
    """Rows × columns; the neighbours are the agents above, below, left and right.

    Agents fill the rows one after the other. Without `columns` the rows and columns are the two
    factors of K that are nearest to each other; a prime K gives 1 × K, which is a path.
    """
    names = agent_names(agents)
    count = len(names)
    if columns is None:
        rows = next(r for r in range(math.isqrt(count), 0, -1) if count % r == 0)
        columns = count // rows
    columns = whole_number(columns, "grid: columns")
    if columns < 1 or count % columns:
        raise GraphError(
            f"a grid of {count} agents cannot have {columns} columns. Fix: choose a divisor of "
            f"{count}"
        )
    cell = np.arange(count).reshape(-1, columns)
    across = np.stack([cell[:, :-1].ravel(), cell[:, 1:].ravel()], axis=1)
    down = np.stack([cell[:-1].ravel(), cell[1:].ravel()], axis=1)
    return Topology(names, np.concatenate([across, down]))


_FIXED: dict[str, Callable[[int | Sequence[str]], Topology]] = {
    "star": star,
    "ring": ring,
    "complete": complete,
    "path": path,
    "grid": grid,
}
_ALIASES = {"cycle": "ring", "full": "complete", "line": "path", "random": "erdos-renyi"}
NAMES = (*_FIXED, "erdos-renyi", "watts-strogatz", "barabasi-albert")


def by_name(
    name: str,
    agents: int | Sequence[str],
    *,
    p: float | None = None,
    k: int | None = None,
    m: int | None = None,
    seed: int = 0,
) -> Topology:
    """The graph named `name`, one of `NAMES`; `p`, `k`, `m` and `seed` are for random graphs.

    Defaults: Erdős–Rényi p = a value that connects 99 of 100 graphs; Watts–Strogatz k = 4, p = 0.1;
    Barabási–Albert m = 2 (k and m are smaller if K is too small).
    """
    if not isinstance(name, str):
        raise GraphError(f"graph = {shown(name)}. Fix: give one of {', '.join(NAMES)}")
    plain = name.strip().lower().replace("_", "-").replace(" ", "-").replace("ő", "o")
    plain = plain.replace("é", "e").replace("á", "a").replace("–", "-")
    plain = _ALIASES.get(plain, plain)
    used = {"erdos-renyi": "p", "watts-strogatz": "pk", "barabasi-albert": "m"}.get(plain, "")
    for option, value in (("p", p), ("k", k), ("m", m)):
        if value is not None and plain in NAMES and option not in used:
            raise GraphError(
                f"the graph {plain!r} has no setting {option}. Fix: remove {option}={value}"
            )
    if plain in _FIXED:
        return _FIXED[plain](agents)
    count = len(agent_names(agents))
    if plain == "erdos-renyi":
        return erdos_renyi(agents, connecting_p(count) if p is None else p, seed)
    if plain == "watts-strogatz":
        nearest = max(0, min(4, (count - 1) // 2 * 2)) if k is None else k
        return watts_strogatz(agents, nearest, 0.1 if p is None else p, seed)
    if plain == "barabasi-albert":
        return barabasi_albert(agents, max(1, min(2, count - 1)) if m is None else m, seed)
    near = get_close_matches(plain, NAMES, n=1)
    raise GraphError(
        f"no graph is called {name!r}. Fix: {f'did you mean {near[0]!r}? ' if near else ''}choose "
        f"from {', '.join(NAMES)}, or give an edge list"
    )
