"""When erasures were requested, carried out and certified, from the agents' logs.

A certificate has no date. The dates are those of the machines' clocks, and are no evidence. A log
is rotated, so that an early erasure may have no date left; the time of the certificate's file is
then the latest possible date.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unweave.node.log import LOG_FILE

__all__ = ["Dates", "dates", "of_votes"]

Dates = dict[str, dict[str, float]]
"""Request, or an agent that was voted out (`of_votes`) → event ("requested", "carried_out",
"certified") → the first time of it."""

_EVENTS = {
    "an erasure was requested": "requested",
    "an erasure was carried out": "carried_out",
    "certified": "certified",
}
_VOTES = {  # an erasure by votes has no request in the log
    "a vote that an agent has departed": "requested",
    "an agent has departed by a quorum of votes": "carried_out",
}
_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) info +(.*)")
_REQUEST = re.compile(r"\b[0-9a-f]{32}\b")
Facts = Sequence[Any]  # pairs of a field and its value
_MOST = 16 << 20  # bytes of one log, from its end


def of_votes(agent: str) -> str:
    """The key of the dates of an erasure by votes: no request looks like it."""
    return f"votes on {agent}"


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
            ids = _field(facts, "request", "requests")
            yield _EVENTS[event], _REQUEST.findall(ids), when
        elif event in _VOTES:
            yield _VOTES[event], [of_votes(_field(facts, "agent"))], when


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


def _human(line: str) -> tuple[str, Facts, float]:
    """2026-01-31 12:00:00 info    north  certified  requests=…: two spaces separate fields."""
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(line)
    _, event, *facts = found[2].split("  ")
    when = time.mktime(time.strptime(found[1], "%Y-%m-%d %H:%M:%S"))  # the log is in local time
    return event, [fact.split("=", 1) for fact in facts], when


def _json(line: str) -> tuple[str, Facts, float]:
    found: Mapping[str, Any] = json.loads(line)
    return str(found["event"]), list(found.items()), float(found["time"])


def _field(facts: Facts, *keys: str) -> str:
    """These fields alone: others hold names, which may look like an id."""
    return " ".join(str(rest[0]) for key, *rest in facts if key in keys and rest)
