"""What the protocol asks of the statistics, answered on a thread of its own.

A worker that fails is asked again; when it keeps failing, the protocol is told so, and the token
goes on: it must not wait here for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from unweave.errors import UnweaveError
from unweave.node.log import Log
from unweave.protocol.events import Done, Freeze, Judge, Solution, Solve, Work
from unweave.protocol.terms import Terms
from unweave.simulate.world import Worker

__all__ = ["Desk"]

_ATTEMPTS = 3  # of a piece of work that fails, before the token goes on without it


class Desk:
    """Takes work, one piece at a time."""

    def __init__(self, worker: Worker, terms: Terms, log: Log, counts: Counter[str]) -> None:
        self._worker = worker
        self._terms = terms
        self._log = log
        self._counts = counts
        self._thread = ThreadPoolExecutor(1, "solver")

    async def answer(self, work: Work, wanted: Callable[[], bool]) -> Done | None:
        """The worker's answer, or what is said without one; None: it is not `wanted` any more."""
        for _ in range(_ATTEMPTS):
            try:
                result = await self.there(self._asked, work)
                break
            except Exception as error:  # of any kind
                self._counts["solves failed"] += 1
                expected = isinstance(error, UnweaveError)
                why = str(error) if expected else type(error).__name__
                self._log.error("cannot solve", why=why)
            await asyncio.sleep(self._terms.patience.ack)
            if not wanted():
                return None
        else:
            result = self._without_answer(work)
        return Done(work.key, result, time.monotonic())

    async def there(self, do: Callable[..., Any], *args: Any) -> Any:
        """Anything else that takes a while, in turn with the work."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, do, *args)

    def end(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _asked(self, work: Work) -> Any:
        if isinstance(work, Solve):
            return self._worker.solve(work)
        if isinstance(work, Judge):
            return self._worker.judge(work)
        if isinstance(work, Freeze):
            return self._worker.freeze(work)
        return self._worker.appraise(work)

    def _without_answer(self, work: Work) -> Any:
        """What the protocol is told when the worker cannot answer: claim nothing, and go on."""
        if isinstance(work, Solve):
            return Solution(None, failed=True)
        if isinstance(work, Judge):
            return False  # then everybody starts from zero: the answer that promises least
        if isinstance(work, Freeze):
            return self._terms.grid.zeros()
        return {"kl_to_optimum": None, "method": "none: the computation failed"}
