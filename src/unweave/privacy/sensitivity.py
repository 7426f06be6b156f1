"""How much one record can move a sum: declared bounds, clipping to them, and the sensitivity Δ.

The statistics of a record are whole numbers on the grid, s = (s_1, …, s_D). With a scale a_j per
component, the sensitivity to adding or removing one record is

    Δ = max over records of √( Σ_j (s_j/a_j)² )

and component j gets noise of standard deviation a_j·σ. (To replace a record is to remove one and to
add one: at most 2Δ, and √2·Δ for counts.)

| model | statistic of a record | Δ | bound |
|---|---|---|---|
| beta-bernoulli, dirichlet-categorical | one count | 1 | none needed |
| beta-binomial with `trials` | (x, trials − x) | trials | none needed |
| normal-known-variance | (z, 1), z in units of the scale | √(1 + B²) | `bounds`: B = largest |z| |
| linear-regression | z_i z_j, i ≤ j, except the last square | C² | `norm`: √(Σ z_i²) ≤ C |

The last row: z = (1, features, target) has d + 1 entries, of which the last is the target. The
token carries every product of two different entries once, and every square but the target's. So
with r = Σ_{i≤d} z_i² and y = z_{d+1},

    ‖s‖² = Σ_{i≤j≤d} z_i² z_j² + y² Σ_{i≤d} z_i² ≤ r² + r·y² = r·(r + y²) ≤ C⁴,

with equality where one feature is C and all else is 0.

Records are clipped one by one, on the grid, before they are summed: a value outside its bounds is
moved to the nearest bound, and a regression's record (with its constant 1) is shortened to the
length C, which keeps y = xᵀtheta and gives it less weight. No record is refused for its size: that
would tell about it.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError
from unweave.models import (
    BetaBernoulli,
    BetaBinomial,
    DirichletCategorical,
    LinearRegression,
    Model,
    NormalKnownVariance,
)
from unweave.models.base import ConjugateModel
from unweave.models.sums import FEATURE_LIMIT
from unweave.privacy.terms import Bounds

__all__ = ["Sensitivity", "clipped", "sensitivity"]

Floats = NDArray[np.float64]

_HUGE = 1e150  # entries beyond this are moved there: their squares would overflow

_SUPPORTED = (
    "beta-bernoulli, beta-binomial (with trials), dirichlet-categorical, normal-known-variance, "
    "linear-regression"
)


@dataclass(frozen=True)
class Sensitivity:
    """`squared` is Δ², `scales` are the a_j in grid units."""

    squared: Fraction
    scales: tuple[Fraction, ...]


@dataclass(frozen=True)
class _ClippedNormal(NormalKnownVariance):
    """Values outside the bounds are summed as the nearest bound. Rounding to the grid is monotone,
    so no rounded value is outside the rounded bounds."""

    _: KW_ONLY
    low: float
    high: float

    def sums(self, rows: Floats) -> list[int]:
        return super().sums(np.clip(rows, self.low, self.high))

    def rounding(self, rows: Floats) -> Floats:
        return super().rounding(np.clip(rows, self.low, self.high))

    def clipped(self, rows: Floats) -> int:
        return int(((rows < self.low) | (rows > self.high)).any(axis=1).sum())

    def settings(self) -> dict[str, Any]:
        return _without(super().settings(), "low", "high")

    @property
    def largest(self) -> int:
        """The largest |z| on the grid."""
        return int(
            np.abs(self.whole(np.array([[self.low], [self.high]]), self.multiplier)[0]).max()
        )


@dataclass(frozen=True)
class _ClippedRegression(LinearRegression):
    """Records longer than `norm` are shortened."""

    _: KW_ONLY
    norm: float

    @property
    def radius(self) -> int:
        """The largest length of a record z, in steps of the grid."""
        return int(self.norm * self.multiplier)

    def _lengths(self, rows: Floats) -> tuple[Floats, Floats]:
        """The records in steps of the grid, not rounded, and their lengths."""
        exact = np.clip(self.standard(rows), -_HUGE, _HUGE) * self.multiplier
        if self.constant:
            exact = np.insert(exact, 0, self.multiplier, axis=1)
        largest = np.maximum(np.abs(exact).max(axis=1, initial=1.0), 1.0)[:, None]
        return exact, largest[:, 0] * np.sqrt(np.square(exact / largest).sum(axis=1))

    def clipped(self, rows: Floats) -> int:
        return int((self._lengths(rows)[1] > self.radius).sum())

    def z(self, rows: Floats) -> tuple[Floats, Floats]:
        # First in floating point, so that records of any size fit the grid …
        exact, length = self._lengths(rows)
        exact = exact * np.minimum(1.0, self.radius / np.maximum(length, 1.0))[:, None]
        # … then on the grid: entries are cut towards 0, so that the length is at most the radius.
        whole = np.rint(exact)
        squares = np.square(whole.astype(np.int64)).sum(axis=1)
        over = squares > self.radius**2
        shrink = (self.radius / np.sqrt(squares[over])) * (1 - 2.0**-40)
        whole[over] = np.trunc(whole[over] * shrink[:, None])
        assert (np.square(whole.astype(np.int64)).sum(axis=1) <= self.radius**2).all()
        return whole, whole - exact

    def settings(self) -> dict[str, Any]:
        return _without(super().settings(), "norm")


def clipped(model: Model, bounds: Bounds) -> ConjugateModel:
    """The model whose sums are those of clipped records; ConfigError if the model, its settings or
    the bounds allow no differential privacy."""
    name = model.name
    if not isinstance(model, ConjugateModel) or type(model) not in _MODELS:
        raise ConfigError(
            f"{name}: no differential privacy: no bound of a record's influence is known. Fix: "
            f"choose from {_SUPPORTED}; or remove epsilon"
        )
    if model.alpha != 1 or model.reduction != "sum":
        raise ConfigError(
            f'{name}: differential privacy needs alpha = 1 and reduction = "sum". Fix: set both'
        )
    unknown = [column for column in bounds.columns if column not in model.columns]
    if unknown:
        raise ConfigError(
            f"{name}: bounds names {unknown[0]!r}, which is no column. Fix: choose from "
            f"{', '.join(model.columns)}"
        )
    for column, (low, high) in bounds.columns.items():
        if not -np.inf < low < high < np.inf:
            raise ConfigError(
                f"{name}: bounds of {column!r} are {low:g} to {high:g}. Fix: two finite numbers, "
                "the lower one first"
            )
    settings = {f.name: getattr(model, f.name) for f in fields(model)}
    if isinstance(model, NormalKnownVariance):
        return _clipped_normal(model, bounds, settings)
    if isinstance(model, LinearRegression):
        return _clipped_regression(model, bounds, settings)
    if isinstance(model, BetaBinomial) and model.trials is None:
        raise ConfigError(
            f"{name}: differential privacy needs a bound of a record's trials. Fix: the setting "
            "trials, the same for every record"
        )
    if bounds.columns or bounds.norm is not None:
        raise ConfigError(f"{name}: its records are counts and need no bounds. Fix: remove them")
    return model


def _clipped_normal(
    model: NormalKnownVariance, bounds: Bounds, settings: dict[str, Any]
) -> ConjugateModel:
    if "x" not in bounds.columns or bounds.norm is not None:
        raise ConfigError(
            f"{model.name}: differential privacy needs bounds of x, and no norm. Fix: bounds = "
            "{ x = [lowest, highest] }, from what is known without looking at records"
        )
    low, high = bounds.columns["x"]
    return _ClippedNormal(**settings, low=low, high=high)


def _clipped_regression(
    model: LinearRegression, bounds: Bounds, settings: dict[str, Any]
) -> ConjugateModel:
    if model.agent_sd is not None:
        raise ConfigError(
            f"{model.name}: no differential privacy with agent_sd. Fix: remove agent_sd or epsilon"
        )
    if bounds.norm is None or bounds.columns:
        raise ConfigError(
            f"{model.name}: differential privacy needs a norm, and no bounds. Fix: norm = the "
            "largest length of (1, features, target) in units of their scales; 2√(columns) is usual"
        )
    least = 1.0 if model.constant else 0.0
    if not least < bounds.norm < FEATURE_LIMIT / model.multiplier:
        raise ConfigError(
            f"{model.name}: norm = {bounds.norm:g}. Fix: a number above {least:g} and below "
            f"{FEATURE_LIMIT / model.multiplier:.3g}"
        )
    return _ClippedRegression(**settings, norm=bounds.norm)


def sensitivity(model: ConjugateModel) -> Sensitivity:
    """Of a model that `clipped` has made."""
    if isinstance(model, _ClippedNormal):
        scale = Fraction(model.multiplier)
        bound = model.largest / scale
        return Sensitivity(1 + bound * bound, (scale, Fraction(model.precision_units)))
    if isinstance(model, _ClippedRegression):
        shifts = [q - 2 * model.feature_bits for q in model.grid.bits]
        return Sensitivity(
            Fraction(model.radius) ** 4, tuple(Fraction(1 << shift) for shift in shifts)
        )
    counts = model.trials if isinstance(model, BetaBinomial) else 1
    assert counts is not None
    return Sensitivity(Fraction(counts) ** 2, tuple(Fraction(1 << q) for q in model.grid.bits))


_MODELS = frozenset(
    {BetaBernoulli, BetaBinomial, DirichletCategorical, NormalKnownVariance, LinearRegression}
)


def _without(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    """A manifest states bounds in [privacy], not in [model]."""
    return {key: value for key, value in settings.items() if key not in names}
