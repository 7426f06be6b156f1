"""Whether the agents that are left can still reach each other without those that are not there."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

from unweave.graph.topology import Topology

__all__ = ["cut_apart", "parts_without"]


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
    apart = " | ".join(_shown(part) for part in parts)
    text = (
        f"without {without} the remaining agents are not connected with each other ({apart}): "
        "votes and the token cannot cross. "
    )
    if not chosen:
        return text + "Make a new network of those that remain (`unweave init`)"
    one = "one of " if len(bridges) > 1 else ""
    how = f"`unweave agent {folders.get(chosen[0], 'AGENT_DIR')}`"
    return (
        f"{text}Start {one}{_shown(chosen)} again ({how}), or make a new network of those that "
        "remain (`unweave init`)"
    )


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more
