"""How long learning, unlearning and retraining take: formula, exact and simulated, on three graphs.

Times are iterations with a uniform start, which is iteration 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.experiments.paper import style
from unweave.experiments.paper.experiment import AGENTS
from unweave.experiments.paper.report import Figure, PaperReport, ResultTable, Tick
from unweave.experiments.paper.settings import GRAPHS_SHOWN, Setting, ours, paper
from unweave.experiments.replicas.paths import paths, replica_seeds
from unweave.graph import Topology, graphs
from unweave.graph.cover import Expected, cover_closed_form, cover_exact
from unweave.graph.forecast import paper_formulas
from unweave.graph.times import first_visit

__all__ = ["THEORY", "simulated_times"]


Floats = NDArray[np.float64]

GRAPHS = ("star", "ring", "complete")
TIMES = ("learn", "forget", "retrain")

_FORMULAS = {
    ("star", "learn"): "1 + 1/K + K(K−1)·H(K−2)",
    ("star", "forget"): "1 + (K−1)(K² − K − 1)/K",
    ("star", "retrain"): "1 + 1/(K−1) + (K−1)(K−2)·H(K−3)",
    ("ring", "learn"): "1 + K(K−1)/2",
    ("ring", "forget"): "1 + (K²−1)/6",
    ("ring", "retrain"): "1 + (K−2)(K−3)/6 + (K−2)(K−1)",
    ("complete", "learn"): "1 + (K−1)·H(K−1)",
    ("complete", "forget"): "1/K + K − 1",
    ("complete", "retrain"): "1 + (K−2)·H(K−2)",
}
_CHUNK = 1000  # replicas walked at a time


def forget_formula(graph: str, K: int) -> float:
    """Expected iteration of the first visit to the last agent (on a star: a leaf).

    Star, n = K−1 leaves: n² steps from the hub, n more from another leaf, where the token stays n
    iterations on average. Ring: d(K−d) steps from distance d, (K²−1)/6 on average.
    """
    n = K - 1
    return {
        "star": 1.0 + n * (n * n + n - 1) / K,
        "ring": 1.0 + (K * K - 1) / 6,
        "complete": 1.0 / K + K - 1,
    }[graph]


def _cover_formula(graph: Topology) -> float:
    value = cover_closed_form(graph)
    assert value is not None  # star, ring, path and complete have closed forms
    return value


def without_last(graph: str, K: int) -> Topology:
    """The graph of the remaining agents after agent K departed; a ring becomes a path."""
    return graphs.path(K - 1) if graph == "ring" else graphs.by_name(graph, K - 1)


def simulated_times(graph: Topology, seed: int, replicas: int) -> tuple[Floats, Floats]:
    """Per replica, the iteration when all had been scheduled, and when the last agent first was."""
    cover, last = np.empty(replicas), np.empty(replicas)
    seeds = replica_seeds(seed, replicas)
    for start in range(0, replicas, _CHUNK):
        some = slice(start, min(start + _CHUNK, replicas))
        length = 256
        while True:
            # A longer path begins with the shorter one: draws are keyed by iteration.
            path = paths(graph, "metropolis", seeds[some], length)
            seen = [path == k for k in range(len(graph))]
            if all(s.any(axis=1).all() for s in seen):
                break
            length *= 2
        first = np.stack([s.argmax(axis=1) + 1 for s in seen])
        cover[some], last[some] = first.max(axis=0), first[-1]
    return cover, last


def compute(replicas: int, seed: int, tick: Tick) -> PaperReport:
    table = ResultTable(
        (
            "graph",
            "time",
            "formula",
            "formula_value",
            "exact",
            "simulated",
            "ci95_low",
            "ci95_high",
            "paper_formula",
            "paper_approximation",
        )
    )
    stated = paper_formulas(AGENTS)
    # The paper counts steps after the start for covers, and iterations for unlearning.
    quoted = {
        "learn": (1 + stated["cover"], 1 + stated["cover_approximation"]),
        "forget": (stated["unlearn"], None),
        "retrain": (1 + stated["retrain"], 1 + stated["retrain_approximation"]),
    }
    results: dict[str, Any] = {}
    for name in GRAPHS:
        graph, rest = graphs.by_name(name, AGENTS), without_last(name, AGENTS)
        cover, last = simulated_times(graph, seed, replicas)
        again, _ = simulated_times(rest, seed, replicas)
        rows = {
            "learn": (_cover_formula(graph), cover_exact(graph), cover),
            "forget": (forget_formula(name, AGENTS), first_visit(graph, AGENTS - 1), last),
            "retrain": (_cover_formula(rest), cover_exact(rest), again),
        }
        results[name] = {}
        for time, (formula, exact, samples) in rows.items():
            found = Expected.of_samples(samples)
            assert found.ci95 is not None
            said = quoted[time] if name == "complete" else (None, None)
            text = _FORMULAS[name, time]
            table.add(name, time, text, formula, exact, found.value, *found.ci95, *said)
            results[name][time] = {
                "formula": formula,
                "exact": exact,
                "simulated": found.value,
                "ci95": list(found.ci95),
            }
        tick(f"theory, {name}")
    settings = tuple(_settings())
    return PaperReport(replicas, table, settings, results, tuple(_notes(results)), _markdown(table))


def _settings() -> list[Setting]:
    return [
        paper("K", AGENTS),
        GRAPHS_SHOWN,
        paper("schedule", "metropolis (`eq:mh_rule`); an iteration that stays counts too"),
        paper("start", "uniform"),
        paper("unlearned agent", AGENTS, "on the star a leaf"),
        ours(
            "counting",
            "iterations; the start is iteration 1",
            "the paper counts steps after the start for covers (one less) and iterations for "
            "unlearning; one unit makes them comparable",
        ),
        ours(
            "formulas for star and ring",
            "closed forms derived here",
            "the paper has formulas for the complete graph alone",
        ),
        ours(
            "exact",
            "cover: linear systems over all subsets of agents; first visit: one linear system",
            "independent of the formulas",
        ),
        ours(
            "graph of retraining",
            "the graph without agent 10; a ring opens to a path",
            "the paper states it for the complete graph",
        ),
        ours("intervals", "95% confidence intervals of the simulated means", "a check, not a band"),
    ]


def _notes(results: dict[str, Any]) -> list[str]:
    inside = [
        one["ci95"][0] <= one["exact"] <= one["ci95"][1]
        for times in results.values()
        for one in times.values()
    ]
    stated = paper_formulas(AGENTS)
    short = stated["cover"] - stated["cover_approximation"]
    return [
        f"The exact value lies in the simulation's 95% interval in {sum(inside)} of {len(inside)} "
        f"cases.",
        f"Complete graph: the paper's sums are exact, (K−1)·H(K−1) = {stated['cover']:.2f} steps "
        f"and 1/K + K − 1 = {stated['unlearn']:.1f} iterations; its approximation (K−1)·log(K−1) = "
        f"{stated['cover_approximation']:.1f} is {short:.1f} steps too low at K = 10.",
    ]


def _markdown(table: ResultTable) -> str:
    lines = [
        "| Graph | Time | Formula | Value | Exact | Simulated (95% interval) | Paper's log form |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for row in table.rows:
        cells = dict(zip(table.columns, row, strict=True))
        about = cells["paper_approximation"]
        lines.append(
            f"| {cells['graph']} | {cells['time']} | {cells['formula']} "
            f"| {cells['formula_value']:.2f} | {cells['exact']:.2f} | {cells['simulated']:.2f} "
            f"({cells['ci95_low']:.2f} to {cells['ci95_high']:.2f}) "
            f"| {'–' if about is None else f'{about:.2f}'} |"
        )
    return "\n".join(lines)


_MARKS: dict[str, tuple[str, dict[str, Any]]] = {
    "exact": ("exact", {"marker": "|", "color": style.BLACK, "ms": 9, "mew": 1.2}),
    "formula_value": ("formula", {"marker": "D", "color": style.BLUE, "ms": 6, "mfc": "none"}),
    "paper_approximation": ("paper's log form", {"marker": "x", "color": style.GREY, "ms": 4.5}),
}


def draw(report: PaperReport) -> Any:
    """One line per time; the exact values are printed at the right."""
    figure, grid = style.canvas(style.COLUMN, 2.7)
    axes = grid[0, 0]
    table = report.table
    at = np.array([-(g * (len(TIMES) + 1) + t) for g in range(len(GRAPHS)) for t in range(3)])
    simulated = table.values("simulated")
    error = [simulated - table.values("ci95_low"), table.values("ci95_high") - simulated]
    for column, (label, look) in _MARKS.items():
        axes.plot(table.values(column), at, linestyle="", label=label, **look)
    look = {"fmt": "o", "color": style.RED, "ms": 3, "linewidth": 1, "capsize": 2, "zorder": 4}
    axes.errorbar(simulated, at, xerr=error, label="simulated, 95% interval of the mean", **look)
    for y, exact in zip(at, table.values("exact"), strict=True):
        place = {"xycoords": ("axes fraction", "data"), "va": "center", "ha": "right"}
        axes.annotate(f"{exact:.1f}", (1.14, y), fontsize=7, **place)
    axes.set_yticks(at, [f"{row[0]}: {row[1]}" for row in table.rows])
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.set(xscale="log", xlim=(7, 600))
    style.numbers(axes.xaxis, [10, 30, 100, 300])
    axes.set_xlabel("expected iterations (exact value at the right)")
    entries = axes.get_legend_handles_labels()
    style.legend(figure, *entries, loc="outside lower center", ncols=2, labelspacing=0.7)
    return figure


THEORY = Figure(
    "theory",
    "Cover, unlearning and retraining times",
    replicas=10_000,
    steps=len(GRAPHS),
    compute=compute,
    draw=draw,
    masked="these are the paper's formulas for its plain walk. Fix: --privacy plain, or "
    "`unweave plan --privacy masked`",
)
