"""What `unweave check` finds. A result names the agent, what was looked at, the problem with its
place, and the fix; `problem` is None where all is well, and `warning` says what may surprise."""

from __future__ import annotations

from typing import Any

__all__ = ["Result", "found", "well"]

Result = dict[str, Any]


def found(agent: str, what: str, problem: str, fix: str) -> Result:
    return well(agent, what, "") | {"problem": problem, "fix": fix}


def well(agent: str, what: str, note: str) -> Result:
    return {"agent": agent, "what": what, "problem": None, "note": note, "warning": "", "fix": ""}
