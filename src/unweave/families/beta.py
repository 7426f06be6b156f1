"""Beta(a, b): the Dirichlet of two classes, with θ = θ_1. eta = (a, b), s = (log θ, log(1−θ)),
h(θ) = 1/(θ(1−θ)), A = log Γ(a) + log Γ(b) − log Γ(a+b)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.families.base import Family, Floats, Params
from unweave.families.dirichlet import DirichletFamily
from unweave.families.marginals import BetaMarginal, Marginal
from unweave.families.numerics.special import binet1, digamma_excess
from unweave.lazy import special
from unweave.rng import Rng

__all__ = ["BetaFamily"]


class BetaFamily(DirichletFamily):
    """A probability; a success adds 1 to a, a failure adds 1 to b."""

    name = "Beta"

    def __init__(self) -> None:
        super().__init__(2)
        self._set(("a", "b"), ("theta",), (), 0.0, (-1.0, -1.0))

    def covariance(self, eta: Floats) -> Floats:
        return Family.covariance(self, eta)  # of one quantity

    # The same numbers as the Dirichlet's, without reductions over an axis of two.
    def log_partition(self, eta: Floats) -> Floats:
        a, b = eta[..., 0], eta[..., 1]
        result: Floats = special.gammaln(a) + special.gammaln(b) - special.gammaln(a + b)
        return result

    def mean(self, eta: Floats) -> Floats:
        """ψ(x) = log x − 1/(2x) + R′(x): the logarithms combine, so that nothing cancels."""
        if eta.ndim == 1:
            # For one point, a dozen array operations would take 20 times as long as plain floats.
            a, b = eta.tolist()
            if a > 0.0 and b > 0.0:
                s = a + b
                shared = digamma_excess(s)
                first = math.log(a / s) + (digamma_excess(a) - shared)
                return np.array([first, math.log(b / s) + (digamma_excess(b) - shared)])
        total = eta[..., :1] + eta[..., 1:]
        rest = binet1(eta) - 0.5 / eta - (binet1(total) - 0.5 / total)
        result: Floats = np.log(eta / total) + rest
        return result

    def statistics(self, theta: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return np.stack([np.log(theta), np.log1p(-theta)], axis=-1)

    def in_support(self, theta: Floats) -> NDArray[np.bool_]:
        result: NDArray[np.bool_] = (theta >= 0.0) & (theta <= 1.0)
        return result

    def sample(self, eta: Floats, rng: Rng, size: tuple[int, ...] = ()) -> Floats:
        a, b = eta[..., 0], eta[..., 1]
        shape = size + a.shape
        result = rng.beta(a, b, shape)
        # Draws that round to 0 or 1 are moved to the nearest number inside, where s(θ) is finite.
        limits = np.finfo(np.float64)
        return np.clip(result, limits.tiny, 1.0 - limits.epsneg)

    def marginals(self, eta: Floats) -> tuple[Marginal, ...]:
        return (BetaMarginal("theta", eta[..., 0], eta[..., 1]),)

    def to_params(self, eta: Floats) -> Params:
        return {"a": eta[..., 0], "b": eta[..., 1]}

    def from_params(self, **params: ArrayLike) -> Floats:
        pair = np.broadcast_arrays(params["a"], params["b"])
        return self.check(np.stack(pair, axis=-1).astype(np.float64), "Beta(a, b)", stated=True)

    def _support_point(self) -> Floats:
        return np.array(0.5)

    def __repr__(self) -> str:
        return "BetaFamily()"
