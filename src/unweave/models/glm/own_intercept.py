"""An agent's own view of a GLM in which every agent has an intercept of its own (`agent_sd`).

The agent fits its intercept b together with the shared coefficients, under the prior
b ~ Normal(0, agent_sd²), and integrates it out: with the joint (h, P) of (theta, b), the factor is

    P_θθ − P_θb P_bθ / P_bb   and   h_θ − P_θb h_b / P_bb,   less the cavity.

Only this factor of the shared coefficients leaves the agent. The joint optimum of all coefficients
and all intercepts has the same structure, so the fixed point is its marginal.

In private rounds (`at`) the marginal q of the coefficients is given, and the agent fits b given
them: b = a + Bᵀtheta + noise of variance 1/p, with p = P_bb, B = −P_bθ/p and a = h_b/p. This is the
minimum over b of the joint free energy, so that factor and loss are functions of q alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DomainError
from unweave.families.multivariate_normal import MultivariateNormalFamily
from unweave.families.numerics.packed import pack
from unweave.families.point import NormalMoments, NormalPoint
from unweave.models.data import Data

if TYPE_CHECKING:
    from unweave.models.glm.base import GLM, Sums

__all__ = ["OwnIntercept"]

Floats = NDArray[np.float64]


_STEPS = 60
_SOLVED = 1e-20  # squared length of a step
_RESOLUTION = 1e-12  # of the energy: it cannot tell a shorter step from rounding errors
_SHORTEST = 1e-4  # a step halved below this is none


class _Given(NamedTuple):
    """b given theta: (P_θb, P_bb, h_b), what it should be, the energy, and (h, P) of theta."""

    at: Floats
    wanted: Floats
    energy: float
    h: Floats
    precision: Floats


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

    def at(self, q: NormalPoint | Floats, data: Data) -> tuple[float, Floats, Floats]:
        """The free energy of the records and b at this q of the coefficients (or a single theta),
        and the factor (h, P) of the coefficients, b integrated out. With 1/alpha."""
        here = self._fitted(q, data)
        cross, p, h = here.wanted[:-2], here.wanted[-2], here.wanted[-1]
        own = here.precision - np.outer(cross, cross) / p
        return here.energy, here.h - cross * (h / p), own

    def _fitted(self, q: NormalPoint | Floats, data: Data) -> _Given:
        """b given theta, where the free energy is least at this q of the coefficients."""
        if isinstance(q, NormalPoint):
            mean, cov = q.mean, q.cov
        else:
            mean, cov = q, np.zeros((len(q), len(q)))
        tau = self._precision
        here = self._given(mean, cov, np.append(np.zeros(len(mean)), [tau, 0.0]), data)
        for _ in range(_STEPS):
            step, t = here.wanted - here.at, 1.0
            length = self._length(mean, cov, here.at, step)
            if length < _SOLVED:
                break
            small = length < _RESOLUTION * (1.0 + abs(here.energy))
            while True:
                there = self._given(mean, cov, here.at + t * step, data)
                if there.energy < here.energy or small:
                    break
                t *= 0.5
                if t < _SHORTEST:
                    break
            if t < _SHORTEST:
                break  # below the resolution of the energy
            here = there
        return here

    def _given(self, mean: Floats, cov: Floats, at: Floats, data: Data) -> _Given:
        """The sums at the joint distribution of theta and b, where b has (P_θb, P_bb, h_b) = `at`
        given theta."""
        cross, p, h = at[:-2], at[-2], at[-1]
        slope = -cross / p
        both = np.zeros((len(mean) + 1,) * 2)
        both[:-1, :-1] = cov
        both[:-1, -1] = both[-1, :-1] = cov @ slope
        both[-1, -1] = 1.0 / p + slope @ cov @ slope
        middle = np.append(mean, (h - cross @ mean) / p)
        loss, g, curvature = self.model.curvature(NormalMoments(middle, both), data, own=True)
        weight, tau = 1.0 / self.alpha, self._precision
        curvature, g = weight * curvature, weight * g
        full = curvature @ middle - g
        wanted = np.append(curvature[:-1, -1], [tau + curvature[-1, -1], full[-1]])
        # E KL(q(b | theta) ‖ prior of b), with E b² = variance + mean².
        spread = tau * (both[-1, -1] + middle[-1] ** 2)
        energy = weight * loss + 0.5 * float(spread - 1.0 + np.log(p / tau))
        return _Given(at, wanted, float(energy), full[:-1], curvature[:-1, :-1])

    def _length(self, mean: Floats, cov: Floats, at: Floats, step: Floats) -> float:
        """The expected squared length of a step in the Fisher metric of b given theta."""
        p, dp = at[-2], step[-2] / at[-2]
        slope = (step[:-2] - at[:-2] * dp) / p
        moved = step[-1] / p - at[-1] / p * dp - slope @ mean
        return float(p * (moved * moved + slope @ cov @ slope) + 0.5 * dp * dp)

    def joint(self, cavity: Floats) -> Floats:
        """The cavity and the prior of the intercept."""
        shared = self.model.gaussian(cavity)
        precision = np.zeros((self.model.size + 1,) * 2)
        precision[:-1, :-1], precision[-1, -1] = shared.precision, self._precision
        return self.packed(np.append(shared.h, 0.0), precision)

    def resumed(self, cavity: Floats, factor: Floats, data: Data) -> Floats | None:
        """The joint factor that continues the factor of the shared coefficients: q of the
        coefficients stays what it is, and the intercept is fitted given them. At a fixed point it
        is the joint factor of the fixed point, so that a solve with few steps does not leave it.
        None if the cavity and the factor are no distribution."""
        q = self.model.gaussian(cavity + factor)
        try:
            here = self._fitted(q, data)
        except DomainError:
            return None
        cross, p, h = here.wanted[:-2], here.wanted[-2], here.wanted[-1]
        both = np.zeros((self.model.size + 1,) * 2)
        both[:-1, :-1] = q.precision + np.outer(cross, cross) / p
        both[:-1, -1] = both[-1, :-1] = cross
        both[-1, -1] = p
        found: Floats = self.packed(np.append(q.h + cross * (h / p), h), both) - self.joint(cavity)
        return found

    def marginal(self, cavity: Floats, factor: Floats) -> Floats:
        """The factor of the shared coefficients, from the joint factor."""
        both = self.gaussian(self.joint(cavity) + factor)
        cross = both.precision[:-1, -1] / both.precision[-1, -1]
        precision = both.precision[:-1, :-1] - np.outer(cross, both.precision[-1, :-1])
        shared = self.model.packed(both.h[:-1] - cross * both.h[-1], precision)
        found: Floats = shared - cavity
        return found
