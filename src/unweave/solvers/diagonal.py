"""Variational learning of many independent normal parameters, such as the weights of a network.

With the average gradient g and curvature H ≥ 0 of the agent's loss over a few draws from q, one
step moves the agent's factor by a share rho of the way to (H m − g, H)/alpha. Draws come in pairs
m ± z·sd, whose noise cancels to first order. Two limits keep the noise and the first steps, far
from any optimum, from destroying q: no mean moves by more than a fifth of its sd, and no precision
loses more than half. Without them, or with rho = 1, digits were classified no better than chance.

An agent that holds one class pulls q towards it: what counts is how far q moves in a visit, and how
often agents take turns. Over eight seeds of a digits network with 16 hidden units (one digit per
agent, central .973), 5 steps of up to 0.2 sd gave .958 after 20 passes and .969 after 40; 10 steps
of 0.1 sd, .952; 20 of them, .911; rho = 0.2, .922. Steps that shorten from 0.3 to 0.1 sd, 16 draws,
or rho falling from 0.2 at once looked better on eight seeds (.962, .960 and .963 instead of .957),
and were not on eight others (.958, .958 and .954). With 32 hidden units it was .966 (central .973).

A solver with noise never meets a rule on KL. It stops after a fixed number of passes since the last
change from outside, in the second half of which rho falls to zero: the result is stopped, not
converged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from unweave.arguments import number, whole_number
from unweave.errors import ConfigError
from unweave.grid import Ints
from unweave.models import Data, LossModel, Model
from unweave.solvers.base import Context, Solution, Solver, located

__all__ = ["Diagonal", "HasDiagonalCurvature"]


Floats = NDArray[np.float64]

_FARTHEST = 0.2  # sd that a mean moves in one step


@runtime_checkable
class HasDiagonalCurvature(Protocol):
    """A model whose carrier is (P m, P) of independent normals."""

    def diagonal_curvature(self, theta: Floats, data: Data) -> tuple[float, Floats, Floats]:
        """The averages over draws theta [S, D] of the loss, its gradient [D] and the diagonal of
        its curvature [D], at least 0; without 1/alpha."""


@dataclass(frozen=True)
class Diagonal(Solver):
    """`steps` steps per visit of size `rho`, each from `samples` draws, for `passes` passes."""

    steps: int = 5
    rho: float = 0.1
    samples: int = 8
    passes: int = 20

    estimates: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if whole_number(self.steps, "steps") < 1:
            raise ConfigError(f"steps = {self.steps}. Fix: at least one local step per visit")
        if not 0.0 < number(self.rho, "rho") <= 1.0:
            raise ConfigError(f"rho = {self.rho}. Fix: a number above 0 and at most 1")
        if whole_number(self.samples, "samples") < 2 or self.samples % 2:
            raise ConfigError(f"samples = {self.samples}. Fix: an even number, at least 2")
        if whole_number(self.passes, "passes") < 1:
            raise ConfigError(f"passes = {self.passes}. Fix: at least one")

    @property
    def stops_after(self) -> int:
        return self.passes

    def check(self, model: Model) -> None:
        if not isinstance(model, HasDiagonalCurvature):
            raise ConfigError(
                f"{model.name} gives no diagonal curvature, which the solver 'diagonal' needs. "
                "Fix: leave the solver out"
            )

    def step_size(self, passes: int) -> float:
        """rho in the first half of the passes; then it falls in a straight line to 0."""
        return self.rho * min(1.0, max(0.0, 2.0 * (1.0 - passes / self.passes)))

    def solve(
        self, model: Model, data: Data, cavity: Ints, current: Ints | None, context: Context
    ) -> Solution:
        assert isinstance(model, LossModel)
        if not data.n:
            return Solution(model.grid.zeros())
        if current is not None and context.passes >= self.passes:
            return Solution(current, {"estimator": "diagonal", "rho": 0.0})
        start = model.grid.zeros() if current is None else current
        # An agent that comes late has no factor: it starts with a whole step.
        rho = self.rho if current is None else self.step_size(context.passes)
        with located(data, context, "a larger prior sd, or fewer bits"):
            final, loss = self.update(
                model, data, model.grid.decode(cavity), model.grid.decode(start), rho, context
            )
            factor = model.grid.encode(final)
        info = {"estimator": "diagonal", "rho": rho, "loss": loss}
        return Solution(factor, info)

    def update(
        self,
        model: LossModel,
        data: Data,
        cavity: Floats,
        factor: Floats,
        rho: float,
        context: Context,
    ) -> tuple[Floats, float]:
        """The factor after the steps, and the average loss at the last of them."""
        sums = cast(HasDiagonalCurvature, model)
        others_h, others = np.split(cavity, 2)
        own_h, own = np.split(factor, 2)
        loss = np.nan
        for _ in range(self.steps):
            precision = others + own
            mean, sd = (others_h + own_h) / precision, 1.0 / np.sqrt(precision)
            half = sd * context.stream.standard_normal((self.samples // 2, len(mean)))
            loss, g, curvature = sums.diagonal_curvature(
                np.concatenate([mean + half, mean - half]), data
            )
            g, curvature = g / model.alpha, curvature / model.alpha
            own = np.maximum(own + rho * (curvature - own), 0.5 * precision - others)
            wanted = (others_h + own_h + rho * (curvature * mean - g - own_h)) / (others + own)
            moved = mean + np.clip(wanted - mean, -_FARTHEST * sd, _FARTHEST * sd)
            own_h = moved * (others + own) - others_h
        return np.concatenate([own_h, own]), float(loss)
