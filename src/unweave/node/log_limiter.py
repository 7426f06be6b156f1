"""Limits the lines of a log, so that no peer can fill it.

Every line counts, whoever caused it: a line of unweave by its event, the `reason` in it and the
agent that it names, a line of a library by the place in the code that logs it. Each pair (kind,
peer) has a token bucket, and each kind has a larger one for all peers together. Lines beyond them
are counted, and once a minute one line for each pair says how many there were. The counters of the
metrics count all of them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["ALL_PEERS", "BURST", "EVERY", "RATE", "LineLimiter"]


BURST = 60  # lines of one kind and peer at once
RATE = 1.0  # lines per second of one kind and peer, after these
ALL_PEERS = 10  # times as many lines of one kind
EVERY = 60.0  # seconds between two summaries
_PAIRS = 1000  # kept in memory; beyond them the peers of one kind share a bucket
_SUMMARIES = 20  # lines of one summary; the last one is about all other pairs

_PEER = ("sender", "by", "to", "agent")  # fields that name the peer, the first one counts


class Pair(NamedTuple):
    """What is limited: lines of one kind about one peer (field, name)."""

    kind: str
    peer: tuple[str, str] | None


class _Bucket:
    """A token bucket, and the lines that it has held back since the last summary."""

    __slots__ = ("at", "burst", "rate", "suppressed", "tokens")

    def __init__(self, burst: float, rate: float, now: float) -> None:
        self.burst, self.rate = burst, rate
        self.tokens, self.at = burst, now
        self.suppressed = 0

    def fill(self, now: float) -> float:
        self.tokens = min(self.burst, self.tokens + self.rate * (now - self.at))
        self.at = now
        return self.tokens

    def idle(self, now: float) -> bool:
        return not self.suppressed and self.fill(now) >= self.burst


class LineLimiter(logging.Filter):
    """A filter for one handler. `write` gets the summaries, as records that pass the filter."""

    def __init__(
        self,
        write: Callable[[logging.LogRecord], object],
        counts: Counter[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._write = write
        self._counts = counts
        self._clock = clock
        self._lock = threading.Lock()  # libraries log on other threads, too
        self._pairs: dict[Pair, _Bucket] = {}
        self._kinds: dict[str, _Bucket] = {}
        self._summarised = clock()

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "is_summary", False):
            return True
        self.flush()
        now = self._clock()
        with self._lock:
            pair = self._find(_pair(record), now)
            bucket, kind = self._pairs[pair], self._kinds[pair.kind]
            if bucket.fill(now) >= 1.0 and kind.fill(now) >= 1.0:
                bucket.tokens -= 1.0
                kind.tokens -= 1.0
                return True
            bucket.suppressed += 1
            self._counts["log lines suppressed"] += 1
            return False

    def flush(self, *, now_at_once: bool = False) -> None:
        """Write how many lines were held back, if the last summary is long enough ago."""
        now = self._clock()
        with self._lock:
            if now - self._summarised < EVERY and not now_at_once:
                return
            self._summarised = now
            held = [(b.suppressed, pair) for pair, b in self._pairs.items() if b.suppressed]
            self._pairs = {pair: b for pair, b in self._pairs.items() if not b.idle(now)}
            for bucket in self._pairs.values():
                bucket.suppressed = 0
        held.sort(key=lambda one: -one[0])
        for count, pair in held[: _SUMMARIES - 1]:
            peer = {} if pair.peer is None else dict([pair.peer])
            self._write(_summary(count, {"of": pair.kind, **peer}))
        if rest := sum(count for count, _ in held[_SUMMARIES - 1 :]):
            self._write(_summary(rest, {"of": "other lines"}))

    def _find(self, pair: Pair, now: float) -> Pair:
        """The pair with a bucket: another one if there are too many."""
        if pair.kind not in self._kinds:
            self._kinds[pair.kind] = _Bucket(ALL_PEERS * BURST, ALL_PEERS * RATE, now)
        if pair not in self._pairs:
            if len(self._pairs) >= _PAIRS:
                pair = Pair(pair.kind, None)
            self._pairs.setdefault(pair, _Bucket(BURST, RATE, now))
        return pair


def _pair(record: logging.LogRecord) -> Pair:
    facts: dict[str, Any] | None = getattr(record, "facts", None)
    if facts is None:  # the text of a library may hold anything, so its place is the kind
        return Pair(f"{record.name} ({record.filename}:{record.lineno})", None)
    peer = next(((key, str(facts[key])) for key in _PEER if key in facts), None)
    reason = f": {facts['reason']}" if "reason" in facts else ""
    return Pair(record.getMessage() + reason, peer)


def _summary(count: int, facts: dict[str, Any]) -> logging.LogRecord:
    record = logging.LogRecord(
        "unweave", logging.WARNING, __file__, 0, f"… {count} more suppressed", None, None
    )
    record.facts = facts
    record.is_summary = True
    return record
