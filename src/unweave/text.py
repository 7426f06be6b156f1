"""Text from outside, made safe for a terminal, a log or a report.

Names of agents, columns and files, and the content of messages, manifests and certificates, may
hold characters that a terminal executes (escape sequences), hides or reorders (bidirectional
controls), and may be of any length. An exception of a library may quote a record.

The consoles of the command line and the formatter of the log pass everything through `visible`, so
that no caller has to.
"""

from __future__ import annotations

import re
import shlex
import time
import traceback
from collections.abc import Iterable
from pathlib import Path

__all__ = ["clip", "count", "crash", "dated", "due", "fault", "listed", "quote", "visible"]

# Characters without a glyph that Unicode counts as letters or marks, so that `str.isprintable`
# accepts them: joiners, fillers, variation selectors, the empty Braille cell.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)


def visible(text: object) -> str:
    """One line of characters that can be seen; every other character is replaced by its escape.

    >>> visible("a\\x1b[31m\\u202eb")
    'a\\\\x1b[31m\\\\u202eb'
    """
    shown = str(text)
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in shown)
    return shown if shown.isascii() else _BLANK.sub(lambda c: ascii(c[0])[1:-1], shown)


def clip(text: object, most: int) -> str:
    """At most `most` characters, and how many follow. Others choose the length of their texts.

    >>> clip("abcdef", 4)
    'abcd… (2 more characters)'
    """
    whole = str(text)
    more = len(whole) - most
    return whole if more <= 0 else f"{whole[:most]}… ({more} more characters)"


def fault(error: BaseException) -> str:
    """An unexpected exception without its text, which may quote a record: its type and the places
    in the code, the last one first."""
    calls = traceback.extract_tb(error.__traceback__)[:-7:-1]
    places = (f"{Path(call.filename).name}:{call.lineno}" for call in calls)
    why = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
    return " < ".join((type(error).__name__ + why, *places))


def crash(error: BaseException) -> str:
    """The last line of a process that ends by an error in its code."""
    return f"an error in unweave: {fault(error)}. Fix: report this line with what you did"


def quote(word: object) -> str:
    """A word of a shell command, quoted. Used for paths and names in commands that users copy."""
    return shlex.quote(str(word))


def count(number: int, noun: str) -> str:
    """A number with its noun.

    >>> count(1, "agent"), count(1200, "record"), count(0, "key")
    ('1 agent', '1,200 records', '0 keys')
    """
    return f"{number:,} {noun}" + "s" * (number != 1)


def listed(names: Iterable[object], most: int = 8, none: str = "none") -> str:
    """The first of many names, and how many there are.

    >>> listed(["a1", "a2", "a3"], most=2)
    'a1, a2, … (3 in all)'
    """
    every = [str(name) for name in names]
    more = f", … ({len(every)} in all)" if len(every) > most else ""
    return ", ".join(every[:most]) + more or none


def dated(seconds: float) -> str:
    """The minute of an event by the wall clock, in UTC, for people.

    >>> dated(0.0), dated(59.5)
    ('1970-01-01 00:00 UTC', '1970-01-01 00:00 UTC')
    """
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds // 60.0 * 60.0))


def due(seconds: float) -> str:
    """The minute at which a time limit has passed.

    >>> due(0.0), due(0.5)
    ('1970-01-01 00:00 UTC', '1970-01-01 00:01 UTC')
    """
    return dated(-(-seconds // 60.0) * 60.0)
