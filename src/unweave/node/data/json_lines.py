"""JSON files as text: the first line of each record, and the first line without a valid record."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from unweave.node.data.csv_lines import LineProblem, open_text

__all__ = ["is_array", "json_lines", "json_problem"]


_IN_MEMORY = 1 << 26  # bytes: the lines of larger files are not counted
_SPACE = re.compile(r"[ \t\r\n]*")
_FORM = 'write one object per line, or an array of objects, like {"id": "p1", "x": 0.5}'


class _NoRecord(ValueError):
    """Arguments: the line, the cause, the fix."""


def is_array(file: Path) -> bool:
    """Whether the file is one array, not a sequence of objects."""
    with open_text(file) as lines:
        return next((line.lstrip()[0] for line in lines if line.strip()), "") == "["


def json_lines(file: Path) -> Iterator[int]:
    """The first line of each record, in an array or a sequence of objects."""
    if file.stat().st_size > _IN_MEMORY:
        return
    with open_text(file) as stream:
        text = stream.read()
    decoder, line, counted = json.JSONDecoder(), 1, 0
    here = _after(text, 0)
    array = text.startswith("[", here)
    here = _after(text, here + 1) if array else here
    while here < len(text) and not (array and text[here] == "]"):
        line, counted = line + text.count("\n", counted, here), here
        try:
            value, end = decoder.raw_decode(text, here)
        except json.JSONDecodeError as error:
            line += text.count("\n", here, error.pos)
            value, end = None, here
        if not isinstance(value, dict):
            raise _NoRecord(line, "is not readable JSON there: no record", _FORM)
        yield line
        here = _after(text, end)
        if array and text.startswith(",", here):
            here = _after(text, here + 1)
    if array and here == len(text):
        raise _NoRecord(line, "the array has no end", "is the file complete?")


def json_problem(file: Path) -> list[LineProblem]:
    """The first line without a valid record, if there is one: what follows it cannot be read."""
    try:
        for _ in json_lines(file):
            pass
    except _NoRecord as problem:
        line, wrong, fix = problem.args
        return [(line, wrong, fix)]
    except (OSError, EOFError):
        pass
    return []


def _after(text: str, start: int) -> int:
    """The next position that is not white space."""
    found = _SPACE.match(text, start)
    return found.end() if found else start
