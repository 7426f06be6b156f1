"""Digamma and trigamma without their leading term, for differences that do not cancel.

psi(x) ≈ log x and psi'(x) ≈ 1/x. Beta moments are differences of such values, and for large
parameters the leading terms cancel: at a = b = 1e8 the determinant of the Fisher matrix keeps half
of its digits when it is computed from psi'. What remains after the leading term is computed here on
its own, by the asymptotic series at x ≥ 10 and upward recurrence below (Abramowitz, Stegun 6.3 f.).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["beta_fisher_solve", "beta_mean", "digamma_excess", "trigamma_excess"]

Floats = NDArray[np.float64]

_START = 10.0  # from here on the series below are exact to rounding


def digamma_excess(x: ArrayLike) -> Floats:
    """psi(x) − log x for x > 0; it is about −1/(2x)."""
    x = np.asarray(x, dtype=np.float64)
    y = x.copy()
    recurrence = np.zeros_like(y)
    while np.any(low := y < _START):
        recurrence = np.where(low, recurrence + 1.0 / y, recurrence)
        y = np.where(low, y + 1.0, y)
    w = 1.0 / (y * y)
    series = 1 / 132 - w * (691 / 32760 - w * (1 / 12))
    series = 1 / 12 - w * (1 / 120 - w * (1 / 252 - w * (1 / 240 - w * series)))
    result: Floats = np.log(y / x) - recurrence - 0.5 / y - w * series
    return result


def trigamma_excess(x: ArrayLike) -> Floats:
    """psi'(x) − 1/x for x > 0; it is about 1/(2x²). Every term of the recurrence is positive."""
    y = np.array(x, dtype=np.float64)
    recurrence = np.zeros_like(y)
    while np.any(low := y < _START):
        recurrence = np.where(low, recurrence + 1.0 / (y * y * (y + 1.0)), recurrence)
        y = np.where(low, y + 1.0, y)
    w = 1.0 / (y * y)
    series = 1 / 30 - w * (5 / 66 - w * (691 / 2730 - w * (7 / 6)))
    series = 1 / 6 - w * (1 / 30 - w * (1 / 42 - w * series))
    result: Floats = recurrence + w * (0.5 + series / y)
    return result


def beta_mean(eta: Floats) -> Floats:
    """mu = (psi(a) − psi(a+b), psi(b) − psi(a+b)) for eta = (a, b)."""
    a, b = eta[..., 0], eta[..., 1]
    s = a + b
    excess = digamma_excess(s)
    return np.stack(
        [
            np.log(a / s) + (digamma_excess(a) - excess),
            np.log(b / s) + (digamma_excess(b) - excess),
        ],
        axis=-1,
    )


def beta_fisher_solve(eta: Floats, v: Floats) -> Floats:
    """F⁻¹v for F = diag(psi'(a), psi'(b)) − psi'(a+b)·11ᵀ.

    With psi'(x) = 1/x + g(x) the terms 1/(ab) of the determinant cancel by hand:
    det F = g(a)·a/(bs) + g(b)·b/(as) + g(a)g(b) − g(s)(s/(ab) + g(a) + g(b)), s = a + b.
    """
    a, b = eta[..., 0], eta[..., 1]
    s = a + b
    ga, gb, gs = trigamma_excess(a), trigamma_excess(b), trigamma_excess(s)
    det = ga * a / (b * s) + gb * b / (a * s) + ga * gb - gs * (s / (a * b) + ga + gb)
    off = 1.0 / s + gs
    v1, v2 = v[..., 0], v[..., 1]
    return np.stack(
        [
            ((a / (b * s) + (gb - gs)) * v1 + off * v2) / det,
            (off * v1 + (b / (a * s) + (ga - gs)) * v2) / det,
        ],
        axis=-1,
    )
