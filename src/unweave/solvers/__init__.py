"""Solvers: cavity + data → wanted factor."""

from __future__ import annotations

from unweave.models import Model
from unweave.solvers.base import (
    HasExactGradient,
    HasExpectedLoss,
    HasNodes,
    HasPath,
    Solution,
    Solver,
)
from unweave.solvers.estimators import ESTIMATORS
from unweave.solvers.exact import Exact
from unweave.solvers.natural_gradient import NaturalGradient
from unweave.solvers.optimum import optimum

__all__ = [
    "ESTIMATORS",
    "Exact",
    "HasExactGradient",
    "HasExpectedLoss",
    "HasNodes",
    "HasPath",
    "NaturalGradient",
    "Solution",
    "Solver",
    "default_solver",
    "optimum",
]


def default_solver(model: Model) -> Solver:
    """Exact factors for a conjugate model, controlled natural-gradient steps for any other."""
    return Exact() if model.conjugate else NaturalGradient()
