"""Random graphs from counter-based draws: a seed gives the same graph on every machine.

If a graph is disconnected, the next sub-seed draws another one, at most `_ATTEMPTS` times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from unweave.arguments import number, seed_number, whole_number
from unweave.errors import GraphError
from unweave.graph.parts import Disconnected
from unweave.graph.topology import Topology, agent_names
from unweave.rng import Purpose, Stream, derive, uniform

__all__ = ["barabasi_albert", "connecting_p", "erdos_renyi", "watts_strogatz"]

_ATTEMPTS = 100
_MOST_EDGES = 20_000_000


def connecting_p(count: int) -> float:
    """An edge probability that connects about 99 of 100 Erdős–Rényi graphs of `count` agents.

    P(connected) → exp(−e^{−c}) for p = (log K + c)/K (Erdős, Rényi 1959); c = 4.6 gives 0.99.
    Rounded up to two digits.
    """
    if count < 2:
        return 1.0
    p = (math.log(count) + 4.6) / count
    unit = 10.0 ** (math.floor(math.log10(p)) - 1)
    return min(1.0, round(math.ceil(p / unit) * unit, 12))


def erdos_renyi(agents: int | Sequence[str], p: float, seed: int = 0) -> Topology:
    """Every pair is an edge with probability p, independently, given a connected graph.

    Time and memory grow with the number of edges: gaps between edges are geometric
    (Batagelj and Brandes 2005).
    """
    names = agent_names(agents)
    count = len(names)
    if not 0.0 <= number(p, "erdos_renyi: p") <= 1.0:
        raise GraphError(f"erdos_renyi: p = {p} is not a probability. Fix: choose 0 ≤ p ≤ 1")
    if p * count * (count - 1) / 2 > _MOST_EDGES:
        raise GraphError(
            f"erdos_renyi: p = {p} gives {count} agents about {p * count * (count - 1) / 2:.0f} "
            f"edges, more than the {_MOST_EDGES} that fit. Fix: p = {connecting_p(count):g}"
        )
    remedy = f"p = {connecting_p(count):g} would do for {count} agents"
    # The number of isolated agents is nearly Poisson: if more than 30 are expected, all
    # attempts fail.
    if count > 1 and count * (1.0 - p) ** (count - 1) > 30.0:
        raise GraphError(f"erdos_renyi: p = {p} leaves agents without an edge. Fix: {remedy}")
    return _until_connected(
        names, seed, "erdos_renyi", remedy, lambda key: _bernoulli_pairs(count, p, key)
    )


def _bernoulli_pairs(count: int, p: float, key: int) -> NDArray[np.int64]:
    pairs = count * (count - 1) // 2
    if p >= 1.0:
        chosen = np.arange(pairs)
    elif p <= 0.0 or not pairs:
        chosen = np.arange(0)
    else:
        stream = Stream(key)
        block = int(pairs * p + 6.0 * math.sqrt(pairs * p) + 16)
        found, last = [np.arange(0)], -1
        while last < pairs:
            # The gap to the next edge is geometric: P(gap > g) = (1 − p)^g. Gaps beyond the last
            # pair are cut, so that their sum cannot overflow.
            gaps = np.minimum(
                np.log1p(-stream.random((block,))) / math.log1p(-p), float(pairs)
            ).astype(np.int64)
            positions = last + np.cumsum(gaps + 1)
            found.append(positions)
            last = int(positions[-1])
        chosen = np.concatenate(found)
        chosen = chosen[chosen < pairs]
    # Pair number n is (i, j), j < i, with n = i(i−1)/2 + j.
    i = ((1.0 + np.sqrt(1.0 + 8.0 * chosen)) / 2.0).astype(np.int64)
    i -= i * (i - 1) // 2 > chosen
    i += i * (i + 1) // 2 <= chosen
    return np.stack([chosen - i * (i - 1) // 2, i], axis=1)


def watts_strogatz(agents: int | Sequence[str], k: int, p: float, seed: int = 0) -> Topology:
    """A ring with edges to the k nearest agents (k even), each rewired with probability p.

    The new end of a rewired edge is uniform among the agents that are not neighbours yet
    (Watts and Strogatz 1998).
    """
    names = agent_names(agents)
    count = len(names)
    if not 0.0 <= number(p, "watts_strogatz: p") <= 1.0:
        raise GraphError(f"watts_strogatz: p = {p} is not a probability. Fix: choose 0 ≤ p ≤ 1")
    k = whole_number(k, "watts_strogatz: k")
    if k < 0 or k % 2 or (k >= count and count > 1) or (k < 2 and count > 2):
        raise GraphError(
            f"watts_strogatz: k = {k} neighbours for {count} agents. "
            f"Fix: choose an even number from 2 to {max(2, (count - 1) // 2 * 2)}"
        )
    if count < 3:  # no even k ≥ 2 is below the number of agents: a path
        return Topology(names, np.asarray([[0, 1]] if count == 2 else [], dtype=np.int64))
    remedy = f"choose k ≥ {k + 2}" + ("" if k + 2 < count else " or a smaller p")
    return _until_connected(
        names, seed, "watts_strogatz", remedy, lambda key: _rewired_ring(count, k, p, key)
    )


def _rewired_ring(count: int, k: int, p: float, key: int) -> NDArray[np.int64]:
    neighbours: list[set[int]] = [set() for _ in range(count)]
    for step in range(1, k // 2 + 1):
        for a in range(count):
            b = (a + step) % count
            neighbours[a].add(b)
            neighbours[b].add(a)
    for step in range(1, k // 2 + 1):
        for a in range(count):
            draw = derive(key, step, a)
            if uniform(draw, 0) >= p or len(neighbours[a]) >= count - 1:
                continue
            b, counter = (a + step) % count, 1
            new = int(uniform(draw, counter) * count)
            while new == a or new in neighbours[a]:
                counter += 1
                new = int(uniform(draw, counter) * count)
            neighbours[a].remove(b)
            neighbours[b].remove(a)
            neighbours[a].add(new)
            neighbours[new].add(a)
    return np.asarray(
        [(a, b) for a in range(count) for b in neighbours[a] if a < b], dtype=np.int64
    )


def barabasi_albert(agents: int | Sequence[str], m: int, seed: int = 0) -> Topology:
    """A star of m+1 agents, then each new agent gets m edges to agents drawn by degree.

    The graph is always connected (Barabási and Albert 1999).
    """
    names = agent_names(agents)
    count = len(names)
    m, seed = whole_number(m, "barabasi_albert: m"), seed_number(seed)
    if m < 1 or (m >= count and count > 1):
        raise GraphError(
            f"barabasi_albert: m = {m} edges per newcomer for {count} agents. "
            f"Fix: choose 1 ≤ m ≤ {max(1, count - 1)}"
        )
    key = derive(seed, Purpose.GRAPH)
    edges = [(0, leaf) for leaf in range(1, min(m + 1, count))]
    ends = [end for edge in edges for end in edge]  # each agent occurs as often as its degree
    for newcomer in range(m + 1, count):
        draw, counter = derive(key, newcomer), 0
        chosen: set[int] = set()
        while len(chosen) < m:
            chosen.add(ends[int(uniform(draw, counter) * len(ends))])
            counter += 1
        for other in sorted(chosen):
            edges.append((other, newcomer))
            ends += (other, newcomer)
    return Topology(names, np.asarray(edges, dtype=np.int64).reshape(-1, 2))


def _until_connected(
    names: tuple[str, ...],
    seed: int,
    what: str,
    remedy: str,
    draw: Callable[[int], NDArray[np.int64]],
) -> Topology:
    seed = seed_number(seed)
    for attempt in range(_ATTEMPTS):
        try:
            return Topology(names, draw(derive(seed, Purpose.GRAPH, attempt)))
        except Disconnected:
            continue
    raise GraphError(f"{what}: {_ATTEMPTS} graphs in a row were disconnected. Fix: {remedy}")
