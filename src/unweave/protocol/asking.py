"""Asking the driver for work: once per question, until the question changes."""

from __future__ import annotations

from typing import Any

from unweave.protocol.events import Key, Work
from unweave.protocol.state import State
from unweave.protocol.turn import Turn

__all__ = ["ask"]


def ask(s: State, turn: Turn, work: Work) -> Any:
    """The answer to `work`, or None after asking for it."""
    key: Key = work.key
    if key in s.memo:
        return s.memo[key]
    if s.pending != key:
        s.pending = key
        turn.do(work)
    return None
