"""What the protocol asks of the statistics, answered on a thread of its own.

A worker that fails is asked again; when it keeps failing, gives no answer in time, or answers what
is none, the protocol is told so, and the token goes on: it must not wait here for ever.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, runtime_checkable

import numpy as np

from unweave.errors import SolverError, UnweaveError
from unweave.grid import Ints
from unweave.models import ConjugateModel, Model, Shard
from unweave.node.data.private import PrivateData
from unweave.node.log import Log
from unweave.protocol.events import UNKNOWN, Done, Freeze, Judge, Solve, SolveResult, Unknown, Work
from unweave.protocol.ports import Worker, answer
from unweave.protocol.terms import Terms
from unweave.solvers import Solver
from unweave.solvers.worker import ModelWorker

__all__ = ["ComputeQueue", "DataWorker"]


_ATTEMPTS = 3  # of a piece of work that fails, before the token goes on without it


@runtime_checkable
class Forgetful(Protocol):
    """A worker that keeps something of its records."""

    def let_go(self, *, whole: bool) -> None: ...


class ComputeQueue:
    """Takes work, one piece at a time."""

    def __init__(
        self, worker: Worker, terms: Terms, log: Log, counts: Counter[str], limit: float
    ) -> None:
        self._worker = worker
        self._terms = terms
        self._log = log
        self._counts = counts
        self._limit = limit  # seconds for one piece
        self._stuck: asyncio.Future[Any] | None = None
        self._thread = ThreadPoolExecutor(1, "solver")

    async def answer(self, work: Work, wanted: Callable[[], bool]) -> Done | None:
        """The worker's answer, or what is said without one; None: it is not `wanted` any more."""
        for _ in range(_ATTEMPTS):
            try:
                return Done(work.key, await self._ask(work), time.monotonic())
            except Exception as error:  # of any kind
                self.complain(error)
            await asyncio.sleep(self._terms.timeouts.ack)
            if not wanted():
                return None
        return self.without(work)

    def let_go(self, *, whole: bool) -> None:
        """The worker keeps nothing of what was erased, if it keeps anything at all."""
        if isinstance(self._worker, Forgetful):
            self._worker.let_go(whole=whole)

    def complain(self, error: Exception) -> None:
        """In the log and, by its number, in the status; an exception that is not ours may quote
        records, so only its name is told."""
        self._counts["solves failed"] += 1
        why = str(error) if isinstance(error, UnweaveError) else type(error).__name__
        self._log.error("cannot solve", why=why)

    def without(self, work: Work) -> Done:
        """What the protocol is told when the worker cannot answer: claim nothing, and go on."""
        result: Any = {"kl_to_optimum": None, "method": "none: the computation failed"}
        if isinstance(work, Solve):
            result = SolveResult(None, failed=True)
        elif isinstance(work, Judge):
            result = False  # then everybody starts from zero: the answer that promises least
        elif isinstance(work, Freeze):
            result = UNKNOWN
        return Done(work.key, result, time.monotonic())

    def end(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, work: Work) -> Any:
        """A thread cannot be stopped: while it is busy with something that took too long, whatever
        else is asked has no answer."""
        if self._stuck is not None and not self._stuck.done():
            raise SolverError("the solver is still busy with what it could not answer in time")
        loop = asyncio.get_running_loop()
        asked = loop.run_in_executor(self._thread, answer, self._worker, work)
        await asyncio.wait({asked}, timeout=self._limit)
        if not asked.done():
            asked.add_done_callback(_heard)
            self._stuck = asked
            raise SolverError(
                f"no answer in {self._limit:g} seconds: give the solver longer (solve_limit in "
                "agent.toml) or less to do"
            )
        result = asked.result()
        if not _sound(work, result, self._terms):
            kind = type(work).__name__.lower()
            raise SolverError(f"{type(result).__name__} is no answer to {kind}")
        return result


def _sound(work: Work, result: Any, terms: Terms) -> bool:
    """Whether it has the form of an answer. Solvers are written by others."""
    if isinstance(work, Solve):
        return isinstance(result, SolveResult) and (
            result.units is None or _is_vector(result.units, terms)
        )
    if isinstance(work, Judge):
        return isinstance(result, bool)
    if isinstance(work, Freeze):
        return isinstance(result, Unknown) or _is_vector(result, terms)
    return isinstance(result, dict) and _is_estimate(result.get("kl_to_optimum", ...))


def _is_vector(units: Ints, terms: Terms) -> bool:
    return (
        isinstance(units, np.ndarray)
        and units.dtype == np.int64
        and units.shape == (terms.grid.dim,)
    )


def _is_estimate(kl: object) -> bool:
    return kl is None or (isinstance(kl, float) and math.isfinite(kl))


def _heard(late: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more, and nobody is to complain that its error was not looked at."""
    if not late.cancelled():
        late.exception()


# ------------------------------------------------------------------------------
# The statistics of a real agent: the same answers, from data that stay on their disk.


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

    def solve(self, work: Solve) -> SolveResult:
        if not isinstance(self.model, ConjugateModel):
            return super().solve(work)
        n, units = self.data.totals(work.dropped)
        return SolveResult(self.model.grid.rescale(units, self.model.weight(n)) if n else None)
