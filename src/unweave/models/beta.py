"""Probabilities with a Beta prior: a success adds 1 to a, a failure adds 1 to b."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.arguments import whole_number
from unweave.errors import ConfigError
from unweave.families import Beta, Distribution
from unweave.models.base import ConjugateModel
from unweave.models.columns import Column, binary, count
from unweave.models.fitted.predictive_counts import (
    BetaBinomialPredictive,
    BetaNegativeBinomialPredictive,
)
from unweave.models.shards import RowProblem
from unweave.models.sums import count_sum, log_choose

__all__ = ["BetaBernoulli", "BetaBinomial", "BetaGeometric", "BetaNegativeBinomial"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _BetaModel(ConjugateModel):
    a: float = 2.0
    b: float = 2.0

    @property
    def prior(self) -> Distribution:
        return Beta(a=self.a, b=self.b)

    @abstractmethod
    def outcomes(self, rows: Floats) -> tuple[int, int]:
        """The numbers of successes and failures in the rows."""

    def sums(self, rows: Floats) -> list[int]:
        return [n << q for n, q in zip(self.outcomes(rows), self.grid.bits, strict=True)]


@dataclass(frozen=True)
class BetaBernoulli(_BetaModel):
    """x ∈ {0, 1}, x = 1 with probability theta ~ Beta(a, b)."""

    name: ClassVar[str] = "beta-bernoulli"

    @property
    def schema(self) -> tuple[Column, ...]:
        return (binary("x"),)

    def outcomes(self, rows: Floats) -> tuple[int, int]:
        successes = count_sum(rows[:, 0])
        return successes, len(rows) - successes

    def replicate(self, theta: Floats, rows: Floats, rng: np.random.Generator) -> Floats:
        return rng.binomial(1, theta, rows.shape).astype(np.float64)

    def predictive(self, eta: ArrayLike) -> BetaBinomialPredictive:
        a, b = np.asarray(eta, dtype=np.float64).tolist()
        return BetaBinomialPredictive(a, b, trials=1)


@dataclass(frozen=True)
class BetaBinomial(_BetaModel):
    """x successes of n trials, theta ~ Beta(a, b). Records are (successes, trials); with the
    setting `trials`, every record has that many, and records are successes alone."""

    trials: int | None = None

    name: ClassVar[str] = "beta-binomial"

    def check_settings(self) -> None:
        if self.trials is not None and self.trials < 1:
            raise ConfigError(f"{self.name}: trials = {self.trials}. Fix: at least 1")

    @property
    def schema(self) -> tuple[Column, ...]:
        if self.trials is not None:
            return (count("successes", high=self.trials),)
        return count("successes"), count("trials", low=1)

    def row_problem(self, rows: Floats) -> RowProblem | None:
        if self.trials is None:
            bad = rows[:, 0] > rows[:, 1]
            if bad.any():
                return bad, "successes", "is above the row's trials", "at most as many as trials"
        return None

    def outcomes(self, rows: Floats) -> tuple[int, int]:
        successes = count_sum(rows[:, 0])
        trials = len(rows) * self.trials if self.trials is not None else count_sum(rows[:, 1])
        return successes, trials - successes

    def log_base(self, rows: Floats) -> Floats:
        return log_choose(self._trials(rows), rows[:, 0])

    def _trials(self, rows: Floats) -> Floats:
        return np.full(len(rows), float(self.trials)) if self.trials is not None else rows[:, 1]

    def outcomes_of(self, rows: Floats) -> Floats:
        return rows[:, :1]

    def replicate(self, theta: Floats, rows: Floats, rng: np.random.Generator) -> Floats:
        drawn = rng.binomial(self._trials(rows).astype(np.int64), theta)
        return np.column_stack([drawn, rows[:, 1:]])

    def predictive(self, eta: ArrayLike, trials: int | None = None) -> BetaBinomialPredictive:
        """The successes of `trials` new trials (default: the model's setting, or 1)."""
        a, b = np.asarray(eta, dtype=np.float64).tolist()
        default = 1 if self.trials is None else self.trials
        count = default if trials is None else whole_number(trials, f"{self.name}: trials", 1)
        return BetaBinomialPredictive(a, b, trials=count)


@dataclass(frozen=True)
class BetaGeometric(_BetaModel):
    """x trials up to and including the first success (x ≥ 1, as in NumPy and SciPy)."""

    name: ClassVar[str] = "beta-geometric"

    @property
    def schema(self) -> tuple[Column, ...]:
        return (count("x", low=1),)

    def outcomes(self, rows: Floats) -> tuple[int, int]:
        return len(rows), count_sum(rows[:, 0]) - len(rows)

    def replicate(self, theta: Floats, rows: Floats, rng: np.random.Generator) -> Floats:
        return rng.geometric(theta, rows.shape).astype(np.float64)

    def predictive(self, eta: ArrayLike) -> BetaNegativeBinomialPredictive:
        a, b = np.asarray(eta, dtype=np.float64).tolist()
        return BetaNegativeBinomialPredictive(a, b, successes=1, low=1)


@dataclass(frozen=True)
class BetaNegativeBinomial(_BetaModel):
    """x failures before success number `successes` (known; x ≥ 0, as in NumPy and SciPy)."""

    successes: int = 1

    name: ClassVar[str] = "beta-negative-binomial"

    def check_settings(self) -> None:
        if self.successes < 1:
            raise ConfigError(f"{self.name}: successes = {self.successes}. Fix: at least 1")

    @property
    def schema(self) -> tuple[Column, ...]:
        return (count("x"),)

    def outcomes(self, rows: Floats) -> tuple[int, int]:
        return self.successes * len(rows), count_sum(rows[:, 0])

    def log_base(self, rows: Floats) -> Floats:
        return log_choose(rows[:, 0] + self.successes - 1, rows[:, 0])

    def replicate(self, theta: Floats, rows: Floats, rng: np.random.Generator) -> Floats:
        return rng.negative_binomial(self.successes, theta, rows.shape).astype(np.float64)

    def predictive(self, eta: ArrayLike) -> BetaNegativeBinomialPredictive:
        a, b = np.asarray(eta, dtype=np.float64).tolist()
        return BetaNegativeBinomialPredictive(a, b, successes=self.successes)
