"""Carries out the effects of a transition: send, compute, keep certificates, log.

Sending, computing and keeping run as tasks beside the event loop's other work; `Tasks` logs their
errors and cancels them when the agent stops.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from unweave.errors import StoreError, UnweaveError
from unweave.keyring import Keyring
from unweave.node.commits import Commits
from unweave.node.compute import ComputeQueue
from unweave.node.config import AgentFolder
from unweave.node.erasures import CertificateStore
from unweave.node.log import Log
from unweave.node.wire.channel import SecureChannel
from unweave.protocol.certificate.unchecked import unchecked_requests
from unweave.protocol.events import (
    Again,
    CertificateKept,
    Certified,
    Continue,
    Detach,
    Done,
    Effect,
    Enrol,
    Event,
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
    Work,
)
from unweave.protocol.messages import Message, Pass
from unweave.protocol.ports import unlock

__all__ = ["EffectRunner", "Tasks", "answers"]


_LARGE = 1 << 18  # words of keystream that are not made on the event loop
_ATTEMPTS = 3  # to make a one-time key


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
        folder: AgentFolder,
    ) -> None:
        self._step = step
        self._commits = commits
        self._channel = channel
        self._queue = queue
        self._certificates = certificates
        self._tasks = tasks
        self._log = log
        self._counts = log.counts
        self._terms = folder.terms
        self._me = folder.me
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

    def __init__(self, log: Log) -> None:
        self._log = log
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
            self._log.counts["errors"] += 1
            self._log.failure("unexpected", error)
