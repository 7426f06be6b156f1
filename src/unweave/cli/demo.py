"""`unweave demo`: five real agents learn, forget and prove it, on a small real data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from unweave.demo import Story
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
    json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Five hospitals learn together; one of them and three patients are forgotten; verify it.

    Each hospital is a process of its own with its own key, database and address; they talk over
    mutual TLS and share nothing else. One is killed (kill -9) on the way. After forgetting, what
    they know is compared, bit for bit, with training without the forgotten data, and the
    certificates of erasure are verified offline. Beside the regression that the agents learn, the
    share of malignant diagnoses is learned in memory, for the pictures.

    DIR holds network.toml, the agents' folders, certificate-*.json, report.md and pictures.

    Exit code 0: all of it holds. 1: something does not.

    Examples:

        unweave demo

        unweave demo --out somewhere --seed 7 --json
    """
    from unweave.cli.common import command, console, emit_json, progress, quote, styled
    from unweave.demo import tell
    from unweave.demo.network import check_place, run_network
    from unweave.demo.pictures import draw
    from unweave.demo.report import as_dict, as_markdown
    from unweave.errors import ConfigError

    if not 0 <= seed < 2**63:
        raise ConfigError(f"--seed {seed}: give a whole number from 0 on, below 2⁶³")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"--out {out}: this folder cannot be made ({error.strerror or error}): choose another"
        ) from None
    check_place(out)
    with progress(quiet=json) as bar:
        task = bar.add_task("learning", total=_TICKS)

        def tick(done: str) -> None:
            bar.update(task, advance=1, description=done)
            if not json:
                bar.console.print(styled(("✓", "green"), f" {done}"))

        story = tell(seed, lambda done: bar.update(task, advance=1, description=done))
        run = run_network(story, out, tick)
        bar.update(task, description="drawing")
        pictures = draw(story, out)
        bar.update(task, advance=1)
    (out / "report.md").write_text(as_markdown(story, run, pictures), encoding="utf-8")
    holds = story.exact and run.agrees(story)
    if json:
        files = [*pictures, "report.md", "network.toml", *run.certificates]
        emit_json({**as_dict(story, run), "files": [str(out / name) for name in files]})
    else:
        for part in _account(story, run):
            console.print(part)
        console.print(
            f"Certificates, report.md and pictures are in {out}/; verify one yourself:",
            soft_wrap=True,
        )
        for name in run.certificates:
            command(f"unweave verify {quote(out / name)} --network {quote(out / 'network.toml')}")
    if not holds:
        raise typer.Exit(1)


def _account(story: Story, run: NetworkRun) -> list[Any]:
    from rich.table import Table

    from unweave.cli.common import styled

    hospitals = Table(title="Five hospitals, 569 patients, no pooling")
    for column in ("hospital", "patients", "malignant", "influence (KL)"):
        hospitals.add_column(column, justify="left" if column == "hospital" else "right")
    share, regression = story.chapters
    for name, n in story.patients.items():
        hospitals.add_row(
            name, str(n), f"{story.malignant[name] / n:.0%}", f"{share.influence[name]:.3f}"
        )
    (owner, ids), *_ = story.withdrawn.items()
    table = Table(title="What is known (mean ± sd)")
    for column in ("", "learned from all", "after forgetting", "never had it"):
        table.add_column(column, justify="left" if not column else "right")
    for chapter, labels in (
        (share, ["share of malignant"]),
        (regression, list(regression.before.model.quantities)),
    ):
        columns = (chapter.before, chapter.after, chapter.never)
        for j, label in enumerate(labels):
            marginals = [q.distribution.marginals[j] for q in columns]
            table.add_row(
                label.replace("_", " "),
                *(f"{float(m.mean()):.4f} ± {float(m.sd()):.4f}" for m in marginals),
            )
        table.add_row("digest", *(q.digest[:12] for q in columns), style="dim")
        table.add_section()
    iterations = ", ".join(
        f"{chapter.before.model.name} {' + '.join(str(e.iterations) for e in chapter.erasures)}"
        for chapter in story.chapters
    )
    holds = story.exact and run.agrees(story)
    verdict = (
        styled(
            ("Exact", "green"),
            ": what the five processes know after forgetting is, bit for bit, what a network that "
            "never had the data knows; the certificates hold.",
        )
        if holds
        else styled(("Not exact", "red"), ": a posterior differs from one that never had the data.")
    )
    return [
        hospitals,
        styled(
            "Forgotten: ",
            (story.forgotten, "bold"),
            f" and patients {', '.join(map(str, ids))} of {owner} (iterations in memory: "
            f"{iterations}).",
        ),
        table,
        f"Between processes: {run.hops} hops in {run.seconds:.1f} s over mutual TLS, "
        f"{run.killed} killed on the way, {run.attested} attestations.",
        verdict,
    ]
