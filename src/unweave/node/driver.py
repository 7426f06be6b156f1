"""One agent as a process: the protocol core between a disk, a network and a solver.

The core decides; here the new state is committed (`steps`), and then the effects are carried out
(`effects`). If the disk refuses a commit the agent starts again from what is on it, as after a
crash: the protocol asks for no more.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from unweave.errors import StoreError, UnweaveError
from unweave.models import Model
from unweave.node.activity import log_activity
from unweave.node.commits import Steps, within
from unweave.node.compute import ComputeQueue
from unweave.node.config import AgentFolder
from unweave.node.erasures import CertificateStore
from unweave.node.identity import Identity
from unweave.node.log import Log
from unweave.node.storage.sqlite import StoreThread
from unweave.node.wire.channel import SecureChannel
from unweave.protocol.certificate.write import proved_by
from unweave.protocol.events import (
    Again,
    CertificateKept,
    Certified,
    Continue,
    Detach,
    Effect,
    Event,
    InfluenceMeasured,
    KeepCertificate,
    Opened,
    Refused,
    Send,
    StaysOut,
    Tick,
    Work,
)
from unweave.protocol.gossip import hello
from unweave.protocol.messages import Message, Pass
from unweave.protocol.ports import Transport, Worker
from unweave.protocol.state import Hold, Out, Parked, State
from unweave.protocol.timers import deadline
from unweave.solvers.worker import influence

__all__ = ["AgentDriver", "NotReady"]


class NotReady(UnweaveError):
    """The agent has no state to change: it has just begun, or its disk fails."""


class AgentDriver:
    """A running agent. `await node.run()` returns after `node.stop()`."""

    def __init__(
        self,
        folder: AgentFolder,
        identity: Identity,
        transport: Transport,
        worker: Worker,
        model: Model,
        log: Log,
    ) -> None:
        self.folder = folder
        self.model = model
        self.terms = folder.terms
        self.me = folder.me
        self.identity = identity
        self.transport = transport
        self.log = log
        self.counts: Counter[str] = Counter()
        self.data_problem: str | None = None  # why the data could not be used at the last look
        self.started = time.time()
        self._stopping = asyncio.Event()
        self._sooner = asyncio.Event()  # than the timer thinks
        self._due = math.inf
        self._seen: State | None = None  # what the journal has told
        self._disk = StoreThread(folder, identity)
        self._steps = Steps(self._disk, identity.sign, self._moved)
        self._post = SecureChannel(folder, identity, transport, log, self.counts)
        self._desk = ComputeQueue(worker, folder.terms, log, self.counts, folder.config.solve_limit)
        self._tasks = Tasks(log, self.counts)
        self.cabinet = CertificateStore(folder.certificates)
        self._hands = EffectRunner(
            self._step,
            self._steps,
            self._post,
            self._desk,
            self.cabinet,
            self._tasks,
            log,
            self.counts,
        )

    @property
    def stays_out(self) -> str:
        """Why its factor could not be in the token, when it last could not."""
        return self._hands.stays_out

    # ------------------------------------------------------------------------------------- life

    async def run(self) -> None:
        """Serve until stopped; a disk that fails is opened again, with growing pauses."""
        pause = 0.5
        try:
            await self._disk.open()
            await self.transport.start(self.deliver)
            while not self._stopping.is_set():
                began = time.monotonic()
                try:
                    await self._live()
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
            self._desk.end()

    def stop(self) -> None:
        self._stopping.set()

    async def _live(self) -> None:
        """One life: from the state on the disk until stopped, or until the disk fails."""
        await self._disk.open()
        self._hands.perform(await self._steps.begin(secrets.randbits(63) | 1))
        self.log.info("started", agent=self.folder.config.name, phase=self.phase)
        broken = self._steps.broken
        timer = asyncio.create_task(self._timer())
        waits = [asyncio.create_task(event.wait()) for event in (self._stopping, broken)]
        try:
            await asyncio.wait([timer, *waits], return_when=asyncio.FIRST_COMPLETED)
            if timer.done():
                timer.result()
        finally:
            for task in (timer, *waits):
                task.cancel()
            await asyncio.gather(timer, *waits, return_exceptions=True)
            await self._steps.end()
            if broken.is_set():
                await self._disk.close()
        if broken.is_set():
            raise StoreError(self._steps.why)

    async def _timer(self) -> None:
        """Tells the protocol when the time has come that it waits for."""
        while True:
            self._sooner.clear()
            self._due = _due(self.state)
            if self._due <= time.monotonic():
                await self._step(Tick(time.monotonic()))
            else:
                wait = min(60.0, self._due - time.monotonic())
                await within(wait, self._sooner.wait)

    # ------------------------------------------------------------------------------------- steps

    async def tell(self, event: Event) -> list[Effect]:
        """One step for the operator. Returns the effects, for whoever asked."""
        effects = await self._step(event)
        if effects is None:
            raise NotReady(
                f"{self.folder.config.name} has not read its disk yet, or the disk refuses "
                "(see its log): nothing was recorded; try again"
            )
        return effects

    async def deliver(self, sender: int, data: bytes) -> list[bytes]:
        """A sealed message from a neighbour; returns the sealed answers to it."""
        parcel = [data]
        del data
        event = await self._post.receive(sender, parcel, self.state)
        back, rest = answers(await self._steps.take(event) or [], sender)
        self._hands.perform(rest)
        # A token that goes on leaves in the next two turns of the loop, and before the answer: the
        # next agent waits for it, and can read the answer while it writes the token to its disk.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return [self._post.signed(message) for message in back]

    async def _step(self, event: Event) -> list[Effect] | None:
        effects = await self._steps.take(event)
        self._hands.perform(effects or [])
        return effects

    def _moved(self, after: State) -> None:
        if self._seen is not None:
            log_activity(self.log, self._seen, after)
        self._seen = after
        if _due(after) < self._due:
            self._sooner.set()

    # ------------------------------------------------------------------------- for the operator

    @property
    def state(self) -> State | None:
        return self._steps.state

    @property
    def phase(self) -> str:
        return phase(self.state)

    @property
    def pid(self) -> int:
        return os.getpid()

    async def probe(self, neighbour: int) -> None:
        """Call a neighbour, so that `heard` says whether it lives: while the token rests, nobody
        says anything. A call that takes too long is not waited for, and not broken off: its answer
        may be half-way to the disk."""
        s = self.state
        if s is not None and neighbour in s.neighbours:
            call = self._tasks.begin(self._hands.send(neighbour, hello(s.fork(), neighbour)))
            await asyncio.wait({call}, timeout=self.terms.timeouts.ack)

    async def image(self) -> bytes:
        """The store as a file, for a backup."""
        return await self._disk.image()

    async def publish(self) -> None:
        """Compute this agent's influence on the token that rests, and publish it if it is news.
        Only when somebody asks: the figures of all agents travel to all agents."""
        s = self.state
        found = None if s is None else await asyncio.to_thread(measure_influence, self.model, s)
        if s is None or found is None:
            return
        known = s.known.influences.get(self.me)
        if known is None or known.influence != found.influence:
            await self._step(found)

    async def changed(self, timeout: float) -> bool:
        """Wait for news: the token came or went, came to rest, or an erasure advanced."""
        return await self._steps.changed(timeout)


def _due(state: State | None) -> float:
    """When the protocol wants the next tick."""
    due = None if state is None else deadline(state)
    return math.inf if due is None else due


# ------------------------------------------------------------------------------
# What a step asks for, once it is on the disk: messages, work, and words for the operator.


class EffectRunner:
    """Carries out effects in their order; what takes a while runs beside the rest, and comes back
    as an event through `step`."""

    def __init__(
        self,
        step: Callable[[Event], Coroutine[Any, Any, object]],
        steps: Steps,
        post: SecureChannel,
        desk: ComputeQueue,
        cabinet: CertificateStore,
        tasks: Tasks,
        log: Log,
        counts: Counter[str],
    ) -> None:
        self._step = step
        self._steps = steps
        self._post = post
        self._desk = desk
        self._cabinet = cabinet
        self._tasks = tasks
        self._log = log
        self._counts = counts
        self.stays_out = ""  # why the factor could not be in the token, when it last could not

    def perform(self, effects: list[Effect]) -> None:
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
                self._log.warning("refused", why=effect.why)
            elif isinstance(effect, StaysOut):
                if effect.why != self.stays_out:
                    self._log.warning("stays out", why=effect.why)
                self.stays_out = effect.why
            elif isinstance(effect, Detach):
                self._desk.let_go(whole=effect.whole)
                what = "its data" if effect.whole else "the erased records"
                self._log.info(f"forgot what it kept of {what}")
            else:
                self._tasks.begin(self._work(effect))

    async def send(self, to: int, message: Message) -> None:
        for answer in await self._post.send(to, message, self._steps.state):
            await self._step(answer)

    async def _keep(self, certificate: bytes) -> None:
        """Until it is kept: without its certificate an erasure cannot be shown to anybody."""
        pause = 0.5
        while True:
            try:
                path = await asyncio.to_thread(self._cabinet.keep, certificate)
                self._log.info("certificate kept", file=path.name)
                break
            except OSError as error:
                self._log.error("the certificate cannot be kept", why=str(error), again_in=pause)
                await asyncio.sleep(pause)
                pause = min(2.0 * pause, 60.0)
        await self._step(CertificateKept(proved_by(certificate), time.monotonic()))

    async def _work(self, work: Work) -> None:
        def wanted() -> bool:
            state = self._steps.state
            return state is not None and state.token.pending == work.key

        done = await self._desk.answer(work, wanted)
        if done is None:
            return
        try:
            await self._step(done)
        except StoreError:
            raise
        except Exception as error:  # an answer that the token has no room for
            self._desk.complain(error)
            await self._step(self._desk.without(work))


def answers(effects: list[Effect], asker: int) -> tuple[list[Message], list[Effect]]:
    """What can go back to `asker` in the answer to its call, and the rest. A token never does: it
    goes on a call of its own, which is repeated until it is acknowledged."""
    back: list[Message] = []
    rest: list[Effect] = []
    for effect in effects:
        if isinstance(effect, Send) and effect.to == asker and not isinstance(effect.message, Pass):
            back.append(effect.message)
        else:
            rest.append(effect)
    return back, rest


# ------------------------------------------------------------------------------
# Work that runs beside the rest, and ends with the agent.


class Tasks:
    """Holds on to what was begun, and says what went wrong in it."""

    def __init__(self, log: Log, counts: Counter[str]) -> None:
        self._log = log
        self._counts = counts
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
        def done(task: asyncio.Task[None]) -> None:
            self._running.discard(task)
            work.close()  # cancelled before it began, it would complain

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
            return  # whoever runs the agent has seen it
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._counts["errors"] += 1
            self._log.error("unexpected", error=f"{type(error).__name__}: {error}")


# ------------------------------------------------------------------------------
# What an agent is doing, in one word.


def phase(s: State | None) -> str:
    """For status, health and logs."""
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


# ------------------------------------------------------------------------------
# How much the token that rests owes to this agent: one number, which agents publish.


def measure_influence(model: Model, s: State) -> InfluenceMeasured | None:
    """This agent's influence; None if the token that rests is not known here, or is without it."""
    rest, copy = s.token.parked, s.token.copy
    if rest is None or copy is None or copy.included != rest.included:
        return None
    held = s.own.factor(rest.included[s.me])
    if held is None:
        return None
    value = influence(model, copy.eta, held.units)
    return InfluenceMeasured(value if math.isfinite(value) else None, time.monotonic())
