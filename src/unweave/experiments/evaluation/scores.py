"""Scores of a posterior's predictions: log density, and confidence per record."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError
from unweave.models import Model, Shard
from unweave.models.fitted.posterior import Posterior

__all__ = ["confidence", "log_density", "positive", "response"]

Floats = NDArray[np.float64]


def log_density(posterior: Posterior, rows: Floats) -> Floats:
    """log p(record | posterior), [N]; ConfigError for a model that has none."""
    try:
        return posterior.log_density(Shard("test", rows.copy()))
    except ConfigError as error:
        cause = str(error).partition(". Fix:")[0]
        raise ConfigError(f"{cause}. Fix: --held-out 0 without --membership") from None


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
