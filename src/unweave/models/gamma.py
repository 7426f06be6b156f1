"""Rates with a Gamma prior (shape a, rate b)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.families import Distribution, Gamma
from unweave.models.base import ConjugateModel
from unweave.models.columns import Column, count, nonnegative
from unweave.models.predictive_counts import NegativeBinomialPredictive
from unweave.models.predictive_reals import LomaxPredictive
from unweave.models.scaling import Scaled
from unweave.models.sums import count_sum, whole_sum
from unweave.models.units import Affine

__all__ = ["GammaExponential", "GammaPoisson"]


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

    def predictive(self, eta: ArrayLike) -> NegativeBinomialPredictive:
        a, b = np.asarray(eta, dtype=np.float64).tolist()
        return NegativeBinomialPredictive(a, b)


@dataclass(frozen=True)
class GammaExponential(Scaled, ConjugateModel):
    """x ~ Exponential(rate theta), theta ~ Gamma(a, b): a record adds (1, x). `b`, in the units of
    x, is the scale of x unless given."""

    a: float = 1.0
    b: float | None = None

    name: ClassVar[str] = "gamma-exponential"

    @property
    def prior(self) -> Distribution:
        return Gamma(a=self.a, b=1.0 if self.b is None else self.b / self.scale_of("x"))

    @property
    def schema(self) -> tuple[Column, ...]:
        return (nonnegative("x"),)

    @property
    def multiplier(self) -> float:
        """The multiplier of a time before it is rounded to a whole number."""
        return 2.0 ** self.grid.bits[1]

    @property
    def resolution(self) -> tuple[float, ...]:
        return (self.scale_of("x") / self.multiplier,)

    def sums(self, rows: Floats) -> list[int]:
        whole, _ = self.whole(rows, self.multiplier)
        return [len(rows) << self.grid.bits[0], whole_sum(whole[:, 0])]

    def rounding(self, rows: Floats) -> Floats:
        _, added = self.whole(rows, self.multiplier)
        return np.array([0.0, float(added.sum()) / self.multiplier])

    def to_user(self) -> Affine:
        """The unit of a rate is 1 over the unit of x."""
        return Affine.location(1 / self.scale_of("x"), 0.0)

    def predictive(self, eta: ArrayLike) -> LomaxPredictive:
        a, b = np.asarray(eta, dtype=np.float64).tolist()
        return LomaxPredictive(a, b * self.scale_of("x"))
