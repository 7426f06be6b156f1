"""An agent's durable state in one SQLite file, and the thread that reads and writes it.

One commit is one transaction, synced to the disk before `commit` returns. Deleted content is
overwritten with zeros (`secure_delete`). If a commit deletes because of an erasure, the zeros are
written to the file, and the write-ahead log, which still holds the content, is truncated before
`commit` returns; if the process dies in between, the next `open` truncates it.

All rows have MACs under a secret of the agent (`integrity` states what they show and what they do
not), and the schema is compared with the one that unweave creates (`schema`). A file that differs
is refused and not changed.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from unweave.errors import StoreError
from unweave.node.config import AgentFolder
from unweave.node.identity import Identity
from unweave.node.storage.file import (
    check_schema,
    claim,
    connect,
    create,
    empty_log,
    explained,
    inspect,
    make_private,
    release,
    settle,
)
from unweave.node.storage.integrity import RowMacs
from unweave.node.storage.rows import Rows, read_state, write_state
from unweave.node.storage.schema import MIGRATIONS, Migration
from unweave.protocol.state import DURABLE, State
from unweave.protocol.terms import Terms
from unweave.protocol.token import dead

__all__ = ["SqliteStore", "StoreThread", "look_into_store", "open_store"]


class SqliteStore:
    """`with SqliteStore.open("a1.db", terms, me, secret) as store: …`"""

    def __init__(
        self, path: Path, db: sqlite3.Connection, terms: Terms, me: int, secret: bytes
    ) -> None:
        self.path = path
        self._db = db
        self._terms = terms
        self._me = me
        self._secret = secret
        self._stored: Mapping[str, Any] | None = None  # the fields on the disk
        self._rows = Rows({}, {}, RowMacs(secret))
        self._failed = False
        self._claim = claim(path)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        terms: Terms,
        me: int,
        secret: bytes = b"",
        *,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> Self:
        """Open the store of agent `me`, or create it. Any other file is refused and not changed.

        `secret` keys the MACs of the rows: `Identity.store_secret` for an agent (`open_store`).
        Without one, as in tests, the MACs show damage and nothing else.
        """
        file = Path(path)
        with explained(file):
            if not file.exists():
                create(file, terms, me, migrations)
            inspect(file, terms, me, RowMacs(secret), migrations)
            make_private(file)
            store = cls(file, connect(file), terms, me, secret)
            try:
                settle(store._db, file, migrations)
                store._read()
            except BaseException:
                store.close()
                raise
        return store

    def load(self, terms: Terms, me: int) -> State | None:
        if terms.network_id != self._terms.network_id or me != self._me:
            raise StoreError(f"{self.path}: is open for {self._terms.name(self._me)}")
        with explained(self.path):
            return self._read()

    def commit(self, before: State, after: State) -> None:
        """Write what changed since the last commit, in one transaction."""
        stored = self._stored
        if self._failed:
            raise StoreError(f"{self.path}: an earlier write failed. Fix: start the agent again")
        changed: Collection[str] = DURABLE
        if stored is not None:
            if lost := [name for name in DURABLE if before.durable(name) is not stored[name]]:
                raise StoreError(
                    f"{self.path}: the new state follows from {', '.join(lost)} that were not "
                    "committed. Fix: commit every state, in order"
                )
            changed = {name for name in DURABLE if after.durable(name) is not stored[name]}
            if not changed:
                return
        wipe = self._erases(after)
        db = self._db
        self._failed = True  # until the commit has succeeded
        with explained(self.path):
            try:
                db.execute("BEGIN IMMEDIATE")
                rows = write_state(db, stored, after, changed, self._rows)
                db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise
            self._rows = rows
            self._stored = {name: after.durable(name) for name in DURABLE}
            if wipe:
                empty_log(db, self.path)
        self._failed = False

    def close(self) -> None:
        self._db.close()
        release(self._claim)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def image(self) -> bytes:
        """A copy of the file: SQLite's online backup, in memory, so that no second copy is on the
        disk."""
        with explained(self.path), closing(sqlite3.connect(":memory:")) as copy:
            self._db.backup(copy)
            check_schema(copy, self.path, MIGRATIONS)
            return copy.serialize()

    def _read(self) -> State | None:
        found = read_state(self._db, self._terms, self._me, RowMacs(self._secret))
        if found is None:
            return None
        state, self._rows = found
        self._stored = {name: state.durable(name) for name in DURABLE}
        return state

    def _erases(self, after: State) -> bool:
        """Whether this commit deletes because of a tombstone; then the log must be truncated."""
        stored = self._stored
        if stored is None:
            return False
        if (
            after.known.tombs is not stored["tombs"]
            or after.known.retrain_epoch is not stored["retrain_epoch"]
        ):
            return True
        if len(after.own.factors) < len(stored["factors"]):
            return True
        # The token that lacks the erased factor was acknowledged: the factor need not be shown.
        origin = stored["origin"]
        if after.tomb.ids and origin is not None and origin.removed is not None:
            if after.token.origin is None or after.token.origin.removed is None:
                return True
        # In quarantine an agent learns a tombstone before it drops the dead token.
        kept = (after.token.held, after.token.copy, after.token.published)
        return any(
            dead(token, after.known.tombs, after.known.retrain_epoch)
            for token in self._rows.tokens.values()
            if not any(token is one for one in kept)
        )


T = TypeVar("T")


def open_store(folder: AgentFolder, identity: Identity) -> SqliteStore:
    """The store in an agent's folder, under its key. It is created if there is none."""
    return SqliteStore.open(folder.store, folder.terms, folder.me, identity.store_secret)


def look_into_store(folder: AgentFolder, identity: Identity) -> State | None:
    """The state in the store of a stopped agent, checked as at its start; nothing is written.
    None: nothing was ever stored."""
    if not folder.store.exists():
        return None
    with explained(folder.store):
        macs = RowMacs(identity.store_secret)
        return inspect(folder.store, folder.terms, folder.me, macs, MIGRATIONS)


class StoreThread:
    """Opens, reads and writes one agent's store on one thread, so that a slow disk does not block
    the event loop."""

    def __init__(self, folder: AgentFolder, identity: Identity) -> None:
        self._folder = folder
        self._identity = identity
        self._terms = folder.terms
        self._me = folder.me
        self._store: SqliteStore | None = None
        self._thread = ThreadPoolExecutor(1, "disk")

    async def open(self) -> None:
        if self._store is None:
            await self._on_thread(self._open)

    async def load(self) -> State:
        return await self._on_thread(self._load)

    def commit(self, before: State, after: State) -> asyncio.Future[None]:
        assert self._store is not None
        return self._on_thread(self._store.commit, before, after)

    async def image(self) -> bytes:
        """A copy of the file, between two commits."""
        return await self._on_thread(self._image)

    async def close(self) -> None:
        await self._on_thread(self._close)

    def end(self) -> None:
        self._thread.shutdown()

    def _on_thread(self, do: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, do, *args)

    def _open(self) -> None:
        self._store = open_store(self._folder, self._identity)

    def _load(self) -> State:
        assert self._store is not None
        loaded = self._store.load(self._terms, self._me)
        return State(self._terms, self._me) if loaded is None else loaded

    def _image(self) -> bytes:
        if self._store is None:
            raise StoreError(f"{self._folder.store}: is not open. Fix: read the agent's log")
        return self._store.image()

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None
