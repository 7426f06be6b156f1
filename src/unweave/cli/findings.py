"""Results of `unweave check`: the agent, the checked part, the problem with its place, and the fix.

`problem` is None if there is none; `warning` is not a problem, but should be known.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Result", "found", "well"]

Result = dict[str, Any]


def found(agent: str, what: str, problem: str, fix: str) -> Result:
    return well(agent, what, "") | {"problem": problem, "fix": fix}


def well(agent: str, what: str, note: str) -> Result:
    return {"agent": agent, "what": what, "problem": None, "note": note, "warning": "", "fix": ""}
