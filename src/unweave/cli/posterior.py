"""`unweave posterior`: what the network has learned."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from unweave.operations.cluster import Cluster

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
    that is not conjugate is fitted in passes: until the last one it is marked "still fitting". A
    sum that holds what any agent here knows to be erased is never shown; one from which an erasure
    has still to be taken out is marked. If no agent runs, the stores are read, and the result says
    as of when. A network that halted after two failed audits has no posterior.

    Examples:

        unweave posterior clinics

        unweave posterior clinics --wait 60

        unweave posterior clinics/agents/a1 --json
    """
    from unweave.cli.common import check_timeout, console, emit_json, progress, quote
    from unweave.cli.status import staying_out
    from unweave.errors import UnweaveError
    from unweave.node.api.client import asleep, lives
    from unweave.node.api.report import NO_TOKEN
    from unweave.operations.cluster import LOOK, TimedOut, open_cluster, wait_until
    from unweave.operations.reading import WHOLE, ask_posteriors, newest, read_posteriors

    if wait:
        check_timeout(wait, "--wait")
    began = time.monotonic()
    with progress(quiet=json or not wait, counted=False) as bar:
        task = bar.add_task("waiting for the agents", total=None)
        for left in wait_until(wait, 0.2):
            with open_cluster(folder, min(LOOK, left)) as agents:
                best = newest(ask_posteriors(agents))
            if best["state"] in ("departed", "audit_failed") or (
                best["state"] == "complete" and best["fitting"] is None
            ):
                break
            if best["state"] == "complete":
                bar.update(task, description=f"fitting, pass {best['fitting']}")
                continue
            late = ", ".join(best.get("missing", ())) or "the agents"
            bar.update(task, description=f"waiting for {late}")
    left = began + wait - time.monotonic() if wait else LOOK
    with open_cluster(folder, max(1.0, min(LOOK, left))) as agents:
        stopped = not agents.agents
        found = read_posteriors(agents) if stopped else ask_posteriors(agents)
        if stopped and not found:
            agents.any()  # says how to start them
        if found and all(report.get("why") == NO_TOKEN for report in found.values()):
            reason = _why_no_token(agents)
            found = {name: report | reason for name, report in found.items()}
        lacking = any(report["state"] == "incomplete" for report in found.values())
        out = staying_out(agents.statuses()) if lacking and not stopped else []
        frozen = [f"{name}: {asleep(pid)}" for name, pid in agents.silent.items() if lives(pid)]
    if not found:
        raise TimedOut("; ".join(frozen) or f"{', '.join(agents.down)} of {folder} did not answer")
    best = newest(found)
    digests = {report.get("digest") for report in found.values() if report["state"] == "complete"}
    best = best | {"agreed": len(digests) == 1, "known_to": _known(found, best), "stopped": stopped}
    if json:
        emit_json(best)
    elif best["state"] in ("departed", "audit_failed"):
        raise UnweaveError(f"{', '.join(found)}: {best['why']}")
    else:
        _show(console, best)
        for line in (*_behind(found, best), *out, *frozen):
            console.print(line, style="yellow", soft_wrap=True)
        if stopped:
            how = "agent" if folder in agents.folders.values() else "up"
            said = f"as of {best['as_of']}: the network is stopped; start it with "
            console.print(f"{said}`unweave {how} {quote(folder)}`", style="yellow", soft_wrap=True)
    if best["state"] not in WHOLE:
        raise typer.Exit(1)


def _behind(found: dict[str, dict[str, Any]], best: dict[str, Any]) -> list[str]:
    """Who has another sum than the one that is shown."""
    if "digest" not in best:
        return []
    others: dict[str, list[str]] = {}
    for name, report in found.items():
        if report.get("digest") not in (None, best["digest"]):
            others.setdefault(report["digest"], []).append(name)
    if not others:
        return []
    lines = [f"known to {', '.join(best['known_to'])}: the newest; not everybody has heard of it:"]
    return lines + [
        f"{', '.join(names)}: another one, {digest[:12]}" for digest, names in others.items()
    ]


def _why_no_token(agents: Cluster) -> dict[str, Any]:
    """Who is missing, if nobody has had the token: one agent opens the first one."""
    from unweave.cli.common import quote
    from unweave.node.config import AgentFolder

    terms = AgentFolder.read(next(iter(agents.folders.values()))).manifest.terms()
    first = terms.name(terms.genesis)
    if first in agents.down:
        how = f"start it with `unweave agent {quote(agents.folders[first])}`"
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


def _known(found: dict[str, dict[str, Any]], best: dict[str, Any]) -> list[str]:
    return [name for name, report in found.items() if report.get("digest") == best.get("digest")]


def _show(console: Any, report: dict[str, Any]) -> None:
    from rich.table import Table

    from unweave.cli.common import styled

    if "marginals" not in report:
        missing = ", ".join(report.get("missing", []))
        why = report.get("why") or f"still missing: {missing}"
        said = f"{report['state']}: {why}"
        said += "" if report.get("stopped") else "; wait for it with --wait 60"
        console.print(said, soft_wrap=True)
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
    console.print(f"digest {report['digest']}", soft_wrap=True)
    if report.get("fitting") is not None:
        why = f": pass {report['fitting']}; the numbers still change"
        console.print(styled(("still fitting", "yellow"), why))
    if report.get("erasure_pending"):
        why = f": {', '.join(report['erasure_pending'])} asked, and the sum still has the data"
        console.print(styled(("an erasure is pending", "yellow"), why))
    if report["state"] != "complete":
        missing = ", ".join(report["missing"]) or "a neighbour's confirmation"
        console.print(styled((report["state"], "yellow"), f": waiting for {missing}"))
