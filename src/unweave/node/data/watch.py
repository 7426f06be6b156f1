"""Which data the stored factor was computed from: so that new rows count, also those that were
added while the agent was down.

The file `data.seen` holds the files' fingerprint and the store's data version that belongs to it.
It is written after the store: at worst the same data travel twice, as a new revision with the same
units. A store that is older than the file (a restored backup) has another version: look again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from unweave.errors import UnweaveError
from unweave.models import ConjugateModel
from unweave.node.data.private import SEEN_FILE, PrivateData
from unweave.node.driver import AgentDriver, NotReady
from unweave.node.storage.atomic import write_atomic
from unweave.protocol.events import DataChanged
from unweave.protocol.state import State

__all__ = ["DataWatch", "admit"]


T = TypeVar("T")


def admit(data: PrivateData, least: int, state: State | None) -> int:
    """The number of records that are left, all sound; DataError if they may not be used.

    `least` protects the first contribution. From then on neighbours see every change as a
    difference, so a minimum would hide nothing any more: it would only keep rows in the posterior
    that were erased, or taken out of the file.
    """
    if state is None or not (state.own.counter or state.own.dropped):
        return data.admit(least)
    return data.check(state.own.dropped)


class DataWatch:
    """Compares the data with what the agent has learned from."""

    def __init__(self, node: AgentDriver, data: PrivateData) -> None:
        self.node = node
        self.data = data
        self._path: Path = node.folder.path / SEEN_FILE
        self._lock = asyncio.Lock()
        self._refused = ""

    async def begin(self) -> bool:
        """At the start: whether rows came or went since the store was written. A stored factor that
        is not what the same data give now is learned anew, and said."""
        state = self.node.state
        if state is not None and state.own.current is None and not state.own.detached:
            async with self._lock:  # nothing was learned yet: whatever is there is new
                self._write(self.data.fingerprint(), state.own.data)
            return False
        changed = await self.look()
        if not changed:
            await self._compare()
        return changed

    async def _compare(self) -> None:
        """A conjugate factor is a function of the records, and the look at the start has computed
        it already. The store is sealed, but whoever holds the agent's key could write another."""
        state = self.node.state
        current = None if state is None or state.own.detached else state.own.current
        if state is None or current is None or not isinstance(self.data.model, ConjugateModel):
            return
        if (current.rows, current.data) != (state.own.rows, state.own.data):
            return  # it will be learned anew
        loop = asyncio.get_running_loop()
        async with self._lock:
            with contextlib.suppress(UnweaveError):  # data that cannot be read now change nothing
                units = await loop.run_in_executor(None, self.data.factor, state.own.dropped)
                found = await loop.run_in_executor(None, self.data.fingerprint)
                if (
                    np.array_equal(units, current.units)
                    or self._read() != f"{found} {state.own.data}"
                ):
                    return
                self.node.log.error(
                    "the stored factor is not what these data give: learning anew",
                    look_at="who can write to this folder and read key.pem; `unweave audit`",
                )
                await self.node.tell(DataChanged(time.monotonic()))
                self._write(found, state.own.data + 1)

    async def look(self, *, anew: bool = True) -> bool:
        """If the data have changed, and are sound, let them travel as a new revision. Data that
        were refused are read again only if they changed since, or `anew`."""
        async with self._lock:
            state = self.node.state
            if state is None:
                raise NotReady(f"{self.node.folder.config.name} is starting: try again")
            if state.own.detached:
                return False  # the link to the data is erased
            found = await self._try(self.data.fingerprint)
            # Data that were away are looked at anew though they came back as they were: whoever
            # asked for them meanwhile was told that there are none.
            away = self.node.data_problem is not None or (anew and state.own.current is None)
            if self._read() == f"{found} {state.own.data}" and not away:
                return False
            this = f"{found} {state.own.data} {len(state.own.dropped)}"
            if this == self._refused and not anew:
                return False
            least = self.node.folder.config.min_records
            self._refused = this
            await self._try(admit, self.data, least, state)
            self._refused = ""
            self.node.data_problem = None
            await self.node.tell(DataChanged(time.monotonic()))
            self._write(found, state.own.data + 1)
            return True

    async def _try(self, work: Callable[..., T], *about: object) -> T:
        """On another thread; what is wrong with the data is remembered for whoever asks."""
        try:
            return await asyncio.get_running_loop().run_in_executor(None, work, *about)
        except UnweaveError as error:
            self.node.data_problem = str(error)
            raise

    def _read(self) -> str:
        try:
            return self._path.read_text()
        except (OSError, UnicodeDecodeError):
            return ""

    def _write(self, fingerprint: str, version: int) -> None:
        write_atomic(self._path, f"{fingerprint} {version}".encode())
