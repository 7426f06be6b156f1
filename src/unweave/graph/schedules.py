"""Where the token goes next: three rules, each a pure function of what the holder knows.

- `metropolis`: a random walk whose stationary distribution is uniform (`eq:mh_rule` of Gong,
  Simeone, Kang 2021). A rejected proposal keeps the token for one more iteration.
- `sweep`: depth-first passes, one after the other. The stack and the visited set ride on the token;
  an agent only knows its own neighbours. A pass visits everybody and is back at its root after at
  most 2(K−1) hops; after K on a complete graph or a ring.
- `seek`: the shortest path to one agent.

`skip` holds the agents that must not receive the token (suspects, and those that left). Returning k
itself means that the token stays at k.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from unweave.graph.topology import Topology
from unweave.persistent import NOBODY, Bitmap, Stack
from unweave.rng import Purpose, derive, uniform

__all__ = [
    "SCHEDULES",
    "SweepStep",
    "first_agent",
    "metropolis_next",
    "route_key",
    "seek_next",
    "sweep_next",
    "sweep_order",
    "sweep_walk",
]


SCHEDULES = ("metropolis", "sweep", "seek")
_NOBODY: frozenset[int] = frozenset()


def first_agent(count: int, seed: int) -> int:
    """The agent that opens epoch 1: uniform, named by the seed."""
    return int(uniform(derive(seed, Purpose.GENESIS), 0) * count)


def route_key(seed: int, epoch: int, hop: int) -> int:
    """The key of the draws that route the token away from iteration `hop`."""
    return derive(_epoch_key(seed, epoch), hop, Purpose.ROUTE)


@lru_cache(maxsize=1024)
def _epoch_key(seed: int, epoch: int) -> int:
    """derive(seed, epoch): the part of a key that stays the same for many hops."""
    return derive(seed, epoch)


def metropolis_next(topology: Topology, k: int, key: int, skip: frozenset[int] = _NOBODY) -> int:
    """`eq:mh_rule`: propose a neighbour j uniformly, accept with probability min(1, deg k / deg j).

    Attempt t uses draws 2t (which neighbour) and 2t+1 (accept); one in `skip` is drawn again.
    """
    adjacency = topology.adjacency
    row = adjacency[k]
    degree = len(row)
    if skip.issuperset(row):  # also a single agent, which has no neighbour
        return k
    attempt = 0
    while True:
        # u < 1 has 53 bits, so u·degree rounds to less than degree: the index is always valid.
        j = row[int(uniform(key, 2 * attempt) * degree)]
        if j not in skip:
            other = len(adjacency[j])
            # u·other < other: with no more neighbours than here, every draw accepts.
            accepted = other <= degree or uniform(key, 2 * attempt + 1) * other < degree
            return j if accepted else k
        attempt += 1


def sweep_order(topology: Topology, k: int, seed: int) -> tuple[int, ...]:
    """The fixed order in which agent k tries its neighbours: sorted by draw j of k's own key."""
    key = derive(seed, Purpose.ORDER, k)
    return tuple(sorted(topology.adjacency[k], key=lambda j: (uniform(key, j), j)))


class SweepStep(NamedTuple):
    """What a depth-first step decides; `stack` and `visited` travel on the token."""

    next: int
    stack: Stack
    visited: Bitmap  # the agents that were reached
    done: bool  # the pass is over: the next one begins at `next`, with an empty stack and bitmap


def sweep_next(
    topology: Topology,
    k: int,
    stack: Stack,
    visited: Bitmap,
    order: tuple[int, ...],
    skip: frozenset[int] = _NOBODY,
) -> SweepStep:
    """One step of a depth-first pass at agent k, whose neighbours are tried in `order`.

    Down to the first neighbour that is neither visited nor skipped. Once all agents were visited,
    straight to the root if it is a neighbour; else back to the top of the stack. The step to the
    root ends the pass. An agent whose parent must be skipped or is no neighbour becomes the root: a
    pass always ends.

    Agents in `skip` that are not in `visited` may be reached by others, so no agent goes straight
    to the root while one is missing. Departed agents belong in both.
    """
    visited = visited.plus(k)
    for j in order:
        if j not in visited and j not in skip:
            return SweepStep(j, stack.push(k), visited, False)
    near = topology.adjacency[k]
    if len(visited) == len(topology):
        root = stack.root
        if root is not None and root not in skip and root in near:
            return SweepStep(root, Stack(), visited, True)
    parent = stack.top
    if parent is not None and parent not in skip and parent in near:
        return SweepStep(parent, stack.pop(), visited, False)
    return SweepStep(k, Stack(), visited, True)


def sweep_walk(topology: Topology, start: int, seed: int) -> Iterator[tuple[int, bool]]:
    """Passes of `sweep_next` from `start`, for ever: each agent, and whether this is its first
    visit of the pass."""
    orders: dict[int, tuple[int, ...]] = {}
    k, stack, visited = start, Stack(), NOBODY
    while True:
        yield k, k not in visited
        if k not in orders:
            orders[k] = sweep_order(topology, k, seed)
        step = sweep_next(topology, k, stack, visited, orders[k])
        k, stack, visited = step.next, step.stack, NOBODY if step.done else step.visited


def seek_next(topology: Topology, k: int, target: int, skip: frozenset[int] = _NOBODY) -> int:
    """The next agent on a shortest path to `target` around `skip`; the smallest index among equals.

    k itself at the target, and where every way is blocked.
    """
    if k == target:
        return k
    if not skip:
        return topology.next_hop(k, target)
    to_target = topology.distances_avoiding(target, skip)
    open_ = [j for j in topology.adjacency[k] if j not in skip and to_target[j] >= 0]
    return min(open_, key=lambda j: (to_target[j], j), default=k)
