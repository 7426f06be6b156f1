"""`unweave posterior`: what the network has learned."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from unweave.node.fleet import Fleet

__all__ = ["posterior"]


def posterior(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A network's folder, or one agent's.")
    ],
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            help="Wait so long until agents run, everybody is in, and the fit is done.",
        ),
    ] = 0.0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """The posterior, as the agents of DIR know it (the newest complete one that any of them has).

    Exit code 1 while somebody is still missing in it: an incomplete sum is no posterior. A model
    that is not conjugate is fitted in passes: until the last one it is marked "still fitting".

    Examples:

        unweave posterior clinics

        unweave posterior clinics --wait 60

        unweave posterior clinics/agents/a1 --json
    """
    from unweave.cli.common import check_timeout, console, emit_json, progress
    from unweave.cli.status import staying_out
    from unweave.errors import UnweaveError
    from unweave.node.fleet import TimedOut, fleet, patiently

    if wait:
        check_timeout(wait, "--wait")
    with progress(quiet=json or not wait, counted=False) as bar:
        task = bar.add_task("waiting for the agents", total=None)
        for _ in patiently(wait, 0.2):
            with fleet(folder) as agents:
                found = _answers(agents)
            states = {report["state"] for report in found.values()}
            fitting = [one["fitting"] for one in found.values() if one["state"] == "complete"]
            if None in fitting or states == {"left"}:
                break
            if fitting:
                bar.update(task, description=f"fitting, pass {max(fitting)}")
                continue
            missing = {name for one in found.values() for name in one.get("missing", [])}
            late = ", ".join(sorted(missing)) or "the agents"
            bar.update(task, description=f"waiting for {late}")
    with fleet(folder) as agents:
        agents.any()
        found = _answers(agents)
        if found and all(report["state"] == "unknown" for report in found.values()):
            reason = _why_no_token(agents)
            found = {name: report | reason for name, report in found.items()}
        lacking = any(report["state"] == "incomplete" for report in found.values())
        out = staying_out(agents.statuses()) if lacking else []
    if not found:
        raise TimedOut(
            f"{', '.join(agents.down)} of {folder} did not answer: frozen, or very busy; look at "
            "agent.log in its folder, or ask again"
        )
    best = max(found.values(), key=_worth)
    digests = {report.get("digest") for report in found.values() if report["state"] == "complete"}
    best = best | {"agreed": len(digests) == 1, "known_to": _known(found, best)}
    if json:
        emit_json(best)
    elif best["state"] == "left":
        raise UnweaveError(f"{', '.join(found)}: {best['why']}")
    else:
        _show(console, best)
        for line in out:
            console.print(line, style="yellow", highlight=False, markup=False, soft_wrap=True)
    if best["state"] not in ("complete", "unconfirmed"):
        raise typer.Exit(1)


_ORDER = ("left", "unknown", "incomplete", "unconfirmed", "complete")


def _answers(agents: Fleet) -> dict[str, dict[str, Any]]:
    return {name: answer["posterior"] for name, answer in agents.ask_all("posterior").items()}


def _why_no_token(agents: Fleet) -> dict[str, Any]:
    """Who is missing, if nobody has had the token: one agent opens the first one."""
    from unweave.node.config import AgentFolder

    terms = AgentFolder.read(next(iter(agents.folders.values()))).manifest.terms()
    first = terms.name(terms.genesis)
    if first in agents.down:
        how = f"start it with `unweave agent {agents.folders[first]}`"
        why = f"{first}, which opens the first token, does not run: {how}"
        return {"why": f"no token has been here yet: {why}", "missing": [first]}
    statuses = agents.statuses()
    unheard = {
        name
        for status in statuses.values()
        for name, other in status.get("others", {}).items()
        if other["neighbour"] and other["heard_seconds_ago"] is None and name not in statuses
    }
    why = f"{first} opens the first one"
    if first not in agents.folders:
        why += " (elsewhere: ask its operator whether it runs)"
    if unheard:
        why += f"; not heard yet: {', '.join(sorted(unheard))}"
    return {"why": f"no token has been here yet: {why}", "missing": sorted(unheard)}


def _worth(report: dict[str, Any]) -> tuple[int, int, bool]:
    included = len(report.get("included", []))
    return _ORDER.index(report["state"]), included, report.get("fitting") is None


def _known(found: dict[str, dict[str, Any]], best: dict[str, Any]) -> list[str]:
    return [name for name, report in found.items() if report.get("digest") == best.get("digest")]


def _show(console: Any, report: dict[str, Any]) -> None:
    from rich.table import Table

    if "marginals" not in report:
        missing = ", ".join(report.get("missing", []))
        why = report.get("why") or f"still missing: {missing}"
        said = f"{report['state']}: {why}; wait for it with --wait 60"
        console.print(said, highlight=False, markup=False, soft_wrap=True)
        return
    count = len(report["included"])
    table = Table(title=f"{report['model']}, {count} agent{'s' * (count != 1)} included")
    for column in ("", "mean", "sd", "95% from", "to"):
        table.add_column(column, justify="left" if not column else "right")
    for row in report["marginals"]:
        table.add_row(
            row["name"],
            *("–" if row[k] is None else f"{row[k]:.6g}" for k in ("mean", "sd", "low", "high")),
        )
    console.print(table)
    console.print(f"digest {report['digest']}", highlight=False, soft_wrap=True)
    if report.get("fitting") is not None:
        console.print(
            f"[yellow]still fitting[/yellow]: pass {report['fitting']}; the numbers still change",
            highlight=False,
        )
    if report["state"] != "complete":
        missing = ", ".join(report["missing"]) or "a neighbour's confirmation"
        console.print(f"[yellow]{report['state']}[/yellow]: waiting for {missing}")
