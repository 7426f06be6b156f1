"""Schedules: three rules for the next agent, each a pure function of the holder's knowledge.

- `metropolis`: a random walk whose stationary distribution is uniform (`eq:mh_rule` of Gong,
  Simeone, Kang 2021). A rejected proposal keeps the token for one more iteration.
- `sweep`: depth-first passes, one after the other. The token carries the stack and the visited set;
  an agent only knows its own neighbours. A pass visits every agent and returns to its root after at
  most 2(K−1) hops; after K hops on a complete graph or a ring.
- `seek`: the shortest path to one agent.

`skip` holds the agents that must not receive the token (suspected or departed). The result k
means that the token stays at agent k.
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
_NO_AGENTS: frozenset[int] = frozenset()


def first_agent(count: int, seed: int) -> int:
    """The agent that starts epoch 1: uniform, a function of the seed."""
    return int(uniform(derive(seed, Purpose.GENESIS), 0) * count)


def route_key(seed: int, epoch: int, hop: int) -> int:
    """The key of the draws that route the token away from iteration `hop`."""
    return derive(_epoch_key(seed, epoch), hop, Purpose.ROUTE)


@lru_cache(maxsize=1024)
def _epoch_key(seed: int, epoch: int) -> int:
    """derive(seed, epoch), cached because many hops share it."""
    return derive(seed, epoch)


def metropolis_next(topology: Topology, k: int, key: int, skip: frozenset[int] = _NO_AGENTS) -> int:
    """`eq:mh_rule`: propose a neighbour j uniformly, accept with probability min(1, deg k / deg j).

    Attempt t uses draws 2t (which neighbour) and 2t+1 (accept). A j in `skip` starts attempt t+1.
    """
    adjacency = topology.adjacency
    row = adjacency[k]
    degree = len(row)
    if skip.issuperset(row):  # also true for a single agent, which has no neighbour
        return k
    attempt = 0
    while True:
        # u < 1 has 53 bits, so u·degree rounds to less than degree: the index is always valid.
        j = row[int(uniform(key, 2 * attempt) * degree)]
        if j not in skip:
            other = len(adjacency[j])
            # u·other < other: if deg j ≤ deg k, every draw accepts.
            accepted = other <= degree or uniform(key, 2 * attempt + 1) * other < degree
            return j if accepted else k
        attempt += 1


def sweep_order(topology: Topology, k: int, seed: int) -> tuple[int, ...]:
    """The fixed order in which agent k tries its neighbours: sorted by draw j of k's own key."""
    key = derive(seed, Purpose.ORDER, k)
    return tuple(sorted(topology.adjacency[k], key=lambda j: (uniform(key, j), j)))


class SweepStep(NamedTuple):
    """The result of a depth-first step; the token carries `stack` and `visited`."""

    next: int
    stack: Stack
    visited: Bitmap  # the agents visited in this pass
    done: bool  # the pass has ended: the next one begins at `next`, with empty stack and bitmap


def sweep_next(
    topology: Topology,
    k: int,
    stack: Stack,
    visited: Bitmap,
    order: tuple[int, ...],
    skip: frozenset[int] = _NO_AGENTS,
) -> SweepStep:
    """One step of a depth-first pass at agent k, whose neighbours are tried in `order`.

    The token goes to the first neighbour that is neither visited nor skipped. Once all agents are
    visited, the token goes to the root if the root is a neighbour. Otherwise the token goes back to
    the top of the stack. The step to the root ends the pass. If k's parent is skipped or is not a
    neighbour, k becomes the root, so that every pass ends.

    Another agent may still reach an agent that is in `skip` but not in `visited`, so the shortcut
    to the root needs all agents in `visited`. Departed agents belong in both sets.
    """
    visited = visited.plus(k)
    for j in order:
        if j not in visited and j not in skip:
            return SweepStep(j, stack.push(k), visited, False)
    neighbours = topology.adjacency[k]
    if len(visited) == len(topology):
        root = stack.root
        if root is not None and root not in skip and root in neighbours:
            return SweepStep(root, Stack(), visited, True)
    parent = stack.top
    if parent is not None and parent not in skip and parent in neighbours:
        return SweepStep(parent, stack.pop(), visited, False)
    return SweepStep(k, Stack(), visited, True)


def sweep_walk(topology: Topology, start: int, seed: int) -> Iterator[tuple[int, bool]]:
    """Passes of `sweep_next` from `start`, without end: each agent, and whether this is the agent's
    first visit of the pass."""
    orders: dict[int, tuple[int, ...]] = {}
    k, stack, visited = start, Stack(), NOBODY
    while True:
        yield k, k not in visited
        if k not in orders:
            orders[k] = sweep_order(topology, k, seed)
        step = sweep_next(topology, k, stack, visited, orders[k])
        k, stack, visited = step.next, step.stack, NOBODY if step.done else step.visited


def seek_next(topology: Topology, k: int, target: int, skip: frozenset[int] = _NO_AGENTS) -> int:
    """The next agent on a shortest path to `target` around `skip`; the smallest index among equals.

    The result is k at the target, and if `skip` blocks every path.
    """
    if k == target:
        return k
    if not skip:
        return topology.next_hop(k, target)
    to_target = topology.distances_avoiding(target, skip)
    candidates = [j for j in topology.adjacency[k] if j not in skip and to_target[j] >= 0]
    return min(candidates, key=lambda j: (to_target[j], j), default=k)
