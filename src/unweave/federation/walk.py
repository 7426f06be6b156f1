"""`Walk` runs the agents of a federation until the work is done, `MaskedWalk` in private rounds;
`Recorder` writes each visit to the history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from unweave.errors import DataError, GridOverflow, SolverError
from unweave.federation.history import History, Step
from unweave.grid import Ints
from unweave.models import Model
from unweave.models.fitted.posterior import Posterior
from unweave.models.fitted.published import normal_parts, publish
from unweave.persistent import NOBODY
from unweave.privacy.ledger import BudgetSpent
from unweave.progress import Bar, bar
from unweave.protocol.events import Continue, Effect, Event, StaysOut, Tick, WakeRequested
from unweave.protocol.rounds import is_exhausted, is_stale
from unweave.protocol.state import Parked, State
from unweave.protocol.terms import Terms
from unweave.protocol.token import Token, all_out, is_missing, roster
from unweave.simulator.world import World
from unweave.solvers.worker import ModelWorker

if TYPE_CHECKING:
    from unweave.privacy.mechanism import Mechanism
    from unweave.simulator.noise import SimulatedNoise

__all__ = ["MaskedWalk", "Walk"]

# Differences of converged posteriors, in steps of the grid of factors per standard deviation; at
# 32 bits 1e-8. No pass goes below it.
_FLOOR = 43.0
_FLOAT64 = 1e-13
_SPENT = "the privacy budget is spent. Fix: make a new Federation, with other terms"


class Recorder:
    """Observes every transition. A visit ends when an agent sends the token, or keeps it for
    another visit.

    `token` is the newest token of the network, and `shown` the newest one whose sum can be read: in
    private rounds, the last one that all agents have attested.
    """

    def __init__(self, history: History, terms: Terms, eta0: Ints) -> None:
        self._history = history
        self._names = terms.topology.agents
        self._terms = terms
        self._eta0 = eta0
        self.token: Token | None = None
        self.shown: Token | None = None
        self.shares: dict[bytes, int] = {}  # with noise: shown sum → how many shares it holds
        self.visits = 0
        self.stays_out: dict[int, str] = {}  # agent → why its factor could not be added last time

    def show(self, token: Token) -> None:
        self.shown = token
        if self._terms.noise is not None:
            self.shares[token.eta.tobytes()] = len(token.inside)

    def after(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None:
        masked = self._terms.masked
        if masked or after.own.infeasible_at is not before.own.infeasible_at:  # fast: runs often
            for effect in effects:
                if isinstance(effect, StaysOut):
                    self.stays_out[agent] = effect.why
        token = after.token.copy
        if token is None or token is before.token.copy:
            return
        old = self.token
        self.token = token
        if not masked:
            self.shown = token
        elif isinstance(after.token.role, Parked):
            if not self._terms.beyond(token.round.agents, after.departed):
                self.show(token)
        was = None if old is None else old.included[agent]
        now = token.included[agent]
        if after.known.tombs is not before.known.tombs and after.tomb.ids != before.tomb.ids:
            action = "forget"
        elif was == now:
            action = "pass"
        elif now.counter and (was is None or not was.counter):
            action = "learn"
        elif was is not None and was.counter and not now.counter:
            action = "forget"
        else:
            action = "update"
        self.visits += 1
        self._history.append(
            Step(
                self.visits,
                token.stamp.epoch,
                self._names[agent],
                action,
                len(token.inside),
                self._eta0 if self.shown is None else self.shown.eta,
            )
        )


class _Search:
    """Finds an agent with a property, starting at the last one found: with one search per visit,
    a pass tests each agent about once, and not at every visit."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._last = 0

    def find(self, holds: Callable[[int], bool]) -> int | None:
        """An agent for which `holds` is true, or None."""
        for k in chain(range(self._last, self._size), range(self._last)):
            if holds(k):
                self._last = k
                return k
        return None


class Walk:
    """The agents of one network, their token and its history."""

    def __init__(
        self,
        model: Model,
        terms: Terms,
        workers: list[ModelWorker],
        mechanism: Mechanism | None = None,
    ) -> None:
        self.model = model
        self.terms = terms
        self.workers = workers
        self.mechanism = mechanism
        self.history = History(model, self.read)
        self._recorder = Recorder(self.history, terms, model.eta0)
        self.noise: SimulatedNoise | None = None
        if mechanism is not None:
            from unweave.simulator.noise import SimulatedNoise  # exact draws are slow to import

            self.noise = SimulatedNoise(mechanism, len(workers), terms.seed)
        self.world = World(
            terms, workers, seed=terms.seed, observers=[self._recorder], noise=self.noise
        )
        self.started = False
        self._unsettled = _Search(len(workers))
        self._untried = _Search(len(workers))

    # reading

    @property
    def token(self) -> Token | None:
        """The newest token whose sum can be read; None before the first one."""
        return self._recorder.shown

    def read(self, units: Ints) -> Posterior:
        """The posterior of a sum that was shown; with noise, of as many shares as it has agents."""
        shares = self._recorder.shares.get(units.tobytes(), 0)
        if self.mechanism is None or not shares:
            return self.model.posterior(units)
        return self.mechanism.posterior(units, shares)

    @property
    def visit_count(self) -> int:
        return self._recorder.visits

    def resume(self, token: Token | None, visits: int, started: bool) -> None:
        """Go on from a saved state of the agents."""
        self._recorder.token = token
        if token is not None:
            self._recorder.show(token)
        self._recorder.visits, self.started = visits, started

    def current_token(self) -> Token:
        """The token of a network that has begun."""
        token = self.token
        assert token is not None
        return token

    @property
    def withheld(self) -> str:
        """Why no sum is published, although agents take part; empty: one is, or soon will be."""
        return ""

    def complete(self) -> bool:
        """Whether the token includes every agent with records, at its current revision."""
        token = self.token
        if token is None:
            return False
        return self._unsettled.find(lambda k: self._is_unsettled(token, k)) is None

    def _has_rows(self, k: int) -> bool:
        """Whether agent k has records that are not forgotten."""
        return self.workers[k].shard(self.world.state(k).own.dropped).n > 0

    def _is_unsettled(self, token: Token, k: int) -> bool:
        """Whether the token lacks agent k's records, or includes an older revision."""
        if is_missing(token, k) and self._has_rows(k):
            return True
        state = self.world.state(k)
        current = state.own.current
        if current is None or state.tomb.out:
            return False
        return (
            current.revision != token.included[k]
            or current.data != state.own.data
            or current.rows != state.own.rows
        )

    def _stuck(self) -> bool:
        """Whether every missing agent has tried to add its factor and could not."""
        token, why = self._recorder.token, self._recorder.stays_out
        if token is None or not why:
            return False

        def absent(k: int) -> bool:
            return is_missing(token, k) and self._has_rows(k)

        if self._untried.find(lambda k: k not in why and absent(k)) is not None:
            return False
        if any(self.world.state(k).known.intents for k in range(len(self.workers))):
            return False  # a pending erasure may let the factor fit
        return any(map(absent, why))

    def _refuse_overflow(self) -> None:
        """Raise if an agent's factor cannot be added: the token is then not the requested sum."""
        token, why = self._recorder.token, self._recorder.stays_out
        for k in sorted(why):
            state = self.world.state(k)
            if state.tomb.out or state.own.detached or (token is not None and k in token.inside):
                del why[k]
        if why:
            names = ", ".join(self.terms.name(k) for k in sorted(why))
            raise GridOverflow(f"{names} cannot be added to the others: {next(iter(why.values()))}")

    # running

    def begin(self) -> None:
        if not self.started:
            self.started = True
            self.world.start()

    def tell(self, k: int, event: Event) -> None:
        self.begin()
        self.world.tell(k, event)

    def wake(self) -> None:
        """Let a parked token continue its walk."""
        holder = self.world.parked
        if holder is not None:
            self.world.tell(holder, Continue(0.0))

    def visits(self, count: int, what: str, progress: bool | None) -> None:
        """Run `count` more visits."""
        self.begin()
        self._recorder.stays_out.clear()  # the factors may fit now
        history, end = self.history, len(self.history) + count
        with bar(what, count, progress) as show:
            self._run(lambda: len(history) >= end, show)
        self._refuse_overflow()

    def until(
        self, done: Callable[[], bool], what: str, progress: bool | None, limit: int | None
    ) -> None:
        """Run until the work is done; raise after `limit` iterations."""
        self.begin()
        self._recorder.stays_out.clear()
        size = len(self.workers)
        allowed = limit if limit is not None else 10_000 + 100 * size * size
        end = len(self.history) + allowed
        with bar(what, None, progress) as show:
            self._run(lambda: done() or len(self.history) >= end or self._stuck(), show)
        if not done():
            self._refuse_overflow()
            raise SolverError(
                f"{what} was not done after {allowed} iterations. Fix: raise max_iterations"
                + (' or use schedule="sweep"' if self.terms.schedule == "metropolis" else "")
            )

    def converge(self, tol: float, what: str, progress: bool | None, limit: int | None) -> None:
        """Run passes until one of them moves q by at most tol: KL(after ‖ before) ≤ tol. A solver
        that only stops has all its passes first: its noise can be small by chance."""
        least = self.workers[0].solver.stops_after or 0
        end = len(self.history) + (limit if limit is not None else 10_000 * len(self.workers))
        self.until(self.complete, what, progress, limit)
        while True:
            start, before = len(self.history), self.current_token().eta
            self._pass(what)
            moved = self.model.moved(self.current_token().eta, before)
            if moved <= tol and self.current_token().passes >= least:
                return
            if len(self.history) >= end:
                raise SolverError(
                    f"{what} did not converge: the last pass ({len(self.history) - start} "
                    f"iterations) moved the posterior by KL = {moved:.3g}. Fix: raise tol or "
                    "max_iterations, or use a gradient without noise"
                )

    def settle(self, what: str, limit: int | None) -> None:
        """Run passes until no further one can change the published posterior: the last one moved
        every number by less than half of its distance from an edge.

        The passes converge linearly, by more than a half each: what remains is less than the last
        step. A number may lie on an edge, nearer than the grid of the factors can tell: of 500
        numbers at 32 bits, in one posterior of a hundred.
        """
        floor = max(_FLOAT64, _FLOOR * 2.0 ** -min(self.model.grid.bits))
        posterior = self.model.posterior
        old = normal_parts(posterior(self.current_token().eta))
        end = len(self.history) + (limit if limit is not None else 100 * len(self.workers))
        while True:
            self._pass(what)
            now = posterior(self.current_token().eta)
            new = normal_parts(now)
            sd = np.sqrt(np.square(new[1]).sum(axis=1))
            moved = max(
                float(np.max(np.abs(new[0] - old[0]) / sd)),
                float(np.max(np.abs(new[1] - old[1]) / sd[:, None])),
            )
            edge = publish(now).edge
            if edge > max(2.0 * moved, floor):
                return
            if 2.0 * moved <= floor:
                raise SolverError(
                    f"{what}: a published number lies within {floor:.1g} sd of an edge, so it is "
                    "not decided which side others publish. Fix: use more bits than "
                    f"{min(self.model.grid.bits)}"
                )
            if len(self.history) >= end:
                raise SolverError(
                    f"{what}: a number stays within {2.0 * moved:.1g} sd of an edge between two "
                    "published values. Fix: raise max_iterations"
                )
            old = new

    def _pass(self, what: str) -> None:
        """Walk until every agent that is not forgotten had a visit that solves."""
        unvisited = set(range(self.terms.size)).difference(all_out(self.current_token().tombs))
        once = self.terms.solve == "pass"
        while unvisited:
            relays = self.current_token().seen if once else NOBODY
            self.visits(1, what, False)
            agent = self.terms.topology.index(self.history[-1].agent)
            if agent not in relays:
                unvisited.discard(agent)

    def _run(self, done: Callable[[], bool], show: Bar) -> None:
        """Step the world; `done` can only change with a visit."""
        step, recorder = self.world.step, self._recorder
        while not done():
            seen = recorder.visits
            while recorder.visits == seen:
                if not step():
                    raise SolverError(
                        "the token was parked before the work was done. Fix: report this as a bug, "
                        "with the seed"
                    )
            show()


class MaskedWalk(Walk):
    """The agents of a network that learns in private rounds. A round shows nothing before it is
    complete and attested, so every piece of work runs until the network is at rest."""

    @property
    def withheld(self) -> str:
        token, terms = self.token, self.terms
        if token is None:
            return ""
        members = roster(terms.size, token.tombs)
        if len(members) >= terms.min_roster:
            spent = not token.inside and is_exhausted(token.masked.keys)
            return f"no sum is published any more: {_SPENT}" if spent else ""
        return (
            f"{len(members)} agents remain, and no sum is published for fewer than min_roster = "
            f"{terms.min_roster}. Fix: make a new Federation of the remaining data"
        )

    def tell(self, k: int, event: Event) -> None:
        self._recorder.stays_out.pop(k, None)  # other data may fit
        super().tell(k, event)

    def until(
        self, done: Callable[[], bool], what: str, progress: bool | None, limit: int | None
    ) -> None:
        """Run until the network is at rest; raise if the work is not done then."""
        self.begin()
        end = len(self.history) + (limit or 10_000 + 100 * len(self.workers) ** 2)
        with bar(what, None, progress) as show:
            seen = self.visit_count
            while self.world.step():
                if self.visit_count > seen:
                    seen = self.visit_count
                    show()
                    if len(self.history) >= end:
                        raise SolverError(f"{what} was not done in time. Fix: raise max_iterations")
        self._refuse_overflow()
        token = self.token
        if token is not None and token.inside and is_exhausted(token.masked.spare):
            for k in roster(self.terms.size, token.tombs):
                if is_stale(self.world.state(k)):
                    name = self.terms.name(k)
                    raise BudgetSpent(f"{name}: its new data are not learned: {_SPENT}")
        if not done():
            raise DataError(self.withheld or f"{what} ended early. Fix: report this as a bug")

    def converge(self, tol: float, what: str, progress: bool | None, limit: int | None) -> None:
        """The rounds end by themselves, when the sum is within `tol` of the best one."""
        tighter = tol < self.workers[0].tol
        self.aim(tol)
        if tighter and self.world.parked is not None:
            self.tell(self.world.parked, WakeRequested(0.0))
        self.until(self.complete, what, progress, limit)

    def renew_keys(self) -> None:
        """After a saved state was read: enrol again, before a round would find out."""
        for k in range(self.terms.size):
            self.tell(k, Tick(0.0))
        while self.world.step():
            pass

    def aim(self, tol: float) -> None:
        """The tolerance at which agents call a sum final."""
        for worker in self.workers:
            worker.tol = tol

    def attest(self, progress: bool | None) -> None:
        """All agents attest the published sum again."""
        self.until(lambda: self.token is not None, "learning", False, None)
        assert self.world.parked is not None
        self.tell(self.world.parked, WakeRequested(0.0))
        self.until(lambda: self.world.parked is not None, "auditing", progress, None)

    def _refuse_overflow(self) -> None:
        why = self._recorder.stays_out
        for k in [
            k for k in why if (s := self.world.state(k)).tomb.out or s.own.detached or s.own.spent
        ]:
            del why[k]
        for k, error in sorted(why.items()):
            raise GridOverflow(f"{self.terms.name(k)} is not in the sum: {error}")
