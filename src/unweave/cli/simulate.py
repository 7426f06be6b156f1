"""`unweave simulate`: rehearse a network in bad weather, with every invariant checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from unweave.manifest import Manifest
    from unweave.models import Model, Shard

__all__ = ["shards_of", "simulate"]


def simulate(
    network: Annotated[Path, typer.Argument(metavar="network.toml", help="The manifest.")],
    faults: Annotated[
        str | None,
        typer.Option(
            "--faults",
            metavar="PROFILE",
            help="calm (erasures and new data, but nothing breaks), lossy, crashes, partitions, "
            "disks, slow, gone or hurricane.",
            show_default="none",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="S", help="Of the weather and of synthetic data.")
    ] = 0,
    hops: Annotated[
        int | None,
        typer.Option(
            "--hops",
            metavar="N",
            help="How many hops the weather lasts; then it clears.",
            show_default="20 per agent",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Run the network of a manifest in memory, on the protocol of real agents.

    Messages are lost, delayed and repeated, processes die at any point, disks are lost or replaced
    by old backups, owners ask for erasures. After every event the invariants are checked; when the
    weather has cleared, the network must come to rest with all work done and every erasure
    certified. Exit code 1 if not, with the command that repeats the run exactly.

    The data are the files that the manifest names (CSV), or drawn at random if it names none.

    Examples:

        unweave simulate network.toml

        unweave simulate network.toml --faults hurricane --seed 7 --json
    """
    from unweave.cli.common import console, emit_json, errors
    from unweave.manifest import load
    from unweave.simulate.checks import Violation
    from unweave.simulate.rehearsal import rehearse

    manifest = load(network)
    model, terms = manifest.build_model(), manifest.terms()
    shards, synthetic = shards_of(manifest, model, seed)
    again = f"unweave simulate {network} --seed {seed}"
    again += f" --faults {faults}" if faults else ""
    again += f" --hops {hops}" if hops is not None else ""
    try:
        with errors.status("rehearsing …"):
            report = rehearse(model, terms, shards, faults, seed, hops).report()
    except Violation as violation:
        if json:
            emit_json({"ok": False, "violation": str(violation), "seed": seed, "repeat": again})
        else:
            errors.print(f"broken: {violation}", markup=False, style="red")
            errors.print(f"repeat it: {again}", markup=False, soft_wrap=True)
        raise typer.Exit(1) from None
    data = "synthetic" if synthetic else "manifest"
    report = {"ok": True, "network": manifest.name, "data": data, **report, "repeat": again}
    if json:
        emit_json(report)
    else:
        _show(console, report)


def shards_of(manifest: Manifest, model: Model, seed: int) -> tuple[list[Shard], bool]:
    """Every agent's data: from the manifest's files, or drawn (True) if it names none."""
    from unweave.errors import ConfigError
    from unweave.simulate.rehearsal import draw_shards, read_csv

    paths = {name: manifest.data_path(name) for name in manifest.topology.agents}
    if not any(paths.values()):
        return draw_shards(model, manifest.topology.agents, seed), True
    shards = []
    for name, path in paths.items():
        if path is None:
            raise ConfigError(
                f'agent "{name}" has no data, but others have: add data = "file.csv" to it, '
                "or remove all of them (synthetic data)"
            )
        shards.append(model.shard(read_csv(path, model.columns), name))
    return shards, False


def _show(console: Any, report: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(
        title=f"{report['network']}: {report['model']}, {report['agents']} agents, "
        f"faults {report['faults']}, seed {report['seed']}",
        show_header=False,
    )
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
        "erasures_asked",
        "erasures_certified",
        "certificates",
    ):
        table.add_row(key.replace("_", " "), f"{report[key]:,}")
    for why, number in report["epochs"].items():
        table.add_row(f"epochs: {why}", f"{number:,}")
    console.print(table)
    learned = Table(title=f"Posterior ({report['data']} data)")
    for column in ("", "mean", "sd"):
        learned.add_column(column, justify="left" if not column else "right")
    for name, value in report["posterior"].items():
        learned.add_row(name, f"{value['mean']:.6g}", f"{value['sd']:.6g}")
    console.print(learned)
    console.print(f"digest {report['digest']}", highlight=False)
    if report["equal_to_fault_free"]:
        console.print("Every invariant held. Equal, bit for bit, to a run without faults.")
    else:
        console.print(
            "Every invariant held. KL to a run without faults: "
            f"{report['kl_to_fault_free']:.2g} (a model whose solves depend on the order of visits)"
        )
