"""Figure 5: unlearning agent 10. Subtracting its factor is enough where its data are like the
others'; where they are not, the others' factors remember it until they are refined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from unweave.experiments.paper import style
from unweave.experiments.paper.experiment import (
    AGENTS,
    REDUCTIONS,
    THETA,
    THETA_OTHER,
    band,
    columns,
    exact_posterior,
    exponential,
    exponential_settings,
    kl_at,
)
from unweave.experiments.paper.fig4 import RHO, SAMPLES, Method, floor, run
from unweave.experiments.paper.report import Figure, Report, Setting, Table, Tick, ours, paper
from unweave.experiments.replicas import Forget
from unweave.experiments.replicas.result import Replicas
from unweave.graph.forecast import paper_formulas
from unweave.models import BetaExponential
from unweave.models.base import Reduction

__all__ = ["CASES", "FIG5", "draw_case", "label_removal"]


Floats = NDArray[np.float64]

LEAVER = f"a{AGENTS}"


@dataclass(frozen=True)
class Case:
    """One column of the figure: who leaves, how everybody learns, and for how many iterations."""

    name: str
    title: str
    last: float  # the mean of agent 10's records
    method: Method
    iterations: int  # of learning, and again of forgetting
    hows: tuple[str, ...]


_NOISY, _EXACT = Method("reinforce", RHO, 10), Method("exact", None, 1)
_HOWS = ("subtract", "refine", "retrain")
CASES = (
    Case("paper", "REINFORCE, agent 10\nlike the others", THETA, _NOISY, 800, _HOWS[::2]),
    Case("similar", "exact, agent 10\nlike the others", THETA, _EXACT, 300, _HOWS),
    Case("dissimilar", "exact, agent 10\nunlike the others", THETA_OTHER, _EXACT, 300, _HOWS),
)

_LINES = {
    "retrain": style.Line("retrain from scratch", style.BLUE, (0, (5, 1.5))),
    "subtract": style.Line("subtract", style.BLACK, "-"),
    "refine": style.Line("subtract, then refine", style.RED, (0, (1, 0.9)), "o"),
}


def compute(replicas: int, seed: int, tick: Tick) -> Report:
    table = Table(
        (
            "reduction",
            "case",
            "estimator",
            "how",
            "iteration",
            "kl_mean",
            "kl_low",
            "kl_high",
            "share_removed",
            "floor",
        )
    )
    results: dict[str, Any] = {}
    for reduction in REDUCTIONS:
        model = BetaExponential(a=3, b=3, reduction=cast(Reduction, reduction))
        results[reduction] = {}
        for case in CASES:
            data = exponential(seed, replicas, last=case.last)
            lowest = floor(model, data, AGENTS - 1)
            entry: dict[str, Any] = {"floor": float(lowest.mean())}
            for how in case.hows:
                # Retraining forgets what was learned; one iteration of it is enough.
                learn = 1 if how == "retrain" else case.iterations
                forget = Forget(LEAVER, how, case.iterations)
                found = run(
                    model, data, case.method, learn, forget=forget, replicas=replicas, seed=seed
                )
                at = np.append(0, columns(case.iterations))
                kl, removed = _after(found, learn, at, how)
                for i, *row in zip(at, *band(kl), removed, strict=True):
                    head = (reduction, case.name, case.method.estimator, how)
                    table.add(*head, i, *row, lowest.mean())
                entry[how] = _numbers(kl, lowest)
                if how == "subtract":
                    entry["before"] = float(kl[:, 0].mean())
                    entry["removed_at_iteration"] = _landing(found, learn)
                tick(f"figure 5, {reduction}, {case.name}, {how}")
            results[reduction][case.name] = entry
    results["expected_removal"] = paper_formulas(AGENTS)["unlearn"]
    return Report(replicas, table, tuple(_settings()), results, tuple(_notes(results)))


def _after(
    found: Replicas, learn: int, at: NDArray[np.int64], how: str
) -> tuple[Floats, list[float | None]]:
    """KL `at` iterations after the request (0: when it is made), and who has removed agent 10."""
    kl = kl_at(found, np.maximum(learn + at, 1))
    if how == "retrain":
        # Iteration 0 of retraining is the prior, not what had been learned.
        prior = found.model.grid.decode(found.model.eta0)
        kl[:, :1] = exact_posterior(found).kl_from(prior)
        return kl, [None] * len(at)
    reached = found.path[:, learn:] == AGENTS - 1
    share = np.append(0.0, np.logical_or.accumulate(reached, axis=1).mean(axis=0))
    return kl, share[at].tolist()


def _numbers(kl: Floats, lowest: Floats) -> dict[str, float]:
    return {
        "kl": float(kl[:, -1].mean()),
        "kl_standard_error": float(kl[:, -1].std(ddof=1) / np.sqrt(len(kl))),
        "largest_excess_over_floor": float((kl[:, -1] - lowest).max()),
    }


def _landing(found: Replicas, learn: int) -> dict[str, float]:
    """The iteration after the request at which agent 10 is first scheduled."""
    reached = found.path[:, learn:] == AGENTS - 1
    first = np.argmax(reached, axis=1)[reached.any(axis=1)] + 1.0
    return {
        "mean": float(first.mean()),
        "standard_error": float(first.std(ddof=1) / np.sqrt(len(first))),
        "replicas": len(first),
    }


def _settings() -> list[Setting]:
    paper_case, exact_case = CASES[0], CASES[1]
    return [
        *exponential_settings(),
        paper("unlearned agent", LEAVER),
        paper("rho, S, c", f"{RHO}, {SAMPLES}, 0", "panels with REINFORCE"),
        ours("L", f"{paper_case.method.L} (REINFORCE), {exact_case.method.L} (exact)",
             "not stated; REINFORCE settles in few iterations, the exact step is a whole one"),
        ours("learning before the request",
             f"{paper_case.iterations} iterations (REINFORCE), {exact_case.iterations} (exact)",
             "not stated; both have settled by then (figure 4)"),
        ours("exact", "closed-form gradient with step control", "not in the paper: shows what "
             "subtracting leaves behind without the noise of REINFORCE"),
        ours("agent 10 unlike the others", f"mean {THETA_OTHER} instead of {THETA}",
             "not in the paper; far enough to matter, near enough that q stays a Beta when its "
             "factor is taken out"),
        ours("subtract", "the token is only forwarded; agent 10 takes its factor out when first "
             "scheduled", "the paper's rule, its section on unlearning"),
        ours("refine", "subtract, and from then on the others keep learning",
             "not in the paper; removes what the others' factors remember"),
        paper("retrain", "from the prior, on the complete graph without agent 10"),
        ours("iteration", "counted from the request; the paper's walk goes on from where it is",
             "not stated"),
    ]  # fmt: skip


def _notes(results: dict[str, Any]) -> list[str]:
    notes, noisy = [], results["sum"]["paper"]
    for reduction in REDUCTIONS:
        landing = results[reduction]["paper"]["removed_at_iteration"]
        far = results[reduction]["dissimilar"]
        near = results[reduction]["similar"]
        notes.append(
            f"{reduction}: agent 10 is removed after {landing['mean']:.2f} ± "
            f"{landing['standard_error']:.2f} iterations (exact: "
            f"{results['expected_removal']:.1f}). Like the others: subtracting leaves "
            f"{near['subtract']['kl']:.4f} (floor {near['floor']:.4f}). Unlike them: subtracting "
            f"leaves {far['subtract']['kl']:.4f}, refining {far['refine']['kl']:.5f}, retraining "
            f"{far['retrain']['kl']:.5f} (floor {far['floor']:.5f})."
        )
    notes.append(
        f"REINFORCE with the sum loss: {noisy['before']:.3f} before the request, "
        f"{noisy['subtract']['kl']:.3f} after subtracting, {noisy['retrain']['kl']:.3f} after "
        f"retraining: its own noise, not agent 10, decides."
    )
    notes.append(
        "Subtracting gives the product without agent 10's factor. That is the posterior without "
        "its data only if the other factors did not depend on it; they did, because they were "
        "fitted in its presence."
    )
    return notes


def draw_case(axes: Any, report: Report, reduction: str, case: Case) -> None:
    """One panel: KL to the posterior without agent 10, from the request on."""
    table = report.table.where(reduction=reduction, case=case.name)
    for how, line in _LINES.items():
        if how in case.hows:
            rows = table.where(how=how)
            shown = Table(rows.columns, rows.rows[1:])  # iteration 0 has no place on a log axis
            style.band_line(axes, shown, "iteration", line, every=(6, 9) if line.marker else None)
    style.floor_line(axes, report.results[reduction][case.name]["floor"])
    axes.axvline(report.results["expected_removal"], color=style.GREY, linewidth=0.7, zorder=1)
    axes.set(xscale="log", yscale="log", xlim=(1, case.iterations))


def label_removal(axes: Any, report: Report, y: float, side: str = "left") -> None:
    """What the vertical line is; `side` of the text that is at the line."""
    axes.annotate(
        "agent 10 reached,\non average",
        (report.results["expected_removal"], y),
        xytext=(3 if side == "left" else -3, 0),
        textcoords="offset points",
        ha=side,
        fontsize=6.5,
        color=style.GREY,
    )


def draw(report: Report) -> Any:
    figure, grid = style.canvas(style.PAGE, 4.5, 2, len(CASES), sharey="row")
    letters = iter("abcdef")
    for row, reduction in zip(grid, REDUCTIONS, strict=True):
        for axes, case in zip(row, CASES, strict=True):
            draw_case(axes, report, reduction, case)
            style.panel(axes, next(letters), f"{reduction} loss, {case.title}")
        lowest = report.results[reduction]["similar"]["floor"]
        high = {"mean": 1.0, "sum": 200.0}[reduction]
        row[0].set_ylim(0.7 * lowest, high)
        row[0].set_ylabel(r"KL to $p(\theta\,|\,\mathcal{D}_{-10})$")
    style.numbers(grid[0, 0].yaxis, [0.05, 0.1, 0.2, 0.5, 1])
    label_removal(grid[0, 0], report, 0.058)
    for axes in grid[1]:
        axes.set_xlabel("iterations since the request")
    handles, labels = grid[1, -1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


FIG5 = Figure(
    "fig5",
    "Beta-exponential: unlearning agent 10",
    replicas=200,
    steps=len(REDUCTIONS) * sum(len(case.hows) for case in CASES),
    compute=compute,
    draw=draw,
)
