"""Negative binomial regression: counts whose variance exceeds their mean."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import ConfigError
from unweave.lazy import special
from unweave.models.glm.poisson import RateModel
from unweave.models.glm.predictive import CountsPredictive, NegativeBinomialCountsPredictive
from unweave.models.glm.quadrature import Triple, softplus

__all__ = ["NegativeBinomialRegression"]


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NegativeBinomialRegression(RateModel):
    """y has mean exposure·exp(xᵀtheta) and variance mean + mean²/shape; `shape` is known."""

    shape: float = 1.0

    name: ClassVar[str] = "negative-binomial-regression"
    self_concordant: ClassVar[bool] = True
    estimate_within: ClassVar[float | None] = 3.0

    def check_settings(self) -> None:
        if not self.shape > 0:
            raise ConfigError(f"{self.name}: shape = {self.shape}. Fix: a number above 0")
        super().check_settings()

    def pointwise(self, t: Floats, y: Floats) -> Triple:
        """f = (y + r) log(1 + e^t/r) − y t."""
        at, both = t - math.log(self.shape), y + self.shape
        p = special.expit(at)
        return both * np.logaddexp(0.0, at) - y * t, both * p - y, both * p * special.expit(-at)

    def derivatives(self, a: Floats, v: Floats, y: Floats) -> Triple:
        f, first, second = softplus(a - math.log(self.shape), v)
        both = y + self.shape
        return both * f - y * a, both * first - y, both * second

    def predictive(
        self, eta: ArrayLike, x: Any, exposure: ArrayLike | None = None
    ) -> CountsPredictive:
        """The counts of rows x with these exposures (default: their column in x, or 1)."""
        return NegativeBinomialCountsPredictive(*self.rates(eta, x, exposure), self.shape)
