"""`unweave evaluate`: how well a network forgets, by subtracting, refining and retraining."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from unweave.cli.common import Json, RunModel, console, emit_json, progress, say
from unweave.cli.simulate import shards_of
from unweave.errors import ConfigError

if TYPE_CHECKING:
    from unweave.experiments.evaluation.methods import Trial

__all__ = ["evaluate"]


def evaluate(
    network: Annotated[
        Path, typer.Argument(metavar="network.toml", help="The manifest, or a network's folder.")
    ],
    agent: Annotated[
        list[str] | None,
        typer.Option(
            "--agent",
            metavar="NAME",
            help="Forget this agent (repeatable).",
            show_default="the most influential one",
        ),
    ] = None,
    records: Annotated[
        list[str] | None,
        typer.Option(
            "--records",
            metavar="NAME:0,4,7",
            help="Forget these rows of an agent, counted from 0 (repeatable).",
        ),
    ] = None,
    held_out: Annotated[
        float,
        typer.Option(
            "--held-out",
            metavar="SHARE",
            help="Share of every agent's records that is not learned, to score predictions on.",
        ),
    ] = 0.2,
    membership: Annotated[
        int,
        typer.Option(
            "--membership",
            metavar="RUNS",
            help="Attack each method with this many networks of random records (60 or more).",
        ),
    ] = 0,
    sequence: Annotated[
        int,
        typer.Option("--sequence", metavar="N", help="Erase N single records in a row as well."),
    ] = 0,
    tol: Annotated[
        float, typer.Option("--tol", metavar="KL", help="Learn and refine to this tolerance.")
    ] = 1e-4,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="Seed of all draws.")] = 0,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Write a figure (PNG, SVG and PDF)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the JSON report.")
    ] = None,
    run_model: RunModel = False,
    json: Json = False,
) -> None:
    """Compare subtracting, refining and retraining on the data of a network, in memory.

    The reference is a network that has never seen the erased data. For each method: KL to the
    reference in both directions, the largest change on the grid, NLL, calibration (ECE and its
    curve) and the change of predictions on held-out records, and the cost in visits, hops, bytes
    and CPU seconds.

    With --membership, an attacker who can repeat the method on data of its own tries to tell
    forgotten records from records that were never there (U-LiRA): chance finds 1% at 1% false
    alarms. With --sequence, many erasures follow each other.

    The data are those of `unweave simulate`. No file of the network is changed. A masked network is
    evaluated in plain mode, and differential privacy without its noise; the report says so.

    Examples:

        unweave evaluate risk --agent a1

        unweave evaluate risk --records a1:0,4 --membership 60 --plot f.png

        unweave evaluate risk --sequence 20 --json
    """
    import numpy as np

    from unweave.experiments.evaluation.methods import Trial, compare, deletions
    from unweave.federation import Federation
    from unweave.json_form import as_json
    from unweave.manifest import load
    from unweave.models import Shard
    from unweave.node.storage.atomic import check_writable

    if plot is not None:
        from unweave.experiments.evaluation.figure import draw
        from unweave.experiments.paper import style

        style.need()
        check_writable(plot.with_suffix(".png"))
    if out is not None:
        check_writable(out)
    if not 0.0 <= held_out < 1.0:
        raise ConfigError(f"--held-out {held_out:g}. Fix: a share from 0 to below 1")
    if network.is_dir():
        network /= "network.toml"
    manifest = load(network, run_model=run_model)
    model = manifest.stated_model()  # as in plain mode: Federation runs the walk
    shards, data, _ = shards_of(manifest, model, seed, network.parent)
    rows, names = _records(records or []), list(agent or [])
    for shard in shards:
        if not shard.n and (shard.agent in names or shard.agent in rows):
            raise ConfigError(
                f"agent {shard.agent}: it has no records, or the network has forgotten them. Fix: "
                "name another agent"
            )
    kept, test = [], []
    rng = np.random.default_rng(seed)
    for shard in shards:
        apart = rng.permutation(shard.n) < round(held_out * shard.n)
        apart &= shard.n > 1
        if shard.agent in rows:  # what is forgotten must have been learned
            chosen = shard.chosen(rows[shard.agent])
            apart[chosen] = False
            rows[shard.agent] = np.searchsorted(np.flatnonzero(~apart), chosen).tolist()
        kept.append(Shard(shard.agent, shard.rows[~apart].copy()))
        test.append(shard.rows[apart])
    case = Trial(
        model,
        kept,
        manifest.topology,
        solver=manifest.build_solver(model),
        seed=seed,
        tol=tol,
        test=np.concatenate(test),
    )
    with progress(quiet=json) as bar:
        steps = 2 + (membership if membership else 0) + bool(sequence)
        task = bar.add_task("learning", total=steps)
        if not names and not rows:
            learned: Federation = case.start()[0].learn(tol=tol, progress=False)
            names = list(learned.influence())[:1]
        bar.update(task, advance=1, description="forgetting")
        methods = compare(case, names, rows or None)
        bar.update(task, advance=1, description="attacking")
        attacks = _attacked(case, membership, lambda done: bar.update(task, completed=2 + done))
        bar.update(task, description="many erasures")
        row_of = deletions(case, sequence) if sequence else []
    report: dict[str, Any] = {
        "network": manifest.name,
        "model": model.name,
        "data": data,
        "mode": "plain",
        "privacy": manifest.privacy.mode,
        "noise": manifest.privacy.epsilon is not None,
        "forgotten": {"agents": names, "records": {k: len(v) for k, v in rows.items()}},
        "held_out": int(sum(map(len, test))),
        "tol": tol,
        "seed": seed,
        "methods": [one.row() for one in methods],
        "membership": {"runs": membership, "attacks": [one.row() for one in attacks]},
        "sequence": [one.row() for one in row_of],
        "files": [],
    }
    if plot is not None:
        report["files"] = draw(plot, methods, attacks, row_of)
    if out is not None:
        out.write_text(as_json(report, indent=2) + "\n", encoding="utf-8")
    if json:
        emit_json(report)
    else:
        _show(report)


def _records(chosen: list[str]) -> dict[str, list[int]]:
    """Rows by agent, from texts such as north:0,4,7."""
    rows: dict[str, list[int]] = {}
    for text in chosen:
        name, sign, numbers = text.rpartition(":")
        parts = numbers.split(",")
        if not sign or not all(part.strip().isdecimal() for part in parts):
            raise ConfigError(f"--records {text}: no rows. Fix: write NAME:0,4,7")
        rows.setdefault(name, []).extend(int(part) for part in parts)
    return rows


def _attacked(case: Trial, runs: int, tick: Any) -> list[Any]:
    from unweave.experiments.evaluation.membership import attack

    return attack(case, runs, tick) if runs else []


def _show(report: dict[str, Any]) -> None:
    whole = ", ".join(report["forgotten"]["agents"])
    single = sum(report["forgotten"]["records"].values())
    what = " and ".join(filter(None, [whole, f"{single} records" if single else ""]))
    say(f"{report['network']}: {report['model']}, forgetting {what}")
    table = Table()
    table.add_column("method")
    heads = ("KL to ref.", "KL from ref.", "grid", "NLL", "ECE", "Δ prediction", "visits", "hops")
    for head in (*heads, "kB", "CPU s"):
        table.add_column(head, justify="right")
    for row in report["methods"]:
        table.add_row(
            row["method"],
            *(
                _number(row[key])
                for key in (
                    *("kl_to_reference", "kl_from_reference", "grid_change", "nll", "ece"),
                    *("prediction_change", "visits", "hops"),
                )
            ),
            _number(row["bytes"] / 1000),
            _number(row["seconds"]),
        )
    console.print(table)
    say("The reference never saw the erased data.", _mode(report), style="dim")
    last = report["methods"][-2]  # before "retrain": exact, or refined
    if last["calibration"]:
        table = Table(title=f"Calibration after {last['method']}")
        for head in ("probability", "records", "predicted", "observed"):
            table.add_column(head, justify="right")
        for one in last["calibration"]:
            table.add_row(
                f"{one['low']:.2f}–{one['high']:.2f}",
                f"{one['records']:,}",
                f"{one['predicted']:.3f}",
                f"{one['observed']:.3f} ± {one['sd']:.3f}",
            )
        console.print(table)
    if report["membership"]["runs"]:
        table = Table("method", "records", title="Membership attack (chance: 1%)")
        for head in ("found", "of the most memorised", "AUC"):
            table.add_column(head, justify="right")
        for row in report["membership"]["attacks"]:
            rates = (f"{100 * row[key]:.1f}%" for key in ("tpr", "tpr_memorised"))
            table.add_row(row["method"], row["records"], *rates, f"{row['auc']:.3f}")
        console.print(table)
    if report["sequence"]:
        last = report["sequence"][-1]
        say(
            f"After {last['erased']} erasures of one record: KL {_number(last['subtracted'])} when "
            f"only subtracted, {_number(last['refined'])} when refined ({last['hops']} hops)."
        )
    if report["files"]:
        say(f"Figure: {', '.join(report['files'])}")


def _mode(report: dict[str, Any]) -> str:
    """In which mode the methods were compared, and how the network differs from it."""
    line = "Evaluated in memory, in plain mode"
    if report["privacy"] != "plain":
        line += "; the network is masked: its private rounds learn anew and never subtract"
    return line + (". Its noise is left out." if report["noise"] else ".")


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
