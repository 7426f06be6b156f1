"""Work that runs beside the rest, and ends with the agent."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Coroutine
from typing import Any

from unweave.errors import StoreError
from unweave.node.log import Log

__all__ = ["Tasks"]


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
