"""Writes the history of a network, visit by visit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from unweave.errors import GridOverflow, SolverError
from unweave.federation.history import History, Step
from unweave.models import Model
from unweave.persistent import NOBODY
from unweave.progress import Bar, bar
from unweave.protocol.events import Continue, Effect, Event, StaysOut
from unweave.protocol.state import State
from unweave.protocol.terms import Terms
from unweave.protocol.token import Token, all_out, is_missing
from unweave.simulator.world import World
from unweave.solvers.worker import ModelWorker

__all__ = ["Walk"]


class Recorder:
    """Watches every transition; a visit is done when a token leaves an agent, or stays for another.

    `token` is the newest token that anybody has seen.
    """

    def __init__(self, history: History, names: Sequence[str]) -> None:
        self._history = history
        self._names = names
        self.token: Token | None = None
        self.visits = 0
        self.stays_out: dict[int, str] = {}  # agent → why its factor last could not be in the token

    def after(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None:
        if (
            after.own.infeasible_at is not before.own.infeasible_at
        ):  # else nobody was refused: this is run often
            for effect in effects:
                if isinstance(effect, StaysOut):
                    self.stays_out[agent] = effect.why
        token = after.token.copy
        if token is None or token is before.token.copy:
            return
        old = self.token
        self.token = token
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
                token.eta,
            )
        )


# ------------------------------------------------------------------------------
# Lets the token walk until something holds, with a bar for people and a bound for machines.


class _Search:
    """Looks for an agent of which something holds, and starts with the one it found last: asked at
    every visit, it passes each agent once in a pass instead of all agents at every visit."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._last = 0

    def find(self, holds: Callable[[int], bool]) -> int | None:
        """None: it holds of nobody now."""
        for k in chain(range(self._last, self._size), range(self._last)):
            if holds(k):
                self._last = k
                return k
        return None


class Walk:
    """The agents of one network, their token, and what has happened."""

    def __init__(self, model: Model, terms: Terms, workers: list[ModelWorker]) -> None:
        self.model = model
        self.terms = terms
        self.workers = workers
        self.history = History(model)
        self._recorder = Recorder(self.history, terms.topology.agents)
        self.world = World(terms, workers, seed=terms.seed, observers=[self._recorder])
        self.started = False
        self._unsettled = _Search(len(workers))
        self._untried = _Search(len(workers))

    # --------------------------------------------------------------------------------- reading

    @property
    def token(self) -> Token | None:
        """The newest token; None before the first visit."""
        return self._recorder.token

    def current_token(self) -> Token:
        """The token of a network that has begun."""
        token = self._recorder.token
        assert token is not None
        return token

    def complete(self) -> bool:
        """Everybody who belongs in the token is in it, at its current revision."""
        token = self._recorder.token
        if token is None:
            return False
        return self._unsettled.find(lambda k: self._is_unsettled(token, k)) is None

    def _has_rows(self, k: int) -> bool:
        """Whether anything is left to contribute: all records may have been forgotten."""
        return self.workers[k].shard(self.world.state(k).own.dropped).n > 0

    def _is_unsettled(self, token: Token, k: int) -> bool:
        """Whether this agent's rows are not in the token, or are newer than what it includes."""
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
        """Whether everybody who is missing has tried in vain."""
        token, why = self._recorder.token, self._recorder.stays_out
        if token is None or not why:
            return False

        def absent(k: int) -> bool:
            return is_missing(token, k) and self._has_rows(k)

        if self._untried.find(lambda k: k not in why and absent(k)) is not None:
            return False
        if any(self.world.state(k).known.intents for k in range(len(self.workers))):
            return False  # an erasure may make room
        return any(map(absent, why))

    def _refuse_overflow(self) -> None:
        """An agent whose factor does not fit beside the others' stays out for good: what the token
        holds is then not what was asked for."""
        token, why = self._recorder.token, self._recorder.stays_out
        for k in sorted(why):
            state = self.world.state(k)
            if state.tomb.out or state.own.detached or (token is not None and k in token.inside):
                del why[k]
        if why:
            names = ", ".join(self.terms.name(k) for k in sorted(why))
            raise GridOverflow(f"{names} cannot be added to the others: {next(iter(why.values()))}")

    # ---------------------------------------------------------------------------------- running

    def begin(self) -> None:
        if not self.started:
            self.started = True
            self.world.start()

    def tell(self, k: int, event: Event) -> None:
        self.begin()
        self.world.tell(k, event)

    def wake(self) -> None:
        """Let a token that rests walk on from there."""
        holder = self.world.parked
        if holder is not None:
            self.world.tell(holder, Continue(0.0))

    def visits(self, count: int, what: str, progress: bool | None) -> None:
        """That many more visits."""
        self.begin()
        self._recorder.stays_out.clear()  # there may be room now
        history, end = self.history, len(self.history) + count
        with bar(what, count, progress) as show:
            self._run(lambda: len(history) >= end, show)
        self._refuse_overflow()

    def until(
        self, done: Callable[[], bool], what: str, progress: bool | None, limit: int | None
    ) -> None:
        """Run until the work is done; an unbounded walk is an error that says what to do."""
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
                f"{what} was not done after {allowed} iterations; allow more (max_iterations=…)"
                + (' or use schedule="sweep"' if self.terms.schedule == "metropolis" else "")
            )

    def converge(self, tol: float, what: str, progress: bool | None, limit: int | None) -> None:
        """Passes until one of them moves q by less than tol: KL(after ‖ before) ≤ tol."""
        end = len(self.history) + (limit if limit is not None else 10_000 * len(self.workers))
        decode, family = self.model.grid.decode, self.model.family
        self.until(self.complete, what, progress, limit)
        while True:
            start, before = len(self.history), decode(self.current_token().eta)
            self._pass(what)
            moved = float(family.kl(decode(self.current_token().eta), before))
            if moved <= tol:
                return
            if len(self.history) >= end:
                raise SolverError(
                    f"{what} did not converge: the last pass ({len(self.history) - start} "
                    f"iterations) moved the posterior by KL = {moved:.3g}; raise tol, allow more "
                    f"iterations (max_iterations=…), or use a gradient without noise"
                )

    def _pass(self, what: str) -> None:
        """Walk until everybody who is not forgotten has been visited, at a visit that solves."""
        left = set(range(self.terms.size)).difference(all_out(self.current_token().tombs))
        once = self.terms.solve == "pass"
        while left:
            relays = self.current_token().seen if once else NOBODY
            self.visits(1, what, False)
            agent = self.terms.topology.index(self.history[-1].agent)
            if agent not in relays:
                left.discard(agent)

    def _run(self, done: Callable[[], bool], show: Bar) -> None:
        """Step the world; `done` can only change with a visit."""
        step, recorder = self.world.step, self._recorder
        while not done():
            seen = recorder.visits
            while recorder.visits == seen:
                if not step():
                    raise SolverError("the token came to rest before the work was done")
            show()
