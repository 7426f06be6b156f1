"""The statuses of a network's agents, summarised as text: the agents that answer, those that do not
and why, and those that the network waits for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from unweave.models.shards import Missing
from unweave.node.api.report import NO_MORE
from unweave.text import count, due, listed, quote

__all__ = [
    "Overview",
    "concerns",
    "data_problems",
    "departed_agents",
    "dropped_records",
    "lies",
    "notices",
    "privacy_budgets",
    "private_rounds",
    "remarks",
    "restarts_due",
    "spent_budgets",
    "staying_out",
    "waiting_changes",
]

Statuses = Mapping[str, Mapping[str, Any]]  # by agent


def notices(found: Statuses) -> list[str]:
    """Why agents show no sum; agents with the same reason in one line."""
    return [f"{', '.join(names)}: {why}" for why, names in _by_reason(found, "notice")]


def private_rounds(found: Statuses) -> list[str]:
    """What the private round waits for, by the newest token that any agent knows."""
    known = [s for s in found.values() if s.get("private_round") and not s.get("notice")]
    if not known:
        return []
    newest = max(known, key=lambda s: (s["epoch"], s["hop"], s.get("parked_stamp") or []))
    told = newest["private_round"]
    for field, what in _STEPS.items():
        if names := told[field]:
            none = "" if told["published"] else "no posterior is served yet: "
            why = f"{none}the private round waits for {', '.join(names)}, not {what} yet. "
            absent = [name for name in names if name not in found]
            silent = _silent_neighbours(found, names) if field == "not_enrolled" else {}
            for other, waiting in silent.items():
                why += (
                    f"{listed(waiting, 6)} {'need' if len(waiting) > 1 else 'needs'} the answer of "
                    f"the neighbour {other} first, which may remember given values. "
                )
            absent += [name for name in silent if name not in absent]
            if not absent:
                return [f"{why}All of them run: the round goes on"]
            return [
                f"{why}Fix: start every agent that does not run, or vote it out (`unweave vote "
                f"AGENT_DIR {quote(absent[0])}`)"
            ]
    return []


def _silent_neighbours(found: Statuses, names: Sequence[str]) -> dict[str, list[str]]:
    """With noise an agent makes no key before every neighbour has told what it remembers of the
    agent's values (`protocol.given`): neighbour that does not answer, and that an agent's process
    has never heard → the agents that wait for it."""
    silent: dict[str, list[str]] = {}
    for name in names:
        status = found.get(name, {})
        for other, known in (
            status.get("others", {}).items() if status.get("privacy_budget") else ()
        ):
            heard = known["heard_seconds_ago"] is not None
            if known["neighbour"] and not (heard or known["departed"] or other in found):
                silent.setdefault(other, []).append(name)
    return silent


_STEPS = {"not_enrolled": "enrolled", "not_given": "given", "not_attested": "attested"}


def lies(found: Statuses) -> list[str]:
    """The agents that have signed a wrong step, as any other agent can prove."""
    departed = departed_agents(found)
    proved = {name: why for s in found.values() for name, why in s.get("lies", {}).items()}
    return [
        f"{name} has lied: it sent {why}. Fix: vote it out with "
        f"`unweave vote AGENT_DIR {quote(name)} --lying`"
        for name, why in sorted(proved.items())
        if name not in departed
    ]


def staying_out(found: Statuses) -> list[str]:
    """The agents that tried to add their factors and cannot, by reason."""
    return [
        f"{', '.join(names)} {'stay' if len(names) > 1 else 'stays'} out: {why}"
        for why, names in _by_reason(found, "stays_out")
    ]


def _by_reason(found: Statuses, field: str) -> Iterable[tuple[str, list[str]]]:
    reasons: dict[str, list[str]] = {}
    for name, status in found.items():
        if status.get(field):
            reasons.setdefault(status[field], []).append(name)
    return reasons.items()


def data_problems(found: Statuses) -> list[str]:
    """The agents whose data could not be read last time; their earlier factors stay in the sum."""
    return [
        f"{name} keeps its earlier data: {status['data_problem']}"
        for name, status in found.items()
        if status.get("data_problem")
    ]


def concerns(found: Statuses) -> list[str]:
    """Why the result says little: if the records of all these agents tell so."""
    holds = [s for s in found.values() if s.get("revision")]
    reasons = {s.get("concern") for s in holds}
    if not reasons or None in reasons:
        return []
    whose = "at all agents here" if len(holds) > 1 else "at this agent; look at the others, too"
    return [f"{min(filter(None, reasons))} ({whose})"]


def dropped_records(found: Statuses) -> list[str]:
    """The agents that leave records out for a missing value."""
    return [
        f"{name}: {Missing(**status['dropped_records'])}"
        for name, status in found.items()
        if (status.get("dropped_records") or {}).get("records")
    ]


def waiting_changes(found: Statuses, *, numbers: bool = True) -> list[str]:
    """The agents with changes that wait for a batch; `numbers`: of how many records."""
    return [
        f"{name}: changes of {_at_least(waits) if numbers else 'its records'} wait for others, "
        f"until {due(waits['by'])} at the latest"
        for name, status in found.items()
        if (waits := status.get("waiting"))
    ]


def _at_least(waits: Mapping[str, Any]) -> str:
    return f"at least {count(waits['records'], 'record')}"


def privacy_budgets(found: Statuses) -> list[str]:
    """What the agents' values have spent of the privacy budget, and what is left."""
    held = {name: one for name, s in found.items() if (one := s.get("privacy_budget"))}
    if not held:
        return []
    first = next(iter(held.values()))
    left = min(one["left"] for one in held.values())
    who = [name for name, one in held.items() if one["left"] == left]
    lines = [
        f"Differential privacy: epsilon {first['epsilon']:g}, delta {first['delta']:g} for each "
        f"record. {listed(who, 6)} may give {count(left, 'more value')}; every round takes one of "
        "each agent. Erasing refunds nothing."
    ]
    clipped = {name: one["clipped_records"] for name, one in held.items()}
    lines += [
        f"{name}: {count(number, 'record')} outside of the declared bounds, counted as at the bound"
        for name, number in clipped.items()
        if number
    ]
    return lines


def spent_budgets(found: Statuses) -> list[str]:
    """The agents that have no value left, unless a notice says already that no sum follows."""
    who = [name for name, s in found.items() if (s.get("privacy_budget") or {}).get("left") == 0]
    if not who or any(NO_MORE in (s.get("notice") or "") for s in found.values()):
        return []
    return [
        f"The privacy budget of {listed(who, 6)} is spent: changes of data are not learned any "
        "more, and after the next erasure no posterior is served. Fix: make a new network with "
        "other terms (`unweave init`)"
    ]


def restarts_due(found: Statuses) -> list[str]:
    """The agents that will replace their process, by reason."""
    return [
        f"{', '.join(names)} {'restart' if len(names) > 1 else 'restarts'} soon, to remove erased "
        f"values from memory ({why})"
        for why, names in _by_reason(found, "memory_holds_erased")
    ]


def remarks(found: Statuses) -> dict[str, list[str]]:
    """Everything that an operator should know, by kind."""
    return {
        "notices": notices(found),
        "lies": lies(found),
        "out": staying_out(found),
        "data": data_problems(found),
        "restarts": restarts_due(found),
        "concerns": concerns(found),
        "rounds": private_rounds(found),
        "batches": waiting_changes(found),
        "dropped": dropped_records(found),
        "budgets": privacy_budgets(found),
        "spent": spent_budgets(found),
    }


def departed_agents(found: Statuses) -> set[str]:
    """The departed agents, as any of the statuses lists them."""
    return {name for status in found.values() for name in status.get("departed", ())}


class Overview(NamedTuple):
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

    def missing(self) -> str:
        """The agents that keep the network from a parked token with a complete, fully attested
        sum: those that do not answer; else those that do not know that sum."""
        stamps = [s["parked_stamp"] for s in self.found.values() if s.get("parked_stamp")]
        departed = departed_agents(self.found)
        down = [name for name in self.down if name not in departed]
        late = [
            name
            for name, s in self.found.items()
            if name not in departed
            and (
                not s.get("complete")
                or s["parked"] is None
                or s["parked_stamp"] != max(stamps)
                or s["attested"] < len(self.everybody) - len(s["departed"])
            )
        ]
        return ", ".join(down or (late and self.away()) or late)

    def why(self, late: str) -> str:
        """Why the token is not parked, and the fix; `late` are the missing agents."""
        if out := notices(self._remaining()) or staying_out(self.found):
            return "; ".join(out)
        if self.troubles:
            return "; ".join(f"{name}: {reason}" for name, reason in self.troubles.items())
        if rounds := private_rounds(self._remaining()):
            return "; ".join(rounds)
        if not self.down and self.away():
            return (
                f"waiting for {late}, on another machine, not included or not heard. "
                "Fix: ask the operator whether it runs, or raise --timeout"
            )
        return f"waiting for {late}. Fix: read agent.log in its folder, or raise --timeout"

    def line(self) -> str:
        """The network in one line, for a log or a pipe."""
        departed = departed_agents(self.found)
        remaining = self._remaining()
        if remaining:
            included = max(len(s.get("included", [])) for s in remaining.values())
            answer = f"{count(len(remaining), 'agent')} answer{'s' * (len(remaining) == 1)}"
            parts = [f"{answer}, {included} included, {_state(remaining)}"]
        else:
            parts = ["no agent answers"]
        parts += [*notices(remaining), *lies(self.found)]
        parts += [*staying_out(self.found), *data_problems(self.found)]
        parts += private_rounds(remaining)
        if down := [name for name in self.down if name not in departed]:
            parts.append(f"down: {', '.join(down)}")
        parts += self.absent()
        if departed:
            parts.append(f"departed: {', '.join(sorted(departed))}")
        return "; ".join(parts)

    def absent(self) -> list[str]:
        """Why agents of DIR do not answer, and the agents on other machines that are missing."""
        lines = [f"{name}: {reason}" for name, reason in self.troubles.items()]
        if away := self.away():
            lines.append(f"on another machine, not included or not heard: {', '.join(away)}")
        return lines

    def _remaining(self) -> dict[str, dict[str, Any]]:
        departed = departed_agents(self.found)
        return {name: s for name, s in self.found.items() if name not in departed}


def _state(found: Statuses) -> str:
    """Parked if all agents that answer know the same holder and stamp: a token is parked when a
    pass has changed nothing. Missing attestations do not matter here."""
    if any(s.get("phase") == "audit_failed" for s in found.values()):
        return "audit_failed"
    parked = {(s.get("parked"), tuple(s.get("parked_stamp") or ())) for s in found.values()}
    holder, _ = next(iter(parked))
    if len(parked) > 1 or holder is None:
        return "learning"
    named = {s.get("commitment") for s in found.values()}
    one = named.pop() if len(named) == 1 else None
    complete = all(s.get("complete") for s in found.values())
    return "parked" + (f" with {one[:12]}" if one else "") + ("" if complete else ", incomplete")
