"""`unweave influence`: how far the posterior would move without each agent."""

from __future__ import annotations

import math
from typing import Any

from rich.table import Table

from unweave.cli.common import Folder, Json, console, emit_json
from unweave.errors import ConfigError

__all__ = ["influence"]


def influence(
    folder: Folder,
    json: Json = False,
) -> None:
    """KL of the posterior with and without each agent, the most influential first.

    Each agent computes its own influence on request, after the token was parked, and publishes no
    other number. Agents that do not answer (down, or on another machine) are shown with the last
    number that they published; forgotten and departed agents have no influence and are not shown.

    In a network with private rounds no agent publishes its influence: of a small model it nearly is
    the agent's data. Give an AGENT_DIR, and see the influence of this agent alone.

    Exit code 0, also if some agents do not answer; 1 if none does.

    Example:

        unweave influence clinics/agents/a1
    """

    from unweave.operations.cluster import open_cluster

    with open_cluster(folder) as agents:
        agents.any()
        statuses = agents.statuses()
        private = any(s.get("private_round") for s in statuses.values())
        if private and len(agents.folders) > 1:
            raise ConfigError(
                f"{folder}: influences are not published in a network with private rounds. Fix: "
                f"give the folder of your own agent, as in {next(iter(agents.folders.values()))}"
            )
        answers = {
            name: answer["influence"] for name, answer in agents.ask_all("influence").items()
        }
        found, silent = _influences(answers, statuses, agents.down)
    if json:
        emit_json({"influence": found, "no_answer": silent})
        return
    if any(s.get("complete") and not s["included"] for s in statuses.values()):
        console.print("The sum includes no agent, so no agent has influence.")
        return
    if not found:
        console.print("No influence yet: agents publish it after the token was parked.")
        if silent:
            console.print(f"No answer: {', '.join(silent)}")
        return
    table = Table()
    table.add_column("agent")
    table.add_column("influence", justify="right")
    notes = dict.fromkeys(silent, "no answer")
    for name in found:
        if name not in answers:
            notes[name] = "no answer; last published" if name in silent else "last published"
    if notes:
        table.add_column("note")
    for name, value in (found | {name: None for name in silent if name not in found}).items():
        shown = "∞" if name in found else "–"
        row = (name, shown if value is None else f"{value:.4g}", notes.get(name, ""))
        table.add_row(*row[: len(table.columns)])
    console.print(table)
    console.print("KL(posterior ‖ posterior without it), as each agent computed it", style="dim")


def _influences(
    answers: dict[str, dict[str, float | None]],
    statuses: dict[str, dict[str, Any]],
    down: list[str],
) -> tuple[dict[str, float | None], list[str]]:
    """The influences of included agents, the greatest first; and the included agents that do not
    answer or have published none."""
    found: dict[str, float | None] = {}
    for answer in answers.values():
        found |= answer
    for name, answer in answers.items():  # an agent's own number is the newest
        found |= {name: answer[name]} if name in answer else {}
    out = {
        name for s in statuses.values() for name in (*s.get("erased", ()), *s.get("departed", ()))
    }
    inside = {name for s in statuses.values() for name in s.get("included", ())}
    ordered = sorted(found.items(), key=lambda item: -math.inf if item[1] is None else -item[1])
    silent = sorted((inside & set(down) | inside - set(found)) - out - set(answers))
    return {name: value for name, value in ordered if name not in out}, silent
