"""The agent's store, and a thread of its own for it: a slow disk holds up nothing but the steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from unweave.node.config import AgentFolder
from unweave.node.identity import Identity
from unweave.node.store import SqliteStore
from unweave.protocol.state import State

__all__ = ["Disk", "open_store"]

T = TypeVar("T")


def open_store(folder: AgentFolder, identity: Identity) -> SqliteStore:
    """The store in an agent's folder, sealed with its key. It is created if there is none."""
    return SqliteStore.open(folder.store, folder.terms, folder.me, identity.store_secret)


class Disk:
    """Opens, reads and writes one agent's file, one thing at a time."""

    def __init__(self, folder: AgentFolder, identity: Identity) -> None:
        self._folder = folder
        self._identity = identity
        self._terms = folder.terms
        self._me = folder.me
        self._store: SqliteStore | None = None
        self._thread = ThreadPoolExecutor(1, "disk")

    async def open(self) -> None:
        if self._store is None:
            await self._there(self._open)

    async def load(self) -> State:
        return await self._there(self._load)

    def commit(self, before: State, after: State) -> asyncio.Future[None]:
        assert self._store is not None
        return self._there(self._store.commit, before, after)

    async def close(self) -> None:
        await self._there(self._close)

    def end(self) -> None:
        self._thread.shutdown()

    # ----------------------------------------------------------------------- in the disk's thread

    def _there(self, do: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, do, *args)

    def _open(self) -> None:
        self._store = open_store(self._folder, self._identity)

    def _load(self) -> State:
        assert self._store is not None
        loaded = self._store.load(self._terms, self._me)
        return State(self._terms, self._me) if loaded is None else loaded

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None
