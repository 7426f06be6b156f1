"""Solvers: they compute an agent's wanted factor from the cavity and the agent's data."""

from __future__ import annotations

import inspect
from typing import Any

from unweave.arguments import shown
from unweave.errors import ConfigError
from unweave.models import LossModel, Model
from unweave.solvers.base import (
    Context,
    HasExactGradient,
    HasExpectedLoss,
    HasNodes,
    HasPath,
    Solution,
    Solver,
)
from unweave.solvers.diagonal import Diagonal, HasDiagonalCurvature
from unweave.solvers.estimators import ESTIMATORS
from unweave.solvers.exact import Exact
from unweave.solvers.moments import ExpectationPropagation
from unweave.solvers.natural_gradient import NaturalGradient
from unweave.solvers.optimum import optimum
from unweave.solvers.stages import Stages
from unweave.solvers.variational import HasCurvature, Variational

__all__ = [
    "ESTIMATORS",
    "SOLVERS",
    "Context",
    "Diagonal",
    "Exact",
    "ExpectationPropagation",
    "HasCurvature",
    "HasDiagonalCurvature",
    "HasExactGradient",
    "HasExpectedLoss",
    "HasNodes",
    "HasPath",
    "NaturalGradient",
    "Solution",
    "Solver",
    "Stages",
    "Variational",
    "as_solver",
    "by_name",
    "default_solver",
    "in_rounds",
    "optimum",
]

# Solvers by name; any other name is an estimator of `NaturalGradient`.
SOLVERS: dict[str, type[Solver]] = {
    "exact": Exact,
    "natural-gradient": NaturalGradient,
    "vi": Variational,
    "ep": ExpectationPropagation,
    "stages": Stages,
    "diagonal": Diagonal,
}


def as_solver(solver: Any, model: Model) -> Solver:
    """`solver` as a Solver: a Solver, the name of a solver or of an estimator, or None for the
    model's default.

    Raises ConfigError if the solver does not work on the model.
    """
    if solver is None or isinstance(solver, str):
        solver = by_name(solver, model)
    if not isinstance(solver, Solver):
        example = "Exact()" if model.conjugate else 'NaturalGradient("factor_cv")'
        raise ConfigError(f"solver = {shown(solver)}. Fix: give a solver, such as {example}")
    solver.check(model)
    return solver


def by_name(name: str | None, model: Model, **settings: Any) -> Solver:
    """The solver or estimator of this name (None: the model's default) with these settings."""
    if name is None:
        name = model.solver_name if isinstance(model, LossModel) else "exact"
    if name not in SOLVERS and name not in ESTIMATORS:
        works = ", ".join(o for o in dict.fromkeys((*SOLVERS, *ESTIMATORS)) if _works(o, model))
        raise ConfigError(f"unknown solver {shown(name)}. Fix: {model.name} takes {works}")
    if name == "exact" and not model.conjugate:
        kind: type[Solver] = NaturalGradient  # "exact" is an estimator as well
    else:
        kind = SOLVERS.get(name, NaturalGradient)
    if kind is NaturalGradient and name != "natural-gradient":
        settings["estimator"] = name
    takes = inspect.signature(kind).parameters
    for wrong in settings.keys() - takes:
        known = ", ".join(takes) or "none"
        raise ConfigError(f"solver {name!r} has no setting {wrong!r}. Fix: it has {known}")
    return kind(**settings)


def _works(name: str, model: Model) -> bool:
    try:
        by_name(name, model).check(model)
    except ConfigError:
        return False
    return True


def default_solver(model: Model) -> Solver:
    """The model's own solver with its default settings."""
    return by_name(None, model)


def in_rounds(model: Model, solver: Solver, agents: int) -> Model:
    """The model as private rounds of `agents` agents learn it. ConfigError if the model or the
    solver has none."""
    found = model.in_rounds(agents)
    if not solver.private:
        raise ConfigError(
            f"{model.name} with {solver!r}: no private rounds lead to this solver's result. Fix: "
            'leave the solver out, or privacy = "plain"'
        )
    return found
