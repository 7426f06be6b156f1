"""Posterior predictives of real numbers: the distribution of a new record, without theta.

Theta is integrated out in closed form, or by quadrature for `BetaExponentialPredictive`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.arguments import floats, generator, levels, share
from unweave.families import BetaFamily
from unweave.lazy import special
from unweave.models.beta_integrals import tilted_beta

__all__ = [
    "BetaExponentialPredictive",
    "LomaxPredictive",
    "MultivariateTPredictive",
    "NormalPredictive",
    "ScalarPredictive",
    "StudentTPredictive",
]


class ScalarPredictive(ABC):
    """The law of one new number."""

    @abstractmethod
    def quantile(self, p: ArrayLike) -> NDArray[np.float64]: ...

    def interval(self, p: float = 0.95) -> tuple[float, float]:
        """The central interval that holds probability p."""
        p = share(p, "interval: p")
        low, high = self.quantile([(1 - p) / 2, (1 + p) / 2])
        return float(low), float(high)


Floats = NDArray[np.float64]

_LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class LomaxPredictive(ScalarPredictive):
    """An exponential time when its rate ~ Gamma(a, rate b): P(X > x) = (1 + x/b)^−a."""

    a: float
    b: float

    def mean(self) -> float:
        """Infinite for a ≤ 1."""
        return self.b / (self.a - 1) if self.a > 1 else np.inf

    def sd(self) -> float:
        """Infinite for a ≤ 2."""
        a = self.a
        return float(self.b / (a - 1) * np.sqrt(a / (a - 2))) if a > 2 else np.inf

    def log_prob(self, x: ArrayLike) -> Floats:
        x = floats(x, "x")
        inside = np.where(x >= 0, x, 0.0)
        value = np.log(self.a / self.b) - (self.a + 1) * np.log1p(inside / self.b)
        return np.where(x >= 0, value, -np.inf)

    def cdf(self, x: ArrayLike) -> Floats:
        x = np.maximum(floats(x, "x"), 0.0)
        return -np.expm1(-self.a * np.log1p(x / self.b))

    def quantile(self, p: ArrayLike) -> Floats:
        p = levels(p)
        with np.errstate(divide="ignore"):  # p = 1 is infinitely far out
            value: Floats = self.b * np.expm1(-np.log1p(-p) / self.a)
        return value

    def sample(self, n: int, seed: int = 0) -> Floats:
        return self.quantile(generator(n, seed).random(n))


@dataclass(frozen=True, eq=False)
class NormalPredictive:
    """Normal(loc, scale²), for one record or for each row of a design."""

    loc: Floats
    scale: Floats

    def mean(self) -> Floats:
        return self.loc

    def sd(self) -> Floats:
        return self.scale

    def log_prob(self, x: ArrayLike) -> Floats:
        z = (floats(x, "x") - self.loc) / self.scale
        value: Floats = -0.5 * (z * z + _LOG_2PI) - np.log(self.scale)
        return value

    def cdf(self, x: ArrayLike) -> Floats:
        value: Floats = special.ndtr((floats(x, "x") - self.loc) / self.scale)
        return value

    def quantile(self, p: float) -> Floats:
        value: Floats = self.loc + self.scale * special.ndtri(levels(p))
        return value

    def interval(self, p: float = 0.95) -> tuple[Floats, Floats]:
        p = share(p, "interval: p")
        return self.quantile((1 - p) / 2), self.quantile((1 + p) / 2)

    def sample(self, n: int, seed: int = 0) -> Floats:
        """[n, ...]; the rows of a design are drawn independently, each from its marginal."""
        z = generator(n, seed).standard_normal((n, *np.shape(self.loc)))
        return self.loc + self.scale * z


@dataclass(frozen=True, eq=False)
class StudentTPredictive:
    """Student's t with `df` degrees of freedom, for one record or for each row of a design."""

    df: float
    loc: Floats
    scale: Floats

    def mean(self) -> Floats:
        """Undefined (NaN) for df ≤ 1."""
        return self.loc if self.df > 1 else np.full_like(self.loc, np.nan)

    def sd(self) -> Floats:
        """Infinite for df ≤ 2."""
        if self.df <= 2:
            return np.full_like(self.scale, np.inf)
        return self.scale * float(np.sqrt(self.df / (self.df - 2)))

    def log_prob(self, x: ArrayLike) -> Floats:
        v = self.df
        z = (floats(x, "x") - self.loc) / self.scale
        norm = special.gammaln((v + 1) / 2) - special.gammaln(v / 2) - 0.5 * np.log(v * np.pi)
        value: Floats = norm - np.log(self.scale) - 0.5 * (v + 1) * np.log1p(z * z / v)
        return value

    def cdf(self, x: ArrayLike) -> Floats:
        value: Floats = special.stdtr(self.df, (floats(x, "x") - self.loc) / self.scale)
        return value

    def quantile(self, p: float) -> Floats:
        value: Floats = self.loc + self.scale * special.stdtrit(self.df, levels(p))
        return value

    def interval(self, p: float = 0.95) -> tuple[Floats, Floats]:
        p = share(p, "interval: p")
        return self.quantile((1 - p) / 2), self.quantile((1 + p) / 2)

    def sample(self, n: int, seed: int = 0) -> Floats:
        """[n, ...]; the rows of a design are drawn independently, each from its marginal."""
        z = generator(n, seed).standard_t(self.df, (n, *np.shape(self.loc)))
        return self.loc + self.scale * z


@dataclass(frozen=True, eq=False)
class MultivariateTPredictive:
    """Multivariate t with `df` degrees of freedom, location and shape matrix."""

    df: float
    loc: Floats
    shape: Floats

    def mean(self) -> Floats:
        """Undefined (NaN) for df ≤ 1."""
        return self.loc if self.df > 1 else np.full_like(self.loc, np.nan)

    def cov(self) -> Floats:
        """Infinite for df ≤ 2."""
        if self.df <= 2:
            return np.full_like(self.shape, np.inf)
        return self.shape * (self.df / (self.df - 2))

    def sd(self) -> Floats:
        return np.sqrt(np.diag(self.cov()))

    def interval(self, p: float = 0.95) -> tuple[Floats, Floats]:
        """The central interval of each column, whose marginal is a Student t."""
        return StudentTPredictive(self.df, self.loc, np.sqrt(np.diag(self.shape))).interval(p)

    def log_prob(self, x: ArrayLike) -> Floats:
        d, v = len(self.loc), self.df
        root = np.linalg.cholesky(self.shape)
        offset = floats(x, "x") - self.loc
        z = np.linalg.solve(root, offset[..., None])[..., 0]
        norm = special.gammaln((v + d) / 2) - special.gammaln(v / 2) - 0.5 * d * np.log(v * np.pi)
        square = (z * z).sum(axis=-1)
        value: Floats = norm - np.log(np.diag(root)).sum() - 0.5 * (v + d) * np.log1p(square / v)
        return value

    def sample(self, n: int, seed: int = 0) -> Floats:
        rng = generator(n, seed)
        z = rng.standard_normal((n, len(self.loc))) @ np.linalg.cholesky(self.shape).T
        draws: Floats = self.loc + z * np.sqrt(self.df / rng.chisquare(self.df, size=(n, 1)))
        return draws


_HALVINGS = 80  # of the bracket of a quantile: more than float64 can resolve


@dataclass(frozen=True, eq=False)
class BetaExponentialPredictive(ScalarPredictive):
    """An exponential time when its mean θ ~ Beta(a, b): p(z) = E[exp(−z/θ)/θ].

    Densities come from a quadrature of their own at every z, so their relative accuracy is
    1e-9 also in the tail. Probabilities are a sum over the nodes of q. Samples are exact.
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
