"""Topology: a connected, undirected graph of named agents. Only neighbours exchange messages.

Users name agents; schedules and kernels use indices. The graph is stored once, as CSR arrays (agent
k's neighbours are `indices[indptr[k]:indptr[k+1]]`, ascending), so that a sparse graph of 10⁵
agents is small. All other attributes are computed on first use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from functools import cached_property
from typing import Any, NoReturn, overload

import numpy as np
from numpy.typing import NDArray

from unweave.arguments import is_whole, shown
from unweave.errors import GraphError
from unweave.graph.parts import (
    check_names,
    csr_arrays,
    frozen,
    index_pairs,
    refuse_disconnected,
    unknown_agent,
)

__all__ = ["Topology", "agent_names"]

_KEPT_DISTANCES = 64  # cached breadth-first searches per graph; each takes 4·K bytes


def agent_names(agents: int | Sequence[str]) -> tuple[str, ...]:
    """Names as given, or a1, a2, …, aK for a number."""
    if is_whole(agents):
        if agents < 1:
            raise GraphError(f"agents = {agents}. Fix: at least one")
        return tuple(f"a{k}" for k in range(1, int(agents) + 1))
    if isinstance(agents, str | Set) or not isinstance(agents, Iterable):
        raise GraphError(
            f"agents = {shown(agents)}. Fix: give a number of agents or a list of names"
        )
    return tuple(agents)


class Topology:
    """A connected graph: `Topology(["a", "b", "c"], [("a", "b"), ("b", "c")])`.

    An edge is a pair of names, or a pair of indices. Repeated edges are merged. An edge from an
    agent to itself, an unknown agent, an empty graph and a disconnected graph raise GraphError.
    A topology is immutable.
    """

    agents: tuple[str, ...]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]

    def __init__(
        self,
        agents: int | Sequence[str],
        edges: Iterable[tuple[str | int, str | int]] | NDArray[np.integer[Any]],
    ) -> None:
        names = agent_names(agents)
        check_names(names)
        lookup = {name: k for k, name in enumerate(names)}
        pairs = edges if isinstance(edges, np.ndarray) else index_pairs(edges, names, lookup)
        indptr, indices = csr_arrays(names, np.asarray(pairs, dtype=np.int64).reshape(-1, 2))
        for attribute, value in (
            ("agents", names),
            ("indptr", indptr),
            ("indices", indices),
            ("_lookup", lookup),
            ("_distances", {}),
            ("_nearest", {}),
        ):
            object.__setattr__(self, attribute, value)
        if (self._search(0) < 0).any():
            refuse_disconnected(names, self._components())

    _lookup: dict[str, int]
    _distances: dict[int, NDArray[np.int32]]
    _nearest: dict[frozenset[int], NDArray[np.int32]]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Topology cannot be changed ({name}). Fix: build a new one")

    def __len__(self) -> int:
        return len(self.agents)

    def __repr__(self) -> str:
        return f"Topology({len(self)} agents, {self.indices.size // 2} edges)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topology):
            return NotImplemented
        return (
            self.agents == other.agents
            and np.array_equal(self.indptr, other.indptr)
            and np.array_equal(self.indices, other.indices)
        )

    @cached_property
    def _hash(self) -> int:
        return hash((self.agents, self.indices.tobytes()))

    def __hash__(self) -> int:
        return self._hash

    # Names and neighbours

    def index(self, agent: str | int) -> int:
        """The index of an agent, given its name or its index; both are checked."""
        if isinstance(agent, str):
            try:
                return self._lookup[agent]
            except KeyError:
                raise GraphError(unknown_agent(agent, self.agents)) from None
        if not is_whole(agent):
            raise GraphError(
                f"agent {shown(agent)}. Fix: give its name, or its index as a whole number"
            )
        if not 0 <= agent < len(self):
            raise GraphError(f"no agent has index {agent}. Fix: choose from 0 to {len(self) - 1}")
        return int(agent)

    @cached_property
    def adjacency(self) -> tuple[tuple[int, ...], ...]:
        """Every agent's neighbours as ascending indices, for scalar use."""
        bounds = self.indptr.tolist()
        flat = self.indices.tolist()
        return tuple(tuple(flat[bounds[k] : bounds[k + 1]]) for k in range(len(self)))

    @overload
    def neighbours(self, agent: str) -> tuple[str, ...]: ...
    @overload
    def neighbours(self, agent: int) -> tuple[int, ...]: ...
    def neighbours(self, agent: str | int) -> tuple[str, ...] | tuple[int, ...]:
        """Neighbours of an agent: names for a name, indices for an index."""
        k = self.index(agent)
        row = tuple(self._row(k))
        return tuple(self.agents[j] for j in row) if isinstance(agent, str) else row

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """Number of neighbours of every agent."""
        return frozen(np.diff(self.indptr))

    def degree(self, agent: str | int) -> int:
        return int(self.degrees[self.index(agent)])

    @cached_property
    def edge_array(self) -> NDArray[np.int64]:
        """Edges [E, 2] as index pairs i < j, sorted."""
        heads = np.repeat(np.arange(len(self)), self.degrees)
        keep = heads < self.indices
        return frozen(np.stack([heads[keep], self.indices[keep].astype(np.int64)], axis=1))

    @cached_property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """Edges as pairs of names, sorted by index."""
        return tuple((self.agents[i], self.agents[j]) for i, j in self.edge_array.tolist())

    def without(self, agents: Iterable[str | int]) -> Topology:
        """The graph of the other agents, in their order; Disconnected if they are not connected."""
        kept = np.ones(len(self), dtype=bool)
        kept[[self.index(agent) for agent in agents]] = False
        edges = self.edge_array[kept[self.edge_array].all(axis=1)]
        names = [self.agents[k] for k in np.flatnonzero(kept)]
        return Topology(names, (np.cumsum(kept) - 1)[edges])

    # Shortest paths

    def distances(self, target: str | int) -> NDArray[np.int32]:
        """Hops from every agent to `target` (breadth-first; cached for the latest targets)."""
        t = self.index(target)
        cached = self._distances.get(t)
        if cached is None:
            cached = frozen(self._search(t))
            if len(self._distances) >= _KEPT_DISTANCES:
                self._distances.pop(next(iter(self._distances)), None)
            self._distances[t] = cached
        return cached

    def nearest(self, targets: frozenset[int]) -> NDArray[np.int32]:
        """Every agent's nearest target, the smallest index among equals (one search, cached for the
        latest `targets`)."""
        cached = self._nearest.get(targets)
        if cached is None:
            found, adjacency = [-1] * len(self), self.adjacency
            level = {target: target for target in targets}
            while level:
                for k, target in level.items():
                    found[k] = target
                reached: dict[int, int] = {}
                for k, target in level.items():
                    for j in adjacency[k]:
                        if found[j] < 0 and reached.get(j, target) >= target:
                            reached[j] = target
                level = reached
            cached = frozen(np.asarray(found, dtype=np.int32))
            self._nearest.clear()
            self._nearest[targets] = cached
        return cached

    def distances_avoiding(self, target: int, avoid: frozenset[int]) -> NDArray[np.int32]:
        """Hops to `target` on the graph without the agents in `avoid`; −1: there is no path."""
        return self._search(target, avoid) if avoid else self.distances(target)

    def next_hop(self, k: str | int, target: str | int) -> int:
        """The neighbour of k on a shortest path to `target`: the smallest index among equals."""
        here, t = self.index(k), self.index(target)
        if here == t:
            return here
        to_target = self.distances(t)
        return next(j for j in self._row(here) if to_target[j] == to_target[here] - 1)

    @cached_property
    def diameter(self) -> int:
        """The longest shortest path, by bounding eccentricities (Takes and Kosters 2011).

        One search from u bounds every other: ecc(v) ≥ max(d, ecc(u) − d) and ≤ ecc(u) + d, with
        d = d(u, v). Few searches suffice unless most eccentricities agree, as on a cycle.
        """
        count = len(self)
        if count > 2 and bool(np.all(self.degrees == 2)):
            return count // 2
        lower = np.zeros(count, dtype=np.int64)
        upper = np.full(count, count, dtype=np.int64)
        undecided = np.ones(count, dtype=bool)
        at_least, pick_far = 0, True
        while undecided.any():
            candidates = np.flatnonzero(undecided)
            # Far candidates raise the lower bound, central candidates lower the upper bounds.
            u = int(
                candidates[np.argmax(upper[candidates])]
                if pick_far
                else candidates[np.argmin(lower[candidates])]
            )
            pick_far = not pick_far
            d = self._search(u).astype(np.int64)
            ecc = int(d.max())
            at_least = max(at_least, ecc)
            lower = np.maximum(lower, np.maximum(d, ecc - d))
            upper = np.minimum(upper, ecc + d)
            undecided[u] = False
            at_least = max(at_least, int(lower.max()))
            undecided &= upper > at_least
        return at_least

    # Conversion

    @classmethod
    def from_networkx(cls, graph: Any) -> Topology:
        """A networkx graph whose nodes become the agents, named by `str(node)`."""
        from unweave.graph.edges import from_networkx

        return from_networkx(graph)

    def to_networkx(self) -> Any:
        """The same graph as a `networkx.Graph` of names."""
        from unweave.graph.edges import to_networkx

        return to_networkx(self)

    # Searches

    def _row(self, k: int) -> list[int]:
        row: list[int] = self.indices[self.indptr[k] : self.indptr[k + 1]].tolist()
        return row

    def _search(self, source: int, avoid: frozenset[int] = frozenset()) -> NDArray[np.int32]:
        """Breadth-first distances from `source`, −1 where not reached; stops once all are found."""
        found = [-1] * len(self)
        if source in avoid:
            return np.asarray(found, dtype=np.int32)
        found[source] = 0
        missing = len(self) - 1
        level, depth = [source], 0
        while level and missing:
            depth += 1
            reached: list[int] = []
            for k in level:
                for j in self._row(k):
                    if found[j] < 0 and j not in avoid:
                        found[j] = depth
                        missing -= 1
                        reached.append(j)
                if not missing:
                    break
            level = reached
        return np.asarray(found, dtype=np.int32)

    def _components(self) -> list[list[int]]:
        """Agents by component, each ascending, in order of their first agent."""
        seen = [False] * len(self)
        components = []
        for first in range(len(self)):
            if seen[first]:
                continue
            seen[first] = True
            component = [first]
            for k in component:  # the loop appends to the list: a breadth-first queue
                for j in self._row(k):
                    if not seen[j]:
                        seen[j] = True
                        component.append(j)
            components.append(sorted(component))
        return components
