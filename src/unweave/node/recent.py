"""The last visits of the token and the last events of this process, numbered.

A page asks for what is newer than a number that it knows, and waits if nothing is. Recording costs
an append; nothing here waits for a reader.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple

from unweave.text import clip

__all__ = ["Recent"]

_VISITS = 64
_EVENTS = 256
_LONGEST = 300  # characters of a field


class _Visit(NamedTuple):
    number: int
    at: float
    epoch: int
    hop: int


class _Event(NamedTuple):
    number: int
    at: float
    level: str
    what: str
    facts: dict[str, Any]


class Recent:
    """What happened in this process. `run` names the process: another one counts from 1 again."""

    def __init__(self) -> None:
        self.run = secrets.token_hex(8)
        self.number = 0
        self._visits: deque[_Visit] = deque(maxlen=_VISITS)
        self._events: deque[_Event] = deque(maxlen=_EVENTS)
        self._news: asyncio.Event | None = None  # while somebody waits
        self._ended = asyncio.Event()

    def visit(self, epoch: int, hop: int) -> None:
        """The token has come."""
        self.number += 1
        self._visits.append(_Visit(self.number, round(time.time(), 3), epoch, hop))
        self._wake()

    def event(self, level: str, what: str, facts: dict[str, Any]) -> None:
        """A line of the log."""
        self.number += 1
        plain = {
            key: value if isinstance(value, int | float) else clip(value, _LONGEST)
            for key, value in facts.items()
        }
        self._events.append(_Event(self.number, round(time.time(), 3), level, what, plain))
        self._wake()

    def _wake(self) -> None:
        if self._news is None:
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # another thread logs: the reader sees it when it asks again
            return
        self._news.set()
        self._news = None

    def end(self) -> None:
        """Let everybody who waits ask another process."""
        self._ended.set()
        self._wake()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    async def wait(
        self, run: str, after: int, timeout: float, collect: float = 0.0, every: float = 0.0
    ) -> None:
        """Until there is something newer than `after`, and `collect` seconds more: what comes in
        them needs no answer of its own, and an answer in the midst of an audit would delay the
        messages of the protocol. Or until the time is over. It takes at least `every` seconds."""
        now = asyncio.get_running_loop().time
        began = now()
        if run == self.run and after >= self.number and not self.ended:
            if self._news is None:
                self._news = asyncio.Event()
            await _at_most(began + timeout, self._news)
            if self.number > after:
                await _at_most(now() + collect, self._ended)
        await _at_most(began + every, self._ended)

    def since(self, run: str, after: int) -> dict[str, Any]:
        """What is newer than `after`; all that is kept, for a reader that knew another process."""
        after = after if run == self.run else 0
        return {
            "run": self.run,
            "number": self.number,
            "visits": [list(one[1:]) for one in self._visits if one.number > after],
            "events": [one._asdict() for one in self._events if one.number > after],
        }


async def _at_most(end: float, event: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout_at(end):
            await event.wait()
