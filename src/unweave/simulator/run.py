"""A fault run: a network with a real model and real data, with every invariant checked.

    run_with_faults(Session(model, terms, shards, faults="severe", seed=7)).report()

The data are read from CSV files, or drawn so that the model accepts them. The same seed gives the
same run. Afterwards the sum is compared with a run without faults on the remaining records: equal
bit for bit for a conjugate model, close for the others.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError, DataError
from unweave.families.marginals import Marginal, finite
from unweave.grid import Ints
from unweave.models import ConjugateModel, Model, Shard
from unweave.models.columns import Column, truth
from unweave.models.fitted.posterior import Posterior
from unweave.privacy.mechanism import Mechanism
from unweave.protocol.token import NOTHING, roster
from unweave.rng import Purpose, derive
from unweave.simulator.faults import RandomFaults
from unweave.simulator.insider import InsiderWorld
from unweave.simulator.invariants import Checker, Violation, known_departed, parked_token
from unweave.simulator.session import NO_FAULTS, Session, never
from unweave.simulator.workload import OwnerRequests, Workload, run_workload
from unweave.simulator.world import Observer, World
from unweave.solvers.worker import record_key

__all__ = [
    "draw_shard",
    "draw_shards",
    "read_csv",
    "report_of",
    "run_with_faults",
    "without_faults",
]


_ROWS = 100  # of synthetic data, per agent


def draw_shards(model: Model, agents: Sequence[str], seed: int) -> list[Shard]:
    """Synthetic data for a network that names none."""
    return [
        draw_shard(model, name, derive(seed, Purpose.PARTITION, k)) for k, name in enumerate(agents)
    ]


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


def draw_shard(model: Model, agent: str, key: int) -> Shard:
    """Synthetic records within the columns' bounds and the model's rules between columns."""
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


NEAR = 1e-3  # KL between two fits of the same records, some tolerances apart


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
    mechanism: Mechanism | None = None

    @property
    def units(self) -> Ints:
        return parked_token(self.world).eta

    @property
    def posterior(self) -> Posterior:
        return self._read(self.units)

    def _read(self, units: Ints) -> Posterior:
        shares = len(parked_token(self.world).inside)
        if self.mechanism is None or not shares:
            return self.model.posterior(units)
        return self.mechanism.posterior(units, shares)

    @property
    def equal(self) -> bool:
        """Whether the sum equals that of a run without faults (and with the same noise), bit for
        bit."""
        return bool(np.array_equal(self.units, self.reference))

    @property
    def records_remaining(self) -> int:
        """The number of remaining records. With none, the sum is the prior: nothing to compare."""
        return sum(shard.n for shard in self.remaining)

    def _without_effect(self) -> Counter[str]:
        """The number of requests that are not certified, by reason."""
        asked = zip(self.owners.asked, self.owners.reasons, strict=True)
        return Counter(why for request, why in asked if request not in self.checker.certified)

    def _erased(self) -> list[dict[str, Any]]:
        """The certified erasures: whose, and of how many records (None: of everything)."""
        erased = (self.checker.erased[request] for request in sorted(self.checker.certified))
        name = self.world.terms.name
        return [{"agent": name(agent), "records": len(rows) or None} for agent, rows in erased]

    def report(self) -> dict[str, Any]:
        """The run as JSON values."""
        counts, records = self.workload.counts, self.records_remaining
        posterior = self.posterior
        far = finite(posterior.kl(self._read(self.reference))) if records else None
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
            "erased": self._erased(),
            "certificates": len(self.checker.certificates),
            "checked_transitions": self.checker.checked,
            "agents_left_with_records": sum(shard.n > 0 for shard in self.remaining),
            "records_left": records,
            "settings": self.model.settings(),
            "conjugate": self.model.conjugate,
            "prior": _moments(self.model.marginals(self.model.decode(self.model.eta0))),
            "posterior": _moments(posterior.marginals),
            "noise": None if self.mechanism is None else self.mechanism.statement(),
            "digest": posterior.digest,
            "equal_to_fault_free": self.equal if records else None,
            "kl_to_fault_free": far,
        }


def _moments(laws: Sequence[Marginal]) -> dict[str, dict[str, float | None]]:
    """Mean, standard deviation and 95% interval, by quantity."""
    return {
        law.name: {"mean": finite(law.mean()), "sd": finite(law.sd())}
        | dict(zip(("low", "high"), map(finite, law.interval(0.95)), strict=True))
        for law in laws
    }


def run_with_faults(session: Session) -> FaultRun:
    """Take all steps of a run; raises `Violation` if an invariant is broken or the token is not
    parked."""
    for _ in session.events():
        pass
    return report_of(session, _remaining(session.world, session.checker, session.shards))


def report_of(session: Session, remaining: Sequence[Shard]) -> FaultRun:
    """A run that is at rest, compared with one without faults on the remaining records."""
    model, terms, world = session.model, session.terms, session.world
    notes = list(session.notes)
    token = parked_token(world)
    members = roster(terms.size, token.tombs)
    if terms.masked and len(members) < terms.min_roster:
        notes.append(
            f"{len(members)} agents remain, fewer than min_roster = {terms.min_roster}: no sum is "
            "published, and the posterior shown is the prior."
        )
        remaining = [shard.drop(np.arange(shard.given)) for shard in remaining]
        reference = model.eta0
    elif session.noise is not None and not token.inside:
        notes.append(
            "A privacy budget is spent (that of a lost disk counts as spent if a neighbour cannot "
            "vouch for it): no sum is published any more, and the posterior shown is the prior. "
            "More releases, or fewer faults, would leave one."
        )
        remaining = [shard.drop(np.arange(shard.given)) for shard in remaining]
        reference = model.eta0
    else:
        reference = without_faults(session, remaining)
        if session.noise is not None:
            reference = reference + session.noise_of(token)
    if isinstance(world, InsiderWorld):
        end = "was voted out" if world.liar in known_departed(world) else "stopped"
        notes.append(f"{terms.name(world.liar)} lied {world.lies.told.total():,} times and {end}.")
    done = FaultRun(
        model=model,
        profile=session.profile,
        seed=session.seed,
        hops=session.hops,
        hops_asked=session.most,
        hops_with_faults=session.seen,
        world=world,
        faults=session.faults,
        checker=session.checker,
        workload=session.workload,
        owners=session.owners,
        remaining=remaining,
        reference=reference,
        notes=notes,
        mechanism=session.mechanism,
    )
    _compare(done, max(NEAR, 10.0 * session.tol))
    return done


def without_faults(
    session: Session, shards: Sequence[Shard], observers: Sequence[Observer] = ()
) -> Ints:
    """The sum of a run without faults on these data: of a conjugate model, that of its factors. An
    observer may end the run with an exception."""
    model, terms = session.model, session.terms
    if model.conjugate:
        total: Ints = model.eta0
        for shard in shards:
            if shard.n:
                total = model.grid.add(total, cast(ConjugateModel, model).factor(shard))
        return total
    calm = RandomFaults(NO_FAULTS, terms.size, session.seed)
    workers = session.make_workers(shards)
    rerun = World(terms, workers, seed=session.seed, faults=calm, observers=observers)
    return _settled(rerun, calm)


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


def _settled(world: World, calm: RandomFaults) -> Ints:
    """The parked sum of a network without faults."""
    checker = Checker(world.terms)
    world.observers.append(checker)
    run_workload(world, calm, checker, never, events=1, enough=lambda: True)
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
