"""Forecasts per schedule: iterations to learn, to reach one agent, and to retrain.

A time is an expectation over the start, which is uniform and counts as iteration 1, and over the
draws of the schedule: the moves of `metropolis`, the orders in which agents try their neighbours in
a `sweep`. The forecasts do not depend on the network's seed, which fixes both. Self-loops and hops
that only relay count too. Retraining is learning from zero on the graph without the agent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unweave.errors import GraphError
from unweave.graph.cover import Expected, expected_cover, harmonic
from unweave.graph.schedules import first_agent, sweep_walk
from unweave.graph.times import first_visit
from unweave.graph.topology import Topology
from unweave.rng import Purpose, derive

__all__ = ["Forecast", "forecast", "paper_formulas", "seek_forecast", "sweep_times", "without"]


_SWEEP_BUDGET = 200_000  # steps of all simulated sweeps; some seconds
_FEWEST_SWEEPS = 30


@dataclass(frozen=True, slots=True)
class Forecast:
    """Expected iterations until all agents are scheduled (`learn`), until the given agent is
    scheduled (`forget`), and until all others are scheduled after a start from zero without it
    (`retrain`). None: there is no such time."""

    learn: Expected | None
    forget: Expected
    retrain: Expected | None = None
    note: str = ""


def forecast(
    topology: Topology,
    agent: str | int,
    replicas: int = 1000,
    seed: int = 0,
    max_moves: int | None = None,
) -> dict[str, Forecast]:
    """Every schedule's forecast, by name; `max_moves` bounds the simulation of a slow walk.

    `seed` is the seed of the simulations, not of the network.
    """
    notes: dict[str, None] = {}  # an ordered set

    def tried(find: Callable[[], Expected]) -> Expected | None:
        try:
            return find()
        except GraphError as error:
            if max_moves is None:
                raise
            notes[str(error)] = None
            return None

    remaining, reason = without(topology, agent)
    learn = tried(lambda: expected_cover(topology, replicas, seed, max_moves))
    retrain = (
        tried(lambda: expected_cover(remaining, replicas, seed, max_moves)) if remaining else None
    )
    walk = Forecast(
        learn, Expected(first_visit(topology, agent)), retrain, "; ".join([*notes, *reason])
    )
    cover, reach = sweep_times(topology, agent, replicas, seed)
    relearn = sweep_times(remaining, 0, replicas, seed)[0] if remaining else None
    return {
        "metropolis": walk,
        "sweep": Forecast(cover, reach, relearn, *reason),
        "seek": seek_forecast(topology, agent),
    }


def without(topology: Topology, agent: str | int) -> tuple[Topology | None, list[str]]:
    """The graph without the agent; or None and the reason."""
    name = topology.agents[topology.index(agent)]
    if len(topology) == 1:
        return None, [f"without {name} no agent remains to retrain"]
    try:
        return topology.without([name]), []
    except GraphError:
        return None, [
            f"without {name} the others are not connected: there is no graph to retrain on"
        ]


def seek_forecast(topology: Topology, agent: str | int) -> Forecast:
    """The distance to the agent, plus one, averaged over the start; `learn` is None."""
    return Forecast(None, Expected(1.0 + float(topology.distances(agent).mean())))


def sweep_times(
    topology: Topology, agent: str | int, replicas: int = 1000, seed: int = 0
) -> tuple[Expected, Expected]:
    """Expected iterations of a sweep until all agents are visited, and until `agent` is visited.

    Exact on trees: all agents are visited after 2K − 1 iterations less the depth of the last agent.
    A start in a branch of b agents around `agent` adds b iterations on average, in total
    1 + Σ b²/K. Exact on the complete graph and the ring: each iteration visits a new agent, and the
    position of `agent` in this order is uniform. On other graphs sweeps are simulated; each has its
    own seed, which draws the start and the orders.
    """
    K, t = len(topology), topology.index(agent)
    degrees = topology.degrees
    if topology.indices.size == 2 * (K - 1):
        depth, branches = _tree(topology, t)
        return Expected(2.0 * K - 1.0 - depth), Expected(1.0 + float((branches**2).sum()) / K)
    if bool(np.all(degrees == K - 1)) or bool(np.all(degrees == 2)):
        return Expected(float(K)), Expected((K + 1) / 2)
    runs = min(replicas, max(_FEWEST_SWEEPS, _SWEEP_BUDGET // (2 * K)))
    times = np.asarray([_sweep(topology, t, derive(seed, Purpose.REPLICA, r)) for r in range(runs)])
    return Expected.of_samples(times[:, 0]), Expected.of_samples(times[:, 1])


def _sweep(topology: Topology, target: int, seed: int) -> tuple[float, float]:
    """The iterations at which a sweep with this seed has visited all agents, and `target`."""
    missing, found = len(topology), 0
    walk = sweep_walk(topology, first_agent(len(topology), seed), seed)
    for iteration, (k, first) in enumerate(walk, start=1):
        missing -= first
        if first and k == target:
            found = iteration
        if not missing:
            return float(iteration), float(found)
    raise AssertionError("a sweep visits every agent")


def _tree(topology: Topology, t: int) -> tuple[float, NDArray[np.int64]]:
    """The expected depth of the last agent of a sweep, averaged over its root, and the sizes of the
    branches around agent t.

    Each child is the last one with the same probability: L(v) = 1 + mean of L over the children of
    v, 0 at a leaf. L for every other root follows from the same sums.
    """
    K, neighbours = len(topology), topology.adjacency
    parent, order = {t: t}, [t]
    for v in order:  # the loop appends to the list: breadth first
        for j in neighbours[v]:
            if j not in parent:
                parent[j] = v
                order.append(j)
    size, below, above = np.ones(K, dtype=np.int64), np.zeros(K), np.zeros(K)
    sums = np.zeros(K)  # of L over the children
    for v in reversed(order):
        children = len(neighbours[v]) - (v != t)
        below[v] = 1.0 + sums[v] / children if children else 0.0
        if v != t:
            size[parent[v]] += size[v]
            sums[parent[v]] += below[v]
    total = below[t]
    for v in order[1:]:
        u = parent[v]  # L of the part on the other side of the edge u–v, from u
        others = len(neighbours[u]) - 1
        above[v] = 1.0 + (sums[u] + above[u] - below[v]) / others if others else 0.0
        total += 1.0 + (sums[v] + above[v]) / len(neighbours[v])
    return float(total) / K, size[list(neighbours[t])]


def paper_formulas(K: int) -> dict[str, float]:
    """The complete graph's times as Gong, Simeone, Kang 2021 state them.

    `cover` and `retrain` are steps after the start; the approximations replace H_n by log n.
    """
    n, m = K - 1, max(K - 2, 0)
    return {
        "cover": n * harmonic(n),
        "cover_approximation": n * float(np.log(n)) if n else 0.0,
        "unlearn": 1.0 / K + K - 1,
        "retrain": m * harmonic(m),
        "retrain_approximation": m * float(np.log(m)) if m else 0.0,
    }
