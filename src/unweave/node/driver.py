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
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from unweave.errors import StoreError, UnweaveError
from unweave.keyring import Keyring
from unweave.models import Model
from unweave.models.shards import Missing
from unweave.node.activity import log_activity
from unweave.node.commits import Commits, within
from unweave.node.compute import ComputeQueue
from unweave.node.config import AgentFolder
from unweave.node.effects import EffectRunner, Tasks, answers
from unweave.node.erasures import CertificateStore
from unweave.node.identity import Identity
from unweave.node.log import Log
from unweave.node.memory import ErasedInMemory
from unweave.node.storage.sqlite import StoreThread
from unweave.node.wire.channel import SecureChannel
from unweave.protocol.events import (
    BatchDue,
    Effect,
    Event,
    InfluenceMeasured,
    Refused,
    Tick,
)
from unweave.protocol.gossip import hello
from unweave.protocol.messages import Message, Pass
from unweave.protocol.ports import Transport, Worker
from unweave.protocol.state import Hold, Out, Parked, State
from unweave.protocol.timers import deadline
from unweave.solvers.worker import influence

if TYPE_CHECKING:
    from unweave.privacy.release import NoisyRelease

__all__ = ["AgentDriver", "NotReady", "measure_influence"]


_STALL = 3.0  # seconds for which a busy machine may stop any process


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
        self._channel = SecureChannel(folder, identity, transport, log)
        self._queue = ComputeQueue(worker, folder.terms, log, folder.config.solve_limit)
        self._tasks = Tasks(log)
        self._effects = EffectRunner(
            self._step,
            self._commits,
            self._channel,
            self._queue,
            self.certificates,
            self._tasks,
            log,
            folder,
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
            # By value: after the process stood still the state is another copy, from the disk.
            if after.token.last != before.last and not isinstance(before.role, Hold):
                self.log.recent.visit(after.token.last.epoch, after.token.last.hop)
            log_activity(self.log, self._logged, after)
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
