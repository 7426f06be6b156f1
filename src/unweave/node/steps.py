"""The agent's state, and its only way to change: an event, a decision, a commit.

Steps happen one after the other, and nothing follows from one before it is on the disk. If the disk
refuses, the step has not happened: what is on the disk is the truth, and a new life begins with it,
as after a crash.
"""

from __future__ import annotations

import asyncio
import time

from unweave.errors import StoreError
from unweave.node.disk import Disk
from unweave.node.waiting import within
from unweave.protocol.agent import handle, start
from unweave.protocol.events import Effect, Event
from unweave.protocol.records import Sign
from unweave.protocol.state import State

__all__ = ["Steps"]

# What somebody who waits for news wants to hear of.
_NEWS = ("role", "rest", "tombs", "intents", "votes", "synced")


class Steps:
    """`state` is None before the first step of a life, and after the disk has failed."""

    def __init__(self, disk: Disk, sign: Sign) -> None:
        self.state: State | None = None
        self.moved = asyncio.Event()  # since the timer last looked
        self.broken = asyncio.Event()
        self.why = ""  # it broke
        self._disk = disk
        self._sign = sign
        self._lock = asyncio.Lock()
        self._news = asyncio.Condition()

    async def begin(self, boot: int) -> list[Effect]:
        """The first step of a life."""
        self.broken.clear()
        before = await self._disk.load()
        async with self._lock:
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
            await self._commit(before, after)
        return effects

    async def end(self) -> None:
        """The end of a life: after the step that is under way."""
        async with self._lock:
            self.state = None

    async def changed(self, timeout: float) -> bool:
        """Wait for news: the token came or went, came to rest, or an erasure advanced."""
        async with self._news:
            return await within(timeout, self._news.wait)

    async def _commit(self, before: State, after: State) -> None:
        try:
            await self._disk.commit(before, after)
        except Exception as error:
            self.state, self.why = None, str(error)
            self.broken.set()
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"a state that cannot be written: {error}") from error
        self.state = after
        self.moved.set()
        if any(after.__dict__[name] is not before.__dict__[name] for name in _NEWS):
            async with self._news:
                self._news.notify_all()
