"""Atoms drawn once from the prior, or in a declared box: a finite exponential family.

    ℓ_k[m] = (1/alpha) Σ_n log p(z_n | θ_m),   q(θ_m) ∝ (p0/r)(θ_m) exp Σ_k ℓ_k[m]

This is enough for one parameter and up to some thousand records (beta-exponential, 512 atoms: a
thousand records to 1e-3 sd), and for more parameters with few records. Otherwise use stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError
from unweave.families import Distribution
from unweave.families.atoms import AtomFamily
from unweave.families.atoms.parameters import sobol
from unweave.models.atoms.base import AtomBase, Given
from unweave.models.atoms.likelihood import evaluate
from unweave.models.base import ConjugateModel
from unweave.rng import Purpose, derive

__all__ = ["AtomModel", "PriorAtoms", "shift"]

Floats = NDArray[np.float64]

_MOST_ATOMS = 1 << 18
# Effective atoms below which no posterior is served. With one parameter a spline passes through
# the atoms: a few under the posterior are enough for a smooth log-likelihood. With more
# parameters, means would be wrong by more than about a twentieth of an sd.
_LEAST_ONE, _LEAST_MANY = 4.0, 100.0


def shift(seed: int, dim: int, *parts: int) -> NDArray[np.uint64]:
    """The digital shift of Sobol points, from a model's seed."""
    keys = [derive(seed, Purpose.ATOMS, *parts, j) >> 32 for j in range(dim)]
    return np.array(keys, dtype=np.uint64)


@dataclass(frozen=True)
class PriorAtoms(AtomBase, ConjugateModel):
    """`atoms` points of a Sobol sequence through the prior, or in `box`: lowest and highest value
    of each parameter, in the order of the parameters. `least` is the effective number of atoms
    below which no posterior is served (default: 4 for one parameter, 100 for more)."""

    _: KW_ONLY
    atoms: int = 1024
    box: Sequence[float] | None = None
    least: float | None = None

    def check_settings(self) -> None:
        super().check_settings()
        if not 16 <= self.atoms <= _MOST_ATOMS:
            raise ConfigError(f"{self.name}: atoms = {self.atoms}. Fix: 16 to {_MOST_ATOMS}")
        if self.least is not None and not 1.0 <= self.least < self.atoms:
            raise ConfigError(f"{self.name}: least = {self.least}. Fix: from 1 to below atoms")
        if isinstance(self.bits, Sequence) and len(set(self.bits)) > 1:
            raise ConfigError(f"{self.name}: bits differ between atoms. Fix: give one number")
        if self.box is not None:
            self._check_box(np.asarray(self.box, dtype=np.float64))

    def _check_box(self, ends: Floats) -> None:
        d = self.space.dim
        if ends.shape != (2 * d,):
            raise ConfigError(f"{self.name}: box has {ends.size} numbers. Fix: low and high of {d}")
        low, high = ends[::2], ends[1::2]
        inside = self.space.supported(np.stack([low, high])).all()
        if not inside or not (low < high).all():
            raise ConfigError(
                f"{self.name}: box {list(ends)}. Fix: low below high, both inside the prior's "
                "support"
            )

    @property
    def prior(self) -> Distribution:
        return Distribution(self.atom_family, self._drawn[1])

    @cached_property
    def atom_family(self) -> AtomFamily:
        least = _LEAST_ONE if self.space.dim == 1 else _LEAST_MANY
        limit = min(least, 0.5 * self.atoms) if self.least is None else self.least
        return AtomFamily(self.space, *self._drawn, limit)

    @cached_property
    def _drawn(self) -> tuple[Floats, Floats]:
        """The atoms u [M, d] and log p0/r at them, up to a constant."""
        points = sobol(self.atoms, self.space.dim, shift(self.seed, self.space.dim))
        if self.box is None:
            return self.space.quantile(points), np.zeros(self.atoms)
        ends = self.space.inward(np.asarray(self.box, dtype=np.float64).reshape(-1, 2).T)
        u = ends[0] + (ends[1] - ends[0]) * points
        log_prior = self.space.log_prior(u)
        return u, log_prior - log_prior.max()

    def sums(self, rows: Floats) -> Sequence[int]:
        u = self._drawn[0]
        bits = self.grid.bits[0]
        return evaluate(self.log_likelihood, self.space, self.columns, u, rows, bits)


@dataclass(frozen=True)
class AtomModel(PriorAtoms, Given, registered=False):
    """Any log-likelihood in up to six parameters, at atoms drawn from the prior.

    >>> import numpy as np
    >>> model = AtomModel(
    ...     lambda theta, record: -np.log(theta["mean"]) - record["z"] / theta["mean"],
    ...     params={"mean": "beta(3, 3)"},
    ...     records={"z": "nonnegative"},
    ...     atoms=512,
    ... )
    >>> model.posterior(model.factor(model.shard([0.2, 0.7, 0.3]))).mean().round(3)
    np.float64(0.457)
    """

    name: ClassVar[str] = "atoms"
