"""Forecasts of private rounds: iterations until a sum that all agents have attested.

    learn    three laps over all agents: enrol, give, attest. The agent that completes a lap starts
             the next one in the same visit: the others' visits follow.
    round    one more lap of giving, for a model that learns in several rounds: every agent wrote
             its next key while it gave.
    change   the token wakes, sweeps from the agent at which it was parked to the agent whose data
             have changed, and a new round starts there: give, attest.
    forget   the same, on the shortest path to the agent. Nothing is subtracted.
    retrain  learning from zero on the graph without the agent.

The laps follow the schedule; attestation rounds are sweeps. Each replica has a seed of its own,
which draws the start and the orders; the walk of `sweep` is then that of the protocol, visit for
visit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unweave.graph.cover import Expected
from unweave.graph.forecast import without
from unweave.graph.schedules import first_agent, metropolis_next, route_key, sweep_walk
from unweave.graph.topology import Topology
from unweave.rng import Purpose, derive

__all__ = ["RoundForecast", "RoundHops", "count_hops", "round_forecast"]

_BUDGET = 200_000  # visits of all replicas; some seconds
_FEWEST = 30


@dataclass(frozen=True, slots=True)
class RoundHops:
    """The iterations of one network: see the module."""

    learn: int
    round: int
    change: int
    forget: int


@dataclass(frozen=True, slots=True)
class RoundForecast:
    """The expected iterations of one schedule; None: without the agent there is no graph."""

    learn: Expected
    round: Expected
    change: Expected
    forget: Expected
    retrain: Expected | None
    note: str = ""


def round_forecast(
    topology: Topology, agent: str | int, replicas: int = 1000, seed: int = 0
) -> dict[str, RoundForecast]:
    """The forecast of every schedule, by name."""
    remaining, reason = without(topology, agent)
    found = {}
    for schedule in ("metropolis", "sweep"):
        all_of = _samples(topology, topology.index(agent), schedule, replicas, seed)
        rest = _samples(remaining, 0, schedule, replicas, seed) if remaining else None
        learn, more, change, forget = (Expected.of_samples(column) for column in all_of)
        retrain = None if rest is None else Expected.of_samples(rest[0])
        found[schedule] = RoundForecast(learn, more, change, forget, retrain, *reason)
    return found


def _samples(
    topology: Topology, target: int, schedule: str, replicas: int, seed: int
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The hops of independent networks, one row per figure."""
    rows: list[tuple[int, int, int, int]] = []
    visits = 0
    while len(rows) < replicas and (len(rows) < _FEWEST or visits < _BUDGET):
        one = count_hops(topology, target, schedule, derive(seed, Purpose.REPLICA, len(rows)))
        rows.append((one.learn, one.round, one.change, one.forget))
        visits += sum(rows[-1])
    return np.array(rows, dtype=np.float64).T


def count_hops(topology: Topology, target: int, schedule: str, seed: int) -> RoundHops:
    """The iterations of a network with this seed."""
    start = first_agent(len(topology), seed)
    walk = _Walk(topology, schedule, seed, start)
    learn = walk.lap() + walk.lap() - 1  # enrol, give
    learn += walk.attest() - 1
    # From rest: to the agent, and a new round there.
    parked = walk.at
    away = int(topology.distances(target)[parked])
    sweep = sweep_walk(topology, parked, seed)
    found = next(n for n, (k, _) in enumerate(sweep, start=1) if k == target)
    again = _Walk(topology, schedule, seed, target, epoch=2)
    giving = again.lap() - 1
    both = giving + again.attest() - 1
    return RoundHops(learn, giving, found + both, away + 1 + both)


class _Walk:
    """The token's path in one epoch."""

    def __init__(
        self, topology: Topology, schedule: str, seed: int, start: int, epoch: int = 1
    ) -> None:
        self._topology = topology
        self._seed = seed
        self.at = start
        self._path: Iterator[int]
        if schedule == "sweep":
            self._path = (k for k, _ in sweep_walk(topology, start, seed))
        else:
            self._path = _random_walk(topology, seed, epoch, start)
        self._sweeps = schedule == "sweep"
        next(self._path)

    def lap(self) -> int:
        """The visits until every agent had one, this one counted."""
        missing, visits = set(range(len(self._topology))) - {self.at}, 1
        while missing:
            self.at = next(self._path)
            visits += 1
            missing.discard(self.at)
        return visits

    def attest(self) -> int:
        """A lap of attestation: the sweep goes on, and a random walk becomes one."""
        if not self._sweeps:
            self._path = (k for k, _ in sweep_walk(self._topology, self.at, self._seed))
            next(self._path)
        return self.lap()


def _random_walk(topology: Topology, seed: int, epoch: int, start: int) -> Iterator[int]:
    hop = 0
    while True:
        yield start
        hop += 1
        start = metropolis_next(topology, start, route_key(seed, epoch, hop))
