"""`unweave posterior`: what the network has learned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["posterior"]


def posterior(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A network's folder, or one agent's.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """The posterior, as the agents of DIR know it (the newest complete one that any of them has).

    Exit code 1 while somebody is still missing in it: an incomplete sum is no posterior.

    Examples:

        unweave posterior clinics

        unweave posterior clinics/agents/a1 --json
    """
    from unweave.cli.common import console, emit_json
    from unweave.node.fleet import fleet

    with fleet(folder) as agents:
        agents.any()
        found = {name: agents.of(name).ask("posterior")["posterior"] for name in [*agents.agents]}
    best = max(found.values(), key=_worth)
    digests = {report.get("digest") for report in found.values() if report["state"] == "complete"}
    best = best | {"agreed": len(digests) == 1, "known_to": _known(found, best)}
    if json:
        emit_json(best)
    else:
        _show(console, best)
    if best["state"] not in ("complete", "unconfirmed"):
        raise typer.Exit(1)


def _worth(report: dict[str, Any]) -> tuple[int, int]:
    order = ("unknown", "incomplete", "unconfirmed", "complete")
    return order.index(report["state"]), len(report.get("included", []))


def _known(found: dict[str, dict[str, Any]], best: dict[str, Any]) -> list[str]:
    return [name for name, report in found.items() if report.get("digest") == best.get("digest")]


def _show(console: Any, report: dict[str, Any]) -> None:
    from rich.table import Table

    if "marginals" not in report:
        missing = ", ".join(report.get("missing", []))
        console.print(f"{report['state']}: {report.get('why') or 'still missing: ' + missing}")
        return
    table = Table(title=f"{report['model']}, {len(report['included'])} agents included")
    for column in ("", "mean", "sd", "95% from", "to"):
        table.add_column(column, justify="left" if not column else "right")
    for row in report["marginals"]:
        table.add_row(
            row["name"],
            *("–" if row[k] is None else f"{row[k]:.6g}" for k in ("mean", "sd", "low", "high")),
        )
    console.print(table)
    console.print(f"digest {report['digest']}", highlight=False)
    if report["state"] != "complete":
        missing = ", ".join(report["missing"]) or "a neighbour's confirmation"
        console.print(f"[yellow]{report['state']}[/yellow]: waiting for {missing}")
