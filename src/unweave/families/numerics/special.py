"""Gamma-function numerics that stay accurate from shape 1e-3 to 1e8.

Stirling splits log Γ(x) = x log x − x − ½ log x + ½ log 2π + R(x), with Binet's remainder
R(x) = 1/(12x) − 1/(360x³) + …. The large parts cancel in every divergence and entropy; the
functions here omit them and sum small terms, because a difference of two values near 1e9 would lose
all digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DomainError
from unweave.lazy import special

__all__ = [
    "HALF_LOG_2PI",
    "LOG_2PI",
    "binet",
    "binet1",
    "binet2",
    "binet_bregman",
    "digamma_excess",
    "gamma_entropy_part",
    "gamma_kl",
    "inverse_digamma",
    "inverse_log_minus_digamma",
    "inverse_trigamma_excess",
    "lgamma_bregman",
    "log_excess",
    "solve_positive",
    "trigamma",
    "trigamma_drop",
]

Floats = NDArray[np.float64]

LOG_2PI = float(np.log(2.0 * np.pi))
HALF_LOG_2PI = 0.5 * LOG_2PI

_SERIES_FROM = 10.0
# R(x) = Σ_k c_k x^-(2k+1); beyond x = 10 the first omitted term is below 1e-16.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_STIRLING1 = tuple(-(2 * k + 1) * c for k, c in enumerate(_STIRLING))
_STIRLING2 = tuple(-(2 * k + 2) * c for k, c in enumerate(_STIRLING1))
_T, _W = np.polynomial.legendre.leggauss(8)
_NODES = 0.5 * (_T + 1.0)
_WEIGHTS = 0.5 * _W * (1.0 - _NODES)


def _odd_series(coefficients: tuple[float, ...], x: Floats, power: int) -> Floats:
    """x^-power · Σ_k c_k x^-2k by Horner's rule; elements below the series' range are replaced."""
    inverse = 1.0 / np.maximum(x, _SERIES_FROM)
    square = inverse * inverse
    total = np.full_like(square, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * square + c
    result: Floats = total * inverse**power
    return result


def _split(x: Floats, series: Floats, direct: Callable[[Floats], Floats]) -> Floats:
    small = x < _SERIES_FROM
    if small.any():
        return np.where(small, direct(np.where(small, x, 1.0)), series)
    return series


def trigamma(x: Floats) -> Floats:
    """ψ₁(x) as the Hurwitz zeta function ζ(2, x): one ufunc, where `polygamma` takes several."""
    result: Floats = special.zeta(2.0, x)
    return result


def binet(x: Floats) -> Floats:
    """R(x) = log Γ(x) − (x − ½) log x + x − ½ log 2π."""

    def direct(y: Floats) -> Floats:
        result: Floats = special.gammaln(y) - (y - 0.5) * np.log(y) + y - HALF_LOG_2PI
        return result

    return _split(x, _odd_series(_STIRLING, x, 1), direct)


def binet1(x: Floats) -> Floats:
    """R′(x) = ψ(x) − log x + 1/(2x)."""

    def direct(y: Floats) -> Floats:
        result: Floats = special.psi(y) - np.log(y) + 0.5 / y
        return result

    return _split(x, _odd_series(_STIRLING1, x, 2), direct)


def digamma_excess(x: float) -> float:
    """ψ(x) − log x = R′(x) − 1/(2x) of one float, by the same series as `binet1`."""
    if x < _SERIES_FROM:
        return float(special.psi(x)) - math.log(x)
    inverse = 1.0 / x
    square = inverse * inverse
    total = 0.0
    for c in reversed(_STIRLING1):
        total = total * square + c
    return total * square - 0.5 * inverse


def binet2(x: Floats) -> Floats:
    """R″(x) = ψ₁(x) − 1/x − 1/(2x²)."""

    def direct(y: Floats) -> Floats:
        return trigamma(y) - 1.0 / y - 0.5 / (y * y)

    return _split(x, _odd_series(_STIRLING2, x, 3), direct)


def log_excess(w: Floats, ratio: Floats) -> Floats:
    """r − 1 − log r ≥ 0, where w = r − 1 is known more accurately than r itself.

    Near r = 1, with z = w/(2+w):  w − log(1+w) = w z − 2 z³ (1/3 + z²/5 + z⁴/7 + …).
    """
    near = np.abs(w) < 0.1
    v = np.where(near, w, 0.0)
    z = v / (2.0 + v)
    q = z * z
    tail = 1 / 3 + q * (1 / 5 + q * (1 / 7 + q * (1 / 9 + q * (1 / 11 + q / 13))))
    return np.where(near, v * z - 2.0 * z * q * tail, w - np.log(np.where(near, 1.0, ratio)))


def binet_bregman(x: Floats, y: Floats) -> Floats:
    """R(y) − R(x) − (y−x) R′(x), at least 0 because R is convex.

    Nearby arguments use the integral form (y−x)² ∫₀¹ (1−t) R″(x + t(y−x)) dt: 8 Gauss–Legendre
    nodes reach machine precision because the pole at 0 is more than three steps away.
    """
    x, y = np.asarray(x), np.asarray(y)
    d = np.asarray(y - x)
    near = np.abs(d) < 0.3 * x
    result = np.zeros(np.shape(d))
    if near.any():
        xn, dn = x[near], d[near]
        path = xn[..., None] + dn[..., None] * _NODES
        result[near] = dn * dn * (binet2(path) @ _WEIGHTS)
    if not near.all():
        xf, yf = x[~near], y[~near]
        result[~near] = binet(yf) - binet(xf) - (yf - xf) * binet1(xf)
    return result


def lgamma_bregman(x: Floats, y: Floats) -> Floats:
    """log Γ(y) − log Γ(x) − (y−x) ψ(x), as a sum of three terms that are at least 0."""
    d = y - x
    main = y * log_excess(-d / y, x / y)
    return main + 0.5 * log_excess(d / x, y / x) + binet_bregman(x, y)


def gamma_kl(a: Floats, b: Floats, a2: Floats, b2: Floats, db: Floats | None = None) -> Floats:
    """KL between Gamma(a, b) and Gamma(a2, b2); the same for inverse-gamma.

    With w = a b2/(a2 b) − 1 it is a2·(w − log(1+w)) + ½(u − log(1+u)) + R's Bregman divergence,
    u = a2/a − 1: three terms that are at least 0. `db` = b2 − b may be given more accurately.
    """
    a, b, a2, b2 = np.broadcast_arrays(a, b, a2, b2)
    da = a2 - a
    change = b2 - b if db is None else db
    w = (a * change - b * da) / (b * a2)
    main = a2 * log_excess(w, (a / a2) * (b2 / b))
    return main + 0.5 * log_excess(da / a, a2 / a) + binet_bregman(a, a2)


def gamma_entropy_part(x: Floats) -> Floats:
    """log Γ(x) − (x−1) ψ(x) + x = ½ log x + ½ log 2π + ½ − 1/(2x) + R(x) + (1−x) R′(x)."""
    large = 0.5 * np.log(x) + (HALF_LOG_2PI + 0.5) - 0.5 / x + binet(x)
    result: Floats = large + (1.0 - x) * binet1(x)
    return result


def inverse_trigamma_excess(x: Floats) -> Floats:
    """1/ψ₁(x) − x + ½, which is ≈ 1/(12x) for large x."""
    curvature = binet2(x)
    e = 0.5 / x + x * curvature
    result: Floats = (0.5 * e - x * x * curvature) / (1.0 + e)
    return result


def trigamma_drop(x: Floats, d: Floats) -> Floats:
    """ψ₁(x) − ψ₁(x+d) for d ≥ 0, accurate also where d is a tiny part of x."""
    y = x + d
    main = d / (x * y) + 0.5 * d * (x + y) / (x * y) ** 2
    return np.where(x < _SERIES_FROM, trigamma(x) - trigamma(y), main + binet2(x) - binet2(y))


def inverse_digamma(y: Floats) -> Floats:
    """x with ψ(x) = y: Minka's starting point, then Newton's steps."""
    # For y < -2.22, ψ(x) ≈ −1/x − γ; above, ψ(x) ≈ log(x − ½).
    with np.errstate(over="ignore"):
        x = np.where(
            y >= -2.22,
            np.exp(np.maximum(y, -2.22)) + 0.5,
            -1.0 / (np.minimum(y, -2.22) + np.euler_gamma),
        )
    for _ in range(5):
        x = x - (special.psi(x) - y) / trigamma(x)
    return x


def solve_positive(
    value_and_slope: Callable[[Floats], tuple[Floats, Floats]], start: Floats, what: str
) -> Floats:
    """Root t > 0 of a monotone function, by Newton's method; no step divides t by more than 4."""
    t, last = start, np.full(np.shape(start), np.inf)
    for _ in range(100):
        value, slope = value_and_slope(t)
        new = np.maximum(t - value / slope, 0.25 * t)
        step = np.abs(new - t)
        # Newton's steps shrink down to the rounding of `value`; then their size varies at random.
        done = (step <= 4e-16 * t) | ((step >= 0.5 * last) & (step <= 1e-5 * t))
        t, last = new, step
        if done.all():
            return t
    raise DomainError(
        f"{what}: no natural parameters have these mean parameters, or they are too close to the "
        "boundary for float64. Fix: mean parameters of a distribution"
    )


def inverse_log_minus_digamma(c: Floats, what: str) -> Floats:
    """Shape a with log a − ψ(a) = c > 0, by Newton in t = 1/a, where it is nearly linear."""
    if not (c > 0.0).all():
        raise DomainError(
            f"{what}: log E[x] − E[log x] = {float(np.min(c)):.6g} must be above 0 (Jensen). "
            "Fix: mean parameters of a distribution"
        )

    def value_and_slope(t: Floats) -> tuple[Floats, Floats]:
        a = 1.0 / t
        return 0.5 * t - binet1(a) - c, 0.5 + a * a * binet2(a)

    start = 12.0 * c / (3.0 - c + np.sqrt((c - 3.0) ** 2 + 24.0 * c))
    return 1.0 / solve_positive(value_and_slope, start, what)
