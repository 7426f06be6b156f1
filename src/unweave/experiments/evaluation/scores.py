"""Scores of a posterior's predictions: log density, calibration, and confidence per record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from unweave.errors import ConfigError
from unweave.models import Model
from unweave.models.posterior import Posterior
from unweave.rng import Stream

__all__ = ["HasLikelihood", "confidence", "ece", "log_density", "positive", "response"]

Floats = NDArray[np.float64]

_DRAWS = 400
_BINS = 15


@runtime_checkable
class HasLikelihood(Protocol):
    """A model with log p(record | θ): θ [S, …] in the grid's units, rows [N, C]; [S, N]."""

    def log_likelihood(self, theta: Floats, rows: Floats) -> Floats: ...


def log_density(posterior: Posterior, rows: Floats, seed: int = 0) -> Floats:
    """log p(record | posterior), [N]: the mean of the likelihood over draws of θ.

    The same seed gives every posterior the same random numbers, so that differences between
    posteriors are not differences between draws.
    """
    model = posterior.model
    if not isinstance(model, HasLikelihood):
        raise ConfigError(
            f"{model.name} has no likelihood per record. Fix: evaluate one that has, for example "
            "logistic-regression"
        )
    theta = model.family.sample(posterior.eta, Stream(seed), (_DRAWS,))
    found: Floats = logsumexp(model.log_likelihood(theta, rows), axis=0) - np.log(_DRAWS)
    return found


def response(model: Model) -> int | None:
    """The index of the column that a model predicts, if it takes the values 0 and 1 only."""
    for j, column in enumerate(model.schema):
        if column.name == "y" and column.two_valued:
            return j
    return None


def positive(posterior: Posterior, rows: Floats, seed: int = 0) -> Floats | None:
    """p(y = 1 | the other columns), [N]; None for a model whose response is not binary."""
    place = response(posterior.model)
    if place is None:
        return None
    ones = rows.copy()
    ones[:, place] = 1.0
    found: Floats = np.exp(log_density(posterior, ones, seed))
    return found


def confidence(posterior: Posterior, rows: Floats, seed: int = 0) -> Floats:
    """The score that an attacker compares, [N]: log p/(1 − p) of the true label for a binary
    response, as its distribution is close to normal; else the log density."""
    density = log_density(posterior, rows, seed)
    if response(posterior.model) is None:
        return density
    p = np.clip(np.exp(density), 1e-12, 1.0 - 1e-12)
    found: Floats = np.log(p) - np.log1p(-p)
    return found


def ece(p: Floats, y: Floats, bins: int = _BINS) -> float:
    """Expected calibration error: Σ_b (n_b/N) |mean of y − mean of p| over bins of p."""
    place = np.minimum((p * bins).astype(int), bins - 1)
    gaps: Sequence[float] = [
        abs(float((y - p)[place == b].sum())) for b in range(bins) if (place == b).any()
    ]
    return sum(gaps) / len(p)
