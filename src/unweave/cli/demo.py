"""`unweave demo`: five real agents learn, forget and prove it, on a small real data set."""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from unweave.cli.common import (
    Json,
    command,
    console,
    emit_json,
    open_page,
    progress,
    quote,
    say,
    stop_on_sigterm,
    styled,
)
from unweave.cli.dashboard import PageOptions, serving
from unweave.errors import ConfigError, UnweaveError

if TYPE_CHECKING:
    from unweave.demo import Scenario
    from unweave.demo.network import NetworkRun
    from unweave.operations.supervisor import Supervisor

__all__ = ["demo"]


_TICKS = 12
_UNSEEN = 10.0  # seconds that the network is kept if the output is no terminal


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where the network and report go.")
    ] = Path("demo-out"),
    seed: Annotated[
        int, typer.Option("--seed", metavar="S", help="Who gets which patients, and the walk.")
    ] = 3,
    browser: Annotated[
        bool,
        typer.Option(
            "--browser/--no-browser", help="Open the report in a browser, if there is one."
        ),
    ] = True,
    dashboard: Annotated[
        bool,
        typer.Option(
            "--dashboard", help="Show the network on a page, and keep it running until Ctrl-C."
        ),
    ] = False,
    port: Annotated[
        int | None,
        typer.Option("--port", help="With --dashboard: its port; default: 8760 or the next free."),
    ] = None,
    json: Json = False,
) -> None:
    """Five hospitals learn together; one hospital and three patients are forgotten and certified.

    Each hospital is a process with its own key, database and address; the processes communicate
    over mutual TLS, learn in private rounds, in which only the sum of all hospitals can be read,
    and share nothing else. One process is killed (kill -9) and restarted. After
    forgetting, the posterior is compared, bit for bit, with training without the forgotten data,
    and the certificates of erasure are verified offline. The agents learn a regression; the share
    of malignant diagnoses is learned in memory, for the report.

    DIR receives network.toml, the agents' folders, certificate-*.json, report.json, and the report
    for people, report.html, as `unweave report DIR/report.json` writes it. It opens in a browser if
    the command runs in a terminal with a display.

    With --dashboard a page shows the hospitals while they learn and forget, and compares the
    posterior with those before and without the forgotten data; the network then runs until Ctrl-C
    (outside of a terminal for some seconds). `unweave dashboard DIR` shows it later.

    Exit code 0 if all comparisons hold, else 1. Ctrl-C and SIGTERM stop the hospitals' processes.

    Examples:

        unweave demo

        unweave demo --dashboard

        unweave demo --out somewhere --seed 7 --json
    """
    from unweave.demo.network import check_place

    if port is not None and not dashboard:
        raise ConfigError("--port: no page is served. Fix: add --dashboard, or leave --port out")
    options = PageOptions(port, browser=browser, json=json)
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
    stop_on_sigterm()
    exact = _run(out, seed, options, dashboard=dashboard)
    if browser and not json and not dashboard:
        open_page(out / "report.html")
    if not exact:
        raise typer.Exit(1)


def _run(out: Path, seed: int, options: PageOptions, *, dashboard: bool) -> bool:
    """Whether all comparisons hold. Ctrl-C and SIGTERM stop the agents; after the report is written
    that is a way to end, before it an error."""
    from unweave.demo import run_scenario
    from unweave.demo.network import run_network
    from unweave.demo.report import as_dict
    from unweave.json_form import as_json
    from unweave.node.storage.atomic import write_atomic
    from unweave.report import html_of

    json = options.json
    exact: bool | None = None
    with suppress(KeyboardInterrupt), progress(quiet=json) as bar:
        task = bar.add_task("learning", total=_TICKS)

        def tick(done: str) -> None:
            bar.update(task, advance=1, description=done)
            if not json:
                bar.console.print(styled(("✓", "green"), f" {done}"))

        scenario = run_scenario(seed, lambda done: bar.update(task, advance=1, description=done))

        def finish(run: NetworkRun, agents: Supervisor) -> None:
            nonlocal exact
            bar.update(task, description="writing the report")
            facts = as_dict(scenario, run)
            write_atomic(out / "report.json", as_json(facts, indent=2).encode() + b"\n")
            write_atomic(out / "report.html", html_of(out / "report.json"))
            bar.update(task, advance=1)
            bar.stop()
            exact = scenario.exact and run.agrees(scenario)
            _tell(scenario, run, facts, out, json=json)
            if dashboard:
                _linger(agents, json=json)

        def watch(agents: Supervisor) -> AbstractContextManager[object]:
            return _page(scenario, out, agents, options) if dashboard else nullcontext()

        run_network(scenario, out, tick, watch=watch, linger=finish)
    if exact is None:
        raise UnweaveError(
            "the demonstration was stopped before it had compared anything. Fix: start it again"
        )
    return exact


def _tell(
    scenario: Scenario, run: NetworkRun, facts: dict[str, Any], out: Path, *, json: bool
) -> None:
    if json:
        files = ["report.html", "report.json", "network.toml", *run.certificates]
        emit_json({**facts, "files": [str(out / name) for name in files]})
        return
    for part in _account(scenario, run):
        console.print(part)
    page = out / "report.html"
    say(f"The report for people is {page}; certificates are beside it. Verify one yourself:")
    for name in run.certificates:
        command(f"unweave verify {quote(out / name)} --network {quote(out / 'network.toml')}")


def _page(
    scenario: Scenario, out: Path, agents: Supervisor, options: PageOptions
) -> AbstractContextManager[object]:
    """The page of the network. The demonstration's data are public, so it may compare moments."""
    from unweave.demo.network import regression
    from unweave.web.live.network import NetworkSource

    stage = regression(scenario)
    moments = {
        "before": (f"before {scenario.forgotten} was forgotten", stage.before),
        "never": ("of a network that never had the data", stage.never),
    }
    source = NetworkSource(out, moments=moments, troubles=agents.troubles)
    return serving(source, out, options)


def _linger(agents: Supervisor, *, json: bool) -> None:
    """Keep the network until Ctrl-C; where nobody can press it, for some seconds."""
    import sys

    end = math.inf if sys.stdout.isatty() else time.monotonic() + _UNSEEN
    if not json and end == math.inf:
        say("The network runs on; the page shows it. Ctrl-C stops it.")
    elif not json:
        say(f"The output is no terminal: network and page end in {_UNSEEN:g} seconds.")
    while time.monotonic() < end:
        agents.look()
        time.sleep(0.5)


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
