"""Symmetric matrices in flat vectors: the upper triangle, row by row.

The inner product of a packed precision with packed statistics must be the full one,
−½ θᵀPθ = Σ_{i≤j} P_ij · (−½ w_ij θ_i θ_j), so statistics carry the weight w = 2 off the diagonal
and the natural parameter stays the plain triangle of P.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import ConfigError, DomainError
from unweave.families.numerics.special import log_excess

__all__ = [
    "cholesky",
    "gaussian_spread",
    "inverse",
    "log_det",
    "matvec",
    "outer",
    "outer_sum",
    "pack",
    "packed_names",
    "packed_size",
    "precision_matrix",
    "quadratic",
    "relative_spectrum",
    "second_moments",
    "smallest_eigenvalue",
    "solve",
    "solve_vector",
    "square_matrix",
    "statistics_matrix",
    "symmetric",
    "triangle_weights",
    "unpack",
]

Floats = NDArray[np.float64]


@lru_cache(maxsize=64)
def _indices(d: int) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    rows, columns = np.triu_indices(d)
    place = np.zeros((d, d), dtype=np.intp)
    place[rows, columns] = place[columns, rows] = np.arange(rows.size)
    return rows, columns, place


@lru_cache(maxsize=64)
def triangle_weights(d: int) -> Floats:
    """1 on the diagonal, 2 off it, in packed order."""
    rows, columns, _ = _indices(d)
    weights = np.where(rows == columns, 1.0, 2.0)
    weights.flags.writeable = False
    return weights


def packed_size(d: int) -> int:
    return d * (d + 1) // 2


def packed_names(symbol: str, d: int) -> tuple[str, ...]:
    rows, columns, _ = _indices(d)
    return tuple(f"{symbol}[{i},{j}]" for i, j in zip(rows.tolist(), columns.tolist(), strict=True))


def pack(matrix: Floats) -> Floats:
    """Upper triangle of [..., d, d] as [..., d(d+1)/2]."""
    rows, columns, _ = _indices(matrix.shape[-1])
    result: Floats = matrix[..., rows, columns]
    return result


def unpack(flat: Floats, d: int) -> Floats:
    """The symmetric matrix whose upper triangle is `flat`."""
    result: Floats = flat[..., _indices(d)[2]]
    return result


def symmetric(matrix: Floats) -> Floats:
    result: Floats = 0.5 * (matrix + np.swapaxes(matrix, -1, -2))
    return result


_SHRINK = "remove a smaller factor, take a shorter step, or use a prior with more precision"


def cholesky(matrix: Floats, what: str, fix: str = _SHRINK) -> Floats:
    """Lower factor; a matrix that is not positive definite is a DomainError, not a LinAlgError."""
    try:
        return cast(Floats, np.linalg.cholesky(matrix))
    except np.linalg.LinAlgError:
        least = float(np.min(smallest_eigenvalue(matrix)))
        raise DomainError(
            f"{what} is not positive definite (smallest eigenvalue {least:.3g}). Fix: {fix}"
        ) from None


def log_det(factor: Floats) -> Floats:
    """log det of LLᵀ from its Cholesky factor L."""
    result: Floats = 2.0 * np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)
    return result


def solve(matrix: Floats, right: Floats) -> Floats:
    return cast(Floats, np.linalg.solve(matrix, right))


def solve_vector(matrix: Floats, vector: Floats) -> Floats:
    """matrix⁻¹ vector, batched (NumPy would read a 2-D right-hand side as a matrix)."""
    return solve(matrix, vector[..., None])[..., 0]


def smallest_eigenvalue(matrix: Floats) -> Floats:
    """λ_min, and NaN where the matrix is not finite (LAPACK would raise for the whole batch)."""
    finite = np.asarray(np.isfinite(matrix).all(axis=(-2, -1)))
    safe = matrix if finite.all() else np.where(finite[..., None, None], matrix, 0.0)
    return np.where(finite, np.linalg.eigvalsh(safe)[..., 0], np.nan)


def relative_spectrum(factor: Floats, change: Floats) -> Floats:
    """Eigenvalues of L⁻¹ (Q − P) L⁻ᵀ for P = LLᵀ: the relative changes from P to Q.

    They come from the difference, so that Q near P loses no digits.
    """
    half = solve(factor, change)
    whitened = symmetric(solve(factor, np.swapaxes(half, -1, -2)))
    return cast(Floats, np.linalg.eigvalsh(cast(Any, whitened)))


def gaussian_spread(before: Floats, after: Floats, change: Floats) -> Floats:
    """tr(P⁻¹Q) − d − log det(P⁻¹Q) ≥ 0 from the factors of P and Q, and Q − P.

    Small changes sum λ − log(1+λ) over the spectrum; large ones take the determinants, because
    1+λ near 0 would have lost its digits.
    """
    relative = relative_spectrum(before, change)
    near = np.asarray(np.abs(relative).max(-1) < 0.5)
    safe = np.where(near[..., None], relative, 0.0)
    small = log_excess(safe, 1.0 + safe).sum(-1)
    large: Floats = relative.sum(-1) - (log_det(after) - log_det(before))
    return np.where(near, small, large)


def inverse(factor: Floats) -> Floats:
    """(LLᵀ)⁻¹ = L⁻ᵀL⁻¹, symmetric to the last bit."""
    half = np.linalg.inv(factor)
    return symmetric(np.swapaxes(half, -1, -2) @ half)


def matvec(matrix: Floats, vector: Floats) -> Floats:
    result: Floats = np.matmul(matrix, vector[..., None])[..., 0]
    return result


def quadratic(matrix: Floats, vector: Floats) -> Floats:
    """vᵀMv."""
    result: Floats = (vector * matvec(matrix, vector)).sum(-1)
    return result


def outer(v: Floats) -> Floats:
    """vvᵀ."""
    result: Floats = v[..., :, None] * v[..., None, :]
    return result


def outer_sum(u: Floats, v: Floats) -> Floats:
    """uvᵀ + vuᵀ."""
    result: Floats = u[..., :, None] * v[..., None, :] + v[..., :, None] * u[..., None, :]
    return result


def second_moments(matrix: Floats) -> Floats:
    """Packed −½ w_ij M_ij: the statistics that pair with a packed precision."""
    result: Floats = -0.5 * triangle_weights(matrix.shape[-1]) * pack(matrix)
    return result


def statistics_matrix(flat: Floats, d: int) -> Floats:
    """The M with second_moments(M) = flat."""
    return unpack(-2.0 * flat / triangle_weights(d), d)


def precision_matrix(params: Mapping[str, ArrayLike], inverted: str, d: int, what: str) -> Floats:
    """The precision [..., d, d] from params["precision"] or from its inverse, params[inverted]."""
    given = [name for name in (inverted, "precision") if params.get(name) is not None]
    if len(given) != 1:
        raise ConfigError(f"{what}: got {given or 'neither'}. Fix: give {inverted} or precision")
    name = given[0]
    matrix = square_matrix(params[name], d, f"{what}: {name}")
    factor = cholesky(matrix, f"{what}: {name}", "eigenvalues above 0")
    return inverse(factor) if name == inverted else matrix


def square_matrix(value: ArrayLike, d: int, what: str) -> Floats:
    """A symmetric [..., d, d]; a number becomes that multiple of the identity."""
    matrix = np.asarray(value, dtype=np.float64)
    if not np.isfinite(matrix).all():
        raise DomainError(f"{what} holds NaN or infinity. Fix: give finite numbers")
    if matrix.ndim == 0:
        return matrix * np.eye(d)
    if d == 1 and matrix.shape[-2:] != (1, 1):
        return matrix[..., None, None]
    if matrix.shape[-2:] != (d, d):
        raise ConfigError(f"{what} has shape {matrix.shape}. Fix: a number or a {d}×{d} matrix")
    scale = np.abs(matrix).max(axis=(-2, -1), keepdims=True)
    if not (np.abs(matrix - np.swapaxes(matrix, -1, -2)) <= 1e-8 * scale).all():
        raise DomainError(f"{what}: M[i,j] and M[j,i] differ. Fix: a symmetric matrix")
    return symmetric(matrix)
