"""Linear regression with heavy-tailed noise, so that outliers count little."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import ConfigError
from unweave.models.columns import Column, real
from unweave.models.glm.base import GLM
from unweave.models.glm.predictive import RobustPredictive
from unweave.models.glm.quadrature import Triple, expectations

__all__ = ["RobustRegression"]


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RobustRegression(GLM):
    """y = xᵀtheta + noise·(Student's t with `df` degrees of freedom); `noise` is known (unless
    given, the target's scale).

    The loss is not convex. A record far from its prediction has a negative curvature, which is
    clipped at 0, so that every factor can be removed again: the result is near the best normal
    distribution, not equal to it, and a little narrower.
    """

    df: float = 4.0
    noise: float | None = None

    name: ClassVar[str] = "robust-regression"
    convex: ClassVar[bool] = False
    estimate_within: ClassVar[float | None] = 3.0
    _scaled_target: ClassVar[bool] = True

    def check_settings(self) -> None:
        if not self.df > 0:
            raise ConfigError(f"{self.name}: df = {self.df}. Fix: a number above 0")
        if self.noise is not None and not self.noise > 0:
            raise ConfigError(f"{self.name}: noise = {self.noise}. Fix: a number above 0")
        super().check_settings()

    def target_column(self) -> Column:
        return real(self.target)

    @property
    def _noise(self) -> float:
        """The noise in z-units."""
        return 1.0 if self.noise is None else self.noise / self.scale_of(self.target)

    @property
    def width(self) -> float:
        return math.sqrt(self.df) * self._noise

    def outcomes(self, rows: Floats) -> tuple[Floats, Floats, Floats | float]:
        x, y, offset = super().outcomes(rows)
        scale, center = self.predictor_units
        return x, (y - center) / scale, offset

    def pointwise(self, t: Floats, y: Floats) -> Triple:
        """f = (df + 1)/2 · log(1 + d²/w²) with d = t − y and w² = df·noise²."""
        d, square, power = t - y, self.width**2, self.df + 1.0
        whole = square + d * d
        second = power * (square - d * d) / (whole * whole)
        return 0.5 * power * np.log(whole / square), power * d / whole, second

    def derivatives(self, a: Floats, v: Floats, y: Floats) -> Triple:
        f, first, second = expectations(self.pointwise, a, v, self.width, y)
        return f, first, np.maximum(second, 0.0)

    def predictive(self, eta: ArrayLike, x: Any) -> RobustPredictive:
        """The targets of rows x."""
        a, s = self.predictor(eta, x)
        scale, center = self.predictor_units
        return RobustPredictive(center + scale * a, scale * s, self.df, scale * self._noise)
