"""Expectation propagation: each record's likelihood becomes a normal factor of its own predictor.

For record n with predictor t = xᵀtheta the factor (τ, ν) of t is chosen so that q and the tilted
distribution q without the factor × likelihood agree in mean and variance of t. All tilted moments
are integrals over one variable. The factors of the records are computed again at every solve, from
the cavity alone, so an agent keeps nothing between visits. The fixed point is closer to the exact
posterior than the variational one, but no free energy decreases: there is no estimate or bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from unweave.arguments import whole_number
from unweave.errors import ConfigError
from unweave.grid import Ints
from unweave.models import Data, LossModel, Model
from unweave.solvers.base import Context, Solution, Solver, located
from unweave.solvers.variational import OVERFLOW, HasCurvature, Variational

__all__ = ["ExpectationPropagation", "HasTilted"]


Floats = NDArray[np.float64]

_SETTLED = 1e-14  # ½ squared Fisher length of a round's change
_DAMPED = 6  # rounds of whole steps; a later round that does not settle takes half steps


@runtime_checkable
class HasTilted(HasCurvature, Protocol):
    """A model whose records have a log-concave likelihood of one predictor."""

    covariance: str

    def outcomes(self, rows: Floats) -> tuple[Floats, Floats, Floats | float]: ...
    def derivatives(self, a: Floats, v: Floats, y: Floats) -> tuple[Floats, Floats, Floats]: ...
    def tilted(self, a: Floats, v: Floats, y: Floats) -> tuple[Floats, Floats]: ...


@dataclass(frozen=True)
class ExpectationPropagation(Solver):
    """At most `steps` rounds, in each of which all records are matched at once."""

    steps: int = 30

    estimates: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if whole_number(self.steps, "steps") < 1:
            raise ConfigError(f"steps = {self.steps}. Fix: at least one round per visit")

    def check(self, model: Model) -> None:
        if not (isinstance(model, HasTilted) and model.convex):
            raise ConfigError(
                f"{model.name}: the solver 'ep' needs a log-concave likelihood of one predictor. "
                "Fix: leave the solver out"
            )
        if model.covariance != "full":
            raise ConfigError(
                f"{model.name}: the solver 'ep' matches a full covariance. Fix: covariance = "
                '"full", or the solver "vi"'
            )
        if getattr(model, "own_intercept", None) is not None:
            raise ConfigError(
                f"{model.name}: the solver 'ep' has no intercepts of agents. Fix: leave agent_sd "
                'out, or use the solver "vi"'
            )
        if model.reduction != "sum" or model.alpha != 1.0:
            raise ConfigError(
                f"{model.name}: the solver 'ep' matches whole records. Fix: alpha = 1 and "
                'reduction = "sum", or the solver "vi"'
            )

    def solve(
        self, model: Model, data: Data, cavity: Ints, current: Ints | None, context: Context
    ) -> Solution:
        assert isinstance(model, LossModel)
        if not data.n:
            return Solution(model.grid.zeros())
        start = None if current is None else model.grid.decode(current)
        with located(data, context, OVERFLOW):
            final, residual, rounds = self.update(model, data, model.grid.decode(cavity), start)
            factor = model.grid.encode(final)
        info = {"estimator": "ep", "residual": residual, "rounds": rounds}
        return Solution(factor, info)

    def update(
        self, model: LossModel, data: Data, cavity: Floats, factor: Floats | None
    ) -> tuple[Floats, float, int]:
        """The factor after the rounds, the squared length of the last change, and the rounds."""
        tilted = cast(HasTilted, model)
        x, y, offset = tilted.outcomes(data.rows)
        if factor is None:  # a variational solution is a good first guess of all sites
            factor = Variational(steps=2, relax=1.0).update(model, data, cavity, None)[0]
        q = tilted.gaussian(cavity + factor)
        _, first, second = tilted.derivatives(x @ q.mean + offset, q.spread(x), y)
        tau, nu = second, second * (x @ q.mean) - first
        change = np.inf
        for done in range(1, self.steps + 1):
            a, v = x @ q.mean, q.spread(x)
            rest = 1.0 / v - tau
            if not (rest > 0.0).all():  # a record's own cavity is improper: weaken its factor
                tau = np.minimum(tau, 0.9 / v)
                rest = 1.0 / v - tau
            mean = (a / v - nu) / rest
            m, s2 = tilted.tilted(mean + offset, 1.0 / rest, y)
            m = m - offset
            keep = 0.0 if done <= _DAMPED else 0.5
            tau = keep * tau + (1 - keep) * np.maximum(1.0 / s2 - rest, 0.0)
            nu = keep * nu + (1 - keep) * (m / s2 - mean * rest)
            after = tilted.packed(x.T @ nu, (x.T * tau) @ x)
            there = tilted.gaussian(cavity + after)
            moved = tilted.gaussian(after - factor)
            change = 0.5 * there.length(moved.h, moved.precision)
            factor, q = after, there
            if change < _SETTLED:
                break
        return factor, change, done
