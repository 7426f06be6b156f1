"""`unweave status`: the agents' phases, the token's holder, the agents included in the sum."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from unweave.cli.common import Folder, Json, command, console, emit_json, errors, quote, say, styled
from unweave.errors import UnweaveError
from unweave.text import count

if TYPE_CHECKING:
    from unweave.manifest.privacy import PrivacyEntry
    from unweave.operations.cluster import Cluster

__all__ = ["status", "status_table"]


def status(
    folder: Folder,
    json: Json = False,
) -> None:
    """The status of every agent of DIR. With one AGENT_DIR: also what it knows of the others.

    Exit code 1 if an agent does not answer, except agents that a quorum declared departed.

    Examples:

        unweave status clinics

        unweave status clinics/agents/a1 --json
    """
    from unweave.operations.cluster import LOOK, open_cluster
    from unweave.operations.status import departed_agents, remarks

    with open_cluster(folder, LOOK) as agents, errors.status("asking …"):
        found = agents.statuses()
        departed = departed_agents(found)
        out = [name for name in agents.down if name in departed]
        down = [name for name in agents.down if name not in departed]
    if json:
        mode = None if (privacy := _privacy(agents)) is None else privacy.mode
        emit_json({"agents": found, "down": down, "departed": out, "privacy": mode})
    else:
        places = _places(agents.folders, found)
        console.print(status_table(found, agents.down, places))
        if not _wide():
            console.print(_places_table(found, agents.down, places))
        frozen = agents.frozen()
        for name in sorted(agents.silent):
            why = frozen.get(name, "it has just stopped (see agent.log)")
            say(f"{name} did not answer in time: {why}", style="yellow")
        if not found and not agents.silent:
            start = "agent" if folder in agents.folders.values() else "up"
            console.print("No agent answers. Start with")
            command(f"unweave {start} {quote(folder)}")
        for kind, lines in remarks(found).items():
            say(*lines, style=_REMARKS.get(kind))
        if privacy := _privacy(agents):
            console.print(f"Privacy: {privacy.mode}. {privacy.seen}", style="dim")
        if len(agents.folders) == 1 and found:
            console.print(_others_table(next(iter(found.values()))))
    if down:
        raise typer.Exit(1)


def _privacy(agents: Cluster) -> PrivacyEntry | None:
    try:
        return agents.manifest.privacy
    except UnweaveError:
        return None  # `unweave check` reports the problem


def _wide() -> bool:
    """Whether the terminal has room for addresses; without them the table fits 80 columns."""
    return console.width >= 110


def _places(folders: dict[str, Path], found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """The address of each agent, running or not."""
    from unweave.node.config import AgentFolder

    places = {name: str(s.get("address") or "") for name, s in found.items()}
    for name in folders.keys() - found.keys():
        try:
            home = AgentFolder.read(folders[name])
        except UnweaveError:
            continue  # `unweave check` reports the problem
        places[name] = home.config.listen or home.manifest.agent(name).address or ""
    return places


def _places_table(
    found: dict[str, dict[str, Any]], down: list[str], places: Mapping[str, str]
) -> Table:
    table = Table()
    for name in ("agent", "address", "pid"):
        table.add_column(name, overflow="fold")
    for name in (*found, *down):
        table.add_row(name, places.get(name, ""), str(found.get(name, {}).get("pid", "")))
    return table


def status_table(
    found: dict[str, dict[str, Any]], down: list[str], places: Mapping[str, str] | None = None
) -> Table:
    from unweave.operations.status import departed_agents

    table = Table(title="Agents")
    wide = _wide()
    for name in ("agent", *(("address", "pid") if wide else ()), "phase"):
        table.add_column(name, no_wrap=True)
    for name in ("epoch", "hop", "rev.", "in"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("commitment", no_wrap=True)
    table.add_column("erased")
    for name, s in found.items():
        place = (str(s.get("address") or ""), str(s["pid"])) if wide else ()
        table.add_row(
            name,
            *place,
            styled((s["phase"], _STYLES.get(s["phase"], ""))),
            str(s.get("epoch", "")),
            str(s.get("hop", "")),
            str(s.get("revision", "")),
            str(len(s.get("included", []))) + ("" if s.get("complete") else " (part)"),
            (s.get("commitment") or "")[:12],
            _erased(s),
        )
    departed = departed_agents(found)
    for name in down:
        phase = styled("departed" if name in departed else ("down", "red"))
        where = ((places or {}).get(name, ""), "") if wide else ()
        table.add_row(name, *where, phase, *[""] * 6)
    return table


def _erased(status: dict[str, Any]) -> str:
    """The agent's own erased records, then the erased and departed agents that it knows."""
    own = status.get("erased_records", 0)
    parts = [count(own, "record")] if own else []
    departed = [f"{name} (departed)" for name in status.get("departed", [])]
    return ", ".join([*parts, *status.get("erased", []), *departed])


def _others_table(status: dict[str, Any]) -> Table:
    """One agent's knowledge of the others."""
    table = Table(title=f"What {status['name']} knows of the others")
    for name in ("agent", "address", "neighbour", "heard", "rev.", "attested", "erased"):
        table.add_column(name, overflow="fold")
    for name, other in status.get("others", {}).items():
        ago = other["heard_seconds_ago"]
        heard = "" if ago is None else f"{ago:.0f} s ago"
        table.add_row(
            name,
            str(other["address"] or ""),
            "yes" if other["neighbour"] else "",
            f"{heard} (suspect)" if other["suspect"] else heard,
            str(other["revision"] or "–"),
            "yes" if other["attested"] else "no",
            "departed"
            if other["departed"]
            else "all"
            if other["erased"]
            else str(other["erasures"] or ""),
        )
    return table


_STYLES = {"parked": "green", "holding": "yellow", "solving": "yellow", "sending": "cyan"}
_REMARKS = dict.fromkeys(("notices", "lies"), "red") | dict.fromkeys(
    ("out", "data", "restarts", "concerns", "rounds"), "yellow"
)
