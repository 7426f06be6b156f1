"""A process that takes a call and does not answer: stopped, very busy, or gone meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["asleep", "lives"]


def lives(pid: int | None) -> bool:
    """Whether there is such a process; where nobody can tell its number, somebody took the call."""
    if pid is None:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _state(pid) != "Z"


def asleep(pid: int | None) -> str:
    """How it is with a process that lives and does not answer, and what to do."""
    if pid is None:
        return "it runs, but does not answer: frozen, or very busy; agent.log in its folder tells"
    if _state(pid) in ("T", "t"):
        return f"its process is stopped: `kill -CONT {pid}` wakes it"
    return (
        f"its process {pid} runs, but does not answer: frozen, or very busy; agent.log in its "
        f"folder may say more, and `kill -9 {pid}` costs nothing but a new start"
    )


def _state(pid: int) -> str:
    """The letter that the system has for it, where it has one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
