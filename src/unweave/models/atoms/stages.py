"""Stages: where to put the next atoms, computed from the sum at the last ones.

    stage 0      points of the prior
    stage s + 1  points in one ellipsoid per mode, found from the sum of stage s:
                 temper the weights to an effective sample size, w^(1/T); while T > 1, jump to the
                 maximum of a quadratic fit; snap to the lattice
    the last     begins when T = 1 in every mode: polynomials are fitted there

The rule is a function of the sum alone. All agents compute the same ellipsoids, and anybody who
forgets computes them again without the forgotten data. It uses LAPACK and the C library's
functions: its results are the same on machines with the same build of the libraries.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unweave.errors import WireError
from unweave.families.atoms import ess
from unweave.families.atoms.parameters import Space, sobol
from unweave.lazy import special
from unweave.models.atoms.ellipsoid import SPREAD, Ellipsoid, gaussian_sobol, monomials, terms
from unweave.models.atoms.prior import shift

__all__ = [
    "PRIOR",
    "AtomStage",
    "Layout",
    "log_weights",
    "next_stage",
    "regions",
    "stages_from_bytes",
    "stages_to_bytes",
]

Floats = NDArray[np.float64]

_SHRINK = 0.1  # a stage's ellipsoid is at least this share of the tempered one before it
_MASS = 1e-7  # a mode with less of the mass is dropped
_HALVINGS = 60
_FIX = "the same model and version at all agents"
_FARTHEST = 2000  # half octaves that a scale may be from 1: float64 holds it


class AtomStage(NamedTuple):
    """The ellipsoids of a stage, one per mode; none for the points of the prior."""

    boxes: tuple[Ellipsoid, ...]
    last: bool = False

    @property
    def tag(self) -> int:
        """The names of the ellipsoids, added up; 0 for the prior."""
        return sum((i + 1) * box.tag for i, box in enumerate(self.boxes)) % (1 << 32)


PRIOR = AtomStage(())


def stages_to_bytes(stages: Sequence[AtomStage]) -> bytes:
    """The point of a private round: the stages after the prior, as 64-bit integers. For each: the
    number of ellipsoids, whether it is the last stage, and the ellipsoids."""
    numbers: list[int] = []
    for stage in stages:
        numbers += [len(stage.boxes), int(stage.last)]
        for box in stage.boxes:
            numbers += [*box.scales, *box.shears, *box.centre]
    return struct.pack(f"<{len(numbers)}q", *numbers)


def stages_from_bytes(point: bytes, layout: Layout) -> tuple[AtomStage, ...]:
    """WireError if these bytes are no stages of this layout."""
    d = layout.space.dim
    each = 2 * d + d * (d - 1) // 2
    if len(point) % 8 or len(point) > 8 * (layout.stages - 1) * (2 + layout.modes * each):
        raise WireError(f"a point of {len(point)} bytes holds no stages of this model. Fix: {_FIX}")
    numbers = struct.unpack(f"<{len(point) // 8}q", point)
    stages: list[AtomStage] = []
    at = 0
    while at < len(numbers):
        count, last = (*numbers[at : at + 2], 0)[:2]
        end = at + 2 + count * each
        if not 1 <= count <= layout.modes or last not in (0, 1) or end > len(numbers):
            raise WireError(f"a point holds a stage that this model cannot have. Fix: {_FIX}")
        boxes = [
            Ellipsoid(one[:d], one[d : each - d], one[each - d :])
            for one in (numbers[i : i + each] for i in range(at + 2, end, each))
        ]
        if any(abs(k) > _FARTHEST for box in boxes for k in box.scales) or (
            stages and stages[-1].last
        ):
            raise WireError(f"a point holds a stage that this model cannot have. Fix: {_FIX}")
        stages.append(AtomStage(tuple(boxes), bool(last)))
        at = end
    return tuple(stages)


@dataclass(frozen=True)
class Layout:
    """The atoms of every stage, and their places in the carrier."""

    space: Space
    seed: int
    atoms: int  # of stage 0
    stages: int
    modes: int

    @property
    def inner(self) -> int:
        """Atoms in one ellipsoid: enough for a fit of degree 6 that leaves out a third."""
        return max(512, 3 * terms(self.space.dim, 6))

    @cached_property
    def first(self) -> Floats:
        d = self.space.dim
        return self.space.quantile(sobol(self.atoms, d, shift(self.seed, d)))

    @cached_property
    def z(self) -> Floats:
        d = self.space.dim
        return SPREAD * gaussian_sobol(self.inner, d, shift(self.seed, d, 1))

    def points(self, stage: AtomStage) -> Floats:
        """The atoms u of a stage, one ellipsoid after the other."""
        if not stage.boxes:
            return self.first
        return np.concatenate([box.outward(self.z) for box in stage.boxes])

    def size(self, s: int) -> int:
        """The number of values that stage s may have in the carrier."""
        return self.atoms if s == 0 else self.modes * self.inner

    def slot(self, s: int) -> slice:
        """The values of stage s; the two places before it hold its agents and their tags."""
        start = sum(2 + self.size(i) for i in range(s)) + 2
        return slice(start, start + self.size(s))

    @property
    def length(self) -> int:
        return sum(2 + self.size(s) for s in range(self.stages))

    @cached_property
    def names(self) -> tuple[str, ...]:
        parts: list[str] = []
        for s in range(self.stages):
            parts += [f"agents{s}", f"tags{s}", *(f"stage{s}[{m}]" for m in range(self.size(s)))]
        return tuple(parts)

    @property
    def target(self) -> float:
        """The effective sample size to which weights are tempered: twice a quadratic's terms."""
        return float(max(50, 4 * terms(self.space.dim, 2)))


def regions(u: Floats, boxes: tuple[Ellipsoid, ...]) -> NDArray[np.intp]:
    """The ellipsoid nearest to each point, in its own standard deviations."""
    far = np.stack([(box.inward(u) ** 2).sum(axis=-1) for box in boxes])
    return np.asarray(far.argmin(axis=0))


def log_weights(layout: Layout, stage: AtomStage, u: Floats, values: Floats) -> Floats:
    """log of posterior/proposal at the atoms, up to one constant for all modes; −inf for an atom
    that lies nearer to another mode's ellipsoid."""
    if not stage.boxes:
        return values
    density = values + layout.space.log_prior(u)
    n = layout.inner
    proposal = -0.5 * (layout.z**2).sum(axis=1) / SPREAD**2
    volume = np.repeat([box.log_volume for box in stage.boxes], n)
    result = density - np.tile(proposal, len(stage.boxes)) + volume
    if len(stage.boxes) > 1:
        own = np.repeat(np.arange(len(stage.boxes)), n)
        result = np.where(regions(u, stage.boxes) == own, result, -np.inf)
    return np.asarray(result)


def next_stage(layout: Layout, stage: AtomStage, values: Floats) -> AtomStage | str:
    """The stage after this one, from the complete sum at its atoms; or why there is none."""
    u = layout.points(stage)
    weights = log_weights(layout, stage, u, values)
    if stage.boxes:
        parts = np.split(np.arange(len(u)), len(stage.boxes))
        mass = np.array([special.logsumexp(weights[part]) for part in parts])
        heavy = mass > mass.max() + np.log(_MASS)
        parts = [part for part, keep in zip(parts, heavy, strict=True) if keep]
    else:
        parts = _basins(layout, u, weights)
    found = [_around(layout, u[part], weights[part], values[part]) for part in parts]
    boxes = dict.fromkeys(box for box, _ in found if box is not None)
    if not boxes:
        return "the sum has no maximum with a positive definite curvature"
    return AtomStage(tuple(boxes), all(done for _, done in found))


def _around(
    layout: Layout, u: Floats, weights: Floats, values: Floats
) -> tuple[Ellipsoid | None, bool]:
    """The ellipsoid around one mode, and whether its weights needed no tempering."""
    if int(np.isfinite(weights).sum()) < 2 * terms(layout.space.dim, 2):
        return None, True  # too few atoms are this mode's own: another mode has taken its place
    beta = _tempered(weights, layout.target)
    share = np.asarray(special.softmax(beta * weights))
    mean = share @ u
    cov = (share[:, None] * (u - mean)).T @ (u - mean)
    try:
        if beta < 1.0:
            density = values + layout.space.log_prior(u)
            mean, cov = _jump(u, density, share, mean, cov)
        return Ellipsoid.around(mean, cov), beta == 1.0
    except np.linalg.LinAlgError:
        return None, False


def _tempered(weights: Floats, target: float) -> float:
    """The largest 1/T ≤ 1 at which the effective sample size reaches the target."""
    finite = weights[np.isfinite(weights)]
    if float(ess(finite)) >= target:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if float(ess(middle * finite)) >= target else (low, middle)
    return low


def _jump(
    u: Floats, density: Floats, share: Floats, mean: Floats, cov: Floats
) -> tuple[Floats, Floats]:
    """The Gaussian of a quadratic fit to the log-density under the tempered weights; the tempered
    moments themselves, if the fit has no maximum within three standard deviations."""
    root = np.linalg.cholesky(cov)
    x = np.linalg.solve(root, (u - mean).T).T
    used = share > 1e-9
    scale = np.sqrt(share[used])
    design = monomials(3.0 * x[used], 2)  # 1, x_i, x_i x_j for i ≤ j
    level = density[used] - density[used].max()
    c = np.linalg.lstsq(design * scale[:, None], level * scale, rcond=None)[0]
    d = len(mean)
    slope = c[1 : d + 1]
    curvature = np.zeros((d, d))
    curvature[np.triu_indices(d)] = -c[d + 1 :]
    curvature = curvature + curvature.T
    if not np.linalg.eigvalsh(curvature).min() > 0.0:
        return mean, cov
    step = np.linalg.solve(curvature, slope)
    length = float(np.sqrt(step @ step))
    step = step * min(1.0, 3.0 / max(length, 1e-300))
    narrow = np.linalg.inv(curvature) + (_SHRINK * max(1.0, length)) ** 2 * np.eye(d)
    return mean + root @ step, root @ narrow @ root.T


def _basins(layout: Layout, u: Floats, weights: Floats) -> list[NDArray[np.intp]]:
    """The points of the prior by the mode that an ascent over near neighbours reaches, the modes
    with the largest values first."""
    if layout.modes == 1:
        return [np.arange(len(u))]
    density = weights + layout.space.log_prior(u)
    beta = _tempered(weights, layout.target * layout.modes)
    share = np.asarray(special.softmax(beta * weights))
    used = np.flatnonzero(share > 1e-4 * share.max())
    spread = np.sqrt(share @ (u - share @ u) ** 2)
    x = u[used] / spread
    near = min(len(used), 8 + 4 * layout.space.dim)
    square = (x * x).sum(axis=1)
    far = square[:, None] + square - 2.0 * (x @ x.T)
    neighbours = np.argpartition(far, near - 1, axis=1)[:, :near]
    up = np.take_along_axis(neighbours, density[used][neighbours].argmax(axis=1)[:, None], axis=1)[
        :, 0
    ]
    for _ in range(_HALVINGS):
        up = up[up]
    tops = np.unique(up)
    tops = tops[np.argsort(-density[used][tops], kind="stable")][: layout.modes]
    # Every point belongs to the nearest of the modes that are kept.
    nearest = ((u[:, None, :] / spread - x[tops][None, :, :]) ** 2).sum(axis=-1).argmin(axis=1)
    return [np.flatnonzero(nearest == i) for i in range(len(tops))]
