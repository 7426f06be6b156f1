"""The paper's non-conjugate model: θ ~ Beta(a, b), z ~ Exp with mean θ.

    p(z | θ) = (1/θ) exp(−z/θ),   L_k(θ) = w0·log θ + w1/θ,
    (w0, w1) = (N_k, Σ z)  or, with reduction="mean",  (1, mean of z).

E_q[log θ] = psi(a) − psi(a+b) and E_q[1/θ] = (a+b−1)/(a−1), so the expected loss, its gradient in
mu and KL(q‖p) are closed forms; only the normaliser of the exact posterior p needs a quadrature.
E_q[1/θ] exists for a > 1; gradients from samples have a finite variance for a > 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.arguments import floats, generator, levels
from unweave.errors import ConfigError, DomainError
from unweave.families import Beta, BetaFamily, Distribution
from unweave.families.numerics.special import binet2
from unweave.lazy import special
from unweave.models.base import LossModel, Model
from unweave.models.columns import Column
from unweave.models.data import Data
from unweave.models.fitted.predictive_reals import ScalarPredictive

__all__ = ["FARTHEST", "BetaExponential", "BetaExponentialPredictive", "ExactPosterior"]


Floats = NDArray[np.float64]

_FAMILY = BetaFamily()
# The limit of quadrature in x = logit θ, so that 1/θ = 1 + e^−x and the loss are finite. For a
# below 1.07 the limit cuts off more than a share of 1e-18 of E[1/θ].
FARTHEST = -600.0

_LEGENDRE, _LEGENDRE_WEIGHTS = np.polynomial.legendre.leggauss(64)


@dataclass(frozen=True)
class BetaExponential(LossModel):
    """Records z ≥ 0, exponential with mean θ; prior θ ~ Beta(a, b) with a > 1.

    >>> model = BetaExponential(a=3, b=3)
    >>> model.summary(model.shard([0.2, 0.7, 0.3]))
    array([3. , 1.2])
    """

    a: float = 3.0
    b: float = 3.0

    name: ClassVar[str] = "beta-exponential"
    estimate_within: ClassVar[float | None] = 3.0

    def check_settings(self) -> None:
        if 0.0 < self.a <= 1.0:
            raise ConfigError(
                f"{self.name}: a = {self.a:g}: the expected loss needs E[1/θ]. Fix: a > 1, or a "
                "> 2 for gradients from samples"
            )

    def in_rounds(self, agents: int) -> Model:
        raise ConfigError(
            f"{self.name} has no private rounds: its factors depend on the other agents' factors. "
            'Fix: beta-exponential-atoms, or privacy = "plain"'
        )

    @property
    def prior(self) -> Distribution:
        return Beta(a=self.a, b=self.b)

    @property
    def schema(self) -> tuple[Column, ...]:
        return (Column("z", "a finite number, at least 0", low=0.0),)

    def default_bits(self) -> Sequence[int]:
        """40 bits: one unit of rounding is below 1e-12 of any a or b above 1."""
        return (40, 40)

    def margin(self, eta: Floats, moments: int = 1) -> Floats:
        """E[θ^−moments] exists for a > moments."""
        return np.minimum(eta[..., 0] - moments, eta[..., 1])

    def needs(self, moments: int) -> str:
        what = "E[1/θ]" if moments == 1 else "a finite variance of 1/θ"
        return f"{what}: a > {moments} and b > 0 in q = Beta(a, b)"

    # -- the loss ---------------------------------------------------------------------------------

    def summary(self, data: Data) -> Floats:
        """(w0, w1), correctly rounded, so that it does not depend on the order of the records."""
        total = math.fsum(value for rows in data.batches() for value in rows[:, 0])
        if self.reduction == "mean":
            return np.array([1.0, total / data.n] if data.n else [0.0, 0.0])
        return np.array([float(data.n), total])

    def combine(self, data: Floats) -> Floats:
        """The summary of all agents' losses together, [..., K, 2] → [..., 2]."""
        total: Floats = data.sum(axis=-2)
        return total

    def loss(self, theta: Floats, data: Floats) -> Floats:
        result: Floats = data[..., 0] * np.log(theta) + data[..., 1] / theta
        return result

    def loss_slope(self, theta: Floats, data: Floats) -> Floats:
        """L'(θ) = (w0 − w1/θ)/θ."""
        result: Floats = (data[..., 0] - data[..., 1] / theta) / theta
        return result

    # -- optional parts for solvers ---------------------------------------------------------------

    def expected_loss(self, eta: Floats, data: Floats) -> Floats:
        """E_q[L] = w0·mu_1 + w1·(a+b−1)/(a−1)."""
        inverse = (eta[..., 0] + eta[..., 1] - 1.0) / (eta[..., 0] - 1.0)
        result: Floats = data[..., 0] * _FAMILY.mean(eta)[..., 0] + data[..., 1] * inverse
        return result

    def exact_gradient(self, eta: Floats, data: Floats) -> Floats:
        """∇_mu E_q[L] = (w0, 0) + w1·F⁻¹v with v = ∇_eta E[1/θ] = (−b/(a−1)², 1/(a−1)).

        With psi'(x) = 1/x + g(x) the leading terms of F⁻¹v and of det F cancel analytically. The
        remaining terms are of one order, also for large a and b.
        """
        a, b = eta[..., 0], eta[..., 1]
        s, m = a + b, a - 1.0
        ga, gb, gs = (0.5 / (x * x) + binet2(x) for x in (a, b, s))
        det = ga * a / (b * s) + gb * b / (a * s) + ga * gb - gs * (s / (a * b) + ga + gb)
        scale = data[..., 1] / (m * m * det)
        first = gs * m - (gb - gs) * b - 1.0 / s
        second = (ga - gs) * m - gs * b - b / (a * s)
        return np.stack([data[..., 0] + scale * first, scale * second], axis=-1)

    def nodes(self, eta: Floats) -> tuple[Floats, Floats, Floats]:
        """θ, s(θ) and weights [n, ...] of a trapezoid in x = logit θ, for E_q of f(θ) like 1/θ.

        In x the density is analytic in a strip of width 2π and decays at both ends, so the error of
        a step h falls as exp(−c/h): it is negligible for h ≤ ¼, and for h ≈ sd/7 if q is narrow.
        """
        a, b = eta[..., 0], eta[..., 1]
        sd = np.minimum(1.0, np.sqrt(1.0 / a + 1.0 / b))
        mode = np.log(a / b)
        low = np.maximum(mode - 9.0 * sd - 40.0 / (a - 1.0), FARTHEST)
        high = mode + 9.0 * sd + 40.0 / b
        n = max(129, math.ceil(float(np.max(high - low)) / 0.25) + 1)
        x = low + (high - low) * np.linspace(0.0, 1.0, n).reshape(-1, *(1,) * low.ndim)
        weight = np.exp(logit_density(x, a, b) - logit_density(mode, a, b))
        # log(1−θ) is computed from x: θ rounds to 1 where q with a small b still has mass.
        s = np.stack([special.log_expit(x), special.log_expit(-x)], axis=-1)
        return special.expit(x), s, weight / weight.sum(axis=0)

    def path_derivative(self, eta: Floats, theta: Floats) -> Floats:
        """∂θ/∂eta at a fixed quantile (implicit reparameterisation), [..., 2].

        With x = logit θ and h its log-density, ∂x/∂eta = −∫_{−∞}^x exp(h(y) − h(x)) (s(y) − mu) dy,
        or the same integral from x upwards, whose integrand only falls on the far side of the mode.
        """
        a, b = eta[..., 0], eta[..., 1]
        mu = _FAMILY.mean(eta)
        sd = np.minimum(1.0, np.sqrt(1.0 / a + 1.0 / b))
        x = special.logit(theta)
        width = np.where(x < np.log(a / b), -(9.0 * sd + 40.0 / a), 9.0 * sd + 40.0 / b)
        y = x[..., None] + width[..., None] * (0.5 * (_LEGENDRE + 1.0))
        a, b = a[..., None], b[..., None]
        weight = 0.5 * _LEGENDRE_WEIGHTS
        weight = weight * np.exp(logit_density(y, a, b) - logit_density(x[..., None], a, b))
        s = np.stack([special.log_expit(y), special.log_expit(-y)], axis=-1)
        integral = (weight[..., None] * (s - mu[..., None, :])).sum(axis=-2)
        scale = width * theta * (1.0 - theta)
        result: Floats = scale[..., None] * integral
        return result

    # -- predictive -------------------------------------------------------------------------------

    def replicate(self, theta: Floats, rows: Floats, rng: np.random.Generator) -> Floats:
        return rng.exponential(theta, rows.shape)

    def predictive(self, eta: ArrayLike) -> BetaExponentialPredictive:
        """The next record, θ integrated out; its density at 0 needs a > 1."""
        q = np.asarray(eta, dtype=np.float64)
        if not self.margin(q) > 0.0:
            raise DomainError(
                f"{self.name}: a predictive needs {self.needs(1)}, but a = {q[0]:.6g}. Fix: use "
                "a stronger prior"
            )
        theta, _, weights = self.nodes(q)
        return BetaExponentialPredictive(float(q[0]), float(q[1]), theta, weights)

    def log_density(self, eta: Floats, rows: Floats) -> Floats:
        """log p(record | q) of each record."""
        return self.predictive(eta).log_prob(rows[:, 0])

    # -- the exact posterior ----------------------------------------------------------------------

    def exact(self, data: ArrayLike) -> ExactPosterior:
        """p(θ | data) for the combined summaries `data` [..., 2] (`eq:opt_sol`)."""
        return ExactPosterior.of(self, np.asarray(data, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class ExactPosterior:
    """p(θ) ∝ θ^(A−1) (1−θ)^(B−1) exp(−W/θ), normalised by a trapezoid in x = logit θ.

    A = a − w0/alpha may be negative: exp(−W/θ) still makes it proper. Batch-first: A, B, W [...].
    """

    A: Floats
    B: Floats
    W: Floats
    log_z: Floats
    theta: Floats  # nodes [n, ...]
    weights: Floats  # their probabilities [n, ...]

    @classmethod
    def of(cls, model: BetaExponential, data: Floats) -> ExactPosterior:
        eta0 = model.decode(model.eta0)
        big_a = eta0[0] - data[..., 0] / model.alpha
        big_w = data[..., 1] / model.alpha
        big_b = np.broadcast_to(eta0[1], big_a.shape)
        if not np.all((big_w > 0.0) | (big_a > 0.0)):
            raise ConfigError(
                f"{model.name}: all records are 0, where the posterior has no density. Fix: "
                "check the data"
            )

        log_z, theta, weights = tilted_beta(big_a, big_b, big_w)
        return cls(big_a, big_b, big_w, log_z, theta, weights)

    def log_prob(self, theta: ArrayLike) -> Floats:
        t = np.asarray(theta, dtype=np.float64)
        powers = (self.A - 1.0) * np.log(t) + (self.B - 1.0) * np.log1p(-t)
        result: Floats = powers - self.W / t - self.log_z
        return result

    def mean(self) -> Floats:
        result: Floats = (self.weights * self.theta).sum(axis=0)
        return result

    def sd(self) -> Floats:
        centred = self.theta - self.mean()
        result: Floats = np.sqrt((self.weights * centred * centred).sum(axis=0))
        return result

    def kl_from(self, eta: ArrayLike) -> Floats:
        """KL(q‖p) for q = Beta(eta): closed form except for the normaliser of p.

        E_q[log q − log p] = (a − A)·mu_1 + (b − B)·mu_2 − A(eta) + W·E_q[1/θ] + log Z.
        """
        q = np.asarray(eta, dtype=np.float64)
        a, b = q[..., 0], q[..., 1]
        mu = _FAMILY.mean(q)
        inner = (a - self.A) * mu[..., 0] + (b - self.B) * mu[..., 1]
        inverse = self.W * (a + b - 1.0) / (a - 1.0)
        result: Floats = inner - _FAMILY.log_partition(q) + inverse + self.log_z
        return result


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
        value = log_z - _FAMILY.log_partition(np.array([self.a, self.b]))
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


def logit_density(x: Floats, a: Floats, b: Floats) -> Floats:
    """a·log θ + b·log(1−θ): the log-density of x = logit θ up to its normaliser."""
    result: Floats = a * special.log_expit(x) + b * special.log_expit(-x)
    return result


def tilted_beta(a: Floats, b: Floats, w: Floats) -> tuple[Floats, Floats, Floats]:
    """log ∫ θ^(A−1) (1−θ)^(B−1) exp(−W/θ) dθ over (0, 1): a Beta density times exponential
    likelihoods; with the nodes θ [n, ...] and their probabilities.

    A trapezoid in x = logit θ, placed around the integrand's own mode. A may be negative where
    W > 0: exp(−W/θ) still makes the integral finite.
    """

    def log_density(x: Floats) -> Floats:
        # W/θ = W + W·exp(−x): the constant W is added at the end, because it would cancel the
        # significant digits of the rest in a far tail.
        return logit_density(x, a, b) - w * np.exp(-x)

    # The mode in x solves (A+B)θ² + (W−A)θ − W = 0; each form is stable where it is used. Where θ
    # would round to 1, 1−θ solves (A+B)(1−θ)² − (A+2B+W)(1−θ) + B = 0.
    p, sum_ab = w - a, a + b
    unit = np.abs(a) + b + w  # squares of large numbers would overflow
    root = unit * np.sqrt((p / unit) ** 2 + 4.0 * (sum_ab / unit) * (w / unit))
    with np.errstate(invalid="ignore", divide="ignore"):
        theta = np.where(p > 0.0, 2.0 * w / (p + root), (root - p) / (2.0 * sum_ab))
    rest = 2.0 * b / (a + 2.0 * b + w + root)
    mode = np.log(theta) - np.log(rest)
    peak = log_density(mode)
    curvature = sum_ab * theta * rest + w * np.exp(-mode)
    ends = []
    for sign in (-1.0, 1.0):
        width = 1.0 / np.sqrt(curvature)
        while np.any(near := peak - log_density(mode + sign * width) < 45.0):
            width = np.where(near, 1.3 * width, width)
        ends.append(mode + sign * width)
    low, high = ends
    n = max(257, math.ceil(float(np.max(high - low)) / 0.25) + 1)
    x = low + (high - low) * np.linspace(0.0, 1.0, n).reshape(-1, *(1,) * low.ndim)
    weight = np.exp(log_density(x) - peak)
    total = weight.sum(axis=0)
    log_z = peak - w + np.log(total * (high - low) / (n - 1))
    return log_z, special.expit(x), weight / total
