"""Models of atoms by name."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unweave.families.parameters import Parameter
from unweave.models.atoms.likelihood import Named
from unweave.models.atoms.prior import PriorAtoms
from unweave.models.columns import Column, nonnegative

__all__ = ["BetaExponentialAtoms"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BetaExponentialAtoms(PriorAtoms):
    """The paper's model at atoms: records z ≥ 0, exponential with mean θ; prior θ ~ Beta(a, b).

    `beta-exponential` finds the best Beta; this model reaches the exact posterior, forgets bit for
    bit, and needs no passes: 512 atoms from the prior do for up to some thousand records.

    >>> model = BetaExponentialAtoms(a=3, b=3)
    >>> model.posterior(model.factor(model.shard([0.2, 0.7, 0.3]))).mean().round(3)
    np.float64(0.457)
    """

    a: float = 3.0
    b: float = 3.0
    _: KW_ONLY
    atoms: int = 512

    name: ClassVar[str] = "beta-exponential-atoms"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("theta", "beta", self.a, self.b),)

    @property
    def schema(self) -> tuple[Column, ...]:
        return (nonnegative("z"),)

    def log_likelihood(self, theta: Named, record: Named) -> Floats:
        mean = theta["theta"]
        result: Floats = -np.log(mean) - record["z"] / mean
        return result

    def simulate(self, theta: Named, rng: np.random.Generator) -> Floats:
        draws: Floats = theta["theta"] * rng.standard_exponential(len(theta["theta"]))
        return draws[:, None]
