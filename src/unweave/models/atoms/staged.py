"""Models whose atoms follow the posterior in stages; the last stage is decoded by polynomials.

The carrier holds the sums of all stages, one after the other, and for every stage the number of
agents in it and the sum of the tags of the ellipsoids that they used. A stage is complete when all
agents of stage 0 are in it with the same tag, the tag of the ellipsoids that follow from the stage
before. So an agent needs no other message than the token, and a token that is not settled is
recognised as such.

A settled sum is a function of the set of records: stage 0 depends on no cavity, its sum gives the
ellipsoids of stage 1, whose sum depends on them and the records alone, and so on. Forgetting
subtracts; where an ellipsoid moves without the forgotten data, everybody evaluates again from that
stage on. The result is that of retraining, bit for bit, on machines with the same libraries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError
from unweave.families import Distribution
from unweave.grid import Grid, Ints
from unweave.models.atoms.base import AtomBase, Given
from unweave.models.atoms.likelihood import BITS, evaluate, log_likelihoods
from unweave.models.atoms.staged_family import StagedFamily
from unweave.models.atoms.stages import (
    PRIOR,
    AtomStage,
    Layout,
    stages_from_bytes,
    stages_to_bytes,
)
from unweave.models.base import LossModel, Model
from unweave.models.data import Data

__all__ = ["StagedAtomModel", "StagedAtoms"]

Floats = NDArray[np.float64]

_LIMIT = 1e-3  # of the hold-out estimate


@dataclass(frozen=True)
class StagedAtoms(AtomBase, LossModel):
    """Atoms that follow the posterior.

    `atoms` is the number of points of the prior (default 1024; 4096 from four parameters on),
    `stages` the largest number of stages, `modes` the largest number of modes. `limit` is the
    hold-out estimate of the KL to the exact posterior above which no posterior is served.
    """

    _: KW_ONLY
    atoms: int | None = None
    stages: int = 8
    modes: int = 1
    limit: float = _LIMIT

    settles: ClassVar[bool] = True
    solver_name: ClassVar[str] = "stages"

    def check_settings(self) -> None:
        super().check_settings()
        for name, low, high in (("atoms", 128, 1 << 16), ("stages", 2, 24), ("modes", 1, 8)):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ConfigError(f"{self.name}: {name} = {value}. Fix: {low} to {high}")
        if not self.limit > 0.0:
            raise ConfigError(f"{self.name}: limit = {self.limit}. Fix: a KL above 0")
        given = tuple(self.bits) if isinstance(self.bits, Sequence) else ()
        if len(given) == self.layout.length and given != self.uniform_bits(max(given)):
            raise ConfigError(f"{self.name}: bits differ between atoms. Fix: give one number")

    def default_bits(self) -> Sequence[int]:
        return self.uniform_bits(BITS)

    def uniform_bits(self, bits: int) -> tuple[int, ...]:
        """The numbers of agents and tags are whole; log-likelihoods have so many bits."""
        found = np.full(self.layout.length, bits)
        for s in range(self.stages):
            start = self.layout.slot(s).start
            found[start - 2 : start] = 0
        return tuple(int(b) for b in found)

    @cached_property
    def layout(self) -> Layout:
        atoms = (1024 if self.space.dim < 4 else 4096) if self.atoms is None else self.atoms
        return Layout(self.space, self.seed, atoms, self.stages, self.modes)

    @property
    def staged(self) -> StagedFamily:
        return cast(StagedFamily, self.family)

    @property
    def prior(self) -> Distribution:
        """The sum of no agents."""
        return Distribution(StagedFamily(self.layout, self.limit), np.zeros(self.layout.length))

    def inside(self, units: Ints) -> NDArray[np.bool_]:
        """Every sum is a step towards a settled one: no solve needs a posterior."""
        return np.ones(units.shape[:-1], dtype=bool)

    def moved(self, after: Ints, before: Ints) -> float:
        """A stage changes all at once: only an equal sum has settled."""
        return 0.0 if np.array_equal(after, before) else np.inf

    def influence(self, units: Ints, factor: Ints) -> float:
        """KL(q ‖ q without the factor), both in the ellipsoids of q."""
        eta = self.decode(units)
        found = self.staged.read(eta)
        if not found.fits or found.problem:
            return np.inf
        slot = self.layout.slot(len(found.stages) - 1)
        values = self.decode(self.grid.subtract(units, factor))[slot]
        values = values[: len(self.layout.points(found.stages[-1]))]
        without = self.staged.cloud_of(found.stages[-1], values)
        cloud = self.cloud(eta)
        used = cloud.weights > 0.0
        gap = cloud.log_density(cloud.u[used]) - without.log_density(cloud.u[used])
        return max(float(cloud.weights[used] @ gap), 0.0)

    def loss(self, theta: Floats, data: Floats) -> Floats:
        """−Σ_n log p(z_n | θ) (or the mean) for θ [..., d] and records [N, C]."""
        points = np.atleast_2d(theta.reshape(-1, self.space.dim))
        at = log_likelihoods(
            self.log_likelihood, self.space, self.columns, self.space.inward(points), data
        )
        total = -(at.mean(axis=0) if self.reduction == "mean" else at.sum(axis=0))
        event = 0 if self.family.event_shape == () else 1
        return np.asarray(total.reshape(theta.shape[: theta.ndim - event]))

    def values(self, data: Data, stage: AtomStage) -> list[int]:
        """The agent's factor at the atoms of one stage."""
        u, bits = self.layout.points(stage), max(self.grid.bits)
        totals = [0] * len(u)
        for rows in data.batches():
            part = evaluate(self.log_likelihood, self.space, self.columns, u, rows, bits)
            totals = [a + b for a, b in zip(totals, part, strict=True)]
        weight = self.weight(data.n)
        return totals if weight == 1 else [round(t * weight) for t in totals]

    # -- private rounds ---------------------------------------------------------------------------

    # A point names the ellipsoids of all stages after the prior. A round's sum has these stages, so
    # a settled sum is that of the plain mode, bit for bit. Whoever reads a sum finds the ellipsoids
    # from it again: a forged point gives a sum that is not settled.

    @property
    def iterates(self) -> bool:
        return True

    def in_rounds(self, agents: int) -> Model:
        self.check_agents(agents)
        return self

    def factor_at(self, point: bytes, data: Data) -> Ints:
        factor = self.grid.zeros()
        for s, stage in enumerate(self.stages_at(point) if data.n else ()):
            self.fill(factor, s, stage, self.values(data, stage))
        return factor

    def stages_at(self, point: bytes) -> tuple[AtomStage, ...]:
        """The stages that a factor has at this point."""
        return (PRIOR, *stages_from_bytes(point, self.layout))

    def fill(self, factor: Ints, s: int, stage: AtomStage, values: Sequence[int]) -> None:
        """Write an agent's values at the atoms of stage s into its factor."""
        slot = self.layout.slot(s)
        factor[slot.start - 2 : slot.start] = 1, stage.tag
        factor[slot.start : slot.start + len(values)] = self.grid.units(values)

    def advance(self, point: bytes, total: Ints, tol: float = 1e-4) -> bytes | None:
        """The stages that follow from the sum; None if it has them all, if it has no next stage, or
        if the agents do not follow: no posterior is served then."""
        stages = self.staged.stages_of(self.decode(total))
        found = stages_to_bytes(stages[1:])
        return None if found == point else found

    def restart(self, point: bytes) -> bytes:
        """The same ellipsoids: where they do not change without some data, one round is enough."""
        return stages_to_bytes(self.stages_at(point)[1:])

    def appraise_round(self, point: bytes, total: Ints) -> dict[str, Any]:
        return self.appraise(total, np.zeros(1))

    # -- the certificate --------------------------------------------------------------------------

    @property
    def frozen_grid(self) -> Grid:
        """Nothing is added up for the estimate: the token's sum holds it."""
        return Grid((0,), ("none",))

    def freeze(self, units: Ints, factor: Ints, data: Data) -> Floats | None:
        return None

    def appraise(self, units: Ints, frozen: Floats) -> dict[str, Any]:
        """The hold-out estimate. Names of ellipsoids are digests of what follows from the sum: a
        certificate states only how many stages there were."""
        found = self.staged.read(self.decode(units))
        if not found.fits:
            return {"kl_to_optimum": None, "method": f"none: {found.problem}"}
        return {
            "kl_to_optimum": found.estimate,
            "method": "half the variance of hold-out residuals of the fitted polynomial",
            "accuracy": "within .05 to 4 times in tests; not below the grid's 1e-8",
            "optimum": "the exact posterior of the remaining data",
            "bound": "no bound",
            "degree": max(one.degree for one in found.fits),
            "stages": len(found.stages),
        }


@dataclass(frozen=True)
class StagedAtomModel(StagedAtoms, Given, registered=False):
    """Any log-likelihood in up to six parameters; the atoms follow the posterior in stages."""

    name: ClassVar[str] = "staged-atoms"
