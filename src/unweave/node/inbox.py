"""What neighbours send: put together, bounded in size, number and time, and handed over."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from unweave.errors import WireError
from unweave.node.chunks import Assembly, Oversize
from unweave.node.limits import Limits
from unweave.node.link import grpc
from unweave.node.log import Log
from unweave.node.parts import pb
from unweave.node.pins import Pins
from unweave.node.refusals import UNKNOWN, Refusals

__all__ = ["Deliver", "Inbox"]

Deliver = Callable[[int, bytes], Awaitable[list[bytes]]]
Code = grpc.StatusCode


class _Refusal(Exception):
    """The caller's fault: `reason` is counted, `why` is logged and told to the caller."""

    def __init__(self, code: Any, reason: str, why: str) -> None:
        super().__init__(why)
        self.code, self.reason, self.why = code, reason, why


class _Unable(Exception):
    """Ours: told without details."""


class Inbox:
    """The receiving side of `Neighbour.Deliver`."""

    def __init__(
        self,
        pins: Pins,
        limits: Limits,
        refusals: Refusals,
        log: Log,
        deliver: Deliver,
        admitted: Callable[[str, int], Awaitable[None]],
    ) -> None:
        self._pins = pins
        self._limits = limits
        self._refusals = refusals
        self._log = log
        self._deliver = deliver
        self._admitted = admitted
        self._messages: Counter[int] = Counter()  # under way, of each neighbour
        self._bytes: Counter[int] = Counter()  # announced by them
        self._tasks: set[asyncio.Task[list[bytes]]] = set()

    async def receive(self, _: Any, context: Any) -> bytes:
        """One call: one message in chunks, and the answers to it."""
        sender, peer = self._pins.owner(context.auth_context()), context.peer()
        name = UNKNOWN if sender is None else self._pins.neighbours[sender].name
        try:
            if sender is None:
                raise _Refusal(Code.PERMISSION_DENIED, "not a neighbour", "not a neighbour")
            await self._admitted(peer, sender)
            answers = await self._message(sender, context)
            encoded: bytes = pb.Answers(envelopes=answers).SerializeToString()
            return encoded
        except _Refusal as refusal:
            self._refusals.note(name, refusal.reason, refusal.why, address=peer)
            code, why = refusal.code, refusal.why[:200]
        except _Unable as unable:
            code, why = Code.UNAVAILABLE, str(unable)
        await context.abort(code, why)
        return b""  # not reached: abort raises

    async def drain(self, grace: float) -> None:
        """Wait for messages that are being taken in; give up on them after `grace` seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---------------------------------------------------------------------------------- one call

    async def _message(self, sender: int, context: Any) -> list[bytes]:
        if self._messages[sender] >= self._limits.incoming:
            why = f"{self._limits.incoming} messages of yours are under way"
            raise _Refusal(Code.RESOURCE_EXHAUSTED, "too many", why)
        self._messages[sender] += 1
        assembly = Assembly(self._limits.message)
        task: asyncio.Task[list[bytes]] | None = None

        def release(_: object) -> None:
            self._messages[sender] -= 1
            self._bytes[sender] -= assembly.total

        try:
            await self._read(sender, assembly, context)
            # In a task of its own: a caller that hangs up does not interrupt a transition.
            task = asyncio.ensure_future(self._deliver(sender, assembly.take()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(release)
        finally:
            if task is None:
                release(None)
        await asyncio.wait({task}, timeout=self._limits.reply)
        return self._result(task)

    async def _read(self, sender: int, assembly: Assembly, context: Any) -> None:
        """Chunks until the end of the message. Slow senders are cut off twice: by the time between
        two chunks, and by the time for a message of the announced size."""
        clock, limits = asyncio.get_running_loop().time, self._limits
        begun = clock()
        try:
            async with asyncio.timeout_at(begun + limits.idle) as limit:
                while (raw := await context.read()) is not grpc.aio.EOF:
                    announced = assembly.total > 0
                    try:
                        assembly.add(raw)
                    finally:
                        self._bytes[sender] += 0 if announced else assembly.total
                    if not announced:
                        self._check_room(sender)
                    whole = begun + limits.deadline(assembly.total)
                    limit.reschedule(min(whole, clock() + limits.idle))
        except TimeoutError:
            why = f"{assembly.size} of {assembly.total} bytes, and then nothing for too long"
            raise _Refusal(Code.DEADLINE_EXCEEDED, "slow", why) from None
        except Oversize as error:
            raise _Refusal(Code.RESOURCE_EXHAUSTED, "too large", str(error)) from None
        except WireError as error:
            raise _Refusal(Code.INVALID_ARGUMENT, "malformed", str(error)) from None
        if not assembly.complete:
            why = f"the call ended after {assembly.size} of {assembly.total} bytes"
            raise _Refusal(Code.INVALID_ARGUMENT, "incomplete", why)

    def _check_room(self, sender: int) -> None:
        """Two of the largest messages: one, and its repetition after a broken connection."""
        if self._bytes[sender] > 2 * self._limits.message:
            why = f"{self._bytes[sender]} bytes of yours are under way"
            raise _Refusal(Code.RESOURCE_EXHAUSTED, "too many", why)

    def _result(self, task: asyncio.Task[list[bytes]]) -> list[bytes]:
        if not task.done():
            raise _Unable("the message was taken in, but not in time to answer")
        if task.cancelled():
            raise _Unable("stopping")
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, WireError):
            raise _Refusal(Code.INVALID_ARGUMENT, "message", str(error))
        self._log.error("a message was lost", error=f"{type(error).__name__}: {error}")
        raise _Unable("messages cannot be taken in now")
