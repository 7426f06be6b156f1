"""Posterior predictives of real numbers: the distribution of a new record, with theta integrated
out in closed form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.arguments import floats, generator, levels, share
from unweave.families.marginals import NormalMarginal, StudentTMarginal
from unweave.lazy import special

__all__ = [
    "LomaxPredictive",
    "MultivariateTPredictive",
    "NormalPredictive",
    "ScalarPredictive",
    "StudentTPredictive",
]


Floats = NDArray[np.float64]


class ScalarPredictive(ABC):
    """The law of one new number."""

    @abstractmethod
    def quantile(self, p: ArrayLike) -> Floats: ...

    def interval(self, p: float = 0.95) -> tuple[float, float]:
        """The central interval that holds probability p."""
        p = share(p, "interval: p")
        low, high = self.quantile([(1 - p) / 2, (1 + p) / 2])
        return float(low), float(high)


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
class NormalPredictive(NormalMarginal):
    """Normal(loc, scale²), for one record or for each row of a design."""

    log_prob = NormalMarginal.log_pdf

    def sample(self, n: int, seed: int = 0) -> Floats:
        """[n, ...]; the rows of a design are drawn independently, each from its marginal."""
        return self.loc + self.scale * generator(n, seed).standard_normal((n, *self.batch_shape))


@dataclass(frozen=True, eq=False)
class StudentTPredictive(StudentTMarginal):
    """Student's t with `df` degrees of freedom, for one record or for each row of a design."""

    log_prob = StudentTMarginal.log_pdf

    def sample(self, n: int, seed: int = 0) -> Floats:
        """[n, ...]; the rows of a design are drawn independently, each from its marginal."""
        draws = generator(n, seed).standard_t(self.df, (n, *self.batch_shape))
        return self.loc + self.scale * draws


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
        return StudentTMarginal(
            "x", np.asarray(self.df), self.loc, np.sqrt(np.diag(self.shape))
        ).interval(p)

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
