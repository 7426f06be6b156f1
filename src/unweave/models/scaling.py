"""Models with real columns: agreed constants `center` and `scale` per column.

A model converts a record to z = (x − center)/scale and rounds z. Both constants are settings, so
that a manifest fixes them. Priors and results are in the user's units. The default prior is the
standard prior in z-units. `proposed` derives center and scale from ranges of values: powers of ten
as scales, and multiples of their halves as centers, so that few digits of the data become public.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError, GridOverflow
from unweave.models.base import Model
from unweave.models.settings import SettingTable
from unweave.models.units import Affine

__all__ = [
    "Prior",
    "Scaled",
    "check_names",
    "decade",
    "digits",
    "finer",
    "proposed",
    "proposed_noise",
    "stated",
    "written",
]


Floats = NDArray[np.float64]


def decade(size: float) -> float:
    """The power of ten at or below `size`; 1 for 0."""
    return float(f"1e{math.floor(math.log10(size))}") if size > 0.0 else 1.0


def digits(value: float) -> str:
    """A number with all its digits, in the shorter of two notations."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(value).removesuffix(".0")


def written(values: Mapping[str, float]) -> str:
    """The notation of network.toml: {dose = 1e-05}."""
    return "{" + ", ".join(f"{name} = {digits(value)}" for name, value in values.items()) + "}"


Prior = float | Sequence[float] | Mapping[str, float] | None


def stated(prior: Prior, names: Sequence[str], unstated: Floats) -> Floats:
    """A setting of a prior as one number for each name."""
    if prior is None:
        return unstated
    if isinstance(prior, Mapping):
        pairs = zip(names, unstated, strict=True)
        return np.array([prior.get(name, value) for name, value in pairs], dtype=np.float64)
    return np.array(np.broadcast_to(np.asarray(prior, dtype=np.float64), (len(names),)))


def check_names(model: str, setting: str, prior: Prior, names: Sequence[str]) -> None:
    """ConfigError if the prior has a name that is not in `names`."""
    for name in prior if isinstance(prior, Mapping) else ():
        if name not in names:
            raise ConfigError(
                f"{model}: {setting} has no {name!r}. Fix: choose from {', '.join(names)}"
            )


@dataclass(frozen=True)
class Scaled(Model):
    """`center` and `scale` by column; a column that is not named keeps 0 and 1."""

    _: KW_ONLY
    center: Mapping[str, float] | None = None
    scale: Mapping[str, float] | None = None

    def check_settings(self) -> None:
        super().check_settings()
        for setting, plain in (("center", 0.0), ("scale", 1.0)):
            values: Mapping[str, float] = getattr(self, setting) or {}
            for name, value in values.items():
                self._check_column(setting, name, value)
            kept = SettingTable(
                tuple((k, values[k]) for k in self.columns if values.get(k, plain) != plain)
            )
            object.__setattr__(self, setting, kept or None)

    def _check_column(self, setting: str, name: str, value: float) -> None:
        if name not in self.columns:
            raise ConfigError(
                f"{self.name}: {setting} names {name!r}, which is no column. Fix: choose from "
                f"{', '.join(self.columns)}"
            )
        if setting == "scale" and not 1e-100 <= value <= 1e100:  # products of scales stay finite
            raise ConfigError(
                f"{self.name}: scale of {name!r} is {value:g}. Fix: choose one from 1e-100 to 1e100"
            )
        if setting == "center" and value != 0 and not self.movable(name):
            raise ConfigError(
                f"{self.name}: column {name!r} cannot have a center: the model needs its zero. "
                "Fix: a scale only, or intercept = true for a regression"
            )

    def movable(self, name: str) -> bool:
        """Whether the model allows another zero of this column, so that it may have a center."""
        return self.schema[self.columns.index(name)].low == -np.inf

    def scalable(self, name: str) -> bool:
        """Whether the column may have a scale; otherwise it is used as it is."""
        return True

    def scale_of(self, name: str) -> float:
        return float((self.scale or {}).get(name, 1.0))

    def center_of(self, name: str) -> float:
        return float((self.center or {}).get(name, 0.0))

    @cached_property
    def scales(self) -> Floats:
        """The scale of each column."""
        return np.array([self.scale_of(name) for name in self.columns])

    @cached_property
    def centers(self) -> Floats:
        return np.array([self.center_of(name) for name in self.columns])

    def standard(self, rows: Floats) -> Floats:
        """z = (x − center)/scale, one float64 operation each, as in the engines' SQL."""
        if self.center is None and self.scale is None:
            return rows
        with np.errstate(over="ignore"):  # infinity does not fit the grid
            z: Floats = (rows - self.centers) / self.scales
        return z

    def whole(
        self, rows: Floats, multiplier: float, limit: float = 2.0**63
    ) -> tuple[Floats, Floats]:
        """z·multiplier rounded half to even, and its rounding error; GridOverflow at `limit`."""
        with np.errstate(over="ignore", invalid="ignore"):
            exact = self.standard(rows) * multiplier
            rounded: Floats = np.rint(exact)
        fits = np.abs(rounded).max(axis=0, initial=0.0) < limit
        if not fits.all():
            raise GridOverflow(self._too_large(int(np.argmin(fits)), limit / multiplier, rows))
        return rounded, rounded - exact

    def _too_large(self, j: int, room: float, rows: Floats) -> str:
        name, scale = self.columns[j], float(self.scales[j])
        size = decade(float(np.abs(rows[:, j] - self.centers[j]).max()))
        return (
            f"{self.name}, column {name!r}: a record is too large for the grid, which holds up to "
            f"±{room * scale:.3g} at scale {scale:g}. Fix: scale = {written({name: size})}"
        )

    @property
    def _prior_fix(self) -> str:
        return "a scale near the size of the prior, or a tighter prior"

    @property
    def affine(self) -> Affine | None:
        """The map of theta from z-units to the user's units; None if they are equal."""
        return None if self.center is None and self.scale is None else self.to_user()

    @abstractmethod
    def to_user(self) -> Affine:
        """The map of theta from z-units to the user's units."""


Ranges = Mapping[str, tuple[float, float]]


def proposed(
    model: Scaled, ranges: Ranges, step: float = 0.5
) -> tuple[dict[str, float], dict[str, float]]:
    """(center, scale) by column. The scale is the power of ten at or below the width of the range
    (or its largest magnitude, if the column is not movable). The center is the middle of the range,
    rounded to a multiple of `step` scales: default priors are at the center, so it must be near
    the records. A column that is used as it is has neither."""
    centers, scales = {}, {}
    for name, (low, high) in ranges.items():
        if not model.scalable(name):
            continue
        size = max(abs(low), abs(high))
        width = high - low if model.movable(name) and high > low else size
        scales[name] = decade(width)
        if model.movable(name):
            unit = Decimal(repr(scales[name])) * Decimal(step)
            middle = (Decimal(low) + Decimal(high)) / 2
            centers[name] = float(round(middle / unit) * unit)
    return centers, scales


def proposed_noise(low: float, high: float) -> float | None:
    """The sd of a column whose range is six sds wide, as 1, 2 or 5 times a power of ten; None for a
    range without width. The noise around a prediction is at most that wide."""
    sd = (high - low) / 6.0
    if not sd > 0.0:
        return None
    ten = decade(sd)
    step = next(
        step for step, below in ((1, 1.5), (2, 3.5), (5, 7.5), (10, 11)) if sd < below * ten
    )
    return float(Decimal(repr(ten)) * step)


def finer(scales: Mapping[str, float], decades: int) -> dict[str, float]:
    """The scales, divided by 10^decades."""
    return {name: float(Decimal(repr(s)).scaleb(-decades)) for name, s in scales.items()}
