"""NormalInverseGamma: β | σ² ~ N(m, σ² P⁻¹) in d dimensions, σ² ~ InverseGamma(a, b).

    eta = (P m,  triangle of P,        c = 2b + mᵀPm,  n = 2a)
    s   = (β/σ², −½ w_ij β_i β_j / σ², −½/σ²,          −½ log σ²)
    log h = −(1 + d/2) log σ² − (d/2) log 2π
    A   = −½ log det P + log Γ(a) − a log b

A record (x, y) of a regression y = xᵀβ + σ·noise adds (xy, triangle of xxᵀ, y², 1), so the factor
of a shard is (Xᵀy, XᵀX, yᵀy, N). With d = 1 and x = 1 this is the normal with unknown mean and
variance. θ is the flat vector (β_1 … β_d, σ²).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import DomainError
from unweave.families.base import Family, Floats, Params
from unweave.families.marginals import InverseGammaMarginal, Marginal, StudentTMarginal
from unweave.families.numerics.packed import (
    cholesky,
    gaussian_spread,
    inverse,
    log_det,
    matvec,
    outer_sum,
    pack,
    packed_names,
    precision_matrix,
    quadratic,
    second_moments,
    smallest_eigenvalue,
    solve_vector,
    statistics_matrix,
    symmetric,
    unpack,
)
from unweave.families.numerics.special import (
    HALF_LOG_2PI,
    binet2,
    gamma_entropy_part,
    gamma_kl,
    inverse_log_minus_digamma,
    trigamma,
)
from unweave.lazy import special
from unweave.rng import Rng

__all__ = ["NormalInverseGammaFamily"]


class _Parts(NamedTuple):
    m: Floats
    precision: Floats
    factor: Floats  # Cholesky factor of the precision
    a: Floats
    b: Floats


class NormalInverseGammaFamily(Family):
    """`dim` coefficients that share one unknown variance."""

    name = "NormalInverseGamma"

    def __init__(self, dim: int = 1) -> None:
        self.d = self._at_least(1, "coefficient", dim)
        names = (*(f"h[{i}]" for i in range(dim)), *packed_names("P", dim), "c", "n")
        thetas = (*(f"beta[{i}]" for i in range(dim)), "sigma2")
        weights = np.zeros(len(names))
        weights[-1] = 2.0 + dim  # −(1 + d/2) log σ² = (2 + d)·(−½ log σ²)
        self._set(names, thetas, (dim + 1,), -dim * HALF_LOG_2PI, weights)

    def _split(self, eta: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        return eta[..., : self.d], unpack(eta[..., self.d : -2], self.d), eta[..., -2], eta[..., -1]

    def _parts(self, eta: Floats) -> _Parts:
        h, precision, c, n = self._split(eta)
        factor = cholesky(precision, "the precision P of NormalInverseGamma")
        m = solve_vector(precision, h)
        return _Parts(m, precision, factor, 0.5 * n, 0.5 * (c - (h * m).sum(-1)))

    def log_partition(self, eta: Floats) -> Floats:
        _, _, factor, a, b = self._parts(eta)
        result: Floats = special.gammaln(a) - a * np.log(b) - 0.5 * log_det(factor)
        return result

    def mean(self, eta: Floats) -> Floats:
        """E[1/σ²] = a/b =: t, E[β/σ²] = t m, E[ββᵀ/σ²] = P⁻¹ + t mmᵀ, E[log σ²] = log b − ψ(a)."""
        m, _, factor, a, b = self._parts(eta)
        t = a / b
        second = inverse(factor) + t[..., None, None] * m[..., :, None] * m[..., None, :]
        return self._join(t[..., None] * m, second, t, np.log(b) - special.psi(a))

    def _join(self, first: Floats, second: Floats, t: Floats, log_variance: Floats) -> Floats:
        """Mean parameters from E[β/σ²], E[ββᵀ/σ²], E[1/σ²] and E[log σ²]."""
        tail = np.stack([-0.5 * t, -0.5 * log_variance], axis=-1)
        return np.concatenate([first, second_moments(second), tail], axis=-1)

    def _unjoin(self, mu: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        second = statistics_matrix(mu[..., self.d : -2], self.d)
        return mu[..., : self.d], second, -2.0 * mu[..., -2], -2.0 * mu[..., -1]

    def natural(self, mu: Floats) -> Floats:
        first, second, t, log_variance = self._unjoin(mu)
        if not (t > 0.0).all():
            raise DomainError(
                "mu of NormalInverseGamma: E[1/σ²] is not above 0. Fix: mean parameters of a "
                "distribution"
            )
        m = first / t[..., None]
        covariance = second - t[..., None, None] * m[..., :, None] * m[..., None, :]
        precision = inverse(cholesky(covariance, "mu of NormalInverseGamma: the covariance"))
        a = inverse_log_minus_digamma(log_variance + np.log(t), "mu of NormalInverseGamma")
        return self._eta(m, precision, a, a / t)

    def _eta(self, m: Floats, precision: Floats, a: Floats, b: Floats) -> Floats:
        h = matvec(precision, m)
        tail = np.stack(np.broadcast_arrays(2.0 * b + (h * m).sum(-1), 2.0 * a), axis=-1)
        batch = np.broadcast_shapes(h.shape[:-1], tail.shape[:-1])
        parts = (h, pack(precision), tail)
        return np.concatenate([np.broadcast_to(x, batch + x.shape[-1:]) for x in parts], axis=-1)

    def fisher_dot(self, eta: Floats, v: Floats) -> Floats:
        """The differential of `mean` along v = (u, U, dc, dn)."""
        m, _, factor, a, b = self._parts(eta)
        u, change, dc, dn = self._split(v)
        covariance, t, da = inverse(factor), a / b, 0.5 * dn
        dm = matvec(covariance, u - matvec(change, m))
        db = 0.5 * (dc - 2.0 * (m * u).sum(-1) + quadratic(change, m))
        dt = (da - t * db) / b
        first = t[..., None] * dm + dt[..., None] * m
        second = t[..., None, None] * outer_sum(dm, m) - covariance @ change @ covariance
        second = second + dt[..., None, None] * m[..., :, None] * m[..., None, :]
        return self._join(first, second, dt, db / b - trigamma(a) * da)

    def fisher_solve(self, eta: Floats, v: Floats) -> Floats:
        """The differential of `natural`: the steps of `fisher_dot` undone in reverse."""
        m, precision, _, a, b = self._parts(eta)
        first, second, dt, dl = self._unjoin(v)
        t = a / b
        # dl = db/b − ψ₁(a) da and db = (da − b dt)/t; ψ₁(a) − 1/a = 1/(2a²) + R″(a).
        da = -(dl + dt / t) / (0.5 / (a * a) + binet2(a))
        db = (da - b * dt) / t
        dm = (first - dt[..., None] * m) / t[..., None]
        moved = second - t[..., None, None] * outer_sum(dm, m)
        moved = moved - dt[..., None, None] * m[..., :, None] * m[..., None, :]
        change = -symmetric(precision @ moved @ precision)
        u = matvec(precision, dm) + matvec(change, m)
        dc = 2.0 * db + 2.0 * (m * u).sum(-1) - quadratic(change, m)
        return np.concatenate([u, pack(change), np.stack([dc, 2.0 * da], axis=-1)], axis=-1)

    def _kl(self, p: Floats, q: Floats) -> Floats:
        """KL of the variances + ½ E_p[1/σ²] (m_q−m_p)ᵀP_q(m_q−m_p) + ½ the spread of P."""
        before, after = self._parts(p), self._parts(q)
        dh, change, dc, _ = self._split(q - p)
        root = solve_vector(after.factor, dh - matvec(change, before.m))
        dm = solve_vector(np.swapaxes(after.factor, -1, -2), root)
        # d(mᵀh) = m_pᵀ dh + dmᵀ h_q, without subtracting the two products.
        db = 0.5 * (dc - (before.m * dh).sum(-1) - (dm * q[..., : self.d]).sum(-1))
        variance = gamma_kl(before.a, before.b, after.a, after.b, db)
        spread = gaussian_spread(before.factor, after.factor, change)
        result: Floats = variance + 0.5 * (spread + before.a / before.b * (root * root).sum(-1))
        return result

    def _entropy(self, eta: Floats) -> Floats:
        """Entropy of σ² plus the mean entropy of β given σ²."""
        _, _, factor, a, b = self._parts(eta)
        log_variance = np.log(b) - special.psi(a)
        variance = gamma_entropy_part(a) - np.log(b) + 2.0 * log_variance
        coefficients = self.d * (HALF_LOG_2PI + 0.5 + 0.5 * log_variance) - 0.5 * log_det(factor)
        result: Floats = variance + coefficients
        return result

    def _log_prob(self, eta: Floats, theta: Floats) -> Floats:
        m, _, factor, a, b = self._parts(eta)
        variance = theta[..., -1]
        root = matvec(np.swapaxes(factor, -1, -2), theta[..., :-1] - m)
        scaled = (b + 0.5 * (root * root).sum(-1)) / variance
        norm = 0.5 * log_det(factor) - self.d * HALF_LOG_2PI + a * np.log(b) - special.gammaln(a)
        result: Floats = norm - (a + 1.0 + 0.5 * self.d) * np.log(variance) - scaled
        return result

    def statistics(self, theta: Floats) -> Floats:
        variance = theta[..., -1]
        scaled = theta[..., :-1] / variance[..., None]
        second = scaled[..., :, None] * theta[..., None, :-1]
        return self._join(scaled, second, 1.0 / variance, np.log(variance))

    def in_support(self, theta: Floats) -> NDArray[np.bool_]:
        result: NDArray[np.bool_] = np.isfinite(theta).all(-1) & (theta[..., -1] > 0.0)
        return result

    def margin(self, eta: Floats) -> Floats:
        """min(λ_min(P), a, b); b counts only where P has an inverse."""
        h, precision, c, n = self._split(eta)
        least = smallest_eigenvalue(precision)
        regular = least > 0.0
        safe = np.where(regular[..., None, None], precision, np.eye(self.d))
        b = 0.5 * (c - (h * solve_vector(safe, h)).sum(-1))
        result: Floats = np.minimum(np.minimum(least, 0.5 * n), np.where(regular, b, least))
        return result

    def violation(self, eta: Floats) -> str:
        h, precision, c, n = self._split(eta)
        least = float(smallest_eigenvalue(precision))
        if not least > 0.0:
            return (
                f"the precision P must be positive definite, its smallest eigenvalue is {least:.6g}"
            )
        if not n > 0.0:
            return f"n = 2a = {float(n):.6g} must be above 0"
        b = 0.5 * float(c - h @ solve_vector(precision, h))
        return f"the scale b = (c − hᵀP⁻¹h)/2 = {b:.6g} must be above 0"

    def sample(self, eta: Floats, rng: Rng, size: tuple[int, ...] = ()) -> Floats:
        m, _, factor, a, b = self._parts(eta)
        draws = np.maximum(rng.standard_gamma(a, size + a.shape), np.finfo(np.float64).tiny)
        variance = b / draws
        z = rng.standard_normal(size + m.shape)
        noise = solve_vector(np.swapaxes(factor, -1, -2), z)
        return np.concatenate([m + np.sqrt(variance)[..., None] * noise, variance[..., None]], -1)

    def marginals(self, eta: Floats) -> tuple[Marginal, ...]:
        m, _, factor, a, b = self._parts(eta)
        diagonal = np.diagonal(inverse(factor), axis1=-2, axis2=-1)
        scale = np.sqrt(diagonal * (b / a)[..., None])
        coefficients = tuple(
            StudentTMarginal(self.theta_names[i], 2.0 * a, m[..., i], scale[..., i])
            for i in range(self.d)
        )
        return (*coefficients, InverseGammaMarginal("sigma2", a, b))

    def covariance(self, eta: Floats) -> Floats:
        """Cov(coefficients) = E[σ²] V; they are uncorrelated with σ²."""
        _, _, factor, _, _ = self._parts(eta)
        variance = self.marginals(eta)[-1]
        found = np.zeros((*eta.shape[:-1], self.d + 1, self.d + 1))
        found[..., :-1, :-1] = inverse(factor) * np.asarray(variance.mean())[..., None, None]
        found[..., -1, -1] = np.square(variance.sd())
        return found

    def to_params(self, eta: Floats) -> Params:
        m, precision, _, a, b = self._parts(eta)
        return {"m": m, "precision": precision, "a": a, "b": b}

    def from_params(self, **params: ArrayLike) -> Floats:
        """`m`, `a`, `b` and either `precision` or its inverse `v`."""
        what = "NormalInverseGamma(m, v, a, b)"
        precision = precision_matrix(params, "v", self.d, what)
        m = np.asarray(params["m"], dtype=np.float64)
        if self.d == 1 and m.shape[-1:] != (1,):
            m = m[..., None]
        a, b = (np.asarray(params[k], dtype=np.float64) for k in "ab")
        return self.check(self._eta(m, precision, a, b), what, stated=True)

    def __repr__(self) -> str:
        return f"NormalInverseGammaFamily(dim={self.d})"
