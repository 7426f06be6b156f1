"""Waiting: with a limit, or to the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["outlast", "within"]


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
