"""Private rounds in memory: sums over shards at a point, until a sum is final."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unweave.grid import Ints
from unweave.models import Data, Model

__all__ = ["Learned", "in_rounds", "round_sum"]


class Learned(NamedTuple):
    """A final sum, the point at which it was computed, and every round's point and sum."""

    model: Model
    point: bytes
    total: Ints
    rounds: list[tuple[bytes, Ints]]

    @property
    def eta(self) -> np.ndarray:
        return self.model.decode(self.total)

    def to(self, goal: np.ndarray, limit: float) -> int | None:
        """The first round whose sum is within `limit` (a KL) of the goal, from 1 on."""
        for n, (_, total) in enumerate(self.rounds, 1):
            if (
                self.model.inside(total)
                and self.model.family.kl(self.model.decode(total), goal) <= limit
            ):
                return n
        return None


def round_sum(model: Model, point: bytes, shards: Sequence[Data]) -> Ints:
    """eta_0 + Σ_k factor_k; every factor is within its share of the grid."""
    total = model.eta0.copy()
    share = (2**63 - 1 - np.abs(model.eta0)) // len(shards)
    for shard in shards:
        factor = model.factor_at(point, shard)
        assert factor.dtype == np.int64
        assert (np.abs(factor) <= share).all()
        total = model.grid.add(total, factor)
    return total


def in_rounds(
    model: Model,
    shards: Sequence[Data],
    tol: float = 1e-4,
    start: bytes | None = None,
    most: int = 200,
) -> Learned:
    """Learn from `start` (the first point) until a sum is final; `model` is `Model.in_rounds`."""
    point = model.first_point() if start is None else start
    rounds: list[tuple[bytes, Ints]] = []
    while True:
        total = round_sum(model, point, shards)
        rounds.append((point, total))
        following = model.advance(point, total, tol)
        if following is None or len(rounds) == most:
            return Learned(model, point, total, rounds)
        point = following
