"""Figure 5: unlearning agent 10. Subtracting its factor is enough where its data are like the
others'; where they are not, the others' factors depend on its data until they are refined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from unweave.experiments.paper import style
from unweave.experiments.paper.atoms import LINE, atom_curves, atom_setting
from unweave.experiments.paper.experiment import (
    AGENTS,
    REDUCTIONS,
    SUMMARY,
    THETA,
    THETA_DROP,
    THETA_OTHER,
    columns,
    ending,
    exact_posterior,
    exponential,
    median,
    outside_note,
    summarised,
)
from unweave.experiments.paper.fig4 import RHO, SAMPLES, Method, floor, run
from unweave.experiments.paper.report import Figure, PaperReport, ResultTable, Tick
from unweave.experiments.paper.settings import NO_ROUNDS, Setting, exponential_settings, ours, paper
from unweave.experiments.replicas import Forget
from unweave.experiments.replicas.result import Curves, Replicas
from unweave.graph.forecast import paper_formulas
from unweave.models import BetaExponential
from unweave.models.base import Reduction

__all__ = [
    "CASES",
    "FIG5",
    "LEAVER",
    "FigureColumn",
    "after_request",
    "draw_case",
    "legend_entries",
    "model_of",
    "walks",
]


Floats = NDArray[np.float64]

LEAVER = f"a{AGENTS}"


@dataclass(frozen=True)
class FigureColumn:
    """One column of the figure: the forgotten agent, the solver, and the number of iterations."""

    name: str
    last: float  # the mean of agent 10's records
    method: Method
    iterations: int  # of learning, and again of forgetting
    hows: tuple[str, ...]

    def learning(self, how: str) -> int:
        """Iterations before the request. Retraining starts from the prior, so one is enough."""
        return 1 if how == "retrain" else self.iterations

    @property
    def title(self) -> str:
        gradient = "REINFORCE" if self.method is _NOISY else "exact"
        others = "as the others" if self.last == THETA else f"others {THETA:g}"
        return f"{gradient}, agent 10:\nmean {self.last:g}, {others}"


_NOISY, _EXACT = Method("reinforce", RHO, 10), Method("exact", None, 1)
_HOWS = ("subtract", "refine", "retrain")
CASES = (
    FigureColumn("paper", THETA, _NOISY, 800, _HOWS[::2]),
    FigureColumn("drop", THETA_DROP, _NOISY, 800, _HOWS[::2]),
    FigureColumn("similar", THETA, _EXACT, 300, _HOWS),
    FigureColumn("dissimilar", THETA_OTHER, _EXACT, 300, _HOWS),
)

_LINES = {
    "retrain": style.Line("retrain from scratch", style.BLUE, (0, (5, 1.5))),
    "subtract": style.Line("subtract", style.BLACK, "-"),
    "refine": style.Line("subtract, then refine", style.RED, (0, (1, 0.9)), "o"),
}

_LINES["atoms"] = LINE
_LABELS = {line.label for line in _LINES.values()}


def compute(replicas: int, seed: int, tick: Tick) -> PaperReport:
    table = ResultTable(
        (
            "reduction",
            "case",
            "estimator",
            "how",
            "iteration",
            *SUMMARY,
            "share_removed",
            "floor",
        )
    )
    results: dict[str, Any] = {}
    for reduction in REDUCTIONS:
        results[reduction] = {}
        retrained: dict[Method, Replicas] = {}  # retraining does not use agent 10's data
        for case in CASES:
            data = exponential(seed, replicas, last=case.last)
            lowest = floor(model_of(reduction), data, AGENTS - 1)
            entry: dict[str, Any] = {"floor": median(lowest)}
            for how in case.hows:
                learn = case.learning(how)
                found = retrained.get(case.method) if how == "retrain" else None
                if found is None:
                    found = walks(reduction, case, how, replicas, seed)
                if how == "retrain":
                    retrained[case.method] = found
                at = np.append(0, columns(case.iterations))
                kl, removed = after_request(found, learn, at, how)
                for i, row, share in zip(at, summarised(kl), removed, strict=True):
                    head = (reduction, case.name, case.method.estimator, how)
                    table.add(*head, i, *row, share, median(lowest))
                entry[how] = ending(kl, lowest)
                if how == "subtract":
                    entry["before"] = float(kl.median()[0])
                    entry["removed_at_iteration"] = _removal_time(found, learn)
                    atoms = atom_curves(reduction, data, _left(found, learn, at), AGENTS - 1)
                    for i, row, share in zip(at, summarised(atoms), removed, strict=True):
                        head = (reduction, case.name, "atoms", "atoms")
                        table.add(*head, i, *row, share, median(lowest))
                    entry["atoms"] = ending(atoms, lowest)
                tick(f"figure 5, {reduction}, {case.name}, {how}")
            results[reduction][case.name] = entry
    results["expected_removal"] = paper_formulas(AGENTS)["unlearn"]
    return PaperReport(
        replicas, table, tuple(_settings()), results, tuple(_notes(replicas, results))
    )


def model_of(reduction: str) -> BetaExponential:
    return BetaExponential(a=3, b=3, reduction=cast(Reduction, reduction))


def walks(reduction: str, case: FigureColumn, how: str, replicas: int, seed: int) -> Replicas:
    """The walks of one curve; replica r is the same whatever the number of replicas."""
    return run(
        model_of(reduction),
        exponential(seed, replicas, last=case.last),
        case.method,
        case.learning(how),
        forget=Forget(LEAVER, how, case.iterations),
        replicas=replicas,
        seed=seed,
    )


def after_request(
    found: Replicas, learn: int, at: NDArray[np.int64], how: str
) -> tuple[Curves, list[float | None]]:
    """KL `at` iterations after the request (0: at the request), and the share of replicas
    that removed agent 10."""
    kl = found.kl(at=learn + at)
    if how == "retrain":
        # Iteration 0 of retraining is the prior, not the learned posterior.
        prior = found.model.decode(found.model.eta0)
        kl.values[:, :1] = exact_posterior(found).kl_from(prior)
        return kl, [None] * len(at)
    reached = found.path[:, learn:] == AGENTS - 1
    share = np.append(0.0, np.logical_or.accumulate(reached, axis=1).mean(axis=0))
    return kl, share[at].tolist()


def _left(found: Replicas, learn: int, at: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whose factors are in a token of atoms `at` iterations after the request: everybody's, and
    agent 10's until the walk reaches it."""
    reached = np.logical_or.accumulate(found.path[:, learn:] == AGENTS - 1, axis=1)
    inside = np.ones((len(reached), len(at), AGENTS), dtype=bool)
    gone = np.concatenate([np.zeros((len(reached), 1), dtype=bool), reached], axis=1)
    inside[:, :, -1] = ~gone[:, at]
    return inside


def _removal_time(found: Replicas, learn: int) -> dict[str, float]:
    """The iteration after the request at which agent 10 is first scheduled."""
    reached = found.path[:, learn:] == AGENTS - 1
    first = np.argmax(reached, axis=1)[reached.any(axis=1)] + 1.0
    return {
        "mean": float(first.mean()),
        "standard_error": float(first.std(ddof=1) / np.sqrt(len(first))),
        "replicas": len(first),
    }


def _settings() -> list[Setting]:
    paper_case, _, exact_case, _ = CASES
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
        ours("agent 10 unlike the others",
             f"mean {THETA_OTHER} (exact) or {THETA_DROP} (REINFORCE) instead of {THETA}",
             "not in the paper, whose drop cannot be seen otherwise; far enough to matter, near "
             "enough that q stays a Beta in most replicas when its factor is taken out. The loss "
             "of 0.8 has the larger offset, whose noise hides the drop of REINFORCE"),
        ours("subtract", "the token is only forwarded; agent 10 takes its factor out when first "
             "scheduled", "the paper's rule, its section on unlearning"),
        ours("refine", "subtract, and from then on the others keep learning",
             "not in the paper; removes what the others' factors remember"),
        atom_setting(),
        paper("retrain", "from the prior, on the complete graph without agent 10"),
        ours("iteration", "counted from the request; the paper's walk goes on from where it is",
             "not stated"),
    ]  # fmt: skip


def _shown(kl: float | None) -> str:
    return "∞" if kl is None else f"{kl:.4f}"


def _notes(replicas: int, results: dict[str, Any]) -> list[str]:
    notes, noisy, drop = [], results["sum"]["paper"], results["sum"]["drop"]
    for reduction in REDUCTIONS:
        landing = results[reduction]["paper"]["removed_at_iteration"]
        far = results[reduction]["dissimilar"]
        near = results[reduction]["similar"]
        notes.append(
            f"{reduction}: agent 10 is removed after {landing['mean']:.2f} ± "
            f"{landing['standard_error']:.2f} iterations (exact: "
            f"{results['expected_removal']:.1f}). Like the others: subtracting leaves "
            f"a median KL of {_shown(near['subtract']['kl_median'])} (floor {near['floor']:.4f}). "
            f"Unlike them: subtracting leaves {_shown(far['subtract']['kl_median'])}, refining "
            f"{_shown(far['refine']['kl_median'])}, retraining "
            f"{_shown(far['retrain']['kl_median'])} (floor {far['floor']:.4f}). Atoms, once "
            f"agent 10 is reached: {far['atoms']['kl_median']:.1e} from the exact posterior, "
            f"unlike them or not."
        )
    notes.append(
        f"REINFORCE with the sum loss, agent 10 with mean {THETA_DROP}: the median KL drops from "
        f"{_shown(drop['before'])} to {_shown(drop['subtract']['kl_median'])} when agent 10 is "
        f"reached; retraining ends at {_shown(drop['retrain']['kl_median'])}. Agent 10 like the "
        f"others: {_shown(noisy['before'])} before the request, "
        f"{_shown(noisy['subtract']['kl_median'])} after subtracting, "
        f"{_shown(noisy['retrain']['kl_median'])} after retraining: the gradient's noise, not "
        f"agent 10, decides."
    )
    notes.append(
        "Subtracting gives the product without agent 10's factor. That is the posterior without "
        "its data only if the other factors did not depend on it; they did, because they were "
        "fitted in its presence."
    )
    runs = {
        f"{reduction}, {case.name}, {how}": results[reduction][case.name][how]
        for reduction in REDUCTIONS
        for case in CASES
        for how in case.hows
    }
    notes.append(outside_note(replicas, runs))
    return notes


def draw_case(axes: Any, report: PaperReport, reduction: str, case: FigureColumn) -> None:
    """One panel: KL to the posterior without agent 10, from the request on."""
    table = report.table.where(reduction=reduction, case=case.name)
    for how, line in _LINES.items():
        if how in (*case.hows, "atoms"):
            rows = table.where(how=how)
            shown = ResultTable(
                rows.columns, rows.rows[1:]
            )  # iteration 0 has no place on a log axis
            style.band_line(axes, shown, "iteration", line, every=(6, 9) if line.marker else None)
    style.floor_line(axes, report.results[reduction][case.name]["floor"])
    when = report.results["expected_removal"]
    look = {"color": style.GREY, "linewidth": 0.8, "zorder": 1}
    axes.axvline(when, label=f"agent 10 reached (mean: {when:.1f})", **look)
    axes.set(xscale="log", yscale="log", xlim=(1, case.iterations))


def legend_entries(axes: Any) -> tuple[list[Any], list[str]]:
    """What `draw_case` draws, and what the bands are."""
    handles, labels = axes.get_legend_handles_labels()
    labels = [f"{label}, median" if label in _LABELS else label for label in labels]
    return [*handles, style.band_handle()], [*labels, style.BAND_LABEL]


def draw(report: PaperReport) -> Any:
    figure, grid = style.canvas(style.PAGE, 4.6, 2, len(CASES), sharey="row", sharex="col")
    letters = iter("abcdefgh")
    for row, reduction in zip(grid, REDUCTIONS, strict=True):
        for axes, case in zip(row, CASES, strict=True):
            draw_case(axes, report, reduction, case)
            out = report.results[reduction][case.name]["subtract"]["outside"]
            left = f"{out} of {report.replicas} left the domain" if out else ""
            title = "\n".join(
                filter(None, (case.title if reduction == REDUCTIONS[0] else "", left))
            )
            style.panel(axes, next(letters), title)
        lowest = report.results[reduction]["similar"]["floor"]
        high = {"mean": 1.0, "sum": 200.0}[reduction]
        row[0].set_ylim(0.7 * lowest, high)
        row[0].set_ylabel(f"{reduction} loss")
    style.numbers(grid[0, 0].yaxis, [0.05, 0.1, 0.2, 0.5, 1])
    figure.supylabel("KL($q$ ‖ exact posterior without agent 10), nats", fontsize="medium")
    for axes in grid[1]:
        axes.set_xlabel("iterations since the request")
    style.legend(figure, *legend_entries(grid[1, -1]), loc="outside lower center", ncols=3)
    return figure


FIG5 = Figure(
    "fig5",
    "Beta-exponential: unlearning agent 10",
    replicas=200,
    steps=len(REDUCTIONS) * sum(len(case.hows) for case in CASES),
    compute=compute,
    draw=draw,
    masked=NO_ROUNDS,
)
