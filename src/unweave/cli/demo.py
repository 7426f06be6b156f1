"""`unweave demo`: five real agents learn, forget and prove it, on a small real data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from unweave.cli.common import Json, command, console, emit_json, progress, quote, say, styled
from unweave.errors import ConfigError

if TYPE_CHECKING:
    from unweave.demo import Scenario
    from unweave.demo.network import NetworkRun

__all__ = ["demo"]


_TICKS = 12


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where pictures and report go.")
    ] = Path("demo-out"),
    seed: Annotated[
        int, typer.Option("--seed", metavar="S", help="Who gets which patients, and the walk.")
    ] = 3,
    json: Json = False,
) -> None:
    """Five hospitals learn together; one hospital and three patients are forgotten and certified.

    Each hospital is a process with its own key, database and address; the processes communicate
    over mutual TLS, learn in private rounds, in which only the sum of all hospitals can be read,
    and share nothing else. One process is killed (kill -9) and restarted. After
    forgetting, the posterior is compared, bit for bit, with training without the forgotten data,
    and the certificates of erasure are verified offline. The agents learn a regression; the share
    of malignant diagnoses is learned in memory, for the pictures.

    DIR receives network.toml, the agents' folders, certificate-*.json, report.md and pictures.

    Exit code 0 if all comparisons hold, else 1.

    Examples:

        unweave demo

        unweave demo --out somewhere --seed 7 --json
    """
    from unweave.demo import run_scenario
    from unweave.demo.network import check_place, run_network
    from unweave.demo.pictures import draw
    from unweave.demo.report import as_dict, as_markdown

    if not 0 <= seed < 2**63:
        raise ConfigError(f"--seed {seed}: out of range. Fix: give a whole number from 0 to 2⁶³-1")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"--out {out}: this folder cannot be made ({error.strerror or error}). "
            "Fix: choose another"
        ) from None
    check_place(out)
    with progress(quiet=json) as bar:
        task = bar.add_task("learning", total=_TICKS)

        def tick(done: str) -> None:
            bar.update(task, advance=1, description=done)
            if not json:
                bar.console.print(styled(("✓", "green"), f" {done}"))

        scenario = run_scenario(seed, lambda done: bar.update(task, advance=1, description=done))
        run = run_network(scenario, out, tick)
        bar.update(task, description="drawing")
        pictures = draw(scenario, out)
        bar.update(task, advance=1)
    (out / "report.md").write_text(as_markdown(scenario, run, pictures), encoding="utf-8")
    holds = scenario.exact and run.agrees(scenario)
    if json:
        files = [*pictures, "report.md", "network.toml", *run.certificates]
        emit_json({**as_dict(scenario, run), "files": [str(out / name) for name in files]})
    else:
        for part in _account(scenario, run):
            console.print(part)
        say(f"Certificates, report.md and pictures are in {out}/; verify one yourself:")
        for name in run.certificates:
            command(f"unweave verify {quote(out / name)} --network {quote(out / 'network.toml')}")
    if not holds:
        raise typer.Exit(1)


def _account(scenario: Scenario, run: NetworkRun) -> list[Any]:
    from unweave.demo.report import INFLUENCE, posterior_rows

    hospitals = Table(title="Five hospitals, 569 patients, no pooling")
    for column in ("hospital", "patients", "malignant", "influence (KL)"):
        hospitals.add_column(column, justify="left" if column == "hospital" else "right")
    share, _ = scenario.stages
    for name, n in scenario.patients.items():
        hospitals.add_row(
            name, str(n), f"{scenario.malignant[name] / n:.0%}", f"{share.influence[name]:.3f}"
        )
    (owner, ids), *_ = scenario.withdrawn.items()
    table = Table(title="Posteriors (mean ± sd)")
    for column in ("", "learned from all", "after forgetting", "never had it"):
        table.add_column(column, justify="left" if not column else "right")
    for stage in scenario.stages:
        *rows, digests = posterior_rows(stage)
        for label, *cells in rows:
            name = "share of malignant" if stage is share else label.replace("_", " ")
            table.add_row(name, *cells)
        table.add_row(*digests, style="dim")
        table.add_section()
    iterations = ", ".join(
        f"{stage.before.model.name} {' + '.join(str(e.iterations) for e in stage.erasures)}"
        for stage in scenario.stages
    )
    holds = scenario.exact and run.agrees(scenario)
    verdict = (
        styled(
            ("Exact", "green"),
            ": after forgetting, the posterior of the five processes equals, bit for bit, that of "
            "a network that never had the data; the certificates are valid.",
        )
        if holds
        else styled(
            ("Not exact", "red"), ": a posterior differs from that of a network without the data."
        )
    )
    return [
        hospitals,
        styled((INFLUENCE, "dim")),
        styled(
            "Forgotten: ",
            (scenario.forgotten, "bold"),
            f" and patients {', '.join(map(str, ids))} of {owner} (iterations in memory: "
            f"{iterations}).",
        ),
        table,
        f"Between processes, in private rounds: {run.hops} hops in {run.seconds:.1f} s over mutual "
        f"TLS, "
        f"{run.killed} killed and restarted, {run.attested} attestations.",
        verdict,
    ]
