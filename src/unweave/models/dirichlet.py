"""Class probabilities with a Dirichlet prior: an observation of class j adds 1 to eta_j."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.arguments import whole_number
from unweave.errors import ConfigError
from unweave.families import Dirichlet, Distribution
from unweave.lazy import special
from unweave.models.base import ConjugateModel
from unweave.models.columns import Column, check_levels, check_size, count, label, labels
from unweave.models.fitted.predictive_counts import (
    CategoricalPredictive,
    DirichletMultinomialPredictive,
)
from unweave.models.shards import RowProblem
from unweave.models.sums import count_sum

__all__ = ["DirichletCategorical", "DirichletMultinomial"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _DirichletModel(ConjugateModel):
    classes: int | Sequence[str]
    concentration: float | Sequence[float] = 1.0

    def check_settings(self) -> None:
        if self.size < 2:
            raise ConfigError(f"{self.name}: classes = {self.size}. Fix: at least 2")
        check_size(self.name, "classes", self.size, squares=False)
        if self._texts:
            check_levels(self.name, "classes", self._texts)
        if isinstance(self.concentration, tuple) and len(self.concentration) != self.size:
            raise ConfigError(
                f"{self.name}: concentration has {len(self.concentration)} numbers. Fix: give one, "
                f"or one for each of {self.size} classes"
            )

    @property
    def size(self) -> int:
        """The number of classes."""
        return self.classes if isinstance(self.classes, int) else len(self.classes)

    @property
    def _texts(self) -> tuple[str, ...]:
        """The names of the classes, if they are given."""
        return () if isinstance(self.classes, int) else tuple(self.classes)

    @property
    def prior(self) -> Distribution:
        return Dirichlet(alpha=np.broadcast_to(self.concentration, (self.size,)))

    @property
    def quantities(self) -> Sequence[str]:
        names = tuple(f"theta[{text}]" for text in self._texts)
        return names or self.family.theta_names

    @property
    def coordinates(self) -> dict[str, dict[str, Sequence[Any]]]:
        return {"theta": {"class": self._texts or range(self.size)}}


@dataclass(frozen=True)
class DirichletCategorical(_DirichletModel):
    """x ∈ {0, …, classes − 1}, or one of the texts `classes`, with probabilities
    theta ~ Dirichlet(concentration)."""

    name: ClassVar[str] = "dirichlet-categorical"

    @property
    def schema(self) -> tuple[Column, ...]:
        return (labels("x", self._texts) if self._texts else label("x", self.size),)

    def sums(self, rows: Floats) -> list[int]:
        counts = np.bincount(rows[:, 0].astype(np.int64), minlength=self.size)
        return [int(n) << q for n, q in zip(counts, self.grid.bits, strict=True)]

    def replicate(self, theta: Floats, rows: Floats, rng: np.random.Generator) -> Floats:
        return rng.choice(self.size, size=rows.shape, p=theta / theta.sum()).astype(np.float64)

    def predictive(self, eta: ArrayLike) -> CategoricalPredictive:
        return CategoricalPredictive(np.asarray(eta, dtype=np.float64), self._texts)


@dataclass(frozen=True)
class DirichletMultinomial(_DirichletModel):
    """Counts (x_0, …, x_{classes−1}) of one or more draws with probabilities theta; with texts as
    `classes`, the columns have their names."""

    name: ClassVar[str] = "dirichlet-multinomial"

    @property
    def schema(self) -> tuple[Column, ...]:
        return tuple(map(count, self._texts or [f"x{j}" for j in range(self.size)]))

    def row_problem(self, rows: Floats) -> RowProblem | None:
        empty = rows.sum(axis=1) == 0.0
        if empty.any():
            return (
                empty,
                self.columns[0],
                "and all others of its row are 0",
                "at least one draw in a record",
            )
        return None

    def sums(self, rows: Floats) -> list[int]:
        return [count_sum(rows[:, j]) << q for j, q in enumerate(self.grid.bits)]

    def log_base(self, rows: Floats) -> Floats:
        """log of n!/Π x_j!"""
        each = special.gammaln(rows + 1).sum(axis=1)
        return np.asarray(special.gammaln(rows.sum(axis=1) + 1) - each)

    def outcomes_of(self, rows: Floats) -> Floats:
        return rows

    def replicate(self, theta: Floats, rows: Floats, rng: np.random.Generator) -> Floats:
        draws = rows.sum(axis=1).astype(np.int64)
        return rng.multinomial(draws, theta / theta.sum()).astype(np.float64)

    def predictive(self, eta: ArrayLike, trials: int = 1) -> DirichletMultinomialPredictive:
        """The counts of `trials` new draws."""
        draws = whole_number(trials, f"{self.name}: trials", 1)
        return DirichletMultinomialPredictive(np.asarray(eta, dtype=np.float64), draws)
