"""K agents in one memory: the real protocol core on a fake wire and a fake clock.

    world = World(terms, workers, seed=0)
    world.start()
    world.run(lambda: world.resting)

Without a `weather` the wire is instant, nothing is lost and nobody looks at the clock: that is what
`Federation` runs on. With one (see `faults`) messages are dropped, delayed and repeated, agents die
at any point and come back, sometimes with an old disk or none.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from unweave.protocol.certificate.write import proved_by
from unweave.protocol.events import (
    Again,
    Appraise,
    CertificateKept,
    Continue,
    Done,
    Effect,
    Event,
    Freeze,
    Judge,
    KeepCertificate,
    Received,
    Send,
    Solve,
    Tick,
)
from unweave.protocol.machine import handle, start
from unweave.protocol.messages import Ack, Message, Pass
from unweave.protocol.ports import Worker, answer
from unweave.protocol.state import Parked, State, unsigned
from unweave.protocol.statements import Sign
from unweave.protocol.terms import Terms
from unweave.protocol.timers import deadline
from unweave.rng import Purpose, derive

__all__ = ["Agent", "Delivery", "FaultModel", "Observer", "World", "answer"]


class Delivery(NamedTuple):
    """What the weather does to one transition."""

    commit: bool = True  # False: the process dies before its commit
    effects: int | None = None  # how many effects are carried out before it dies; None: it lives


DELIVERED = Delivery()
_OF_THE_TOKEN = (Pass, Ack)


class FaultModel(Protocol):
    """Everything that can go wrong."""

    def flights(self, sender: int, to: int, now: float) -> Sequence[float]:
        """Delays after which copies of a message arrive; none: it is lost."""

    def solving(self, agent: int) -> float:
        """How long a piece of work takes."""

    def fate(self, agent: int, effects: Sequence[Effect]) -> Delivery:
        """Whether the process survives this transition."""

    def clock(self, agent: int, now: float) -> float:
        """What the agent's clock shows."""

    def unclock(self, agent: int, shown: float) -> float:
        """When the agent's clock will show this."""


class Observer(Protocol):
    """Somebody who looks at every transition: a checker, a recorder."""

    def after(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None: ...


@runtime_checkable
class CertificateKeeper(Protocol):
    """An observer who wants to know which certificates an agent has put on its disk."""

    def certificate_kept(self, agent: int, requests: frozenset[bytes]) -> None: ...


class Agent:
    """One process: its state while it lives, and its disk."""

    __slots__ = ("backlog", "boots", "disk", "life", "state", "tick_at", "worker")

    def __init__(self, blank: State, worker: Worker) -> None:
        self.disk = blank  # the durable part of the last committed state
        self.state: State | None = None  # None: the process is down
        self.worker = worker
        self.boots = 0
        self.life = 0  # counts incarnations: timers and work of an earlier one are void
        self.tick_at: float | None = None
        # While the process is stopped, what has arrived for it: sender (-1: itself), item, life.
        self.backlog: list[tuple[int, Event | Message, int]] | None = None


class World:
    """A seeded event loop over agents that run the protocol core."""

    def __init__(
        self,
        terms: Terms,
        workers: Sequence[Worker],
        *,
        seed: int = 0,
        weather: FaultModel | None = None,
        signers: Sequence[Sign] | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.terms = terms
        self.seed = seed
        self.weather = weather
        self.signers = signers
        self.observers = list(observers)
        self.agents = [Agent(State(terms, k), worker) for k, worker in enumerate(workers)]
        self.now = 0.0
        self.events = 0
        # In calm weather word of mouth outruns the token: gossip is delivered first.
        self._gossip: deque[tuple[int, int, Event | Message, int]] = deque()
        self._soon: deque[tuple[int, int, Event | Message, int]] = deque()
        self._later: list[tuple[float, int, int, int, Event | Message, int]] = []
        self._order = 0
        self._parked: set[int] = set()  # agents that live and have a token at rest

    # ------------------------------------------------------------------------------- lifecycle

    def start(self) -> None:
        """Boot everybody. In calm weather nobody has a past, so nobody needs quarantine."""
        for k in range(len(self.agents)):
            self.boot(k)

    def boot(self, k: int) -> None:
        """Start agent k's process on its disk."""
        agent = self.agents[k]
        agent.boots += 1
        agent.life += 1
        nonce = derive(self.seed, Purpose.NONCE, k, agent.boots)
        before = agent.disk
        state, effects = start(
            before, nonce, self._clock(k), self._sign(k), alone=self.weather is None
        )
        self._commit(k, before, state, effects)

    def crash(self, k: int) -> None:
        """Kill agent k's process: what was not committed is gone."""
        agent = self.agents[k]
        agent.state = None
        self._parked.discard(k)
        agent.life += 1
        agent.tick_at = None
        agent.backlog = None

    def freeze(self, k: int) -> None:
        """Stop agent k's process (SIGSTOP): it does nothing, and what is sent to it waits."""
        if self.agents[k].state is not None:
            self.agents[k].backlog = []

    def thaw(self, k: int, *, lost: bool) -> None:
        """Agent k's process goes on. `lost`: what was sent to it meanwhile was given up."""
        backlog, self.agents[k].backlog = self.agents[k].backlog, None
        for sender, item, life in backlog or ():
            if sender < 0 or not lost:
                self._push(0.0, sender, k, item, life)

    def wipe(self, k: int, disk: State | None = None) -> None:
        """Lose agent k's disk, or put an old one back."""
        self.agents[k].disk = State(self.terms, k) if disk is None else disk

    # ---------------------------------------------------------------------------------- running

    def tell(self, k: int, event: Event) -> None:
        """Something happens at agent k now (a request, a vote, new data). Lost if it is down, or
        does not answer."""
        if self.agents[k].state is not None and self.agents[k].backlog is None:
            self._transition(k, event)

    def clock(self, k: int) -> float:
        """What agent k's clock shows now: the `now` of events that are told to it."""
        return self._clock(k)

    def step(self) -> bool:
        """Handle the next event; False when there is none."""
        if self._gossip:
            sender, k, item, life = self._gossip.popleft()
        elif self._soon:
            sender, k, item, life = self._soon.popleft()
        elif self._later:
            at, _, sender, k, item, life = heapq.heappop(self._later)
            self.now = max(self.now, at)
        else:
            return False
        agent = self.agents[k]
        if agent.state is None or (life and life != agent.life):
            return True  # down, or a leftover of an earlier life
        if agent.backlog is not None:
            agent.backlog.append((sender, item, life))
            return True
        if sender >= 0:
            event: Event = Received(sender, item, self._clock(k))  # type: ignore[arg-type]
        elif isinstance(item, Done | CertificateKept):
            event = item._replace(now=self._clock(k))
        elif isinstance(item, Tick):
            agent.tick_at = None
            event = Tick(self._clock(k))
        else:
            event = Continue(self._clock(k))
        self.events += 1
        self._transition(k, event)
        return True

    def run(self, until: Callable[[], bool], limit: int | None = None) -> bool:
        """Step until the condition holds; False if the events ran out or the limit was reached."""
        steps = 0
        while not until():
            if (limit is not None and steps >= limit) or not self.step():
                return until()
            steps += 1
        return True

    def amend(self, terms: Terms) -> None:
        """Change the terms for everybody at once: only possible where all share one memory."""
        self.terms = terms
        for agent in self.agents:
            if agent.state is not None:
                agent.state = agent.disk = agent.state.fork()
                agent.state.terms = terms

    # ---------------------------------------------------------------------------------- reading

    def state(self, k: int) -> State:
        """Agent k's state: of its process, or else what its disk holds."""
        agent = self.agents[k]
        return agent.disk if agent.state is None else agent.state

    @property
    def parked(self) -> int | None:
        """Who has the token at rest."""
        return min(self._parked, default=None)

    # --------------------------------------------------------------------------------- internal

    def _transition(self, k: int, event: Event) -> None:
        before = self.agents[k].state
        assert before is not None
        after, effects = handle(before, event, self._sign(k))
        self._commit(k, before, after, effects)

    def _commit(self, k: int, before: State, after: State, effects: list[Effect]) -> None:
        """Durable first, then the effects, in order."""
        agent = self.agents[k]
        fate = DELIVERED if self.weather is None else self.weather.fate(k, effects)
        if not fate.commit:
            self.crash(k)
            return
        agent.disk = agent.state = after
        if isinstance(after.token.role, Parked):
            self._parked.add(k)
        else:
            self._parked.discard(k)
        for observer in self.observers:
            observer.after(k, before, after, effects)
        for effect in effects if fate.effects is None else effects[: fate.effects]:
            self._perform(k, effect)
        if fate.effects is not None:
            self.crash(k)
        elif self.weather is not None:
            self._set_tick(k, after)

    def _perform(self, k: int, effect: Effect) -> None:
        if isinstance(effect, Send):
            if self.weather is None:
                token = isinstance(effect.message, _OF_THE_TOKEN)
                queue = self._soon if token else self._gossip
                queue.append((k, effect.to, effect.message, 0))
            else:
                for delay in self.weather.flights(k, effect.to, self.now):
                    self._push(delay, k, effect.to, effect.message, 0)
        elif isinstance(effect, Again):
            self._local(k, Continue(0.0), 0.0)
        elif isinstance(effect, KeepCertificate):
            kept = CertificateKept(proved_by(effect.certificate), 0.0)
            for observer in self.observers:
                if isinstance(observer, CertificateKeeper):
                    observer.certificate_kept(k, kept.requests)
            self._local(k, kept, 0.0)
        elif isinstance(effect, Solve | Judge | Freeze | Appraise):
            done = Done(effect.key, answer(self.agents[k].worker, effect), 0.0)
            self._local(k, done, 0.0 if self.weather is None else self.weather.solving(k))

    def _local(self, k: int, event: Event, delay: float) -> None:
        life = self.agents[k].life
        if self.weather is None:
            self._soon.append((-1, k, event, life))
        else:
            self._push(delay, -1, k, event, life)

    def _push(self, delay: float, sender: int, k: int, item: Event | Message, life: int) -> None:
        self._order += 1
        heapq.heappush(self._later, (self.now + delay, self._order, sender, k, item, life))

    def _set_tick(self, k: int, state: State) -> None:
        due = deadline(state)
        assert self.weather is not None
        if due is None:
            return
        agent = self.agents[k]
        # A little later than due: converting between clocks rounds, and an early tick does nothing.
        at = max(self.weather.unclock(k, due), self.now) + 1e-6
        if agent.tick_at is None or at < agent.tick_at:
            agent.tick_at = at
            self._push(at - self.now, -1, k, Tick(0.0), agent.life)

    def _clock(self, k: int) -> float:
        return self.now if self.weather is None else self.weather.clock(k, self.now)

    def _sign(self, k: int) -> Sign:
        return unsigned if self.signers is None else self.signers[k]
