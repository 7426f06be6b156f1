"""The records of a rehearsal: of a CSV file, or drawn so that the model accepts them."""

from __future__ import annotations

import csv
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError, DataError
from unweave.families.marginals import finite
from unweave.grid import Ints
from unweave.models import Model, Shard
from unweave.models.columns import Column, truth
from unweave.models.posterior import Posterior
from unweave.protocol.events import Effect, Solve
from unweave.protocol.state import State
from unweave.protocol.terms import Terms
from unweave.protocol.token import NOTHING, Stamp
from unweave.rng import Purpose, derive
from unweave.simulator.faults import Profile, RandomFaults, profile
from unweave.simulator.invariants import Checker, Violation, gone
from unweave.simulator.workload import OwnerRequests, Workload, run_workload
from unweave.simulator.world import World
from unweave.solvers import default_solver
from unweave.solvers.worker import ModelWorker, record_key

__all__ = ["draw_shards", "read_csv", "run_with_faults"]


_ROWS = 100  # of synthetic data, per agent


def draw_shards(model: Model, agents: Sequence[str], seed: int) -> list[Shard]:
    """Synthetic data for a network that names none."""
    return [_draw(model, name, derive(seed, Purpose.PARTITION, k)) for k, name in enumerate(agents)]


def read_csv(path: Path, columns: Sequence[str]) -> dict[str, list[float | str]]:
    """The model's columns of a CSV file with a header; true and false stay texts."""
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
        return {
            c: [text if truth(text := row[c]) is not None else float(text) for row in rows]
            for c in columns
        }
    except (AttributeError, TypeError, ValueError):
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


# ------------------------------------------------------------------------------
# A network, rehearsed: real model, real data, bad weather, every invariant checked.
#
# rehearse(model, terms, shards, faults="hurricane", seed=7).report()
#
# The same seed gives the same run. Afterwards the sum is held against a run without any fault on
# the records that are left: equal bit for bit for a conjugate model, close for the others.

NO_FAULTS = Profile(erase=0.0, data=0.0)
TOLERANCE = 1e-4
NEAR = 1e-3  # some tolerances away from another fit of the same records
# A hop costs some 10 to 60 events, more where more agents talk. This many are not normal.
_EVENTS_PER_HOP = 400
_EVENTS_PER_HOP_AND_AGENT = 40


class _Hops:
    """Counts the hops of all tokens."""

    def __init__(self) -> None:
        self.stamps: set[Stamp] = set()

    def after(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None:
        token = after.token.held
        if token is not None:
            self.stamps.add(token.stamp)


@dataclass
class FaultRun:
    """A run that broke no rule and came to rest."""

    model: Model
    faults: str | None
    seed: int
    hops: int  # in all, with those after the weather had cleared
    hops_asked: int  # of bad weather
    hops_in_bad_weather: int
    world: World
    storm: RandomFaults
    checker: Checker
    crew: Workload
    owners: OwnerRequests
    left: Sequence[Shard]  # the records that are left
    reference: Ints  # the sum without faults, on them
    notes: Sequence[str]  # where the run was not what was asked for

    @property
    def units(self) -> Ints:
        assert self.world.parked is not None
        token = self.world.state(self.world.parked).token.held
        assert token is not None
        return token.eta

    @property
    def posterior(self) -> Posterior:
        return self.model.posterior(self.units)

    @property
    def equal(self) -> bool:
        """Bit for bit what a run without faults gives."""
        return bool(np.array_equal(self.units, self.reference))

    @property
    def records_left(self) -> int:
        """Without any, everybody is back at the prior, and equal to it says nothing."""
        return sum(shard.n for shard in self.left)

    def _without_effect(self) -> Counter[str]:
        """Requests that were asked and are not certified, by reason."""
        asked = zip(self.owners.asked, self.owners.reasons, strict=True)
        return Counter(why for request, why in asked if request not in self.checker.certified)

    def report(self) -> dict[str, Any]:
        """Everything, for machines."""
        decode, kl = self.model.grid.decode, self.model.family.kl
        counts, records = self.crew.counts, self.records_left
        far = finite(kl(decode(self.units), decode(self.reference))) if records else None
        return {
            "model": self.model.name,
            "agents": len(self.world.agents),
            "faults": self.faults or "none",
            "seed": self.seed,
            "hops": self.hops,
            "hops_asked": self.hops_asked,
            "hops_in_bad_weather": self.hops_in_bad_weather,
            "notes": list(self.notes),
            "events": self.world.events,
            "epochs": dict(Counter(self.checker.opened)),
            "messages_lost": self.storm.lost,
            "crashes": self.storm.crashes,
            "restarts": self.checker.boots - len(self.world.agents),
            "lost_disks": counts["lost disks"],
            "restored_backups": counts["restores"],
            "partitions": counts["partitions"],
            "power_cuts": counts["power cuts"],
            "agents_gone": int(self.crew.gone is not None),
            "erasures_asked": len(self.owners.asked),
            "erasures_certified": len(self.checker.certified),
            "erasures_without_effect": dict(self._without_effect()),
            "certificates": len(self.checker.certificates),
            "checked_transitions": self.checker.checked,
            "agents_left_with_records": sum(shard.n > 0 for shard in self.left),
            "records_left": records,
            "posterior": {
                m.name: {"mean": finite(m.mean()), "sd": finite(m.sd())}
                for m in self.model.marginals(decode(self.units))
            },
            "digest": self.posterior.digest,
            "equal_to_fault_free": self.equal if records else None,
            "kl_to_fault_free": far,
        }


def run_with_faults(
    model: Model,
    terms: Terms,
    shards: Sequence[Shard],
    faults: str | None = None,
    seed: int = 0,
    hops: int | None = None,
) -> FaultRun:
    """Run the network; raises `Violation` if a rule is broken or it does not come to rest."""
    if hops is not None and hops < 1:
        raise ConfigError(f"hops = {hops}: at least one")
    weather = NO_FAULTS if faults is None else profile(faults)
    weather, notes = _among(terms, weather)
    most = 20 * terms.size if hops is None else hops
    # The owners ask, not the crew: it would erase the whole network.
    storm = RandomFaults(replace(weather, erase=0.0), terms.size, seed)
    counter = _Hops()
    tolerance = TOLERANCE / terms.size**2 if terms.solve == "pass" else None

    def network(data: Sequence[Shard], storm: RandomFaults, *observers: Any) -> World:
        workers = [
            ModelWorker(model, default_solver(model), shard, terms.seed, tolerance=tolerance)
            for shard in data
        ]
        return World(terms, workers, seed=seed, weather=storm, observers=observers)

    world = network(shards, storm, counter)
    checker = _checker(world, tolerance is not None)
    world.observers.append(checker)
    owners = OwnerRequests(world, weather, [shard.n for shard in shards], most, seed)
    bound = most * max(_EVENTS_PER_HOP, _EVENTS_PER_HOP_AND_AGENT * terms.size)
    moments, seen, reached = 0, 0, False

    def enough() -> bool:
        """Asked before every event, and that is when owners ask."""
        nonlocal moments, seen, reached
        moments += 1
        seen = len(counter.stamps)
        reached = seen >= most or (faults is None and world.parked is not None)
        # A network may be so quiet that nothing happens any more: moments pass, events do not.
        if reached or moments > bound:
            return True
        owners.between_events(seen / most)
        return False

    def halfway() -> bool:
        return 2 * seen >= most

    crew = run_workload(world, storm, checker, _never, events=bound, enough=enough, halfway=halfway)
    if not reached:
        notes.append(
            f"The weather ended early, after {seen} of {most} hops: {bound:,} events are the most."
        )
    left = _remaining(world, checker, shards)
    if model.conjugate:
        reference = _fault_free(model, left)
    else:
        calm = RandomFaults(NO_FAULTS, terms.size, seed)
        reference = _settled(network(left, calm), calm)
    done = FaultRun(
        model=model,
        faults=faults,
        seed=seed,
        hops=len(counter.stamps),
        hops_asked=most,
        hops_in_bad_weather=seen,
        world=world,
        storm=storm,
        checker=checker,
        crew=crew,
        owners=owners,
        left=left,
        reference=reference,
        notes=notes,
    )
    _compare(done)
    return done


def _compare(done: FaultRun) -> None:
    """Exact models: bit for bit what the records that are left give. Others: where a run without
    faults settles, as far as tolerances go, if this one was not cut short."""
    model, world = done.model, done.world
    if model.conjugate:
        if not done.equal:
            raise Violation("the sum is not that of the records that are left")
        return
    eta = model.grid.decode(done.units)
    if not model.family.margin(eta) > 0.0:
        raise Violation("the network rests on a sum that is no posterior")
    assert world.parked is not None
    token = world.state(world.parked).token.held
    assert token is not None
    far = float(model.family.kl(eta, model.grid.decode(done.reference)))
    if token.round.converged and far > NEAR:
        raise Violation(f"it settled at KL = {far:.3g} from where a run without faults settles")


def _checker(world: World, solves: bool) -> Checker:
    """With an eye for whether agents would move. What a factor has of a record cannot be seen in
    it; the sum in the end shows that."""

    def stationary(k: int, eta: Ints, units: Ints) -> bool:
        s = world.state(k)
        if s.own.current is None or s.own.current.rows != s.own.rows:
            return True  # it was asked to erase since then
        work = Solve(("check",), 0, 0, eta - units, units, s.own.dropped)
        return bool(world.agents[k].worker.solve(work).keep)

    exact = world.terms.conjugate or not solves
    return Checker(world.terms, stationary=None if exact else stationary)


def _among(terms: Terms, weather: Profile) -> tuple[Profile, list[str]]:
    """The part of the weather that so few agents are promised to survive, and what is left out."""
    notes = []
    size = terms.size
    if weather.gone and size - 1 < terms.quorum:
        notes.append(f"No agent of {size} is lost for good: the rest would be no quorum.")
        weather = replace(weather, gone=0.0)
    if size == 1 and (weather.lose_disk or weather.restore):
        notes.append("One agent alone: its disk is never lost, for nobody else would remember.")
        weather = replace(weather, lose_disk=0.0, restore=0.0)
    return weather, notes


def _never(rng: random.Random, agent: int) -> tuple[bool, frozenset[bytes]]:
    raise AssertionError("in a rehearsal the owners ask, not the crew")


def _fault_free(model: Any, shards: Sequence[Shard]) -> Ints:
    total = model.eta0
    for shard in shards:
        if shard.n:
            total = model.grid.add(total, model.factor(shard))
    units: Ints = total
    return units


def _settled(world: World, calm: RandomFaults) -> Ints:
    """Where a network that knows nothing else comes to rest."""
    checker = Checker(world.terms)
    world.observers.append(checker)
    run_workload(world, calm, checker, _never, events=1, enough=lambda: True)
    assert world.parked is not None
    token = world.state(world.parked).token.held
    assert token is not None
    return token.eta


def _remaining(world: World, checker: Checker, shards: Sequence[Shard]) -> list[Shard]:
    """Everybody's records without the erased ones; nothing of those who left or erased all."""
    left: frozenset[int] = frozenset()
    for agent in world.agents:
        if agent.state is not None:
            left |= gone(agent.state.known.tombs)
    rest = []
    for k, shard in enumerate(shards):
        tomb = world.state(k).known.tombs.get(k, NOTHING)
        keys = {key for request in tomb.ids for key in checker.erased[request][1]}
        erased = [i for i in range(shard.n) if record_key(i) in keys]
        everything = tomb.whole or k in left
        rest.append(shard.drop(np.arange(shard.n) if everything else np.array(erased, dtype=int)))
    return rest
