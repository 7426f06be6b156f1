"""Posterior predictives of GLMs: the targets of rows, with the predictor t ~ Normal(a, s²) of each
row integrated out by quadrature. Every method has one entry per row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.arguments import floats, generator, levels, share
from unweave.errors import DataError
from unweave.lazy import special
from unweave.models.glm.quadrature import nodes

__all__ = [
    "BinaryPredictive",
    "ClassesPredictive",
    "CountsPredictive",
    "NegativeBinomialCountsPredictive",
    "PoissonPredictive",
    "RobustPredictive",
    "exposures",
]


Floats = NDArray[np.float64]

_COUNT = 241  # nodes for each row


def exposures(given: ArrayLike, rows: int) -> Floats:
    """One exposure above 0 for each row."""
    found = floats(given, "exposure")
    if found.ndim > 1 or (found.ndim == 1 and len(found) != rows) or not (found > 0.0).all():
        raise DataError(
            f"exposure: {rows} rows to predict. Fix: give one number above 0, or one for each row"
        )
    return np.broadcast_to(found, (rows,))


@dataclass(frozen=True, eq=False)
class _RowsPredictive(ABC):
    """A mixture over t of the records' distribution given t."""

    a: Floats  # mean of the predictor of each row
    s: Floats  # its sd

    how = "by quadrature"

    @cached_property
    def _t(self) -> Floats:
        """Nodes [rows, J]."""
        return self.a[:, None] + self.s[:, None] * nodes(_COUNT)[0]

    def _mix(self, values: Floats) -> Floats:
        """E over t of values [..., J]."""
        result: Floats = values @ nodes(_COUNT)[1]
        return result

    @abstractmethod
    def moments(self, t: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of a record given t."""

    @abstractmethod
    def log_density(self, x: Floats, t: Floats) -> Floats:
        """The log-probability (or density) of a record given t."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, t: Floats) -> Floats:
        """One record for each t."""

    def mean(self) -> Floats:
        return self._mix(self.moments(self._t)[0])

    def sd(self) -> Floats:
        mean, variance = self.moments(self._t)
        centre = self._mix(mean)
        return np.sqrt(self._mix(variance + np.square(mean - centre[:, None])))

    def log_prob(self, x: ArrayLike) -> Floats:
        """The log-probability (or density) of x [..., rows]."""
        given = floats(x, "x")
        with np.errstate(under="ignore"):
            logs = self.log_density(given[..., None], self._t)
        return np.asarray(special.logsumexp(logs, axis=-1, b=nodes(_COUNT)[1]))

    def sample(self, n: int, seed: int = 0) -> Floats:
        """[n, rows]; the rows are drawn independently, each from its own predictive."""
        rng = generator(n, seed)
        return self.draw(rng, self.a + self.s * rng.standard_normal((n, len(self.a))))


@dataclass(frozen=True, eq=False)
class BinaryPredictive(_RowsPredictive):
    """y ∈ {0, 1} with probability link(t). The uncertainty of that probability is its own:
    `probability_sd` and `probability_interval`."""

    link: Callable[[Floats], Floats]

    @property
    def proba(self) -> Floats:
        """P(y = 0) and P(y = 1) for each row, [rows, 2]."""
        p = self.mean()
        return np.stack([1.0 - p, p], axis=-1)

    def probability_sd(self) -> Floats:
        """The posterior sd of the probability link(xᵀtheta)."""
        p = self.link(self._t)
        return np.sqrt(self._mix(np.square(p - self._mix(p)[:, None])))

    def probability_interval(self, p: float = 0.95) -> tuple[Floats, Floats]:
        """The central posterior interval of the probability: the link is monotone."""
        far = special.ndtri(0.5 + 0.5 * share(p, "probability_interval: p")) * self.s
        return self.link(self.a - far), self.link(self.a + far)

    def moments(self, t: Floats) -> tuple[Floats, Floats]:
        p = self.link(t)
        return p, p * (1.0 - p)

    def log_density(self, x: Floats, t: Floats) -> Floats:
        sign = np.where(x == 1.0, 1.0, -1.0)  # both links have link(−t) = 1 − link(t)
        with np.errstate(divide="ignore"):
            logs = np.log(self.link(sign * t))
        return np.where((x == 0.0) | (x == 1.0), logs, -np.inf)

    def draw(self, rng: np.random.Generator, t: Floats) -> Floats:
        return (rng.random(t.shape) < self.link(t)).astype(np.float64)

    def interval(self, p: float = 0.95) -> tuple[Floats, Floats]:
        """The central interval of y."""
        tail, one = (1 - share(p, "interval: p")) / 2, self.mean()
        return (one > 1 - tail).astype(np.float64), (one > tail).astype(np.float64)


class _Quantiles(_RowsPredictive):
    """Quantiles from the distribution function given t."""

    @abstractmethod
    def distribution(self, x: Floats, t: Floats) -> Floats:
        """P(record ≤ x | t)."""

    @abstractmethod
    def quantile(self, p: ArrayLike) -> Floats:
        """[..., rows]"""

    def cdf(self, x: ArrayLike) -> Floats:
        """P(record ≤ x) for x [..., rows]."""
        return self._mix(self.distribution(floats(x, "x")[..., None], self._t))

    def interval(self, p: float = 0.95) -> tuple[Floats, Floats]:
        """The central interval that holds probability p, for each row."""
        p = share(p, "interval: p")
        low, high = self.quantile([(1 - p) / 2, (1 + p) / 2])
        return low, high

    def _search(self, p: ArrayLike, low: Floats, high: Floats, whole: bool) -> Floats:
        """Bisection: cdf(low) < p ≤ cdf(high)."""
        level = levels(p)[..., None] * np.ones_like(self.a)
        under, over = low + 0.0 * level, high + 0.0 * level
        for _ in range(200):
            middle = np.floor(0.5 * (under + over)) if whole else 0.5 * (under + over)
            if whole and not (over - under > 1).any():
                break
            if not whole and not (over - under > 1e-12 * (1.0 + np.abs(middle))).any():
                break
            enough = self.cdf(middle) >= level
            over, under = np.where(enough, middle, over), np.where(enough, under, middle)
        return over


class CountsPredictive(_Quantiles):
    """Counts 0, 1, 2, … with mean exp(t)."""

    def quantile(self, p: ArrayLike) -> Floats:
        """The smallest count with cdf ≥ p; infinite for p = 1."""
        level = np.max(np.where(levels(p) < 1.0, levels(p), 0.0))
        high = np.ceil(self.mean() + self.sd()) + 1.0
        while (short := self.cdf(high) < level).any():
            high = np.where(short, 2.0 * high, high)
        found = self._search(p, np.full_like(self.a, -1.0), high, whole=True)
        return np.where(levels(p)[..., None] == 1.0, np.inf, found)


@dataclass(frozen=True, eq=False)
class PoissonPredictive(CountsPredictive):
    """y ~ Poisson(exp(t)); mean and sd are closed forms."""

    def mean(self) -> Floats:
        result: Floats = np.exp(self.a + 0.5 * self.s**2)
        return result

    def sd(self) -> Floats:
        mean = self.mean()
        return np.sqrt(mean + mean**2 * np.expm1(self.s**2))

    def moments(self, t: Floats) -> tuple[Floats, Floats]:
        rate = np.exp(t)
        return rate, rate

    def log_density(self, x: Floats, t: Floats) -> Floats:
        inside = (x >= 0) & (x == np.floor(x))
        k = np.where(inside, x, 0.0)
        return np.where(inside, k * t - np.exp(t) - special.gammaln(k + 1.0), -np.inf)

    def distribution(self, x: Floats, t: Floats) -> Floats:
        return np.where(x < 0, 0.0, special.pdtr(np.floor(np.maximum(x, 0.0)), np.exp(t)))

    def draw(self, rng: np.random.Generator, t: Floats) -> Floats:
        return rng.poisson(np.exp(t)).astype(np.float64)


@dataclass(frozen=True, eq=False)
class NegativeBinomialCountsPredictive(CountsPredictive):
    """y ~ NegativeBinomial with mean exp(t) and variance mean + mean²/shape."""

    shape: float

    def _p(self, t: Floats) -> Floats:
        """The success probability r/(r + mean)."""
        result: Floats = special.expit(np.log(self.shape) - t)
        return result

    def moments(self, t: Floats) -> tuple[Floats, Floats]:
        rate = np.exp(t)
        return rate, rate + rate * rate / self.shape

    def log_density(self, x: Floats, t: Floats) -> Floats:
        inside = (x >= 0) & (x == np.floor(x))
        k, r, at = np.where(inside, x, 0.0), self.shape, t - np.log(self.shape)
        choose = special.gammaln(k + r) - special.gammaln(r) - special.gammaln(k + 1.0)
        return np.where(inside, choose + k * at - (k + r) * np.logaddexp(0.0, at), -np.inf)

    def distribution(self, x: Floats, t: Floats) -> Floats:
        k = np.floor(np.maximum(x, 0.0))
        return np.where(x < 0, 0.0, special.betainc(self.shape, k + 1.0, self._p(t)))

    def draw(self, rng: np.random.Generator, t: Floats) -> Floats:
        return rng.negative_binomial(self.shape, self._p(t)).astype(np.float64)


@dataclass(frozen=True, eq=False)
class RobustPredictive(_Quantiles):
    """y = t + noise, Student's t with `df` degrees of freedom and this scale."""

    df: float
    noise: float

    def moments(self, t: Floats) -> tuple[Floats, Floats]:
        """The variance is infinite for df ≤ 2."""
        spread = self.noise**2 * self.df / (self.df - 2) if self.df > 2 else np.inf
        return t, np.full_like(t, spread)

    def log_density(self, x: Floats, t: Floats) -> Floats:
        u, df = (x - t) / self.noise, self.df
        norm = special.gammaln((df + 1) / 2) - special.gammaln(df / 2) - 0.5 * np.log(df * np.pi)
        value: Floats = norm - np.log(self.noise) - (df + 1) / 2 * np.log1p(u * u / df)
        return value

    def distribution(self, x: Floats, t: Floats) -> Floats:
        return np.asarray(special.stdtr(self.df, (x - t) / self.noise))

    def draw(self, rng: np.random.Generator, t: Floats) -> Floats:
        return t + self.noise * rng.standard_t(self.df, t.shape)

    def quantile(self, p: ArrayLike) -> Floats:
        inside = np.clip(levels(p), 1e-12, 1 - 1e-12)
        tail = abs(float(special.stdtrit(self.df, float(np.min(np.minimum(inside, 1 - inside))))))
        far = self.noise * tail + 9.0 * self.s
        return self._search(inside, self.a - far, self.a + far, whole=False)


_DRAWS = 2000


@dataclass(frozen=True, eq=False)
class ClassesPredictive:
    """One of several classes for each row, P(c) ∝ exp(t_c), with t ~ Normal(a, cov) integrated out
    by a fixed set of draws."""

    a: Floats  # [rows, classes]
    cov: Floats  # [rows, classes, classes]
    labels: Sequence[str] = ()  # the names of the classes, if they are texts

    how = "by draws"

    @cached_property
    def _draws(self) -> Floats:
        """Probabilities [draws, rows, classes]; every draw has its mirror image."""
        half = np.random.default_rng(0).standard_normal((_DRAWS // 2, self.a.shape[1]))
        # Rounding may leave eigenvalues of −1e-17.
        values, vectors = np.linalg.eigh(self.cov)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        moved = np.einsum("nab,sb->sna", root, half)
        t = self.a + np.concatenate([moved, -moved])
        return np.asarray(special.softmax(t, axis=-1))

    @property
    def proba(self) -> Floats:
        """The probability of each class, [rows, classes]."""
        return np.asarray(self._draws.mean(axis=0))

    def mean(self) -> Floats:
        """As `proba`: the mean of each class's indicator."""
        return self.proba

    def sd(self) -> Floats:
        return np.sqrt(self.proba * (1.0 - self.proba))

    def probability_sd(self) -> Floats:
        """The posterior sd of each probability."""
        return np.asarray(self._draws.std(axis=0))

    def probability_interval(self, p: float = 0.95) -> tuple[Floats, Floats]:
        """The central posterior interval of each probability."""
        tail = (1 - share(p, "probability_interval: p")) / 2
        low, high = np.quantile(self._draws, [tail, 1 - tail], axis=0)
        return low, high

    def log_prob(self, x: ArrayLike) -> Floats:
        """The log-probability of the classes x [..., rows]."""
        given = floats(x, "x")
        inside = (given >= 0) & (given < self.a.shape[1]) & (given == np.floor(given))
        index = np.where(inside, given, 0).astype(np.intp)
        logs = np.log(self.proba)[np.arange(len(self.a)), index]
        return np.where(inside, logs, -np.inf)

    def draw(self, rng: np.random.Generator, t: Floats) -> Floats:
        """One class for each t [..., classes]."""
        below = np.cumsum(special.softmax(t, axis=-1), axis=-1)[..., :-1]
        found = (rng.random((*t.shape[:-1], 1)) > below).sum(axis=-1)
        return np.asarray(found, dtype=np.float64)

    def sample(self, n: int, seed: int = 0) -> NDArray[np.int64]:
        """[n, rows]; the rows are drawn independently, each from its own predictive."""
        u = generator(n, seed).random((n, len(self.a), 1))
        below = np.cumsum(self.proba, axis=1)[:, :-1]
        return np.asarray((u > below).sum(axis=-1), dtype=np.int64)
