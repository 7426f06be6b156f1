"""`unweave posterior`: the network's posterior."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from unweave.cli.common import (
    Folder,
    Json,
    check_timeout,
    console,
    emit_json,
    progress,
    quote,
    say,
    styled,
)
from unweave.errors import ConfigError, UnweaveError
from unweave.text import count

if TYPE_CHECKING:
    from unweave.models import Posterior

__all__ = ["posterior"]


def posterior(
    folder: Folder,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            help="Wait until agents run, all are included, and the fit is done.",
        ),
    ] = 0.0,
    draws: Annotated[
        int, typer.Option("--draws", metavar="N", help="Write N independent draws to --out.")
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="The file of the draws: .csv or .parquet."
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="Seed of the draws.")] = 0,
    covariance: Annotated[
        bool, typer.Option("--covariance", help="Also show the covariance matrix.")
    ] = False,
    sum_file: Annotated[
        Path | None,
        typer.Option("--sum", metavar="FILE", help="Write the sum, for `unweave verify --sum`."),
    ] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option("--secret", metavar="FILE", help="With --sum: write its secret."),
    ] = None,
    json: Json = False,
) -> None:
    """The newest complete posterior that the agents of DIR know.

    Exit code 1 while an agent is missing in it: an incomplete sum is no posterior. A model that is
    not conjugate is fitted in passes; until the last pass the posterior is marked "still fitting".
    A sum that holds data which any agent of DIR knows to be erased is never shown; a sum with a
    pending erasure is marked. If no agent runs, the command reads the stores and shows their time.
    After an audit failure (two audit mismatches) there is no posterior.

    A certificate names its sum by a commitment, which says nothing about it. `--sum` and `--secret`
    write what opens it (mode 0600): show them only to those who may know the sum. Agents keep the
    secret until the next attestation round.

    Examples:

        unweave posterior clinics

        unweave posterior clinics --wait 60

        unweave posterior clinics/agents/a1 --json

        unweave posterior clinics --draws 4000 --out draws.parquet

        unweave posterior clinics --sum sum.bin --secret secret.txt
    """
    from unweave.node.api.report import NO_TOKEN
    from unweave.node.storage.atomic import check_writable
    from unweave.operations.cluster import LOOK, TimedOut, open_cluster, wait_until
    from unweave.operations.diagnose import why_no_token
    from unweave.operations.reading import WHOLE, ask_posteriors, newest, read_posteriors
    from unweave.operations.status import staying_out
    from unweave.operations.tables import check_output, posterior_of, write_table

    if bool(draws) != (out is not None):
        raise ConfigError("--draws and --out belong together. Fix: --draws 4000 --out draws.csv")
    if out is not None:
        check_output(out)
    if (sum_file is None) != (secret_file is None):
        raise ConfigError("--sum and --secret belong together. Fix: --sum sum.bin --secret key.txt")
    for file in (sum_file, secret_file):
        if file is not None:
            check_writable(file)
    if wait:
        check_timeout(wait, "--wait")
    began = time.monotonic()
    with progress(quiet=json or not wait, counted=False) as bar:
        task = bar.add_task("waiting for the agents", total=None)
        for remaining in wait_until(wait, 0.2):
            with open_cluster(folder, min(LOOK, remaining)) as agents:
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
    remaining = began + wait - time.monotonic() if wait else LOOK
    with open_cluster(folder, max(1.0, min(LOOK, remaining))) as agents:
        stopped = not agents.agents
        found = read_posteriors(agents) if stopped else ask_posteriors(agents)
        if stopped and not found:
            agents.any()  # raises, with the command to start them
        if found and all(report.get("why") == NO_TOKEN for report in found.values()):
            reason = why_no_token(agents)
            found = {name: report | reason for name, report in found.items()}
        lacking = any(report["state"] == "incomplete" for report in found.values())
        apart = staying_out(agents.statuses()) if lacking and not stopped else []
        frozen = [f"{name}: {why}" for name, why in agents.frozen().items()]
    if not found:
        raise TimedOut(
            "; ".join(frozen)
            or f"{', '.join(agents.down)} did not answer. Fix: see `unweave status {quote(folder)}`"
        )
    best = newest(found)
    digests = {report.get("digest") for report in found.values() if report["state"] == "complete"}
    best = best | {"agreed": len(digests) == 1, "known_to": _known(found, best), "stopped": stopped}
    whole = best["state"] in WHOLE and "marginals" in best
    fitted = posterior_of(folder, best) if whole and (draws or covariance) else None
    if fitted is not None and out is not None:
        write_table(out, [fitted.draws(draws, seed)])
    if whole and sum_file is not None and secret_file is not None:
        _write_sum(folder, best, sum_file, secret_file)
    if fitted is not None and covariance:
        best["covariance"] = _matrix(fitted)
    if json:
        emit_json(best)
    elif best["state"] in ("departed", "audit_failed"):
        raise UnweaveError(f"{', '.join(found)}: {best['why']}")
    else:
        _show(console, best)
        if "covariance" in best:
            _show_covariance(console, best)
        if fitted is not None and out is not None:
            say(f"Wrote {count(draws, 'draw')} to {out}.")
        if whole and sum_file is not None:
            say(f"Wrote the sum to {sum_file}, and its secret to {secret_file}.")
        say(*_behind(found, best), *apart, *frozen, style="yellow")
        if stopped:
            start = "agent" if folder in agents.folders.values() else "up"
            line = f"as of {best['as_of']}: the network is stopped; start it with "
            say(f"{line}`unweave {start} {quote(folder)}`", style="yellow")
    if best["state"] not in WHOLE:
        raise typer.Exit(1)


def _write_sum(folder: Path, best: dict[str, Any], sum_file: Path, secret_file: Path) -> None:
    """The sum as the bytes under the commitment, and the secret in hex: both private."""
    from unweave.grid import digest
    from unweave.node.storage.atomic import unwritable, write_atomic
    from unweave.operations.cluster import LOOK, open_cluster
    from unweave.operations.reading import read_sum

    with open_cluster(folder, LOOK) as agents:
        units, secret = read_sum(agents, best["known_to"][0])
    if digest(units).hex() != best["digest"]:
        raise UnweaveError("the sum has changed meanwhile. Fix: repeat the command")
    for path, content in (
        (sum_file, units.astype("<i8").tobytes()),
        (secret_file, secret.hex().encode() + b"\n"),
    ):
        try:
            write_atomic(path, content)
        except OSError as error:
            raise unwritable(path, error) from None


def _matrix(fitted: Posterior) -> list[list[float | None]]:
    """The covariance; None where a moment does not exist."""
    from unweave.families.marginals import finite

    return [[finite(value) for value in row] for row in fitted.covariance()]


def _show_covariance(console: Any, report: dict[str, Any]) -> None:
    names = [row["name"] for row in report["marginals"]]
    table = Table(title="Covariance")
    for name in ("", *names):
        table.add_column(name, justify="left" if not name else "right")
    for name, row in zip(names, report["covariance"], strict=False):
        table.add_row(name, *("–" if value is None else f"{value:.6g}" for value in row))
    console.print(table)


def _behind(found: dict[str, dict[str, Any]], best: dict[str, Any]) -> list[str]:
    """The agents that have another sum than the shown one."""
    if "digest" not in best:
        return []
    others: dict[str, list[str]] = {}
    for name, report in found.items():
        if report.get("digest") not in (None, best["digest"]):
            others.setdefault(report["digest"], []).append(name)
    if not others:
        return []
    lines = [f"{', '.join(best['known_to'])}: this sum, the newest; not all agents have it yet:"]
    return lines + [
        f"{', '.join(names)}: another sum, {digest[:12]}" for digest, names in others.items()
    ]


def _known(found: dict[str, dict[str, Any]], best: dict[str, Any]) -> list[str]:
    return [name for name, report in found.items() if report.get("digest") == best.get("digest")]


def _show(console: Any, report: dict[str, Any]) -> None:
    from unweave.node.api.report import NO_MORE

    if "marginals" not in report:
        missing = ", ".join(report.get("missing", []))
        why = report.get("why") or f"still missing: {missing}"
        line = f"{report['state']}: {why}"
        waits = not report.get("stopped") and NO_MORE not in why
        line += "; wait for it with --wait 60" if waits else ""
        say(line)
        return
    table = Table(title=f"{report['model']}, {count(len(report['included']), 'agent')} included")
    for column in ("", "mean", "sd", "95% from", "to"):
        table.add_column(column, justify="left" if not column else "right")
    for row in report["marginals"]:
        table.add_row(
            row["name"],
            *("–" if row[k] is None else f"{row[k]:.6g}" for k in ("mean", "sd", "low", "high")),
        )
    console.print(table)
    if "noise" in report:
        say("With noise for differential privacy; the intervals know of it.")
    if "remark" in report:
        say(report["remark"], style="yellow")
    say(f"digest {report['digest']}")
    if report.get("fitting") is not None:
        why = f": pass {report['fitting']}; the numbers still change"
        console.print(styled(("still fitting", "yellow"), why))
    if report.get("erasure_pending"):
        why = f": the sum still has the data of {', '.join(report['erasure_pending'])}"
        console.print(styled(("an erasure is pending", "yellow"), why))
    if report["state"] != "complete":
        missing = ", ".join(report["missing"]) or "a neighbour's confirmation"
        console.print(styled((report["state"], "yellow"), f": waiting for {missing}"))
