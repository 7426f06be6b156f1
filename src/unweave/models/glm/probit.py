"""Probit regression: y ∈ {0, 1}, P(y = 1) = Φ(t)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.lazy import special
from unweave.models.columns import Column, binary
from unweave.models.glm.base import GLM
from unweave.models.glm.predictive import BinaryPredictive
from unweave.models.glm.quadrature import Triple

__all__ = ["ProbitRegression"]


Floats = NDArray[np.float64]

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class ProbitRegression(GLM):
    """y = 1 with probability Φ(xᵀtheta), the normal distribution function."""

    name: ClassVar[str] = "probit-regression"
    classifies: ClassVar[bool] = True
    estimate_within: ClassVar[float | None] = 5.0

    def target_column(self) -> Column:
        return binary(self.target)

    @property
    def width(self) -> float:
        """To the zeros of Φ in the complex plane."""
        return 2.8

    def pointwise(self, t: Floats, y: Floats) -> Triple:
        """f = −log Φ(u) with u = ±t; f' = ∓r, f'' = r(r + u) with r = φ(u)/Φ(u)."""
        sign = 2.0 * y - 1.0
        u = sign * t
        log_cdf = special.log_ndtr(u)
        ratio = np.exp(-0.5 * u * u - _HALF_LOG_2PI - log_cdf)
        # Far out r + u cancels to 1/|u|; there f'' = 1 − 1/u² + ….
        tail = u < -1e4
        second = np.where(tail, 1.0, ratio * (ratio + np.where(tail, 0.0, u)))
        return -log_cdf, -sign * ratio, second

    def predictive(self, eta: ArrayLike, x: Any) -> BinaryPredictive:
        """The targets of rows x."""
        return BinaryPredictive(*self.predictor(eta, x), special.ndtr)
