"""Runs the protocol's work on one thread: a queue, and the worker that reads the agent's data.

`ComputeQueue` repeats work that fails. If it keeps failing, takes too long or gives a result of the
wrong type, the queue answers with the weakest claim (`without`), and the token goes on.
`DataWorker` computes from the private data of the agent.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, runtime_checkable

import numpy as np

from unweave.errors import SolverError, UnweaveError
from unweave.families.atoms import CloudFamily
from unweave.grid import Grid, Ints
from unweave.models import ConjugateModel, Data, LossModel, Model
from unweave.node.data.private import PrivateData
from unweave.node.log import Log
from unweave.protocol.events import (
    UNKNOWN,
    Advance,
    Done,
    Freeze,
    Judge,
    NextPoint,
    Solve,
    SolveResult,
    Unknown,
    Work,
)
from unweave.protocol.ports import Worker, answer
from unweave.protocol.terms import Terms
from unweave.solvers import Solver
from unweave.solvers.worker import ModelWorker

__all__ = ["ComputeQueue", "DataWorker"]


_ATTEMPTS = 3  # per piece of work, before the token goes on without a result


@runtime_checkable
class Forgetful(Protocol):
    """A worker that caches something of its records."""

    def let_go(self, *, whole: bool) -> None: ...


class ComputeQueue:
    """Carries out work, one piece at a time."""

    def __init__(self, worker: Worker, terms: Terms, log: Log, limit: float) -> None:
        self._worker = worker
        self._terms = terms
        self._log = log
        self._limit = limit  # seconds for one attempt
        self._stuck: asyncio.Future[Any] | None = None  # took longer than the limit
        self._told: str | None = None  # the concern that is in the log
        self._thread = ThreadPoolExecutor(1, "solver")

    async def answer(self, work: Work, wanted: Callable[[], bool]) -> Done | None:
        """The worker's result, or the one of `without`; None: it is not `wanted` any more."""
        for _ in range(_ATTEMPTS):
            try:
                done = Done(work.key, await self._ask(work), time.monotonic())
                self._log_concern()
                return done
            except Exception as error:  # workers are written by others
                self.complain(error)
            await asyncio.sleep(self._terms.timeouts.ack)
            if not wanted():
                return None
        return self.without(work)

    @property
    def concern(self) -> str | None:
        """Why the result says little, as far as this agent's own records tell."""
        return getattr(self._worker, "concern", None)

    def _log_concern(self) -> None:
        if self.concern is not None and self.concern != self._told:
            self._log.warning("the own records alone decide little", why=self.concern)
        self._told = self.concern

    def let_go(self, *, whole: bool) -> None:
        """Delete what the worker caches of erased records (`whole`: of all records)."""
        if isinstance(self._worker, Forgetful):
            self._worker.let_go(whole=whole)

    def complain(self, error: Exception) -> None:
        """Log and count a failure. An exception of a library may quote records: of it only the type
        is logged."""
        self._log.counts["solves failed"] += 1
        why = str(error) if isinstance(error, UnweaveError) else type(error).__name__
        self._log.error("cannot solve", why=why)

    def without(self, work: Work) -> Done:
        """The result in place of the worker's: it claims nothing, and the token goes on."""
        result: Any = {"kl_to_optimum": None, "method": "none: the computation failed"}
        if isinstance(work, Solve):
            result = SolveResult(None, failed=True)
        elif isinstance(work, Judge):
            result = False  # every agent then starts from zero: the weakest claim
        elif isinstance(work, Freeze):
            result = UNKNOWN
        elif isinstance(work, Advance):
            result = NextPoint(None, failed=True)  # this agent does not call the sum final
        return Done(work.key, result, time.monotonic())

    def end(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, work: Work) -> Any:
        """A thread cannot be stopped: while it runs work that took too long, other work fails."""
        if self._stuck is not None and not self._stuck.done():
            raise SolverError("the solver still runs work that exceeded its time limit")
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._thread, answer, self._worker, work)
        await asyncio.wait({running}, timeout=self._limit)
        if not running.done():
            running.add_done_callback(_retrieve_exception)
            self._stuck = running
            raise SolverError(
                f"no result within {self._limit:g} seconds. Fix: raise solve_limit in agent.toml, "
                "or give the solver less work"
            )
        result = running.result()
        if not _sound(work, result, self._terms):
            kind = type(work).__name__.lower()
            raise SolverError(f"{type(result).__name__} is no result of {kind}")
        return result


def _sound(work: Work, result: Any, terms: Terms) -> bool:
    """Whether the result has the right type and shape: solvers are written by others."""
    if isinstance(work, Solve):
        return isinstance(result, SolveResult) and (
            result.units is None or _is_vector(result.units, terms.grid)
        )
    if isinstance(work, Judge):
        return isinstance(result, bool)
    if isinstance(work, Freeze):
        return isinstance(result, Unknown) or _is_vector(result, terms.frozen_grid)
    if isinstance(work, Advance):
        return isinstance(result, NextPoint) and isinstance(result.point, bytes | None)
    return isinstance(result, dict) and _is_estimate(result.get("kl_to_optimum", ...))


def _is_vector(units: Ints, grid: Grid) -> bool:
    return isinstance(units, np.ndarray) and units.dtype == np.int64 and units.shape == (grid.dim,)


def _is_estimate(kl: object) -> bool:
    return kl is None or (isinstance(kl, float) and math.isfinite(kl))


def _retrieve_exception(late: asyncio.Future[Any]) -> None:
    """asyncio logs an exception that is never retrieved."""
    if not late.cancelled():
        late.exception()


class DataWorker(ModelWorker):
    """Sums conjugate factors in the data engine; other models read the remaining rows."""

    def __init__(
        self,
        model: Model,
        solver: Solver,
        data: PrivateData,
        terms: Terms,
        tol: float = 1e-4,
        retrain_above: float | None = None,
    ) -> None:
        super().__init__(
            model,
            solver,
            data.empty(),
            terms.seed,
            tolerance=tol / terms.size**2 if terms.solve == "pass" else None,
            retrain_above=retrain_above,
            tol=tol,
        )
        self.data = data
        # Of the own records at the last solve that changed nothing (`LossModel.concern`).
        self.concern: str | None = None

    def let_go(self, *, whole: bool) -> None:
        self._round = None
        self.data.let_go(whole=whole)
        if isinstance(self.model.family, CloudFamily):
            self.model.family.let_go()  # posteriors of the erased records

    def shard(self, dropped: frozenset[bytes]) -> Data:
        return self.data.shard(dropped)

    def solve(self, work: Solve) -> SolveResult:
        if work.point is not None:
            return self.solve_at(work)
        if isinstance(self.model, LossModel):
            result = super().solve(work)
            if result.keep and work.cavity is not None and work.current is not None:
                self.concern = self.model.concern(
                    work.cavity + work.current, [self.shard(work.dropped)]
                )
            return result
        assert isinstance(self.model, ConjugateModel)
        n, units = self.data.totals(work.dropped)
        return SolveResult(self.model.finished(units, n) if n else None)

    def factor_at(self, point: bytes, dropped: frozenset[bytes]) -> Ints:
        if not isinstance(self.model, ConjugateModel):
            return super().factor_at(point, dropped)
        n, units = self.data.totals(dropped)
        return self.model.finished(units, n)
