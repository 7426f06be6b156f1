"""`unweave audit`: everybody adds up its factor again and attests the sum."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["audit"]


def audit(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A network's folder, or one agent's.")
    ],
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait.")] = 120.0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """One quiet cover: a second sum of all factors must equal the token, bit for bit.

    Exit code 1 if it does not come about in time; the message names who has not attested.

    Example:

        unweave audit clinics
    """
    from unweave.cli.common import console, emit_json, progress
    from unweave.cli.fleet import TimedOut, fleet, patiently

    with fleet(folder) as agents, progress(quiet=json) as bar:
        agent = agents.any().name
        before = agents.agents[agent].ask("rouse")["before"]
        task = bar.add_task("auditing", total=None)
        last: dict[str, Any] = {}
        for _ in patiently(timeout):
            answer = agents.again(agent, "status")
            if answer is None or "rest" not in answer["status"]:
                continue  # it is starting again
            last = answer["status"]
            fresh = last.get("rest") is not None and (before is None or last["rest"] > before)
            if fresh and last["resting"] is not None and _all(last, agents):
                break
            bar.update(task, description=f"auditing: {last.get('attested', 0)} attested")
        else:
            raise TimedOut(_who(last, agents.down))
    result = {
        "digest": last["digest"],
        "attested": last["attested"],
        "included": last["included"],
        "erased": last["erased"],
        "left": last["left"],
        "equal": True,
    }
    if json:
        emit_json(result)
    else:
        console.print(
            f"[green]The audit holds.[/green] {result['attested']} agents attested "
            f"{result['digest']}; {len(result['included'])} are included."
        )


def _all(status: dict[str, Any], agents: Any) -> bool:
    """A pending rest has fewer attestations than there are agents."""
    from unweave.node.config import AgentFolder

    folder = next(iter(agents.folders.values()))
    size = len(AgentFolder.read(folder).manifest.topology.agents)
    return int(status["attested"]) >= size - len(status["left"])


def _who(status: dict[str, Any], down: list[str]) -> str:
    missing = ", ".join(down or status.get("suspects", [])) or "an agent that is not here"
    return (
        f"the audit was not complete in time: {status.get('attested', 0)} agents have attested; "
        f"waiting for {missing}. Start it, wait longer (--timeout), or, if it is gone for good, "
        "`unweave forget DIR NAME --gone`"
    )
