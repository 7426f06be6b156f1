"""InverseGamma(a, b): 1/θ is Gamma(a, b). eta = (a, b), s = (−log θ, −1/θ), h(θ) = 1/θ,
A = log Γ(a) − a log b."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unweave.families.base import Floats
from unweave.families.gamma import GammaFamily
from unweave.families.marginals import InverseGammaMarginal, Marginal
from unweave.rng import Rng

__all__ = ["InverseGammaFamily"]


class InverseGammaFamily(GammaFamily):
    """A variance; A, mu and the divergences are the gamma's, because they do not depend on θ."""

    name = "InverseGamma"

    def __init__(self) -> None:
        self._set(("a", "b"), ("theta",), (), 0.0, (1.0, 0.0))

    def _entropy(self, eta: Floats) -> Floats:
        # d(1/x) = dx/x²: the entropy gains −2 E[log x] over the gamma's.
        result: Floats = super()._entropy(eta) - 2.0 * self.mean(eta)[..., 0]
        return result

    def statistics(self, theta: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return np.stack([-np.log(theta), -1.0 / theta], axis=-1)

    def in_support(self, theta: Floats) -> NDArray[np.bool_]:
        result: NDArray[np.bool_] = (theta > 0.0) & (theta < np.inf)
        return result

    def sample(self, eta: Floats, rng: Rng, size: tuple[int, ...] = ()) -> Floats:
        return 1.0 / super().sample(eta, rng, size)

    def marginals(self, eta: Floats) -> tuple[Marginal, ...]:
        return (InverseGammaMarginal("theta", eta[..., 0], eta[..., 1]),)
