"""Models whose factors come from sums of (loss, gradient, curvature) at a normal q.

The carrier is (P m, triangle of P). With g and H, the expected gradient and curvature of an agent's
loss at q, its factor is (H m − g, H)/alpha: a fixed point of the local free energy's natural
gradient. H ⪰ 0, so every cavity is a proper distribution.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError
from unweave.families.multivariate_normal import MultivariateNormalFamily
from unweave.families.numerics.packed import pack
from unweave.families.point import NormalPoint
from unweave.grid import Ints
from unweave.models.base import LossModel
from unweave.models.data import Data

__all__ = ["CurvatureModel", "Sums"]


Floats = NDArray[np.float64]
Sums = tuple[float, Floats, Floats]
"""E_q[L_k], its gradient in the mean, and its curvature H."""

FEWEST_BITS = 16  # with fewer, rounding moves every solution, and a network never comes to rest


class CurvatureModel(LossModel):
    """A model for the solver "vi"."""

    solver_name: ClassVar[str] = "vi"
    convex: ClassVar[bool]  # the loss has no negative curvature: one optimum, which no step misses

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of parameters."""

    @abstractmethod
    def prior_moments(self) -> tuple[Floats, Floats]:
        """The prior's mean [D] and precision [D, D]."""

    @abstractmethod
    def curvature(self, at: NormalPoint | Floats, data: Data) -> Sums:
        """(E_q[L], g, H) of all records at q, or at a single theta; without 1/alpha."""

    def check_settings(self) -> None:
        super().check_settings()
        if min(self.grid.bits) < FEWEST_BITS:
            raise ConfigError(
                f"{self.name}: {min(self.grid.bits)} bits are too few: solutions on so coarse a "
                f"grid never come to rest. Fix: at least {FEWEST_BITS}"
            )

    @property
    def independent(self) -> bool:
        """Whether q has independent components, decoded from the same carrier."""
        return False

    @cached_property
    def carrier_family(self) -> MultivariateNormalFamily:
        return MultivariateNormalFamily(self.size)

    @property
    def carrier_names(self) -> Sequence[str]:
        return self.carrier_family.component_names

    def gaussian(self, carrier: Floats) -> NormalPoint:
        """q at a point of the carrier, not in grid units."""
        h, precision = self.carrier_family.split(carrier)
        return NormalPoint(h, precision, self.independent)

    def packed(self, h: Floats, precision: Floats) -> Floats:
        """The point (h, P) of the carrier."""
        return np.concatenate([h, pack(precision)])

    def check_agents(self, agents: int) -> None:
        """Each factor is rounded by up to half a step per entry, which moves eigenvalues by at most
        D·2^-(q+1); K of them must not use up the prior: λ_min > K·D·2^-(q+1)."""
        least = float(np.linalg.eigvalsh(self.prior_moments()[1])[0])
        needed = agents * self.size * 2.0 ** -(min(self.grid.bits) + 1)
        if not least > needed:
            raise ConfigError(
                f"{self.name}: the smallest eigenvalue of the prior's precision is {least:.3g}, "
                f"but rounding {agents} factors may take {needed:.3g} from it. Fix: a smaller sd, "
                f"or more bits than {min(self.grid.bits)}"
            )

    def min_records(self) -> int:
        return 2 * self.size + 1

    def disclosure(self) -> str:
        return "from two of its factors, neighbours can reconstruct its records"

    # -- the certificate's estimate ---------------------------------------------------------------

    def freeze(self, units: Ints, factor: Ints, data: Data) -> Floats | None:
        """r_k = eta_k − (H m − g, H)/alpha, which is 0 at a fixed point."""
        q = self.gaussian(self.grid.decode(units))
        _, g, curvature = self.curvature(q, data)
        wanted = self.packed(curvature @ q.mean - g, curvature) / self.alpha
        return self.grid.decode(factor) - wanted

    def appraise(self, units: Ints, frozen: Floats) -> dict[str, Any]:
        q = self.gaussian(self.grid.decode(units))
        dh, dp = self.carrier_family.split(frozen)
        return self.estimate(q.moved(dh, dp))
