"""Beta moments and draws as kernels: the scalar counterparts of `families` and `rng.Stream.beta`.

The `_excess` functions omit the leading terms log x of digamma and 1/x of trigamma, which cancel in
every Beta moment (Abramowitz, Stegun 6.3, 6.4: series at x ≥ 10, upward recurrence below).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from unweave.experiments.replicas.jit import inline, jit
from unweave.experiments.replicas.kernels import mix, u01
from unweave.rng import GOLDEN

__all__ = [
    "curvature",
    "determinant",
    "digamma",
    "digamma_excess",
    "draw_beta",
    "fisher_quad",
    "fisher_solve",
    "lgamma",
    "log_beta",
    "mean",
    "trigamma",
    "trigamma_excess",
    "trigamma_series",
]


_G = np.uint64(GOLDEN)
_ZERO, _ONE, _TWO, _THREE = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3)
_TINY = float(np.finfo(np.float64).tiny)
_BELOW_ONE = 1.0 - float(np.finfo(np.float64).epsneg)
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


@jit
def digamma_excess(x: float) -> float:
    """psi(x) − log x ≈ −1/(2x)."""
    y, total = x, 0.0
    while y < 10.0:
        total += 1.0 / y
        y += 1.0
    w = 1.0 / (y * y)
    series = 1 / 132 - w * (691 / 32760 - w * (1 / 12))
    series = 1 / 12 - w * (1 / 120 - w * (1 / 252 - w * (1 / 240 - w * series)))
    tail = -0.5 / y - w * series
    return tail if y == x else tail + (math.log(y / x) - total)


@inline
def trigamma_series(v: float) -> float:
    """psi'(x) − 1/x at x = 1/v ≥ 10, arranged for short chains of dependent operations (Estrin)."""
    w = v * v
    w2 = w * w
    high = (1 / 42 - w * (1 / 30)) + w2 * ((5 / 66 - w * (691 / 2730)) + w2 * (7 / 6))
    return w * (0.5 + ((1 / 6 - w * (1 / 30)) + w2 * high) * v)


@inline
def trigamma_excess(x: float, inverse: float) -> float:
    """psi'(x) − 1/x ≈ 1/(2x²), for `inverse` = 1/x.

    The recurrence adds 1/(y²(y+1)) > 0 for each step up; one division computes their sum.
    """
    v, below = inverse, 0.0
    if x < 10.0:
        y, numerator, denominator = x, 0.0, 1.0
        while y < 10.0:
            term = y * y * (y + 1.0)
            numerator = numerator * term + denominator
            denominator *= term
            y += 1.0
        v, below = 1.0 / y, numerator / denominator
    return below + trigamma_series(v)


@jit
def digamma(x: float) -> float:
    return math.log(x) + digamma_excess(x)


@jit
def trigamma(x: float) -> float:
    return 1.0 / x + trigamma_excess(x, 1.0 / x)


@jit
def _binet(y: float) -> float:
    """log Γ(y) − (y − ½) log y + y − ½ log 2π for y ≥ 10."""
    v = 1.0 / y
    w = v * v
    series = 1 / 1188 - w * (691 / 360360 - w * (1 / 156))
    return v * (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680 - w * series))))


@jit
def lgamma(x: float) -> float:
    """log Γ(x) for x > 0, by Stirling's series at x ≥ 10."""
    y, product = x, 1.0
    while y < 10.0:
        product *= y
        y += 1.0
    return (y - 0.5) * math.log(y) - y + _HALF_LOG_2PI + _binet(y) - math.log(product)


@jit
def log_beta(a: float, b: float) -> float:
    """A(a, b) = log Γ(a) + log Γ(b) − log Γ(a+b)."""
    s = a + b
    if a < 10.0 or b < 10.0:
        return lgamma(a) + lgamma(b) - lgamma(s)
    # Stirling's leading terms combine into logarithms of ratios, which do not cancel.
    main = (a - 0.5) * math.log(a / s) + (b - 0.5) * math.log(b / s) - 0.5 * math.log(s)
    return main + _HALF_LOG_2PI + (_binet(a) + _binet(b) - _binet(s))


@jit
def mean(a: float, b: float) -> tuple[float, float]:
    """mu = (psi(a) − psi(a+b), psi(b) − psi(a+b))."""
    s = a + b
    excess = digamma_excess(s)
    return (
        math.log(a / s) + (digamma_excess(a) - excess),
        math.log(b / s) + (digamma_excess(b) - excess),
    )


@inline
def determinant(
    a: float, b: float, ia: float, ib: float, total: float, ga: float, gb: float, gs: float
) -> float:
    """det F; the formula omits the two terms 1/(ab), which cancel."""
    corner = ga * (a * ib * total) + gb * (b * ia * total)
    return corner + ga * gb - gs * ((a + b) * ia * ib + ga + gb)


@inline
def curvature(a: float, b: float) -> tuple[float, float, float, float, float, float, float]:
    """det F; g(a), g(b), g(s) with psi'(x) = 1/x + g(x), s = a + b; and 1/a, 1/b, 1/s."""
    s = a + b
    ia, ib, total = 1.0 / a, 1.0 / b, 1.0 / s
    ga, gb, gs = trigamma_excess(a, ia), trigamma_excess(b, ib), trigamma_excess(s, total)
    return determinant(a, b, ia, ib, total, ga, gb, gs), ga, gb, gs, ia, ib, total


@jit
def fisher_solve(a: float, b: float, v1: float, v2: float) -> tuple[float, float]:
    """F⁻¹v for F = diag(psi'(a), psi'(b)) − psi'(a+b)·11ᵀ."""
    det, ga, gb, gs, ia, ib, total = curvature(a, b)
    off = total + gs
    return (
        ((a * ib * total + (gb - gs)) * v1 + off * v2) / det,
        (off * v1 + (b * ia * total + (ga - gs)) * v2) / det,
    )


@jit
def fisher_quad(a: float, b: float, v1: float, v2: float) -> float:
    """vᵀF v, arranged as `fisher_solve`."""
    _, ga, gb, gs, ia, ib, total = curvature(a, b)
    cross = b * v1 - a * v2
    main = cross * cross * (ia * ib * total)
    return main + (ga * v1 * v1 + gb * v2 * v2) - gs * (v1 + v2) * (v1 + v2)


@inline
def _cos_sin_of_turn(u: float) -> tuple[float, float]:
    """cos 2πu and sin 2πu for u in [0, 1), by the polynomials of fdlibm on |x| ≤ π/4.

    Subtracting the quarter turns from u is exact, so the reduction has no rounding error.
    """
    quarter = math.floor(4.0 * u + 0.5)
    x = 2.0 * math.pi * (u - 0.25 * quarter)
    z = x * x
    s = -1.98412698298579493134e-4 + z * (
        2.75573137070700676789e-6
        + z * (-2.50507602534068634195e-8 + z * 1.58969099521155010221e-10)
    )
    s = x + x * z * (-1.66666666666666324348e-1 + z * (8.33333333332248946124e-3 + z * s))
    c = 2.48015872894767294178e-5 + z * (
        -2.75573143513906633035e-7
        + z * (2.08757232129817482790e-9 - z * 1.13596475577881948265e-11)
    )
    c = 4.16666666666666019037e-2 + z * (-1.38888888888741095749e-3 + z * c)
    c = 1.0 - (0.5 * z - z * z * c)
    q = int(quarter) & 3
    first, second = (s, c) if q & 1 else (c, s)
    return (-first if q == 1 or q == 2 else first), (-second if q >= 2 else second)


@jit
def _log_accept(z: float, x: float, d: float) -> float:
    return 0.5 * z * z + d * (1.0 - x * x * x + math.log(x * x * x))


@jit
def draw_beta(a: float, b: float, key: np.uint64, out: NDArray[np.float64]) -> None:
    """`Stream.beta(a, b, out.shape)` for the call key `key`."""
    d1 = (a if a >= 1.0 else a + 1.0) - 1.0 / 3.0
    d2 = (b if b >= 1.0 else b + 1.0) - 1.0 / 3.0
    c1 = 1.0 / math.sqrt(9.0 * d1)
    c2 = 1.0 / math.sqrt(9.0 * d2)
    for i in range(out.shape[0]):
        own = mix(key + np.uint64(i + 1) * _G)
        counter = _TWO
        while True:
            radius = math.sqrt(-2.0 * math.log(1.0 - u01(own, counter)))
            cosine, sine = _cos_sin_of_turn(u01(own, counter + _ONE))
            z1, z2 = radius * cosine, radius * sine
            u = u01(own, counter + _TWO)
            x1 = 1.0 + c1 * z1
            x2 = 1.0 + c2 * z2
            # ½z² + d(1 − x³ + log x³) ≥ −0.1412·c²z⁴ for x > ½, so no logarithm is needed here.
            if x1 > 0.5 and x2 > 0.5:
                q1, q2 = c1 * z1 * z1, c2 * z2 * z2
                if u > 0.1412 * (q1 * q1 + q2 * q2):
                    break
            if x1 > 0.0 and x2 > 0.0:
                log_ratio = _log_accept(z1, x1, d1) + _log_accept(z2, x2, d2)
                if math.log1p(-u) < log_ratio:
                    break
            counter = counter + _THREE
        g1 = d1 * (x1 * x1 * x1)
        g2 = d2 * (x2 * x2 * x2)
        value = g1 / (g1 + g2)
        if a < 1.0 or b < 1.0:
            odds = math.log(g2 / g1)
            if b < 1.0:
                odds += math.log1p(-u01(own, _ONE)) / b
            if a < 1.0:
                odds -= math.log1p(-u01(own, _ZERO)) / a
            value = 1.0 / (1.0 + math.exp(odds)) if odds < 700.0 else 0.0
        # As in `BetaFamily.sample`: keep θ inside (0, 1), where s(θ) is finite.
        out[i] = min(max(value, _TINY), _BELOW_ONE)
