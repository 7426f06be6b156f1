"""A simulated network, event by event: the world, its faults, its owners and its invariants.

    session = Session(model, terms, shards, faults="severe", seed=7)
    while session.step():
        …

`run.run_with_faults` takes all steps of a run at once; the page takes them at its own pace, and
between them somebody may ask for faults (module `asked`). The run ends as `run_with_faults` does:
the faults stop, the token must be parked with no pending work. The session goes on afterwards,
without faults of its own.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from unweave.errors import ConfigError
from unweave.grid import Ints
from unweave.models import Model, Shard
from unweave.privacy.mechanism import Mechanism
from unweave.protocol.events import Effect, Solve
from unweave.protocol.state import State
from unweave.protocol.terms import Terms
from unweave.protocol.token import Stamp, Token
from unweave.simulator.faults import Profile, RandomFaults, profile
from unweave.simulator.insider import InsiderWorld, keyed_signers
from unweave.simulator.invariants import Checker, InsiderChecker
from unweave.simulator.noise import SimulatedNoise
from unweave.simulator.workload import (
    NewData,
    OwnerRequests,
    Workload,
    dispensable_agents,
    same_data,
    workload_events,
)
from unweave.simulator.world import World
from unweave.solvers import Solver, default_solver
from unweave.solvers.worker import ModelWorker

__all__ = ["NO_FAULTS", "TOLERANCE", "Session", "never"]


NO_FAULTS = Profile(erase=0.0, data=0.0)
TOLERANCE = 1e-4
# A hop costs 10 to 60 events, more in larger networks. A run with more than this is stopped.
_EVENTS_PER_HOP = 400
_EVENTS_PER_HOP_AND_AGENT = 40
_WITH_LIAR = 4  # agents: two honest answers outweigh the liar's
_IDLE = 1.0  # simulated seconds that pass in a step without an event, while there are faults


class _Hops:
    """Counts the hops of all tokens."""

    def __init__(self) -> None:
        self.stamps: set[Stamp] = set()

    def after(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None:
        token = after.token.held
        if token is not None:
            self.stamps.add(token.stamp)


class Session:
    """One network with a real model and real data, and every invariant checked.

    `solver`, `tol` and `retrain_above` are those of the manifest's `[solver]`. `signed`: statements
    have signatures of this simulation (`keyed_signers`). `kind` makes the fault model. `mechanism`
    is the noise of the manifest's `[privacy]`, whose model clips records: it is the given one.
    """

    def __init__(
        self,
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
        signed: bool = False,
        kind: Callable[[Profile, int, int], RandomFaults] = RandomFaults,
        new_data: NewData = same_data,
        mechanism: Mechanism | None = None,
    ) -> None:
        if hops is not None and hops < 1:
            raise ConfigError(f"hops = {hops}. Fix: at least one")
        chosen = NO_FAULTS if faults is None else profile(faults)
        chosen, self.notes = _survivable(terms, chosen)
        self.model, self.terms, self.shards = model, terms, shards
        self.profile, self.seed, self.tol = faults, seed, tol
        self.most = 20 * terms.size if hops is None else hops  # hops with faults
        self.seen = 0  # hops so far, with faults
        self.reached = False
        # The owners ask for erasures: the workload would erase the whole network.
        self.faults = kind(replace(chosen, erase=0.0), terms.size, seed)
        self._hops = _Hops()
        self._tolerance = tol / terms.size**2 if terms.solve == "pass" else None
        self._solver = default_solver(model) if solver is None else solver
        self._retrain_above = retrain_above
        self.mechanism = mechanism
        self.noise = None if mechanism is None else SimulatedNoise(mechanism, terms.size, seed)
        self.workers = self.make_workers(shards)
        self.world = self._make_world(chosen, signed)
        # A solver that stops after some passes keeps no factor.
        solves = self._tolerance is not None and self._solver.stops_after is None
        self.checker = _checker(self.world, solves)
        self.world.observers.append(self.checker)
        self.checker.private.clock = lambda: self.world.now
        if (noise := self.noise) is not None:
            self.checker.private.noise, self.checker.private.paid = (
                noise.drawn,
                lambda k: noise.ledgers[k].given,
            )
        self.owners = OwnerRequests(self.world, chosen, [s.n for s in shards], self.most, seed)
        self.workload = Workload(self.world, self.faults, never, new_data)
        self._bound = self.most * max(_EVENTS_PER_HOP, _EVENTS_PER_HOP_AND_AGENT * terms.size)
        self._calls = 0
        self._script: Iterator[None] | None = self.events()
        self._passed = 0.0
        self._actions: list[tuple[float, int, Callable[[], None]]] = []
        self._ordered = 0
        self._idle_until: float | None = 0.0  # the first step starts the agents

    def make_workers(self, data: Sequence[Shard]) -> list[ModelWorker]:
        """One worker per agent, on these data."""
        return [
            ModelWorker(
                self.model,
                self._solver,
                shard,
                self.terms.seed,
                tolerance=self._tolerance,
                retrain_above=self._retrain_above,
            )
            for shard in data
        ]

    def _make_world(self, chosen: Profile, signed: bool) -> World:
        terms, seed = self.terms, self.seed
        if chosen.lies:
            liar = random.Random(f"liar {seed}").choice(dispensable_agents(terms.topology))
            return InsiderWorld(
                terms,
                self.workers,
                seed=seed,
                faults=self.faults,
                signers=keyed_signers(terms),
                observers=[self._hops],
                noise=self.noise,
                liar=liar,
                made={},
            )
        return World(
            terms,
            self.workers,
            seed=seed,
            faults=self.faults,
            signers=keyed_signers(terms) if signed else None,
            observers=[self._hops],
            noise=self.noise,
        )

    def noise_of(self, token: Token) -> Ints:
        """The noise in a complete sum, which only a simulation knows."""
        assert self.noise is not None
        total = self.model.grid.zeros()
        for k in token.inside:
            given = self.checker.factors[k, token.included[k]].given
            assert given is not None
            total = total + self.noise.drawn[given.key]
        return total

    # ---------------------------------------------------------------------------------- the run

    @property
    def hops(self) -> int:
        """Of all tokens so far."""
        return len(self._hops.stamps)

    @property
    def running(self) -> bool:
        """Whether the run goes on: its faults, or the time until the network is at rest."""
        return self._script is not None

    def events(self) -> Iterator[None]:
        """The run, event by event; raises `Violation` if an invariant is broken, or if the token
        is not parked at the end."""
        yield from workload_events(
            self.workload,
            self.checker,
            events=self._bound,
            enough=self._enough,
            halfway=lambda: 2 * self.seen >= self.most,
        )
        if not self.reached:
            self.notes.append(
                f"The faults ended early, after {self.seen} of {self.most} hops: "
                f"{self._bound:,} events are the most."
            )

    def _enough(self) -> bool:
        """Called before every event; the owners ask for erasures here."""
        self._calls += 1
        self.seen = self.hops
        at_rest = self.profile is None and self.world.parked is not None
        self.reached = self.seen >= self.most or at_rest
        # A network may have no events any more: count the calls too.
        if self.reached or self._calls > self._bound:
            return True
        self.owners.between_events(self.seen / self.most)
        return False

    # ------------------------------------------------------------------------------- its steps

    @property
    def next_at(self) -> float:
        """When something happens next, in simulated seconds; infinite: nothing will."""
        at = self.world.next_at
        if at is None and self.running:
            # Fixed when it is first asked for: the clock may be moved on to it in small steps.
            if self._idle_until is None:
                self._idle_until = self.world.now + _IDLE
            at = self._idle_until
        at = math.inf if at is None else at
        return min(at, self._actions[0][0]) if self._actions else at

    def later(self, delay: float, action: Callable[[], None]) -> None:
        """Do this after some simulated seconds, between two events."""
        self._ordered += 1
        heapq.heappush(self._actions, (self.world.now + delay, self._ordered, action))

    def step(self) -> bool:
        """Handle the next event, or the next action that was put off; False: there is none."""
        world = self.world
        if self._actions and self._actions[0][0] <= self.next_at:
            at, _, action = heapq.heappop(self._actions)
            world.now = max(world.now, at)
            action()
            return True
        self._idle_until = None
        if self._script is not None:
            for _ in self._script:
                return True
            self._script = None
        self.workload.restart_all()
        return world.step()

    @property
    def now(self) -> float:
        """The clock that viewers see. It runs on between two events; the world's does not, so that
        a run is the same at any pace."""
        return max(self.world.now, self._passed)

    def pass_time(self, until: float) -> None:
        """Let the viewers' clock run on, but not past the next event."""
        self._passed = max(self.now, min(until, self.next_at))

    def interrupt(self) -> None:
        """Something is asked for now, and not at the time of the last event."""
        self.world.now = self.now


def never(rng: random.Random, agent: int) -> tuple[bool, frozenset[bytes]]:
    raise AssertionError("in a fault run the owners ask for erasures, not the workload")


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
    return Checker(world.terms, stationary=known, signers=world.signers)


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
