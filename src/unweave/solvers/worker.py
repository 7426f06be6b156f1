"""The protocol's Worker for one agent: it computes with a model, a solver and a shard.

A Federation, a simulation with faults and a real process use the same worker.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DataError, GridOverflow
from unweave.grid import Ints
from unweave.models import LossModel, Model, Shard
from unweave.protocol.events import UNKNOWN, Appraise, Freeze, Judge, Solve, SolveResult, Unknown
from unweave.rng import Purpose, Stream, derive
from unweave.solvers import HasExactGradient, Solver

__all__ = ["ModelWorker", "influence", "record_key"]


Floats = NDArray[np.float64]


def record_key(index: int, version: int = 0) -> bytes:
    """The key of a record without a key column: its row number, 16 bytes.

    `version` counts the owner's data sets: row 3 of new data differs from row 3 of the old data.
    """
    return (version << 64 | index).to_bytes(16, "big")


class ModelWorker:
    """Computes the results that the protocol requests from one agent.

    `tolerance` is tol/K² of the stop rule: if a solve moves q by at most this (in KL), the agent
    keeps the factor. None always replaces the factor (the paper's rule). `retrain_above`: if a
    removal moves q by more, all agents start from zero.
    """

    def __init__(
        self,
        model: Model,
        solver: Solver,
        shard: Shard,
        seed: int,
        *,
        tolerance: float | None = None,
        retrain_above: float = 3.0,
    ) -> None:
        self.model = model
        self.solver = solver
        self.whole = shard
        self.seed = seed
        self.tolerance = tolerance
        self.retrain_above = retrain_above
        self.version = 0
        self._dropped: frozenset[bytes] = frozenset()
        self._shard = shard

    def replace(self, shard: Shard) -> None:
        """Replace the data. The numbering of records starts again; earlier drops stay valid."""
        self.whole = self._shard = shard
        self.version += 1
        self._dropped = frozenset()

    def shard(self, dropped: frozenset[bytes]) -> Shard:
        """The rows that are not in `dropped`."""
        if dropped != self._dropped:
            keys = [divmod(int.from_bytes(key, "big"), 1 << 64) for key in dropped]
            here = [i for version, i in keys if version == self.version and i < self.whole.n]
            self._shard = self.whole.drop(np.array(here, dtype=np.int64))
            self._dropped = dropped
        return self._shard

    def solve(self, work: Solve) -> SolveResult:
        shard = self.shard(work.dropped)
        if not shard.n:
            return self._solve_empty(work)
        model, stream = self.model, Stream(derive(self.seed, work.epoch, work.hop, Purpose.SOLVE))
        cavity = model.eta0 if work.cavity is None else work.cavity
        start = work.current
        if self.tolerance is not None and not self.model.inside(
            cavity if start is None else cavity + start
        ):
            # The sum may be outside the domain if factors are missing (a rebuilt token) or an agent
            # has departed. The solve then starts from the cavity, or the agent adds no factor.
            if not self.model.inside(cavity):
                return SolveResult(None)
            start = None
        units = self.solver.solve(model, shard, cavity, start, stream).factor
        if work.cavity is not None and start is not None and self.tolerance is not None:
            before = model.decode(cavity + start)
            after = model.decode(cavity + units)
            if float(model.family.kl(after, before)) <= self.tolerance:
                return SolveResult(None, keep=True)
        return SolveResult(units)

    def _solve_empty(self, work: Solve) -> SolveResult:
        """The result for a shard without rows: no factor in a conjugate model, and a zero factor
        (t_k = 1) in any other model, because other agents wait for an agent without a factor."""
        if work.cavity is None:
            return SolveResult(None)
        kept = work.current is not None and not work.current.any()
        return SolveResult(None, keep=True) if kept else SolveResult(self.model.grid.zeros())

    def judge(self, work: Judge) -> bool:
        """False: `after` is outside the domain, or KL(before ‖ after) exceeds `retrain_above`."""
        if not self.model.inside(work.after):
            return False
        decode = self.model.decode
        moved = float(self.model.family.kl(decode(work.before), decode(work.after)))
        return moved <= self.retrain_above

    def freeze(self, work: Freeze) -> Ints | Unknown:
        """r_k = eta_k + (1/alpha) ∇_mu E_q[L_k] at the token's q: zero at a fixed point.

        UNKNOWN if q is outside the domain, or so near the boundary that r_k exceeds the grid.
        """
        model, grid = self.model, self.model.grid
        exact = getattr(model, "exact_gradient", None)
        if exact is None or not isinstance(model, LossModel) or not self.shard(work.dropped).n:
            return grid.zeros()
        if not self.model.inside(work.eta):
            return UNKNOWN
        gradient = exact(model.decode(work.eta), model.summary(self.shard(work.dropped)))
        try:
            return grid.encode(grid.decode(work.factor) + gradient / model.alpha)
        except (DataError, GridOverflow):
            return UNKNOWN

    def appraise(self, work: Appraise) -> dict[str, Any]:
        """The estimated KL to the optimum for a certificate: ½ ‖Σ_k r_k‖² in the Fisher metric."""
        model = self.model
        if not isinstance(model, HasExactGradient):
            return {"kl_to_optimum": None, "method": "none: this model has no exact gradient"}
        if not self.model.inside(work.eta):
            return {"kl_to_optimum": None, "method": "none: the sum is not a proper posterior"}
        eta, total = model.decode(work.eta), model.grid.decode(work.frozen)
        kl = 0.5 * float(total @ model.family.fisher_dot(eta, total))
        return {"kl_to_optimum": kl, "method": "half the squared Fisher norm of Σ r_k"}


def influence(model: Model, eta: Ints, factor: Ints) -> float:
    """KL(q ‖ q without the factor); infinite if q without the factor is improper."""
    without = model.decode(model.grid.subtract(eta, factor))
    if not model.family.margin(without) > 0.0:
        return float("inf")
    return float(model.family.kl(model.decode(eta), without))
