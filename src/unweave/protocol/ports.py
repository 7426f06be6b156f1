"""The four things that a driver brings, each beside its in-memory implementation.

    Store      keeps the durable state between steps       MemoryStore
    Transport  carries signed messages between neighbours  MemoryTransport
    Worker     answers the protocol's statistical questions  solvers.worker.ModelWorker
    Keyring    makes and uses one-time keys of private rounds  keyring.Keyring

`unweave.testing` holds the laws that every store and every transport obeys.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any, Protocol

from unweave.errors import TransportError, WireError
from unweave.grid import Ints
from unweave.protocol.events import (
    Advance,
    Appraise,
    Enrol,
    Freeze,
    Judge,
    Mask,
    MaskedValue,
    NewKey,
    NextPoint,
    Solve,
    SolveResult,
    Unknown,
    Work,
)
from unweave.protocol.state import State
from unweave.protocol.terms import Terms

if TYPE_CHECKING:
    from unweave.keyring import Keyring

__all__ = [
    "Deliver",
    "MemoryStore",
    "MemoryTransport",
    "Store",
    "Transport",
    "Worker",
    "answer",
    "unlock",
]


class Store(Protocol):
    """One agent's disk.

    A commit is all or nothing: after a crash at any point `load` returns the state before the step,
    or the one after it.
    """

    def load(self, terms: Terms, me: int) -> State | None:
        """The last committed state, not started yet; None if nothing was ever committed."""

    def commit(self, before: State, after: State) -> None:
        """Make `after` durable. `before` is the state that was committed or loaded last."""

    def close(self) -> None:
        """Release the disk. Nothing is lost without it."""


class MemoryStore:
    """A disk for simulations. States never change, so the store keeps a reference."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state

    def load(self, terms: Terms, me: int) -> State | None:
        return None if self.state is None else self.state.restarted(0)

    def commit(self, before: State, after: State) -> None:
        self.state = after

    def backup(self) -> MemoryStore:
        """The disk as it is now."""
        return MemoryStore(self.state)

    def close(self) -> None:
        pass


Deliver = Callable[[int, bytes], Awaitable[list[bytes]]]  # (sender, message) → answers


class Transport(Protocol):
    """Carries signed messages between neighbours; both ends have verified each other's identity.

    `send` raises `TransportError` if the message was not delivered and answered in time. A receiver
    that has begun to handle a message is not interrupted.
    """

    async def start(self, deliver: Deliver) -> None: ...
    async def send(self, to: int, data: bytes) -> list[bytes]: ...
    async def stop(self) -> None: ...
    def charge(self, neighbour: int, seconds: float) -> None:
        """A neighbour's message has cost this processor time; below zero: it was worth it."""

    @property
    def refusals(self) -> Counter[tuple[str, str]]: ...  # by (neighbour or "unknown", reason)


class MemoryTransport:
    """The neighbours are objects of one process; `network` holds those that have started."""

    def __init__(
        self,
        me: int,
        neighbours: Collection[int],
        network: dict[int, MemoryTransport],
        timeout: float = 10.0,
    ) -> None:
        self._me = me
        self._neighbours = neighbours
        self._network = network
        self._timeout = timeout
        self._deliver: Deliver | None = None
        self._stopped: asyncio.Future[None] | None = None
        self._handling: set[asyncio.Future[list[bytes]]] = set()
        self.refusals: Counter[tuple[str, str]] = Counter()

    async def start(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._stopped = asyncio.get_running_loop().create_future()
        self._network[self._me] = self

    async def send(self, to: int, data: bytes) -> list[bytes]:
        receiver = self._network.get(to)
        stopped = self._stopped
        if to not in self._neighbours or receiver is None or stopped is None:
            raise TransportError(f"agent {to} cannot be reached")
        answer = receiver._handle(self._me, data)
        ends: set[asyncio.Future[Any]] = {answer, stopped}
        first = asyncio.FIRST_COMPLETED
        await asyncio.wait(ends, timeout=self._timeout, return_when=first)
        if not answer.done() or answer.cancelled():
            raise TransportError(f"agent {to} does not answer")
        error = answer.exception()
        if isinstance(error, WireError):
            raise TransportError(f"agent {to} refused the message: {error}")
        if error is not None:
            raise TransportError(f"agent {to} could not handle the message")
        return answer.result()

    def charge(self, neighbour: int, seconds: float) -> None:
        """Objects of one process do not attack each other."""

    def _handle(self, sender: int, data: bytes) -> asyncio.Future[list[bytes]]:
        assert self._deliver is not None
        answer = asyncio.ensure_future(self._deliver(sender, data))
        self._handling.add(answer)
        answer.add_done_callback(self._handling.discard)
        return answer

    async def stop(self) -> None:
        self._network.pop(self._me, None)
        if self._stopped is not None:
            self._stopped.cancel()
            self._stopped = None
        for answer in self._handling:
            answer.cancel()
        if self._handling:
            await asyncio.wait(self._handling)


class Worker(Protocol):
    """One agent's statistics: answers the questions that the protocol asks."""

    def solve(self, work: Solve) -> SolveResult: ...
    def judge(self, work: Judge) -> bool: ...
    def freeze(self, work: Freeze) -> Ints | Unknown: ...
    def appraise(self, work: Appraise) -> dict[str, Any]: ...
    def advance(self, work: Advance) -> NextPoint: ...


def unlock(keyring: Keyring, me: int, work: Enrol | Mask) -> NewKey | MaskedValue:
    """A keyring's answer to one question of agent `me`."""
    if isinstance(work, Enrol):
        public = keyring.enrol(work.seen, work.ahead, work.vouched)
        return NewKey(public, keyring.given + work.ahead, spent=not public)
    value = keyring.mask(me, work.round, work.keys, work.units)
    return MaskedValue(None, None) if value is None else MaskedValue(*value)


def answer(worker: Worker, work: Work) -> Any:
    """A worker's answer to one question."""
    if isinstance(work, Advance):
        return worker.advance(work)
    if isinstance(work, Solve):
        return worker.solve(work)
    if isinstance(work, Judge):
        return worker.judge(work)
    if isinstance(work, Freeze):
        return worker.freeze(work)
    assert isinstance(work, Appraise)
    return worker.appraise(work)
