"""The picture of an evaluation: distance and cost of each method, the attack, many erasures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unweave.experiments.evaluation.membership import Membership
from unweave.experiments.evaluation.methods import Deletion, MethodScore
from unweave.experiments.paper import style

__all__ = ["draw"]

_COLORS = {
    "subtract": style.ORANGE,
    "refine": style.BLUE,
    "retrain": style.GREEN,
    "exact": style.BLACK,
}
_FLOOR = 1e-12  # a distance below it is drawn there


def draw(
    path: Path,
    methods: Sequence[MethodScore],
    attacks: Sequence[Membership] = (),
    deletions: Sequence[Deletion] = (),
) -> list[str]:
    """Write PNG, SVG and PDF; the names of the files."""
    panels: list[tuple[Any, Sequence[Any]]] = [(_distance, methods), (_cost, methods)]
    if any(one.calibration for one in methods):
        panels.append((_calibration, methods))
    if attacks:
        panels.append((_attack, attacks))
    if deletions:
        panels.append((_sequence, deletions))
    with style.look():
        figure, axes = style.canvas(2.3 * len(panels), 2.4, cols=len(panels))
        for letter, (show, rows), one in zip("abcde", panels, axes[0], strict=False):
            show(one, letter, rows)
        return style.save(figure, path)


def _bars(axes: Any, names: Sequence[str], values: Sequence[float], labels: Sequence[str]) -> None:
    axes.bar(names, values, color=[_COLORS[name] for name in names], width=0.62, zorder=2)
    for place, (value, label) in enumerate(zip(values, labels, strict=True)):
        axes.annotate(
            label, (place, value), (0, 2), textcoords="offset points", ha="center", fontsize=6.5
        )
    axes.grid(axis="x", visible=False)


def _distance(axes: Any, letter: str, methods: Sequence[MethodScore]) -> None:
    style.panel(axes, letter, "Distance")
    known = [m for m in methods if m.kl_to_reference is not None]
    values = [max(m.kl_to_reference or 0.0, _FLOOR) for m in known]
    labels = ["0" if m.kl_to_reference == 0.0 else f"{m.kl_to_reference:.1e}" for m in known]
    _bars(axes, [m.method for m in known], values, labels)
    axes.set_yscale("log")
    axes.set_ylim(_FLOOR / 3, max([*values, 1e-9]) * 30)
    axes.set_ylabel("KL(q ‖ never learned)")


def _cost(axes: Any, letter: str, methods: Sequence[MethodScore]) -> None:
    style.panel(axes, letter, "Cost")
    visits = [m.visits for m in methods]
    labels = [f"{m.visits} / {m.hops}" for m in methods]
    _bars(axes, [m.method for m in methods], visits, labels)
    axes.set_ylim(0, max([*visits, 1]) * 1.18)
    axes.set_ylabel("visits / hops")


def _calibration(axes: Any, letter: str, methods: Sequence[MethodScore]) -> None:
    style.panel(axes, letter, "Calibration")
    axes.plot((0, 1), (0, 1), color=style.BLACK, linewidth=0.9, linestyle=(0, (1, 1.4)))
    for one in methods:
        axes.errorbar(
            [b.predicted for b in one.calibration],
            [b.observed for b in one.calibration],
            [b.sd for b in one.calibration],
            color=_COLORS[one.method],
            label=one.method,
            fmt="o",  # bins with few records scatter: a line between them would show noise
            markersize=3,
            elinewidth=0.7,
            alpha=0.75,
        )
    axes.set_xlim(-0.03, 1.03)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("predicted probability")
    axes.set_ylabel("share that came true")
    axes.legend(loc="lower right")


def _attack(axes: Any, letter: str, attacks: Sequence[Membership]) -> None:
    style.panel(axes, letter, "Attack")
    found = [one for one in attacks if one.records == "forgotten"]
    width = 0.36
    for shift, key, alpha in ((-0.5, "tpr", 1.0), (0.5, "tpr_memorised", 0.45)):
        axes.bar(
            [place + shift * width for place in range(len(found))],
            [100 * getattr(one, key) for one in found],
            width,
            color=[_COLORS[one.method] for one in found],
            alpha=alpha,
            zorder=2,
        )
    axes.axhline(1.0, color=style.BLACK, linewidth=0.9, linestyle=(0, (1, 1.4)), zorder=3)
    axes.set_xticks(range(len(found)), [one.method for one in found])
    axes.set_ylabel("forgotten records found, %")
    axes.set_xlabel("pale: most memorised; dots: chance")
    axes.grid(axis="x", visible=False)


def _sequence(axes: Any, letter: str, deletions: Sequence[Deletion]) -> None:
    style.panel(axes, letter, "Many erasures")
    at = [one.erased for one in deletions]
    for name, key in (("subtract", "subtracted"), ("refine", "refined")):
        values = [getattr(one, key) for one in deletions]
        shown = [float("nan") if v is None else max(v, _FLOOR) for v in values]
        axes.plot(at, shown, color=_COLORS[name], label=name)
    axes.set_yscale("log")
    axes.set_xlabel("erasures of one record")
    axes.set_ylabel("KL(q ‖ never learned)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(loc="best")
