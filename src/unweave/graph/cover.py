"""Cover time: the expected iterations of the random walk until every agent is scheduled.

The start is uniform and counts as iteration 1. The complete graph, the ring, the star and the path
have closed forms. Other small graphs use exact dynamic programming over subsets, and larger graphs
a simulation with a confidence interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from unweave.errors import GraphError
from unweave.graph.times import move_probabilities, transition_matrix
from unweave.graph.topology import Topology
from unweave.rng import Purpose, Stream, derive

__all__ = [
    "EXACT_LIMIT",
    "Expected",
    "cover_closed_form",
    "cover_exact",
    "cover_monte_carlo",
    "expected_cover",
    "harmonic",
]


EXACT_LIMIT = 14  # 2^K subsets: milliseconds at 14 agents, seconds at 20
_Z95 = 1.959963984540054
_BATCH_CELLS = 20_000_000  # replicas × agents of one simulated batch
_BLOCK_DRAWS = 1 << 18


@dataclass(frozen=True, slots=True)
class Expected:
    """An expectation and its method; a simulated value has a 95% confidence interval."""

    value: float
    method: Literal["exact", "monte-carlo"] = "exact"
    ci95: tuple[float, float] | None = None
    replicas: int | None = None

    @classmethod
    def of_samples(cls, samples: NDArray[np.float64]) -> Expected:
        mean = float(samples.mean())
        half = _Z95 * float(samples.std(ddof=1)) / math.sqrt(samples.size)
        return cls(mean, "monte-carlo", (mean - half, mean + half), samples.size)


def harmonic(n: int) -> float:
    """H_n = 1 + 1/2 + … + 1/n."""
    return math.fsum(1.0 / i for i in range(1, n + 1))


def expected_cover(
    topology: Topology, replicas: int = 1000, seed: int = 0, max_moves: int | None = None
) -> Expected:
    """Expected iterations until every agent is scheduled, by the first method that applies."""
    closed = cover_closed_form(topology)
    if closed is not None:
        return Expected(closed)
    if len(topology) <= EXACT_LIMIT:
        return Expected(cover_exact(topology))
    return cover_monte_carlo(topology, replicas, seed, max_moves)


def cover_closed_form(topology: Topology) -> float | None:
    """The cover time of the graphs below, in any order of the agents; None for other graphs.

    - complete: 1 + (K−1)·H_{K−1}
    - ring: 1 + K(K−1)/2
    - path, n = K−1: from a uniform start n(n−1)/6 steps to an end, and n(n+1) to the other end
    - star, n = K−1 leaves: a leaf keeps the token for n iterations on average and the hub for one;
      after the first leaf n·H_{n−1} leaves follow, K iterations each. A start at the hub adds one.
    """
    K = len(topology)
    degrees = topology.degrees
    n = K - 1
    if bool(np.all(degrees == n)):
        return 1.0 + n * harmonic(n)
    if bool(np.all(degrees == 2)):
        return 1.0 + K * n / 2
    low, high = int(np.count_nonzero(degrees == 1)), int(degrees.max())
    if low == 2 and high == 2:
        return 1.0 + n * (n - 1) / 6 + n * (n + 1)
    if low == n and high == n:
        return 1.0 + 1.0 / K + K * n * harmonic(n - 1)
    return None


def cover_exact(topology: Topology) -> float:
    """Exact for small K: E[S, k], the expected further steps from k once S ∋ k is visited.

    (I − P_SS) E[S, ·] = 1 + Σ_{j∉S} P_{·j} E[S ∪ j, j]; all subsets of one size are solved at once.
    """
    K = len(topology)
    if K > 20:
        raise GraphError(f"exact cover times need 2^{K} subsets. Fix: simulate beyond 20 agents")
    P = transition_matrix(topology)
    subsets = np.arange(1 << K)
    member = (subsets[:, None] >> np.arange(K)) & 1 == 1
    size = member.sum(axis=1)
    further = np.zeros((1 << K, K))
    for m in range(K - 1, 0, -1):
        these = subsets[size == m]
        inside = np.nonzero(member[these])[1].reshape(-1, m)
        outside = np.nonzero(~member[these])[1].reshape(-1, K - m)
        after = further[these[:, None] | (1 << outside), outside]
        leave = P[inside[:, :, None], outside[:, None, :]]
        rhs = 1.0 + np.einsum("sio,so->si", leave, after)
        A = np.eye(m) - P[inside[:, :, None], inside[:, None, :]]
        further[these[:, None], inside] = np.linalg.solve(A, rhs[:, :, None])[:, :, 0]
    start = np.arange(K)
    return 1.0 + float(further[1 << start, start].mean())


def cover_monte_carlo(
    topology: Topology, replicas: int = 1000, seed: int = 0, max_moves: int | None = None
) -> Expected:
    """Simulated: walks that always move, each stay at k counted as its expectation 1/(1 − P_kk).

    Stays are independent of the moves, so the samples have the walk's mean and less variance. The
    cost does not grow for agents that nearly always keep the token.
    """
    if replicas < 2:
        raise GraphError(f"replicas = {replicas}. Fix: at least 2 for a confidence interval")
    K = len(topology)
    if K == 1:
        return Expected.of_samples(np.ones(replicas))
    batch = max(1, min(replicas, _BATCH_CELLS // K))
    samples = [
        _cover_batch(topology, min(batch, replicas - done), derive(seed, done), max_moves)
        for done in range(0, replicas, batch)
    ]
    return Expected.of_samples(np.concatenate(samples))


def _cover_batch(
    topology: Topology, replicas: int, seed: int, max_moves: int | None
) -> NDArray[np.float64]:
    K = len(topology)
    moves, _ = move_probabilities(topology)
    total = np.concatenate([[0.0], np.cumsum(moves)])
    first, last = topology.indptr[:-1], topology.indptr[1:]
    low, width = total[first], total[last] - total[first]
    stay = 1.0 / width
    stream = Stream(derive(seed, Purpose.REPLICA))
    at = (stream.random((replicas,)) * K).astype(np.int64)
    active = np.arange(replicas)  # the replicas that have not scheduled all agents
    visited = np.zeros((replicas, K), dtype=bool)
    visited[active, at] = True
    missing = np.full(replicas, K - 1)
    steps, result = np.ones(replicas), np.ones(replicas)
    made = 0
    while active.size:
        block = max(1, _BLOCK_DRAWS // active.size)
        for u in stream.random((block, active.size)):
            here = u[: at.size]
            steps += stay[at]
            entry = np.searchsorted(total, low[at] + here * width[at], side="right") - 1
            # Rounding may step past the row's ends, by at most one entry.
            at = topology.indices[np.clip(entry, first[at], last[at] - 1)].astype(np.int64)
            fresh = ~visited[active, at]
            if fresh.any():
                visited[active[fresh], at[fresh]] = True
                missing[fresh] -= 1
                done = missing == 0
                if done.any():
                    result[active[done]] = steps[done]
                    walking = ~done
                    active, at, steps, missing = (x[walking] for x in (active, at, steps, missing))
                    if not active.size:
                        break
        made += block
        if max_moves is not None and made > max_moves and active.size:
            raise GraphError(
                f"{active.size} of {replicas} simulated walks had not scheduled all {K} agents "
                f"after {made} moves. Fix: the schedule sweep, which visits all in "
                f"{2 * (K - 1)} hops"
            )
    return result
