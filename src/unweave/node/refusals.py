"""Who was refused, how often and why."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from unweave.node.log import Log

__all__ = ["UNKNOWN", "Refusals"]

UNKNOWN = "unknown"


class Refusals(Counter[tuple[str, str]]):
    """Counts by (neighbour or "unknown", reason), and a log line for each.

    Whoever knocks without end must not fill the disk: beyond `lines` per minute and kind, refusals
    are counted, and the next line says how many had none.
    """

    def __init__(self, log: Log, lines: int = 30) -> None:
        super().__init__()
        self._log = log
        self._lines = lines
        self._spoken: Counter[tuple[str, str]] = Counter()
        self._silent: Counter[tuple[str, str]] = Counter()
        self._minute = 0

    def note(self, who: str, reason: str, why: str, **facts: Any) -> None:
        key = (who, reason)
        self[key] += 1
        minute = int(time.monotonic() / 60.0)
        if minute != self._minute:
            self._minute = minute
            self._spoken.clear()
        self._spoken[key] += 1
        if self._spoken[key] > self._lines:
            self._silent[key] += 1
            return
        if unlogged := self._silent.pop(key, 0):
            facts["unlogged"] = unlogged
        self._log.warning("refused", sender=who, reason=reason, why=why, **facts)
