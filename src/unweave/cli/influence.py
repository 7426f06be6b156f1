"""`unweave influence`: how far the posterior would move without each agent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["influence"]


def influence(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A network's folder, or one agent's.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """KL of the posterior with and without each agent, the most influential first.

    Each agent computes its own number when it is asked, once the token has come to rest, and
    publishes nothing else. Agents elsewhere are shown with what they last published.

    Example:

        unweave influence clinics
    """
    from rich.table import Table

    from unweave.cli.common import console, emit_json
    from unweave.node.fleet import fleet

    found: dict[str, float | None] = {}
    with fleet(folder) as agents:
        agents.any()
        answers = {
            name: answer["influence"] for name, answer in agents.ask_all("influence").items()
        }
    for told in answers.values():
        found |= told
    for name, told in answers.items():  # of itself, an agent knows best
        found |= {name: told[name]} if name in told else {}
    ordered = dict(sorted(found.items(), key=lambda item: -(item[1] or float("inf"))))
    if json:
        emit_json({"influence": ordered})
        return
    table = Table()
    table.add_column("agent")
    table.add_column("influence", justify="right")
    for name, value in ordered.items():
        table.add_row(name, "∞" if value is None else f"{value:.4g}")
    if not ordered:
        console.print("Nothing yet: influence is published when the token has come to rest.")
        return
    console.print(table)
    console.print("KL(posterior ‖ posterior without it), as each agent computed it", style="dim")
