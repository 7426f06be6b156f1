"""`unweave status`: who is there, who holds the token, who is in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["data_problems", "gone_agents", "notices", "status", "status_table", "staying_out"]


def status(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A network's folder, or one agent's.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """What every agent of DIR knows. With one AGENT_DIR: what that agent knows of the others.

    Exit code 1 if an agent does not answer that was not declared gone by a quorum.

    Examples:

        unweave status clinics

        unweave status clinics/agents/a1 --json
    """
    from unweave.cli.common import command, console, emit_json, errors, quote
    from unweave.node.api.client import asleep, lives
    from unweave.operations.cluster import LOOK, open_cluster

    with open_cluster(folder, LOOK) as agents, errors.status("asking …"):
        found = agents.statuses()
        left = gone_agents(found)
        gone = [name for name in agents.down if name in left]
        down = [name for name in agents.down if name not in left]
    if json:
        emit_json({"agents": found, "down": down, "gone": gone})
    else:
        places = _places(agents.folders, found)
        console.print(status_table(found, agents.down, places))
        if not _wide():
            console.print(_places_table(found, agents.down, places))
        for name, pid in sorted(agents.silent.items()):
            how = asleep(pid) if lives(pid) else "it has just stopped; agent.log may say why"
            said = f"{name} did not answer in time: {how}"
            console.print(said, style="yellow", soft_wrap=True)
        if not found and not agents.silent:
            how = "agent" if folder in agents.folders.values() else "up"
            console.print("Nobody answers. Start with")
            command(f"unweave {how} {quote(folder)}")
        for line in (*notices(found), *staying_out(found), *data_problems(found)):
            console.print(line, style="yellow", soft_wrap=True)
        if len(agents.folders) == 1 and found:
            console.print(_others_table(next(iter(found.values()))))
    if down:
        raise typer.Exit(1)


def notices(found: dict[str, dict[str, Any]]) -> list[str]:
    """Why agents show no sum any more; agents with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for name, status in found.items():
        if status.get("notice"):
            reasons.setdefault(status["notice"], []).append(name)
    return [f"{', '.join(names)}: {why}" for why, names in reasons.items()]


def staying_out(found: dict[str, dict[str, Any]]) -> list[str]:
    """Who has tried to be in the sum and cannot, and why; agents with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for name, status in found.items():
        if status.get("stays_out"):
            reasons.setdefault(status["stays_out"], []).append(name)
    return [
        f"{', '.join(names)} {'stay' if len(names) > 1 else 'stays'} out: {why}"
        for why, names in reasons.items()
    ]


def data_problems(found: dict[str, dict[str, Any]]) -> list[str]:
    """Whose data could not be used at the last look; what was learned of them stays in the sum."""
    return [
        f"{name} goes on with what it has learned: {status['data_problem']}"
        for name, status in found.items()
        if status.get("data_problem")
    ]


def gone_agents(found: dict[str, dict[str, Any]]) -> set[str]:
    """Who was voted out, as far as anybody here knows."""
    return {name for s in found.values() for name in s.get("departed", [])}


def _wide() -> bool:
    """Whether there is room for addresses: without them the table fits 80 columns."""
    from unweave.cli.common import console

    return console.width >= 110


def _places(folders: dict[str, Path], found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Where each agent listens, or would, if it ran."""
    from unweave.errors import UnweaveError
    from unweave.node.config import AgentFolder

    places = {name: str(s.get("address") or "") for name, s in found.items()}
    for name in folders.keys() - found.keys():
        try:
            home = AgentFolder.read(folders[name])
        except UnweaveError:
            continue  # `unweave check` says what is wrong with it
        places[name] = home.config.listen or home.manifest.agent(name).address or ""
    return places


def _places_table(
    found: dict[str, dict[str, Any]], down: list[str], places: Mapping[str, str]
) -> Table:
    from rich.table import Table

    table = Table()
    for name in ("agent", "address", "pid"):
        table.add_column(name, overflow="fold")
    for name in (*found, *down):
        table.add_row(name, places.get(name, ""), str(found.get(name, {}).get("pid", "")))
    return table


def status_table(
    found: dict[str, dict[str, Any]], down: list[str], places: Mapping[str, str] | None = None
) -> Table:
    from rich.table import Table

    from unweave.cli.common import styled

    table = Table(title="Agents")
    wide = _wide()
    for name in ("agent", *(("address", "pid") if wide else ()), "phase"):
        table.add_column(name, no_wrap=True)
    for name in ("epoch", "hop", "rev.", "in"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("digest", no_wrap=True)
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
            (s.get("digest") or "")[:12],
            _erased(s),
        )
    gone = gone_agents(found)
    for name in down:
        phase = styled("gone" if name in gone else ("down", "red"))
        where = ((places or {}).get(name, ""), "") if wide else ()
        table.add_row(name, *where, phase, *[""] * 6)
    return table


def _erased(status: dict[str, Any]) -> str:
    """Whole agents, as this one knows of them; of single records it knows its own number alone."""
    own = status.get("erased_records", 0)
    parts = [f"{own} record{'s' * (own != 1)}"] if own else []
    return ", ".join([*parts, *status.get("erased", []), *_left(status)])


def _left(status: dict[str, Any]) -> list[str]:
    return [f"{name} (gone)" for name in status.get("departed", [])]


def _others_table(status: dict[str, Any]) -> Table:
    """What one agent knows of the others."""
    from rich.table import Table

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
            "gone"
            if other["departed"]
            else "all"
            if other["erased"]
            else str(other["erasures"] or ""),
        )
    return table


_STYLES = {"parked": "green", "holding": "yellow", "solving": "yellow", "sending": "cyan"}
