"""Compares the data files with the data that the stored factor was computed from.

The comparison also finds rows that were added while the agent was stopped. The file `data.seen`
holds the fingerprint of the data files and the data version of the store at that fingerprint. The
agent writes the store first and `data.seen` second. After a crash between the two writes, the agent
sends the same data again, as a new revision with the same units. A store that was restored from a
backup has another data version, so the agent reads the data again.

With batches (rule 21) the file also holds how many records there were, so that an agent can tell
others how many have changed: at this version, and at the version before if this one waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from unweave.errors import UnweaveError
from unweave.models import ConjugateModel
from unweave.node.data.private import PrivateData
from unweave.node.data.source import SEEN_FILE
from unweave.node.driver import AgentDriver, NotReady
from unweave.node.storage.atomic import unwritable, write_atomic
from unweave.protocol.events import DataChanged
from unweave.protocol.state import State

__all__ = ["DataWatch", "admit"]


T = TypeVar("T")


def admit(data: PrivateData, least: int, state: State | None) -> int:
    """The number of remaining records, all valid; DataError if the agent may not use them.

    `least` applies to the first contribution only. After it, neighbours see every change as a
    difference, so a minimum protects nothing. It would only keep erased or deleted rows in the
    posterior.
    """
    if state is None or not (state.own.counter or state.own.dropped):
        return data.admit(least)
    return data.check(state.own.dropped)


def _version(state: State) -> int:
    """The data version that contains the last change, also while the change waits for a batch."""
    return state.own.data + state.own.waiting.data


class Counted(NamedTuple):
    """How many records no erasure names, and how many keys erasures name, also those that wait."""

    records: int
    erased: int

    def changed_since(self, before: Counted) -> int:
        """How many records differ at least. Nobody has recorded which ones, so with the same
        erasures it is the difference of the numbers, and 1 if they are equal. If an erasure came
        between, records that are gone may be those that it names: they count there."""
        more = self.records - before.records
        return max(1, abs(more)) if self.erased == before.erased else max(0, more)


class DataWatch:
    """Detects changed data files and starts a new revision of the agent's factor."""

    def __init__(self, node: AgentDriver, data: PrivateData) -> None:
        self.node = node
        self.data = data
        self._path: Path = node.folder.path / SEEN_FILE
        self._lock = asyncio.Lock()
        self._refused = ""

    @property
    def busy(self) -> bool:
        """Whether the data are being read."""
        return self._lock.locked()

    async def begin(self) -> bool:
        """Whether the data changed since the store was written; called once, at the start.

        If the data did not change but give another factor than the stored one, the agent logs an
        error and computes its factor again.
        """
        state = self.node.state
        if state is not None and state.own.current is None and not state.own.detached:
            async with self._lock:  # no factor exists yet: the first one will use these data
                now = await self._count(state)  # later changes are counted from here
                self._write(self.data.fingerprint(), state.own.data, now)
            return False
        changed = await self.look()
        if not changed:
            await self._compare_factor()
        return changed

    async def _compare_factor(self) -> None:
        """Compare the stored conjugate factor with the factor of the records.

        A conjugate factor is a function of the records. The store has a MAC, but a person with the
        agent's key could write another factor with a valid MAC.
        """
        state = self.node.state
        current = None if state is None or state.own.detached else state.own.current
        if state is None or current is None or not isinstance(self.data.model, ConjugateModel):
            return
        if (current.rows, current.data) != (state.own.rows, state.own.data):
            return  # the agent computes this factor again anyway
        loop = asyncio.get_running_loop()
        async with self._lock:
            with contextlib.suppress(UnweaveError):  # unreadable data: keep the factor
                units = await loop.run_in_executor(None, self.data.factor, state.own.dropped)
                fingerprint = await loop.run_in_executor(None, self.data.fingerprint)
                if (
                    np.array_equal(units, current.units)
                    or self._read() != f"{fingerprint} {state.own.data}"
                ):
                    return
                self.node.log.error(
                    "the stored factor is not what these data give: learning anew",
                    look_at="who can write to this folder and read key.pem; `unweave audit`",
                )
                await self.node.tell(DataChanged(time.monotonic(), time.time()))
                self._write(fingerprint, state.own.data + 1)

    async def look(self, *, anew: bool = True) -> bool:
        """Start a new revision if the data changed and are valid; True if it was started.

        Refused data are read again only if they changed after the refusal, or if `anew` is set.
        """
        async with self._lock:
            state = self.node.state
            if state is None:
                raise NotReady(f"{self.node.folder.config.name} is starting: try again")
            if state.own.detached:
                return False  # the link to the data is erased
            fingerprint = await self._in_thread(self.data.fingerprint)
            # Data that were unreadable and came back unchanged still need a new revision: a
            # computation in the meantime found no data.
            unavailable = self.node.data_problem is not None or (anew and state.own.current is None)
            if self._read() == f"{fingerprint} {_version(state)}" and not unavailable:
                return False
            attempt = f"{fingerprint} {_version(state)} {len(state.own.dropped)}"
            if attempt == self._refused and not anew:
                return False
            least = self.node.folder.least_records
            self._refused = attempt
            await self._in_thread(admit, self.data, least, state)
            self._refused = ""
            self.node.data_problem = None
            now, before = await self._count(state), self._base(state)
            changed = 1 if now is None or before is None else now.changed_since(before)
            await self.node.tell(DataChanged(time.monotonic(), time.time(), changed))
            self._write(fingerprint, state.own.data + 1, now, before)
            return True

    async def _count(self, state: State) -> Counted | None:
        """The records now; None where nobody asks for their number."""
        if self.node.terms.publish is None:
            return None
        waiting = (one.rows for one in state.own.waiting.requests.values())
        erased = state.own.dropped.union(*waiting)
        return Counted(await self._in_thread(self.data.count, erased), len(erased))

    def _base(self, state: State) -> Counted | None:
        """The records in the data that have left, if that is known. A crash before `data.seen` was
        written leaves the version before."""
        version, *counts = self._seen()[1:] or [""]
        if not all(map(str.isdecimal, (version, *counts))):
            return None
        numbers = list(map(int, counts))
        if int(version) == state.own.data and len(numbers) >= 2:
            return Counted(*numbers[:2])
        waits = state.own.waiting.data and int(version) == state.own.data + 1
        return Counted(*numbers[2:]) if waits and len(numbers) == 4 else None

    async def _in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        """Run `work` on another thread; store an error of the data in `node.data_problem`."""
        try:
            return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)
        except UnweaveError as error:
            self.node.data_problem = str(error)
            raise

    def _read(self) -> str:
        """The fingerprint and the version."""
        return " ".join(self._seen()[:2])

    def _seen(self) -> list[str]:
        try:
            return self._path.read_text().split()
        except (OSError, UnicodeDecodeError):
            return []

    def _write(
        self,
        fingerprint: str,
        version: int,
        now: Counted | None = None,
        before: Counted | None = None,
    ) -> None:
        words = [fingerprint, version, *(now or ()), *((now and before) or ())]
        try:
            write_atomic(self._path, " ".join(map(str, words)).encode())
        except OSError as error:
            raise unwritable(self._path, error) from None
