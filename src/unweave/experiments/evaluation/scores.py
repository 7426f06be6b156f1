"""Scores of a posterior's predictions: log density, and confidence per record."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError
from unweave.models import Model
from unweave.models.fitted.posterior import Posterior

__all__ = ["HasDensity", "confidence", "log_density", "positive", "response"]

Floats = NDArray[np.float64]


@runtime_checkable
class HasDensity(Protocol):
    """A model with log p(record | q), θ integrated out: rows [N, C] → [N]."""

    def log_density(self, eta: Floats, rows: Floats) -> Floats: ...


def log_density(posterior: Posterior, rows: Floats) -> Floats:
    """log p(record | posterior), [N]."""
    model = posterior.model
    if not isinstance(model, HasDensity):
        raise ConfigError(
            f"{model.name} has no density per record. Fix: evaluate one that has, for example "
            "logistic-regression, or --held-out 0 without --membership"
        )
    return model.log_density(posterior.eta, rows)


def response(model: Model) -> int | None:
    """The index of the column that a model predicts, if it takes the values 0 and 1 only."""
    for j, column in enumerate(model.schema):
        if column.name == getattr(model, "target", None) and column.two_valued:
            return j
    return None


def positive(posterior: Posterior, rows: Floats) -> Floats | None:
    """p(y = 1 | the other columns), [N]; None for a model whose response is not binary."""
    place = response(posterior.model)
    if place is None:
        return None
    ones = rows.copy()
    ones[:, place] = 1.0
    found: Floats = np.exp(log_density(posterior, ones))
    return found


def confidence(posterior: Posterior, rows: Floats) -> Floats:
    """The score that an attacker compares, [N]: log p/(1 − p) of the true label for a binary
    response, as its distribution is close to normal; else the log density."""
    density = log_density(posterior, rows)
    if response(posterior.model) is None:
        return density
    p = np.clip(np.exp(density), 1e-12, 1.0 - 1e-12)
    found: Floats = np.log(p) - np.log1p(-p)
    return found
