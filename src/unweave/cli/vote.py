"""`unweave vote`: an operator's vote that another agent has departed, or has lied."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.common import Json, complete_agent, console, emit_json
from unweave.errors import ConfigError

__all__ = ["vote"]


_HEX = re.compile("[0-9a-fA-F]{32}")


def vote(
    folder: Annotated[Path, typer.Argument(metavar="AGENT_DIR", help="The folder of YOUR agent.")],
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="The agent that will never run again, or that has lied.",
            autocompletion=complete_agent,
        ),
    ],
    request: Annotated[
        str | None,
        typer.Option("--request", help="The request's id; default: the one already voted on."),
    ] = None,
    lying: Annotated[
        bool,
        typer.Option(
            "--lying", help="NAME runs, but has lied (see `unweave status`): vote it out at once."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Vote that NAME has departed. A majority of all agents removes its contribution for good.

    An agent refuses to vote while it hears NAME, unless NAME has lied (`--lying`): your agent's
    status and log show a proof, or you have other reasons. A departure cannot be undone. A vote
    does not change NAME's own data.

    Example:

        unweave vote clinics/agents/a5 a4
    """
    from unweave.operations.cluster import open_cluster

    if request is not None and not _HEX.fullmatch(request):
        raise ConfigError(
            f"--request {request}: not a request's id. Fix: give the 32 hexadecimal digits that "
            "`unweave vote … --json` shows, or leave --request out"
        )
    with open_cluster(folder) as agents:
        if len(agents.folders) > 1:
            raise ConfigError(
                f"{folder}: a vote is one agent's, and this folder has several. Fix: name the "
                f"folder of your agent, e.g. {next(iter(agents.folders.values()))}"
            )
        agent = agents.any()
        known = agent.ask("status")["status"].get("departed_requests", {}).get(name)
        answer = agent.ask("vote", agent=name, request=request or known, lying=lying)
    if json:
        emit_json(answer)
    else:
        console.print(f"{answer['votes']} of {answer['quorum']} votes that {name} has departed.")
