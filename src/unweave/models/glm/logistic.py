"""Logistic regression: y ∈ {0, 1}, P(y = 1) = σ(t)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.lazy import special
from unweave.models.columns import Column, binary
from unweave.models.glm.base import GLM
from unweave.models.glm.predictive import BinaryPredictive
from unweave.models.glm.quadrature import Triple, softplus

__all__ = ["LogisticRegression"]


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LogisticRegression(GLM):
    """y = 1 with probability 1/(1 + exp(−xᵀtheta)); theta ~ Normal(mean, diag(sd²)).

    >>> model = LogisticRegression(features=["age", "dose"], intercept=True)
    >>> model.quantities
    ('intercept', 'age', 'dose')
    """

    name: ClassVar[str] = "logistic-regression"
    classifies: ClassVar[bool] = True
    self_concordant: ClassVar[bool] = True
    estimate_within: ClassVar[float | None] = 3.0

    def target_column(self) -> Column:
        return binary(self.target)

    def pointwise(self, t: Floats, y: Floats) -> Triple:
        """f = log(1 + e^t) − y t."""
        p = special.expit(t)
        return np.logaddexp(0.0, t) - y * t, p - y, p * special.expit(-t)

    def derivatives(self, a: Floats, v: Floats, y: Floats) -> Triple:
        f, first, second = softplus(a, v)
        return f - y * a, first - y, second

    def predictive(self, eta: ArrayLike, x: Any) -> BinaryPredictive:
        """The targets of rows x."""
        return BinaryPredictive(*self.predictor(eta, x), special.expit)
