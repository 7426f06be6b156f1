"""The statistics of a real agent: the same answers, from data that stay on their disk."""

from __future__ import annotations

from unweave.models import ConjugateModel, Model, Shard
from unweave.node.data import PrivateData
from unweave.protocol.events import Solution, Solve
from unweave.protocol.terms import Terms
from unweave.simulate.worker import ModelWorker
from unweave.solvers import Solver

__all__ = ["DataWorker"]


class DataWorker(ModelWorker):
    """Conjugate factors are summed by the engine; other models read the rows that are left."""

    def __init__(
        self, model: Model, solver: Solver, data: PrivateData, terms: Terms, tol: float = 1e-4
    ) -> None:
        tolerance = tol / terms.size**2 if terms.solve == "pass" else None
        super().__init__(model, solver, data.empty(), terms.seed, tolerance=tolerance)
        self.data = data

    def let_go(self, *, whole: bool) -> None:
        """Of records that were erased, nothing is kept here."""
        self.data.let_go(whole=whole)

    def shard(self, dropped: frozenset[bytes]) -> Shard:
        return self.data.shard(dropped)

    def solve(self, work: Solve) -> Solution:
        if not isinstance(self.model, ConjugateModel):
            return super().solve(work)
        n, units = self.data.totals(work.dropped)
        return Solution(self.model.grid.rescale(units, self.model.weight(n)) if n else None)
