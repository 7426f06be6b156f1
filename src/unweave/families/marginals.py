"""One-dimensional laws of the single quantities of a posterior.

Every value has the batch shape; `quantile(p)` has shape p.shape + batch. A moment that does not
exist is inf (it diverges) or NaN (it is undefined).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.arguments import floats, levels, share
from unweave.lazy import special

__all__ = [
    "BetaMarginal",
    "GammaMarginal",
    "InverseGammaMarginal",
    "Marginal",
    "NormalMarginal",
    "StudentTMarginal",
    "finite",
]

Floats = NDArray[np.float64]

_HALF_LOG_2PI = 0.5 * float(np.log(2.0 * np.pi))


@dataclass(frozen=True, eq=False)
class Marginal(ABC):
    """The law of one named quantity."""

    name: str

    @abstractmethod
    def mean(self) -> Floats: ...

    @abstractmethod
    def sd(self) -> Floats: ...

    @abstractmethod
    def cdf(self, x: ArrayLike) -> Floats: ...

    @abstractmethod
    def log_pdf(self, x: ArrayLike) -> Floats: ...

    @abstractmethod
    def _quantile(self, p: Floats) -> Floats: ...

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The common shape of the parameters."""
        parameters = (getattr(self, f.name) for f in fields(self) if f.name != "name")
        return np.broadcast_shapes(*(np.shape(value) for value in parameters))

    def pdf(self, x: ArrayLike) -> Floats:
        result: Floats = np.exp(self.log_pdf(x))
        return result

    def quantile(self, p: ArrayLike) -> Floats:
        """The x with P(X ≤ x) = p, shape p.shape + batch."""
        level = levels(p)
        return self._quantile(level.reshape(level.shape + (1,) * len(self.batch_shape)))

    def interval(self, p: float = 0.95) -> tuple[Floats, Floats]:
        """The central interval that holds probability p."""
        p = share(p, "interval: p")
        low, high = self.quantile([0.5 * (1.0 - p), 0.5 * (1.0 + p)])
        return low, high

    def renamed(self, name: str) -> Self:
        return replace(self, name=name)


@dataclass(frozen=True, eq=False)
class _Supported(Marginal):
    """A law with parameters a and b on a part of the line; the density outside is 0."""

    a: Floats
    b: Floats

    @abstractmethod
    def _inside(self, x: Floats) -> NDArray[np.bool_]: ...

    @abstractmethod
    def _log_pdf(self, x: Floats) -> Floats:
        """At x inside the support."""

    def log_pdf(self, x: ArrayLike) -> Floats:
        y = floats(x, "x")
        inside = self._inside(y)
        # ½ lies in every support here; its value is not used.
        return np.where(inside, self._log_pdf(np.where(inside, y, 0.5)), -np.inf)


@dataclass(frozen=True, eq=False)
class BetaMarginal(_Supported):
    """Beta(a, b) on (0, 1)."""

    def mean(self) -> Floats:
        return self.a / (self.a + self.b)

    def sd(self) -> Floats:
        total = self.a + self.b
        result: Floats = np.sqrt((self.a / total) * (self.b / total) / (total + 1.0))
        return result

    def cdf(self, x: ArrayLike) -> Floats:
        result: Floats = special.betainc(self.a, self.b, np.clip(x, 0.0, 1.0))
        return result

    def _inside(self, x: Floats) -> NDArray[np.bool_]:
        return np.asarray((x >= 0.0) & (x <= 1.0))

    def _log_pdf(self, x: Floats) -> Floats:
        norm = special.gammaln(self.a) + special.gammaln(self.b) - special.gammaln(self.a + self.b)
        value: Floats = special.xlogy(self.a - 1.0, x) + special.xlog1py(self.b - 1.0, -x) - norm
        return value

    def _quantile(self, p: Floats) -> Floats:
        result: Floats = special.betaincinv(self.a, self.b, p)
        return result


def _gamma_norm(a: Floats, b: Floats) -> Floats:
    norm: Floats = a * np.log(b) - special.gammaln(a)
    return norm


@dataclass(frozen=True, eq=False)
class GammaMarginal(_Supported):
    """Gamma with shape a and rate b."""

    def mean(self) -> Floats:
        return self.a / self.b

    def sd(self) -> Floats:
        result: Floats = np.sqrt(self.a) / self.b
        return result

    def cdf(self, x: ArrayLike) -> Floats:
        result: Floats = special.gammainc(self.a, self.b * np.maximum(x, 0.0))
        return result

    def _inside(self, x: Floats) -> NDArray[np.bool_]:
        return np.asarray(x >= 0.0)

    def _log_pdf(self, x: Floats) -> Floats:
        value: Floats = special.xlogy(self.a - 1.0, x) - self.b * x
        return value + _gamma_norm(self.a, self.b)

    def _quantile(self, p: Floats) -> Floats:
        result: Floats = special.gammaincinv(self.a, p) / self.b
        return result


@dataclass(frozen=True, eq=False)
class InverseGammaMarginal(_Supported):
    """1/X is Gamma(a, b); the mean needs a > 1 and the sd a > 2."""

    def mean(self) -> Floats:
        exists = self.a > 1.0
        return np.where(exists, self.b / np.where(exists, self.a - 1.0, 1.0), np.inf)[()]

    def sd(self) -> Floats:
        exists = self.a > 2.0
        spread = np.sqrt(np.where(exists, self.a - 2.0, 1.0))
        value = np.where(exists, self.b / np.where(exists, self.a - 1.0, 1.0) / spread, np.inf)
        # Without a mean the standard deviation is undefined.
        return np.where(self.a > 1.0, value, np.nan)[()]

    def cdf(self, x: ArrayLike) -> Floats:
        y = floats(x, "x")
        inside = y > 0.0
        value = special.gammaincc(self.a, self.b / np.where(inside, y, 1.0))
        return np.where(inside, value, 0.0)

    def _inside(self, x: Floats) -> NDArray[np.bool_]:
        return np.asarray(x > 0.0)

    def _log_pdf(self, x: Floats) -> Floats:
        value: Floats = -(self.a + 1.0) * np.log(x) - self.b / x
        return value + _gamma_norm(self.a, self.b)

    def _quantile(self, p: Floats) -> Floats:
        with np.errstate(divide="ignore"):  # p = 1 is at infinity
            result: Floats = self.b / special.gammainccinv(self.a, p)
        return result


@dataclass(frozen=True, eq=False)
class NormalMarginal(Marginal):
    """Normal with location and scale."""

    loc: Floats
    scale: Floats

    def mean(self) -> Floats:
        return self.loc

    def sd(self) -> Floats:
        return self.scale

    def cdf(self, x: ArrayLike) -> Floats:
        result: Floats = special.ndtr((floats(x, "x") - self.loc) / self.scale)
        return result

    def log_pdf(self, x: ArrayLike) -> Floats:
        z = (floats(x, "x") - self.loc) / self.scale
        result: Floats = -0.5 * z * z - np.log(self.scale) - _HALF_LOG_2PI
        return result

    def _quantile(self, p: Floats) -> Floats:
        result: Floats = self.loc + self.scale * special.ndtri(p)
        return result


@dataclass(frozen=True, eq=False)
class StudentTMarginal(Marginal):
    """Student's t with df degrees of freedom; the mean needs df > 1 and the sd df > 2."""

    df: Floats
    loc: Floats
    scale: Floats

    def mean(self) -> Floats:
        return np.where(self.df > 1.0, self.loc, np.nan)[()]

    def sd(self) -> Floats:
        exists = self.df > 2.0
        inflation = np.sqrt(self.df / np.where(exists, self.df - 2.0, 1.0))
        value = np.where(exists, self.scale * inflation, np.inf)
        return np.where(self.df > 1.0, value, np.nan)[()]

    def cdf(self, x: ArrayLike) -> Floats:
        result: Floats = special.stdtr(self.df, (floats(x, "x") - self.loc) / self.scale)
        return result

    def log_pdf(self, x: ArrayLike) -> Floats:
        z = (floats(x, "x") - self.loc) / self.scale
        half = 0.5 * self.df
        # log Γ(h+½) − log Γ(h) as the log of Pochhammer's symbol: no cancellation for large df.
        norm = np.log(special.poch(half, 0.5)) - 0.5 * np.log(np.pi * self.df) - np.log(self.scale)
        result: Floats = norm - (half + 0.5) * np.log1p(z * z / self.df)
        return result

    def _quantile(self, p: Floats) -> Floats:
        result: Floats = self.loc + self.scale * special.stdtrit(self.df, p)
        return result


def finite(value: Any) -> float | None:
    """A moment for JSON: None (null) if the moment does not exist."""
    number = float(value)
    return number if math.isfinite(number) else None
