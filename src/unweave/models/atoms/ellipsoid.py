"""Ellipsoids, and polynomials in them.

An ellipsoid {c + R z} is public: it is a point of a lattice, written as whole numbers, so that
small changes of the data mostly leave it as it is. R = L·diag(s) with a unit lower triangular L:

    s_j = 2^(k_j/2)          half octaves
    L_ij = l_ij · s_i/(2 s_j)   half a standard deviation of u_i for each of z_j
    c_j = m_j · s_j/2          half standard deviations

In it a log-likelihood is close to a polynomial of low degree in z, whatever its shape elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from itertools import combinations_with_replacement
from math import comb

import numpy as np
from numpy.typing import NDArray

from unweave.families.atoms.parameters import sobol
from unweave.lazy import linalg, special

__all__ = [
    "RADIUS",
    "SPREAD",
    "Ellipsoid",
    "Fitted",
    "best_fit",
    "gaussian_sobol",
    "terms",
]

Floats = NDArray[np.float64]

RADIUS = 5.5  # of a decoded posterior, in standard deviations of the ellipsoid
SPREAD = 1.6  # of the atoms: a polynomial needs values in the tails, too
_TAG_BITS = 32
_ENOUGH = 1e-7  # an estimate that the grid's rounding reaches, too
_FLOOR = 1e-2  # the weight of an atom without posterior mass, relative to an average atom


def gaussian_sobol(n: int, dim: int, shift: NDArray[np.uint64]) -> Floats:
    """Quasi-random points of a standard normal, [n, dim]."""
    return np.asarray(special.ndtri(sobol(n, dim, shift)))


@dataclass(frozen=True)
class Ellipsoid:
    """A point of the lattice: scales k [d], shears l [d(d−1)/2], centre m [d]."""

    scales: tuple[int, ...]
    shears: tuple[int, ...]
    centre: tuple[int, ...]

    @classmethod
    def around(cls, mean: Floats, cov: Floats) -> Ellipsoid:
        """The lattice point nearest to a Gaussian. LinAlgError if cov is not positive definite."""
        root = np.linalg.cholesky(cov)
        own = np.diag(root)
        k = np.rint(2.0 * np.log2(own))
        s = np.exp2(0.5 * k)
        lower = np.tril_indices(len(own), -1)
        slopes = (root / own)[lower] * s[lower[1]] / (0.5 * s[lower[0]])
        return cls(
            tuple(int(x) for x in k),
            tuple(int(x) for x in np.rint(slopes)),
            tuple(int(x) for x in np.rint(mean / (0.5 * s))),
        )

    @property
    def dim(self) -> int:
        return len(self.scales)

    @cached_property
    def root(self) -> Floats:
        """R."""
        s = np.exp2(0.5 * np.array(self.scales, dtype=np.float64))
        result = np.diag(s)
        i, j = np.tril_indices(self.dim, -1)
        result[i, j] = 0.5 * np.array(self.shears, dtype=np.float64) * s[i]
        return result

    @cached_property
    def mean(self) -> Floats:
        return np.array(self.centre, dtype=np.float64) * 0.5 * np.diag(self.root)

    def outward(self, z: Floats) -> Floats:
        result: Floats = self.mean + z @ self.root.T
        return result

    def inward(self, u: Floats) -> Floats:
        shape = u.shape
        flat = np.linalg.solve(self.root, (u - self.mean).reshape(-1, self.dim).T)
        return np.asarray(flat.T.reshape(shape))

    @cached_property
    def log_volume(self) -> float:
        """log det R."""
        return float(np.log(np.diag(self.root)).sum())

    @cached_property
    def tag(self) -> int:
        """A number below 2^32 that names the ellipsoid; a float64 holds its sum over all agents."""
        text = repr((self.scales, self.shears, self.centre)).encode()
        return int.from_bytes(sha256(text).digest()[: _TAG_BITS // 8], "big")


@lru_cache(maxsize=32)
def _exponents(dim: int, degree: int) -> tuple[tuple[int, ...], ...]:
    """For every monomial but 1: the indices of its factors; by degree."""
    return tuple(
        chosen
        for total in range(1, degree + 1)
        for chosen in combinations_with_replacement(range(dim), total)
    )


def terms(dim: int, degree: int) -> int:
    return comb(dim + degree, degree)


def monomials(z: Floats, degree: int) -> Floats:
    """All products of at most `degree` coordinates of z/3 [n, d] → [n, C(d+degree, degree)]."""
    x = z / 3.0  # the powers of most atoms stay near 1
    done: dict[tuple[int, ...], Floats] = {(): np.ones(len(x))}
    for chosen in _exponents(x.shape[1], degree):
        done[chosen] = done[chosen[:-1]] * x[:, chosen[-1]]
    return np.stack(list(done.values()), axis=1)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A polynomial p(z) ≈ log-likelihood, and ½ Var of its residuals at atoms that it has not
    seen, under the posterior: an estimate of the KL to the exact posterior, not a bound."""

    degree: int
    coefficients: Floats
    estimate: float

    def __call__(self, z: Floats) -> Floats:
        parts = [
            monomials(z[start : start + 8192], self.degree) @ self.coefficients
            for start in range(0, len(z), 8192)
        ]
        return np.concatenate(parts) if parts else np.empty(0)


def best_fit(z: Floats, values: Floats, log_weights: Floats) -> Fitted:
    """Degree 4, unless degree 6 promises more; a good fit of degree 4 needs no second one."""
    quartic = fit(z, values, log_weights, 4)
    if quartic.estimate <= _ENOUGH:
        return quartic
    return min(quartic, fit(z, values, log_weights, 6), key=lambda one: one.estimate)


def fit(z: Floats, values: Floats, log_weights: Floats, degree: int) -> Fitted:
    """Least squares on all atoms; the estimate is from a fit that leaves out every third atom.

    `log_weights` are posterior/proposal at the atoms. They weight the fit: where the posterior has
    no mass, a misfit may be large. `_FLOOR` keeps the tails from bending anywhere.
    """
    design = monomials(z, degree)
    weights = np.exp(log_weights - log_weights.max())
    trust = weights / weights.sum() * len(weights) + _FLOOR
    held = np.arange(len(z)) % 3 == 2

    def solve(rows: NDArray[np.bool_]) -> Floats:
        scaled = np.sqrt(trust[rows])
        q, r = np.linalg.qr(design[rows] * scaled[:, None])
        return np.asarray(linalg.solve_triangular(r, q.T @ (values[rows] * scaled)))

    residual = values[held] - design[held] @ solve(~held)
    share = weights[held] / weights[held].sum()
    residual = residual - share @ residual
    estimate = 0.5 * float(share @ (residual * residual))
    return Fitted(degree, solve(np.ones(len(z), dtype=bool)), estimate)
