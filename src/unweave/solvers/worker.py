"""The protocol's Worker for one agent: it computes with a model, a solver and a shard.

A Federation, a simulation with faults and a real process use the same worker.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DataError, GridOverflow, WireError
from unweave.grid import Ints
from unweave.models import Data, LossModel, Model, Shard
from unweave.protocol.events import (
    UNKNOWN,
    Advance,
    Appraise,
    Freeze,
    Judge,
    NextPoint,
    Solve,
    SolveResult,
    Unknown,
)
from unweave.rng import Purpose, Stream, derive
from unweave.solvers import Context, Solver

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
    removal moves q by more, all agents start from zero (None: the model's threshold). `tol` is the
    KL to the optimum at which private rounds end.
    """

    def __init__(
        self,
        model: Model,
        solver: Solver,
        shard: Shard,
        seed: int,
        *,
        tolerance: float | None = None,
        retrain_above: float | None = None,
        tol: float = 1e-4,
    ) -> None:
        self.model = model
        self.solver = solver
        self.whole = shard
        self.seed = seed
        self.tolerance = tolerance
        self.tol = tol
        self.retrain_above = model.retrain_above if retrain_above is None else retrain_above
        self.version = 0
        self._dropped: frozenset[bytes] = frozenset()
        self._shard = shard
        self._round: tuple[Data, bytes, Ints] | None = None

    def replace(self, shard: Shard) -> None:
        """Replace the data. The numbering of records starts again; earlier drops stay valid."""
        self.whole = self._shard = shard
        self.version += 1
        self._dropped = frozenset()

    def shard(self, dropped: frozenset[bytes]) -> Data:
        """The rows that are not in `dropped`."""
        if dropped != self._dropped:
            keys = [divmod(int.from_bytes(key, "big"), 1 << 64) for key in dropped]
            here = [i for version, i in keys if version == self.version and i < self.whole.given]
            self._shard = self.whole.drop(np.array(here, dtype=np.int64))
            self._dropped = dropped
        return self._shard

    def solve(self, work: Solve) -> SolveResult:
        if work.point is not None:
            return self.solve_at(work)
        data = self.shard(work.dropped)
        if not data.n:
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
        context = Context(stream, work.passes, work.share)
        units = self.solver.solve(model, data, cavity, start, context).factor
        tolerance = self.tolerance if self.solver.stops_after is None else None
        if work.cavity is not None and start is not None and tolerance is not None:
            if model.moved(cavity + units, cavity + start) <= tolerance:
                return SolveResult(None, keep=True)
        if model.settles and start is not None and np.array_equal(units, start):
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
        if work.before is None or work.after is None:
            return self.retrain_above >= 0.0  # a private round shows no sum to compare
        if self.model.settles:
            return True  # the others need not start again: they settle where they would anyway
        if not self.model.inside(work.after):
            return False
        return self.model.moved(work.before, work.after) <= self.retrain_above

    def freeze(self, work: Freeze) -> Ints | Unknown:
        """The agent's term of the estimate at the token's q (`LossModel.freeze`).

        UNKNOWN if q is outside the domain, or so near the boundary that the term exceeds the grid.
        """
        model, data = self.model, self.shard(work.dropped)
        grid = model.frozen_grid
        if not isinstance(model, LossModel) or not data.n or not self.solver.estimates:
            return grid.zeros()
        if not model.inside(work.eta):
            return UNKNOWN
        term = model.freeze(work.eta, work.factor, data)
        try:
            return grid.zeros() if term is None else grid.encode(term)
        except (DataError, GridOverflow):
            return UNKNOWN

    def appraise(self, work: Appraise) -> dict[str, Any]:
        """The estimated KL to the optimum, for a certificate (`LossModel.appraise`)."""
        model = self.model
        assert isinstance(model, LossModel)  # a conjugate model has nothing to estimate
        if not model.inside(work.eta):
            return {"kl_to_optimum": None, "method": "none: the sum is not a proper posterior"}
        if work.frozen is None:
            return model.appraise_round(work.point, work.eta)
        if not self.solver.estimates:
            return {"kl_to_optimum": None, "method": "none: the solver minimises no free energy"}
        return model.appraise(work.eta, model.frozen_grid.decode(work.frozen))

    # -- private rounds ---------------------------------------------------------------------------

    def solve_at(self, work: Solve) -> SolveResult:
        """The factor at the point of a private round."""
        assert work.point is not None
        try:
            return SolveResult(self.factor_at(work.point, work.dropped))
        except WireError:
            return SolveResult(None, no_point=True)

    def factor_at(self, point: bytes, dropped: frozenset[bytes]) -> Ints:
        """The factor of the current rows at the point of a round; zero without rows. An answer is
        kept: a round may ask again. An UnweaveError says why there is none."""
        data, at = self.shard(dropped), sha256(point).digest()
        if self._round is None or self._round[0] is not data or self._round[1] != at:
            self._round = (data, at, self.solver.factor_at(self.model, point, data))
        return self._round[2]

    def advance(self, work: Advance) -> NextPoint:
        """The point of the next round, or the one from which learning goes on with other data.
        Bytes that are no point of this model came from a lying agent: learning starts again."""
        model = self.model
        try:
            if work.eta is None:
                return NextPoint(model.restart(work.point))
            return NextPoint(model.advance(work.point, work.eta, self.tol))
        except WireError:
            return NextPoint(model.first_point())


def influence(model: Model, eta: Ints, factor: Ints) -> float:
    """KL(q ‖ q without the factor); infinite if q without the factor is improper."""
    return model.influence(eta, factor)
