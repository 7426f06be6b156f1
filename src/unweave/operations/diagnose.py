"""Whether the agents that are left can still reach each other without those that are not there."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Any, NamedTuple

from unweave.graph.topology import Topology
from unweave.node.api.client import asleep, lives
from unweave.node.config import AgentFolder
from unweave.operations.cluster import Cluster
from unweave.text import listed, quote

__all__ = ["cut_apart", "parts_without", "stall_report"]


def parts_without(topology: Topology, out: Set[str]) -> list[list[str]]:
    """The other agents, by who reaches whom: one part, unless `out` cuts the graph."""
    avoid = frozenset(topology.index(name) for name in out)
    parts: list[list[str]] = []
    for k, name in enumerate(topology.agents):
        if k not in avoid and not any(name in part for part in parts):
            reached = topology.distances_avoiding(k, avoid) >= 0
            parts.append(
                [agent for agent, here in zip(topology.agents, reached, strict=True) if here]
            )
    return parts


def cut_apart(topology: Topology, left: Set[str], down: Set[str], folders: dict[str, Path]) -> str:
    """What to tell, and what to do, if votes and the token cannot get to everybody; else empty."""
    dead = {name for name in topology.agents if name in down and name not in left}
    parts = parts_without(topology, left | dead)
    if len(parts) < 2:
        return ""
    # Who alone would join all parts again, if there is one.
    bridges = [name for name in dead if len(parts_without(topology, left | dead - {name})) < 2]
    chosen = [name for name in topology.agents if name in (bridges or dead)]
    without = ", ".join(name for name in topology.agents if name in left | dead)
    apart = " | ".join(listed(part) for part in parts)
    text = (
        f"without {without} the remaining agents are not connected with each other ({apart}): "
        "votes and the token cannot cross. "
    )
    if not chosen:
        return text + "Make a new network of those that remain (`unweave init`)"
    one = "one of " if len(bridges) > 1 else ""
    how = f"`unweave agent {quote(folders.get(chosen[0], 'AGENT_DIR'))}`"
    return (
        f"{text}Start {one}{listed(chosen)} again ({how}), or make a new network of those that "
        "remain (`unweave init`)"
    )


# ------------------------------------------------------------------------------
# Who keeps a network waiting, and what to do: everybody here is asked, when a limit is reached.

_LAST = 1.5  # seconds for the last question: the limit has been reached already


class _Trouble(NamedTuple):
    """Why an agent does not do its part; those with the same are told together."""

    kind: str
    what: str  # of this one, and what to do about it


def stall_report(agents: Cluster, waiting: list[str] | None = None, within: float = _LAST) -> str:
    """Whom everybody waits for; empty if nobody here can tell. `waiting`: whose attestations are
    missing, if that is known: of those the ones in trouble are named, before the others."""
    found = {
        name: answer["status"]
        for name, answer in agents.ask_each("status", within, anew=True).items()
        if isinstance(answer, dict)
    }
    left = {gone for status in found.values() for gone in status.get("departed", ())}
    manifest = AgentFolder.read(next(iter(agents.folders.values()))).manifest
    everybody = dict.fromkeys((*manifest.topology.agents, *(waiting or ())))
    trouble = {
        name: one
        for name in everybody
        if name not in left and (one := _trouble(agents, name, found, waiting)) is not None
    }
    if not waiting:
        return _told(trouble)
    named = {name: trouble[name] for name in waiting if name in trouble}
    if named:
        return _told(named)
    living = (
        f"{listed(waiting, 5)}, which {_run(waiting)}, but {_have(waiting)} not seen the token yet"
    )
    return f"{living}; and for {_told(trouble)}" if trouble else living


def _trouble(
    agents: Cluster, name: str, found: dict[str, dict[str, Any]], waiting: list[str] | None
) -> _Trouble | None:
    gone = f"or, if it is gone for good, `unweave forget {quote(agents.root)} {quote(name)} --gone`"
    unheard = _unheard(name, found)
    if name in found:
        return None if not unheard else _Trouble("apart", f"answers here, but is {unheard}")
    if name in agents.folders:
        pid = agents.silent.get(name)
        if name in agents.silent and lives(pid):
            return _Trouble(f"frozen {name}", f"{asleep(pid)}; {gone}")
        return _Trouble(
            "down", f"start it with `unweave agent {quote(agents.folders[name])}`, {gone}"
        )
    if unheard:
        ask = f"ask the operator of {name} whether it runs, {gone}"
        return _Trouble("elsewhere", f"elsewhere, {unheard}: {ask}")
    if waiting is not None and name in waiting:
        return _Trouble("far", f"elsewhere: ask the operator of {name}")
    return None


def _unheard(name: str, found: dict[str, dict[str, Any]]) -> str:
    """Who suspects it, and since when nobody has heard it."""
    by = [one for one, status in found.items() if name in status.get("suspects", ())]
    if not by:
        return ""
    others = [status.get("others", {}).get(name, {}) for status in found.values()]
    ago = [o["heard_seconds_ago"] for o in others if o.get("heard_seconds_ago") is not None]
    return f"not heard by {listed(by, 5)}" + (f" for {min(ago):.0f} s" if ago else "")


def _told(trouble: dict[str, _Trouble]) -> str:
    kinds: dict[str, list[str]] = {}
    for name, one in trouble.items():
        kinds.setdefault(one.kind, []).append(name)
    return "; ".join(f"{listed(names, 5)} ({trouble[names[0]].what})" for names in kinds.values())


def _run(names: list[str]) -> str:
    return "runs" if len(names) == 1 else "network_id"


def _have(names: list[str]) -> str:
    return "has" if len(names) == 1 else "have"
