"""`unweave paper`: the paper's experiments, figures and tables by one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from unweave.cli.common import Json, console, emit_json, errors, progress
from unweave.cli.dashboard import OpenBrowser, PagePort, show_page
from unweave.errors import ConfigError

if TYPE_CHECKING:
    from unweave.manifest.privacy import Mode

__all__ = ["paper"]


def paper(
    figure: Annotated[
        str, typer.Argument(metavar="[fig3|fig4|fig5|theory|all]", show_default="all")
    ] = "all",
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replicas",
            "-r",
            metavar="N",
            help="Replicas of every experiment.",
            show_default="fig3 1000, fig4 100, fig5 200, theory 10000",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="Seed of all draws.")] = 0,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where the files go.")
    ] = Path("paper-out"),
    privacy: Annotated[
        str,
        typer.Option(
            "--privacy",
            metavar="MODE",
            help="plain (the paper's walk) or masked (private rounds; fig3 only).",
        ),
    ] = "plain",
    dashboard: Annotated[
        bool,
        typer.Option(
            "--dashboard",
            help="Show the walks of fig3 and fig5 in a browser, with explanations. Ctrl-C ends it.",
        ),
    ] = False,
    port: PagePort = None,
    browser: OpenBrowser = True,
    json: Json = False,
) -> None:
    """Reproduce the figures of Gong, Simeone, Kang 2021, with their data and all settings.

    Writes PNG, SVG, PDF and CSV per figure, and a summary (Markdown and JSON) with all settings,
    the reasons for those that the paper omits, and the number of replicas outside the domain. The
    same seed gives the same files.

    **fig3** a conjugate model on three graphs, **fig4** a model that is not conjugate: local steps
    and gradients, **fig5** unlearning an agent, **theory** cover and hitting times.

    With `--privacy masked` fig3 learns in private rounds, and a point marks the iterations that
    `unweave plan --privacy masked` expects. The others are refused, each with the reason.

    With --dashboard nothing is written: a page on this machine shows one walk of fig3 or fig5, hop
    by hop, beside the curve and the band of all replicas, in parts that explain what happens:
    play, pause, step, any speed. --json prints its address.

    Examples:

        unweave paper all

        unweave paper fig5 --replicas 50 --out out --json

        unweave paper fig3 --privacy masked --replicas 100

        unweave paper fig5 --dashboard
    """
    from unweave.experiments.paper import FIGURES, choose, refused, run
    from unweave.experiments.replicas.jit import COMPILED

    mode = cast("Mode", privacy)
    if dashboard:
        if mode != "plain":
            raise ConfigError(
                f"--dashboard and --privacy {privacy}: the page shows the paper's plain walk. Fix: "
                "leave one of them out"
            )
        from unweave.web.paper.player import PaperSource

        source = PaperSource(figure, replicas=replicas, seed=seed)
        show_page(source, port=port, browser=browser, json=json)
        return
    names = choose(figure, mode)
    left_out = refused(mode) if figure == "all" else {}
    if not COMPILED and names != ["theory"]:
        errors.print(
            "numba is not installed, so this takes hours. Fix: pip install 'unweave[fast]'",
            style="yellow",
        )
    with progress(quiet=json) as bar:
        task = bar.add_task("starting", total=sum(FIGURES[name].steps for name in names))
        summary = run(
            names,
            out,
            replicas=replicas,
            seed=seed,
            privacy=mode,
            tick=lambda done: bar.update(task, advance=1, description=done),
        )
    if json:
        emit_json(_key_numbers(summary, out) | {"privacy": privacy, "refused": left_out})
        return
    for name, entry in summary["figures"].items():
        console.print(f"{name}: {entry['title']}", style="bold")
        for note in entry["notes"]:
            console.print(f"  {note}")
    for name, why in left_out.items():
        console.print(f"{name} was left out: {why}", style="yellow", soft_wrap=True)
    console.print(f"Figures, data and summary.md are in {out}/")


def _key_numbers(summary: dict[str, Any], out: Path) -> dict[str, Any]:
    """The numbers and files of the summary; summary.json has the settings, too."""
    return {
        "out": str(out),
        "seed": summary["seed"],
        "figures": {
            name: {key: entry[key] for key in ("replicas", "results", "files")}
            for name, entry in summary["figures"].items()
        },
    }
