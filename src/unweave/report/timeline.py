"""When erasures were requested, carried out and certified, from the agents' logs.

A certificate has no date. The dates are those of the machines' clocks, and are no evidence. A log
is rotated, so that an early erasure may have no date left; the time of the certificate's file is
then the latest possible date.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from unweave.node.log import LOG_FILE

__all__ = ["Dates", "dates"]

Dates = dict[str, dict[str, float]]
"""Request → event ("requested", "carried_out", "certified") → the first time of it."""

_EVENTS = {
    "an erasure was requested": "requested",
    "an erasure was carried out": "carried_out",
    "certified": "certified",
}
_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) info +(.*)")
_REQUEST = re.compile(r"\b[0-9a-f]{32}\b")
_MOST = 16 << 20  # bytes of one log, from its end


def dates(folders: Iterable[Path]) -> Dates:
    """What the logs of these agents' folders say, by request."""
    found: Dates = {}
    for folder in folders:
        for path in sorted(folder.glob(f"{LOG_FILE}*")):
            for event, requests, when in _events(path):
                for request in requests:
                    known = found.setdefault(request, {})
                    known[event] = min(when, known.get(event, when))
    return found


def _events(path: Path) -> Iterator[tuple[str, list[str], float]]:
    for line in _lines(path):
        try:
            event, facts, when = _json(line) if line.startswith("{") else _human(line)
        except (ValueError, KeyError, TypeError, OverflowError):
            continue  # a line of a library, or one that was cut
        if event in _EVENTS:
            yield _EVENTS[event], _REQUEST.findall(facts), when


def _lines(path: Path) -> Iterator[str]:
    if path.is_symlink():
        return
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _MOST))
            text = file.read(_MOST)
    except OSError:
        return
    yield from text.decode("utf-8", "replace").splitlines()


def _human(line: str) -> tuple[str, str, float]:
    """2026-01-31 12:00:00 info    north  certified  requests=…: two spaces separate fields."""
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(line)
    _, event, *facts = found[2].split("  ")
    when = time.mktime(time.strptime(found[1], "%Y-%m-%d %H:%M:%S"))  # the log is in local time
    return event, _requests(fact.split("=", 1) for fact in facts), when


def _json(line: str) -> tuple[str, str, float]:
    found: Mapping[str, Any] = json.loads(line)
    return str(found["event"]), _requests(found.items()), float(found["time"])


def _requests(facts: Iterable[Any]) -> str:
    """The ids alone: other fields hold names, which may look like an id."""
    return " ".join(str(rest[0]) for key, *rest in facts if key in ("request", "requests") and rest)
