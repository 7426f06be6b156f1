"""Posterior predictives without a closed form: theta is integrated out by quadrature."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.arguments import floats, generator, levels
from unweave.families import BetaFamily
from unweave.models.beta_integrals import tilted_beta
from unweave.models.predictive import ScalarPredictive

__all__ = ["BetaExponentialPredictive"]

Floats = NDArray[np.float64]

_HALVINGS = 80  # of a bracket of quantiles: more than a float64 can tell


@dataclass(frozen=True, eq=False)
class BetaExponentialPredictive(ScalarPredictive):
    """An exponential time when its mean θ ~ Beta(a, b): p(z) = E[exp(−z/θ)/θ].

    Densities come from a quadrature of their own at every z, so they keep a relative accuracy of
    1e-9 however far out z is. Probabilities are a sum over the nodes of q. Samples are exact.
    """

    how: ClassVar[str] = "by quadrature over theta, to a relative 1e-9"

    a: float
    b: float
    theta: Floats = field(repr=False)  # nodes [n]
    weights: Floats = field(repr=False)  # their probabilities [n]

    def mean(self) -> float:
        """E[z] = E[θ]."""
        return self.a / (self.a + self.b)

    def sd(self) -> float:
        """E[z²] = 2 E[θ²]."""
        mean, total = self.mean(), self.a + self.b
        return float(np.sqrt(2.0 * mean * (self.a + 1.0) / (total + 1.0) - mean * mean))

    def log_prob(self, x: ArrayLike) -> Floats:
        x = floats(x, "x")
        inside = (x > 0) & np.isfinite(x)
        a, b = np.asarray(self.a - 1.0), np.asarray(self.b)
        log_z, _, _ = tilted_beta(a, b, np.where(inside, x, 1.0))
        value = log_z - BetaFamily().log_partition(np.array([self.a, self.b]))
        at_zero = np.log((self.a + self.b - 1.0) / (self.a - 1.0))  # E[1/θ]
        return np.where(inside, value, np.where(x == 0, at_zero, -np.inf))

    def cdf(self, x: ArrayLike) -> Floats:
        x = np.maximum(floats(x, "x"), 0.0)
        value: Floats = -(self.weights * np.expm1(-x[..., None] / self.theta)).sum(axis=-1)
        return value

    def quantile(self, p: ArrayLike) -> Floats:
        p = levels(p)
        low = np.zeros(p.shape)
        # θ < 1, so the quantile of an exponential with mean 1 bounds this one.
        with np.errstate(divide="ignore"):  # p = 1 is infinitely far out
            high: Floats = -np.log1p(-p)
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            below = self.cdf(middle) < p
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return high

    def sample(self, n: int, seed: int = 0) -> Floats:
        rng = generator(n, seed)
        return rng.beta(self.a, self.b, n) * rng.standard_exponential(n)
