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
    from unweave.cli.common import console, emit_json, errors
    from unweave.node.fleet import fleet

    with fleet(folder, timeout=600.0) as agents, errors.status("reading the data …"):
        agents.any()
        changed = {name: answer["changed"] for name, answer in agents.ask_all("learn").items()}
    if json:
        emit_json({"changed": changed})
        return
    for name in agents.folders:
        if name not in changed:
            said = "does not answer; it will look at its data when it starts"
        else:
            said = "new data, on their way" if changed[name] else "nothing has changed"
        console.print(f"{name}: {said}", highlight=False, markup=False)
