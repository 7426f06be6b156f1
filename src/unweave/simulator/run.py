"""A fault run: a network with a real model and real data, with every invariant checked.

    run_with_faults(model, terms, shards, faults="severe", seed=7).report()

The data are read from CSV files, or drawn so that the model accepts them. The same seed gives the
same run. Afterwards the sum is compared with a run without faults on the remaining records: equal
bit for bit for a conjugate model, close for the others.
"""

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
from unweave.models.fitted.posterior import Posterior
from unweave.protocol.events import Effect, Solve
from unweave.protocol.state import State
from unweave.protocol.terms import Terms
from unweave.protocol.token import NOTHING, Stamp, roster
from unweave.rng import Purpose, derive
from unweave.simulator.faults import Profile, RandomFaults, profile
from unweave.simulator.insider import InsiderWorld, keyed_signers
from unweave.simulator.invariants import (
    Checker,
    InsiderChecker,
    Violation,
    known_departed,
    parked_token,
)
from unweave.simulator.workload import (
    OwnerRequests,
    Workload,
    dispensable_agents,
    run_workload,
)
from unweave.simulator.world import World
from unweave.solvers import Solver, default_solver
from unweave.solvers.worker import ModelWorker, record_key

__all__ = ["draw_shards", "read_csv", "run_with_faults"]


_ROWS = 100  # of synthetic data, per agent


def draw_shards(model: Model, agents: Sequence[str], seed: int) -> list[Shard]:
    """Synthetic data for a network that names none."""
    return [_draw(model, name, derive(seed, Purpose.PARTITION, k)) for k, name in enumerate(agents)]


def read_csv(path: Path, schema: Sequence[Column]) -> dict[str, list[float | str]]:
    """The model's columns of a CSV file with a header; true, false and levels stay texts."""
    columns = list(dict.fromkeys(column.given for column in schema))
    texts = {column.given for column in schema if column.codes}
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror or error}. Fix: name a readable file"
        ) from None
    found = set(rows[0]) if rows else set(columns)
    absent = [column for column in columns if column not in found]
    if absent:
        raise DataError(
            f"{path}: no column {absent[0]!r}. Fix: the model needs {', '.join(columns)}"
        )
    try:
        return {
            c: [
                text if c in texts or truth(text) is not None else float(text)
                for row in rows
                for text in (row[c],)
            ]
            for c in columns
        }
    except (AttributeError, TypeError, ValueError):
        raise DataError(f"{path}: a value is not a number. Fix: every field must be one") from None


def _draw(model: Model, agent: str, key: int) -> Shard:
    """Records that the model accepts: within its columns' bounds and its rules between columns."""
    rng = np.random.default_rng(key)
    rows = np.empty((0, len(model.schema)))
    for _ in range(200):
        drawn = np.stack([_draw_column(column, rng) for column in model.schema], axis=1)
        good = [r for r in range(len(drawn)) if model.row_problem(drawn[r : r + 1]) is None]
        rows = np.concatenate([rows, drawn[good]])[:_ROWS]
        if len(rows) == _ROWS:
            return Shard(agent, rows)
    raise ConfigError(
        f"no synthetic data for {model.name}. Fix: give every agent "
        'data = "file.csv" in the manifest'
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


NO_FAULTS = Profile(erase=0.0, data=0.0)
TOLERANCE = 1e-4
NEAR = 1e-3  # KL between two fits of the same records, some tolerances apart
# A hop costs 10 to 60 events, more in larger networks. A run with more than this is stopped.
_EVENTS_PER_HOP = 400
_EVENTS_PER_HOP_AND_AGENT = 40
_WITH_LIAR = 4  # agents: two honest answers outweigh the liar's


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
    """A run that broke no invariant and ended with a parked token."""

    model: Model
    profile: str | None
    seed: int
    hops: int  # in all, with those after the faults
    hops_asked: int  # with faults
    hops_with_faults: int
    world: World
    faults: RandomFaults
    checker: Checker
    workload: Workload
    owners: OwnerRequests
    remaining: Sequence[Shard]  # the records that were not erased
    reference: Ints  # the sum over them in a run without faults
    notes: Sequence[str]  # where the run differs from the request

    @property
    def units(self) -> Ints:
        return parked_token(self.world).eta

    @property
    def posterior(self) -> Posterior:
        return self.model.posterior(self.units)

    @property
    def equal(self) -> bool:
        """Whether the sum equals that of a run without faults, bit for bit."""
        return bool(np.array_equal(self.units, self.reference))

    @property
    def records_remaining(self) -> int:
        """The number of remaining records. With none, the sum is the prior: nothing to compare."""
        return sum(shard.n for shard in self.remaining)

    def _without_effect(self) -> Counter[str]:
        """The number of requests that are not certified, by reason."""
        asked = zip(self.owners.asked, self.owners.reasons, strict=True)
        return Counter(why for request, why in asked if request not in self.checker.certified)

    def report(self) -> dict[str, Any]:
        """The run as JSON values."""
        decode, kl = self.model.decode, self.model.family.kl
        counts, records = self.workload.counts, self.records_remaining
        far = finite(kl(decode(self.units), decode(self.reference))) if records else None
        return {
            "model": self.model.name,
            "agents": len(self.world.agents),
            "privacy": self.world.terms.privacy,
            "faults": self.profile or "none",
            "seed": self.seed,
            "hops": self.hops,
            "hops_asked": self.hops_asked,
            "hops_with_faults": self.hops_with_faults,
            "notes": list(self.notes),
            "events": self.world.events,
            "epochs": dict(Counter(self.checker.opened)),
            "messages_lost": self.faults.lost,
            "crashes": self.faults.crashes,
            "restarts": self.checker.starts - len(self.world.agents),
            "lost_disks": counts["lost disks"],
            "restored_backups": counts["restores"],
            "partitions": counts["partitions"],
            "power_cuts": counts["power cuts"],
            "agents_departed": len(known_departed(self.world)),
            "lies": self.world.lies.told.total() if isinstance(self.world, InsiderWorld) else 0,
            "erasures_asked": len(self.owners.asked),
            "erasures_certified": len(self.checker.certified),
            "erasures_without_effect": dict(self._without_effect()),
            "certificates": len(self.checker.certificates),
            "checked_transitions": self.checker.checked,
            "agents_left_with_records": sum(shard.n > 0 for shard in self.remaining),
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
    *,
    solver: Solver | None = None,
    tol: float = TOLERANCE,
    retrain_above: float | None = None,
) -> FaultRun:
    """Run the network; raises `Violation` if an invariant is broken or the token is not parked.

    `solver`, `tol` and `retrain_above` are those of the manifest's `[solver]`.
    """
    if hops is not None and hops < 1:
        raise ConfigError(f"hops = {hops}. Fix: at least one")
    chosen = NO_FAULTS if faults is None else profile(faults)
    chosen, notes = _survivable(terms, chosen)
    most = 20 * terms.size if hops is None else hops
    # The owners ask for erasures: the workload would erase the whole network.
    drawn = RandomFaults(replace(chosen, erase=0.0), terms.size, seed)
    counter = _Hops()
    tolerance = tol / terms.size**2 if terms.solve == "pass" else None
    chosen_solver = default_solver(model) if solver is None else solver

    def workers(data: Sequence[Shard]) -> list[ModelWorker]:
        return [
            ModelWorker(
                model,
                chosen_solver,
                shard,
                terms.seed,
                tolerance=tolerance,
                retrain_above=retrain_above,
            )
            for shard in data
        ]

    if chosen.lies:
        liar = random.Random(f"liar {seed}").choice(dispensable_agents(terms.topology))
        world: World = InsiderWorld(
            terms,
            workers(shards),
            seed=seed,
            faults=drawn,
            signers=keyed_signers(terms),
            observers=[counter],
            liar=liar,
            made={},
        )
    else:
        world = World(terms, workers(shards), seed=seed, faults=drawn, observers=[counter])
    # A solver that stops after some passes keeps no factor.
    checker = _checker(world, tolerance is not None and chosen_solver.stops_after is None)
    world.observers.append(checker)
    checker.clock = lambda: world.now
    owners = OwnerRequests(world, chosen, [shard.n for shard in shards], most, seed)
    bound = most * max(_EVENTS_PER_HOP, _EVENTS_PER_HOP_AND_AGENT * terms.size)
    calls, seen, reached = 0, 0, False

    def enough() -> bool:
        """Called before every event; the owners ask for erasures here."""
        nonlocal calls, seen, reached
        calls += 1
        seen = len(counter.stamps)
        reached = seen >= most or (faults is None and world.parked is not None)
        # A network may have no events any more: count the calls too.
        if reached or calls > bound:
            return True
        owners.between_events(seen / most)
        return False

    def halfway() -> bool:
        return 2 * seen >= most

    workload = run_workload(
        world, drawn, checker, _never, events=bound, enough=enough, halfway=halfway
    )
    if not reached:
        notes.append(
            f"The faults ended early, after {seen} of {most} hops: {bound:,} events are the most."
        )
    remaining = _remaining(world, checker, shards)
    token = parked_token(world)
    members = roster(terms.size, token.tombs)
    if terms.masked and len(members) < terms.min_roster:
        notes.append(
            f"{len(members)} agents remain, fewer than min_roster = {terms.min_roster}: no sum is "
            "published, and the posterior shown is the prior."
        )
        remaining, reference = [shard.drop(np.arange(shard.n)) for shard in shards], model.eta0
    elif model.conjugate:
        reference = _fault_free(model, remaining)
    else:
        calm = RandomFaults(NO_FAULTS, terms.size, seed)
        rerun = World(terms, workers(remaining), seed=seed, faults=calm)
        reference = _settled(rerun, calm)
    if isinstance(world, InsiderWorld):
        end = "was voted out" if world.liar in known_departed(world) else "stopped"
        notes.append(f"{terms.name(world.liar)} lied {world.lies.told.total():,} times and {end}.")
    done = FaultRun(
        model=model,
        profile=faults,
        seed=seed,
        hops=len(counter.stamps),
        hops_asked=most,
        hops_with_faults=seen,
        world=world,
        faults=drawn,
        checker=checker,
        workload=workload,
        owners=owners,
        remaining=remaining,
        reference=reference,
        notes=notes,
    )
    _compare(done, max(NEAR, 10.0 * tol))
    return done


def _compare(done: FaultRun, near: float) -> None:
    """A conjugate model, or one that settles: bit for bit the sum of the remaining records. Others:
    within tolerances of a run without faults, if this run converged."""
    model, world = done.model, done.world
    if model.conjugate or (model.settles and parked_token(world).round.converged):
        if not done.equal:
            raise Violation("the sum is not that of the remaining records")
        return
    eta = model.decode(done.units)
    if not model.family.margin(eta) > 0.0:
        raise Violation("the parked sum is no posterior")
    token = parked_token(world)
    far = float(model.family.kl(eta, model.decode(done.reference)))
    if token.round.converged and far > near:
        raise Violation(f"the sum is at KL = {far:.3g} from that of a run without faults")


def _checker(world: World, solves: bool) -> Checker:
    """A checker that knows whether a solver would keep a factor. Whether a factor contains a record
    cannot be seen in it; the final sum shows that."""

    def stationary(k: int, eta: Ints, units: Ints) -> bool:
        s = world.state(k)
        if s.own.current is None or s.own.current.rows != s.own.rows:
            return True  # an erasure was requested since then
        work = Solve(("check",), 0, 0, eta - units, units, s.own.dropped)
        return bool(world.agents[k].worker.solve(work).keep)

    exact = world.terms.conjugate or not solves
    known = None if exact else stationary
    if isinstance(world, InsiderWorld):
        liar, made = world.liar, world.lies.made
        return InsiderChecker(
            world.terms, stationary=known, signers=world.signers, liar=liar, made=made
        )
    return Checker(world.terms, stationary=known)


def _survivable(terms: Terms, chosen: Profile) -> tuple[Profile, list[str]]:
    """The faults that a network of this size survives, and notes on the omitted ones."""
    notes = []
    size = terms.size
    if chosen.departs and size - 1 < terms.quorum:
        notes.append(f"No agent of {size} is lost for good: the rest would be no quorum.")
        chosen = replace(chosen, departs=0.0)
    if chosen.lies and (size < _WITH_LIAR or not dispensable_agents(terms.topology)):
        notes.append(f"No agent of {size} lies: the others must be a quorum, and connected.")
        chosen = replace(chosen, lies=0.0)
    if size == 1 and (chosen.lose_disk or chosen.restore):
        notes.append("One agent alone: its disk is never lost, for nobody else would remember.")
        chosen = replace(chosen, lose_disk=0.0, restore=0.0)
    return chosen, notes


def _never(rng: random.Random, agent: int) -> tuple[bool, frozenset[bytes]]:
    raise AssertionError("in a fault run the owners ask for erasures, not the workload")


def _fault_free(model: Any, shards: Sequence[Shard]) -> Ints:
    total = model.eta0
    for shard in shards:
        if shard.n:
            total = model.grid.add(total, model.factor(shard))
    units: Ints = total
    return units


def _settled(world: World, calm: RandomFaults) -> Ints:
    """The parked sum of a network without faults."""
    checker = Checker(world.terms)
    world.observers.append(checker)
    run_workload(world, calm, checker, _never, events=1, enough=lambda: True)
    assert world.parked is not None
    token = world.state(world.parked).token.held
    assert token is not None
    return token.eta


def _remaining(world: World, checker: Checker, shards: Sequence[Shard]) -> list[Shard]:
    """The records of every agent without the erased ones; none of departed or erased agents."""
    absent = known_departed(world)
    remaining = []
    for k, shard in enumerate(shards):
        tomb = world.state(k).known.tombs.get(k, NOTHING)
        keys = {key for request in tomb.ids for key in checker.erased[request][1]}
        erased = [i for i in range(shard.n) if record_key(i) in keys]
        everything = tomb.whole or k in absent
        drop = np.arange(shard.n) if everything else np.array(erased, dtype=int)
        remaining.append(shard.drop(drop))
    return remaining
