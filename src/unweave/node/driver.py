"""The driver of one agent process: it carries out the duties that `unweave.protocol` lists.

For every event, in this order:

    persist   `AgentDriver` commits the new state (`commits`). If the disk refuses a commit, the
              driver opens the store again and starts a new incarnation, as after a crash.
    send      `EffectRunner` sends each message once (`wire.channel`). What answers a neighbour's
              call goes back in the answer to that call (`answers`).
    compute   `EffectRunner` gives work to the queue (`compute`), one-time keys and masks to the
              keyring of this incarnation, and feeds the result back.
    report    `EffectRunner` keeps certificates and logs; `phase` and `measure_influence` describe
              the state to the operator.
    wait      `AgentDriver` feeds a `Tick` when the deadline of the state has come.

Sending, computing and keeping run as tasks beside the event loop's other work; `Tasks` logs their
errors and cancels them when the agent stops.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from unweave.errors import StoreError, UnweaveError
from unweave.keyring import Keyring
from unweave.models import Model
from unweave.models.shards import Missing
from unweave.node.activity import log_activity
from unweave.node.commits import Commits, within
from unweave.node.compute import ComputeQueue
from unweave.node.config import AgentFolder
from unweave.node.erasures import CertificateStore
from unweave.node.identity import Identity
from unweave.node.log import Log
from unweave.node.memory import ErasedInMemory
from unweave.node.storage.sqlite import StoreThread
from unweave.node.wire.channel import SecureChannel
from unweave.protocol.certificate.unchecked import unchecked_requests
from unweave.protocol.events import (
    Again,
    BatchDue,
    CertificateKept,
    Certified,
    Continue,
    Detach,
    Done,
    Effect,
    Enrol,
    Event,
    InfluenceMeasured,
    KeepCertificate,
    LieProved,
    Mask,
    MaskedValue,
    NewKey,
    Opened,
    Received,
    Refused,
    Send,
    StaysOut,
    Tick,
    Work,
)
from unweave.protocol.gossip import hello
from unweave.protocol.messages import Message, Pass
from unweave.protocol.ports import Transport, Worker, unlock
from unweave.protocol.state import Hold, Out, Parked, State
from unweave.protocol.terms import Terms
from unweave.protocol.timers import deadline
from unweave.solvers.worker import influence

if TYPE_CHECKING:
    from unweave.privacy.release import NoisyRelease

__all__ = ["AgentDriver", "NotReady", "measure_influence"]


_STALL = 3.0  # seconds for which a busy machine may stop any process
_LARGE = 1 << 18  # words of keystream that are not made on the event loop
_ATTEMPTS = 3  # to make a one-time key


def _clock() -> float:
    """Seconds, also those in which the machine was suspended, where the system counts them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class NotReady(UnweaveError):
    """The agent has no state to change: its store is not open yet, or the disk fails."""


class AgentDriver:
    """A running agent. `await node.run()` returns after `node.stop()`.

    A process that stood still (a signal, a suspended machine) for longer than the loss timeout does
    not know what its network decided meanwhile: it may have been voted out, and its sum may hold
    erased data. It starts a new incarnation, in quarantine, like a process that was ended.
    """

    def __init__(
        self,
        folder: AgentFolder,
        identity: Identity,
        transport: Transport,
        worker: Worker,
        model: Model,
        log: Log,
        memory: ErasedInMemory | None = None,
        release: NoisyRelease | None = None,
    ) -> None:
        self.folder = folder
        self.model = model
        self.mechanism = folder.manifest.build_mechanism()
        self.release = release  # with differential privacy: the noise and the ledger
        assert (self.mechanism is None) == (release is None)
        self.terms = folder.terms
        self.me = folder.me
        self.identity = identity
        self.transport = transport
        self.log = log
        self.counts = log.counts
        # The records that are left out for a missing value, if that is known.
        self.missing: Callable[[], Missing | None] = lambda: None
        # With bounds: how many records the last reading has clipped.
        self.clipped: Callable[[], int] = lambda: 0
        self.data_problem: str | None = None  # why the data could not be used when last read
        self.started = time.time()
        self.memory = ErasedInMemory(folder.config.restart_interval) if memory is None else memory
        self.replaced = False  # this process has replaced one with erased values in its memory
        self.restarting = ""  # why this process ends and must be replaced
        self.certificates = CertificateStore(folder.certificates)
        self._stopping = asyncio.Event()
        self._current = asyncio.Event()  # the process has not stood still in this incarnation
        self._current.set()
        self._stood_still = asyncio.Event()
        self._longest = max(folder.terms.timeouts.loss, _STALL)
        self._looked = _clock()
        self._sooner = asyncio.Event()  # the deadline is now earlier than `_due`
        self._due = math.inf  # what the timer waits for
        self._logged: State | None = None  # the state up to which the activity is logged
        self._disk = StoreThread(folder, identity)
        self._commits = Commits(self._disk, identity.sign, self._moved)
        self._channel = SecureChannel(folder, identity, transport, log, self.counts)
        self._queue = ComputeQueue(
            worker, folder.terms, log, self.counts, folder.config.solve_limit
        )
        self._tasks = Tasks(log, self.counts)
        self._effects = EffectRunner(
            self._step,
            self._commits,
            self._channel,
            self._queue,
            self.certificates,
            self._tasks,
            log,
            self.counts,
            folder.terms,
            folder.me,
        )

    async def run(self) -> None:
        """Serve until stopped; after a disk failure, start again with growing pauses."""
        pause = 0.5
        try:
            await self._disk.open()
            await self.transport.start(self.deliver)
            while not self._stopping.is_set():
                began = time.monotonic()
                try:
                    await self._run_incarnation()
                except StoreError as error:
                    self.counts["disk failures"] += 1
                    self.log.error("the disk refuses", why=str(error), again_in=pause)
                    if time.monotonic() - began > 30.0:
                        pause = 0.5
                    await within(pause, self._stopping.wait)
                    pause = min(2.0 * pause, 30.0)
        finally:
            await self.transport.stop()
            await self._tasks.end()
            await self._disk.close()
            self._disk.end()
            self._queue.end()

    def stop(self) -> None:
        self.restarting = ""  # who stops an agent that restarts wants it stopped
        self._stopping.set()

    def restart(self, why: str) -> None:
        """Stop; a new process takes the place of this one."""
        if not self._stopping.is_set():
            self.stop()
            self.restarting = why

    async def _run_incarnation(self) -> None:
        """From the state on the disk until the agent is stopped, or StoreError."""
        await self._disk.open()
        self._looked = _clock()
        self._stood_still.clear()
        if self.terms.masked:
            self._effects.keyring = Keyring(release=self.release, degree=self.terms.degree)
        begun = await self._commits.begin(secrets.randbits(63) | 1)
        if self.release is not None and self.state is not None:
            self.release.begin(self.state.own.counter)
        self._effects.perform(begun)
        self._current.set()
        self.log.info("started", agent=self.folder.config.name, phase=self.phase)
        broken = self._commits.broken
        timer = asyncio.create_task(self._timer())
        looks = asyncio.create_task(self._keep_looking())
        ends = (self._stopping, self._stood_still, broken)
        waits = [looks, *(asyncio.create_task(event.wait()) for event in ends)]
        try:
            await asyncio.wait([timer, *waits], return_when=asyncio.FIRST_COMPLETED)
            if timer.done():
                timer.result()
        finally:
            for task in (timer, *waits):
                task.cancel()
            await asyncio.gather(timer, *waits, return_exceptions=True)
            await self._commits.end()
            self._effects.keyring = None  # the private halves of its keys end with an incarnation
            if broken.is_set():
                await self._disk.close()
        if broken.is_set():
            raise StoreError(self._commits.why)

    # ---------------------------------------------------------------------------------- persist

    async def _step(self, event: Event) -> list[Effect] | None:
        """Commit one event, then carry out its effects. None: there is no state to change."""
        effects = await self._commits.take(event)
        self._effects.perform(effects or [], event)
        return effects

    async def tell(self, event: Event) -> list[Effect]:
        """One event of the operator; returns its effects, among them a refusal."""
        effects = await self._step(event)
        if effects is None:
            raise NotReady(
                f"{self.folder.config.name}: the store is not open, so nothing was recorded. Fix: "
                "try again; if it stays so, read agent.log"
            )
        return effects

    async def deliver(self, sender: int, data: bytes) -> list[bytes]:
        """A signed message of a neighbour; returns the signed answers to it."""
        parcel = [data]
        del data
        event, seconds = await self._channel.receive(sender, parcel, self.state)
        self.memory.watch_message(self.state, event.message)
        before = self.state
        effects = await self._commits.take(event) or []
        if is_accepted(event.message, before, self.state, effects):
            self.transport.charge(sender, -seconds)
        back, other = answers(effects, sender)
        self._effects.perform(other, event)
        # A token is sent in the next two turns of the loop, before the answer: the next agent waits
        # for the token, and the sender can read the answer while that agent writes to its disk.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return [self._channel.signed(message) for message in back]

    def _moved(self, after: State) -> None:
        self.memory.watch_state(after)
        if self._logged is not None:
            before = self._logged.token
            if after.token.last is not before.last and not isinstance(before.role, Hold):
                self.log.recent.visit(after.token.last.epoch, after.token.last.hop)
            log_activity(self.log, self._logged, after)
            if after.token.parked is not before.parked:
                self.log.recent.rest()
        self._logged = after
        if _due(after) < self._due:
            self._sooner.set()

    # ------------------------------------------------------------------------- for the operator

    @property
    def state(self) -> State | None:
        return self._commits.state

    @property
    def phase(self) -> str:
        return phase(self.state)

    @property
    def stays_out(self) -> str:
        """Why the solver last refused to make this agent's factor; empty: it never has."""
        return self._effects.stays_out

    @property
    def concern(self) -> str | None:
        """Why the result says little, as far as the own records tell."""
        return self._queue.concern

    @property
    def pid(self) -> int:
        return os.getpid()

    def _look(self) -> None:
        """Notice that the process stood still since the last look."""
        now, before = _clock(), self._looked
        self._looked = now
        if now - before > self._longest:
            self.log.warning(
                "the process stood still; it starts again", seconds=round(now - before)
            )
            self._current.clear()
            self._stood_still.set()

    async def _keep_looking(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(self._longest / 3.0)

    async def awake(self) -> None:
        """Return when `state` is that of an incarnation in which the process has not stood still. A
        request may be the first thing that a process sees when it goes on."""
        self._look()
        if not await within(self.terms.timeouts.ack, self._current.wait):
            raise NotReady(
                f"{self.folder.config.name}: the process stood still and has not started again. "
                "Fix: try again; if it stays so, read agent.log"
            )

    async def probe(self, neighbour: int) -> None:
        """Say Hello to a neighbour, so that `peers.heard` is current: while the token is parked, no
        messages are sent. After the timeout the call goes on: its answer may be under way to the
        disk."""
        s = self.state
        if s is not None and neighbour in s.neighbours:
            call = self._tasks.begin(self._effects.send(neighbour, hello(s.fork(), neighbour)))
            await asyncio.wait({call}, timeout=self.terms.timeouts.ack)

    async def image(self) -> bytes:
        """The store as a file, for a backup."""
        return await self._disk.image()

    async def publish(self) -> None:
        """Compute this agent's influence on the parked token, and publish it if it has changed.
        Only on request: the influences of all agents travel to all agents. Not in a network with
        private rounds: of a small model the influence nearly is the factor."""
        s = None if self.terms.masked else self.state
        found = None if s is None else await asyncio.to_thread(measure_influence, self.model, s)
        if s is None or found is None:
            return
        known = s.known.influences.get(self.me)
        if known is None or known.influence != found.influence:
            await self._step(found)

    async def changed(self, timeout: float) -> bool:
        """Wait for news: see `Commits.changed`."""
        return await self._commits.changed(timeout)

    # ------------------------------------------------------------------------------------- wait

    async def _timer(self) -> None:
        """Feeds a `Tick` when the deadline of the state has come, and a `BatchDue`."""
        while True:
            self.log.flush()
            self._sooner.clear()
            self._due = _due(self.state)
            if _batch_due(self.state) <= 0.0:
                await self._step(BatchDue(time.time(), time.monotonic()))
            elif self._due <= time.monotonic():
                await self._step(Tick(time.monotonic()))
            else:
                wait = min(60.0, self._due - time.monotonic())
                await within(wait, self._sooner.wait)


def is_accepted(
    message: Message, before: State | None, after: State | None, effects: list[Effect]
) -> bool:
    """Whether this message was a token that the agent has taken."""
    return (
        isinstance(message, Pass)
        and before is not None
        and after is not None
        and before.token.last < message.token.stamp <= after.token.last
        and not any(isinstance(effect, Refused) for effect in effects)
    )


def _due(state: State | None) -> float:
    due = None if state is None else deadline(state)
    batch = time.monotonic() + _batch_due(state)
    return batch if due is None else min(due, batch)


def _batch_due(state: State | None) -> float:
    """The seconds until the changes that wait for a batch leave. Dates are those of the wall clock,
    which may be set: the timer looks at it once a minute."""
    due = None if state is None else state.own.waiting.due
    return math.inf if due is None else due - time.time()


class EffectRunner:
    """Carries out effects in their order. Sending, work and keeping a certificate are tasks; their
    results come back as events through `step`."""

    def __init__(
        self,
        step: Callable[[Event], Coroutine[Any, Any, object]],
        commits: Commits,
        channel: SecureChannel,
        queue: ComputeQueue,
        certificates: CertificateStore,
        tasks: Tasks,
        log: Log,
        counts: Counter[str],
        terms: Terms,
        me: int,
    ) -> None:
        self._step = step
        self._commits = commits
        self._channel = channel
        self._queue = queue
        self._certificates = certificates
        self._tasks = tasks
        self._log = log
        self._counts = counts
        self._terms = terms
        self._me = me
        self.keyring: Keyring | None = None  # of the running incarnation
        self.stays_out = ""  # why the solver last refused to make the factor

    def perform(self, effects: list[Effect], cause: Event | None = None) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._tasks.begin(self.send(effect.to, effect.message))
            elif isinstance(effect, Again):
                self._tasks.begin(self._step(Continue(time.monotonic())))
            elif isinstance(effect, Certified):
                self._counts["certificates"] += 1
            elif isinstance(effect, KeepCertificate):
                self._tasks.begin(self._keep(effect.certificate))
            elif isinstance(effect, Opened):
                self._counts["epochs opened"] += 1
                self._log.info("new epoch", why=effect.why)
            elif isinstance(effect, Refused):
                self._refused(effect, cause)
            elif isinstance(effect, LieProved):
                self._log.error("an agent has signed a lie", why=effect.why)
            elif isinstance(effect, StaysOut):
                if effect.why != self.stays_out:
                    self._log.warning("stays out", why=effect.why)
                self.stays_out = effect.why
            elif isinstance(effect, Detach):
                self._queue.let_go(whole=effect.whole)
                scope = "all data" if effect.whole else "the erased records"
                self._log.info("deleted what the worker kept of the data", scope=scope)
            elif isinstance(effect, Enrol | Mask):
                self._tasks.begin(self._unlock(effect))
            else:
                self._tasks.begin(self._work(effect))

    def _refused(self, refusal: Refused, cause: Event | None) -> None:
        if isinstance(cause, Received):
            self._counts["messages refused"] += 1
            sender = self._terms.name(cause.sender)
            self._log.warning("refused", sender=sender, reason="content", why=refusal.why)
        else:
            self._log.warning("refused", why=refusal.why)

    async def send(self, to: int, message: Message) -> None:
        """One attempt; the answers are events."""
        for answer in await self._channel.send(to, message, self._commits.state):
            await self._step(answer)

    def _is_wanted(self, work: Work) -> bool:
        state = self._commits.state
        return state is not None and state.token.pending == work.key

    async def _unlock(self, work: Enrol | Mask) -> None:
        """A one-time key, or a value under its mask. A key that failed is gone: the agent enrols
        again, after a pause. The answer of a keyring that has ended is of no use."""
        keyring = self.keyring
        for _ in range(_ATTEMPTS):
            if keyring is None or keyring is not self.keyring or not self._is_wanted(work):
                return
            try:
                if isinstance(work, Mask) and len(work.keys) * work.units.size > _LARGE:
                    answer = await asyncio.to_thread(unlock, keyring, self._me, work)
                else:
                    answer = unlock(keyring, self._me, work)
                break
            except Exception as error:
                self._counts["masks failed"] += 1
                why = str(error) if isinstance(error, UnweaveError) else type(error).__name__
                self._log.error("cannot use a one-time key", why=why)
                await asyncio.sleep(self._terms.timeouts.ack)
                if isinstance(work, Mask):
                    answer = MaskedValue(None, None)
                    break
        else:
            answer = NewKey(b"")  # none: the agent gives nothing until it starts again
        if keyring is self.keyring:
            await self._step(Done(work.key, answer, time.monotonic()))

    async def _work(self, work: Work) -> None:
        done = await self._queue.answer(work, lambda: self._is_wanted(work))
        if done is None:
            return
        try:
            await self._step(done)
        except StoreError:
            raise
        except Exception as error:  # the result does not fit the token's grid
            self._queue.complain(error)
            await self._step(self._queue.without(work))

    async def _keep(self, certificate: bytes) -> None:
        """Retry until the certificate is on the disk: without it the erasure has no evidence."""
        pause = 0.5
        while True:
            try:
                path = await asyncio.to_thread(self._certificates.keep, certificate)
                self._log.info("certificate kept", file=path.name)
                break
            except OSError as error:
                self._log.error("the certificate cannot be kept", why=str(error), again_in=pause)
                await asyncio.sleep(pause)
                pause = min(2.0 * pause, 60.0)
        await self._step(CertificateKept(unchecked_requests(certificate), time.monotonic()))


def answers(effects: list[Effect], asker: int) -> tuple[list[Message], list[Effect]]:
    """The messages that go back to `asker` in the answer to its call, and the other effects. A
    token never goes back in an answer: its own call is repeated until it is acknowledged."""
    back: list[Message] = []
    other: list[Effect] = []
    for effect in effects:
        if isinstance(effect, Send) and effect.to == asker and not isinstance(effect.message, Pass):
            back.append(effect.message)
        else:
            other.append(effect)
    return back, other


class Tasks:
    """Keeps references to running tasks, logs their errors, and cancels them at the end."""

    def __init__(self, log: Log, counts: Counter[str]) -> None:
        self._log = log
        self._counts = counts
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
        def done(task: asyncio.Task[None]) -> None:
            self._running.discard(task)
            work.close()  # Python warns of a coroutine that was cancelled before it began

        task = asyncio.ensure_future(self._guarded(work))
        self._running.add(task)
        task.add_done_callback(done)
        return task

    async def end(self) -> None:
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _guarded(self, work: Awaitable[Any]) -> None:
        try:
            await work
        except StoreError:
            return  # `run` sees it through `Commits.broken`
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._counts["errors"] += 1
            self._log.failure("unexpected", error)


def phase(s: State | None) -> str:
    """What the agent does, in one word, for status, health and logs."""
    if s is None:
        return "starting"
    if s.audit_failed:
        return "audit_failed"
    if s.tomb.departed:
        return "departed"
    if not s.peers.synced:
        return "quarantine"
    if isinstance(s.token.role, Hold):
        return "solving" if s.token.pending else "holding"
    if isinstance(s.token.role, Out):
        return "sending"
    if isinstance(s.token.role, Parked):
        return "parked"
    return "idle"


def measure_influence(model: Model, s: State) -> InfluenceMeasured | None:
    """This agent's influence on the parked token, or on the published sum of private rounds; None
    if this agent has no copy of it, or it does not include this agent."""
    parked, copy = s.token.parked, s.token.copy
    if s.terms.masked:
        copy = s.token.published
    elif parked is None or copy is None or copy.included != parked.included:
        return None
    factor = None if copy is None else s.own.factor(copy.included[s.me])
    if copy is None or factor is None:
        return None
    value = influence(model, copy.eta, factor.units)
    return InfluenceMeasured(value if math.isfinite(value) else None, time.monotonic())
