"""Expectations over one linear predictor, t ~ Normal(a, v): the only integrals that a GLM needs.

The trapezoid rule in z = (t − a)/s converges as exp(−2π·width/h) for a step h in t, if the function
is analytic in a strip of that half-width around the real line. A step of width/5 gives float64.

Where s is far below the width, as in the posterior of many records, Gauss and Hermite's rule needs
fewer nodes. Its error with n of them is n! s^(2n)/(2n)! times the 2n-th derivative, which is at
most about (2n)!/width^(2n): with n = 9 and s ≤ width/16 it is 9!/16^18 = 8e-17.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.errors import SolverError
from unweave.lazy import special

__all__ = ["Triple", "expectations", "nodes", "softplus", "tilted_moments"]


Floats = NDArray[np.float64]
Triple = tuple[Floats, Floats, Floats]
"""A function, its first and its second derivative."""

_FAR = 8.5  # standard deviations; beyond them the normal distribution holds 2e-17
_HERMITE = 9  # nodes where s ≤ width/_FINE
_FINE = 16.0
_FEWEST = 41  # nodes for a function that is smooth on the scale of s
_MOST = 1 << 16
_CELLS = 1 << 17  # nodes × records at a time: 1 MB, as much as a cache holds

# Σ w f''(t) replaces the integral where s is wide: softplus'' = σ' decays within ±37.
_LOGISTIC_NODES = np.arange(-62, 63) * 0.6
_LOGISTIC_WEIGHTS = (
    0.6 * np.exp(-np.abs(_LOGISTIC_NODES)) / np.square(1.0 + np.exp(-np.abs(_LOGISTIC_NODES)))
)


@lru_cache(maxsize=32)
def nodes(count: int) -> tuple[Floats, Floats]:
    """Nodes z and weights of the standard normal distribution."""
    if count == _HERMITE:
        z, weights = np.polynomial.hermite_e.hermegauss(count)
        return z, weights / weights.sum()
    z = np.linspace(-_FAR, _FAR, count)
    weights = np.exp(-0.5 * z * z)
    return z, weights / weights.sum()


def expectations(
    function: Callable[..., tuple[Floats, ...]],
    a: Floats,
    v: Floats,
    width: float | Floats,
    *arguments: Floats,
) -> tuple[Floats, ...]:
    """E of each value of function(t, *arguments) over t ~ Normal(a, v); all arrays are [N].

    `width` is the distance from the real line to the nearest singularity of the function, for all
    records or for each.
    """
    s = np.sqrt(np.maximum(v, 0.0))
    counts = np.maximum(_FEWEST, 2 * np.ceil(_FAR * 5.6 * s / width) + 1)
    if not counts.max(initial=_FEWEST) <= _MOST:
        raise SolverError(
            f"a linear predictor has the standard deviation {float(s.max()):.3g}. Fix: a smaller "
            "prior sd, or a scale near the size of the features"
        )
    # Records with a narrow t need few nodes.
    counts = _FEWEST * np.exp2(np.ceil(np.log2(counts / _FEWEST)))
    counts = np.where(_FINE * s <= width, _HERMITE, counts).astype(np.intp)
    kinds = np.unique(counts)
    if len(kinds) <= 1:
        return _rule(function, a, s, int(counts.max(initial=_HERMITE)), arguments)
    found: tuple[Floats, ...] = ()
    for count in kinds.tolist():
        chosen = np.flatnonzero(counts == count)
        parts = _rule(function, a[chosen], s[chosen], count, [x[chosen] for x in arguments])
        found = found or tuple(np.empty(a.shape) for _ in parts)
        for whole, part in zip(found, parts, strict=True):
            whole[chosen] = part
    return found


def _rule(
    function: Callable[..., tuple[Floats, ...]], a: Floats, s: Floats, count: int, arguments: Any
) -> tuple[Floats, ...]:
    z, weights = nodes(count)

    def part(some: slice) -> tuple[Floats, ...]:
        t = a[some, None] + s[some, None] * z
        return tuple(value @ weights for value in function(t, *(x[some, None] for x in arguments)))

    return _in_parts(part, len(a), count)


def _in_parts(
    part: Callable[[slice], tuple[Floats, ...]], records: int, count: int
) -> tuple[Floats, ...]:
    """`part` of some records at a time, so that arrays [records, nodes] stay small."""
    step = max(1, _CELLS // count)
    parts = [part(slice(at, at + step)) for at in range(0, max(records, 1), step)]
    return tuple(np.concatenate(values) for values in zip(*parts, strict=True))


def tilted_moments(
    pointwise: Callable[[Floats, Floats], Triple], a: Floats, v: Floats, width: float, y: Floats
) -> tuple[Floats, Floats]:
    """Mean and variance of t under Normal(a, v) × exp(−f(t; y)), for a convex f; all arrays [N].

    The nodes are centred at the mode c: the density is Normal(c, v) times
    r(t) = exp(−(f(t) − f(c)) + (t − c)(a − c)/v), which is at most 1.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # e^t far from the mode
        c = _mode(pointwise, a, v, y)
    f, _, second = pointwise(c, y)
    # r is about as wide as a normal factor with precision f''.
    narrow = np.minimum(width, 1.3 / np.sqrt(1.0 / v + second))

    def weighted(t: Floats, y: Floats, c: Floats, f: Floats, slope: Floats) -> Triple:
        d = t - c
        with np.errstate(over="ignore", under="ignore"):
            r = np.exp(np.minimum(f - pointwise(t, y)[0] + slope * d, 1.0))
        return r, r * d, r * d * d

    zero, one, two = expectations(weighted, c, v, narrow, y, c, f, (a - c) / v)
    shift = one / zero
    return c + shift, two / zero - shift * shift


def _mode(pointwise: Callable[[Floats, Floats], Triple], a: Floats, v: Floats, y: Floats) -> Floats:
    """The minimum of (t − a)²/2v + f(t): between a and a − v f'(a), because f' grows. Newton's
    steps, or a bisection."""
    far = a - v * pointwise(a, y)[1]
    low, high = np.minimum(a, far), np.maximum(a, far)
    t, last = a, high - low
    for _ in range(200):
        _, first, second = pointwise(t, y)
        slope = (t - a) / v + first
        low, high = np.where(slope > 0.0, low, t), np.where(slope > 0.0, t, high)
        step = t - slope / (1.0 / v + second)
        # A step is taken if it is at most half the last one: e^t makes whole ones creep.
        good = (step >= low) & (step <= high) & (np.abs(step - t) <= 0.5 * last)
        after = np.where(good, step, 0.5 * (low + high))
        last = np.abs(after - t)
        if (np.abs(after - t) <= 1e-6 * np.sqrt(v)).all():
            return after
        t = after
    return t


def softplus(a: Floats, v: Floats) -> Triple:
    """E log(1 + e^t), E σ(t), E σ'(t); the error is below 1e-12.

    Where s is wide the integrals are taken over σ' instead: with d = a − t,
    E softplus = ∫ σ'(t) (d Φ(d/s) + s φ(d/s)) dt.
    """
    wide = v > 16.0
    if not wide.any():
        return _narrow_softplus(a, v)
    found = tuple(np.empty(a.shape) for _ in range(3))
    for chosen, rule in ((~wide, _narrow_softplus), (wide, _wide_softplus)):
        if chosen.any():
            for whole, part in zip(found, rule(a[chosen], v[chosen]), strict=True):
                whole[chosen] = part
    return found[0], found[1], found[2]


def _narrow_softplus(a: Floats, v: Floats) -> Triple:
    f, first, second = expectations(_softplus_at, a, v, math.pi)
    return f, first, second


def _softplus_at(t: Floats) -> Triple:
    small = np.exp(-np.abs(t))
    first = np.where(t >= 0.0, 1.0, small) / (1.0 + small)
    return np.maximum(t, 0.0) + np.log1p(small), first, small / np.square(1.0 + small)


def _wide_softplus(a: Floats, v: Floats) -> Triple:
    def part(some: slice) -> Triple:
        s = np.sqrt(v[some])[:, None]
        d = a[some, None] - _LOGISTIC_NODES
        x = d / s
        density = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        below = special.ndtr(x)
        w = _LOGISTIC_WEIGHTS
        return (d * below + s * density) @ w, below @ w, (density / s) @ w

    f, first, second = _in_parts(part, len(a), len(_LOGISTIC_NODES))
    return f, first, second
