"""Why a network makes no progress: agents that do not answer, and agents that are cut off.

`stall_report` asks all agents of DIR and names those that the network waits for. `cut_apart` finds
out whether the remaining agents are still connected without the departed and the stopped ones.
`why_no_token` names the agents that are missing before the first token.
"""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Any, NamedTuple

from unweave.graph.topology import Topology
from unweave.node.process import is_restarting
from unweave.operations.cluster import Cluster
from unweave.operations.status import departed_agents
from unweave.text import listed, quote

__all__ = ["cut_apart", "parts_without", "stall_report", "why_no_token"]


def parts_without(topology: Topology, out: Set[str]) -> list[list[str]]:
    """The connected parts of the graph without the agents `out`."""
    avoid = frozenset(topology.index(name) for name in out)
    parts: list[list[str]] = []
    for k, name in enumerate(topology.agents):
        if k not in avoid and not any(name in part for part in parts):
            reached = topology.distances_avoiding(k, avoid) >= 0
            parts.append(
                [agent for agent, here in zip(topology.agents, reached, strict=True) if here]
            )
    return parts


def cut_apart(
    topology: Topology, departed: Set[str], down: Set[str], folders: dict[str, Path]
) -> str:
    """The cause and the fix if the remaining agents are not connected; else ""."""
    stopped = {name for name in topology.agents if name in down and name not in departed}
    absent = departed | stopped
    parts = parts_without(topology, absent)
    if len(parts) < 2:
        return ""
    # The agents that alone would connect all parts again.
    bridges = [name for name in stopped if len(parts_without(topology, absent - {name})) < 2]
    chosen = [name for name in topology.agents if name in (bridges or stopped)]
    without = ", ".join(name for name in topology.agents if name in absent)
    apart = " | ".join(listed(part) for part in parts)
    text = (
        f"without {without} the remaining agents are not connected ({apart}), so votes and the "
        "token cannot reach all of them. Fix: "
    )
    if not chosen:
        return text + "make a new network of the remaining agents (`unweave init`)"
    one = "one of " if len(bridges) > 1 else ""
    how = f"`unweave agent {quote(folders.get(chosen[0], 'AGENT_DIR'))}`"
    return (
        f"{text}start {one}{listed(chosen)} again ({how}), or make a new network of the remaining "
        "agents (`unweave init`)"
    )


def why_no_token(agents: Cluster) -> dict[str, Any]:
    """The missing agents, if no agent has had the token: the genesis agent opens the first one."""
    terms = agents.manifest.terms()
    first = terms.name(terms.genesis)
    if first in agents.down:
        fix = f"start it with `unweave agent {quote(agents.folders[first])}`"
        why = f"{first}, which opens the first token, does not run: {fix}"
        return {"why": f"no token yet: {why}", "missing": [first]}
    statuses = agents.statuses()
    unheard = {
        name
        for status in statuses.values()
        for name, other in status.get("others", {}).items()
        if other["neighbour"] and other["heard_seconds_ago"] is None and name not in statuses
    }
    why = f"{first} opens the first one"
    if first not in agents.folders:
        why += " (on another machine: ask its operator whether it runs)"
    if unheard:
        why += f"; not heard yet: {', '.join(sorted(unheard))}"
    return {"why": f"no token yet: {why}", "missing": sorted(unheard)}


_LAST = 1.5  # seconds: timeout of the report's own requests, after the caller's timeout


class _Trouble(NamedTuple):
    """Why an agent does not respond. Agents with the same `kind` are reported together."""

    kind: str
    what: str  # the cause and the fix, for the first agent of this kind


def stall_report(agents: Cluster, waiting: list[str] | None = None, within: float = _LAST) -> str:
    """The agents that the network waits for, each with its cause and fix; "" if no agent of DIR
    knows. `waiting` are the agents whose attestations are missing, if known: those of them that do
    not respond are reported, and only if there is none, the other agents that do not."""
    found = {
        name: answer["status"]
        for name, answer in agents.ask_each("status", within, names=agents.folders).items()
        if isinstance(answer, dict)
    }
    departed = departed_agents(found)
    names = dict.fromkeys((*agents.manifest.topology.agents, *(waiting or ())))
    troubles = {
        name: trouble
        for name in names
        if name not in departed and (trouble := _trouble(agents, name, found, waiting)) is not None
    }
    if not waiting:
        return _grouped(troubles)
    awaited = {name: troubles[name] for name in waiting if name in troubles}
    if awaited:
        return _grouped(awaited)
    verbs = "runs, but has" if len(waiting) == 1 else "run, but have"
    running = f"{listed(waiting, 5)}, which {verbs} not seen the token yet"
    return f"{running}; and for {_grouped(troubles)}" if troubles else running


def _trouble(
    agents: Cluster, name: str, found: dict[str, dict[str, Any]], waiting: list[str] | None
) -> _Trouble | None:
    forget = (
        "or, if it will never run again, "
        f"`unweave forget {quote(agents.root)} {quote(name)} --departed`"
    )
    unheard = _unheard(name, found)
    if name in found:
        return None if not unheard else _Trouble("unheard", f"answers, but is {unheard}")
    if name in agents.folders:
        if is_restarting(agents.folders[name]):
            return _Trouble("restarting", "replaces its process by itself; nothing to do")
        if why := agents.frozen().get(name):
            return _Trouble(f"frozen {name}", f"{why}; {forget}")
        return _Trouble(
            "down", f"start it with `unweave agent {quote(agents.folders[name])}`, {forget}"
        )
    if unheard:
        ask = f"ask the operator of {name} whether it runs, {forget}"
        return _Trouble("remote, unheard", f"on another machine, {unheard}: {ask}")
    if waiting is not None and name in waiting:
        return _Trouble("remote", f"on another machine: ask the operator of {name}")
    return None


def _unheard(name: str, found: dict[str, dict[str, Any]]) -> str:
    """The agents that suspect `name`, and the seconds since any agent heard it; "" if none does."""
    by = [agent for agent, status in found.items() if name in status.get("suspects", ())]
    if not by:
        return ""
    others = [status.get("others", {}).get(name, {}) for status in found.values()]
    ago = [o["heard_seconds_ago"] for o in others if o.get("heard_seconds_ago") is not None]
    return f"not heard by {listed(by, 5)}" + (f" for {min(ago):.0f} s" if ago else "")


def _grouped(troubles: dict[str, _Trouble]) -> str:
    kinds: dict[str, list[str]] = {}
    for name, trouble in troubles.items():
        kinds.setdefault(trouble.kind, []).append(name)
    return "; ".join(f"{listed(names, 5)} ({troubles[names[0]].what})" for names in kinds.values())
