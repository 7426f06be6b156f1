"""Waiting with a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["within"]


async def within(seconds: float, wait: Callable[[], Awaitable[Any]]) -> bool:
    """Whether it came in time. `wait_for` would swallow a cancellation that comes together with the
    event, and the agent could not stop."""
    try:
        async with asyncio.timeout(seconds):
            await wait()
    except TimeoutError:
        return False
    return True
