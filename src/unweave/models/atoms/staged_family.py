"""The family of staged atoms: what a complete sum says, and its last stage as a posterior."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError, DomainError
from unweave.families.atoms import CloudFamily
from unweave.families.atoms.clouds import Cloud, line_cloud
from unweave.families.atoms.parameters import Space, sobol
from unweave.lazy import special
from unweave.models.atoms.ellipsoid import RADIUS, Ellipsoid, Fitted, best_fit, gaussian_sobol
from unweave.models.atoms.prior import shift
from unweave.models.atoms.stages import (
    PRIOR,
    AtomStage,
    Layout,
    log_weights,
    next_stage,
    regions,
)
from unweave.rng import Rng

__all__ = ["Reading", "StagedFamily"]

Floats = NDArray[np.float64]

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
