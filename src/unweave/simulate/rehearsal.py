"""A network, rehearsed: real model, real data, bad weather, every invariant checked.

    rehearse(model, terms, shards, faults="hurricane", seed=7).report()

The same seed gives the same run. Afterwards the sum is held against a run without any fault on the
records that are left: equal bit for bit for a conjugate model, close for the others.
"""

from __future__ import annotations

import csv
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.draws import Purpose, derive
from unweave.errors import ConfigError, DataError
from unweave.grid import Ints
from unweave.models import Model, Shard
from unweave.models.columns import Column
from unweave.models.posterior import Posterior
from unweave.protocol.events import Effect
from unweave.protocol.ids import Stamp
from unweave.protocol.state import State
from unweave.protocol.terms import Terms
from unweave.protocol.tombs import NOTHING
from unweave.simulate.checks import Checker, Violation, gone
from unweave.simulate.crew import Crew, ride_out
from unweave.simulate.faults import Profile, Storm, profile
from unweave.simulate.worker import ModelWorker, record_key
from unweave.simulate.world import World
from unweave.solvers import default_solver

__all__ = ["DOWN", "LOST", "NOTHING_LEFT", "Rehearsal", "draw_shards", "read_csv", "rehearse"]

CLEAR = Profile(erase=0.0, data=0.0)
TOLERANCE = 1e-4
# Why a request that was asked is not certified; nothing was promised for it.
DOWN = "its agent was down and did not hear it"
NOTHING_LEFT = "its agent had erased everything, or had left"
LOST = "lost with a disk before anybody else knew of it"
_ROWS = 100  # of synthetic data, per agent
_EVENTS_PER_HOP = 400


class _Hops:
    """Counts the hops of all tokens."""

    def __init__(self) -> None:
        self.stamps: set[Stamp] = set()

    def after(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None:
        token = after.token
        if token is not None:
            self.stamps.add(token.stamp)


@dataclass
class Rehearsal:
    """A run that broke no rule and came to rest."""

    model: Model
    faults: str | None
    seed: int
    hops: int
    world: World
    storm: Storm
    checker: Checker
    crew: Crew
    reference: Ints  # the sum without faults, on the records that are left
    reasons: Sequence[str]  # of each request: why it would have no effect if it was not certified

    @property
    def units(self) -> Ints:
        assert self.world.parked is not None
        token = self.world.state(self.world.parked).token
        assert token is not None
        return token.eta

    @property
    def posterior(self) -> Posterior:
        return self.model.posterior(self.units)

    @property
    def equal(self) -> bool:
        """Bit for bit what a run without faults gives."""
        return bool(np.array_equal(self.units, self.reference))

    def _without_effect(self) -> Counter[str]:
        """Requests that were asked and are not certified, by reason."""
        asked = zip(self.crew.asked, self.reasons, strict=True)
        return Counter(why for request, why in asked if request not in self.checker.certified)

    def report(self) -> dict[str, Any]:
        """Everything, for machines."""
        decode, kl = self.model.grid.decode, self.model.family.kl
        counts = self.crew.counts
        return {
            "model": self.model.name,
            "agents": len(self.world.agents),
            "faults": self.faults or "none",
            "seed": self.seed,
            "hops": self.hops,
            "events": self.world.events,
            "epochs": dict(Counter(self.checker.opened)),
            "messages_lost": self.storm.lost,
            "crashes": self.storm.crashes,
            "restarts": self.checker.boots - len(self.world.agents),
            "lost_disks": counts["lost disks"],
            "restored_backups": counts["restores"],
            "partitions": counts["partitions"],
            "power_cuts": counts["power cuts"],
            "erasures_asked": counts["requests"],
            "erasures_certified": len(self.checker.certified),
            "erasures_without_effect": dict(self._without_effect()),
            "certificates": len(self.checker.certificates),
            "checked_transitions": self.checker.checked,
            "posterior": {
                m.name: {"mean": float(m.mean), "sd": float(m.sd)}
                for m in self.model.marginals(decode(self.units))
            },
            "digest": self.posterior.digest,
            "equal_to_fault_free": self.equal,
            "kl_to_fault_free": float(kl(decode(self.units), decode(self.reference))),
        }


def rehearse(
    model: Model,
    terms: Terms,
    shards: Sequence[Shard],
    faults: str | None = None,
    seed: int = 0,
    hops: int | None = None,
) -> Rehearsal:
    """Run the network; raises `Violation` if a rule is broken or it does not come to rest."""
    if hops is not None and hops < 1:
        raise ConfigError(f"hops = {hops}: at least one")
    weather = CLEAR if faults is None else profile(faults)
    most = 20 * terms.size if hops is None else hops
    storm, checker, counter = Storm(weather, terms.size, seed), Checker(terms), _Hops()
    tolerance = TOLERANCE / terms.size**2 if terms.solve == "pass" else None

    def network(data: Sequence[Shard], storm: Storm, *observers: Any) -> World:
        workers = [
            ModelWorker(model, default_solver(model), shard, terms.seed, tolerance=tolerance)
            for shard in data
        ]
        return World(terms, workers, seed=seed, weather=storm, observers=observers)

    reasons: list[str] = []

    def draw_erasure(rng: random.Random, agent: int) -> tuple[bool, frozenset[bytes]]:
        state = world.agents[agent].state
        out = state is not None and (state.detached or state.tomb.whole or state.tomb.left)
        reasons.append(DOWN if state is None else NOTHING_LEFT if out else LOST)
        if rng.random() < 0.15:
            return True, frozenset()
        return False, frozenset({record_key(rng.randrange(shards[agent].n))})

    world = network(shards, storm, checker, counter)

    def enough() -> bool:
        rested = faults is None and world.parked is not None
        return rested or len(counter.stamps) >= most

    crew = ride_out(
        world, storm, checker, draw_erasure, events=_EVENTS_PER_HOP * most, enough=enough
    )
    run = len(counter.stamps)
    left = _remaining(world, checker, shards)
    if model.conjugate:
        reference = _fault_free(model, left)
    else:
        calm = Storm(CLEAR, terms.size, seed)
        reference = _settled(network(left, calm), calm)
    done = Rehearsal(model, faults, seed, run, world, storm, checker, crew, reference, reasons)
    if model.conjugate and not done.equal:
        raise Violation("the sum is not that of the records that are left")
    return done


def _fault_free(model: Any, shards: Sequence[Shard]) -> Ints:
    total = model.eta0
    for shard in shards:
        if shard.n:
            total = model.grid.add(total, model.factor(shard))
    units: Ints = total
    return units


def _settled(world: World, calm: Storm) -> Ints:
    """Where a network that knows nothing else comes to rest."""
    checker = Checker(world.terms)
    world.observers.append(checker)
    ride_out(
        world, calm, checker, lambda rng, k: (True, frozenset()), events=1, enough=lambda: True
    )
    assert world.parked is not None
    token = world.state(world.parked).token
    assert token is not None
    return token.eta


def _remaining(world: World, checker: Checker, shards: Sequence[Shard]) -> list[Shard]:
    """Everybody's records without the erased ones; nothing of those who left or erased all."""
    left = 0
    for agent in world.agents:
        if agent.state is not None:
            left |= gone(agent.state.tombs)
    rest = []
    for k, shard in enumerate(shards):
        tomb = world.state(k).tombs.get(k, NOTHING)
        keys = {key for request in tomb.ids for key in checker.erased[request][1]}
        erased = [i for i in range(shard.n) if record_key(i) in keys]
        everything = tomb.whole or left >> k & 1
        rest.append(shard.drop(np.arange(shard.n) if everything else np.array(erased, dtype=int)))
    return rest


# ------------------------------------------------------------------------------------------- data


def draw_shards(model: Model, agents: Sequence[str], seed: int) -> list[Shard]:
    """Synthetic data for a network that names none."""
    return [_draw(model, name, derive(seed, Purpose.PARTITION, k)) for k, name in enumerate(agents)]


def read_csv(path: Path, columns: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """The model's columns of a CSV file with a header."""
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    found = set(rows[0]) if rows else set(columns)
    absent = [column for column in columns if column not in found]
    if absent:
        raise DataError(f"{path}: no column {absent[0]!r}: the model needs {', '.join(columns)}")
    try:
        return {c: np.array([float(row[c]) for row in rows]) for c in columns}
    except (TypeError, ValueError):
        raise DataError(f"{path}: a value is not a number: every field must be one") from None


def _draw(model: Model, agent: str, key: int) -> Shard:
    """Records that the model accepts: within its columns' bounds and its rules between columns."""
    rng = np.random.default_rng(key)
    rows = np.empty((0, len(model.schema)))
    for _ in range(200):
        drawn = np.stack([_draw_column(column, rng) for column in model.schema], axis=1)
        good = [r for r in range(len(drawn)) if model.row_problem(drawn[r : r + 1]) is None]
        rows = np.concatenate([rows, drawn[good]])[:_ROWS]
        if len(rows) == _ROWS:
            return model.shard({c: rows[:, j] for j, c in enumerate(model.columns)}, agent)
    raise ConfigError(
        f'no synthetic data for {model.name}: give every agent data = "file.csv" in the manifest'
    )


def _draw_column(column: Column, rng: np.random.Generator) -> NDArray[np.float64]:
    low, high = column.low, column.high
    if column.whole:
        first = int(low) + column.strict if np.isfinite(low) else 0
        if np.isfinite(high) and high - first < 1000:
            return rng.integers(first, int(high) + 1, _ROWS).astype(float)
        return first + rng.poisson(3.0, _ROWS).astype(float)
    if np.isfinite(low) and np.isfinite(high):
        return low + (high - low) * (0.05 + 0.9 * rng.random(_ROWS))
    if np.isfinite(low):
        return low + 0.05 + rng.gamma(2.0, 1.0, _ROWS)
    return rng.normal(size=_ROWS)
