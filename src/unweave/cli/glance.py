"""A network's state as text: the agents that answer, those that do not and why, and those that the
network waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from unweave.cli.status import data_problems, departed_agents, notices, staying_out

__all__ = ["Look", "absent", "line", "missing", "why"]


class Look(NamedTuple):
    """The statuses of all agents of DIR at one time."""

    found: dict[str, dict[str, Any]]  # agent that answers → its status
    down: list[str]  # agents of DIR that do not answer
    everybody: Sequence[str]  # all agents of the network
    troubles: Mapping[str, str] = {}  # agent of DIR → why it does not answer, if known

    def away(self) -> list[str]:
        """The agents without a folder in DIR that are not in the sum, or were never heard."""
        known = {*self.found, *self.down, *departed_agents(self.found)}
        lacking: set[str] = set()
        for s in self.found.values():
            lacking |= {*s.get("missing", ()), *s.get("suspects", ())}
            lacking |= {
                name
                for name, other in s.get("others", {}).items()
                if other.get("neighbour") and other.get("heard_seconds_ago") is None
            }
        return [name for name in self.everybody if name in lacking - known]


def why(look: Look, late: str) -> str:
    """Why the token is not parked, and the fix."""
    departed = departed_agents(look.found)
    remaining = {name: s for name, s in look.found.items() if name not in departed}
    if out := notices(remaining) or staying_out(look.found):
        return "; ".join(out)
    if look.troubles:
        return "; ".join(f"{name}: {reason}" for name, reason in look.troubles.items())
    if not look.down and look.away():
        return (
            f"waiting for {late}, on another machine, not included or not heard. "
            "Fix: ask the operator whether it runs, or raise --timeout"
        )
    return f"waiting for {late}. Fix: read agent.log in its folder, or raise --timeout"


def missing(look: Look) -> str:
    """The agents that keep the network from a parked token with a complete, fully attested sum:
    those that do not answer; else those that do not know that sum."""
    found = look.found
    stamps = [s["parked_stamp"] for s in found.values() if s.get("parked_stamp")]
    departed = departed_agents(found)
    down = [name for name in look.down if name not in departed]
    late = [
        name
        for name, s in found.items()
        if name not in departed
        and (
            not s.get("complete")
            or s["parked"] is None
            or s["parked_stamp"] != max(stamps)
            or s["attested"] < len(look.everybody) - len(s["departed"])
        )
    ]
    return ", ".join(down or (late and look.away()) or late)


def line(look: Look) -> str:
    """The network in one line, for a log or a pipe."""
    departed = departed_agents(look.found)
    remaining = {name: s for name, s in look.found.items() if name not in departed}
    if remaining:
        included = max(len(s.get("included", [])) for s in remaining.values())
        answer = "1 agent answers" if len(remaining) == 1 else f"{len(remaining)} agents answer"
        parts = [f"{answer}, {included} included, {_state(remaining)}"]
    else:
        parts = ["no agent answers"]
    parts += [*notices(remaining), *staying_out(look.found), *data_problems(look.found)]
    if down := [name for name in look.down if name not in departed]:
        parts.append(f"down: {', '.join(down)}")
    parts += absent(look)
    if departed:
        parts.append(f"departed: {', '.join(sorted(departed))}")
    return "; ".join(parts)


def absent(look: Look) -> list[str]:
    """Why agents of DIR do not answer, and the agents on other machines that are missing."""
    lines = [f"{name}: {reason}" for name, reason in look.troubles.items()]
    if away := look.away():
        lines.append(f"on another machine, not included or not heard: {', '.join(away)}")
    return lines


def _state(found: dict[str, dict[str, Any]]) -> str:
    """Parked if all agents that answer know the same holder, stamp and sum. Missing attestations
    do not matter here."""
    if any(s.get("phase") == "audit_failed" for s in found.values()):
        return "audit_failed"
    parked = {
        (s.get("parked"), s.get("digest"), tuple(s.get("parked_stamp") or ()))
        for s in found.values()
    }
    holder, digest, _ = next(iter(parked))
    if len(parked) > 1 or holder is None or not digest:
        return "learning"
    complete = all(s.get("complete") for s in found.values())
    return f"parked with {digest[:12]}" + ("" if complete else ", incomplete")
