"""Numerics of the Wishart: sums over half-degrees x_j = (ν − j)/2, j = 0 … d−1."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DomainError
from unweave.families.numerics.special import (
    binet1,
    binet2,
    binet_bregman,
    lgamma_bregman,
    log_excess,
    solve_positive,
)
from unweave.lazy import special

__all__ = ["half_degrees", "inverse_degrees", "log_multigamma", "trigamma_excess", "wishart_kl"]

Floats = NDArray[np.float64]


def half_degrees(df: Floats, d: int) -> Floats:
    """x_j = (ν − j)/2, shape [..., d]."""
    result: Floats = 0.5 * (np.asarray(df)[..., None] - np.arange(d))
    return result


def log_multigamma(df: Floats, d: int) -> Floats:
    """log Γ_d(ν/2) = ¼ d(d−1) log π + Σ_j log Γ(x_j)."""
    gammas = special.gammaln(half_degrees(df, d)).sum(-1)
    result: Floats = gammas + 0.25 * d * (d - 1) * np.log(np.pi)
    return result


def trigamma_excess(df: Floats, d: int) -> Floats:
    """½ Σ_j ψ₁(x_j) − d/ν = Σ_j [ j/(ν(ν−j)) + 1/(4x_j²) + ½R″(x_j) ] > 0."""
    x, j = half_degrees(df, d), np.arange(d)
    nu = np.asarray(df)[..., None]
    result: Floats = (j / (nu * (nu - j)) + 0.25 / (x * x) + 0.5 * binet2(x)).sum(-1)
    return result


def inverse_degrees(c: Floats, d: int, what: str) -> Floats:
    """ν with d log(ν/2) − Σ_j ψ(x_j) = c > 0, by Newton in t where ν = d − 1 + 1/t."""
    if not (c > 0.0).all():
        raise DomainError(
            f"{what}: E[log det Σ] + log det E[Σ⁻¹] = {float(np.min(c)):.6g} must be above 0 "
            "(Jensen). Fix: mean parameters of a distribution"
        )
    j = np.arange(d)

    def value_and_slope(t: Floats) -> tuple[Floats, Floats]:
        df = d - 1.0 + 1.0 / t
        x = half_degrees(df, d)
        terms = 0.5 / x - binet1(x) - np.log1p(-j / df[..., None])
        return terms.sum(-1) - c, trigamma_excess(df, d) / (t * t)

    start = 2.0 * c / (d * (d + 1.0))
    return d - 1.0 + 1.0 / solve_positive(value_and_slope, start, what)


def wishart_kl(df: Floats, df2: Floats, relative: Floats, log_det_ratio: Floats) -> Floats:
    """KL between inverse-Wishart laws whose scales differ by the relative spectrum e_j.

    With y_j for the second law and δ = (ν_q − ν_p)/2, Stirling's split of
    Σ_j log-gamma Bregman terms + ½ν_p Σ e_j − ½ν_q log det ratio is
    Σ_j y_j L(x_j(1+e_j)/y_j) + ½j L(1+e_j) + ½ L(y_j/x_j) + R's Bregman divergence,
    L(r) = r − 1 − log r: all terms are at least 0. Far apart, where 1+e_j may have lost its digits,
    the plain sum with the determinants is the better one.
    """
    d = relative.shape[-1]
    x, y, e = np.broadcast_arrays(half_degrees(df, d), half_degrees(df2, d), relative)
    near = np.asarray(np.abs(e).max(-1) < 0.5)
    safe = np.where(near[..., None], e, 0.0)
    delta = y - x
    small = y * log_excess((x * safe - delta) / y, x * (1.0 + safe) / y)
    small = small + 0.5 * np.arange(d) * log_excess(safe, 1.0 + safe)
    small = small + 0.5 * log_excess(delta / x, y / x) + binet_bregman(x, y)
    large: Floats = lgamma_bregman(x, y).sum(-1) + 0.5 * df * e.sum(-1) - 0.5 * df2 * log_det_ratio
    return np.where(near, small.sum(-1), large)
