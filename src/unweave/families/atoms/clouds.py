"""A density as weighted nodes: the form in which posteriors without a closed form are reported.

The nodes u [n, d] are in the coordinates of `Space`. Means, quantiles and draws come from the
weights. The joint density is a function that the maker of the cloud supplies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.arguments import floats
from unweave.families.atoms.parameters import Parameter, Space
from unweave.families.marginals import Marginal
from unweave.rng import Rng

__all__ = ["Cloud", "CloudMarginal", "line_cloud"]

Floats = NDArray[np.float64]

_LINE = 4001  # nodes of a density of one parameter
_FAR = 40.0  # nats below the mode: e^−40 is below the rounding of float64
_WIDER = 12  # times that the line is doubled to hold the tails
_BINS = 2048  # of a smoothed marginal density


@dataclass(frozen=True, eq=False)
class Cloud:
    """Nodes u [n, d], their probabilities [n] and the joint log-density of u.

    `draw(rng, n)` gives u of n independent draws. `log_evidence` is log ∫ prior × likelihood.
    """

    space: Space
    u: Floats
    weights: Floats
    log_density: Callable[[Floats], Floats]
    draw: Callable[[Rng, int], Floats]
    log_evidence: float

    @cached_property
    def theta(self) -> Floats:
        return self.space.outward(self.u)

    def mean(self) -> Floats:
        """E[θ], [d]."""
        result: Floats = self.weights @ self.theta
        return result

    def cov(self) -> Floats:
        """Cov[θ], [d, d]."""
        centred = self.theta - self.mean()
        result: Floats = (self.weights[:, None] * centred).T @ centred
        return result

    def log_prob(self, theta: Floats) -> Floats:
        """The log-density of θ inside the support."""
        u = self.space.inward(theta)
        return self.log_density(u) - self.space.log_slope(u)

    def marginals(self) -> tuple[CloudMarginal, ...]:
        exact = self.log_density if self.space.dim == 1 else None
        return tuple(
            CloudMarginal(p.name, p, self.u[:, j], self.weights, exact)
            for j, p in enumerate(self.space.parameters)
        )


@dataclass(frozen=True, eq=False)
class CloudMarginal(Marginal):
    """The law of one parameter. With several parameters its density is smoothed: a Gaussian kernel
    whose width falls with the effective number of nodes."""

    parameter: Parameter
    u: Floats = field(repr=False)
    weights: Floats = field(repr=False)
    exact: Callable[[Floats], Floats] | None = field(repr=False, default=None)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return ()

    @cached_property
    def _theta(self) -> Floats:
        return self.parameter.outward(self.u)

    @cached_property
    def _steps(self) -> tuple[Floats, Floats]:
        """Sorted u and P(U ≤ u): half of a node's weight lies on each side."""
        order = np.argsort(self.u, kind="stable")
        w = self.weights[order]
        return self.u[order], np.cumsum(w) - 0.5 * w

    def mean(self) -> Floats:
        return np.asarray(self.weights @ self._theta)

    def sd(self) -> Floats:
        centred = self._theta - self.mean()
        return np.sqrt(np.asarray(self.weights @ (centred * centred)))

    def cdf(self, x: ArrayLike) -> Floats:
        x = floats(x, "x")
        inside = self.parameter.supported(x)
        at = self.parameter.inward(np.where(inside, x, self._theta[0]))
        below: Floats = np.interp(at, *self._steps, left=0.0, right=1.0)
        return np.where(inside, below, np.where(x > self._theta.max(), 1.0, 0.0))

    def _quantile(self, p: Floats) -> Floats:
        u, level = self._steps
        return self.parameter.outward(np.interp(p, level, u))

    def log_pdf(self, x: ArrayLike) -> Floats:
        x = floats(x, "x")
        inside = self.parameter.supported(x)
        u = self.parameter.inward(np.where(inside, x, self._theta[0]))
        if self.exact is not None:
            value = self.exact(u[..., None])
        else:
            value = np.interp(u, *self._smooth, left=-np.inf, right=-np.inf)
        return np.where(inside, value - self.parameter.log_slope(u), -np.inf)

    @cached_property
    def _smooth(self) -> tuple[Floats, Floats]:
        """Nodes and log-density of u."""
        w = self.weights
        mean = w @ self.u
        sd = np.sqrt(w @ (self.u - mean) ** 2)
        width = 1.06 * sd * float(w @ w) ** 0.2  # Silverman's rule, with n = 1/Σw²
        used = w > 0.0
        low, high = self.u[used].min() - 4.0 * width, self.u[used].max() + 4.0 * width
        edges = np.linspace(low, high, _BINS + 1)
        counts, _ = np.histogram(self.u, bins=edges, weights=w)
        step = edges[1] - edges[0]
        reach = np.arange(-int(4.0 * width / step) - 1, int(4.0 * width / step) + 2)
        kernel = np.exp(-0.5 * (reach * step / width) ** 2)
        density = np.convolve(counts, kernel / (kernel.sum() * step), mode="full")
        density = density[len(reach) // 2 :][:_BINS]
        with np.errstate(divide="ignore"):
            return 0.5 * (edges[1:] + edges[:-1]), np.log(density)


def line_cloud(
    space: Space, log_target: Callable[[Floats], Floats], low: float, high: float
) -> Cloud:
    """The cloud of one parameter: a trapezoid over the part of the line where exp(log_target)
    matters. `log_target` takes u [n] and is not normalised; its mode is between low and high."""
    for _ in range(_WIDER):
        ends = log_target(np.array([low, high]))
        top = float(log_target(np.linspace(low, high, _LINE)).max())
        if (ends < top - _FAR).all():
            break
        width = high - low
        low, high = low - width * (ends[0] >= top - _FAR), high + width * (ends[1] >= top - _FAR)
    for _ in range(2):  # the second time on the part that matters
        u = np.linspace(low, high, _LINE)
        value = log_target(u)
        near = np.flatnonzero(value > value.max() - _FAR)
        low, high = u[max(near[0] - 1, 0)], u[min(near[-1] + 1, _LINE - 1)]
    u = np.linspace(low, high, _LINE)
    value = log_target(u)
    top = float(value.max())
    weights = np.exp(value - top)
    weights[[0, -1]] *= 0.5
    total = float(weights.sum())
    weights = weights / total
    log_z = top + float(np.log(total * (u[1] - u[0])))

    def log_density(at: Floats) -> Floats:
        return log_target(at[..., 0]) - log_z

    below = np.cumsum(weights) - 0.5 * weights

    def draw(rng: Rng, n: int) -> Floats:
        return np.interp(rng.random((n,)), below, u)[:, None]

    return Cloud(space, u[:, None], weights, log_density, draw, log_z)
