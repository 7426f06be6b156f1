"""`unweave learn`: look at an agent's data again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["learn"]


def learn(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="An agent's folder, or a network's.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Pick up new rows: what changed travels as a new revision. Erased records stay erased.

    Example:

        unweave learn clinics/agents/a1
    """
    from unweave.cli.common import console, emit_json
    from unweave.node.fleet import fleet

    with fleet(folder, timeout=600.0) as agents:
        agents.any()
        changed = {name: agent.ask("learn")["changed"] for name, agent in agents.agents.items()}
    if json:
        emit_json({"changed": changed})
        return
    for name, new in changed.items():
        console.print(f"{name}: {'new data, on their way' if new else 'nothing has changed'}")
