"""Posterior predictives of counts: the distribution of a new record, with theta integrated out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.arguments import floats, generator, levels
from unweave.lazy import special
from unweave.models.fitted.predictive_reals import ScalarPredictive

__all__ = [
    "BetaBinomialPredictive",
    "BetaNegativeBinomialPredictive",
    "CategoricalPredictive",
    "CountPredictive",
    "DirichletMultinomialPredictive",
    "NegativeBinomialPredictive",
]


Floats = NDArray[np.float64]

# Above this, float64 cannot represent every whole number.
_FAR = 2.0**52


class CountPredictive(ScalarPredictive):
    """A distribution on the whole numbers from `low` to `high`; quantiles follow from the cdf."""

    low: int = 0

    @property
    def high(self) -> float:
        return np.inf

    @abstractmethod
    def mean(self) -> float: ...
    @abstractmethod
    def sd(self) -> float: ...
    @abstractmethod
    def log_prob(self, x: ArrayLike) -> Floats: ...
    @abstractmethod
    def cdf(self, x: ArrayLike) -> Floats: ...
    @abstractmethod
    def sample(self, n: int, seed: int = 0) -> Floats: ...

    def quantile(self, p: ArrayLike) -> Floats:
        """The smallest x with cdf(x) ≥ p."""
        p = levels(p)
        # At p = 1 the quantile is the end of the support, not the point where the cdf rounds to 1.
        return np.where(p == 1.0, self.high, _search(self.cdf, p, self.low))


@dataclass(frozen=True)
class BetaBinomialPredictive(CountPredictive):
    """Successes in `trials` when theta ~ Beta(a, b): C(n, x) B(a+x, b+n−x) / B(a, b)."""

    a: float
    b: float
    trials: int = 1

    def mean(self) -> float:
        return self.trials * self.a / (self.a + self.b)

    def sd(self) -> float:
        n, total = self.trials, self.a + self.b
        p = self.a / total
        return float(np.sqrt(n * p * (1 - p) * (total + n) / (total + 1)))

    def log_prob(self, x: ArrayLike) -> Floats:
        x = floats(x, "x")
        inside = (x >= 0) & (x <= self.trials) & (x == np.floor(x))
        k = np.where(inside, x, 0.0)
        n = float(self.trials)
        choose = -np.log1p(n) - special.betaln(1 + k, 1 + n - k)
        value = choose + special.betaln(self.a + k, self.b + n - k) - special.betaln(self.a, self.b)
        return np.where(inside, value, -np.inf)

    def cdf(self, x: ArrayLike) -> Floats:
        table = np.minimum(np.cumsum(np.exp(self.log_prob(np.arange(self.trials + 1)))), 1.0)
        table[-1] = 1.0
        at = np.floor(floats(x, "x"))
        index = np.clip(at, 0, self.trials).astype(np.int64)
        return np.where(at < 0, 0.0, table[index])

    @property
    def high(self) -> float:
        return float(self.trials)

    def sample(self, n: int, seed: int = 0) -> Floats:
        rng = generator(n, seed)
        return rng.binomial(self.trials, rng.beta(self.a, self.b, n)).astype(np.float64)


@dataclass(frozen=True)
class BetaNegativeBinomialPredictive(CountPredictive):
    """Failures before success number r when theta ~ Beta(a, b), counted from `low`:
    C(x+r−1, x) B(a+r, b+x) / B(a, b)."""

    a: float
    b: float
    successes: int = 1
    low: int = 0  # 1: the successful trial is counted too (geometric)

    def mean(self) -> float:
        """Infinite for a ≤ 1."""
        return self.low + self.successes * self.b / (self.a - 1) if self.a > 1 else np.inf

    def sd(self) -> float:
        """Infinite for a ≤ 2."""
        if self.a <= 2:
            return np.inf
        r, a, b = self.successes, self.a, self.b
        return float(np.sqrt(r * (a + r - 1) * b * (a + b - 1) / ((a - 2) * (a - 1) ** 2)))

    def log_prob(self, x: ArrayLike) -> Floats:
        x = floats(x, "x") - self.low
        inside = (x >= 0) & (x == np.floor(x))
        k, r = np.where(inside, x, 0.0), float(self.successes)
        choose = -np.log(r + k) - special.betaln(r, 1 + k)
        value = choose + special.betaln(self.a + r, self.b + k) - special.betaln(self.a, self.b)
        return np.where(inside, value, -np.inf)

    def cdf(self, x: ArrayLike) -> Floats:
        """At most x failures ⟺ at least r successes in x + r trials, a finite beta-binomial sum."""
        k = np.floor(floats(x, "x")) - self.low
        n = np.maximum(k, 0.0) + self.successes
        fewer = np.zeros_like(n)
        for j in range(self.successes):
            choose = -np.log1p(n) - special.betaln(1.0 + j, 1.0 + n - j)
            fewer += np.exp(
                choose + special.betaln(self.a + j, self.b + n - j) - special.betaln(self.a, self.b)
            )
        return np.where(k < 0, 0.0, np.clip(1.0 - fewer, 0.0, 1.0))

    def sample(self, n: int, seed: int = 0) -> Floats:
        """theta is g/(g+h) of two gammas, so the odds of a failure are h/g, accurate near 0."""
        rng = generator(n, seed)
        odds = rng.standard_gamma(self.b, n) / rng.standard_gamma(self.a, n)
        return self.low + _poisson(rng, odds * rng.standard_gamma(self.successes, n))


@dataclass(frozen=True)
class NegativeBinomialPredictive(CountPredictive):
    """A Poisson count when theta ~ Gamma(a, rate b): Γ(x+a)/(Γ(a) x!) · b^a / (b+1)^(a+x)."""

    a: float
    b: float

    def mean(self) -> float:
        return self.a / self.b

    def sd(self) -> float:
        return float(np.sqrt(self.a * (self.b + 1))) / self.b

    def log_prob(self, x: ArrayLike) -> Floats:
        x = floats(x, "x")
        inside = (x >= 0) & (x == np.floor(x))
        k = np.where(inside, x, 0.0)
        value = -np.log(self.a + k) - special.betaln(self.a, 1 + k)
        value = value - self.a * np.log1p(1 / self.b) - k * np.log1p(self.b)
        return np.where(inside, value, -np.inf)

    def cdf(self, x: ArrayLike) -> Floats:
        k = np.floor(floats(x, "x"))
        value = special.betainc(self.a, np.maximum(k, 0.0) + 1, self.b / (self.b + 1))
        return np.where(k < 0, 0.0, value)

    def sample(self, n: int, seed: int = 0) -> Floats:
        rng = generator(n, seed)
        return _poisson(rng, rng.standard_gamma(self.a, n) / self.b)


@dataclass(frozen=True, eq=False)
class CategoricalPredictive:
    """The next label when theta ~ Dirichlet: class j with probability alpha_j / Σ alpha. Labels are
    numbers, or the texts `labels`."""

    concentration: Floats
    labels: tuple[str, ...] = ()

    @property
    def probabilities(self) -> Floats:
        return self.concentration / float(self.concentration.sum())

    def mean(self) -> Floats:
        """The probability of each class."""
        return self.probabilities

    def sd(self) -> Floats:
        """The standard deviation of each class's indicator."""
        return np.sqrt(self.probabilities * (1 - self.probabilities))

    def log_prob(self, x: ArrayLike) -> Floats:
        if self.labels:
            place = {label: k for k, label in enumerate(self.labels)}
            x = np.vectorize(lambda label: place.get(str(label), -1), otypes=[np.float64])(x)
        x = floats(x, "x")
        inside = (x >= 0) & (x < len(self.concentration)) & (x == np.floor(x))
        index = np.where(inside, x, 0).astype(np.int64)
        return np.where(inside, np.log(self.probabilities)[index], -np.inf)

    def interval(self, p: float = 0.95) -> tuple[Floats, Floats]:
        """The central interval of each class's indicator, as in `mean` and `sd`."""
        return DirichletMultinomialPredictive(self.concentration, 1).interval(p)

    def sample(self, n: int, seed: int = 0) -> NDArray[Any]:
        u = generator(n, seed).random(n)
        found = np.searchsorted(np.cumsum(self.probabilities)[:-1], u, side="right")
        return np.array(self.labels)[found] if self.labels else found


@dataclass(frozen=True, eq=False)
class DirichletMultinomialPredictive:
    """Counts of `trials` draws when theta ~ Dirichlet(alpha) (Pólya):
    n! Γ(A) / Γ(n+A) · Π Γ(x_j+alpha_j) / (x_j! Γ(alpha_j))."""

    concentration: Floats
    trials: int

    def mean(self) -> Floats:
        return self.trials * self.concentration / float(self.concentration.sum())

    def cov(self) -> Floats:
        total = self.concentration.sum()
        p = self.concentration / total
        scale = self.trials * (self.trials + total) / (1 + total)
        result: Floats = scale * (np.diag(p) - np.outer(p, p))
        return result

    def sd(self) -> Floats:
        return np.sqrt(np.diag(self.cov()))

    def interval(self, p: float = 0.95) -> tuple[Floats, Floats]:
        """The central interval of each class's count, whose marginal is beta-binomial."""
        rest = self.concentration.sum() - self.concentration
        ends = [
            BetaBinomialPredictive(a, b, self.trials).interval(p)
            for a, b in zip(self.concentration.tolist(), rest.tolist(), strict=True)
        ]
        low, high = np.array(ends).T
        return low, high

    def log_prob(self, x: ArrayLike) -> Floats:
        x = floats(x, "x")
        inside = ((x >= 0) & (x == np.floor(x))).all(axis=-1) & (x.sum(axis=-1) == self.trials)
        k = np.where(inside[..., None], x, 0.0)
        alpha, total, n = self.concentration, self.concentration.sum(), float(self.trials)
        each = special.gammaln(k + alpha) - special.gammaln(alpha) - special.gammaln(k + 1)
        value = (
            special.gammaln(n + 1)
            + special.gammaln(total)
            - special.gammaln(n + total)
            + each.sum(axis=-1)
        )
        return np.where(inside, value, -np.inf)

    def sample(self, n: int, seed: int = 0) -> NDArray[np.int64]:
        rng = generator(n, seed)
        return rng.multinomial(self.trials, rng.dirichlet(self.concentration, size=n))


def _poisson(rng: np.random.Generator, rate: Floats) -> Floats:
    """Poisson draws; above 1e15, where NumPy soon refuses, the noise is below float64's resolution
    of the rate."""
    return np.where(rate < 1e15, rng.poisson(np.minimum(rate, 1e15)), np.rint(rate))


def _search(cdf: Callable[[Floats], Floats], p: Floats, low: int) -> Floats:
    """The smallest whole number x ≥ low with cdf(x) ≥ p, by doubling and bisection."""
    shape = p.shape
    p = np.atleast_1d(p)
    bad = ~((p >= 0) & (p <= 1))
    under = np.full(p.shape, low - 1.0)  # cdf(under) < p
    over = np.full(p.shape, float(low))  # cdf(over) ≥ p in the end
    step = 1.0
    short = cdf(over) < p
    while short.any() and step < _FAR:
        under = np.where(short, over, under)
        over = np.where(short, over + step, over)
        step *= 2
        short = cdf(over) < p
    over = np.where(short, np.inf, over)
    while True:
        open_ = np.isfinite(over) & (over - under > 1)
        if not open_.any():
            break
        middle = np.where(open_, np.floor((under + np.where(open_, over, under)) / 2), under)
        enough = cdf(middle) >= p
        over = np.where(open_ & enough, middle, over)
        under = np.where(open_ & ~enough, middle, under)
    return np.where(bad, np.nan, over).reshape(shape)
