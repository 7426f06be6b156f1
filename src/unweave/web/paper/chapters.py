"""The chapters of the paper on the page: one walk of figure 3 or 5, beside many replicas of it.

A chapter shows replica 0 of the experiment, hop by hop: where the walk is, who is in the sum, the
posterior and its KL. The curves of all replicas, their band and the other methods are drawn beside
it. All numbers come from `experiments.paper`; replica 0 equals, seed by seed, a `Federation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unweave.experiments.paper import fig3, fig5
from unweave.experiments.paper.experiment import AGENTS, RECORDS, columns, median, summarised
from unweave.experiments.paper.fig4 import floor
from unweave.experiments.replicas import Replicas
from unweave.graph import Topology
from unweave.graph.cover import expected_cover
from unweave.grid import Ints
from unweave.models import Model
from unweave.web.view import Series

__all__ = ["CHAPTERS", "EARLIER", "Chapter", "Walked"]

EARLIER = "before"  # the moment before agent 10 is forgotten
_BEFORE = 20  # hops before the request that are shown
_REDUCTION = "sum"  # of the loss in figure 5: the conventional posterior


@dataclass(frozen=True)
class Walked:
    """What a chapter shows. Column i of the arrays is the state after hop `i + offset`."""

    model: Model
    topology: Topology
    path: NDArray[np.int32]  # [I] the scheduled agent
    units: Ints  # [I, D]
    kl: NDArray[np.float64]  # [I] to the exact posterior; infinite: no posterior
    series: dict[str, Series]  # the curves of the replicas, complete
    settings: dict[str, str]
    results: dict[str, float]  # the figure's numbers, by name
    offset: int = 1  # the hop of column 0
    request: int | None = None  # the column at whose end agent 10 is to be forgotten
    inside: frozenset[int] = frozenset()  # who was in the sum before column 0
    absent: frozenset[int] = frozenset()  # who takes no part
    before: int = 0  # hops before column 0
    moments: dict[str, tuple[str, Ints]] = field(default_factory=dict)

    @property
    def last(self) -> int:
        return len(self.path) - 1

    def hop(self, column: int) -> int:
        return column + self.offset

    def removed_at(self) -> int | None:
        """The column at which the walk reaches agent 10 after the request."""
        if self.request is None:
            return None
        after = np.flatnonzero(self.path[self.request + 1 :] == AGENTS - 1)
        return int(after[0]) + self.request + 1 if len(after) else None

    def settled_at(self) -> int | None:
        """The column from which on the KL stays near its last value, after agent 10 is out."""
        near = self.kl <= 1.02 * self.kl[-1]
        first = len(near) - int(np.argmin(near[::-1])) if not near.all() else 0
        removed = self.removed_at()
        return first if removed is None or first > removed else None

    def included(self, column: int) -> frozenset[int]:
        """Whose factor is in the sum."""
        seen = self.inside | frozenset(self.path[: column + 1].tolist())
        removed = self.removed_at()
        gone = {AGENTS - 1} if removed is not None and column >= removed else set()
        return seen - gone - self.absent


@dataclass(frozen=True)
class Chapter:
    """One walk of the paper, and what it teaches."""

    figure: str
    graph: str
    title: str
    lesson: str
    load: Callable[[int, int], Walked]  # replicas, seed
    replicas: int


def _line(title: str, points: Iterator[tuple[float, float]], part: str = "line") -> Series:
    line: Series = {
        "title": title,
        "x": "hop",
        "unit": "nats",
        "log": True,
        "empty": "It is computed now.",
        "points": [(x, y) for x, y in points if np.isfinite(y)],
        "chart": "progress",
    }
    if part != "line":
        line["part"] = "low" if part == "low" else "high"
    return line


def _own(title: str) -> Series:
    line = _line(title, iter(()))
    del line["chart"]
    line["empty"] = "The walk has not begun."
    return line


def _zip(x: NDArray[np.int64], values: list[float | int | None]) -> Iterator[tuple[float, float]]:
    for one, value in zip(x.tolist(), values, strict=True):
        if value is not None:
            yield float(one), float(value)


# -------------------------------------------------------------------------------------- figure 3


def _fig3(graph: str) -> Callable[[int, int], Walked]:
    def load(replicas: int, seed: int) -> Walked:
        many = fig3.walks(graph, replicas, seed)
        shown = many if replicas == 1 else _first(many)
        hops = np.arange(1, fig3.ITERATIONS + 1)
        rows = list(zip(*summarised(many.kl()), strict=True))
        _, means, lows, highs, _ = (list(column) for column in rows)
        covered = shown.first_visits[0]
        cover = int(covered.max()) if covered.all() else 0
        return Walked(
            model=many.model,
            topology=many.topology,
            path=shown.path[0],
            units=shown.units[0],
            kl=shown.kl().values[0],
            series={
                "progress": _own("KL to the posterior of all data: this walk"),
                "mean": _line(f"mean of {replicas:,} walks", _zip(hops, means)),
                "low": _line("75% of the walks", _zip(hops, lows), "low"),
                "high": _line("75% of the walks", _zip(hops, highs), "high"),
            },
            settings=_settings(graph, replicas, seed),
            results={
                "expected_cover": expected_cover(many.topology).value,
                "covered_at": float(cover),
            },
            moments={"exact": ("the posterior of all data", _exact_units(shown))},
        )

    return load


def _first(many: Replicas) -> Replicas:
    """Replica 0 alone."""
    from dataclasses import replace

    target = many.target
    one = target[:1] if isinstance(target, np.ndarray) else target
    return replace(
        many,
        seeds=many.seeds[:1],
        path=many.path[:1],
        units=many.units[:1],
        changed=many.changed[:1],
        outside=many.outside[:1],
        find_target=lambda: one,
    )


def _exact_units(shown: Replicas) -> Ints:
    target = shown.target
    assert isinstance(target, np.ndarray)  # a conjugate model
    units: Ints = target.reshape(-1, target.shape[-1])[0]
    return units


# -------------------------------------------------------------------------------------- figure 5


def _fig5(name: str, how: str) -> Callable[[int, int], Walked]:
    case = next(case for case in fig5.CASES if case.name == name)

    def load(replicas: int, seed: int) -> Walked:
        at = np.append(0, columns(case.iterations))
        lines: dict[str, Series] = {}
        results: dict[str, float] = {}
        found: dict[str, Replicas] = {}
        for one in dict.fromkeys((how, *case.hows)):
            found[one] = fig5.walks(_REDUCTION, case, one, replicas, seed)
            curves, _ = fig5.after_request(found[one], case.learning(one), at, one)
            rows = list(zip(*summarised(curves), strict=True))
            medians, _, lows, highs, _ = (list(column) for column in rows)
            results[f"{one}_median"] = float(curves.median()[-1])
            if one == how:
                lines["median"] = _line(
                    f"{_HOWS[one]}: median of {replicas} walks", _zip(at, medians)
                )
                lines["low"] = _line("75% of the walks", _zip(at, lows), "low")
                lines["high"] = _line("75% of the walks", _zip(at, highs), "high")
                results["before"] = float(curves.median()[0])
            else:
                lines[one] = _line(f"{_HOWS[one]}: median", _zip(at, medians))
        lowest = floor(found[how].model, _data(case, replicas, seed), AGENTS - 1)  # type: ignore[arg-type]
        results["floor"] = median(lowest)
        ends = iter([(0.0, results["floor"]), (float(case.iterations), results["floor"])])
        lines["floor"] = _line("the best that the family can do", ends)
        learn, run = case.learning(how), found[how]
        start = 1 if how == "retrain" else max(learn - _BEFORE, 0)
        shown = np.arange(start, run.path.shape[1])
        kl = run.kl(at=shown + 1).values[0]
        retrained = found["retrain"].units[0, -1]
        moments = {"retrained": ("retrained without agent 10", retrained)}
        if how != "retrain":
            moments = {
                EARLIER: ("before agent 10 was forgotten", run.units[0, learn - 1])
            } | moments
        return Walked(
            model=run.model,
            topology=run.topology,
            path=run.path[0, start:],
            units=run.units[0, start:],
            kl=kl,
            series={"progress": _own("KL to the posterior without agent 10: this walk"), **lines},
            settings=_settings("complete", replicas, seed)
            | {"gradient": case.method.estimator, "agent 10": f"mean of its records {case.last:g}"},
            results=results,
            offset=start - learn + 1,
            before=start,
            request=None if how == "retrain" else learn - 1 - start,
            inside=frozenset() if how == "retrain" else frozenset(run.path[0, :start].tolist()),
            absent=frozenset({AGENTS - 1}) if how == "retrain" else frozenset(),
            moments=moments,
        )

    return load


def _data(case: fig5.FigureColumn, replicas: int, seed: int) -> object:
    from unweave.experiments.paper.experiment import exponential

    return exponential(seed, replicas, last=case.last)


_HOWS = {
    "subtract": "subtract",
    "refine": "subtract, then refine",
    "retrain": "retrain from scratch",
}


def _settings(graph: str, replicas: int, seed: int) -> dict[str, str]:
    return {
        "graph": f"{graph}, {AGENTS} agents",
        "records per agent": str(RECORDS),
        "way of the token": "random walk (Metropolis), as in the paper",
        "replicas": f"{replicas:,}",
        "seed": str(seed),
        "shown": "replica 0 of the experiment",
    }


CHAPTERS: dict[str, Chapter] = {
    "fig3-star": Chapter(
        "fig3",
        "star",
        "Figure 3: star",
        "On a star every second hop leads back to the hub, so the walk takes long to see "
        "everybody.",
        _fig3("star"),
        1000,
    ),
    "fig3-ring": Chapter(
        "fig3",
        "ring",
        "Figure 3: ring",
        "On a ring the walk moves to and fro, and new agents are only at its two ends.",
        _fig3("ring"),
        1000,
    ),
    "fig3-complete": Chapter(
        "fig3",
        "complete",
        "Figure 3: complete graph",
        "Where everybody is everybody's neighbour, the walk finds new agents soonest.",
        _fig3("complete"),
        1000,
    ),
    "fig5-similar": Chapter(
        "fig5",
        "complete",
        "Figure 5: forget an agent like the others",
        "Agent 10 has records like the others'. Subtracting its factor leaves little of it behind.",
        _fig5("similar", "subtract"),
        200,
    ),
    "fig5-subtract": Chapter(
        "fig5",
        "complete",
        "Figure 5: forget an unusual agent, subtract",
        "Agent 10 has unusual records. The others fitted their factors in its presence, so "
        "subtracting its factor alone leaves a trace of it.",
        _fig5("dissimilar", "subtract"),
        200,
    ),
    "fig5-refine": Chapter(
        "fig5",
        "complete",
        "Figure 5: forget an unusual agent, then refine",
        "The same, but afterwards the others go on learning: their factors lose the trace.",
        _fig5("dissimilar", "refine"),
        200,
    ),
    "fig5-retrain": Chapter(
        "fig5",
        "complete",
        "Figure 5: retrain from scratch",
        "The comparison: all start again from the prior, without agent 10.",
        _fig5("dissimilar", "retrain"),
        200,
    ),
    "fig5-paper": Chapter(
        "fig5",
        "complete",
        "Figure 5: as in the paper, with REINFORCE",
        "The paper's gradient is noisy: its noise hides most of what agent 10 leaves behind.",
        _fig5("paper", "subtract"),
        100,
    ),
}
