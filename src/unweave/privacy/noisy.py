"""Posteriors that know of the noise: their intervals are as wide as noise and data make them.

A published sum is the sum of the records plus noise whose variance everybody knows. To take it for
the sum of the records gives intervals that are too narrow ("naive";
`docs/explanation/security.md` shows by how much). The true sum is unknown, and averaged over:

* counts (Beta, Dirichlet): a mixture over the true counts N given the noisy ones,
      p(theta | Ñ) = Σ_N p(N | Ñ)·Dirichlet(theta; alpha + N),   p(N | Ñ) ∝ p(Ñ | N)·p(N)
  with p(N) flat in the number of records, and Dirichlet-multinomial given that number. For two
  classes the sum runs over a lattice of counts; for more, over draws of a Markov chain.
* normal with known variance: S̃ | theta, n ~ Normal(n·theta, n·s² + σ²) is closed, and the number
  of records n, which has noise too, is summed over.
* regression: with P̃ = P + E and h̃ = h + e, the delta method gives
      theta ≈ P̃⁻¹h̃,   covariance P̃⁻¹ + P̃⁻¹ Cov(e − E·theta) P̃⁻¹.
  In a direction in which P̃ is within three standard deviations of its noise, nothing is known: the
  prior stands there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.arguments import floats
from unweave.errors import ConfigError
from unweave.families import Beta, Dirichlet, MultivariateNormal, Normal
from unweave.families.marginals import BetaMarginal, Marginal, NormalMarginal
from unweave.families.numerics.packed import unpack
from unweave.grid import Ints
from unweave.json_form import as_json
from unweave.lazy import special
from unweave.models import (
    BetaBernoulli,
    BetaBinomial,
    DirichletCategorical,
    LinearRegression,
    Model,
    NormalKnownVariance,
)
from unweave.models.fitted.posterior import Posterior, Samples
from unweave.models.fitted.published import STEP, Published

__all__ = ["MixtureMarginal", "NoisyPosterior"]

Floats = NDArray[np.float64]

_AXIS = 300  # nodes of a sum over one unknown count, at most
_CHAINS, _SWEEPS = 2000, 50  # of the Markov chain over many counts
_WEAK = 3.0  # standard deviations of noise below which a direction is unknown
_LITTLE = 0.5  # of the prior's standard deviation: more, and the noise has left little


@dataclass(frozen=True, eq=False)
class MixtureMarginal(Marginal):
    """A mixture of laws of one kind: `parts` has one batch axis, `weights` sum to 1."""

    weights: Floats
    parts: Marginal

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return ()

    def mean(self) -> Floats:
        return np.asarray(self.weights @ self.parts.mean())[()]

    def sd(self) -> Floats:
        within = self.weights @ np.square(self.parts.sd())
        between = self.weights @ np.square(self.parts.mean() - self.mean())
        return np.asarray(np.sqrt(within + between))[()]

    def cdf(self, x: ArrayLike) -> Floats:
        return np.asarray(self.parts.cdf(floats(x, "x")[..., None]) @ self.weights)

    def log_pdf(self, x: ArrayLike) -> Floats:
        each = self.parts.log_pdf(floats(x, "x")[..., None])
        with np.errstate(divide="ignore"):  # outside of the support
            return np.asarray(special.logsumexp(each, axis=-1, b=self.weights))

    def _quantile(self, p: Floats) -> Floats:
        return np.asarray([self._root(float(one)) for one in p.ravel()]).reshape(p.shape)

    def _root(self, p: float) -> float:
        """Newton's method, with the bisection of a bracket where a step would leave it."""
        if p in (0.0, 1.0):
            ends = self.parts.quantile(p)
            return float(ends.min() if p == 0.0 else ends.max())
        mean, sd = float(self.mean()), float(self.sd())
        x = mean + sd * float(special.ndtri(p))
        low, high = -np.inf, np.inf
        for _ in range(200):
            error = float(self.cdf(x)) - p
            low, high = (x, high) if error < 0 else (low, x)
            slope = float(self.pdf(x))
            new = x - error / slope if slope > 0 else np.nan
            if not low < new < high:
                # Outside of the bracket: its middle, or a way out of a side that is still open.
                new = 0.5 * (low + high) if np.isfinite(high - low) else x - np.sign(error) * sd
            if abs(new - x) <= 1e-10 * sd:
                return float(new)
            x = new
        return float(x)


@dataclass(frozen=True, eq=False, repr=False)
class NoisyPosterior(Posterior):
    """The posterior given a noisy sum. `noise` is the variance of the noise per component.

    `mean`, `sd`, `interval`, `table`, `sample` and `draws` are of the mixture. `distribution`, and
    with it `predict`, `log_prob` and `kl`, is the member of the family with the same means (and
    variances: for more than two classes, the same total variance).
    """

    noise: Floats

    def __post_init__(self) -> None:
        noise = np.array(self.noise, dtype=np.float64)
        if noise.shape != (self.model.grid.dim,) or not (noise > 0).all():
            raise ConfigError(
                f"the noise of {self.model.name} has shape {noise.shape}. Fix: give "
                f"{self.model.grid.dim} variances above 0"
            )
        noise.setflags(write=False)
        object.__setattr__(self, "noise", noise)
        super().__post_init__()

    @cached_property
    def _law(self) -> _Law:
        model = self.model
        noisy, prior = model.grid.decode(self.units), model.grid.decode(model.eta0)
        if isinstance(model, BetaBernoulli | BetaBinomial):
            return _beta(noisy - prior, self.noise, prior)
        if isinstance(model, DirichletCategorical):
            return _dirichlet(noisy - prior, self.noise, prior)
        if isinstance(model, NormalKnownVariance):
            return _normal(model, noisy - prior, self.noise, prior)
        if isinstance(model, LinearRegression):
            return _regression(model.size, noisy, self.noise, prior)
        raise ConfigError(
            f"{model.name}: no posterior that knows of noise. Fix: publish its sums without noise"
        )

    @cached_property
    def eta(self) -> Floats:
        """Of the member of the family with the same mean and variance."""
        return self._law.eta

    @cached_property
    def marginals(self) -> tuple[Marginal, ...]:
        law, affine = self._law, self.model.affine
        if law.mixture is None:
            return self.model.marginals(law.eta)
        weights, parts = law.mixture
        laws = self.model.family.marginals(parts)
        if affine is not None:
            laws = affine.marginals(self.model.family, parts)
        return tuple(
            MixtureMarginal(name, weights, one)
            for one, name in zip(laws, self.model.quantities, strict=True)
        )

    def sample(self, n: int, seed: int = 0) -> Samples:
        if self._law.mixture is None:
            return super().sample(n, seed)
        weights, parts = self._law.mixture
        rng = np.random.default_rng(seed)
        chosen = parts[rng.choice(len(weights), size=n, p=weights)]
        theta = self.model.family.sample(chosen, rng)  # type: ignore[arg-type]
        if self.model.affine is not None:
            theta = self.model.affine.outward(theta, self.model.family.event_shape)
        return Samples(self.model.named_samples(theta), theta)

    def covariance(self) -> Floats:
        if self._law.mixture is None:
            return super().covariance()
        weights, parts = self._law.mixture
        each = np.stack([self.model.covariance_of(part) for part in parts])
        means = np.stack([law.parts.mean() for law in self._mixtures], axis=-1)
        off = means - weights @ means
        return np.asarray(np.einsum("m,mij->ij", weights, each) + (weights * off.T) @ off)

    @property
    def _mixtures(self) -> list[MixtureMarginal]:
        return [law for law in self.marginals if isinstance(law, MixtureMarginal)]

    @property
    def remark(self) -> str | None:
        """In words, where the noise has left little of the data; None if it has not."""
        prior = self.model.marginals(self.model.grid.decode(self.model.eta0))
        lost = [
            f"{law.name} ± {float(law.sd()):.2g} (prior ± {float(before.sd()):.2g})"
            for law, before in zip(self.marginals, prior, strict=True)
            if not float(law.sd()) < _LITTLE * float(before.sd())
        ]
        unknown = self._law.unknown
        if not lost and not unknown:
            return None
        what = ", ".join(lost[:3]) + (", …" if len(lost) > 3 else "")
        where = (
            f"; {unknown} of {len(self.marginals)} directions are the prior's" if unknown else ""
        )
        return (
            f"the noise leaves nearly nothing of the data: {what or 'see the intervals'}{where}. "
            "Fix: more records, tighter bounds, fewer releases, or a larger epsilon"
        )

    def log_evidence(self, data: Any, columns: Mapping[str, str] | None = None) -> float:
        raise ConfigError("log_evidence: a noisy sum has none. Fix: compare without noise")

    def published(self, step: float = STEP) -> Published:
        raise ConfigError(
            "published: noise is drawn anew in every round, so no other training publishes the "
            "same. Fix: use table()"
        )

    def to_json(self) -> str:
        return as_json(
            {
                "model": self.model.name,
                "settings": self.model.settings(),
                "units": self.units.tolist(),
                "noise": self.noise.tolist(),
                "digest": self.digest,
            }
        )

    @classmethod
    def _from(cls, model: Model, units: Ints, values: Mapping[str, Any]) -> NoisyPosterior:
        try:
            noise = np.array(values["noise"], dtype=np.float64)
        except (KeyError, TypeError, ValueError):
            raise ConfigError(
                "this posterior has no noise. Fix: read it with unweave.Posterior"
            ) from None
        return cls(model, units, noise)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, NoisyPosterior)
            and super().__eq__(other)
            and bool(np.array_equal(self.noise, other.noise))
        )

    def __hash__(self) -> int:
        return hash((super().__hash__(), self.noise.tobytes()))


class _Law(NamedTuple):
    """`mixture`: weights [M] and natural parameters [M, D]; None: the law is `eta` itself.
    `unknown`: in how many directions the noise left nothing."""

    eta: Floats
    mixture: tuple[Floats, Floats] | None = None
    unknown: int = 0


def _axis(noisy: float, variance: float, step: float) -> Floats:
    """Counts from max(0, noisy − 6 sd) to noisy + 6 sd: the middles of blocks of at most `step`
    counts, or of more if there were more than `_AXIS` blocks."""
    sd = variance**0.5
    low = max(0, int(np.floor(noisy - 6 * sd)))
    high = max(int(np.ceil(noisy + 6 * sd)), low + int(3 * sd)) + 1
    length = max(1, int(step), -(-(high - low) // _AXIS))
    return np.arange(low, high, length, dtype=np.float64) + 0.5 * (length - 1)


def _normalised(log: Floats) -> Floats:
    weights: Floats = np.exp(log - log.max())
    weights /= weights.sum()
    return weights


def _pruned(weights: Floats, parts: Floats) -> tuple[Floats, Floats]:
    keep = weights > 1e-10 * weights.max()
    return weights[keep] / weights[keep].sum(), parts[keep]


def _log_counts(counts: Floats, alpha: Floats) -> Floats:
    """log p(N | n) up to a constant, for counts [..., d]: Dirichlet-multinomial."""
    n = counts.sum(axis=-1)
    each = special.gammaln(counts + alpha) - special.gammaln(counts + 1)
    whole = special.gammaln(n + 1) - special.gammaln(n + alpha.sum())
    return np.asarray(each.sum(axis=-1) + whole)


def _lattice(noisy: Floats, variance: Floats, alpha: Floats) -> tuple[Floats, Floats]:
    """Two unknown counts: weights and Beta parameters."""
    n, total = max(float(noisy.sum()), 1.0), float(alpha.sum())
    share = alpha[0] / total
    spread = float(np.sqrt(n * share * (1 - share) * (total + n) / (total + 1)))
    # Half a standard deviation of p(N | Ñ), and one of the Beta of a count: the sum is smooth.
    axes = [
        _axis(x, v, min(0.5 * v**0.5, 0.5 * spread, max(x, 1.0) ** 0.5))
        for x, v in zip(noisy.tolist(), variance.tolist(), strict=True)
    ]
    counts = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    log = _log_counts(counts, alpha) - (np.square(counts - noisy) / (2 * variance)).sum(axis=-1)
    return _pruned(_normalised(log), counts + alpha)


def _chain(noisy: Floats, variance: Floats, alpha: Floats) -> tuple[Floats, Floats]:
    """Many unknown counts: where independent Markov chains are after some sweeps over the classes,
    from the noisy counts on. The seed is fixed: the same sums give the same posterior."""
    rng = np.random.default_rng(0)
    d, sd = len(noisy), np.sqrt(variance)
    at = np.maximum(np.rint(noisy + sd * rng.standard_normal((_CHAINS, d))), 0.0)
    step = 2.0 * np.maximum(1.0, np.minimum(sd, np.sqrt(np.maximum(noisy, 1.0))))
    n, size = at.sum(axis=1), float(alpha.sum())

    def log_one(count: Floats, j: int) -> Floats:
        """The terms of class j in log p(N, Ñ); `log_all` has those of the sum of all classes."""
        fit = np.square(count - noisy[j]) / (2 * variance[j])
        return np.asarray(special.gammaln(count + alpha[j]) - special.gammaln(count + 1) - fit)

    def log_all(n: Floats) -> Floats:
        return np.asarray(special.gammaln(n + 1) - special.gammaln(n + size))

    for _ in range(_SWEEPS):
        for j in range(d):
            old = at[:, j]
            new = old + np.rint(step[j] * rng.standard_normal(_CHAINS))
            inside = new >= 0
            new = np.where(inside, new, old)
            gain = log_one(new, j) - log_one(old, j) + log_all(n + new - old) - log_all(n)
            taken = inside & (np.log(rng.random(_CHAINS)) < gain)
            n = np.where(taken, n + new - old, n)
            at[:, j] = np.where(taken, new, old)
    return np.full(_CHAINS, 1 / _CHAINS), at + alpha


def _beta(noisy: Floats, variance: Floats, alpha: Floats) -> _Law:
    weights, parts = _lattice(noisy, variance, alpha)
    law = MixtureMarginal("theta", weights, BetaMarginal("theta", parts[:, 0], parts[:, 1]))
    mean, sd = float(law.mean()), float(law.sd())
    total = mean * (1 - mean) / sd**2 - 1
    return _Law(Beta(a=mean * total, b=(1 - mean) * total).eta, (weights, parts))


def _dirichlet(noisy: Floats, variance: Floats, alpha: Floats) -> _Law:
    found = _lattice if len(alpha) == 2 else _chain
    weights, parts = found(noisy, variance, alpha)
    total = parts.sum(axis=-1, keepdims=True)
    means = parts / total
    mean = weights @ means
    spread = weights @ (means * (1 - means) / (total + 1) + np.square(means - mean))
    size = float((mean * (1 - mean)).sum() / spread.sum()) - 1
    return _Law(Dirichlet(alpha=mean * size).eta, (weights, parts))


def _normal(model: NormalKnownVariance, noisy: Floats, variance: Floats, prior: Floats) -> _Law:
    """`noisy` is (w·S̃, w·ñ) with w = 1/s²."""
    w = model.used_noise**-2.0
    (s_noisy, n_noisy), (s_noise, n_noise) = noisy / w, variance / w**2
    p0, m0 = float(prior[1]), float(prior[0] / prior[1])
    n = _axis(float(n_noisy), float(n_noise), 1.0)
    spread = n / w + s_noise  # of S̃ given theta
    whole = spread + n * n / p0  # of S̃ before theta is known
    log = -0.5 * (np.square(n - n_noisy) / n_noise + np.square(s_noisy - n * m0) / whole)
    precision = p0 + n * n / spread
    means = (p0 * m0 + n * s_noisy / spread) / precision
    parts = np.stack([means * precision, precision], axis=-1)
    weights, parts = _pruned(_normalised(log - 0.5 * np.log(whole)), parts)
    scales = 1 / np.sqrt(parts[:, 1])
    law = MixtureMarginal(
        "theta", weights, NormalMarginal("theta", parts[:, 0] * scales**2, scales)
    )
    return _Law(Normal(mean=float(law.mean()), sd=float(law.sd())).eta, (weights, parts))


def _regression(d: int, noisy: Floats, variance: Floats, prior: Floats) -> _Law:
    """The carrier is (h, triangle of P), in units of the noise of y."""
    h, p = noisy[:d], unpack(noisy[d:], d)
    h0, p0 = prior[:d], unpack(prior[d:], d)
    v = unpack(variance[d:], d)
    values, vectors = np.linalg.eigh(p)
    # The noise along direction u is uᵀEu, whose entries off the diagonal appear twice.
    squares = np.square(vectors)
    noise = np.sqrt(2 * np.einsum("ia,ij,ja->a", squares, v, squares))
    known = values > np.maximum(_WEAK * noise, 0.0)
    back = (vectors[:, known] / values[known]) @ vectors[:, known].T  # P̃⁻¹ where it is known
    free = vectors[:, ~known]
    v0 = np.linalg.inv(p0)
    mean0 = v0 @ h0
    theta = back @ h + free @ (free.T @ (mean0 - back @ h))
    prior_cov = free @ (free.T @ v0 @ free) @ free.T
    moved = v * np.outer(theta, theta)  # Cov(E·theta)
    np.fill_diagonal(moved, v @ (np.square(theta) + np.diag(prior_cov)))
    cov = back + back @ (moved + np.diag(variance[:d])) @ back + prior_cov
    cov = 0.5 * (cov + cov.T)
    return _Law(MultivariateNormal(mean=theta, cov=cov).eta, None, int((~known).sum()))
