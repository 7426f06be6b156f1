"""What a solver is: cavity + data → the factor an agent wants.

A solver looks at a `LossModel` through `summary`, `loss`, `margin`, and through the protocols
below, each of which is optional and opens one more gradient (see `estimators`). So the next model
is one small file: a prior, a schema, `loss`, and whatever of these it can offer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from unweave.grid import Ints
from unweave.models import Model, Shard
from unweave.rng import Stream

__all__ = ["HasExactGradient", "HasExpectedLoss", "HasNodes", "HasPath", "Solution", "Solver"]


Floats = NDArray[np.float64]


@runtime_checkable
class HasExpectedLoss(Protocol):
    """E_q[L_k] for eta [..., D]: lets the step control compare local free energies."""

    def expected_loss(self, eta: Floats, data: Floats) -> Floats: ...


@runtime_checkable
class HasExactGradient(HasExpectedLoss, Protocol):
    """∇_mu E_q[L_k] in closed form."""

    def exact_gradient(self, eta: Floats, data: Floats) -> Floats: ...


@runtime_checkable
class HasNodes(HasExpectedLoss, Protocol):
    """Quadrature for a one-dimensional θ: nodes θ, s(θ) and weights that sum to 1, all [n, ...]."""

    def nodes(self, eta: Floats) -> tuple[Floats, Floats, Floats]: ...


@runtime_checkable
class HasPath(Protocol):
    """L'(θ), and ∂θ/∂eta at a fixed quantile of q (implicit reparameterisation)."""

    def loss_slope(self, theta: Floats, data: Floats) -> Floats: ...
    def path_derivative(self, eta: Floats, theta: Floats) -> Floats: ...


@dataclass(frozen=True)
class Solution:
    """The factor on the grid, as it is to be stored and later subtracted; `info` is diagnostic."""

    factor: Ints
    changed: bool
    info: dict[str, Any] = field(default_factory=dict)


class Solver(ABC):
    """Turns an agent's shard and the cavity eta − eta_k into its wanted factor."""

    def check(self, model: Model) -> None:
        """Refuse a model that this solver cannot work on (ConfigError), before anything is run."""
        return None

    @abstractmethod
    def solve(
        self,
        model: Model,
        shard: Shard,
        cavity: Ints,
        current: Ints | None,
        stream: Stream,
    ) -> Solution:
        """The wanted factor; `current` is the agent's factor in the token (None: not in it)."""
