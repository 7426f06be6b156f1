"""The agent's state, and its only way to change: an event, a decision, a commit.

Steps happen one after the other, and nothing follows from one before it is on the disk. If the disk
refuses, the step has not happened: what is on the disk is the truth, and a new life begins with it,
as after a crash.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from unweave.errors import StoreError
from unweave.node.storage.sqlite import StoreThread
from unweave.protocol.events import Effect, Event
from unweave.protocol.machine import handle, start
from unweave.protocol.state import DURABLE, State
from unweave.protocol.statements import Sign

__all__ = ["Steps", "within"]


# Durable fields whose change ends a wait for news; `synced` does, too.
_NEWS = ("role", "parked", "tombs", "intents", "votes")

# A step that changes no more than this, and that nothing follows from (a neighbour has taken the
# token over), is written together with the next one. If the process dies before, it is as if the
# message had been lost.
_CAN_WAIT = frozenset(("role", "fence"))
_WAIT = 0.05  # seconds, if no next one comes


class Steps:
    """`state` is None before the first step of a life, and after the disk has failed. `moved` is
    told each new one."""

    def __init__(self, disk: StoreThread, sign: Sign, moved: Callable[[State], None]) -> None:
        self.state: State | None = None
        self.broken = asyncio.Event()
        self.why = ""  # it broke
        self._disk = disk
        self._sign = sign
        self._moved = moved
        self._written: State | None = None  # what the disk holds
        self._late: asyncio.TimerHandle | None = None  # the disk is behind, until then
        self._catching_up: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._news = asyncio.Event()

    async def begin(self, boot: int) -> list[Effect]:
        """The first step of a life."""
        async with self._lock:
            self.broken.clear()
            before = self._written = await self._disk.load()
            after, effects = start(before, boot, time.monotonic(), self._sign)
            await self._commit(before, after)
        return effects

    async def take(self, event: Event) -> list[Effect] | None:
        """One step; its effects may be carried out now. None: there is no state to change."""
        async with self._lock:
            before = self.state
            if before is None:
                return None
            after, effects = handle(before, event, self._sign)
            changes = [name for name in DURABLE if not _same(name, before, after)]
            if not changes and self._late is None:
                self._enter(before, after)  # nothing to write
            elif not effects and _CAN_WAIT.issuperset(changes):
                self._enter(before, after)
                self._write_later()
            else:
                await self._commit(before, after)
        return effects

    async def end(self) -> None:
        """The end of a life: after the step that is under way."""
        async with self._lock:
            with suppress(StoreError):  # `broken` says so
                await self._catch_up()
            self.state = None

    async def changed(self, timeout: float) -> bool:
        """Wait for news: the token came or went, came to rest, or an erasure advanced."""
        return await within(timeout, self._news.wait)

    # ---------------------------------------------------------------------------------- writing

    async def _commit(self, before: State, after: State) -> None:
        """Everything up to `after` is on the disk when this returns. It cannot be interrupted: the
        disk and the memory would tell different stories."""
        written = self._written
        assert written is not None
        if self._late is not None:
            self._late.cancel()
            self._late = None
        writing = self._disk.commit(written, after)
        cancelled = await outlast(writing)
        error = writing.exception()
        if error is not None:
            self.state, self.why = None, str(error)
            self.broken.set()
            if isinstance(error, StoreError):
                raise error
            raise StoreError(f"a state that cannot be written: {error}") from error
        self._written = after
        self._enter(before, after)
        if cancelled is not None:
            raise cancelled

    def _enter(self, before: State, after: State) -> None:
        self.state = after
        self._moved(after)
        synced = before.peers.synced != after.peers.synced
        if synced or not all(_same(name, before, after) for name in _NEWS):
            self._news.set()
            self._news = asyncio.Event()

    def _write_later(self) -> None:
        def write() -> None:
            self._catching_up = asyncio.ensure_future(self._locked_catch_up())

        if self._late is None:
            self._late = asyncio.get_running_loop().call_later(_WAIT, write)

    async def _locked_catch_up(self) -> None:
        async with self._lock:
            with suppress(StoreError):  # `broken` says so
                await self._catch_up()

    async def _catch_up(self) -> None:
        if self._late is not None and self.state is not None:
            await self._commit(self.state, self.state)


def _same(name: str, before: State, after: State) -> bool:
    return before.durable(name) is after.durable(name)


# ------------------------------------------------------------------------------
# Waiting: with a limit, or to the end.


async def within(seconds: float, wait: Callable[[], Awaitable[Any]]) -> bool:
    """Whether it came in time. `wait_for` would swallow a cancellation that comes together with the
    event, and the agent could not stop."""
    try:
        async with asyncio.timeout(seconds):
            await wait()
    except TimeoutError:
        return False
    return True


async def outlast(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until it is done, whatever happens; a cancellation that came meanwhile is returned, to
    be raised when everything is in order."""
    cancelled = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled
