"""The way of private rounds to the best normal distribution, from published sums alone.

A round publishes, at a trial q = (h, P) that all agents know, the sum of their factors: with the
prior it is the next natural-gradient iterate

    G(q) = (h_0, P_0) + Σ_k (H_k m − g_k, H_k)/alpha,     r = G(q) − q

and the free energy F(q) = Σ_k E_q[L_k]/alpha + KL(q ‖ prior) up to a constant. The optimum has
r = 0. The next trial combines the last ones (Anderson acceleration): with the changes (Δq_i, Δr_i)
between accepted trials, and γ that minimises ‖r − Σ γ_i Δr_i‖ in the Fisher metric of q, it is

    q + r − Σ γ_i (Δq_i + Δr_i)

A trial is accepted if F falls. Otherwise the changes are dropped, and the plain step q + r is
tried; then a shorter one, q + t r. Every rejected trial costs a round.

The state of this rule is a *point*: bytes that ride on the token. A peer wrote them, so they are
checked. Whatever a forged point says, the final sum tells how far its q is from the optimum.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DomainError, WireError
from unweave.families.numerics.packed import pack, packed_size, unpack
from unweave.families.point import NormalPoint

__all__ = ["MEMORY", "Descent", "RoundSums", "Trial"]

Floats = NDArray[np.float64]

MEMORY = 6  # changes; 3 needs more rounds for wide priors, 8 no fewer
_MOST_ROUNDS = 1000
_SHORTEST = 1e-7  # of a shortened step
_RESOLVED = 1e-11  # relative size of a change of F that float64 resolves
_SAFETY = 0.1  # the estimate that ends learning, as a share of the tolerance
_NEAR = 0.1  # the estimated KL below which the agents add what the bound needs
_WIDEST = 0.5  # a trial has at least this share of the prior's precision, in every direction

# Magic, changes, flags, agents, rounds, step, energy.
_HEAD = struct.Struct("<4sHHIIdd")
_MAGIC = b"nrm1"
_PLAIN, _EVALUATED, _BOUND, _BASED = 1, 2, 4, 8


class RoundSums(NamedTuple):
    """What a complete sum says: the iterate G [C] with its prior, the loss, and the number of
    agents in it. The loss is infinite if an agent could not evaluate the trial."""

    wanted: Floats
    loss: float
    agents: int


@dataclass(frozen=True, eq=False)
class Trial:
    """The q of a round, and how it was found: by a step of length `t` from `base`, the last
    accepted trial, where r was `residual` and F `energy`. `plain`: along the residual. `evaluated`:
    `residual` is from a sum at `base`. `changes` are rows (Δq, Δr) [n, 2, C], oldest first."""

    q: Floats
    base: Floats | None = None
    residual: Floats | None = None
    changes: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 2, 0), np.float32))
    energy: float = math.inf
    t: float = 1.0
    agents: int = 0
    rounds: int = 1
    plain: bool = True
    evaluated: bool = False
    bound: bool = False  # the agents add their least curvatures

    def to_bytes(self) -> bytes:
        flags = _PLAIN * self.plain | _EVALUATED * self.evaluated | _BOUND * self.bound
        vectors = [self.q]
        if self.base is not None and self.residual is not None:
            flags |= _BASED
            vectors += [self.base, self.residual]
        head = _HEAD.pack(
            _MAGIC, len(self.changes), flags, self.agents, self.rounds, self.t, self.energy
        )
        parts = [vector.astype("<f8").tobytes() for vector in vectors]
        return b"".join([head, *parts, self.changes.astype("<f4").tobytes()])

    @classmethod
    def parse(cls, point: bytes, size: int) -> Trial:
        """WireError if these bytes are no trial of `size` parameters."""
        length = size + packed_size(size)
        if len(point) < _HEAD.size:
            raise WireError(f"a point of {len(point)} bytes is no trial: it has no head")
        magic, count, flags, agents, rounds, t, energy = _HEAD.unpack_from(point)
        if magic != _MAGIC or flags >> 4 or count > MEMORY:
            raise WireError("a point has another form than the trials of this version")
        vectors = 3 if flags & _BASED else 1
        if len(point) != _HEAD.size + length * (8 * vectors + 8 * count):
            raise WireError(f"a point of {len(point)} bytes is no trial of {size} parameters")
        body = np.frombuffer(point, "<f8", vectors * length, _HEAD.size).astype(np.float64)
        at = _HEAD.size + body.nbytes
        changes = np.frombuffer(point, "<f4", 2 * count * length, at).astype(np.float32)
        if not (np.isfinite(body).all() and np.isfinite(changes).all() and 0.0 < t <= 1.0):
            raise WireError("a point holds a number that is not finite, or no step from 0 to 1")
        if math.isnan(energy) or energy == -math.inf:
            raise WireError("a point holds no free energy")
        parts = [*body.reshape(vectors, length), None, None]
        return cls(
            parts[0],
            parts[1],
            parts[2],
            changes.reshape(count, 2, length),
            energy,
            t,
            agents,
            rounds,
            bool(flags & _PLAIN),
            bool(flags & _EVALUATED),
            bool(flags & _BOUND),
        )

    def again(self) -> Trial:
        """The same q without a past, for other data."""
        return Trial(self.q)


@dataclass(frozen=True, eq=False)
class Descent:
    """The rule. `convex`: F falls along r; otherwise a smaller r is progress, too, because a
    clipped curvature makes G no gradient of F. `bounded`: the final sum has the least curvatures,
    for a bound."""

    mean: Floats
    precision: Floats
    convex: bool
    bounded: bool

    @property
    def size(self) -> int:
        return len(self.mean)

    def normal(self, q: Floats) -> NormalPoint | None:
        """q as a distribution; None if it is none, or wider than any trial of this rule."""
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
            trial = Trial.parse(point, self.size)
            if trial.rounds >= _MOST_ROUNDS:
                return None
            q = self.normal(trial.q)
            if q is not None and math.isfinite(sums.loss) and self.accepted(trial, q, sums):
                found = self.onward(trial, q, sums, tol)
            elif trial.base is None:
                return b""  # learning cannot go on from here with other data: it starts again
            else:
                found = self.back(trial, q, sums)
            return None if found is None else found.to_bytes()

    def first(self, sums: RoundSums) -> Trial | None:
        """Newton's step, after the round at the prior's mean without spread. Its base is the normal
        distribution there with the curvature H + P_0, whose F under the quadratic that was found is
        the loss + ½ D + ½ log det P. None: the loss is infinite even there."""
        start = self.normal(sums.wanted)
        if start is None or not math.isfinite(sums.loss):
            return None
        base = np.concatenate([start.precision @ self.mean, sums.wanted[self.size :]])
        energy = sums.loss + 0.5 * (self.size + start.log_det)
        step = sums.wanted - base
        return Trial(sums.wanted, base, step, energy=energy, agents=sums.agents, rounds=2)

    def accepted(self, trial: Trial, q: NormalPoint, sums: RoundSums) -> bool:
        if trial.base is None or trial.residual is None or trial.agents != sums.agents:
            return True  # nothing that F could be compared with
        base = self.normal(trial.base)
        if base is None:
            return True
        energy, before = self.energy(q, sums.loss), self.length(base, trial.residual)
        if energy < trial.energy:
            return True
        if not trial.evaluated:
            return False
        now = self.length(q, sums.wanted - trial.q)
        # Below the resolution of F a comparison would compare rounding errors.
        coarse = before < _RESOLVED * (1.0 + abs(energy)) + 2.0**-22 * (1 + sums.agents)
        return now < (4.0 if coarse else 0.0 if self.convex else 0.9) * before

    def onward(self, trial: Trial, q: NormalPoint, sums: RoundSums, tol: float) -> Trial | None:
        """From an accepted trial; None if it is good enough."""
        residual = sums.wanted - trial.q
        changes = np.zeros((0, 2, len(residual)), np.float32)
        if trial.evaluated and trial.base is not None and trial.agents == sums.agents:
            newest = np.stack([trial.q - trial.base, residual - trial.residual])
            if np.isfinite(newest.astype(np.float32)).all():
                changes = np.concatenate([trial.changes, newest[None].astype(np.float32)])[-MEMORY:]
        there, mixed = trial.q + residual, self.mixed(q, trial.q, residual, changes)
        if mixed is None:
            changes = changes[:0]
        else:
            there = mixed
        estimate = 0.5 * max(self.length(q, residual), self.length(q, there - trial.q))
        if estimate <= _SAFETY * tol and (trial.bound or not self.bounded):
            return None
        return Trial(
            there,
            trial.q,
            residual,
            changes,
            self.energy(q, sums.loss),
            1.0,
            sums.agents,
            trial.rounds + 1,
            plain=mixed is None,
            evaluated=True,
            bound=estimate <= max(_NEAR, tol),
        )

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

    def back(self, trial: Trial, q: NormalPoint | None, sums: RoundSums) -> Trial | None:
        """From a rejected trial; None if no shorter step is left."""
        assert trial.base is not None and trial.residual is not None
        t = trial.t
        if trial.plain:
            # The minimum of the parabola through F and its slope at the base, and F here.
            t *= 0.1
            if q is not None and math.isfinite(sums.loss) and math.isfinite(trial.energy):
                base = self.normal(trial.base)
                slope = 0.0 if base is None else -trial.t * self.length(base, trial.residual)
                rise = self.energy(q, sums.loss) - trial.energy - slope
                t = trial.t * min(max(-0.5 * slope / rise if rise > 0.0 else 0.5, 0.1), 0.5)
        if t < _SHORTEST:
            return None
        return replace(
            trial,
            q=trial.base + t * trial.residual,
            changes=trial.changes[:0],
            t=t,
            rounds=trial.rounds + 1,
            plain=True,
        )


def _halves(size: int) -> Floats:
    """½ on the diagonal and 1 off it, in packed order: ½ tr(A²) of a symmetric A."""
    rows, columns = np.triu_indices(size)
    return np.where(rows == columns, 0.5, 1.0)
