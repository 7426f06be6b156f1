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
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError, DomainError
from unweave.families import Distribution
from unweave.families.atoms import CloudFamily
from unweave.families.atoms.clouds import Cloud, line_cloud
from unweave.families.atoms.parameters import Space, sobol
from unweave.grid import Grid, Ints
from unweave.lazy import special
from unweave.models.atoms.base import AtomBase, Given
from unweave.models.atoms.ellipsoid import RADIUS, Ellipsoid, Fitted, best_fit, gaussian_sobol
from unweave.models.atoms.likelihood import BITS, evaluate, log_likelihoods
from unweave.models.atoms.prior import shift
from unweave.models.atoms.stages import (
    PRIOR,
    AtomStage,
    Layout,
    log_weights,
    next_stage,
    regions,
    stages_from_bytes,
    stages_to_bytes,
)
from unweave.models.base import LossModel, Model
from unweave.models.data import Data
from unweave.rng import Rng

__all__ = ["Reading", "StagedAtomModel", "StagedAtoms", "StagedFamily"]

Floats = NDArray[np.float64]

_LIMIT = 1e-3  # of the hold-out estimate
_RIM = 4.0  # nats below the largest value, at least, at the rim of an ellipsoid
_OPEN = "the posterior does not end within its ellipsoid: it has long tails or another mode"
_PROPOSAL = 1.25  # standard deviations of the nodes of a decoded posterior
_NODES = {2: 1 << 15, 3: 1 << 15}  # and twice as many for more parameters
_LINE_NODES = 4001


class Reading(NamedTuple):
    """What a sum says: its stages, and the polynomials of the last one; or why there are none."""

    stages: tuple[AtomStage, ...]
    fits: tuple[Fitted, ...] = ()
    problem: str = ""
    fix: str = ""

    @property
    def estimate(self) -> float:
        return max((one.estimate for one in self.fits), default=np.inf)


class StagedFamily(CloudFamily):
    """Posteriors in public ellipsoids. eta is the carrier itself: the ellipsoids follow from it. It
    is inside the domain if its stages are complete and the hold-out estimate is in its
    limit."""

    name: ClassVar[str] = "Polynomial in ellipsoids"
    remedy: ClassVar[str] = "more records, a narrower prior, or AtomModel (atoms of the prior)"

    def __init__(self, layout: Layout, limit: float) -> None:
        super().__init__(layout.space, layout.names)
        self.layout = layout
        self.limit = limit
        self._readings: dict[bytes, Reading] = {}

    # -- reading a sum ----------------------------------------------------------------------------

    def read(self, eta: Floats) -> Reading:
        """The stages and the fits of one point [D]."""
        key = eta.tobytes()
        if key not in self._readings:
            self._readings = {key: self._read(eta)}
        return self._readings[key]

    def _read(self, eta: Floats) -> Reading:
        layout = self.layout
        agents = eta[0]
        if not agents:
            return Reading((PRIOR,))
        stages, following = self._followed(eta)
        if isinstance(following, str):
            return Reading(stages, problem=following)
        s = len(stages)
        if following is not None and s < layout.stages:
            count = eta[layout.slot(s).start - 2]
            problem = f"stage {s} is not complete: {count:.0f} agents of {agents:.0f}"
            return Reading(stages, problem=problem, fix="learn() until the stages are complete")
        if following is not None:
            problem = f"{layout.stages} stages and modes = {layout.modes} were not enough"
            return Reading(stages, problem=problem, fix="larger stages or modes")
        values = eta[layout.slot(s - 1)][: len(layout.points(stages[-1]))]
        return self._checked(Reading(stages, self.fit(stages[-1], values)))

    def stages_of(self, eta: Floats) -> tuple[AtomStage, ...]:
        """The complete stages of a sum, and the one that follows from them, if any."""
        if not eta[0]:
            return (PRIOR,)
        stages, following = self._followed(eta)
        more = isinstance(following, AtomStage) and len(stages) < self.layout.stages
        return (*stages, cast(AtomStage, following)) if more else stages

    def _followed(self, eta: Floats) -> tuple[tuple[AtomStage, ...], AtomStage | str | None]:
        """The complete stages, and the one that follows from their sums; None after the last one, a
        text if there is none."""
        layout, stage, agents = self.layout, PRIOR, eta[0]
        stages: tuple[AtomStage, ...] = ()
        for s in range(layout.stages):
            slot = layout.slot(s)
            count, tags = eta[slot.start - 2 : slot.start]
            if count != agents or tags != agents * stage.tag:
                return stages, stage
            stages = (*stages, stage)
            if stage.last:
                return stages, None
            following = next_stage(layout, stage, eta[slot][: len(layout.points(stage))])
            if isinstance(following, str):
                return stages, following
            stage = following
        return stages, stage

    def _checked(self, found: Reading) -> Reading:
        if found.estimate <= self.limit:
            return found if self._ends(found) else found._replace(problem=_OPEN)
        return found._replace(
            problem=f"the hold-out estimate of the KL is {found.estimate:.2g}, above "
            f"{self.limit:g}: no polynomial of degree 6 fits in the ellipsoid, as with too few "
            "records for the prior"
        )

    def _ends(self, found: Reading) -> bool:
        """Whether the density at radius 5.5 is small: there, few atoms hold the polynomial down."""
        boxes, z = found.stages[-1].boxes, self.layout.z
        rim = z * (RADIUS / np.sqrt((z * z).sum(axis=1, keepdims=True)))
        for i, (box, fitted) in enumerate(zip(boxes, found.fits, strict=True)):
            inner, outer = box.outward(z), box.outward(rim)
            top = (fitted(z) + self.space.log_prior(inner)).max()
            at_rim = (fitted(rim) + self.space.log_prior(outer))[regions(outer, boxes) == i]
            if not (at_rim < top - _RIM).all():
                return False
        return True

    def fit(self, stage: AtomStage, values: Floats) -> tuple[Fitted, ...]:
        u = self.layout.points(stage)
        weights = log_weights(self.layout, stage, u, values)
        top = values.max()
        parts = np.split(np.arange(len(u)), len(stage.boxes))
        return tuple(best_fit(self.layout.z, values[p] - top, weights[p]) for p in parts)

    def let_go(self) -> None:
        super().let_go()
        self._readings.clear()

    # -- the domain -------------------------------------------------------------------------------

    def margin(self, eta: Floats) -> Floats:
        flat = eta.reshape(-1, self.dim)
        inside = [1.0 if not self.read(one).problem else -1.0 for one in flat]
        return np.array(inside).reshape(eta.shape[:-1])

    def violation(self, eta: Floats) -> str:
        return self.read(eta).problem

    def fix(self, eta: Floats) -> str:
        return self.read(eta).fix or self.remedy

    # -- the posterior ----------------------------------------------------------------------------

    def _cloud(self, eta: Floats) -> Cloud:
        found = self.read(eta)
        if found.problem:
            raise DomainError(f"no posterior: {found.problem}. Fix: {self.fix(eta)}")
        if not found.fits:
            return prior_cloud(self.space, self.layout.seed)
        stage = found.stages[-1]
        values = eta[self.layout.slot(len(found.stages) - 1)]
        return self.cloud_of(stage, values[: len(self.layout.points(stage))])

    def cloud_of(self, stage: AtomStage, values: Floats) -> Cloud:
        """The posterior of these sums at the atoms of the last stage."""
        fits, top = self.fit(stage, values), float(values.max())
        return decoded(self.space, self.layout.seed, stage.boxes, fits, top)

    def log_partition(self, eta: Floats) -> Floats:
        """log ∫ p0 exp Σ_k ℓ_k: the evidence."""
        return np.asarray(self.cloud(eta).log_evidence)

    def _kl(self, p: Floats, q: Floats) -> Floats:
        if p.ndim > 1:
            return np.array(
                [self._kl(a, b) for a, b in zip(p, np.broadcast_to(q, p.shape), strict=True)]
            )
        if np.array_equal(p, q):
            return np.asarray(0.0)
        first, second = self.cloud(p), self.cloud(q)
        used = first.weights > 0.0
        u = first.u[used]
        gap = first.log_density(u) - second.log_density(u)
        return np.asarray(first.weights[used] @ gap)

    def _entropy(self, eta: Floats) -> Floats:
        cloud = self.cloud(eta)
        used = cloud.weights > 0.0
        u = cloud.u[used]
        inside = cloud.log_density(u) - self.space.log_slope(u)
        return np.asarray(-(cloud.weights[used] @ inside))

    def mean(self, eta: Floats) -> Floats:
        raise ConfigError(f"{self.name}: no mean parameter. Fix: use the marginals")

    def natural(self, mu: Floats) -> Floats:
        return self.mean(mu)

    def statistics(self, theta: Floats) -> Floats:
        return self.mean(theta)

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, StagedFamily) and self.layout == other.layout
        return same and self.limit == cast(StagedFamily, other).limit

    def __hash__(self) -> int:
        return hash((self.layout, self.limit))

    def __repr__(self) -> str:
        return f"StagedFamily({', '.join(self.space.names)})"


def prior_cloud(space: Space, seed: int) -> Cloud:
    """The prior: Sobol points through it have equal weights."""
    if space.dim == 1:
        low, high = space.quantile(np.array([[1e-12], [1.0 - 1e-12]]))[:, 0]
        return line_cloud(space, lambda u: space.log_prior(u[..., None]), low, high)
    n = 1 << 14
    u = space.quantile(sobol(n, space.dim, shift(seed, space.dim, 3)))

    def draw(rng: Rng, count: int) -> Floats:
        return space.quantile(np.maximum(rng.random((count, space.dim)), 2.0**-54))

    return Cloud(space, u, np.full(n, 1.0 / n), space.log_prior, draw, 0.0)


def decoded(
    space: Space, seed: int, boxes: tuple[Ellipsoid, ...], fits: tuple[Fitted, ...], top: float
) -> Cloud:
    """p0 × exp(polynomial) within radius 5.5 of each ellipsoid; where ellipsoids overlap, a point
    belongs to the nearer one."""
    d = space.dim

    def log_target(i: int, z: Floats, u: Floats) -> Floats:
        value = fits[i](z) + space.log_prior(u)
        inside = (z * z).sum(axis=1) <= RADIUS**2
        if len(boxes) > 1:
            inside &= regions(u, boxes) == i
        return np.where(inside, value, -np.inf)

    def log_joint(u: Floats) -> Floats:
        flat = u.reshape(-1, d)
        nearest = regions(flat, boxes)
        result = np.full(len(flat), -np.inf)
        for i, box in enumerate(boxes):
            own = nearest == i
            result[own] = log_target(i, box.inward(flat[own]), flat[own])
        return result.reshape(u.shape[:-1])

    if d == 1 and len(boxes) == 1:
        ends = boxes[0].outward(np.array([[-RADIUS], [RADIUS]]))[:, 0]
        line = line_cloud(space, lambda u: log_joint(u[..., None]), ends[0], ends[1])
        return replace(line, log_evidence=line.log_evidence + top)

    n = _NODES.get(d, 1 << 16) if d > 1 else _LINE_NODES
    z = _PROPOSAL * gaussian_sobol(n, d, shift(seed, d, 2))
    log_g = -0.5 * (z * z).sum(axis=1) / _PROPOSAL**2
    log_g -= d * np.log(_PROPOSAL * np.sqrt(2.0 * np.pi))
    nodes = [box.outward(z) for box in boxes]
    weights = [log_target(i, z, u) - log_g + boxes[i].log_volume for i, u in enumerate(nodes)]
    together = np.concatenate(weights)
    log_z = float(special.logsumexp(together)) - np.log(n)
    probability = np.exp(together - log_z) / n
    masses = [float(special.logsumexp(w)) for w in weights]
    bounds = [float(w.max()) + 0.2 for w in weights]

    def draw(rng: Rng, count: int) -> Floats:
        """Rejection from the Gaussian of the nodes; no ratio was larger at a node."""
        share = np.cumsum(np.asarray(special.softmax(masses)))
        which = np.minimum(np.searchsorted(share, rng.random((count,))), len(boxes) - 1)
        result = np.empty((count, d))
        todo = np.arange(count)
        while todo.size:
            proposed = _PROPOSAL * rng.standard_normal((todo.size, d))
            level = np.log1p(-rng.random((todo.size,)))
            accepted = np.zeros(todo.size, dtype=bool)
            for i, box in enumerate(boxes):
                own = which[todo] == i
                at = proposed[own]
                u = box.outward(at)
                log_p = -0.5 * (at * at).sum(axis=1) / _PROPOSAL**2
                log_p -= d * np.log(_PROPOSAL * np.sqrt(2.0 * np.pi))
                ok = level[own] < log_target(i, at, u) - log_p + box.log_volume - bounds[i]
                result[todo[own]] = u
                accepted[own] = ok
            todo = todo[~accepted]
        return result

    return Cloud(
        space,
        np.concatenate(nodes),
        probability,
        lambda u: log_joint(u) - log_z,
        draw,
        log_z + top,
    )


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
