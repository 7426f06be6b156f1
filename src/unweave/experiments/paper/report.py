"""The parts of a figure: a tidy table, settings with their reasons, and the results to quote.

A figure is drawn from its `PaperReport`, and the report's `ResultTable` is also written as CSV. So
the figure and the CSV file show the same data. A run is summed up as JSON and as Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError
from unweave.experiments.paper.settings import Setting, ours
from unweave.manifest.privacy import Mode

__all__ = [
    "Figure",
    "PaperReport",
    "ResultTable",
    "Tick",
    "as_json",
    "as_markdown",
]

Tick = Callable[[str], None]  # called after each step, with a description of the step
Cell = str | int | float | None


@dataclass
class ResultTable:
    """Tidy rows: one observation per row, one variable per column."""

    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]] = field(default_factory=list)

    def add(self, *cells: Any) -> None:
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns")
        self.rows.append(tuple(_plain(cell) for cell in cells))

    def where(self, **wanted: Cell) -> ResultTable:
        """The rows whose columns have the wanted values."""
        at = [(self.columns.index(name), value) for name, value in wanted.items()]
        return ResultTable(self.columns, [r for r in self.rows if all(r[j] == v for j, v in at)])

    def values(self, column: str) -> NDArray[np.float64]:
        """A column of numbers; an empty cell is NaN."""
        j = self.columns.index(column)
        return np.array([np.nan if row[j] is None else row[j] for row in self.rows], dtype=float)

    def csv(self) -> str:
        """The table as CSV, with ten digits: the digits in which platforms differ are cut off."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_shown(cell) for cell in row] for row in self.rows)
        return text.getvalue()


def _plain(cell: Any) -> Cell:
    value: Cell = cell.item() if isinstance(cell, np.generic) else cell
    return value


def _shown(cell: Cell) -> str | int:
    if isinstance(cell, float):
        return f"{cell:.10g}"
    return "" if cell is None else cell


@dataclass(frozen=True)
class PaperReport:
    """The outcome of one experiment: its data, settings, results and notes."""

    replicas: int
    table: ResultTable
    settings: tuple[Setting, ...]
    results: dict[str, Any]  # numbers to quote, as JSON values
    notes: tuple[str, ...] = ()  # sentences that describe the figure
    markdown: str = ""  # a table for the summary, if the data are few
    privacy: Mode = "plain"


@dataclass(frozen=True)
class Figure:
    """An experiment that can be run and drawn: `steps` ticks, `replicas` by default."""

    name: str
    title: str
    replicas: int
    steps: int
    compute: Callable[[int, int, Tick], PaperReport]  # (replicas, seed, tick)
    draw: Callable[[PaperReport], Any]  # a matplotlib Figure
    masked: Callable[[int, int, Tick], PaperReport] | str  # `compute` in private rounds, or why not

    def computed(self, privacy: Mode) -> Callable[[int, int, Tick], PaperReport]:
        """`compute` in this mode; ConfigError if the experiment has no private rounds."""
        if privacy == "plain":
            return self.compute
        if isinstance(self.masked, str):
            raise ConfigError(f"{self.name} and privacy = {privacy!r}: {self.masked}")
        return self.masked

    def settings_of(self, seed: int, report: PaperReport) -> Iterable[Setting]:
        """The settings of the experiment, then its mode, the number of replicas and the seed."""
        yield from report.settings
        yield ours("privacy", report.privacy, _MODES[report.privacy])
        yield ours("replicas", report.replicas, "enough for smooth means; --replicas changes it")
        yield ours("seed", seed, "every draw follows from it; --seed changes it")


_MODES = {
    "plain": "the paper's walk, in which a token shows factors; --privacy changes it",
    "masked": "private rounds: enrol, give, attest; nothing is shown before all have attested",
}

_PAPER = (
    "J. Gong, O. Simeone, J. Kang: Bayesian Variational Federated Learning and Unlearning in "
    "Decentralized Networks (2021)"
)


def as_json(
    seed: int, parts: list[tuple[Figure, PaperReport]], files: dict[str, list[str]]
) -> dict[str, Any]:
    """The summary as one JSON value; nothing in it depends on when or where it was made."""
    return {
        "paper": _PAPER,
        "versions": {name: version(name) for name in ("unweave", "numpy", "scipy", "matplotlib")},
        "seed": seed,
        "figures": {
            figure.name: {
                "title": figure.title,
                "replicas": report.replicas,
                "files": files[figure.name],
                "settings": [asdict(s) for s in figure.settings_of(seed, report)],
                "results": report.results,
                "notes": list(report.notes),
            }
            for figure, report in parts
        },
    }


def as_markdown(
    seed: int, parts: list[tuple[Figure, PaperReport]], files: dict[str, list[str]]
) -> str:
    lines = [
        "# The paper's experiments",
        "",
        f"{_PAPER}. Settings marked “paper” are stated there; those marked “ours” are not, and the "
        "last column says why they are what they are. Numbers are in `summary.json`, curves in the "
        "CSV files; the figures are drawn from those.",
    ]
    for figure, report in parts:
        lines += ["", f"## {figure.name}: {figure.title}", ""]
        pictures = [name for name in files[figure.name] if name.endswith(".png")]
        lines += [f"![{figure.title}]({name})" for name in pictures]
        lines += ["", *(f"- {note}" for note in report.notes)]
        if report.markdown:
            lines += ["", report.markdown]
        lines += ["", "| Setting | Value | Source | Why |", "|---|---|---|---|"]
        for s in figure.settings_of(seed, report):
            lines.append(f"| {_cell(s.name)} | {_cell(s.value)} | {s.source} | {_cell(s.why)} |")
        lines += ["", "Files: " + ", ".join(f"`{name}`" for name in files[figure.name])]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return shown.replace("|", "\\|")
