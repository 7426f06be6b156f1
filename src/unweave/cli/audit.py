"""`unweave audit`: the agents sum their factors again and attest the sum."""

from __future__ import annotations

from typing import Annotated

import typer

from unweave.cli.common import (
    Folder,
    Json,
    check_timeout,
    console,
    emit_json,
    live_text,
    say,
    styled,
)
from unweave.text import count

__all__ = ["audit"]


def audit(
    folder: Folder,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait.")] = 120.0,
    json: Json = False,
) -> None:
    """One attestation round: a second sum of all factors must equal the token, bit for bit.

    Exit code 1 on an audit mismatch, or if not all agents attest in time; the message names the
    agent that found the mismatch, or the agents that have not attested.

    Example:

        unweave audit clinics
    """
    from unweave.operations.cluster import open_cluster
    from unweave.operations.erase import audit_and_wait, mismatches
    from unweave.operations.status import staying_out

    check_timeout(timeout)
    with open_cluster(folder, timeout) as agents, live_text("auditing", quiet=json) as tell:
        last = audit_and_wait(agents, timeout, tell=tell)
        statuses = agents.statuses()
        out = staying_out(statuses)
    result = {
        "commitment": last["commitment"],
        "attested": last["attested"],
        "included": last["included"],
        "erased": last["erased"],
        "departed": last["departed"],
        "missing": last["missing"],
        "equal": True,  # else audit_and_wait has raised
        "mismatches": mismatches([last, *statuses.values()]),
    }
    if json:
        emit_json(result)
    else:
        attested, included = result["attested"], len(result["included"])
        console.print(
            styled(
                ("The audit holds.", "green"),
                f" {count(attested, 'agent')} attested {result['commitment']}; "
                f"{included} {'is' if included == 1 else 'are'} included.",
            )
        )
        if result["missing"]:
            console.print(f"Not in the sum: {', '.join(result['missing'])}")
        if result["mismatches"]:
            out.append(
                f"An earlier audit found a mismatch (at {', '.join(result['mismatches'])}), and "
                "the network rebuilt its token. A mismatch at another agent stops the network. "
                "Fix: look for the cause in the agents' logs"
            )
        say(*out, style="yellow")
