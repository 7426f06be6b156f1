"""A normal distribution at one eta, with its factorisations computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unweave.families.numerics.packed import cholesky, log_det, matvec, symmetric
from unweave.lazy import linalg

__all__ = ["NormalMoments", "NormalPoint"]


Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NormalPoint:
    """Normal(P⁻¹h, P⁻¹); with `diagonal`, the independent normals with that mean and the variances
    1/P_jj. DomainError if P is not positive definite."""

    h: Floats
    precision: Floats
    diagonal: bool = False

    @cached_property
    def factor(self) -> Floats:
        """L with P = LLᵀ."""
        return cholesky(self.precision, "the precision")

    @cached_property
    def inverse(self) -> Floats:
        """P⁻¹ = L⁻ᵀL⁻¹. Not by LAPACK's dpotri, which starts threads for a matrix of any size:
        beside other busy processes they wait for each other, and a solve at D = 55 took 30 ms of
        CPU time instead of 4."""
        half, _ = linalg.lapack.dtrtri(self.factor, lower=1)
        return symmetric(half.T @ half)

    @cached_property
    def mean(self) -> Floats:
        return matvec(self.inverse, self.h)

    @cached_property
    def cov(self) -> Floats:
        return np.diag(1.0 / np.diag(self.precision)) if self.diagonal else self.inverse

    @property
    def log_det(self) -> float:
        """log det of the inverse of `cov`."""
        if self.diagonal:
            return float(np.log(np.diag(self.precision)).sum())
        return float(log_det(self.factor))

    def length(self, dh: Floats, dp: Floats) -> float:
        """The squared length of a step (dh, dP), dmᵀP dm + ½ tr(S dP S dP): the slope of the free
        energy along a natural gradient. For a full P it is twice the KL that the step moves q by.
        """
        dm = self._shift(dh, dp)
        return float(dm @ self.precision @ dm) + self._spread_length(dp)

    def moved(self, dh: Floats, dp: Floats) -> float:
        """The KL that a small step (dh, dP) moves q by. For independent normals the shift of the
        mean counts by the variances of q, 1/P_jj."""
        if not self.diagonal:
            return 0.5 * self.length(dh, dp)
        dm = self._shift(dh, dp)
        return 0.5 * (float(np.diag(self.precision) @ (dm * dm)) + self._spread_length(dp))

    def _shift(self, dh: Floats, dp: Floats) -> Floats:
        return matvec(self.inverse, dh - matvec(dp, self.mean))

    def _spread_length(self, dp: Floats) -> float:
        if self.diagonal:
            spread = np.diag(dp) / np.diag(self.precision)
            return 0.5 * float((spread * spread).sum())
        turned = self.inverse @ dp
        return 0.5 * float(np.einsum("ij,ji->", turned, turned))

    def spread(self, x: Floats) -> Floats:
        """xᵀ cov x for each row of x."""
        if self.diagonal:
            return np.square(x) @ (1.0 / np.diag(self.precision))
        result: Floats = np.einsum("ij,ij->i", x @ self.cov, x)
        return result


@dataclass(frozen=True, eq=False)
class NormalMoments:
    """Normal(mean, cov), whose covariance may be singular."""

    mean: Floats
    cov: Floats

    def spread(self, x: Floats) -> Floats:
        """xᵀ cov x for each row of x."""
        result: Floats = np.einsum("ij,ij->i", x @ self.cov, x)
        return result
