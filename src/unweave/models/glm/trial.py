"""How private rounds find the best normal distribution, from published sums alone.

A round publishes, at a trial q = (h, P) that all agents know, the sum of their factors: with the
prior it is the next natural-gradient iterate

    G(q) = (h_0, P_0) + Σ_k (H_k m − g_k, H_k)/alpha,     r = G(q) − q

and the free energy F(q) = Σ_k E_q[L_k]/alpha + KL(q ‖ prior) up to a constant. The optimum has
r = 0. The next trial combines the last ones (Anderson acceleration): with the changes (Δq_i, Δr_i)
between accepted trials, and γ that minimises ‖r − Σ γ_i Δr_i‖ in the Fisher metric of q, it is

    q + r − Σ γ_i (Δq_i + Δr_i)

Changes that were made far away tell little about the slope here: those with a Δr that is long, and
ten times as long as r, are dropped, with all before them.

A trial is accepted if F falls. Otherwise the changes are dropped, and the plain step q + r is
tried; then a shorter one, q + t r. Every rejected trial costs a round.

The state of this rule is a *point*: bytes that the token carries. A peer wrote them, so they
are checked. Whatever a forged point says, the final sum tells how far its q is from the optimum.

A sum at a chosen q can single out a record: if |m| is large, nearly all records of a logistic model
have weight 0, and one next to the plane xᵀm = 0 has not. So no agent evaluates a trial whose mean
lies beyond the prior's mass (`reach`). Honest trials lie far inside it; how much the limit hides
depends on the prior.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DomainError, WireError
from unweave.families.numerics.packed import pack, packed_size, unpack
from unweave.families.point import NormalPoint
from unweave.lazy import special

__all__ = ["MEMORY", "Descent", "RoundSums", "TrialPoint"]

Floats = NDArray[np.float64]

MEMORY = 6  # changes; 3 needs more rounds for wide priors, 8 no fewer
_FAR = 12.0  # the squared length in the Fisher metric from which a change is far
_STALE = 10.0  # lengths of the residual
_MOST_ROUNDS = 1000
_SHORTEST = 1e-7  # of a shortened step
_RESOLVED = 1e-11  # relative size of a change of F that float64 resolves
_SAFETY = 0.1  # the estimate that ends learning, as a share of the tolerance
_NEAR = 0.1  # the estimated KL below which the agents add what the bound needs
_WIDEST = 0.5  # a trial has at least this share of the prior's precision, in every direction
_BEYOND = 1e-6  # prior probability of the means that are too far out for a trial

# Magic, changes, flags, agents, rounds, step, energy.
_HEAD = struct.Struct("<4sHHIIdd")
_MAGIC = b"nrm1"
_FIX = "the same model and version at all agents"
_PLAIN, _EVALUATED, _BOUND, _BASED = 1, 2, 4, 8


class RoundSums(NamedTuple):
    """What a complete sum says: the iterate G [C] with its prior, the loss, and the number of
    agents in it. The loss is infinite if an agent could not evaluate the trial."""

    wanted: Floats
    loss: float
    agents: int


class Base(NamedTuple):
    """The last accepted trial: q, its step r, F, and the agents in its sum. `evaluated`: r is from
    a sum at q, and not from one at the prior's mean without spread."""

    q: Floats
    residual: Floats
    energy: float
    agents: int
    evaluated: bool


Start = Callable[[Floats, Floats, Floats], tuple[Floats, Floats] | None]
"""A mean and the curvature there, from the mean of the first round and its Σ g and Σ H."""


def _no_changes() -> NDArray[np.float32]:
    return np.zeros((0, 2, 0), np.float32)


@dataclass(frozen=True, eq=False)
class TrialPoint:
    """The q of a round, and how it was found: from `base`, if there is one, along its residual
    (`plain`), shortened to the share t, or from the changes (Δq, Δr) [n, 2, C], oldest first.
    `bound`: the agents add their least curvatures."""

    q: Floats
    base: Base | None = None
    changes: NDArray[np.float32] = field(default_factory=_no_changes)
    t: float = 1.0
    rounds: int = 1
    plain: bool = True
    bound: bool = False

    def to_bytes(self) -> bytes:
        base = self.base or Base(self.q, self.q, math.inf, 0, False)
        flags = _PLAIN * self.plain | _EVALUATED * base.evaluated | _BOUND * self.bound
        flags |= _BASED * (self.base is not None)
        vectors = [self.q] if self.base is None else [self.q, base.q, base.residual]
        numbers = len(self.changes), flags, base.agents, self.rounds, self.t, base.energy
        parts = [vector.astype("<f8").tobytes() for vector in vectors]
        changes = self.changes.astype("<f4").tobytes()
        return b"".join([_HEAD.pack(_MAGIC, *numbers), *parts, changes])

    @classmethod
    def parse(cls, point: bytes, size: int) -> TrialPoint:
        """WireError if these bytes are no trial of `size` parameters."""
        length = size + packed_size(size)
        if len(point) < _HEAD.size:
            raise WireError(
                f"a point of {len(point)} bytes is no trial: it has no head. Fix: {_FIX}"
            )
        magic, count, flags, agents, rounds, t, energy = _HEAD.unpack_from(point)
        if magic != _MAGIC or flags >= 2 * _BASED or count > MEMORY:
            raise WireError(
                f"a point has another form than the trials of this version. Fix: {_FIX}"
            )
        vectors = 3 if flags & _BASED else 1
        if len(point) != _HEAD.size + length * (8 * vectors + 8 * count):
            raise WireError(
                f"a point of {len(point)} bytes is no trial of {size} parameters. Fix: {_FIX}"
            )
        body = np.frombuffer(point, "<f8", vectors * length, _HEAD.size).astype(np.float64)
        at = _HEAD.size + body.nbytes
        changes = np.frombuffer(point, "<f4", 2 * count * length, at).astype(np.float32)
        if not (np.isfinite(body).all() and np.isfinite(changes).all() and 0.0 < t <= 1.0):
            raise WireError(
                f"a point holds a number that is not finite, or no step from 0 to 1. Fix: {_FIX}"
            )
        q, *rest = body.reshape(vectors, length)
        if math.isfinite(energy) != bool(rest):
            raise WireError(f"a point holds no free energy, or one without its trial. Fix: {_FIX}")
        base = Base(rest[0], rest[1], energy, agents, bool(flags & _EVALUATED)) if rest else None
        plain, bound = bool(flags & _PLAIN), bool(flags & _BOUND)
        return cls(q, base, changes.reshape(count, 2, length), t, rounds, plain, bound)

    def again(self) -> TrialPoint:
        """The same q without a past, for other data."""
        return TrialPoint(self.q)


@dataclass(frozen=True, eq=False)
class Descent:
    """The rule. `convex`: F falls along r; otherwise a smaller r is progress, too, because a
    clipped curvature makes G no gradient of F. `bounded`: the final sum has the least curvatures,
    for a bound. `start`: a better first trial than Newton's step, if the model knows one
    (`GLM.start`)."""

    mean: Floats
    precision: Floats
    convex: bool
    bounded: bool
    start: Start | None = None

    @property
    def size(self) -> int:
        return len(self.mean)

    @cached_property
    def reach(self) -> float:
        """The largest squared distance of a trial's mean from the prior's, in its precision."""
        return float(special.chdtri(self.size, _BEYOND))

    def normal(self, q: Floats) -> NormalPoint | None:
        """q as a distribution; None if it is none, or wider or farther out than any trial of this
        rule."""
        found = self.proper(q)
        if found is None:
            return None
        off = found.mean - self.mean
        return found if float(off @ self.precision @ off) <= self.reach else None

    def proper(self, q: Floats) -> NormalPoint | None:
        """q as a distribution, wherever its mean is."""
        h, precision = q[: self.size], unpack(q[self.size :], self.size)
        try:
            np.linalg.cholesky(precision - _WIDEST * self.precision)
            found = NormalPoint(h, precision)
            return found if np.isfinite(found.mean).all() else None
        except (np.linalg.LinAlgError, DomainError):
            return None

    def length(self, q: NormalPoint, step: Floats) -> float:
        """The squared length of a step in the Fisher metric of q."""
        return q.length(step[: self.size], unpack(step[self.size :], self.size))

    def energy(self, q: NormalPoint, loss: float) -> float:
        """F(q) up to a constant of the prior."""
        off = q.mean - self.mean
        spread = float(np.einsum("ij,ij->", self.precision, q.cov))
        return loss + 0.5 * (spread + float(off @ self.precision @ off) + q.log_det)

    # -- the next point ---------------------------------------------------------------------------

    def advance(self, point: bytes, sums: RoundSums, tol: float) -> bytes | None:
        """The point after this one, from the sum at it. None: the sum is final, because its
        estimated KL to the optimum is within `tol`, or because no step leads farther."""
        with np.errstate(all="ignore"):  # a forged point may hold any finite numbers
            if not point:
                found = self.first(sums)
                return None if found is None else found.to_bytes()
            trial = TrialPoint.parse(point, self.size)
            if trial.rounds >= _MOST_ROUNDS:
                return None
            q = self.normal(trial.q)
            if q is not None and math.isfinite(sums.loss) and self.accepted(trial, q, sums):
                found = self.onward(trial, q, sums, tol)
            elif trial.base is None:
                return b""  # learning cannot go on from here with other data: it starts again
            else:
                found = self.back(trial, trial.base, q, sums)
            return None if found is None else found.to_bytes()

    def first(self, sums: RoundSums) -> TrialPoint | None:
        """Newton's step, or a better one, after the round at the prior's mean without spread. Its
        base is the normal distribution there with the curvature H + P_0, whose F under the
        quadratic that was found is the loss + ½ D + ½ log det P. None: the loss is infinite even
        there."""
        start = self.proper(sums.wanted)
        if start is None or not math.isfinite(sums.loss):
            return None
        base = np.concatenate([start.precision @ self.mean, sums.wanted[self.size :]])
        energy = sums.loss + 0.5 * (self.size + start.log_det)
        found = Base(base, sums.wanted - base, energy, sums.agents, evaluated=False)
        better = self.started(sums.wanted[: self.size], start.precision)
        return TrialPoint(sums.wanted if better is None else better, found, rounds=2)

    def started(self, h: Floats, precision: Floats) -> Floats | None:
        """The trial of `start`."""
        if self.start is None:
            return None
        found = self.start(self.mean, precision @ self.mean - h, precision - self.precision)
        if found is None:
            return None
        mean, there = found[0], self.precision + found[1]
        q = np.concatenate([there @ mean, pack(there)])
        return q if np.isfinite(q).all() and self.normal(q) is not None else None

    def accepted(self, trial: TrialPoint, q: NormalPoint, sums: RoundSums) -> bool:
        base = trial.base
        at = None if base is None else self.normal(base.q)
        if base is None or at is None or base.agents != sums.agents:
            return True  # nothing that F could be compared with
        energy = self.energy(q, sums.loss)
        if energy < base.energy or not base.evaluated:
            return energy < base.energy
        before, now = self.length(at, base.residual), self.length(q, sums.wanted - trial.q)
        # Below the resolution of F a comparison would compare rounding errors.
        coarse = before < _RESOLVED * (1.0 + abs(energy)) + 2.0**-22 * (1 + sums.agents)
        return now < (4.0 if coarse else 0.0 if self.convex else 0.9) * before

    def onward(
        self, trial: TrialPoint, q: NormalPoint, sums: RoundSums, tol: float
    ) -> TrialPoint | None:
        """From an accepted trial; None if it is good enough."""
        residual = sums.wanted - trial.q
        changes = self.near(q, residual, self.changed(trial, residual, sums))
        mixed = self.mixed(q, trial.q, residual, changes)
        there = sums.wanted if mixed is None else mixed
        estimate = 0.5 * max(self.length(q, residual), self.length(q, there - trial.q))
        if estimate <= _SAFETY * tol and (trial.bound or not self.bounded):
            return None
        return TrialPoint(
            there,
            Base(trial.q, residual, self.energy(q, sums.loss), sums.agents, evaluated=True),
            changes if mixed is not None else changes[:0],
            rounds=trial.rounds + 1,
            plain=mixed is None,
            bound=estimate <= max(_NEAR, tol),
        )

    def changed(self, trial: TrialPoint, residual: Floats, sums: RoundSums) -> NDArray[np.float32]:
        """The changes up to an accepted trial."""
        base = trial.base
        if base is None or not base.evaluated or base.agents != sums.agents:
            return _no_changes()
        newest = np.stack([trial.q - base.q, residual - base.residual]).astype(np.float32)
        if not np.isfinite(newest).all():
            return _no_changes()
        return np.concatenate([trial.changes, newest[None]])[-MEMORY:]

    def near(
        self, q: NormalPoint, residual: Floats, changes: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """The changes that tell the slope here: the newest, and those after the last far one."""
        most = max(_FAR, _STALE**2 * self.length(q, residual))
        lengths = np.array([self.length(q, one) for one in changes[:-1, 1].astype(np.float64)])
        far = np.flatnonzero(~(lengths <= most))
        return changes[far[-1] + 1 :] if len(far) else changes

    def mixed(
        self, q: NormalPoint, at: Floats, residual: Floats, changes: NDArray[np.float32]
    ) -> Floats | None:
        """The Anderson step; None without changes, or if it leads to no distribution."""
        if not len(changes):
            return None
        moved, turned = np.moveaxis(changes.astype(np.float64), 1, 0)
        columns = np.stack([self.whitened(q, one) for one in turned], axis=1)
        try:
            weights = np.linalg.lstsq(columns, self.whitened(q, residual), rcond=1e-10)[0]
        except np.linalg.LinAlgError:
            return None
        there: Floats = at + residual - weights @ (moved + turned)
        return there if np.isfinite(there).all() and self.normal(there) is not None else None

    def whitened(self, q: NormalPoint, step: Floats) -> Floats:
        """A vector whose length is that of the step in the Fisher metric of q."""
        dh, dp = step[: self.size], unpack(step[self.size :], self.size)
        half = np.linalg.solve(q.factor, np.column_stack([dh - dp @ q.mean, dp]))
        turned = np.linalg.solve(q.factor, half[:, 1:].T)
        return np.concatenate([half[:, 0], pack(turned) * np.sqrt(_halves(self.size))])

    def back(
        self, trial: TrialPoint, base: Base, q: NormalPoint | None, sums: RoundSums
    ) -> TrialPoint | None:
        """From a rejected trial; None if no shorter step is left."""
        t = trial.t * self.shorter(trial, base, q, sums) if trial.plain else 1.0
        if t < _SHORTEST:
            return None
        there, rounds = base.q + t * base.residual, trial.rounds + 1
        return TrialPoint(there, base, trial.changes[:0], t, rounds, plain=True, bound=trial.bound)

    def shorter(
        self, trial: TrialPoint, base: Base, q: NormalPoint | None, sums: RoundSums
    ) -> float:
        """The share of a step to try next: a half, but a tenth after a step far beyond reason: the
        parabola through F and its slope at the base, and F here, is smallest before a tenth."""
        at = self.normal(base.q)
        if q is None or at is None or not math.isfinite(sums.loss):
            return 0.1
        slope = -trial.t * self.length(at, base.residual)
        rise = self.energy(q, sums.loss) - base.energy - slope
        return 0.1 if -0.5 * slope < 0.1 * rise else 0.5


def _halves(size: int) -> Floats:
    """½ on the diagonal and 1 off it, in packed order: ½ tr(A²) of a symmetric A."""
    rows, columns = np.triu_indices(size)
    return np.where(rows == columns, 0.5, 1.0)
