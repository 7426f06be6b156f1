"""Details of one agent: facts, receipts, and in plain mode its influence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from unweave.errors import UnweaveError
from unweave.models.shards import Missing
from unweave.operations.cluster import LOOK, Cluster
from unweave.text import count, due, listed
from unweave.web.live.states import Known
from unweave.web.view import AgentDetails, AgentView, Entry

__all__ = ["agent_details"]

_PRIVATE = (
    "Not shown: in private rounds nothing about a single agent is shown; of a small model the "
    "influence nearly is its data."
)
_MEANING = "KL of the posterior to the one without this agent, as the agent itself computed it."


def agent_details(
    agents: Cluster | None, name: str, known: Known, view: AgentView, recent: Sequence[Entry]
) -> AgentDetails:
    """Asks the agent, if it answers. `agents` is None if its folder is not here. Events (`recent`
    has the oldest first) and then receipts, which agents tell so, have the newest first."""
    status: Mapping[str, Any] = {}
    receipts: list[Entry] = list(reversed(recent))
    if agents is not None and name in agents.agents:
        status = (agents.again(name, "status", within=LOOK) or {}).get("status", {})
        answer = agents.again(name, "receipts", within=LOOK) or {"receipts": []}
        receipts += [_receipt(one, known) for one in answer["receipts"]]
    details: AgentDetails = {
        "name": name,
        "facts": _facts(known, view, status),
        "receipts": receipts,
        "influence_text": _PRIVATE,
    }
    if not known.masked:
        _add_influence(details, agents, name, known)
    return details


def _facts(known: Known, view: AgentView, status: Mapping[str, Any]) -> dict[str, str]:
    """What the view of the agent does not say."""
    near = [known.topology.agents[k] for k in known.topology.adjacency[view["index"]]]
    facts = {"Neighbours": listed(near, 12)}
    if view.get("remote"):
        facts["Place"] = "on another machine"
    if not status:
        return facts
    facts["Address"] = str(status.get("address") or "none")
    facts["Runs for"] = _duration(float(status["up_seconds"]))
    facts["Process"] = f"{status['pid']}, {status['phase']}"
    if not known.masked:
        facts |= _record_facts(status)
    if budget := status.get("privacy_budget"):
        facts["Differential privacy"] = (
            f"epsilon {budget['epsilon']:g}, delta {budget['delta']:g} for each record; it has "
            f"given {count(budget['given'], 'value')} and may give {budget['left']:,} more"
        )
    if status.get("suspects"):
        facts["Does not hear"] = listed(status["suspects"], 8)
    counts = status.get("counts", {})
    facts["Tokens sent by this process"] = f"{counts.get('tokens sent', 0):,}"
    refused = sum(status.get("refused", {}).values()) + counts.get("messages refused", 0)
    if refused:
        facts["Messages refused"] = f"{refused:,}"
    return facts


def _record_facts(status: Mapping[str, Any]) -> dict[str, str]:
    """Numbers of the agent's records, which private rounds do not show."""
    facts = {}
    lost = status.get("dropped_records")
    if lost and lost.get("records"):
        facts["Records left out"] = str(Missing(**lost))
    if status.get("erased_records"):
        facts["Erased records"] = count(int(status["erased_records"]), "record")
    if waiting := status.get("waiting"):
        by = "" if waiting["by"] is None else f", until {due(waiting['by'])} at the latest"
        facts["Changes that wait"] = f"of at least {count(waiting['records'], 'record')}{by}"
    budget = status.get("privacy_budget")
    if budget and budget["clipped_records"]:
        facts["Records at a bound"] = count(budget["clipped_records"], "record")
    return facts


def _receipt(one: Mapping[str, Any], known: Known) -> Entry:
    """A signed change of the token; it has a hop, and no time."""
    where = f"Epoch {one['epoch']}, hop {one['hop']}"
    if one["request"]:
        text = f"{where}: signed receipt for the erasure {one['request'][:16]}…"
    elif known.masked:
        text = f"{where}: signed receipt for a masked value"
    elif not one["before"]:
        text = f"{where}: signed receipt for its factor, revision {one['after']}"
    else:
        text = f"{where}: signed receipt for revision {one['after']} in place of {one['before']}"
    return {"at": 0.0, "text": f"{text}.", "level": "good" if one["request"] else "info"}


def _add_influence(details: AgentDetails, agents: Cluster | None, name: str, known: Known) -> None:
    if name in known.departed | known.erased:
        details["influence_text"] = "It is not in the sum, so it has no influence."
        return
    found: Mapping[str, float | None] = {}
    if agents is not None and name in agents.agents:
        try:
            found = (agents.again(name, "influence", within=LOOK, publish=False) or {}).get(
                "influence", {}
            )
        except UnweaveError as error:
            details["influence_text"] = str(error)
            return
    else:
        told = [s.get("others", {}).get(name, {}) for s in known.statuses.values()]
        published = [one["influence"] for one in told if one.get("influence") is not None]
        found = {name: published[0]} if published else {}
    if name not in found and agents is not None and name not in agents.agents:
        details["influence_text"] = "Not known now: the agent does not answer."
        return
    if name not in found:
        details["influence_text"] = (
            "Not known now. It is computed when the token is parked and the sum includes the agent."
        )
        return
    value = found[name]
    if value is None or not math.isfinite(value):
        details["influence_text"] = (
            f"Infinite: without this agent the model has no posterior. {_MEANING}"
        )
        return
    details["influence"] = float(f"{value:.2g}")
    details["influence_text"] = _MEANING


def _duration(seconds: float) -> str:
    for unit, length in (("day", 86400.0), ("hour", 3600.0), ("minute", 60.0)):
        if seconds >= 2 * length:
            return count(int(seconds // length), unit)
    return count(int(seconds), "second")
