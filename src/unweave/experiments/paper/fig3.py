"""Figure 3: a conjugate model is learned exactly once the walk has visited every agent."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from unweave.experiments.paper import style
from unweave.experiments.paper.experiment import AGENTS, RECORDS, SUMMARY, bernoulli, summarised
from unweave.experiments.paper.report import Figure, PaperReport, ResultTable, Tick
from unweave.experiments.paper.settings import BANDS, GRAPHS_SHOWN, WALK, Setting, ours, paper
from unweave.experiments.replicas import Replicas, simulate
from unweave.graph import graphs
from unweave.graph.cover import expected_cover
from unweave.graph.private_rounds import round_forecast
from unweave.manifest.privacy import Mode
from unweave.models import BetaBernoulli

__all__ = ["FIG3", "GRAPHS", "ITERATIONS", "draw_on", "legend_entries", "walks"]


GRAPHS = ("star", "ring", "complete")
ITERATIONS = 600
ITERATIONS_MASKED = 1200
THETA = 0.5

_LINES = {
    "star": style.Line("star", style.RED, (0, (1, 0.9)), "^"),
    "ring": style.Line("ring", style.BLUE, (0, (5, 1.5)), "s"),
    "complete": style.Line("complete", style.BLACK, "-", "o"),
}


def compute(replicas: int, seed: int, tick: Tick, privacy: Mode = "plain") -> PaperReport:
    table = ResultTable(("graph", "iteration", *SUMMARY, "share_exact"))
    results: dict[str, Any] = {}
    for name in GRAPHS:
        run = walks(name, replicas, seed, privacy)
        kl = run.kl().values
        share = (kl == 0.0).mean(axis=0)
        for i, row in enumerate(summarised(run.kl())):
            table.add(name, i + 1, *row, share[i])
        if privacy == "plain":
            ends = np.where((run.first_visits > 0).all(axis=1), run.first_visits.max(axis=1), 0)
            expected = {"expected_cover": expected_cover(run.topology).value}
            exact = "largest_kl_once_all_were_visited"
        else:
            ends = np.where(run.changed.any(axis=1), run.changed.argmax(axis=1) + 1, 0)
            forecast = round_forecast(run.topology, 0, seed=seed)["metropolis"]
            expected = {"expected_round": forecast.learn.value}
            exact = "largest_kl_once_a_round_was_complete"
        done = ends > 0
        at_end = kl[np.flatnonzero(done), ends[done] - 1]
        results[name] = {
            **expected,
            "iterations_to_mean_kl_below_0.01": _first(kl.mean(axis=0) < 0.01),
            exact: float(at_end.max()) if done.any() else None,
            "share_of_replicas_exact_at_the_end": float(done.mean()),
        }
        tick(f"figure 3, {name}")
    settings, notes = tuple(_settings(privacy)), tuple(_notes(results, privacy))
    return PaperReport(replicas, table, settings, results, notes, privacy=privacy)


def walks(graph: str, replicas: int, seed: int, privacy: Mode = "plain") -> Replicas:
    """The walks on one graph; replica r is the same whatever the number of replicas."""
    return simulate(
        BetaBernoulli(a=2, b=2),
        bernoulli(seed, replicas, THETA),
        graphs.by_name(graph, AGENTS),
        "metropolis",
        iterations=ITERATIONS if privacy == "plain" else ITERATIONS_MASKED,
        replicas=replicas,
        seed=seed,
        privacy=privacy,
    )


def _first(reached: np.ndarray[Any, np.dtype[np.bool_]]) -> int | None:
    return int(np.argmax(reached)) + 1 if reached.any() else None


def _settings(privacy: Mode) -> list[Setting]:
    length = (
        ours("iterations", ITERATIONS, "not stated; the star needs 246 on average")
        if privacy == "plain"
        else ours("iterations", ITERATIONS_MASKED, "two laps and a sweep, on the star about 500")
    )
    return [
        paper("model", "x ~ Bernoulli(θ), θ ~ Beta(a, b)"),
        paper("a, b", "2, 2"),
        paper("K", AGENTS),
        paper("N_k", RECORDS),
        paper("alpha", 1),
        GRAPHS_SHOWN,
        WALK,
        ours("true θ", THETA, "not stated; the prior's mean, so that prior and data agree"),
        ours(
            "data",
            "drawn anew for every replica, the same for all graphs",
            "not stated; so bands include the randomness of data and walk, and graphs differ in "
            "their edges alone",
        ),
        ours(
            "loss scale",
            "sum",
            "the conjugate update (`eq:nat_para_sum`) sums, although L_k is defined as a mean",
        ),
        length,
        BANDS,
        paper("lines", "mean over replicas", "its KL is 0 in most replicas from some iteration on"),
        ours(
            "grid",
            "factors are multiples of 2^−24",
            "counts are exact on it: once all agents were visited, eta equals the posterior's bit "
            "for bit and the KL is 0, not merely small",
        ),
    ]


def _notes(results: dict[str, Any], privacy: Mode) -> list[str]:
    last = ITERATIONS if privacy == "plain" else ITERATIONS_MASKED
    below = {name: results[name]["iterations_to_mean_kl_below_0.01"] for name in GRAPHS}
    shown = ", ".join(f"{n} {v if v else f'more than {last}'}" for n, v in below.items())
    covers = ", ".join(f"{name} {_expected(results[name]):.1f}" for name in GRAPHS)
    first = f"Iterations until the mean KL is below 0.01: {shown}."
    if privacy == "masked":
        return [
            first,
            f"Points: expected iterations of a private round ({covers}), as `unweave plan "
            "--privacy masked` counts them. Before its end a replica has the prior, after it the "
            "exact posterior: the KL is exactly 0.",
        ]
    return [
        first,
        f"Points: expected cover times ({covers}). In a replica that has visited all agents the "
        f"KL is exactly 0; what remains in the mean comes from those that have not.",
    ]


def _expected(result: dict[str, Any]) -> float:
    """The expected iterations until the posterior is exact."""
    found: float = result.get("expected_cover") or result["expected_round"]
    return found


def draw_on(axes: Any, report: PaperReport) -> None:
    """The curves on given axes; a point on each at the graph's expected cover time."""
    for name in GRAPHS:
        rows = report.table.where(graph=name)
        at = round(_expected(report.results[name])) - 1
        style.band_line(axes, rows, "iteration", _LINES[name], "kl_mean", every=[at])
    axes.set(xscale="log", yscale="log", xlim=(1, rows.values("iteration")[-1]), ylim=(1e-4, 20))
    axes.set_xlabel("iteration $i$")
    axes.set_ylabel(r"KL($q$ ‖ exact posterior), nats")


def legend_entries(
    axes: Any, point_label: str = "expected cover time"
) -> tuple[list[Any], list[str]]:
    """The curves of `draw_on`, what their band is, and what the points are."""
    handles, labels = axes.get_legend_handles_labels()
    labels = [f"{label}, mean" for label in labels]
    band, point = style.band_handle(), style.point_handle(_LINES[name] for name in GRAPHS)
    return [*handles, band, point], [*labels, style.BAND_LABEL, point_label]


def draw(report: PaperReport) -> Any:
    figure, grid = style.canvas(style.COLUMN, 2.9)
    draw_on(grid[0, 0], report)
    label = "expected cover time" if report.privacy == "plain" else "expected end of the round"
    style.legend(figure, *legend_entries(grid[0, 0], label), loc="outside lower center", ncols=2)
    return figure


FIG3 = Figure(
    "fig3",
    "Beta-Bernoulli: KL to the exact posterior on three graphs",
    replicas=1000,
    steps=len(GRAPHS),
    compute=compute,
    draw=draw,
    masked=partial(compute, privacy="masked"),
)
