"""Text from outside, made safe for a terminal, a log or a report.

Names of agents, columns and files, and the content of messages, manifests and certificates, may
hold characters that a terminal executes (escape sequences), hides or reorders (bidirectional
controls).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

__all__ = ["in_markdown", "listed", "quote", "visible"]

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>()#|~!&])")


def visible(text: object) -> str:
    """One line of printable characters; every other character is replaced by its escape.

    >>> visible("a\\x1b[31m\\u202eb")
    'a\\\\x1b[31m\\\\u202eb'
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in shown)


def quote(word: object) -> str:
    """A word of a shell command, quoted. Used for paths and names in commands that users copy."""
    return shlex.quote(str(word))


def listed(names: Iterable[object], most: int = 8, none: str = "none") -> str:
    """The first of many names, and how many there are.

    >>> listed(["a1", "a2", "a3"], most=2)
    'a1, a2, … (3 in all)'
    """
    every = [str(name) for name in names]
    more = f", … ({len(every)} in all)" if len(every) > most else ""
    return ", ".join(every[:most]) + more or none


def in_markdown(text: object) -> str:
    """`visible` text with Markdown's special characters escaped, also for tables."""
    return _MARKDOWN.sub(r"\\\1", visible(text))
