"""The interface of a solver: cavity + data → the agent's wanted factor.

A solver uses `summary`, `loss` and `margin` of a `LossModel`, and the protocols below. Each
protocol is optional; it enables a gradient (see `estimators`) or the step control. A new model
therefore needs a prior, a schema and `loss`, and may implement any of the protocols.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DataError, DomainError, GridOverflow, SolverError
from unweave.grid import Ints
from unweave.models import Data, Model
from unweave.rng import Stream

__all__ = [
    "Context",
    "HasExactGradient",
    "HasExpectedLoss",
    "HasNodes",
    "HasPath",
    "Solution",
    "Solver",
    "located",
]


Floats = NDArray[np.float64]


@runtime_checkable
class HasExpectedLoss(Protocol):
    """E_q[L_k] for eta [..., D]; the step control needs it to compare local free energies."""

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
class Context:
    """Where a solve takes place: its random stream, the complete passes before it since the last
    change from outside, and the share of all agents that are in the cavity or solve now."""

    stream: Stream
    passes: int = 0
    share: float = 1.0

    @property
    def complete(self) -> bool:
        """Whether the cavity includes all other agents."""
        return self.share == 1.0


@dataclass(frozen=True)
class Solution:
    """The factor on the grid, in the form that is stored and later subtracted.

    `info` holds diagnostics.
    """

    factor: Ints
    info: dict[str, Any] = field(default_factory=dict)


@contextmanager
def located(data: Data, context: Context, overflow: str) -> Iterator[None]:
    """Names agent and pass in the error of a failed solve; `overflow` is the fix if the factor
    leaves the grid."""
    place = f"agent {data.agent!r}, pass {context.passes + 1}"
    try:
        yield
    except (SolverError, DomainError) as error:
        raise SolverError(f"{place}: {error}") from None
    except (DataError, GridOverflow):
        raise SolverError(f"{place}: the factor leaves the grid. Fix: {overflow}") from None


class Solver(ABC):
    """Computes an agent's wanted factor from the agent's data and the cavity eta − eta_k.

    Cavity and factors are points of the model's carrier.
    """

    # Whether the fixed point minimises the free energy, so that a model can estimate the KL to it.
    estimates: ClassVar[bool] = True
    # Whether private rounds find the same result from sums at public points.
    private: ClassVar[bool] = False

    @property
    def stops_after(self) -> int | None:
        """The passes after which the solver stops without having converged; None: it converges."""
        return None

    def check(self, model: Model) -> None:
        """Raise ConfigError if this solver does not work on the model."""
        return None

    def factor_at(self, model: Model, point: bytes, data: Data) -> Ints:
        """The agent's factor in a private round; `model` is the result of `Model.in_rounds`."""
        return model.factor_at(point, data)

    @abstractmethod
    def solve(
        self, model: Model, data: Data, cavity: Ints, current: Ints | None, context: Context
    ) -> Solution:
        """The wanted factor; `current` is the agent's factor in the token (None: no factor)."""
