"""What each schedule costs on a graph: iterations to learn from everybody, iterations to reach one.

The start is uniform and counts as iteration 1; self-loops and hops that only relay count too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unweave.errors import GraphError
from unweave.graph.cover import Expected, expected_cover, harmonic
from unweave.graph.schedules import sweep_order
from unweave.graph.times import first_visit
from unweave.graph.topology import Topology
from unweave.rng import Purpose, Stream, derive

__all__ = ["Forecast", "forecast", "paper_formulas", "seek_forecast", "sweep_forecast"]


_SWEEP_BUDGET = 10_000_000  # neighbours looked at over all simulated sweeps


@dataclass(frozen=True, slots=True)
class Forecast:
    """Expected iterations until all agents were scheduled, and until the given one was."""

    learn: Expected | None  # None where the schedule does not visit everybody
    forget: Expected
    note: str = ""


def forecast(
    topology: Topology,
    agent: str | int,
    replicas: int = 1000,
    seed: int = 0,
    max_moves: int | None = None,
) -> dict[str, Forecast]:
    """Every schedule's forecast, by name; `max_moves` bounds the simulation of a slow walk."""
    learn, note = None, ""
    try:
        learn = expected_cover(topology, replicas, seed, max_moves)
    except GraphError as error:
        if max_moves is None:
            raise
        note = str(error)
    return {
        "metropolis": Forecast(learn, Expected(first_visit(topology, agent)), note),
        "sweep": sweep_forecast(topology, agent, seed),
        "seek": seek_forecast(topology, agent),
    }


def seek_forecast(topology: Topology, agent: str | int) -> Forecast:
    """The distance to the agent, plus one, averaged over the start; others are not visited."""
    return Forecast(None, Expected(1.0 + float(topology.distances(agent).mean())))


def sweep_forecast(topology: Topology, agent: str | int, seed: int = 0) -> Forecast:
    """Depth-first from every start, or from a sample of starts on large graphs."""
    K = len(topology)
    t = topology.index(agent)
    orders: dict[int, tuple[int, ...]] = {}
    affordable = max(100, _SWEEP_BUDGET // (K + topology.indices.size))
    sampled = affordable < K
    if sampled:
        stream = Stream(derive(seed, Purpose.GENESIS))
        starts = (stream.random((affordable,)) * K).astype(np.int64).tolist()
    else:
        starts = list(range(K))
    times = np.asarray([_sweep(topology, s, t, seed, orders) for s in starts], dtype=np.float64)
    find = Expected.of_samples if sampled else (lambda x: Expected(float(x.mean())))
    return Forecast(find(times[:, 0]), find(times[:, 1]))


def _sweep(
    topology: Topology, start: int, target: int, seed: int, orders: dict[int, tuple[int, ...]]
) -> tuple[int, int]:
    """`sweep_next` from one start, on mutable state: iterations to visit all, and `target`.

    Each agent resumes its order where it left off: a neighbour once visited stays visited.
    """
    K = len(topology)
    visited = bytearray(K)
    visited[start] = 1
    position = [0] * K
    stack: list[int] = []
    k, iteration, missing = start, 1, K - 1
    found = 1 if start == target else 0
    while missing:
        order = orders.get(k)
        if order is None:
            order = orders[k] = sweep_order(topology, k, seed)
        p = position[k]
        while p < len(order) and visited[order[p]]:
            p += 1
        position[k] = p
        iteration += 1
        if p == len(order):
            k = stack.pop()
            continue
        stack.append(k)
        k = order[p]
        visited[k] = 1
        missing -= 1
        if k == target:
            found = iteration
    return iteration, found


def paper_formulas(K: int) -> dict[str, float]:
    """The complete graph's times as Gong, Simeone, Kang 2021 give them, in their words.

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
