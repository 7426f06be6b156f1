"""Variational inference with normal factors, from sums of (loss, gradient, curvature).

The local free energy of q = N(m, S) and the cavity (h_c, P_c) is

    F(q) = E_q[L_k]/alpha + KL(q ‖ cavity)

Its natural gradient at rho = 1 replaces the factor by (H m − g, H)/alpha. Each step is halved until
F decreases: undamped steps drift away on some data. Where F is more curved along a step than q
alone, whole steps swing around the solution and shrink by some per cent only (digits: 10 steps took
a quarter of the error away). F at both ends of a step tells the curvature, and the next step is as
long as the parabola through them asks. Without a factor to start from, Newton's method
finds the mode first, where the expected loss is finite for any prior.

Two things save passes; a fixed point stays the same.

The first solution anticipates the agents that are missing in the cavity: they will bring what the
others brought on average. Solved against the cavity alone, the first factors of a network belong to
a q that is far wider than the last one, and a second pass has to correct them.

A solution is relaxed: the factor moves 1.06 times as far. Agents that solve one after another
converge like Gauss-Seidel, and over-relaxation works as it does there: the best factor grows with
the rate at which the error shrinks without it. Where a pass takes little away the factor moves up
to 1.12 times as far, from the third pass on. The two numbers were chosen on pairs of digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from unweave.arguments import number, whole_number
from unweave.errors import ConfigError, DomainError, SolverError
from unweave.families.point import NormalPoint
from unweave.grid import Ints
from unweave.models import Data, LossModel, Model
from unweave.solvers.base import Context, Solution, Solver, located
from unweave.solvers.steps import CONVERGED, RESOLUTION

__all__ = ["OVERFLOW", "HasCurvature", "Variational"]


Floats = NDArray[np.float64]

OVERFLOW = "a scale near the size of the features, or fewer bits"

_NEWTON = 50  # steps to the mode
_SHORTEST = 1e-7  # a step halved below this is none
_SOLVED = 1e-2  # the KL of the next step below which a solution is relaxed
_FARTHEST = 1.12  # a factor moves at most so many times as far as its solution
_RESOLVED = 1e-11  # of F: below it, its curvature along a step is rounding error
_LEAST_SHARE = 0.25  # of a step, however curved F was along the last one
_NEAR_MODE = 1e-3  # ½ squared length in the Hessian's metric


@runtime_checkable
class HasCurvature(Protocol):
    """A model whose carrier is (P m, triangle of P): it gives sums at a normal q."""

    convex: bool

    def gaussian(self, carrier: Floats) -> NormalPoint: ...
    def packed(self, h: Floats, precision: Floats) -> Floats: ...
    def curvature(self, at: NormalPoint | Floats, data: Data) -> tuple[float, Floats, Floats]: ...


class _Place(NamedTuple):
    """A factor, the q that it gives, the sums there, and the local free energy with its size."""

    factor: Floats
    q: NormalPoint
    wanted: Floats
    energy: float
    size: float


@dataclass(frozen=True)
class Variational(Solver):
    """At most `steps` natural-gradient steps from the agent's current factor, and `relax` times the
    way to their end, up to 1.12 times where passes take little of the error away."""

    steps: int = 10
    relax: float = 1.06

    private: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if whole_number(self.steps, "steps") < 1:
            raise ConfigError(f"steps = {self.steps}. Fix: at least one local step per visit")
        if not 1.0 <= number(self.relax, "relax") <= 1.1:
            raise ConfigError(f"relax = {self.relax}. Fix: a number from 1 to 1.1")

    def check(self, model: Model) -> None:
        if not isinstance(model, HasCurvature):
            raise ConfigError(
                f"{model.name} gives no curvature, which the solver 'vi' needs. Fix: leave the "
                "solver out"
            )

    def solve(
        self, model: Model, data: Data, cavity: Ints, current: Ints | None, context: Context
    ) -> Solution:
        assert isinstance(model, LossModel)
        if not data.n:
            factor, info = model.grid.zeros(), {}
        else:
            start = None if current is None else model.grid.decode(current)
            with located(data, context, OVERFLOW):
                rest = model.grid.decode(cavity)
                final, residual, rounds = self._solution(model, data, rest, start, context.share)
                if start is not None and residual < _SOLVED:
                    final = self._relaxed(
                        cast(HasCurvature, model), rest, start, final, context.passes
                    )
                factor = model.grid.encode(final)
            info = {"estimator": "vi", "residual": residual, "rounds": rounds}
        return Solution(factor, info)

    def _solution(
        self, model: LossModel, data: Data, cavity: Floats, start: Floats | None, share: float
    ) -> tuple[Floats, float, int]:
        """`update`, with the agent's own intercept integrated out, if it has one."""
        own = getattr(model, "own_intercept", None)
        if own is None:
            if start is None and share < 1.0 and cast(HasCurvature, model).convex:
                # As if all agents had brought what this one and the others so far bring on average.
                all_others = model.carrier_prior + (cavity - model.carrier_prior) / share
                all_own, residual, rounds = self.update(model, data, all_others, None, 1.0 / share)
                return share * all_own, residual, rounds
            return self.update(model, data, cavity, start)
        # The agent keeps no joint factor. From the mode, `steps` steps end short of the solution by
        # the same error in every pass (breast_cancer by label: KL 5e-6 from the optimum).
        both = None if start is None else own.resumed(cavity, start, data)
        factor, residual, rounds = self.update(own, data, own.joint(cavity), both)
        return own.marginal(cavity, factor), residual, rounds

    def _relaxed(
        self, model: HasCurvature, cavity: Floats, start: Floats, final: Floats, passes: int
    ) -> Floats:
        """Beyond the solution, if the factor stays one that any cavity can spare: H ⪰ 0."""
        if not model.convex or self.relax == 1.0:
            return final
        reach = self.relax
        if passes > 1:
            # The first step was the factor itself: this one tells by how much a pass shrinks steps.
            # For a rate r the best reach is 1 + r/4 to second order if no step was relaxed so far,
            # and 1 + r if all were relaxed in the best way. The truth is between.
            q = model.gaussian(cavity + final)
            step, whole = (
                q.length(part.h, part.precision)
                for part in (model.gaussian(final - start), model.gaussian(final))
            )
            rate = (step / whole) ** (0.5 / passes) if whole > 0.0 else 0.0
            reach = min(_FARTHEST, max(self.relax, 1.0 + 0.5 * rate))
        farther = start + reach * (final - start)
        spectrum = np.linalg.eigvalsh(model.gaussian(farther).precision)
        return farther if spectrum[0] >= -1e-8 * spectrum[-1] else final

    def update(
        self,
        model: LossModel,
        data: Data,
        cavity: Floats,
        factor: Floats | None,
        copies: float = 1.0,
    ) -> tuple[Floats, float, int]:
        """The factor of `copies` times the data after the steps, the estimated KL of the next step,
        and the steps taken."""
        problem = _Local(model, data, cavity, copies)
        here = problem.start(factor)
        share = 1.0
        for done in range(self.steps):
            step = here.wanted - here.factor
            length = problem.length(here.q, step)
            if 0.5 * length < CONVERGED:
                return here.factor, 0.5 * length, done
            t = share
            while True:
                there = problem.place(here.factor + t * step)
                if there is not None and (
                    there.energy < here.energy or problem.nearer(here, there, length)
                ):
                    break
                t *= 0.5
                if t < _SHORTEST:
                    return here.factor, 0.5 * length, done
            share = problem.share(here, there, t, length, share)
            here = there
        return here.factor, 0.5 * problem.length(here.q, here.wanted - here.factor), self.steps


class _Local:
    """The local problem of one solve."""

    def __init__(self, model: LossModel, data: Data, cavity: Floats, copies: float) -> None:
        self.model = cast(HasCurvature, model)
        self.name = model.name
        self.data = data
        self.cavity = cavity
        self.at_cavity = self.model.gaussian(cavity)
        self.weight = copies / model.alpha

    def start(self, factor: Floats | None) -> _Place:
        found = self.place(self.mode() if factor is None else factor)
        if found is None and factor is not None:
            found = self.place(self.mode())
        if found is None:
            raise SolverError(
                f"{self.name}: the expected loss is infinite near the best coefficients. Fix: a "
                "smaller prior sd, or a scale near the size of the features"
            )
        return found

    def place(self, factor: Floats) -> _Place | None:
        """None if no q belongs to the factor, or the loss is infinite there."""
        q = self.model.gaussian(self.cavity + factor)
        try:
            mean = q.mean
        except DomainError:
            return None
        loss, g, curvature = self.model.curvature(q, self.data)
        if not (np.isfinite(loss) and np.isfinite(curvature).all()):
            return None
        wanted = self.weight * self.model.packed(curvature @ mean - g, curvature)
        h, precision = self.at_cavity.h, self.at_cavity.precision
        # KL(q ‖ cavity) without the cavity's own constants, so that it may be improper.
        terms = (
            self.weight * loss,
            0.5 * float(np.einsum("ij,ij->", precision, q.cov)),
            0.5 * float(mean @ precision @ mean),
            -float(h @ mean),
            0.5 * q.log_det,
        )
        return _Place(factor, q, wanted, sum(terms), 1.0 + sum(abs(term) for term in terms))

    def length(self, q: NormalPoint, step: Floats) -> float:
        """The squared length of a step of the carrier in the Fisher metric of q."""
        moved = self.model.gaussian(step)
        return q.length(moved.h, moved.precision)

    def share(self, here: _Place, there: _Place, t: float, length: float, last: float) -> float:
        """The minimum of the parabola F(0) − length·t + c·length·t²/2 through both places: 1/c."""
        if not self.model.convex:
            return last
        if length < _RESOLVED * here.size:
            # F has no digits left: c is the change of its slope, 1 − <next step, step>/length.
            step, after = here.wanted - here.factor, there.wanted - there.factor
            onward = self.length(here.q, after) - self.length(here.q, after - step)
            curved = 0.5 * (1.0 - onward / length) / t
        else:
            curved = 2.0 * ((there.energy - here.energy) / length + t) / (t * t)
        return min(1.0, max(_LEAST_SHARE, 1.0 / curved)) if curved > 0.0 else 1.0

    def nearer(self, here: _Place, there: _Place, length: float) -> bool:
        """Whether the next step is shorter. This replaces F where it has no digits left, and where
        a curvature was clipped: (H m − g, H) is then no gradient of F."""
        if self.model.convex and length >= RESOLUTION * here.size:
            return False
        after = self.length(there.q, there.wanted - there.factor)
        return after < (1.0 if self.model.convex else 0.9) * length

    def mode(self) -> Floats:
        """The factor (H m − g, H) at the mode m of cavity × likelihood, by Newton's method."""
        h, precision = self.at_cavity.h, self.at_cavity.precision
        m = self.at_cavity.mean
        loss, g, curvature = self.model.curvature(m, self.data)
        for _ in range(_NEWTON):
            gradient = self.weight * g + precision @ m - h
            direction = np.linalg.solve(self.weight * curvature + precision, -gradient)
            slope = -float(gradient @ direction)
            if not np.isfinite(slope):
                raise SolverError(
                    f"{self.name}: the loss is infinite at the mean of the other agents' factors. "
                    "Fix: a scale near the size of the features, or a smaller prior sd"
                )
            if 0.5 * slope < _NEAR_MODE:
                break
            energy = self.weight * loss + 0.5 * float(m @ precision @ m) - float(h @ m)
            t = 1.0
            while True:
                at = m + t * direction
                loss, g, curvature = self.model.curvature(at, self.data)
                after = self.weight * loss + 0.5 * float(at @ precision @ at) - float(h @ at)
                if after < energy or t < _SHORTEST:
                    break
                t *= 0.5
            m = at
        return self.weight * self.model.packed(curvature @ m - g, curvature)
