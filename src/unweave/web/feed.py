"""Views as server-sent events: a snapshot, then changes, to any number of viewers.

Changes are collected for a tenth of a second and sent as one message, which is encoded once for all
viewers. The last messages are kept: a viewer that comes back with Last-Event-ID gets those that it
missed. Every viewer reads the kept messages at its own pace; one that is slower than they are
dropped gets a snapshot. So a viewer never delays the source or another viewer, and costs no memory.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Any, cast

from unweave.json_form import as_json
from unweave.web.patches import Patch, compose, merge
from unweave.web.view import KEPT_POINTS, Points, View

__all__ = ["ViewFeed"]

_EVERY = 0.1  # seconds between two messages
_HEARTBEAT = 15.0  # seconds without a message, after which a viewer gets a heartbeat
_KEPT = 512  # messages for viewers that come back
_KEPT_BYTES = 4 << 20
_FRESH = 1.0  # seconds that an encoded snapshot is used again, if nothing has changed


class ViewFeed:
    """Keeps one view, and tells its viewers what has changed. It belongs to one event loop.

    `clock` gives the seconds of the view's clock, for a source that does not write them itself.
    """

    def __init__(self, view: View, clock: Callable[[], float] | None = None) -> None:
        self._view: dict[str, Any] = deepcopy(cast("dict[str, Any]", view))
        self._clock = clock
        self._run = secrets.token_hex(4)  # else an id of an earlier process would fit this one
        self._sent = 0  # number of the last message
        self._kept: deque[tuple[int, bytes]] = deque()
        self._kept_bytes = 0
        self._pending: list[tuple[str, Patch]] = []
        self._due: asyncio.TimerHandle | None = None
        self._last = -_EVERY  # when the last message was sent, in the loop's time
        self._news = asyncio.Event()
        self._encoded: tuple[int, float, bytes] | None = None
        self._viewers = 0

    @property
    def viewers(self) -> int:
        return self._viewers

    @property
    def view(self) -> View:
        """The view as it is now. It changes with the next change."""
        return cast("View", self._view)

    # -------------------------------------------------------------------------- from the source

    def change(self, patch: dict[str, object]) -> None:
        if not patch:
            return
        merge(self._view, _copy(patch))
        self._collect_change(_copy(patch))
        self._schedule()

    def points(self, new: Points) -> None:
        fresh: Patch = {}
        for name, given in new.items():
            points = [one for one in given if all(map(math.isfinite, one))]
            series = self._view["series"].get(name)
            if series is None or not points:
                continue  # a series that the view does not have is not shown
            series["points"] = [*series["points"], *points][-KEPT_POINTS:]
            fresh[name] = list(points)
        if not fresh:
            return
        for kind, body in reversed(self._pending):
            if kind == "points":
                for name, points in fresh.items():
                    body[name] = [*body.get(name, ()), *points]
                break
            if "series" in body:
                self._pending.append(("points", fresh))
                break
        else:
            self._pending.append(("points", fresh))
        self._schedule()

    def forget(self) -> None:
        """Drop the kept messages: they may show what was erased. Viewers that come back, and slow
        ones, get a snapshot."""
        self._flush()
        self._kept.clear()
        self._kept_bytes = 0
        self._encoded = None

    def _collect_change(self, patch: Patch) -> None:
        """Join it with the last collected change, unless points lie between that it may replace."""
        for index in range(len(self._pending) - 1, -1, -1):
            kind, body = self._pending[index]
            if kind == "change":
                both = compose(body, patch)
                if both is None:
                    break
                self._pending[index] = ("change", both)
                return
            if "series" in patch:
                break
        self._pending.append(("change", patch))

    def _schedule(self) -> None:
        if self._due is None:
            loop = asyncio.get_running_loop()
            self._due = loop.call_at(max(loop.time(), self._last + _EVERY), self._flush)

    def _flush(self) -> None:
        """Make messages of what was collected."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        if self._clock is not None:
            now = {"clock": self._now()}
            merge(self._view, now)
            pending = [(kind, body | now if kind == "change" else body) for kind, body in pending]
        for kind, body in pending:
            self._sent += 1
            message = self._message(kind, body)
            self._kept.append((self._sent, message))
            self._kept_bytes += len(message)
        while len(self._kept) > _KEPT or self._kept_bytes > _KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popleft()[1])
        self._last = asyncio.get_running_loop().time()
        self._news.set()
        self._news = asyncio.Event()

    def _message(self, kind: str, body: object) -> bytes:
        return f"id: {self._run}-{self._sent}\nevent: {kind}\ndata: {as_json(body)}\n\n".encode()

    def _now(self) -> float:
        return round(time.time() if self._clock is None else self._clock(), 3)

    # -------------------------------------------------------------------------- to the viewers

    async def events(self, last: str | None = None) -> AsyncGenerator[bytes]:
        """The messages for one viewer; `last` is the id of the last one that it knows."""
        self._viewers += 1
        try:
            at = self._number(last)
            while True:
                news = self._news
                missed = None if at is None else self._since(at)
                if missed is None:
                    missed = self._snapshot()
                at = self._sent
                if missed:
                    yield missed
                    continue
                with suppress(TimeoutError):
                    async with asyncio.timeout(_HEARTBEAT):
                        await news.wait()
                        continue
                yield self._message(
                    "heartbeat", {} if self._clock is None else {"clock": self._now()}
                )
        finally:
            self._viewers -= 1

    def _number(self, last: str | None) -> int | None:
        """The number of a message of this process; None for anything else."""
        run, _, number = (last or "").partition("-")
        known = run == self._run and number.isascii() and number.isdigit() and len(number) < 19
        return int(number) if known and int(number) <= self._sent else None

    def _since(self, at: int) -> bytes | None:
        """The messages after number `at`; None if they are not kept any more."""
        if at == self._sent:
            return b""
        if not self._kept or self._kept[0][0] > at + 1:
            return None
        newer = self._sent - at
        return b"".join(self._kept[i][1] for i in range(len(self._kept) - newer, len(self._kept)))

    def _snapshot(self) -> bytes:
        """The whole view. What was collected is sent before: nobody gets a point twice."""
        self._flush()
        now = asyncio.get_running_loop().time()
        if self._encoded is not None:
            number, made, encoded = self._encoded
            if number == self._sent and (self._clock is None or now - made < _FRESH):
                return encoded
        if self._clock is not None:
            self._view["clock"] = self._now()
        encoded = self._message("snapshot", self._view)
        self._encoded = (self._sent, now, encoded)
        return encoded


def _copy(patch: Mapping[str, Any]) -> Patch:
    """A copy of a patch, down to its leaves: the source may change its own objects later. JSON has
    no infinite numbers, so they become null."""
    return {key: _leaf(value) for key, value in patch.items()}


def _leaf(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _copy(value)
    if isinstance(value, list | tuple):
        return [_leaf(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
