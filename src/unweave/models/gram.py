"""Models whose statistics are products of features: Σ z zᵀ of whole-number features.

Features are rounded first and multiplied afterwards, so the summed matrix is exact and exactly
positive semi-definite. So rounding cannot move a posterior out of its domain, for any number of
records and after any removal of records.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError
from unweave.models.base import ConjugateModel
from unweave.models.scaling import Scaled
from unweave.models.sums import FEATURE_LIMIT, gram_sum

__all__ = ["Exact", "GramModel", "bordered", "upper"]

Floats = NDArray[np.float64]
Exact = NDArray[Any]  # unbounded integers, or floats


@dataclass(frozen=True)
class GramModel(Scaled, ConjugateModel):
    """A record becomes a vector z of features in whole multiples of a step, 2^-p; the statistics
    are entries of Σ z zᵀ, in multiples of 4^-p. A constant feature may come first.

    The default, 16 bits, holds a network of 1e9 standardised records and moves a posterior by
    about 4e-5 of its standard deviation.
    """

    def default_bits(self) -> Sequence[int]:
        return (32,) * self.family.dim

    @property
    def feature_bits(self) -> int:
        """p, such that 4^-p is a multiple of every component's step."""
        return min(self.grid.bits) // 2

    @property
    def multiplier(self) -> float:
        """The multiplier of a feature before it is rounded to a whole number: 1/step."""
        return 2.0**self.feature_bits

    @property
    def constant(self) -> bool:
        """Whether the first feature is 1."""
        return True

    @property
    def resolution(self) -> tuple[float, ...]:
        return tuple((self.scales / self.multiplier).tolist())

    def z(self, rows: Floats) -> tuple[Floats, Floats]:
        """z·multiplier as whole numbers [N, m], and their rounding errors."""
        whole, added = self.whole(rows, self.multiplier, FEATURE_LIMIT)
        if self.constant:
            whole = np.insert(whole, 0, self.multiplier, axis=1)
            added = np.insert(added, 0, 0.0, axis=1)
        return whole, added

    @abstractmethod
    def arrange(self, gram: Exact, n: int) -> list[int]:
        """Σ z zᵀ (in multiples of 4^-p) of n records in the order of the family's components."""

    @abstractmethod
    def prior_matrix(self) -> Floats:
        """The matrix that must stay positive definite when factors are added, for the prior."""

    def sums(self, rows: Floats) -> list[int]:
        parts = self.arrange(gram_sum(self.z(rows)[0]), len(rows))
        shifts = [q - 2 * self.feature_bits for q in self.grid.bits]
        return [int(v) << s for v, s in zip(parts, shifts, strict=True)]

    def rounding(self, rows: Floats) -> Floats:
        """Σ (z zᵀ − u uᵀ) = Σ (z eᵀ + e zᵀ − e eᵀ) for unrounded u = z − e; no cancellation."""
        z, added = self.z(rows)
        cross = z.T @ added
        gram = cross + cross.T - added.T @ added
        return np.array(self.arrange(gram, 0), dtype=np.float64) * 4.0**-self.feature_bits

    @property
    def rounds_factors(self) -> bool:
        """Whether factors are rounded once more, after their records were summed."""
        return self.reduction != "sum" or self.alpha != 1

    def check_agents(self, agents: int) -> None:
        """A factor that is scaled by 1/(alpha·N_k) is rounded once more, by up to half a step per
        entry, which moves eigenvalues by at most D·2^-(q+1); K of them must not use up the prior:
        λ_min > K·D·2^-(q+1)."""
        if not self.rounds_factors:
            return
        matrix = self.prior_matrix()
        least = float(np.linalg.eigvalsh(matrix)[0])
        needed = agents * len(matrix) * 2.0 ** -(min(self.grid.bits) + 1)
        if not least > needed:
            raise ConfigError(
                f"{self.name}: the smallest eigenvalue of the prior's precision is {least:.3g}, "
                f"but rounding {agents} factors may take {needed:.3g} from it. Fix: a stronger "
                f"prior, or more bits than {min(self.grid.bits)}"
            )


def upper(matrix: Exact) -> list[int]:
    """The upper triangle, row by row."""
    return list(matrix[np.triu_indices(len(matrix))])


def bordered(eta: Floats, d: int) -> Floats:
    """[[P, h], [hᵀ, c]] of a NormalInverseGamma's eta = (h, triangle of P, c, n)."""
    matrix = np.empty((d + 1, d + 1))
    rows, columns = np.triu_indices(d)
    matrix[rows, columns] = matrix[columns, rows] = eta[d:-2]
    matrix[:d, d] = matrix[d, :d] = eta[:d]
    matrix[d, d] = eta[-2]
    return matrix
