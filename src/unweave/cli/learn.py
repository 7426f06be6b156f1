"""`unweave learn`: make agents read their data again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.common import Json, check_timeout, emit_json, errors, say
from unweave.errors import UnweaveError
from unweave.text import due

__all__ = ["learn"]


def learn(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="An agent's folder, or a network's.")
    ],
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds for all agents to read their data.")
    ] = 120.0,
    json: Json = False,
) -> None:
    """Read the data again: changed data become a new revision. Erased records stay erased.

    Where the manifest has `publish`, changed data may wait for others; the command says until when.

    Exit code 2 (or 1) if an agent's data are refused, 1 if an agent runs and does not answer; the
    other agents learn nevertheless.

    Example:

        unweave learn clinics/agents/a1
    """
    import time

    from unweave.node.api.report import DEPARTED
    from unweave.operations.cluster import LOOK, open_cluster
    from unweave.operations.status import departed_agents

    check_timeout(timeout)
    end = time.monotonic() + timeout
    with open_cluster(folder, timeout) as agents, errors.status("reading the data …"):
        agents.any()
        statuses = agents.statuses(min(LOOK, timeout))  # finds frozen agents within a short wait
        answers = agents.ask_each("learn", max(0.1, end - time.monotonic()))
    silent = {
        name: f"did not answer within {timeout:g} s: {why}; the request was sent, and is carried "
        "out later"
        if name in statuses
        else f"was not asked: {why}; then run the command again"
        for name, why in agents.frozen().items()
    }
    wrong = {name: why for name, why in answers.items() if isinstance(why, UnweaveError)}
    changed = {name: a["changed"] for name, a in answers.items() if isinstance(a, dict)}
    waits = {name: due(a["by"]) for name, a in answers.items() if isinstance(a, dict) and "by" in a}
    departed = departed_agents(statuses)
    erased = {name for s in statuses.values() for name in s.get("erased", ())}
    if json:
        refused = {name: str(why) for name, why in wrong.items()}
        told = {"changed": changed, "refused": refused, "silent": silent}
        emit_json(told | ({"waiting": waits} if waits else {}))
    for name in () if json else agents.folders:
        if name in departed:
            result = DEPARTED
        elif name in erased:
            result = "was forgotten: its data are not read"
        elif name in wrong:
            result = f"refused: {str(wrong[name]).removeprefix(f'{name}: ')}"
        elif name in silent:
            result = silent[name]
        elif name not in changed:
            result = "does not answer; it will read its data when it starts"
        elif name in waits:
            result = f"new data; they wait for changes of others, until {waits[name]} at the latest"
        else:
            result = "new data, added at the next visit" if changed[name] else "no change"
        say(f"{name}: {result}")
    if wrong or silent:
        raise typer.Exit(max([1, *(error.exit_code for error in wrong.values())]))
