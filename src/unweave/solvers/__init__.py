"""Solvers: they compute an agent's wanted factor from the cavity and the agent's data."""

from __future__ import annotations

from typing import Any

from unweave.arguments import shown
from unweave.errors import ConfigError
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
    "as_solver",
    "default_solver",
    "optimum",
]


def as_solver(solver: Any, model: Model) -> Solver:
    """`solver` as a Solver: a Solver, an estimator's name, or None for the model's default.

    Raises ConfigError if the solver does not work on the model.
    """
    if solver is None:
        solver = default_solver(model)
    elif isinstance(solver, str):
        exact = model.conjugate and solver == "exact"
        solver = Exact() if exact else NaturalGradient(solver)
    if not isinstance(solver, Solver):
        example = "Exact()" if model.conjugate else 'NaturalGradient("factor_cv")'
        raise ConfigError(f"solver = {shown(solver)}. Fix: give a solver, such as {example}")
    solver.check(model)
    return solver


def default_solver(model: Model) -> Solver:
    """`Exact` for a conjugate model, `NaturalGradient` with step control for any other model."""
    return Exact() if model.conjugate else NaturalGradient()
