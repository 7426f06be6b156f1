"""Refuses records that the grid cannot hold or would distort, and finds a fix.

The module checks the sum over a whole network and the effect of rounding on the posterior. Rounding
is measured, not estimated: the exact sums and their rounding error (`ConjugateModel.rounding`) give
the posterior with and without rounding. Two further points, which differ in the last bit of
float64, show whether the posterior can be computed from its sums at all. It cannot if the values of
a column are far from 0 and hardly differ. The fix is a number of bits, or a center and scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DataError, DomainError, GridOverflow, UnweaveError
from unweave.grid import LIMIT
from unweave.models.base import ConjugateModel, Model
from unweave.models.data import chunks
from unweave.models.scaling import Scaled, finer, proposed, written
from unweave.models.shards import Shard

__all__ = [
    "Extremes",
    "Measured",
    "check_shards",
    "extremes_of",
    "measured",
    "remedy",
    "rounding_problem",
    "sum_problem",
    "weighted",
]


def enough_bits(model: Model, fits: Callable[[Model], bool]) -> int | None:
    """The largest number of bits, below the model's, for which `fits` is true, or None."""
    for bits in range(max(model.grid.bits) - 1, -1, -1):
        try:
            candidate = replace(model, bits=bits)
        except UnweaveError:  # the grid is too coarse for the prior
            continue
        if fits(candidate):
            return bits
    return None


def sum_problem(model: Model, units: Sequence[int], whose: str) -> tuple[str, str] | None:
    """Problem and fix if the prior and this sum of factors (in units of the grid, unbounded) leave
    the grid."""
    total = [int(a) + int(b) for a, b in zip(model.eta0, units, strict=True)]
    j = max(range(len(total)), key=lambda i: abs(total[i]))
    if abs(total[j]) <= LIMIT:
        return None
    values = [Fraction(t, 2**q) for t, q in zip(total, model.grid.bits, strict=True)]

    def fits(candidate: Model) -> bool:
        """Whether the candidate's grid holds twice the sum: half of it is room for new records."""
        pairs = zip(values, candidate.grid.bits, strict=True)
        return all(2 * abs(value) * 2**q <= LIMIT for value, q in pairs)

    bits = enough_bits(model, fits)
    q = model.grid.bits[j]
    problem = (
        f"the sum over {whose} leaves the grid of {model.name}: {model.grid.names[j]} is "
        f"{float(abs(values[j])):.3g}, {abs(total[j]) / LIMIT:.3g} times what fits with {q} "
        f"fractional bits (±{2.0 ** (63 - q):.3g} over the whole network)"
    )
    return problem, _fix(model, bits)


def _fix(model: Model, bits: int | None) -> str:
    if isinstance(model, Scaled):
        return "a larger scale for its columns (--scale auto for `unweave init` proposes one)"
    return "fewer records" if bits is None else f"fewer bits (--set bits={bits} would do)"


Floats = NDArray[np.float64]
Extremes = Sequence[tuple[float, float]]  # the smallest and the largest value of every column

MEAN_MOVED = 0.01  # allowed change of a posterior mean, in standard deviations
SD_MOVED = 0.01  # allowed relative change of a standard deviation

_PROBES = 2  # points that differ in the last bit


class Measured(NamedTuple):
    """Factors of some agents: their sum in units of the grid, and its rounding error."""

    units: list[int]
    added: Floats

    def plus(self, other: Measured) -> Measured:
        units = [a + b for a, b in zip(self.units, other.units, strict=True)]
        return Measured(units, self.added + other.added)


Measure = Callable[[ConjugateModel], Measured]


def measured(model: ConjugateModel, shards: Sequence[Shard]) -> Measured:
    """The sum of the shards' factors; GridOverflow if a record does not fit."""
    total = Measured([0] * model.grid.dim, np.zeros(model.grid.dim))
    for shard in shards:
        sums, added = [0] * model.grid.dim, np.zeros(model.grid.dim)
        for rows in chunks(shard.rows):
            sums = [a + int(b) for a, b in zip(sums, model.sums(rows), strict=True)]
            added = added + model.rounding(rows)
        total = total.plus(weighted(model, shard.n, sums, added))
    return total


def weighted(model: ConjugateModel, n: int, sums: Sequence[int], added: Floats) -> Measured:
    """The factor of n records, from their sums."""
    weight = model.weight(n)
    return Measured([round(int(s) * weight) for s in sums], added * float(weight))


def extremes_of(shards: Sequence[Shard]) -> Extremes:
    rows = [shard.rows for shard in shards if shard.n]
    if not rows:
        return []
    low, high = (np.array([f(r, axis=0) for r in rows]) for f in (np.min, np.max))
    return list(zip(low.min(axis=0).tolist(), high.max(axis=0).tolist(), strict=True))


def rounding_problem(model: Model, found: Measured, share: float = 1.0) -> str | None:
    """The result that rounding changes most, if by more than `share` of the allowed change."""
    if not any(model.resolution):
        return None
    if not _fits(model, found):
        return f"{model.name}: the sum leaves the grid"
    rounded = model.decode(model.eta0 + np.array(found.units, dtype=np.int64))
    exact = rounded - found.added
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (_PROBES, len(exact)))
    points = np.stack([rounded, *(exact * (1.0 + signs * np.finfo(np.float64).eps))])
    family = model.family
    try:
        if not (family.margin(exact) > 0.0 and (family.margin(points) > 0.0).all()):
            return f"{model.name}: rounding leaves nothing that can be learned"
        truth, moved = model.marginals(exact), model.marginals(points)
    except (DomainError, np.linalg.LinAlgError):
        return f"{model.name}: rounding leaves nothing that can be learned"
    worst, text = share, None
    for before, after in zip(truth, moved, strict=True):
        sd = float(before.sd())
        if not np.isfinite(sd):
            continue  # the posterior has no such moment
        shift = float(np.max(np.abs(after.mean() - before.mean()))) / sd
        change = float(np.max(np.abs(after.sd() / sd - 1.0)))
        how_far = max(shift / MEAN_MOVED, change / SD_MOVED)
        if not how_far <= worst:
            worst, text = how_far, f"{before.name} by {shift:.2g} of its sd, its sd by {change:.2%}"
    return None if text is None else f"{model.name}: rounding would move {text}"


def _fits(model: Model, found: Measured) -> bool:
    pairs = zip(model.eta0, found.units, strict=True)
    return all(abs(int(prior) + units) <= LIMIT for prior, units in pairs)


def check_shards(model: Model, shards: Sequence[Shard]) -> None:
    """DataError or GridOverflow, with a scale as fix, if the grid cannot hold a record of these
    agents or would distort their common result. Factors whose sum does not fit are not refused
    here, because an erasure may make room."""
    if not isinstance(model, ConjugateModel) or not any(model.resolution):
        return  # nothing is rounded

    def measure(candidate: ConjugateModel) -> Measured:
        return measured(candidate, shards)

    kind: type[UnweaveError] = DataError
    try:
        found = measure(model)
        problem = rounding_problem(model, found) if _fits(model, found) else None
    except GridOverflow as error:
        problem, kind = str(error).partition(". Fix:")[0], GridOverflow
    if problem is not None:
        raise kind(f"{problem}. Fix: {remedy(model, measure, extremes_of(shards))}")


def remedy(model: Model, measure: Measure, extremes: Extremes, share: float = 1.0) -> str:
    """The center and scale with which the grid does not distort the result. `measure` computes the
    factors of the records under a candidate model."""
    for candidate in _candidates(model, extremes) if isinstance(model, Scaled) else ():
        try:
            if rounding_problem(candidate, measure(candidate), share) is None:
                return _written(candidate)
        except OverflowError:  # of the grid, or of float64 in the user's units
            pass
    return "no power of ten as scale does: state center and scale by hand, or more or fewer bits"


def _candidates(model: Scaled, extremes: Extremes) -> Iterator[ConjugateModel]:
    """Models with proposed scales: first for the one column that is farthest from its proposal,
    then for one column more, …; then for all columns, finer or coarser."""
    if not extremes or np.isnan(extremes).any():
        return
    ranges = dict(zip(model.columns, extremes, strict=True))
    # The grid needs no more, and an error shows no more than an order of magnitude.
    centers, scales = proposed(model, ranges, step=10.0)
    distances = {
        name: abs(np.log10(scales[name] / model.scale_of(name)))
        + abs(centers.get(name, 0.0) - model.center_of(name)) / scales[name]
        for name in scales
    }
    order = sorted(scales, key=lambda name: -distances[name])
    sets = [order[: k + 1] for k in range(len(order))]
    tables = [
        (
            {**(model.center or {}), **{n: centers.get(n, 0.0) for n in names}},
            {**(model.scale or {}), **{n: scales[n] for n in names}},
        )
        for names in sets
    ]
    tables += [(centers, finer(scales, by)) for by in (1, 2, 3, -1, -2, -3)]
    for center, scale in tables:
        try:
            candidate = replace(model, center=center, scale=scale)
        except UnweaveError:  # the grid is too coarse for the prior
            continue
        assert isinstance(candidate, ConjugateModel)
        yield candidate


def _written(candidate: Model) -> str:
    assert isinstance(candidate, Scaled)
    parts = [f"scale = {written(candidate.scale)}"] if candidate.scale else []
    if candidate.center:
        parts.append(f"center = {written(candidate.center)}")
    return ", ".join(parts) or "leave center and scale out"
