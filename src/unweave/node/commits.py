"""The agent's state, which changes only by commits: handle an event, write the new state, use it.

Commits happen one after the other. The effects of an event are returned after its commit, so that
none is carried out before the new state is on the disk. If the disk refuses a commit, the event has
not happened: the agent starts a new incarnation from the state on the disk, as after a crash.
"""

from __future__ import annotations

import asyncio
import secrets
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
from unweave.protocol.token import SECRET_BYTES

__all__ = ["Commits", "within"]


# Durable fields whose change ends a wait for news; `synced` does, too.
_NEWS = ("role", "parked", "tombs", "intents", "votes")

# A commit that changes these fields alone and has no effects (a neighbour has acknowledged the
# token) is written together with the next one. A crash before that write has the same result as a
# lost acknowledgement.
_CAN_WAIT = frozenset(("role", "fence"))
_WAIT = 0.05  # seconds; then the delayed commit is written alone


class Commits:
    """`state` is None before the first commit of an incarnation and after a failed one. `moved` is
    called with each new state."""

    def __init__(self, disk: StoreThread, sign: Sign, moved: Callable[[State], None]) -> None:
        self.state: State | None = None
        self.broken = asyncio.Event()  # a commit has failed
        self.why = ""  # the error of the failed commit
        self._disk = disk
        self._sign = sign
        self._moved = moved
        self._written: State | None = None  # the state on the disk
        self._delayed: asyncio.TimerHandle | None = None  # set while `state` is not written
        self._writing: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._news = asyncio.Event()

    async def begin(self, incarnation: int) -> list[Effect]:
        """Load the state and start an incarnation; returns the effects of the start."""
        async with self._lock:
            self.broken.clear()
            before = self._written = await self._disk.load()
            after, effects = start(before, incarnation, time.monotonic(), self._sign)
            await self._commit(before, after)
        return effects

    async def take(self, event: Event) -> list[Effect] | None:
        """Handle one event and commit; returns its effects. None: there is no state to change."""
        async with self._lock:
            before = self.state
            if before is None:
                return None
            after, effects = handle(before, event, self._sign, secrets.token_bytes(SECRET_BYTES))
            changes = [name for name in DURABLE if not _same(name, before, after)]
            if not changes and self._delayed is None:
                self._enter(before, after)  # nothing to write
            elif not effects and _CAN_WAIT.issuperset(changes):
                self._enter(before, after)
                self._write_later()
            else:
                await self._commit(before, after)
        return effects

    async def end(self) -> None:
        """End the incarnation, after the commit that is under way."""
        async with self._lock:
            with suppress(StoreError):  # `broken` is set
                await self._write_delayed()
            self.state = None

    async def changed(self, timeout: float) -> bool:
        """Wait for news: the token came, went or was parked, or an erasure or a vote advanced."""
        return await within(timeout, self._news.wait)

    async def _commit(self, before: State, after: State) -> None:
        """`after` is on the disk when this returns. A cancellation does not interrupt the write:
        afterwards `state` and the disk would differ."""
        written = self._written
        assert written is not None
        if self._delayed is not None:
            self._delayed.cancel()
            self._delayed = None
        writing = self._disk.commit(written, after)
        cancelled = await outlast(writing)
        error = writing.exception()
        if error is not None:
            self.state, self.why = None, str(error)
            self.broken.set()
            if isinstance(error, StoreError):
                raise error
            raise StoreError(f"the state cannot be written: {error}") from error
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
            self._writing = asyncio.ensure_future(self._locked_write())

        if self._delayed is None:
            self._delayed = asyncio.get_running_loop().call_later(_WAIT, write)

    async def _locked_write(self) -> None:
        async with self._lock:
            with suppress(StoreError):  # `broken` is set
                await self._write_delayed()

    async def _write_delayed(self) -> None:
        if self._delayed is not None and self.state is not None:
            await self._commit(self.state, self.state)


def _same(name: str, before: State, after: State) -> bool:
    return before.durable(name) is after.durable(name)


async def within(seconds: float, wait: Callable[[], Awaitable[Any]]) -> bool:
    """Whether `wait()` ended in time. `asyncio.wait_for` would swallow a cancellation that comes
    together with the event, and the agent could not stop."""
    try:
        async with asyncio.timeout(seconds):
            await wait()
    except TimeoutError:
        return False
    return True


async def outlast(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until `future` is done. Returns a cancellation that came meanwhile: the caller raises it
    when the state is consistent."""
    cancelled = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled
