"""Gamma(a, b) with shape a and rate b: eta = (a, b), s = (log θ, −θ), h(θ) = 1/θ,
A = log Γ(a) − a log b."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.families.base import Family, Floats, Params, Positive
from unweave.families.marginals import GammaMarginal, Marginal
from unweave.families.numerics.special import (
    binet2,
    gamma_entropy_part,
    gamma_kl,
    inverse_log_minus_digamma,
    trigamma,
)
from unweave.lazy import special
from unweave.rng import Rng

__all__ = ["GammaFamily"]


class GammaFamily(Positive, Family):
    """A rate; a Poisson count x adds (x, 1), an exponential duration t adds (1, t)."""

    name = "Gamma"

    def __init__(self) -> None:
        self._set(("a", "b"), ("theta",), (), 0.0, (-1.0, 0.0))

    def log_partition(self, eta: Floats) -> Floats:
        a = eta[..., 0]
        result: Floats = special.gammaln(a) - a * np.log(eta[..., 1])
        return result

    def mean(self, eta: Floats) -> Floats:
        a, b = eta[..., 0], eta[..., 1]
        return np.stack([special.psi(a) - np.log(b), -a / b], axis=-1)

    def natural(self, mu: Floats) -> Floats:
        """log a − ψ(a) = log E[x] − E[log x], then b = a/E[x]."""
        first = -mu[..., 1]
        with np.errstate(invalid="ignore", divide="ignore"):
            gap = np.log(first) - mu[..., 0]
        a = inverse_log_minus_digamma(gap, f"mu of {self.name}")
        return np.stack([a, a / first], axis=-1)

    def fisher(self, eta: Floats) -> Floats:
        a, b = eta[..., 0], eta[..., 1]
        cross = -1.0 / b
        rows = [trigamma(a), cross, cross, a / (b * b)]
        return np.stack(rows, axis=-1).reshape((*a.shape, 2, 2))

    def fisher_solve(self, eta: Floats, v: Floats) -> Floats:
        """Elimination; the pivot ψ₁(a) − 1/a is 1/(2a²) + R″(a)."""
        a, b = eta[..., 0], eta[..., 1]
        x, y = v[..., 0], b * v[..., 1]
        first = (x + y / a) / (0.5 / (a * a) + binet2(a))
        return np.stack(np.broadcast_arrays(first, b * (y + first) / a), axis=-1)

    def _kl(self, p: Floats, q: Floats) -> Floats:
        x, y = np.broadcast_arrays(p[..., None, :], q[..., None, :])
        return gamma_kl(x[..., 0], x[..., 1], y[..., 0], y[..., 1])[..., 0]

    def _entropy(self, eta: Floats) -> Floats:
        result: Floats = gamma_entropy_part(eta[..., 0]) - np.log(eta[..., 1])
        return result

    def statistics(self, theta: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return np.stack([np.log(theta), -theta], axis=-1)

    def in_support(self, theta: Floats) -> NDArray[np.bool_]:
        result: NDArray[np.bool_] = (theta >= 0.0) & (theta < np.inf)
        return result

    def sample(self, eta: Floats, rng: Rng, size: tuple[int, ...] = ()) -> Floats:
        a = eta[..., 0]
        draws = rng.standard_gamma(a, size + a.shape) / eta[..., 1]
        # A draw that underflows to 0 is moved to the smallest number inside the support.
        return np.maximum(draws, np.finfo(np.float64).tiny)

    def marginals(self, eta: Floats) -> tuple[Marginal, ...]:
        return (GammaMarginal("theta", eta[..., 0], eta[..., 1]),)

    def to_params(self, eta: Floats) -> Params:
        return {"a": eta[..., 0], "b": eta[..., 1]}

    def from_params(self, **params: ArrayLike) -> Floats:
        pair = np.broadcast_arrays(params["a"], params["b"])
        eta = np.stack(pair, axis=-1).astype(np.float64)
        return self.check(eta, f"{self.name}(a, b)", stated=True)
