"""An agent's own view of a GLM in which every agent has an intercept of its own (`agent_sd`).

The agent fits its intercept b together with the shared coefficients, under the prior
b ~ Normal(0, agent_sd²), and integrates it out: with the joint (h, P) of (theta, b), the factor is

    P_θθ − P_θb P_bθ / P_bb   and   h_θ − P_θb h_b / P_bb,   less the cavity.

Only this factor of the shared coefficients leaves the agent. The joint optimum of all coefficients
and all intercepts has the same structure, so the fixed point is its marginal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unweave.families.multivariate_normal import MultivariateNormalFamily
from unweave.families.numerics.packed import pack
from unweave.families.point import NormalPoint
from unweave.models.data import Data

if TYPE_CHECKING:
    from unweave.models.glm.base import GLM, Sums

__all__ = ["OwnIntercept"]

Floats = NDArray[np.float64]


class OwnIntercept:
    """The sums of a GLM for the coefficients and, last, the agent's own intercept."""

    def __init__(self, model: GLM, sd: float) -> None:
        self.model, self.name, self.alpha, self.convex = (
            model,
            model.name,
            model.alpha,
            model.convex,
        )
        self._precision = 1.0 / sd**2
        self._family = MultivariateNormalFamily(model.size + 1)

    def gaussian(self, carrier: Floats) -> NormalPoint:
        return NormalPoint(*self._family.split(carrier))

    def packed(self, h: Floats, precision: Floats) -> Floats:
        return np.concatenate([h, pack(precision)])

    def curvature(self, at: NormalPoint | Floats, data: Data) -> Sums:
        return self.model.curvature(at, data, own=True)

    def joint(self, cavity: Floats) -> Floats:
        """The cavity and the prior of the intercept."""
        shared = self.model.gaussian(cavity)
        precision = np.zeros((self.model.size + 1,) * 2)
        precision[:-1, :-1], precision[-1, -1] = shared.precision, self._precision
        return self.packed(np.append(shared.h, 0.0), precision)

    def marginal(self, cavity: Floats, factor: Floats) -> Floats:
        """The factor of the shared coefficients, from the joint factor."""
        both = self.gaussian(self.joint(cavity) + factor)
        cross = both.precision[:-1, -1] / both.precision[-1, -1]
        precision = both.precision[:-1, :-1] - np.outer(cross, both.precision[-1, :-1])
        shared = self.model.packed(both.h[:-1] - cross * both.h[-1], precision)
        found: Floats = shared - cavity
        return found
