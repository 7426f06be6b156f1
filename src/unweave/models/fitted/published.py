"""A posterior rounded for publication, so that two ways to the same optimum publish the same bits.

Refining after an erasure and retraining without the erased data end at the same optimum of a convex
model, but not at the same bits: each stops within a tolerance. Rounded to a step of 1e-3 standard
deviations both are the same, unless a number lies within the tolerance of an edge between two
steps. `edge` tells how near the nearest edge is: who publishes goes on until the remaining error is
smaller (`unweave.federation`, measured), or can prove it for some models (`glm.bound`).

A normal posterior N(m, C Cᵀ) is published as whole numbers, row by row: the exponent e_i of its
standard deviation, and m_i and C_ij in units of step·2^e_i. So the covariance is positive definite
whatever the rounding does. The edges are moved by offsets that follow from the model's settings:
no data decide where they are.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError
from unweave.grid import Ints

if TYPE_CHECKING:
    from unweave.models.base import Model
    from unweave.models.fitted.posterior import Posterior

__all__ = ["STEP", "Published", "publish"]

Floats = NDArray[np.float64]

STEP = 1e-3  # standard deviations


@dataclass(frozen=True, eq=False)
class Published:
    """A rounded normal posterior. `units` are the whole numbers: e, m, and the rows of C."""

    model: Model
    step: float
    units: Ints
    edge: float  # the smallest distance from an edge before rounding, in standard deviations

    @property
    def digest(self) -> str:
        """Of the model's settings, the step and the whole numbers."""
        head = f"{_settings(self.model)} {self.step!r} ".encode()
        return hashlib.sha256(head + self.units.astype("<i8").tobytes()).hexdigest()

    @cached_property
    def _parts(self) -> tuple[Floats, Floats]:
        size = len(self.model.quantities)
        scale = self.step * np.exp2(self.units[:size])
        root = np.zeros((size, size))
        root[np.tril_indices(size)] = self.units[2 * size :]
        return scale * self.units[size : 2 * size], scale[:, None] * root

    @property
    def mean(self) -> Floats:
        """In the grid's units, like the covariance."""
        return self._parts[0]

    @property
    def cov(self) -> Floats:
        root = self._parts[1]
        found: Floats = root @ root.T
        return found

    def report(self, error: float) -> dict[str, Any]:
        """What a certificate says, if every number is within `error` standard deviations of the
        optimum's. An exponent moves by at most 2·error octaves. The digest of the rounded posterior
        is not in it: who has no sum could guess it."""
        settled = self.edge > 2.0 * error
        return {
            "step": self.step,
            "identical": "proved: the optimum of the remaining data publishes this, however it is "
            "reached, with or without the erased data before"
            if settled
            else "not decided: a number may lie on another side of an edge; use a smaller tol",
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Published) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Published({self.model.name}, step {self.step:g}; {self.digest[:12]})"


def publish(posterior: Posterior, step: float = STEP) -> Published:
    """Round a normal posterior to `step` standard deviations."""
    model = posterior.model
    if not 1e-9 <= step <= 0.1:
        raise ConfigError(f"publish: step = {step:g}. Fix: from 1e-9 to 0.1 standard deviations")
    mean, root = normal_parts(posterior)
    size = len(mean)
    u = _offsets(model, 2 * size + size * (size + 1) // 2)
    level = np.log2(np.sqrt(np.square(root).sum(axis=1)))
    exponent, at = _rounded(level, u[:size])
    scale = step * np.exp2(exponent)
    centre, near = _rounded(mean / scale, u[size : 2 * size])
    triangle = (root / scale[:, None])[np.tril_indices(size)]
    corner, close = _rounded(triangle, u[2 * size :])
    # A root with a zero on its diagonal has no inverse: the smallest is one step.
    corner[np.cumsum(np.arange(1, size + 1)) - 1] = np.maximum(
        corner[np.cumsum(np.arange(1, size + 1)) - 1], 1
    )
    # Distances are in steps; of an exponent, in octaves of the standard deviation.
    edge = min(float(at.min()), step * float(near.min()), step * float(close.min()))
    return Published(model, step, np.concatenate([exponent, centre, corner]), edge)


def normal_parts(posterior: Posterior) -> tuple[Floats, Floats]:
    """m and C of a normal posterior N(m, C Cᵀ), in the grid's units."""
    params: dict[str, Any] = posterior.distribution.params
    if params.keys() == {"mean", "cov"}:
        return params["mean"], np.linalg.cholesky(params["cov"])
    if params.keys() == {"mean", "sd"} and np.ndim(params["mean"]) == 1:
        return params["mean"], np.diag(params["sd"])
    raise ConfigError(
        f"{posterior.model.name}: no normal posterior, which alone can be published. Fix: compare "
        "posterior.digest, which is exact for conjugate models"
    )


def _rounded(x: Floats, offset: Floats) -> tuple[Ints, Floats]:
    """floor(x + u), and the distance of x + u from the nearest whole number."""
    moved = x + offset
    below = np.floor(moved)
    return below.astype(np.int64), np.minimum(moved - below, below + 1.0 - moved)


def _offsets(model: Model, count: int) -> Floats:
    """Uniform numbers in [0, 1) that follow from the model's settings."""
    seed = hashlib.sha256(_settings(model).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(seed[:16], "big"))).random(count)


def _settings(model: Model) -> str:
    return json.dumps({"name": model.name, **model.settings()}, sort_keys=True, default=str)
