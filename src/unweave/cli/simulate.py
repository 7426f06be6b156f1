"""`unweave simulate`: run a network in memory with faults, and check every invariant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from unweave.cli.common import Json, RunModel, console, emit_json, errors, quote, say
from unweave.cli.dashboard import OpenBrowser, PagePort, show_page
from unweave.errors import ConfigError, SolverError
from unweave.text import count

if TYPE_CHECKING:
    from unweave.manifest import Manifest
    from unweave.models import Model, Shard

__all__ = ["shards_of", "simulate", "verdict"]


def simulate(
    network: Annotated[
        Path, typer.Argument(metavar="network.toml", help="The manifest, or a network's folder.")
    ],
    faults: Annotated[
        str | None,
        typer.Option(
            "--faults",
            metavar="PROFILE",
            help="calm (erasures and new data, but nothing breaks), lossy, crashes, partitions, "
            "disks, slow, departed, severe or insider (one agent lies).",
            show_default="none",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="S", help="Seed of faults and of synthetic data.")
    ] = 0,
    hops: Annotated[
        int | None,
        typer.Option(
            "--hops",
            metavar="N",
            help="The number of hops with faults; then they end.",
            show_default="20 per agent",
        ),
    ] = None,
    dashboard: Annotated[
        bool,
        typer.Option(
            "--dashboard", help="Show the run in a browser, with faults on buttons. Ctrl-C ends it."
        ),
    ] = False,
    port: PagePort = None,
    browser: OpenBrowser = True,
    run_model: RunModel = False,
    json: Json = False,
) -> None:
    """Run the network of a manifest in memory, on the protocol of real agents.

    A masked network runs its private rounds, keys and masks included; with epsilon, with noise that
    the seed repeats. Messages are lost, delayed
    and repeated, processes die at any point, disks are lost or replaced by old backups, owners
    request erasures. With insider, one agent with a valid key lies, until it stops or is voted out.
    After every event the invariants are checked; after the faults have
    ended, the token must be parked with no pending work and every erasure certified. Exit code 1 if
    not, with the command that repeats the run exactly. Erasures never take all data: a majority of
    the agents keep records (of two, one), and their posterior is compared with that of a run
    without faults.

    The data are the CSV files that the manifest names, with all records; else those in the agents'
    folders beside the manifest, if all folders are there, without the records that the network has
    forgotten or was asked to forget; else drawn at random. No file is written, and the agents of
    the network are not changed.

    With --dashboard the run is a page on this machine: play, pause, one hop at a time, any speed,
    and buttons that crash agents, cut the network, lose disks, vote an agent out or ask for
    erasures. The invariants are checked all the same; a violation stops the run and is shown with
    the command that repeats it. Certificates of a simulation are signed with its own keys: only the
    page can verify them. --json prints the page's address.

    Examples:

        unweave simulate clinics/network.toml

        unweave simulate clinics --faults calm

        unweave simulate clinics --faults severe --seed 7 --json

        unweave simulate clinics --dashboard
    """
    from unweave.manifest import load
    from unweave.simulator.invariants import Violation
    from unweave.simulator.run import run_with_faults
    from unweave.simulator.session import Session

    if network.is_dir():
        network /= "network.toml"
    manifest = load(network, run_model=run_model)
    model, terms = manifest.build_model(), manifest.terms()
    shards, data, forgotten = shards_of(manifest, model, seed, network.parent)

    def repeat(seed: int) -> str:
        again = f"unweave simulate {quote(network)} --seed {seed}"
        again += f" --faults {quote(faults)}" if faults else ""
        return again + (f" --hops {hops}" if hops is not None else "")

    if dashboard:
        from unweave.web.simulated.simulation import SimulationSource
        from unweave.web.simulated.specification import Simulated

        simulated = Simulated(manifest, model, shards, data, forgotten, faults, seed, hops, repeat)
        show_page(SimulationSource(simulated), port=port, browser=browser, json=json)
        return
    again = repeat(seed)
    try:
        with errors.status("simulating …"):
            session = Session(
                model,
                terms,
                shards,
                faults,
                seed,
                hops,
                solver=manifest.build_solver(model),
                tol=manifest.solver.tol,
                retrain_above=manifest.solver.retrain_above,
                mechanism=manifest.build_mechanism(),
            )
            report = run_with_faults(session).report()
    except (Violation, SolverError) as broken:
        if json:
            emit_json(
                {
                    "unweave": "simulation",
                    "ok": False,
                    "violation": str(broken),
                    "seed": seed,
                    "repeat": again,
                }
            )
        else:
            errors.print(f"violated: {broken}", style="red")
            errors.print(f"repeat with: {again}", soft_wrap=True)
        raise typer.Exit(1) from None
    report = {
        "unweave": "simulation",
        "ok": True,
        "network": manifest.name,
        "data": data,
        "forgotten": forgotten,
        **report,
        "repeat": again,
    }
    if json:
        emit_json(report)
    else:
        _show(console, report)


def shards_of(
    manifest: Manifest, model: Model, seed: int, folder: Path | None = None
) -> tuple[list[Shard], str, dict[str, Any] | None]:
    """Every agent's data; their source: "manifest" (the files that it names), "agents" (the folders
    below `folder`), or "synthetic" and why; and the forgotten data that are left out, if known:
    whole agents, and the number of single records."""
    from unweave.operations.reading import read_shards
    from unweave.simulator.run import draw_shards, read_csv

    paths = {name: manifest.data_path(name) for name in manifest.topology.agents}
    if not any(paths.values()):
        why = "the manifest names no data"
        if folder is not None and (folder / "agents").is_dir():
            found, forgotten, why = read_shards(manifest, folder)
            if found:
                return found, "agents", forgotten
        return draw_shards(model, manifest.topology.agents, seed), f"synthetic: {why}", None
    shards = []
    for name, path in paths.items():
        if path is None:
            raise ConfigError(
                f'network.toml: agent "{name}" has no data, but others have. Fix: add '
                'data = "file.csv" to it, or remove all of them (synthetic data)'
            )
        shards.append(model.shard(read_csv(path, model.schema), name))
    return shards, "manifest", None


_DATA = {
    "agents": "data from the agents' folders",
    "manifest": "data that the manifest names, all records",
}


def _left_out(forgotten: dict[str, Any] | None) -> str:
    """The forgotten data that this run leaves out, for the report."""
    if forgotten is None or not (forgotten["agents"] or forgotten["records"]):
        return ""
    number = forgotten["records"]
    parts = [*forgotten["agents"], *([count(number, "record")] if number else [])]
    return f", without the forgotten data ({', '.join(parts)})"


def _show(console: Any, report: dict[str, Any]) -> None:
    say(
        f"{report['network']}: {report['model']}, {count(report['agents'], 'agent')}, "
        f"{report['privacy']}, faults {report['faults']}, seed {report['seed']}, "
        f"{_DATA.get(report['data'], report['data'].replace('synthetic', 'data drawn at random'))}"
        f"{_left_out(report['forgotten'])}",
    )
    table = Table(show_header=False)
    table.add_column("what")
    table.add_column("how often", justify="right")
    for key in (
        "hops",
        "events",
        "checked_transitions",
        "messages_lost",
        "crashes",
        "restarts",
        "lost_disks",
        "restored_backups",
        "partitions",
        "power_cuts",
        "agents_departed",
        "lies",
        "erasures_asked",
        "erasures_certified",
        "certificates",
        "agents_left_with_records",
        "records_left",
    ):
        table.add_row(key.replace("_", " "), f"{report[key]:,}")
    for why, number in report["epochs"].items():
        table.add_row(f"epochs: {why}", f"{number:,}")
    console.print(table)
    learned = Table(title="Posterior")
    for column in ("", "mean", "sd"):
        learned.add_column(column, justify="left" if not column else "right")
    for name, value in report["posterior"].items():
        learned.add_row(name, _figure(value["mean"]), _figure(value["sd"]))
    console.print(learned)
    say(f"digest {report['digest']}")
    for line in verdict(report):
        console.print(line)


def _figure(value: float | None, digits: int = 6) -> str:
    return "–" if value is None else f"{value:.{digits}g}"


def verdict(report: dict[str, Any]) -> list[str]:
    """The last lines of the report: erasures, invariants, comparison."""
    asked, certified = report["erasures_asked"], report["erasures_certified"]
    idle = report["erasures_without_effect"]
    lines = list(report["notes"])
    if idle:
        reasons = ", ".join(f"{number}: {why}" for why, number in idle.items())
        lines.append(
            f"{count(asked, 'erasure')} requested, {certified} certified, which are all that "
            f"took effect. Of the others, {reasons}."
        )
    elif asked == 1:
        lines.append("The one requested erasure is certified.")
    elif asked:
        lines.append(f"All {asked} requested erasures are certified.")
    if not report["records_left"]:
        lines.append("Every invariant held. No records remain to compare.")
    elif report["equal_to_fault_free"]:
        what = "Without its noise equal" if report["noise"] else "Equal"
        lines.append(f"Every invariant held. {what}, bit for bit, to a run without faults.")
    else:
        lines.append(
            "Every invariant held. KL to a run without faults: "
            f"{_figure(report['kl_to_fault_free'], 2)} "
            "(a model whose solves depend on the order of visits)"
        )
    return lines
