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
from unweave.models.sums import count_sum, real_sum

__all__ = ["GammaExponential", "GammaPoisson"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _GammaModel(ConjugateModel):
    a: float = 1.0
    b: float = 1.0

    @property
    def prior(self) -> Distribution:
        return Gamma(a=self.a, b=self.b)


@dataclass(frozen=True)
class GammaPoisson(_GammaModel):
    """x ~ Poisson(theta), theta ~ Gamma(a, b): a record adds (x, 1)."""

    name: ClassVar[str] = "gamma-poisson"

    @property
    def schema(self) -> tuple[Column, ...]:
        return (count("x"),)

    def sums(self, rows: Floats) -> list[int]:
        return [count_sum(rows[:, 0]) << self.grid.bits[0], len(rows) << self.grid.bits[1]]

    def predictive(self, eta: ArrayLike) -> NegativeBinomialPredictive:
        a, b = np.asarray(eta, dtype=np.float64).tolist()
        return NegativeBinomialPredictive(a, b)


@dataclass(frozen=True)
class GammaExponential(_GammaModel):
    """x ~ Exponential(rate theta), theta ~ Gamma(a, b): a record adds (1, x)."""

    name: ClassVar[str] = "gamma-exponential"

    @property
    def schema(self) -> tuple[Column, ...]:
        return (nonnegative("x"),)

    @property
    def resolution(self) -> tuple[float, ...]:
        return (2.0 ** -self.grid.bits[1],)

    def sums(self, rows: Floats) -> list[int]:
        total = real_sum(rows[:, 0], self.grid.bits[1], self.grid.names[1])
        return [len(rows) << self.grid.bits[0], total]

    def predictive(self, eta: ArrayLike) -> LomaxPredictive:
        a, b = np.asarray(eta, dtype=np.float64).tolist()
        return LomaxPredictive(a, b)
