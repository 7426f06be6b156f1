"""`unweave demo`: learn, forget and verify on a small real data set, in memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from unweave.demo import Story

__all__ = ["demo"]

_TICKS = 6


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

    Two models of the Breast Cancer Wisconsin data are learned without pooling them: the share of
    malignant diagnoses, and a regression of the diagnosis on cell features. After forgetting, both
    posteriors are compared, bit for bit, with those of a network that never had the forgotten data.

    Exit code 0: they are equal. 1: they are not.

    Examples:

        unweave demo

        unweave demo --out somewhere --seed 7 --json
    """
    from unweave.cli.common import console, emit_json, progress
    from unweave.demo import tell
    from unweave.demo.pictures import draw
    from unweave.demo.report import as_dict, as_markdown
    from unweave.errors import ConfigError

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be made: {error.strerror or error}") from None
    with progress(quiet=json) as bar:
        task = bar.add_task("learning", total=_TICKS)
        story = tell(seed, lambda done: bar.update(task, advance=1, description=done))
        bar.update(task, description="drawing")
        pictures = draw(story, out)
        bar.update(task, advance=1)
    (out / "report.md").write_text(as_markdown(story, pictures), encoding="utf-8")
    if json:
        emit_json({**as_dict(story), "files": [str(out / n) for n in (*pictures, "report.md")]})
    else:
        for part in _account(story):
            console.print(part, highlight=False)
        console.print(f"Pictures and report.md are in {out}/", highlight=False, markup=False)
    if not story.exact:
        raise typer.Exit(1)


def _account(story: Story) -> list[Any]:
    from rich.table import Table

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
        (regression, list(regression.before.model.coefficients)),  # type: ignore[attr-defined]
    ):
        columns = (chapter.before, chapter.after, chapter.never)
        for j, label in enumerate(labels):
            marginals = [q.distribution.marginals[j] for q in columns]
            table.add_row(
                label.replace("_", " "),
                *(f"{float(m.mean):.4f} ± {float(m.sd):.4f}" for m in marginals),
            )
        table.add_row("[dim]digest[/]", *(f"[dim]{q.digest[:12]}[/]" for q in columns))
        table.add_section()
    iterations = ", ".join(
        f"{chapter.before.model.name} {' + '.join(str(e.iterations) for e in chapter.erasures)}"
        for chapter in story.chapters
    )
    verdict = (
        "[green]Exact[/]: both posteriors are, bit for bit, those of a network that never had them."
        if story.exact
        else "[red]Not exact[/]: a posterior differs from that of a network that never had them."
    )
    return [
        hospitals,
        f"Forgotten: [bold]{story.forgotten}[/] and patients {', '.join(map(str, ids))} of {owner} "
        f"(iterations: {iterations}); everybody attested the result.",
        table,
        verdict,
    ]
