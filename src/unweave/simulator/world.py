"""K agents in one memory: the real protocol core on a fake wire and a fake clock.

    world = World(terms, workers, seed=0)
    world.start()
    world.run(lambda: world.parked is not None)

Without `faults` the wire is instant, nothing is lost and no timer fires: `Federation` runs on that.
With faults (module `faults`) messages are dropped, delayed and repeated, agents crash at any point
and restart, sometimes with an old disk or none.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from unweave.protocol.certificate.unchecked import unchecked_requests
from unweave.protocol.events import (
    Advance,
    Again,
    Appraise,
    BatchDue,
    CertificateKept,
    Continue,
    Done,
    Effect,
    Enrol,
    Event,
    Freeze,
    Judge,
    KeepCertificate,
    Mask,
    Received,
    Send,
    Solve,
    Tick,
)
from unweave.protocol.machine import handle, start
from unweave.protocol.messages import Ack, Message, Pass
from unweave.protocol.ports import Worker, answer, unlock
from unweave.protocol.state import Parked, State, unsigned
from unweave.protocol.statements import Sign
from unweave.protocol.terms import Terms
from unweave.protocol.timers import deadline
from unweave.rng import Purpose, derive

if TYPE_CHECKING:
    from unweave.keyring import Keyring
    from unweave.privacy.ledger import MemoryLedger
    from unweave.simulator.noise import SimulatedNoise

__all__ = ["Agent", "Delivery", "FaultModel", "Observer", "World", "answer"]


class Delivery(NamedTuple):
    """How far one transition gets."""

    commit: bool = True  # False: the process crashes before its commit
    effects: int | None = None  # effects carried out before it crashes; None: it does not crash


DELIVERED = Delivery()
_OF_THE_TOKEN = (Pass, Ack)


class FaultModel(Protocol):
    """Decides about delays, losses, crashes and clocks."""

    def flights(self, sender: int, to: int, now: float) -> Sequence[float]:
        """Delays after which copies of a message arrive; none: it is lost."""

    def solving(self, agent: int) -> float:
        """How long a piece of work takes."""

    def fate(self, agent: int, effects: Sequence[Effect]) -> Delivery:
        """How far the process gets with this transition."""

    def clock(self, agent: int, now: float) -> float:
        """What the agent's clock shows."""

    def unclock(self, agent: int, shown: float) -> float:
        """When the agent's clock will show this."""


class Observer(Protocol):
    """Sees every transition: a checker, a recorder."""

    def after(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None: ...


@runtime_checkable
class CertificateKeeper(Protocol):
    """An observer of the certificates that agents put on their disks."""

    def certificate_kept(self, agent: int, requests: frozenset[bytes]) -> None: ...


class Agent:
    """One process: its state while it runs, and its disk."""

    __slots__ = (
        "backlog",
        "disk",
        "due_at",
        "incarnation",
        "keyring",
        "starts",
        "state",
        "tick_at",
        "worker",
    )

    def __init__(self, blank: State, worker: Worker) -> None:
        self.disk = blank  # the durable part of the last committed state
        self.state: State | None = None  # None: the process is down
        self.worker = worker
        self.keyring: Keyring | None = None  # of the running process
        self.starts = 0
        self.incarnation = 0  # a counter: timers and work of an earlier incarnation are void
        self.tick_at: float | None = None
        self.due_at: float | None = None  # of a batch
        # What has arrived for a stopped process: sender (-1: itself), item, incarnation.
        self.backlog: list[tuple[int, Event | Message, int]] | None = None


class World:
    """A seeded event loop over agents that run the protocol core."""

    def __init__(
        self,
        terms: Terms,
        workers: Sequence[Worker],
        *,
        seed: int = 0,
        faults: FaultModel | None = None,
        signers: Sequence[Sign] | None = None,
        observers: Sequence[Observer] = (),
        noise: SimulatedNoise | None = None,
    ) -> None:
        self.terms = terms
        self.noise = noise
        self.seed = seed
        self.faults = faults
        self.signers = signers
        self.observers = list(observers)
        self.agents = [Agent(State(terms, k), worker) for k, worker in enumerate(workers)]
        self.now = 0.0
        self.events = 0
        self.transitions = 0
        # Without faults gossip is delivered before the token.
        self._gossip: deque[tuple[int, int, Event | Message, int]] = deque()
        self._soon: deque[tuple[int, int, Event | Message, int]] = deque()
        self._later: list[tuple[float, int, int, int, Event | Message, int]] = []
        self._order = 0
        self._parked: set[int] = set()  # agents that run and have a parked token
        self.down = set(range(len(self.agents)))  # agents whose process does not run

    def start(self) -> None:
        """Start all agents. Without faults no agent has a past, so none needs quarantine."""
        for k in range(len(self.agents)):
            self.start_agent(k)

    def start_agent(self, k: int) -> None:
        """Start agent k's process on its disk. A restarted one asks its neighbours first."""
        agent = self.agents[k]
        agent.starts += 1
        agent.incarnation += 1
        nonce = derive(self.seed, Purpose.NONCE, k, agent.starts)
        if self.terms.masked:
            agent.keyring = self._new_keyring(k)
        before = agent.disk
        state, effects = start(
            before,
            nonce,
            self._clock(k),
            self._sign(k),
            alone=self.faults is None and agent.starts == 1,
        )
        self._commit(k, before, state, effects)

    def _new_keyring(self, k: int) -> Keyring:
        """One-time keys that the seed repeats: a new process has new ones."""
        from unweave.keyring import Keyring  # private rounds need the cryptography package

        starts = self.agents[k].starts
        source = random.Random(f"keys {self.seed} {k} {starts}")
        release = None if self.noise is None else self.noise.release(k, starts)
        return Keyring(source.randbytes, release, self.terms.degree)

    def renew_keyrings(self) -> None:
        """Give every running agent new one-time keys: the states were read from a file, which holds
        none."""
        for k, agent in enumerate(self.agents):
            if self.terms.masked and agent.state is not None:
                agent.starts += 1  # other keys than those that this process has made before
                agent.keyring = self._new_keyring(k)
                if self.noise is not None:  # or a key that is gone would be found out too late
                    agent.state = agent.disk = agent.state.fork()
                    agent.state.incarnation = derive(self.seed, Purpose.NONCE, k, agent.starts)

    def crash(self, k: int) -> None:
        """Crash agent k's process: everything that was not committed is lost."""
        agent = self.agents[k]
        agent.state = agent.keyring = None
        self._parked.discard(k)
        self.down.add(k)
        agent.incarnation += 1
        agent.tick_at = agent.due_at = None
        agent.backlog = None

    def freeze(self, k: int) -> None:
        """Stop agent k's process (SIGSTOP): it does nothing, and messages to it wait."""
        if self.agents[k].state is not None:
            self.agents[k].backlog = []

    def thaw(self, k: int, *, lost: bool) -> None:
        """Agent k's process goes on. `lost`: messages sent to it meanwhile are lost."""
        backlog, self.agents[k].backlog = self.agents[k].backlog, None
        for sender, item, incarnation in backlog or ():
            if sender < 0 or not lost:
                self._push(0.0, sender, k, item, incarnation)

    def wipe(self, k: int, disk: State | None = None, ledger: MemoryLedger | None = None) -> None:
        """Lose agent k's disk and ledger, or put old ones back."""
        self.agents[k].disk = State(self.terms, k) if disk is None else disk
        if self.noise is not None:
            self.noise.wipe(k, ledger)

    def tell(self, k: int, event: Event) -> None:
        """Give agent k an event now (a request, a vote, new data). Lost if its process is down or
        stopped."""
        if self.agents[k].state is not None and self.agents[k].backlog is None:
            self._transition(k, event)

    def clock(self, k: int) -> float:
        """What agent k's clock shows now: the `now` of its events."""
        return self._clock(k)

    def step(self) -> bool:
        """Handle the next event; False when there is none."""
        if self._gossip:
            sender, k, item, incarnation = self._gossip.popleft()
        elif self._soon:
            sender, k, item, incarnation = self._soon.popleft()
        elif self._later:
            at, _, sender, k, item, incarnation = heapq.heappop(self._later)
            self.now = max(self.now, at)
        else:
            return False
        agent = self.agents[k]
        if agent.state is None or (incarnation and incarnation != agent.incarnation):
            return True  # the process is down, or the item belongs to an earlier incarnation
        if agent.backlog is not None:
            agent.backlog.append((sender, item, incarnation))
            return True
        if sender >= 0:
            message: Message = item  # type: ignore[assignment]
            if not self._admits(k, sender, message):
                return True
            event: Event = Received(sender, message, self._clock(k))
        elif isinstance(item, Done | CertificateKept):
            event = item._replace(now=self._clock(k))
        elif isinstance(item, BatchDue):
            agent.due_at = None
            event = BatchDue(self.now, self._clock(k))
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
        """Change the terms of all agents at once: only possible where all share one memory."""
        self.terms = terms
        for agent in self.agents:
            if agent.state is not None:
                agent.state = agent.disk = agent.state.fork()
                agent.state.terms = terms

    def state(self, k: int) -> State:
        """Agent k's state: of its process, or of its disk if the process is down."""
        agent = self.agents[k]
        return agent.disk if agent.state is None else agent.state

    @property
    def next_at(self) -> float | None:
        """When the next event happens; None: there is none."""
        if self._gossip or self._soon:
            return self.now
        return max(self._later[0][0], self.now) if self._later else None

    @property
    def parked(self) -> int | None:
        """The agent that has the parked token."""
        return min(self._parked, default=None)

    def _transition(self, k: int, event: Event) -> None:
        before = self.agents[k].state
        assert before is not None
        self.transitions += 1
        entropy = b"%016x%016x" % (self.seed & 2**64 - 1, self.transitions)  # not secret: seeded
        after, effects = handle(before, event, self._sign(k), entropy)
        self._commit(k, before, after, effects)

    def _commit(self, k: int, before: State, after: State, effects: list[Effect]) -> None:
        """Durable first, then the effects, in order."""
        agent = self.agents[k]
        fate = DELIVERED if self.faults is None else self.faults.fate(k, effects)
        if not fate.commit:
            self.crash(k)
            return
        agent.disk = agent.state = after
        self.down.discard(k)
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
        elif self.faults is not None:
            self._set_tick(k, after)
            self._set_due(k, after)

    def _admits(self, k: int, sender: int, message: Message) -> bool:
        """Whether agent k's driver hands the message to the protocol. Here all agents are honest,
        so there is nothing to verify."""
        return True

    def _perform(self, k: int, effect: Effect) -> None:
        if isinstance(effect, Send):
            if self.faults is None:
                token = isinstance(effect.message, _OF_THE_TOKEN)
                queue = self._soon if token else self._gossip
                queue.append((k, effect.to, effect.message, 0))
            else:
                for delay in self.faults.flights(k, effect.to, self.now):
                    self._push(delay, k, effect.to, effect.message, 0)
        elif isinstance(effect, Again):
            self._local(k, Continue(0.0), 0.0)
        elif isinstance(effect, KeepCertificate):
            kept = CertificateKept(unchecked_requests(effect.certificate), 0.0)
            for observer in self.observers:
                if isinstance(observer, CertificateKeeper):
                    observer.certificate_kept(k, kept.requests)
            self._local(k, kept, 0.0)
        elif isinstance(effect, Enrol | Mask):
            keyring = self.agents[k].keyring
            assert keyring is not None
            self._local(k, Done(effect.key, unlock(keyring, k, effect), 0.0), 0.0)
        elif isinstance(effect, Solve | Judge | Freeze | Appraise | Advance):
            done = Done(effect.key, answer(self.agents[k].worker, effect), 0.0)
            self._local(k, done, 0.0 if self.faults is None else self.faults.solving(k))

    def _local(self, k: int, event: Event, delay: float) -> None:
        incarnation = self.agents[k].incarnation
        if self.faults is None:
            self._soon.append((-1, k, event, incarnation))
        else:
            self._push(delay, -1, k, event, incarnation)

    def _push(
        self, delay: float, sender: int, k: int, item: Event | Message, incarnation: int
    ) -> None:
        self._order += 1
        heapq.heappush(self._later, (self.now + delay, self._order, sender, k, item, incarnation))

    def _set_tick(self, k: int, state: State) -> None:
        due = deadline(state)
        assert self.faults is not None
        if due is None:
            return
        agent = self.agents[k]
        # A little later than due: converting between clocks rounds, and an early tick does nothing.
        at = max(self.faults.unclock(k, due), self.now) + 1e-6
        if agent.tick_at is None or at < agent.tick_at:
            agent.tick_at = at
            self._push(at - self.now, -1, k, Tick(0.0), agent.incarnation)

    def _set_due(self, k: int, state: State) -> None:
        """All wall clocks show the world's time."""
        agent, due = self.agents[k], state.own.waiting.due
        if due is not None and agent.due_at != due:
            agent.due_at = due
            self._push(
                max(due - self.now, 0.0) + 1e-6, -1, k, BatchDue(0.0, 0.0), agent.incarnation
            )

    def _clock(self, k: int) -> float:
        return self.now if self.faults is None else self.faults.clock(k, self.now)

    def _sign(self, k: int) -> Sign:
        return unsigned if self.signers is None else self.signers[k]
