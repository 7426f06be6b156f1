"""The experiments of Gong, Simeone, Kang 2021, and extensions with better gradients.

    from unweave.experiments.paper import run
    run(["fig3"], out="paper-out", replicas=200)

One module per figure: `compute` returns a `PaperReport` (a tidy table, settings with reasons,
numbers to quote), and `draw` draws the figure from the report.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from unweave.errors import ConfigError
from unweave.experiments.paper import overview, style
from unweave.experiments.paper.fig3 import FIG3
from unweave.experiments.paper.fig4 import FIG4
from unweave.experiments.paper.fig5 import FIG5
from unweave.experiments.paper.report import Figure, PaperReport, Tick, as_json, as_markdown
from unweave.experiments.paper.theory import THEORY
from unweave.manifest.privacy import Mode

__all__ = ["FIGURES", "choose", "refused", "run"]


FIGURES = {figure.name: figure for figure in (FIG3, FIG4, FIG5, THEORY)}


def choose(name: str, privacy: Mode = "plain") -> list[str]:
    """The names of the figures that a command line argument selects, of "all" those that this mode
    can run."""
    if privacy not in get_args(Mode):
        raise ConfigError(f"privacy = {privacy}: unknown. Fix: choose plain or masked")
    if name == "all":
        left_out = refused(privacy)
        return [figure for figure in FIGURES if figure not in left_out]
    if name in FIGURES:
        FIGURES[name].computed(privacy)
        return [name]
    near = get_close_matches(name, [*FIGURES, "all"], n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ConfigError(
        f"no figure is called {name!r}. Fix: {hint}choose {', '.join(FIGURES)} or all"
    )


def refused(privacy: Mode) -> dict[str, str]:
    """The figures that this mode cannot run: name → why, and the fix."""
    reasons = {name: figure.masked for name, figure in FIGURES.items() if privacy == "masked"}
    return {name: why for name, why in reasons.items() if isinstance(why, str)}


def run(
    names: Sequence[str],
    out: str | Path = "paper-out",
    *,
    replicas: int | None = None,
    seed: int = 0,
    privacy: Mode = "plain",
    tick: Tick = lambda done: None,
) -> dict[str, Any]:
    """Compute and draw figures, write PNG, SVG, PDF and CSV files, and return the summary.

    `replicas` overrides the default of every figure. `tick` is called after each step. Only
    figure 3 can be `privacy="masked"` (`refused`).
    """
    if replicas is not None and replicas < 2:
        raise ConfigError(f"replicas = {replicas}. Fix: at least 2 for a mean with a band")
    compute = {name: FIGURES[name].computed(privacy) for name in names}
    style.need()
    folder = _folder(Path(out))
    parts: list[tuple[Figure, PaperReport]] = []
    files: dict[str, list[str]] = {}
    for name in names:
        figure = FIGURES[name]
        report = compute[name](replicas or figure.replicas, seed, tick)
        with style.look():
            files[name] = style.save(figure.draw(report), folder / name)
        (folder / f"{name}.csv").write_text(report.table.csv(), encoding="utf-8")
        files[name].append(f"{name}.csv")
        parts.append((figure, report))
    reports = {figure.name: report for figure, report in parts}
    if {"fig3", "fig5"} <= reports.keys():
        with style.look():
            picture = overview.draw(reports["fig3"], reports["fig5"])
            style.save(picture, folder / "overview", dpi=150)
    summary = as_json(seed, parts, files)
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / "summary.json").write_text(text + "\n", encoding="utf-8")
    (folder / "summary.md").write_text(as_markdown(seed, parts, files), encoding="utf-8")
    return summary


def _folder(path: Path) -> Path:
    """Create the folder and check that it is writable, before the long computation starts."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".unweave-probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot write there ({error.strerror or error}). Fix: choose another folder "
            "with --out"
        ) from None
    return path
