"""Step control: the size of a natural-gradient step.

Each step is damped, because damping the result of a diverging solve does not help. Each rule
returns the step size and the size before any halving, for each element of a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from unweave.solvers.base import HasExpectedLoss
from unweave.solvers.estimators import Point

__all__ = ["CONVERGED", "RESOLUTION", "SHORTEST", "TRUSTED", "Move", "cautious", "descend", "fixed"]

Floats = NDArray[np.float64]

CONVERGED = 1e-14  # ½‖step‖² in the Fisher metric (≈ KL) below which a factor is final
RESOLUTION = 1e-12  # smallest relative decrease of the free energy that float64 resolves
# The largest move of q by one noisy gradient: ‖step‖² in the Fisher metric, twice the KL. Whole
# steps diverge if S samples estimate F badly. The next visit continues a shortened step.
TRUSTED = 0.1
SHORTEST = 1e-12  # a step halved below this becomes 0


@dataclass(frozen=True)
class Move:
    """From `at` along `step`, both in eta and in the agent's factor; t [...] scales it."""

    at: Point
    step: Floats
    moments: int

    def margin(self, t: Floats) -> Floats:
        return self.at.model.margin(self.at.eta + t[..., None] * self.step, self.moments)

    @cached_property
    def length(self) -> Floats:
        """‖step‖² in the Fisher metric; dF/dt = −alpha·length at t = 0."""
        result: Floats = (self.step * self.at.model.family.fisher_dot(self.at.eta, self.step)).sum(
            -1
        )
        return result

    def free_energy(self, t: Floats) -> tuple[Floats, Floats]:
        """F = E_q[L] + alpha(eta_k·mu − A(eta)) after the step, and the size of its terms.

        F is `eq:loc_fe_min` without the constant A(cavity), so the cavity may leave the domain.
        """
        model = self.at.model
        eta = self.at.eta + t[..., None] * self.step
        factor = self.at.factor + t[..., None] * self.step
        loss = cast(HasExpectedLoss, model).expected_loss(eta, self.at.data)
        inner = (factor * model.family.mean(eta)).sum(axis=-1)
        partition = model.family.log_partition(eta)
        size = np.abs(loss) + model.alpha * (np.abs(inner) + np.abs(partition)) + 1.0
        return loss + model.alpha * (inner - partition), size


def fixed(move: Move, rho: float) -> tuple[Floats, Floats]:
    """rho as given; where it would leave the domain, halved until the margin at most halves."""
    wanted = np.full(move.step.shape[:-1], rho)
    least = 0.5 * move.margin(np.zeros_like(wanted))
    leaves = ~(move.margin(wanted) > 0.0)
    if not leaves.any():
        return wanted, wanted
    return _halve(wanted, lambda t: leaves & (move.margin(t) < least)), wanted


def cautious(move: Move) -> tuple[Floats, Floats]:
    """rho = 1, halved until ‖step‖² ≤ TRUSTED and the margin at most halves.

    For noisy gradients.
    """
    wanted = np.ones(move.step.shape[:-1])
    least = 0.5 * move.margin(np.zeros_like(wanted))
    return _halve(
        wanted, lambda t: (t * t * move.length > TRUSTED) | (move.margin(t) < least)
    ), wanted


def descend(move: Move) -> tuple[Floats, Floats]:
    """rho = 1, halved until the local free energy decreases; 0 where it never does."""
    # A converged factor stays the same, bit for bit, so that a repeated visit changes nothing.
    wanted = np.where(0.5 * move.length < CONVERGED, 0.0, 1.0)
    if not wanted.any():
        return wanted, wanted
    t = _halve(wanted, lambda t: ~(move.margin(t) > 0.0))
    before, size = move.free_energy(np.zeros_like(t))
    # Below the resolution of F the comparison would compare rounding errors.
    undecided = (t > 0.0) & (move.at.model.alpha * move.length > RESOLUTION * size)
    while undecided.any():
        after, _ = move.free_energy(t)
        undecided = undecided & ~(after < before)
        t = np.where(undecided, 0.5 * t, t)
        vanished = undecided & (t < SHORTEST)
        t = np.where(vanished, 0.0, t)
        undecided = undecided & ~vanished
    return t, wanted


def _halve(t: Floats, refused: Callable[[Floats], NDArray[np.bool_]]) -> Floats:
    while np.any(mask := refused(t)):
        t = np.where(mask, 0.5 * t, t)
    return t
