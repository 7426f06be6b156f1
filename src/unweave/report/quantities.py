"""Learned quantities as facts: moments, intervals and densities, and how numbers are written.

A live network shows its posterior in coarse numbers: the standard deviation with two digits, means
and ends of intervals to the same decimal place. Its densities are made from these numbers alone
(`matched`): a density of the exact law has many heights, from which a fit finds the exact sum,
however few digits each of them has. Two reports, from before and after an erasure, then tell the
change of mean and standard deviation to two digits, and no sum; `change` is that difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unweave.families.marginals import (
    BetaMarginal,
    GammaMarginal,
    InverseGammaMarginal,
    Marginal,
    NormalMarginal,
    StudentTMarginal,
    finite,
)
from unweave.privacy.noisy import MixtureMarginal
from unweave.report.facts import CurveFact, Moments, QuantityFact

if TYPE_CHECKING:
    from unweave.models import Posterior

__all__ = [
    "MOST",
    "change",
    "changes",
    "coarse",
    "figure",
    "live_moments",
    "matched",
    "moments_of",
    "quantities_of",
]

Floats = NDArray[np.float64]

MOST = 100  # quantities in a report
_DRAWN = 6  # with densities
_POINTS = 81  # of a density


def quantities_of(
    posteriors: Mapping[str, Posterior], *, live: bool = False
) -> tuple[QuantityFact, ...]:
    """The first quantities of these posteriors of one model, by the posteriors' labels, with the
    prior. `live`: in coarse numbers."""
    model = next(iter(posteriors.values())).model
    laws = {"prior": model.posterior(model.eta0).marginals} | {
        label: one.marginals for label, one in posteriors.items()
    }
    found = []
    for i, law in enumerate(laws["posterior"][:MOST]):
        here: dict[str, Marginal | None] = {label: each[i] for label, each in laws.items()}
        moments = {label: moments_of(each[i]) for label, each in laws.items()}
        if live:  # the prior is public
            moments = {k: v if k == "prior" else coarse(v) for k, v in moments.items()}
            here = {
                k: v if k == "prior" or v is None else matched(v, moments[k])
                for k, v in here.items()
            }
        drawn = {label: one for label, one in here.items() if one is not None}
        whole = i < _DRAWN and len(drawn) == len(here)
        found.append(QuantityFact(law.name, moments, _curves(drawn) if whole else ()))
    return tuple(found)


def live_moments(posterior: Posterior) -> dict[str, Moments]:
    """The coarse numbers of the quantities that a report draws."""
    return {law.name: coarse(moments_of(law)) for law in posterior.marginals[:_DRAWN]}


def change(before: Moments, now: Moments) -> tuple[float, float] | None:
    """The change of the coarse mean and standard deviation, as two reports tell it: to the second
    digit of the larger standard deviation."""
    if not before.sd or not now.sd or before.mean is None or now.mean is None:
        return None
    place = _place(max(before.sd, now.sd))
    mean, sd = (
        round(b - a, place) + 0.0 for a, b in ((before.mean, now.mean), (before.sd, now.sd))
    )
    return mean, sd


def changes(
    before: Mapping[str, Moments], now: Mapping[str, Moments]
) -> dict[str, tuple[float, float]]:
    """The changes of all quantities that have one."""
    found = {name: change(before[name], now[name]) for name in now if name in before}
    return {name: one for name, one in found.items() if one is not None}


def moments_of(law: Marginal) -> Moments:
    low, high = law.interval(0.95)
    return Moments(finite(law.mean()), finite(law.sd()), finite(low), finite(high))


def _beta(name: str, mean: float, sd: float) -> Marginal | None:
    total = mean * (1.0 - mean) / sd**2 - 1.0
    if not (0.0 < mean < 1.0 and total > 0.0):
        return None
    return BetaMarginal(name, np.asarray(mean * total), np.asarray((1.0 - mean) * total))


def _gamma(name: str, mean: float, sd: float) -> Marginal | None:
    if not mean > 0.0:
        return None
    return GammaMarginal(name, np.asarray((mean / sd) ** 2), np.asarray(mean / sd**2))


def _inverse_gamma(name: str, mean: float, sd: float) -> Marginal | None:
    if not mean > 0.0:
        return None
    a = 2.0 + (mean / sd) ** 2
    return InverseGammaMarginal(name, np.asarray(a), np.asarray(mean * (a - 1.0)))


def _normal(name: str, mean: float, sd: float) -> Marginal:
    return NormalMarginal(name, np.asarray(mean), np.asarray(sd))


_KINDS: dict[type[Marginal], Callable[[str, float, float], Marginal | None]] = {
    BetaMarginal: _beta,
    GammaMarginal: _gamma,
    InverseGammaMarginal: _inverse_gamma,
    NormalMarginal: _normal,
    # Its degrees of freedom grow with the number of records, which mean and sd do not tell.
    StudentTMarginal: _normal,
}


def matched(law: Marginal, found: Moments) -> Marginal | None:
    """The law of the same kind with the mean and standard deviation of `found`. Of `law` nothing
    is used but its kind, which the model tells: who sees the result learns what `found` says.

    None if there is no such law, and for kinds that the two numbers do not determine: the law of a
    user's own model, for instance, may have several modes, and must not be drawn as one hump."""
    kind = type(law.parts if isinstance(law, MixtureMarginal) else law)
    make = _KINDS.get(kind)
    if make is None or found.mean is None or not found.sd:
        return None
    return make(law.name, found.mean, found.sd)


def _scale(found: Moments) -> float | None:
    """The standard deviation; where it does not exist, a quarter of the interval."""
    if found.sd:
        return found.sd
    if found.low is None or found.high is None or not found.high > found.low:
        return None
    return (found.high - found.low) / 4.0


def _place(scale: float) -> int:
    """The decimal place of the second digit of `scale`."""
    return 1 - math.floor(math.log10(float(f"{scale:.1e}")))


def coarse(found: Moments) -> Moments:
    """The numbers to the second digit of the standard deviation."""
    scale = _scale(found)
    if scale is None:
        return Moments(None, None, None, None)
    place = _place(scale)

    def rounded(value: float | None) -> float | None:
        return None if value is None else round(value, place)

    sd = None if found.sd is None else float(f"{found.sd:.1e}")
    return Moments(rounded(found.mean), sd, rounded(found.low), rounded(found.high))


def figure(value: float | None, found: Moments) -> str:
    """A number of `found` for people: to the second digit of the standard deviation."""
    if value is None:
        return "–"
    scale = _scale(found)
    if scale is None or not 1e-6 < scale < 1e7:
        return f"{value:.3g}"
    place = _place(scale)
    shown = round(value, place) + 0.0  # no minus zero
    return f"{shown:,.{max(place, 0)}f}".replace("-", "−")


def _curves(laws: Mapping[str, Marginal]) -> tuple[CurveFact, ...]:
    """The densities on one grid, from the 0.05% to the 99.95% quantile of all but the prior."""
    learned = [law for label, law in laws.items() if label != "prior"]
    ends = np.array([law.quantile([0.0005, 0.9995]) for law in learned])
    low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
    room = 0.15 * (high - low)
    if not (math.isfinite(low) and math.isfinite(high) and room > 0.0):
        return ()
    # Digits are counted from the range: 101325 ± 0.01 has its first in the second decimal place.
    place = 5 - math.floor(math.log10(high - low))
    x = np.round(np.linspace(low - room, high + room, _POINTS), place)
    if not x[-1] > x[0]:  # the range is below the resolution of floating point
        return ()
    densities = {label: _density(law, x) for label, law in laws.items()}
    # A density that is infinite at an end of its support must not determine the height.
    top = max(
        min(
            float(densities[label].max()),
            3.0 * float(law.pdf(law.quantile([0.25, 0.5, 0.75])).max()),
        )
        for label, law in laws.items()
        if label != "prior"
    )
    if not top > 0.0 or not math.isfinite(top):
        return ()
    return tuple(
        CurveFact(label, tuple(x.tolist()), _heights(each / top))
        for label, each in densities.items()
    )


def _density(law: Marginal, x: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return np.nan_to_num(np.asarray(law.pdf(x), dtype=np.float64), nan=0.0, posinf=1e300)


def _heights(values: Floats) -> tuple[float, ...]:
    return tuple(np.round(np.clip(values, 0.0, 1.0), 3).tolist())
