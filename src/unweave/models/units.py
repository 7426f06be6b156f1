"""The linear map of theta, its parameters and its laws from scaled units to the user's units.

A model with real columns learns from z = (x − center)/scale. Its theta in the user's units is
matrix·theta_z + offset. The grid, digests and KL use z-units only. This module never computes a
natural parameter in the user's units, because far from 0 its entries would cancel in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.families import Family
from unweave.families.marginals import (
    GammaMarginal,
    InverseGammaMarginal,
    Marginal,
    NormalMarginal,
    StudentTMarginal,
)
from unweave.families.numerics.packed import matvec, pack
from unweave.lazy import linalg

__all__ = ["Affine"]


Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Affine:
    """theta = matrix·theta_z + offset. The first d components are a location (linear, shift)."""

    linear: Floats  # [d, d]
    shift: Floats  # [d]
    squares: Floats  # multipliers of the further components: variances and covariances
    rows: Sequence[int]  # the component of theta of each marginal

    @classmethod
    def location(cls, linear: ArrayLike, shift: ArrayLike) -> Affine:
        matrix, moved = np.atleast_2d(np.asarray(linear, dtype=np.float64)), np.atleast_1d(shift)
        return cls(matrix, np.asarray(moved, np.float64), np.empty(0), range(len(matrix)))

    @classmethod
    def with_variance(cls, linear: ArrayLike, shift: ArrayLike, noise: float) -> Affine:
        """theta = (coefficients, σ²), and σ is multiplied by `noise`."""
        place = cls.location(linear, shift)
        return replace(place, squares=np.array([noise**2]), rows=range(len(place.shift) + 1))

    @classmethod
    def with_covariance(cls, scale: Floats, center: Floats) -> Affine:
        """theta = (means, triangle of Σ) of columns that are divided by `scale`."""
        d = len(scale)
        diagonal = d + np.flatnonzero(pack(np.eye(d)))
        return cls(
            np.diag(scale), center, pack(np.outer(scale, scale)), [*range(d), *diagonal.tolist()]
        )

    @cached_property
    def matrix(self) -> Floats:
        joined: Floats = linalg.block_diag(self.linear, np.diag(self.squares))
        return joined[: len(self.offset), : len(self.offset)]

    @cached_property
    def offset(self) -> Floats:
        return np.concatenate([self.shift, np.zeros(len(self.squares))])

    def outward(self, theta: Floats, event: tuple[int, ...]) -> Floats:
        """theta in the user's units; a scalar theta has event shape ()."""
        if event == ():
            return np.asarray(theta * self.linear[0, 0] + self.shift[0])
        return np.asarray(theta @ self.matrix.T + self.offset)

    def inward(self, theta: Floats, event: tuple[int, ...]) -> Floats:
        """theta in scaled units."""
        if event == ():
            return np.asarray((theta - self.shift[0]) / self.linear[0, 0])
        back = np.linalg.solve(self.matrix, (theta - self.offset)[..., None])[..., 0]
        return np.asarray(back, dtype=np.float64)

    @property
    def log_volume(self) -> float:
        """log |det matrix|, which is subtracted from a log-density in z-units."""
        return float(np.linalg.slogdet(self.matrix)[1])

    def params(self, family: Family, params: dict[str, Floats]) -> dict[str, Floats]:
        """The family's usual parameters in the user's units."""
        found = dict(params)
        a = self.linear
        if family.name == "Gamma":
            return found | {"b": found["b"] / a[0, 0]}
        if family.name == "Normal":
            return {"mean": found["mean"] * a[0, 0] + self.shift[0], "sd": found["sd"] * a[0, 0]}
        where = "m" if "m" in found else "mean"
        found[where] = matvec(a, found[where]) + self.shift
        if "sd" in found:  # independent coefficients in z-units: of each, its own sd
            found["sd"] = np.sqrt(found["sd"] ** 2 @ np.square(a).T)
        for name in ("cov", "scale"):
            if name in found:
                found[name] = a @ found[name] @ a.T
        if "precision" in found:
            back = np.linalg.inv(a)
            found["precision"] = self.squares[0] * (back.T @ found["precision"] @ back)
            found["b"] = found["b"] * self.squares[0]
        return found

    def marginals(self, family: Family, eta: Floats) -> tuple[Marginal, ...]:
        """The law of each quantity in the user's units."""
        laws = family.marginals(eta)
        moved = []
        for law, j in zip(laws, self.rows, strict=True):
            row = self.matrix[j]
            if np.count_nonzero(row) > 1:
                moved.append(self._combined(family, eta, laws, j))
            else:
                moved.append(_moved(law, row[j], self.offset[j]))
        return tuple(moved)

    def _combined(self, family: Family, eta: Floats, laws: Sequence[Marginal], j: int) -> Marginal:
        """An intercept at x = 0 is a combination of all coefficients in z-units."""
        q, row, law = family.to_params(eta), self.linear[j], laws[j]
        assert isinstance(law, NormalMarginal | StudentTMarginal)
        if "cov" in q:
            mean, spread = q["mean"], q["cov"]
        elif "sd" in q:
            mean, spread = q["mean"], q["sd"][..., None] ** 2 * np.eye(len(row))
        else:
            ratio = (q["b"] / q["a"])[..., None, None]
            mean, spread = q["m"], ratio * np.linalg.inv(q["precision"])
        loc = mean @ row + self.shift[j]
        return replace(law, loc=loc, scale=np.sqrt(spread @ row @ row))


def _moved(law: Marginal, factor: float, shift: float) -> Marginal:
    if isinstance(law, NormalMarginal | StudentTMarginal):
        return replace(law, loc=law.loc * factor + shift, scale=law.scale * factor)
    if isinstance(law, InverseGammaMarginal):
        return replace(law, b=law.b * factor)
    assert isinstance(law, GammaMarginal)
    return replace(law, b=law.b / factor)
