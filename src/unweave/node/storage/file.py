"""A store's file: create it, inspect it read-only, then open it for writing.

A wrong file is refused before anything is written to it: its header is read as plain bytes, and the
content through a read-only connection, which can neither repair nor checkpoint. Only an intact file
of this network and this agent is opened for writing, under an exclusive lock that ends with the
process.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from unweave.errors import StoreError
from unweave.node.storage.atomic import sync_directory
from unweave.node.storage.integrity import BadMac, RowMacs
from unweave.node.storage.rows import read_state
from unweave.node.storage.schema import (
    APPLICATION_ID,
    OLDEST,
    Migration,
    difference,
    latest,
    migrate,
    version,
)
from unweave.protocol.state import State
from unweave.protocol.terms import Terms

__all__ = [
    "check_schema",
    "claim",
    "connect",
    "create",
    "empty_log",
    "examine",
    "explained",
    "inspect",
    "make_private",
    "release",
    "settle",
]


T = TypeVar("T")

_OPEN: set[tuple[int, int]] = set()  # files that this process has open
_MAGIC = b"SQLite format 3\0"
_ANEW = (
    "move the file away while the other agents run: this agent learns again from its data and "
    "hears of erasures from its neighbours. Never do so for all agents at once: erased data come "
    "back"
)
_RESTORE = f"Fix: restore a backup of this agent, or {_ANEW}"
_CHANGED = "is damaged, or was changed by something that does not hold this agent's key"
_IN_USE = "in use by another agent. Fix: stop that agent, or give this one its own file"
_FOREIGN = "by another program and may keep erased data"
_DELETE = "Fix: restore a backup of this agent, or delete the file while the other agents run"
_MOVE = "Fix: move it away"
_SIDES = ("", "-wal", "-shm", "-journal")  # the files that SQLite opens
# What reading rows raises: a WireError, or another error for a column of another type or range.
_NO_STATE = (ValueError, TypeError, AttributeError, OverflowError, struct.error)
_LOG_LIMIT = 4 * 2**20  # bytes that the write-ahead log keeps after a checkpoint


@contextmanager
def explained(path: Path, fix: str | None = None) -> Iterator[None]:
    """SQLite's errors as ours: cause, file and fix. `fix` of a damaged file; default: a store's."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            problem = _IN_USE
        elif name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            problem = f"damaged ({error}). {fix or _RESTORE}"
        elif name.startswith("SQLITE_FULL"):
            problem = "the disk is full. Fix: free some space; a running agent tries again"
        elif name.startswith("SQLITE_IOERR"):
            problem = (
                f"the disk refuses ({error}). Fix: check its free space, its health and the "
                "process's limits; a running agent tries again"
            )
        else:
            problem = f"cannot be used ({error}). Fix: make the file and its directory writable"
        raise StoreError(f"{path}: {problem}") from error
    except UnicodeDecodeError as error:  # in the schema, or in SQLite's error about it
        raise StoreError(f"{path}: damaged (unreadable names). {fix or _RESTORE}") from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}. Fix: check path and permissions") from error


def _pragma(db: sqlite3.Connection, name: str, value: str | int) -> object:
    row = db.execute(f"PRAGMA {name} = {value}").fetchone()
    return None if row is None else row[0]


def create(path: Path, terms: Terms, me: int, migrations: Sequence[Migration]) -> None:
    """A new, empty store, which appears under its name when it is complete. An existing file is not
    replaced."""
    handle, name = tempfile.mkstemp(prefix=path.name + ".", suffix=".new", dir=path.parent)
    os.close(handle)
    try:
        with closing(sqlite3.connect(name, isolation_level=None)) as db:
            _pragma(db, "auto_vacuum", "NONE")
            _pragma(db, "synchronous", "FULL")
            db.execute("BEGIN IMMEDIATE")
            _pragma(db, "application_id", APPLICATION_ID)
            migrate(db, migrations)
            owner = (terms.network_id, me, terms.name(me))
            db.execute(
                "INSERT INTO identity (one, network_id, agent, name) VALUES (1, ?, ?, ?)", owner
            )
            db.execute("COMMIT")
            _pragma(db, "journal_mode", "WAL")
        with suppress(FileExistsError):
            os.link(name, path)
    finally:
        os.unlink(name)
    sync_directory(path)


def inspect(
    path: Path, terms: Terms, me: int, macs: RowMacs, migrations: Sequence[Migration]
) -> State | None:
    """The state in the file; None: nothing was ever stored, or the file needs a migration. Refuses
    what `examine` refuses."""

    def read(db: sqlite3.Connection) -> State | None:
        found = read_state(db, terms, me, macs)
        return None if found is None else found[0]

    return examine(path, terms, me, migrations, read)


def examine(
    path: Path,
    terms: Terms,
    me: int,
    migrations: Sequence[Migration],
    read: Callable[[sqlite3.Connection], T | None],
    fix: str | None = None,
) -> T | None:
    """What `read` finds in the file; None if the file needs a migration. Refuses, and does not
    change, a file that is damaged, newer, of another program or agent, or that another process has
    changed. `fix` of a file that cannot be used; default: a store's."""
    _check_files(path)
    if _inode(path) in _OPEN:
        raise StoreError(f"{path}: {_IN_USE}")
    with path.open("rb") as file:
        head = file.read(100)
    if head[:16] != _MAGIC or len(head) < 100:
        raise StoreError(f"{path}: not an unweave store, nor any database. {fix or _MOVE}")
    if int.from_bytes(head[68:72], "big") != APPLICATION_ID:
        raise StoreError(f"{path}: a database of another program. {fix or _MOVE}")
    with _read_only(path) as db:
        found, newest = version(db), latest(migrations)
        if found > newest:
            raise StoreError(
                f"{path}: written by a newer unweave (schema {found}, this one knows "
                f"{newest}). Fix: install the newer version again"
            )
        if found < OLDEST:
            raise StoreError(
                f"{path}: written by an older unweave (schema {found}, this one reads from "
                f"{OLDEST} on). {fix or _RESTORE}"
            )
        check_schema(db, path, migrations, fix)
        problem = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if problem != "ok":
            raise StoreError(f"{path}: damaged ({problem}). {fix or _RESTORE}")
        _check_owner(db, path, terms, me, fix)
        if found == newest:
            try:
                return read(db)
            except BadMac as error:
                raise StoreError(f"{path}: {error} {_CHANGED}. {fix or _RESTORE}") from None
            except _NO_STATE as error:
                raise StoreError(f"{path}: damaged ({error}). {fix or _RESTORE}") from None
    return None


@contextmanager
def _read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection that sees the write-ahead log and leaves no file behind."""
    sides = [path.with_name(path.name + suffix) for suffix in ("-shm", "-wal")]
    made = [side for side in sides if not side.exists()]
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0)
    try:
        _pragma(db, "trusted_schema", "OFF")
        yield db
    finally:
        db.close()
        for side in made:
            # An empty log and its index, made by this connection. A process that opened the file
            # for writing meanwhile uses no index, and the lock of `db` would have refused it.
            if side.name.endswith("-shm") or (side.exists() and not side.stat().st_size):
                side.unlink(missing_ok=True)


def _check_files(path: Path) -> None:
    """Refuse links: the log of a linked file would be written beside the link's target."""
    for file in _files(path):
        if file.is_symlink() or not file.is_file():
            raise StoreError(
                f"{file}: a link or a special file; a store is a file in its agent's folder. Fix: "
                "stop the agent and move the file itself there"
            )


def _files(path: Path) -> list[Path]:
    """The store and the files beside it, as far as there are any."""
    files = [path.with_name(path.name + side) for side in _SIDES]
    return [file for file in files if os.path.lexists(file)]


def make_private(path: Path) -> None:
    """Let nobody but the owner read the file, as after a copy; SQLite gives its log the same
    mode."""
    for file in _files(path):
        if file.stat().st_mode & 0o077:
            file.chmod(0o600)


def check_schema(
    db: sqlite3.Connection, path: Path, migrations: Sequence[Migration], fix: str | None = None
) -> None:
    """StoreError unless the file has the tables that the migrations create, and nothing else."""
    if (found := difference(db, migrations)) is not None:
        raise StoreError(f"{path}: {found} {_FOREIGN}. {fix or _DELETE}")


def _check_owner(
    db: sqlite3.Connection, path: Path, terms: Terms, me: int, fix: str | None
) -> None:
    owner = db.execute("SELECT network_id, agent, name FROM identity").fetchone()
    if owner is None:
        raise StoreError(f"{path}: damaged (it has no owner). {fix or _RESTORE}")
    run, agent, name = owner
    if run != terms.network_id:
        other = run.hex()[:12] if isinstance(run, bytes) else "unknown "
        raise StoreError(
            f"{path}: belongs to the network {other}…, not to "
            f"{terms.network_id.hex()[:12]}…. Fix: restore the manifest, or correct the path"
        )
    if (agent, name) != (me, terms.name(me)):
        raise StoreError(
            f"{path}: belongs to agent {name} (number {agent}), not to {terms.name(me)} "
            f"(number {me}). Fix: give every agent its own file"
        )


def _inode(path: Path) -> tuple[int, int]:
    info = path.stat()
    return info.st_dev, info.st_ino


def claim(path: Path) -> tuple[int, int]:
    """Note that this process has the file open. POSIX drops SQLite's lock as soon as the process
    closes any other handle of the file, so the process must not open a second one."""
    inode = _inode(path)
    _OPEN.add(inode)
    return inode


def release(inode: tuple[int, int]) -> None:
    _OPEN.discard(inode)


def connect(path: Path) -> sqlite3.Connection:
    """A connection for writing. SQLite's lock is released when the process ends."""
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,  # one thread at a time, but not always the same one
    )
    try:
        # Exclusive before the first access: then SQLite keeps the index of the log in memory.
        _pragma(db, "locking_mode", "EXCLUSIVE")
        if _pragma(db, "journal_mode", "WAL") != "wal":
            raise StoreError(
                f"{path}: its file system has no write-ahead log. Fix: use a local disk"
            )
        _pragma(db, "synchronous", "FULL")
        _pragma(db, "foreign_keys", "ON")
        _pragma(db, "secure_delete", "ON")
        _pragma(db, "temp_store", "MEMORY")  # nothing of a factor in temporary files
        _pragma(db, "cell_size_check", "ON")
        _pragma(db, "trusted_schema", "OFF")
        _pragma(db, "journal_size_limit", _LOG_LIMIT)
        db.execute("BEGIN EXCLUSIVE")
        db.execute("ROLLBACK")
    except BaseException:
        db.close()
        raise
    return db


def settle(
    db: sqlite3.Connection, path: Path, migrations: Sequence[Migration], fix: str | None = None
) -> None:
    """Migrate an intact file to the current version and empty its log. The schema is checked again:
    the lock is held only now."""
    check_schema(db, path, migrations, fix)
    if version(db) != latest(migrations):
        db.execute("BEGIN IMMEDIATE")
        try:
            migrate(db, migrations)
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
    empty_log(db, path)


def empty_log(db: sqlite3.Connection, path: Path) -> None:
    """Write the log's content to the file and truncate the log."""
    busy, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise StoreError(f"{path}: the log is in use by another process. Fix: stop that process")
