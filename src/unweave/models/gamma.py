"""Rates with a Gamma prior (shape a, rate b)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.arguments import number
from unweave.errors import ConfigError
from unweave.families import Distribution, Gamma
from unweave.lazy import special
from unweave.models.base import ConjugateModel
from unweave.models.columns import Column, count, events, nonnegative
from unweave.models.fitted.predictive_counts import NegativeBinomialPredictive
from unweave.models.fitted.predictive_reals import LomaxPredictive
from unweave.models.scaling import Scaled
from unweave.models.sums import count_sum, whole_sum
from unweave.models.units import Affine

__all__ = ["GammaEvents", "GammaExponential", "GammaPoisson"]


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GammaPoisson(ConjugateModel):
    """x ~ Poisson(theta), theta ~ Gamma(a, b): a record adds (x, 1)."""

    a: float = 1.0
    b: float = 1.0

    name: ClassVar[str] = "gamma-poisson"

    @property
    def prior(self) -> Distribution:
        return Gamma(a=self.a, b=self.b)

    @property
    def schema(self) -> tuple[Column, ...]:
        return (count("x"),)

    def sums(self, rows: Floats) -> list[int]:
        return [count_sum(rows[:, 0]) << self.grid.bits[0], len(rows) << self.grid.bits[1]]

    def log_base(self, rows: Floats) -> Floats:
        return np.asarray(-special.gammaln(rows[:, 0] + 1))

    def replicate(self, theta: Floats, rows: Floats, rng: np.random.Generator) -> Floats:
        return rng.poisson(theta, rows.shape).astype(np.float64)

    def predictive(self, eta: ArrayLike) -> NegativeBinomialPredictive:
        a, b = np.asarray(eta, dtype=np.float64).tolist()
        return NegativeBinomialPredictive(a, b)


@dataclass(frozen=True)
class _Times(Scaled, ConjugateModel):
    """A rate per unit of the real column of times, which has the grid's second component."""

    a: float = 1.0
    b: float | None = None

    times: ClassVar[str]

    @property
    def prior(self) -> Distribution:
        return Gamma(a=self.a, b=1.0 if self.b is None else self.b / self.scale_of(self.times))

    @property
    def multiplier(self) -> float:
        """The multiplier of a time before it is rounded to a whole number."""
        return 2.0 ** self.grid.bits[1]

    def rounding(self, rows: Floats) -> Floats:
        j = self.columns.index(self.times)
        _, added = self.whole(rows, self.multiplier)
        return np.array([0.0, float(added[:, j].sum()) / self.multiplier])

    def to_user(self) -> Affine:
        """The unit of a rate is 1 over the unit of time."""
        return Affine.location(1 / self.scale_of(self.times), 0.0)


@dataclass(frozen=True)
class GammaExponential(_Times):
    """x ~ Exponential(rate theta), theta ~ Gamma(a, b): a record adds (1, x). `b`, in the units of
    x, is the scale of x unless given."""

    name: ClassVar[str] = "gamma-exponential"
    times: ClassVar[str] = "x"

    @property
    def schema(self) -> tuple[Column, ...]:
        return (nonnegative("x"),)

    @property
    def resolution(self) -> tuple[float, ...]:
        return (self.scale_of("x") / self.multiplier,)

    def sums(self, rows: Floats) -> list[int]:
        whole, _ = self.whole(rows, self.multiplier)
        return [len(rows) << self.grid.bits[0], whole_sum(whole[:, 0])]

    def log_base(self, rows: Floats) -> Floats:
        return np.full(len(rows), -np.log(self.scale_of("x")))

    def replicate(self, theta: Floats, rows: Floats, rng: np.random.Generator) -> Floats:
        return rng.exponential(1 / theta, rows.shape)

    def predictive(self, eta: ArrayLike) -> LomaxPredictive:
        a, b = np.asarray(eta, dtype=np.float64).tolist()
        return LomaxPredictive(a, b * self.scale_of("x"))


@dataclass(frozen=True)
class GammaEvents(_Times):
    """Events at a constant rate theta ~ Gamma(a, b), over an exposure: a record adds
    (events, exposure). An exponential duration is an exposure with one event, or with none if it
    was censored (`true` and `false` are read as 1 and 0). `b`, in the units of the exposure, is its
    scale unless given."""

    name: ClassVar[str] = "gamma-events"
    times: ClassVar[str] = "exposure"

    @property
    def schema(self) -> tuple[Column, ...]:
        return events("events"), nonnegative("exposure")

    def scalable(self, name: str) -> bool:
        return name == self.times  # events are counted

    def check_settings(self) -> None:
        super().check_settings()
        if self.scale_of("events") != 1.0:
            raise ConfigError(f"{self.name}: events are counted. Fix: a scale of the exposure only")

    @property
    def resolution(self) -> tuple[float, ...]:
        return 0.0, self.scale_of("exposure") / self.multiplier

    def sums(self, rows: Floats) -> list[int]:
        whole, _ = self.whole(rows, self.multiplier)
        return [count_sum(rows[:, 0]) << self.grid.bits[0], whole_sum(whole[:, 1])]

    def log_base(self, rows: Floats) -> Floats:
        """The density of the times of the events: theta^events exp(−theta·exposure)."""
        return np.asarray(-rows[:, 0] * np.log(self.scale_of("exposure")))

    def outcomes_of(self, rows: Floats) -> Floats:
        return rows[:, :1]

    def replicate(self, theta: Floats, rows: Floats, rng: np.random.Generator) -> Floats:
        """The events of the same exposures."""
        return np.column_stack([rng.poisson(theta * rows[:, 1]), rows[:, 1]])

    def predictive(
        self, eta: ArrayLike, exposure: float | None = None
    ) -> LomaxPredictive | NegativeBinomialPredictive:
        """The exposure until the next event, or the events of a new `exposure`."""
        a, b = np.asarray(eta, dtype=np.float64).tolist()
        b *= self.scale_of("exposure")
        if exposure is None:
            return LomaxPredictive(a, b)
        time = number(exposure, f"{self.name}: exposure")
        if not time > 0:
            raise ConfigError(f"{self.name}: exposure = {time:g}. Fix: a number above 0")
        return NegativeBinomialPredictive(a, b / time)
