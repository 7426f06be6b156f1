"""`unweave audit`: the agents sum their factors again and attest the sum."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["audit"]


def audit(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A network's folder, or one agent's.")
    ],
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait.")] = 120.0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """One attestation round: a second sum of all factors must equal the token, bit for bit.

    Exit code 1 on an audit mismatch, or if not all agents attest in time; the message names the
    agent that found the mismatch, or the agents that have not attested.

    Example:

        unweave audit clinics
    """
    from unweave.cli.common import check_timeout, console, emit_json, styled
    from unweave.cli.status import staying_out
    from unweave.cli.telling import telling
    from unweave.operations.cluster import open_cluster
    from unweave.operations.erase import audit_and_wait, mismatches

    check_timeout(timeout)
    with open_cluster(folder, timeout) as agents, telling("auditing", quiet=json) as tell:
        last = audit_and_wait(agents, timeout, tell=tell)
        statuses = agents.statuses()
        out = staying_out(statuses)
    result = {
        "digest": last["digest"],
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
                f" {attested} agent{'s' * (attested != 1)} attested {result['digest']}; "
                f"{included} {'is' if included == 1 else 'are'} included.",
            )
        )
        if result["missing"]:
            console.print(f"Not in the sum: {', '.join(result['missing'])}", markup=False)
        if result["mismatches"]:
            out.append(
                f"An earlier audit found a mismatch (at {', '.join(result['mismatches'])}), and "
                "the network rebuilt its token. A second mismatch halts the network: look for the "
                "cause in the agents' logs."
            )
        for line in out:
            console.print(line, style="yellow", soft_wrap=True)
