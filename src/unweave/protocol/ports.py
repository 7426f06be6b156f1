"""Where an agent's durable state lives between its steps.

A driver commits a step before it carries out the step's effects. A commit is all or nothing: after
a crash at any point `load` returns the state before the step, or the one after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from unweave.grid import Ints
from unweave.protocol.config import Terms
from unweave.protocol.events import (
    Appraise,
    Freeze,
    Judge,
    Solution,
    Solve,
    Unknown,
)
from unweave.protocol.state import State

__all__ = ["Deliver", "MemoryStore", "Store", "Transport", "Worker"]


class Store(Protocol):
    """One agent's disk."""

    def load(self, terms: Terms, me: int) -> State | None:
        """The last committed state, not booted yet; None if nothing was ever committed."""

    def commit(self, before: State, after: State) -> None:
        """Make `after` durable. `before` is the state that was committed or loaded last."""

    def close(self) -> None:
        """Give the disk back. Nothing is lost without it."""


class MemoryStore:
    """A disk for simulations: states never change, so keeping one is keeping a reference."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state

    def load(self, terms: Terms, me: int) -> State | None:
        return None if self.state is None else self.state.rebooted(0)

    def commit(self, before: State, after: State) -> None:
        self.state = after

    def backup(self) -> MemoryStore:
        """The disk as it is now."""
        return MemoryStore(self.state)

    def close(self) -> None:
        pass


Deliver = Callable[[int, bytes], Awaitable[list[bytes]]]


class Transport(Protocol):
    """Carries sealed messages between neighbours; both ends know who the other one is."""

    async def start(self, deliver: Deliver) -> None: ...
    async def send(self, to: int, data: bytes) -> list[bytes]: ...
    async def stop(self) -> None: ...
    @property
    def refusals(self) -> Counter[tuple[str, str]]: ...  # by (neighbour or "unknown", reason)


class Worker(Protocol):
    """One agent's statistics: answers the questions that the protocol asks."""

    def solve(self, work: Solve) -> Solution: ...
    def judge(self, work: Judge) -> bool: ...
    def freeze(self, work: Freeze) -> Ints | Unknown: ...
    def appraise(self, work: Appraise) -> dict[str, Any]: ...
