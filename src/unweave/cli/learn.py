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

    Exit code 2 (or 1) if an agent's data are refused; the others learn nevertheless.

    Example:

        unweave learn clinics/agents/a1
    """
    from unweave.cli.common import console, emit_json, errors
    from unweave.errors import UnweaveError
    from unweave.node.fleet import GONE, fleet

    with fleet(folder, timeout=600.0) as agents, errors.status("reading the data …"):
        agents.any()
        answers = agents.ask_each("learn")
        statuses = agents.statuses()
    wrong = {name: why for name, why in answers.items() if isinstance(why, UnweaveError)}
    changed = {name: a["changed"] for name, a in answers.items() if isinstance(a, dict)}
    gone = {name for s in statuses.values() for name in s.get("left", ())}
    erased = {name for s in statuses.values() for name in s.get("erased", ())}
    if json:
        emit_json({"changed": changed, "refused": {name: str(wrong[name]) for name in wrong}})
    for name in () if json else agents.folders:
        if name in gone:
            said = GONE
        elif name in erased:
            said = "was forgotten, and stays out: its data are not looked at"
        elif name in wrong:
            said = f"refused: {str(wrong[name]).removeprefix(f'{name}: ')}"
        elif name not in changed:
            said = "does not answer; it will look at its data when it starts"
        else:
            said = "new data, on their way" if changed[name] else "nothing has changed"
        console.print(f"{name}: {said}", highlight=False, markup=False, soft_wrap=True)
    if wrong:
        raise typer.Exit(max(error.exit_code for error in wrong.values()))
