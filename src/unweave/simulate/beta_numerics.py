"""Beta moments and draws as kernels: the scalar counterparts of `families` and `draws.Stream.beta`.

digamma and trigamma come without their leading terms log x and 1/x, which cancel in every Beta
moment (Abramowitz, Stegun 6.3, 6.4: series at x ≥ 10, upward recurrence below).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from unweave.draws import GOLDEN
from unweave.simulate.jit import jit
from unweave.simulate.kernels import mix, u01

__all__ = [
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


@jit
def trigamma_excess(x: float) -> float:
    """psi'(x) − 1/x ≈ 1/(2x²); every term of the recurrence is positive."""
    y, total = x, 0.0
    while y < 10.0:
        total += 1.0 / (y * y * (y + 1.0))
        y += 1.0
    v = 1.0 / y
    w = v * v
    series = 1 / 30 - w * (5 / 66 - w * (691 / 2730 - w * (7 / 6)))
    series = 1 / 6 - w * (1 / 30 - w * (1 / 42 - w * series))
    return total + w * (0.5 + series * v)


@jit
def digamma(x: float) -> float:
    return math.log(x) + digamma_excess(x)


@jit
def trigamma(x: float) -> float:
    return 1.0 / x + trigamma_excess(x)


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


@jit
def fisher_solve(a: float, b: float, v1: float, v2: float) -> tuple[float, float]:
    """F⁻¹v for F = diag(psi'(a), psi'(b)) − psi'(s)·11ᵀ, s = a + b.

    With psi'(x) = 1/x + g(x) the two terms 1/(ab) of the determinant cancel by hand.
    """
    s = a + b
    ga, gb, gs = trigamma_excess(a), trigamma_excess(b), trigamma_excess(s)
    det = ga * a / (b * s) + gb * b / (a * s) + ga * gb - gs * (s / (a * b) + ga + gb)
    off = 1.0 / s + gs
    return (
        ((a / (b * s) + (gb - gs)) * v1 + off * v2) / det,
        (off * v1 + (b / (a * s) + (ga - gs)) * v2) / det,
    )


@jit
def fisher_quad(a: float, b: float, v1: float, v2: float) -> float:
    """vᵀF v, arranged as `fisher_solve`."""
    s = a + b
    cross = b * v1 - a * v2
    main = cross * cross / (a * b * s)
    sides = trigamma_excess(a) * v1 * v1 + trigamma_excess(b) * v2 * v2
    return main + sides - trigamma_excess(s) * (v1 + v2) * (v1 + v2)


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
            radius = math.sqrt(-2.0 * math.log1p(-u01(own, counter)))
            angle = 2.0 * math.pi * u01(own, counter + _ONE)
            z1 = radius * math.cos(angle)
            z2 = radius * math.sin(angle)
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
        # As `BetaFamily.sample`: inside the interval, where s(θ) is finite.
        out[i] = min(max(value, _TINY), _BELOW_ONE)
