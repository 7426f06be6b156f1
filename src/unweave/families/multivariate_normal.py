"""MultivariateNormal: eta = (P m, triangle of P), s = (θ, −½ w_ij θ_i θ_j), h = (2π)^(−d/2),
A = ½ mᵀPm − ½ log det P.

The Fisher information has (d + d(d+1)/2)² entries and is never formed: its action is the
differential of the mean map, and the inverse action the differential of the inverse map.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.families.base import Family, Floats, Params
from unweave.families.marginals import Marginal, NormalMarginal
from unweave.families.numerics.packed import (
    cholesky,
    gaussian_spread,
    inverse,
    log_det,
    matvec,
    outer,
    outer_sum,
    pack,
    packed_names,
    packed_size,
    precision_matrix,
    second_moments,
    smallest_eigenvalue,
    solve_vector,
    statistics_matrix,
    symmetric,
    unpack,
)
from unweave.families.numerics.special import HALF_LOG_2PI
from unweave.rng import Rng

__all__ = ["MultivariateNormalFamily"]


class MultivariateNormalFamily(Family):
    """`dim` correlated coordinates; eta has dim + dim(dim+1)/2 components."""

    name = "MultivariateNormal"

    def __init__(self, dim: int) -> None:
        self.d = self._at_least(1, "coordinate", dim)
        names = tuple(f"h[{i}]" for i in range(dim)) + packed_names("P", dim)
        thetas = tuple(f"theta[{i}]" for i in range(dim))
        self._set(names, thetas, (dim,), -dim * HALF_LOG_2PI, np.zeros(dim + packed_size(dim)))

    def split(self, eta: Floats) -> tuple[Floats, Floats]:
        """(h, P) with P as a full matrix."""
        return eta[..., : self.d], unpack(eta[..., self.d :], self.d)

    def _factor(self, precision: Floats) -> Floats:
        return cholesky(precision, "the precision P of MultivariateNormal")

    def log_partition(self, eta: Floats) -> Floats:
        h, precision = self.split(eta)
        factor = self._factor(precision)
        root = solve_vector(factor, h)
        result: Floats = 0.5 * (root * root).sum(-1) - 0.5 * log_det(factor)
        return result

    def mean(self, eta: Floats) -> Floats:
        h, precision = self.split(eta)
        covariance = inverse(self._factor(precision))
        m = matvec(covariance, h)
        return np.concatenate([m, second_moments(covariance + outer(m))], -1)

    def natural(self, mu: Floats) -> Floats:
        m = mu[..., : self.d]
        second = statistics_matrix(mu[..., self.d :], self.d)
        covariance = second - outer(m)
        precision = inverse(cholesky(covariance, "mu of MultivariateNormal: the covariance"))
        return np.concatenate([matvec(precision, m), pack(precision)], axis=-1)

    def fisher_dot(self, eta: Floats, v: Floats) -> Floats:
        h, precision = self.split(eta)
        u, change = self.split(v)
        covariance = inverse(self._factor(precision))
        m = matvec(covariance, h)
        dm = matvec(covariance, u - matvec(change, m))
        moved = outer_sum(dm, m) - covariance @ change @ covariance
        return np.concatenate([dm, second_moments(moved)], axis=-1)

    def fisher_solve(self, eta: Floats, v: Floats) -> Floats:
        h, precision = self.split(eta)
        dm = v[..., : self.d]
        m = solve_vector(precision, h)
        moved = statistics_matrix(v[..., self.d :], self.d) - outer_sum(dm, m)
        change = -symmetric(precision @ moved @ precision)
        return np.concatenate([matvec(precision, dm) + matvec(change, m), pack(change)], axis=-1)

    def _kl(self, p: Floats, q: Floats) -> Floats:
        """½ (Σ (λ − log(1+λ)) + (m_q − m_p)ᵀ P_q (m_q − m_p)), λ the relative changes of P."""
        h, precision = self.split(p)
        dh, change = self.split(q - p)
        after = self.split(q)[1]
        before_factor, after_factor = self._factor(precision), self._factor(after)
        m = solve_vector(precision, h)
        root = solve_vector(after_factor, dh - matvec(change, m))  # P_q (m_q − m_p), whitened
        spread = gaussian_spread(before_factor, after_factor, change)
        result: Floats = 0.5 * (spread + (root * root).sum(-1))
        return result

    def _entropy(self, eta: Floats) -> Floats:
        factor = self._factor(self.split(eta)[1])
        result: Floats = self.d * (HALF_LOG_2PI + 0.5) - 0.5 * log_det(factor)
        return result

    def _log_prob(self, eta: Floats, theta: Floats) -> Floats:
        h, precision = self.split(eta)
        residual = theta - solve_vector(precision, h)
        factor = self._factor(precision)
        root = matvec(np.swapaxes(factor, -1, -2), residual)
        result: Floats = 0.5 * (log_det(factor) - (root * root).sum(-1)) - self.d * HALF_LOG_2PI
        return result

    def statistics(self, theta: Floats) -> Floats:
        return np.concatenate([theta, second_moments(outer(theta))], -1)

    def in_support(self, theta: Floats) -> NDArray[np.bool_]:
        return np.asarray(np.isfinite(theta).all(-1))

    def margin(self, eta: Floats) -> Floats:
        """λ_min(P)."""
        return smallest_eigenvalue(self.split(eta)[1])

    def violation(self, eta: Floats) -> str:
        return (
            f"the precision P must be positive definite, its smallest eigenvalue is "
            f"{float(self.margin(eta)):.6g}"
        )

    def sample(self, eta: Floats, rng: Rng, size: tuple[int, ...] = ()) -> Floats:
        h, precision = self.split(eta)
        upper = np.swapaxes(self._factor(precision), -1, -2)
        z = rng.standard_normal(size + h.shape)
        # P = LLᵀ, so L⁻ᵀz has covariance P⁻¹.
        return solve_vector(precision, h) + solve_vector(upper, z)

    def marginals(self, eta: Floats) -> tuple[Marginal, ...]:
        h, precision = self.split(eta)
        covariance = inverse(self._factor(precision))
        m = matvec(covariance, h)
        sd = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
        return tuple(
            NormalMarginal(name, m[..., i], sd[..., i]) for i, name in enumerate(self.theta_names)
        )

    def covariance(self, eta: Floats) -> Floats:
        return self.to_params(eta)["cov"]

    def to_params(self, eta: Floats) -> Params:
        h, precision = self.split(eta)
        covariance = inverse(self._factor(precision))
        return {"mean": matvec(covariance, h), "cov": covariance}

    def from_params(self, **params: ArrayLike) -> Floats:
        """`mean` with `cov` or `precision`; a number stands for that multiple of the identity."""
        precision = precision_matrix(params, "cov", self.d, "MultivariateNormal(mean, cov)")
        m = np.asarray(params["mean"], dtype=np.float64)
        h = matvec(precision, m)
        flat = np.broadcast_to(pack(precision), (*h.shape[:-1], packed_size(self.d)))
        eta = np.concatenate([h, flat], axis=-1)
        return self.check(eta, "MultivariateNormal(mean, cov)", stated=True)

    def __repr__(self) -> str:
        return f"MultivariateNormalFamily(dim={self.d})"
