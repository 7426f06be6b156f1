"""One look at a network, in words: who answers, who does not and why, and who is waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from unweave.cli.status import data_problems, gone_agents, notices, staying_out

__all__ = ["Look", "absent", "line", "missing", "why"]


class Look(NamedTuple):
    """One look at the network: who answers and what they say, who of those here does not, and who
    there is in all."""

    found: dict[str, dict[str, Any]]
    down: list[str]
    everybody: Sequence[str]
    troubles: Mapping[str, str] = {}  # why one of those here does not answer, if that is known

    def away(self) -> list[str]:
        """Who is elsewhere, and not in the sum or not heard, as far as anybody here knows."""
        known = {*self.found, *self.down, *gone_agents(self.found)}
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
    """What keeps it from rest, and what to do."""
    gone = gone_agents(look.found)
    inside = {name: s for name, s in look.found.items() if name not in gone}
    if out := notices(inside) or staying_out(look.found):
        return "; ".join(out)
    if look.troubles:
        return "; ".join(f"{name}: {reason}" for name, reason in look.troubles.items())
    if not look.down and look.away():
        return (
            f"waiting for {late}, elsewhere and not in or not heard: ask the operator whether "
            "it runs, or wait longer (--timeout)"
        )
    return f"waiting for {late}; look at agent.log in its folder, or wait longer (--timeout)"


def missing(look: Look) -> str:
    """Who does not know the place of rest, with a sum that is complete and attested by all; those
    that are not here keep the others waiting, and are named before them."""
    found = look.found
    rests = [s["parked_stamp"] for s in found.values() if s.get("parked_stamp")]
    left = {gone for s in found.values() for gone in s.get("departed", ())}
    down = [name for name in look.down if name not in left]
    late = [
        name
        for name, s in found.items()
        if name not in left
        and (
            not s.get("complete")
            or s["parked"] is None
            or s["parked_stamp"] != max(rests)
            or s["attested"] < len(look.everybody) - len(s["departed"])
        )
    ]
    return ", ".join(down or (late and look.away()) or late)


def line(look: Look) -> str:
    """The network in one line, for a log or a pipe."""
    gone = gone_agents(look.found)
    inside = {name: s for name, s in look.found.items() if name not in gone}
    if inside:
        included = max(len(s.get("included", [])) for s in inside.values())
        answer = "1 agent answers" if len(inside) == 1 else f"{len(inside)} agents answer"
        parts = [f"{answer}, {included} included, {_state(inside)}"]
    else:
        parts = ["nobody answers"]
    parts += [*notices(inside), *staying_out(look.found), *data_problems(look.found)]
    if dead := [name for name in look.down if name not in gone]:
        parts.append(f"down: {', '.join(dead)}")
    parts += absent(look)
    if gone:
        parts.append(f"gone: {', '.join(sorted(gone))}")
    return "; ".join(parts)


def absent(look: Look) -> list[str]:
    """Why those here do not answer; and who is awaited from elsewhere."""
    lines = [f"{name}: {reason}" for name, reason in look.troubles.items()]
    if away := look.away():
        lines.append(f"elsewhere, not in or not heard: {', '.join(away)}")
    return lines


def _state(found: dict[str, dict[str, Any]]) -> str:
    """At rest, when all who answer know the same place and sum; a missing attestation is none of
    their business."""
    if any(s.get("phase") == "audit_failed" for s in found.values()):
        return "audit_failed"
    rests = {
        (s.get("parked"), s.get("digest"), tuple(s.get("parked_stamp") or ()))
        for s in found.values()
    }
    resting, digest, _ = next(iter(rests))
    if len(rests) > 1 or resting is None or not digest:
        return "learning"
    complete = all(s.get("complete") for s in found.values())
    return f"at rest with {digest[:12]}" + ("" if complete else ", incomplete")
