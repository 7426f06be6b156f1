"""Gradients of E_q[w0·log θ + w1/θ] in mu, q = Beta(a, b), as kernels.

The same estimators as `solvers.estimators`, on scalars. Each returns ∇_mu E_q[L_k].
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from unweave.experiments.replicas.beta_numerics import curvature, draw_beta, fisher_solve, mean
from unweave.experiments.replicas.jit import inline, jit
from unweave.models.beta_exponential import FARTHEST

__all__ = ["ESTIMATORS", "exact_from", "gradient"]


Floats = NDArray[np.float64]

# Names of `solvers.estimators`, numbered for the kernel.
ESTIMATORS = {
    "exact": 0,
    "quadrature": 1,
    "factor_cv": 2,
    "loo": 3,
    "implicit": 4,
    "reinforce": 5,
}

_T, _W = np.polynomial.legendre.leggauss(64)
_NODES, _WEIGHTS = 0.5 * (_T + 1.0), 0.5 * _W


@inline
def _log_sigmoids(x: float) -> tuple[float, float]:
    """log θ and log(1−θ) for x = logit θ, without overflow for any x."""
    small = math.log1p(math.exp(-abs(x)))
    return (-small, -x - small) if x > 0.0 else (x - small, -small)


@inline
def exact_from(
    a: float,
    b: float,
    w0: float,
    w1: float,
    det: float,
    ga: float,
    gb: float,
    gs: float,
    ia: float,
    total: float,
) -> tuple[float, float]:
    """`BetaExponential.exact_gradient`: (w0, 0) + w1·F⁻¹∇_eta (a+b−1)/(a−1), from the
    values of `curvature`."""
    m = a - 1.0
    scale = w1 / (m * m * det)
    first = gs * m - (gb - gs) * b - total
    second = (ga - gs) * m - gs * b - b * ia * total
    return w0 + scale * first, scale * second


@inline
def _exact(a: float, b: float, w0: float, w1: float) -> tuple[float, float]:
    det, ga, gb, gs, ia, _, total = curvature(a, b)
    return exact_from(a, b, w0, w1, det, ga, gb, gs, ia, total)


@jit
def _quadrature(a: float, b: float, w0: float, w1: float) -> tuple[float, float]:
    """Trapezoid in x = logit θ, where q is smooth and decays at both ends."""
    sd = min(1.0, math.sqrt(1.0 / a + 1.0 / b))
    mode = math.log(a / b)
    low = max(mode - 9.0 * sd - 40.0 / (a - 1.0), FARTHEST)
    high = mode + 9.0 * sd + 40.0 / b
    n = max(129, math.ceil((high - low) / 0.25) + 1)
    step = (high - low) / (n - 1)
    # L and s are relative to the mode: their means are small, so the covariance does not cancel.
    s1m, s2m = _log_sigmoids(mode)
    top = a * s1m + b * s2m
    loss_m = w0 * s1m + w1 * (1.0 + math.exp(-mode))
    total = m1 = m2 = ml = 0.0
    c1 = c2 = 0.0
    for j in range(n):
        x = low + j * step
        s1, s2 = _log_sigmoids(x)
        weight = math.exp(a * s1 + b * s2 - top)
        excess = w0 * s1 + w1 * (1.0 + math.exp(-x)) - loss_m
        total += weight
        m1 += weight * (s1 - s1m)
        m2 += weight * (s2 - s2m)
        ml += weight * excess
        c1 += weight * excess * (s1 - s1m)
        c2 += weight * excess * (s2 - s2m)
    m1, m2, ml = m1 / total, m2 / total, ml / total
    return fisher_solve(a, b, c1 / total - ml * m1, c2 / total - ml * m2)


@jit
def _covariance(
    a: float, b: float, w0: float, w1: float, e1: float, e2: float, theta: Floats, work: Floats
) -> tuple[float, float]:
    """F⁻¹ Cov_LOO(s, L + e·s): with e = 0 the leave-one-out baseline."""
    size = theta.shape[0]
    m1 = m2 = ml = 0.0
    for i in range(size):
        s1, s2 = math.log(theta[i]), math.log(1.0 - theta[i])
        loss = (w0 * s1 + w1 / theta[i]) + (e1 * s1 + e2 * s2)
        work[0, i], work[1, i], work[2, i] = s1, s2, loss
        m1 += s1
        m2 += s2
        ml += loss
    m1, m2, ml = m1 / size, m2 / size, ml / size
    c1 = c2 = 0.0
    for i in range(size):
        c1 += (work[2, i] - ml) * (work[0, i] - m1)
        c2 += (work[2, i] - ml) * (work[1, i] - m2)
    return fisher_solve(a, b, c1 / (size - 1), c2 / (size - 1))


@jit
def _implicit(a: float, b: float, w0: float, w1: float, theta: Floats) -> tuple[float, float]:
    """F⁻¹ E[L'(θ) ∂θ/∂eta]: with x = logit θ and h its log-density,

    ∂x/∂eta = −∫_{−∞}^x exp(h(y) − h(x)) (s(y) − mu) dy, or + the integral from x up.
    """
    mu1, mu2 = mean(a, b)
    mode = math.log(a / b)
    sd = min(1.0, math.sqrt(1.0 / a + 1.0 / b))
    g1 = g2 = 0.0
    for i in range(theta.shape[0]):
        x = math.log(theta[i]) - math.log1p(-theta[i])
        # Integrate from x away from the mode: the density decreases monotonically there.
        width = -(9.0 * sd + 40.0 / a) if x < mode else 9.0 * sd + 40.0 / b
        s1, s2 = _log_sigmoids(x)
        top = a * s1 + b * s2
        d1 = d2 = 0.0
        for j in range(_NODES.shape[0]):
            y = x + width * _NODES[j]
            s1, s2 = _log_sigmoids(y)
            weight = _WEIGHTS[j] * math.exp(a * s1 + b * s2 - top)
            d1 += weight * (s1 - mu1)
            d2 += weight * (s2 - mu2)
        slope = (1.0 - theta[i]) * (w0 - w1 / theta[i]) * width
        g1 += slope * d1
        g2 += slope * d2
    return fisher_solve(a, b, g1 / theta.shape[0], g2 / theta.shape[0])


@jit
def _reinforce(
    a: float, b: float, w0: float, w1: float, c: float, theta: Floats
) -> tuple[float, float]:
    """`eq:reinforce_grad`: F⁻¹ mean of (L − c)(s − mu)."""
    mu1, mu2 = mean(a, b)
    g1 = g2 = 0.0
    for i in range(theta.shape[0]):
        s1, s2 = math.log(theta[i]), math.log(1.0 - theta[i])
        loss = w0 * s1 + w1 / theta[i] - c
        g1 += loss * (s1 - mu1)
        g2 += loss * (s2 - mu2)
    return fisher_solve(a, b, g1 / theta.shape[0], g2 / theta.shape[0])


@jit
def gradient(
    estimator: int,
    a: float,
    b: float,
    w0: float,
    w1: float,
    e1: float,
    e2: float,
    c: float,
    key: np.uint64,
    theta: Floats,
    work: Floats,
) -> tuple[float, float]:
    """∇_mu E_q[L]; (e1, e2) is alpha·eta_k, theta [S] and work [3, S] are scratch."""
    if estimator == 0:
        return _exact(a, b, w0, w1)
    if estimator == 1:
        return _quadrature(a, b, w0, w1)
    draw_beta(a, b, key, theta)
    if estimator == 2:
        g1, g2 = _covariance(a, b, w0, w1, e1, e2, theta, work)
        return g1 - e1, g2 - e2
    if estimator == 3:
        return _covariance(a, b, w0, w1, 0.0, 0.0, theta, work)
    if estimator == 4:
        return _implicit(a, b, w0, w1, theta)
    return _reinforce(a, b, w0, w1, c, theta)
