"""Densities and intervals for the page: a posterior, its prior and earlier moments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from unweave.families.marginals import Marginal
from unweave.models.fitted.posterior import Posterior
from unweave.report.quantities import moments_of
from unweave.web.source import NotFound
from unweave.web.view import Curve, MomentAnswer, ParameterView

__all__ = ["MOST", "curves", "draw", "intervals", "moment_of", "parameters"]

Floats = NDArray[np.float64]

MOST = 200  # parameters in a view
_POINTS = 201
_TAIL = 0.0005  # probability that the grid leaves out at either end
_ROOM = 0.25  # of the range, at either end: shows the prior of a posterior that is far from it


def parameters(posterior: Posterior, prior: Posterior | None = None) -> list[ParameterView]:
    """Mean, sd and 95% interval of the first quantities, beside those of the prior. A moment that
    does not exist is left out."""
    laws = posterior.marginals[:MOST]
    before: Sequence[Marginal | None] = [None] * len(laws)
    if prior is not None:
        before = prior.marginals[:MOST]
    shown: list[ParameterView] = []
    for law, old in zip(laws, before, strict=True):
        one: ParameterView = {"name": law.name}
        known = {"": law} | ({} if old is None else {"prior_": old})
        for prefix, each in known.items():
            for key, value in asdict(moments_of(each)).items():
                if value is not None:
                    one[f"{prefix}{key}"] = value  # type: ignore[literal-required]
        shown.append(one)
    return shown


T = TypeVar("T")


def moment_of(moments: Mapping[str, tuple[str, T]], name: str) -> tuple[str, T]:
    """The label and the posterior of an earlier moment."""
    if name not in moments:
        raise NotFound("moments: no such moment is kept. Fix: choose one from the list of the page")
    return moments[name]


def intervals(label: str, posterior: Posterior) -> MomentAnswer:
    """The quantities at an earlier moment."""
    return {"label": label, "parameters": parameters(posterior)}


def curves(posteriors: Mapping[str, Posterior], names: Iterable[str]) -> dict[str, list[Curve]]:
    """The densities of the quantities `names` in all posteriors, by label."""
    laws = {label: {law.name: law for law in one.marginals} for label, one in posteriors.items()}
    found: dict[str, list[Curve]] = {}
    for name in names:
        these = {label: by_name[name] for label, by_name in laws.items() if name in by_name}
        if these:
            found[name] = draw(these)
    return found


def draw(laws: Mapping[str, Marginal]) -> list[Curve]:
    """The densities of one quantity, by label. The grid covers all of them but the prior, which may
    be so wide that the others would be a line. A density that is infinite at an end of its support
    is cut there."""
    near = [law for label, law in laws.items() if label != "prior"]
    x = _grid(near or [*laws.values()])
    return [_curve(label, law, x) for label, law in laws.items()]


def _grid(laws: Sequence[Marginal]) -> Floats:
    """Equal steps over all laws, without the points that lie outside of every support."""
    ends = np.array([law.quantile([_TAIL, 1.0 - _TAIL]) for law in laws])
    low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
    room = _ROOM * (high - low)
    x = np.linspace(low - room, high + room, _POINTS)
    with np.errstate(all="ignore"):
        return x[np.any([np.isfinite(law.log_pdf(x)) for law in laws], axis=0)]


def _curve(label: str, law: Marginal, x: Floats) -> Curve:
    with np.errstate(all="ignore"):
        y = np.asarray(law.pdf(x), dtype=np.float64)
    good = np.isfinite(y)
    return {"label": label, "x": x[good].tolist(), "y": y[good].tolist()}
