"""Dirichlet(alpha): eta = alpha, s(θ) = log θ, h(θ) = 1/∏θ_i, A = Σ log Γ(α_i) − log Γ(Σ α_i)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import DomainError
from unweave.families.base import Family, Floats, Params, Positive
from unweave.families.marginals import BetaMarginal, Marginal
from unweave.families.numerics.special import (
    binet_bregman,
    gamma_entropy_part,
    inverse_digamma,
    inverse_trigamma_excess,
    log_excess,
    solve_positive,
    trigamma,
    trigamma_drop,
)
from unweave.lazy import special
from unweave.rng import Rng

__all__ = ["DirichletFamily"]


def _others(x: Floats) -> Floats:
    """Σ_{j≠i} x_j, without subtracting x_i from the total."""
    rest = np.zeros(x.shape)
    rest[..., 1:] = x[..., :-1].cumsum(-1)
    rest[..., :-1] += x[..., :0:-1].cumsum(-1)[..., ::-1]
    return rest


class DirichletFamily(Positive, Family):
    """Probabilities of `classes` categories; a count of category i adds 1 to eta_i."""

    name = "Dirichlet"

    def __init__(self, classes: int) -> None:
        self.classes = self._at_least(2, "classes", classes)
        names = tuple(f"alpha[{i}]" for i in range(classes))
        thetas = tuple(f"theta[{i}]" for i in range(classes))
        self._set(names, thetas, (classes,), 0.0, -np.ones(classes))

    def log_partition(self, eta: Floats) -> Floats:
        result: Floats = special.gammaln(eta).sum(-1) - special.gammaln(eta.sum(-1))
        return result

    def mean(self, eta: Floats) -> Floats:
        result: Floats = special.psi(eta) - special.psi(eta.sum(-1))[..., None]
        return result

    def natural(self, mu: Floats) -> Floats:
        """Solve Σ_i ψ⁻¹(mu_i + ψ(S)) = S for the total S, a concave equation in one unknown.

        Newton's method from the right of the root converges monotonically; Stirling gives
        S ≈ ½(K−1)/(1 − Σ exp mu_i), which is to the right.
        """
        slack = -np.expm1(special.logsumexp(mu, axis=-1))
        if not (slack > 0.0).all():
            raise DomainError(
                f"mu of {self.name}: Σ exp(mu_i) = {float(np.max(1.0 - slack)):.6g} must be "
                "below 1 (Jensen). Fix: means of log-probabilities"
            )

        def value_and_slope(total: Floats) -> tuple[Floats, Floats]:
            alpha = inverse_digamma(mu + special.psi(total)[..., None])
            slope = trigamma(total) * (1.0 / trigamma(alpha)).sum(-1) - 1.0
            return alpha.sum(-1) - total, np.minimum(slope, -1e-12)

        start = 0.5 * (self.dim - 1) / slack + 0.5 * self.dim
        total = solve_positive(value_and_slope, start, f"mu of {self.name}")
        return inverse_digamma(mu + special.psi(total)[..., None])

    def fisher(self, eta: Floats) -> Floats:
        """diag ψ₁(α) − ψ₁(S) 11ᵀ."""
        shared = trigamma(eta.sum(-1))[..., None, None]
        drop = trigamma_drop(eta, _others(eta))[..., None]
        return np.where(np.eye(self.dim) == 1.0, drop, -shared)

    def fisher_dot(self, eta: Floats, v: Floats) -> Floats:
        shared = trigamma(eta.sum(-1))[..., None]
        result: Floats = trigamma_drop(eta, _others(eta)) * v - shared * _others(v)
        return result

    def fisher_solve(self, eta: Floats, v: Floats) -> Floats:
        """Sherman–Morrison. Its denominator 1/ψ₁(S) − Σ 1/ψ₁(α_i) cancels for large α; with
        1/ψ₁(x) = x − ½ + r(x) it is ½(K−1) + r(S) − Σ r(α_i), where S − Σ α_i = 0 cancels."""
        weight = 1.0 / trigamma(eta)
        scaled = weight * v
        r = inverse_trigamma_excess
        denominator = 0.5 * (self.dim - 1) + r(eta.sum(-1)) - r(eta).sum(-1)
        result: Floats = scaled + weight * (scaled.sum(-1) / denominator)[..., None]
        return result

    def _kl(self, p: Floats, q: Floats) -> Floats:
        """Stirling's main part is S_q·KL(π_q‖π_p) between the proportions; the rest is small."""
        x, y = np.broadcast_arrays(p, q)
        total_x, total_y = x.sum(-1, keepdims=True), y.sum(-1, keepdims=True)
        d = y - x
        total_d = d.sum(-1, keepdims=True)
        # π_q,i = y_i/S_q against π_p,i = x_i/S_p: w = π_p/π_q − 1, from differences alone.
        w = (x * total_d - d * total_x) / (total_x * y)
        main = (y * log_excess(w, (x / y) * (total_y / total_x))).sum(-1)
        before = np.concatenate([x, total_x], axis=-1)
        after = np.concatenate([y, total_y], axis=-1)
        step = np.concatenate([d, total_d], axis=-1)
        rest = 0.5 * log_excess(step / before, after / before) + binet_bregman(before, after)
        result: Floats = main + rest[..., :-1].sum(-1) - rest[..., -1]
        return result

    def _entropy(self, eta: Floats) -> Floats:
        """Σ g(α_i) − g(S) − (K−1) ψ(S), with g(x) = log Γ(x) − (x−1) ψ(x) + x."""
        total = eta.sum(-1)
        parts = gamma_entropy_part(eta).sum(-1) - gamma_entropy_part(total)
        result: Floats = parts - (self.dim - 1) * special.psi(total)
        return result

    def statistics(self, theta: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            result: Floats = np.log(theta)
        return result

    def in_support(self, theta: Floats) -> NDArray[np.bool_]:
        result: NDArray[np.bool_] = (theta >= 0.0).all(-1) & (np.abs(theta.sum(-1) - 1.0) < 1e-9)
        return result

    def sample(self, eta: Floats, rng: Rng, size: tuple[int, ...] = ()) -> Floats:
        shape = size + eta.shape
        if (eta >= 0.5).all():
            g = rng.standard_gamma(eta, shape)
            result: Floats = g / g.sum(-1, keepdims=True)
            return result
        # Gamma(a) = Gamma(a+1)·U^(1/a) underflows for small a: normalise logarithms instead.
        log_g = np.log(rng.standard_gamma(eta + 1.0, shape)) + np.log1p(-rng.random(shape)) / eta
        theta: Floats = special.softmax(log_g, axis=-1)
        return np.maximum(theta, np.finfo(np.float64).tiny)

    def marginals(self, eta: Floats) -> tuple[Marginal, ...]:
        rest = _others(eta)
        return tuple(
            BetaMarginal(name, eta[..., i], rest[..., i]) for i, name in enumerate(self.theta_names)
        )

    def covariance(self, eta: Floats) -> Floats:
        total = eta.sum(-1, keepdims=True)
        p = eta / total
        spread = p[..., None] * (np.eye(self.classes) - p[..., None, :])
        return np.asarray(spread / (total + 1.0)[..., None])

    def to_params(self, eta: Floats) -> Params:
        return {"alpha": eta}

    def from_params(self, **params: ArrayLike) -> Floats:
        return self.check(params["alpha"], "Dirichlet(alpha)", stated=True)

    def _support_point(self) -> Floats:
        return np.full(self.classes, 1.0 / self.classes)

    def __repr__(self) -> str:
        return f"DirichletFamily(classes={self.classes})"
