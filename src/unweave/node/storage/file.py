"""Opening a store's file: create it whole, look before touching, then take it for oneself.

A file is refused before anything is written to it: its mark is read as plain bytes, and everything
else through a read-only connection, which can neither repair nor checkpoint. Only a file that is
intact, of this network and of this agent is then opened for writing, under an exclusive lock that
ends with the process.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from unweave.errors import StoreError, WireError
from unweave.node.storage.atomic import sync_directory
from unweave.node.storage.integrity import BadMac
from unweave.node.storage.rows import read_state
from unweave.node.storage.schema import APPLICATION_ID, OLDEST, Migration, latest, migrate, version
from unweave.protocol.state import State
from unweave.protocol.terms import Terms

__all__ = [
    "claim",
    "connect",
    "create",
    "empty_log",
    "explained",
    "inspect",
    "release",
    "settle",
]


_OPEN: set[tuple[int, int]] = set()  # files that this process has open
_MAGIC = b"SQLite format 3\0"
# A comma and no semicolon: whoever shows the problem and its fix apart cuts at the last semicolon.
_ANEW = (
    "move the file away while the other agents run: this one then learns anew from its data, and "
    "its neighbours tell it what was erased. One agent at a time, never all at once, for then "
    "nobody remembers what was erased, and it comes back"
)
_RESTORE = f"restore a backup of this agent, or {_ANEW}"
_CHANGED = (
    "is not what this agent wrote: damaged, or changed by something that does not hold this "
    "agent's key. Find out what did it"
)
_IN_USE = "in use by another agent; stop that one, or give this one its own file"
_LOG_LIMIT = 4 * 2**20  # bytes that the write-ahead log keeps after a checkpoint


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """SQLite's errors as ours: cause, file and fix."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            problem = _IN_USE
        elif name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            problem = f"damaged ({error}); {_RESTORE}"
        elif name.startswith("SQLITE_FULL"):
            problem = "the disk is full; free some space and start the agent again"
        else:
            problem = f"cannot be used ({error}); check that file and directory can be written"
        raise StoreError(f"{path}: {problem}") from error
    except UnicodeDecodeError as error:  # in the schema, or in SQLite's complaint about it
        raise StoreError(f"{path}: damaged (unreadable names); {_RESTORE}") from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; check the path and its permissions") from error


def _pragma(db: sqlite3.Connection, name: str, value: str | int) -> object:
    row = db.execute(f"PRAGMA {name} = {value}").fetchone()
    return None if row is None else row[0]


def create(path: Path, terms: Terms, me: int, migrations: Sequence[Migration]) -> None:
    """A new, empty store. It appears under its name when it is whole; an existing file stays."""
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


# ---------------------------------------------------------------------------------- looking only


def inspect(
    path: Path, terms: Terms, me: int, secret: bytes, migrations: Sequence[Migration]
) -> State | None:
    """Refuse a file that is damaged, foreign, newer, somebody else's, or that something else than
    this agent has written to; change nothing. Returns the state in it; None: nothing was ever
    stored, or the file has still to be brought to the current version."""
    if _inode(path) in _OPEN:
        raise StoreError(f"{path}: {_IN_USE}")
    with path.open("rb") as file:
        head = file.read(100)
    if head[:16] != _MAGIC or len(head) < 100:
        raise StoreError(
            f"{path}: not an unweave store, nor any database; give another path, or move it away"
        )
    if int.from_bytes(head[68:72], "big") != APPLICATION_ID:
        raise StoreError(f"{path}: a database of another program; give another path")
    with _looking(path) as db:
        found, newest = version(db), latest(migrations)
        if found > newest:
            raise StoreError(
                f"{path}: written by a newer unweave (schema {found}, this one knows "
                f"{newest}); install the newer version again"
            )
        if found < OLDEST:
            raise StoreError(
                f"{path}: written by an older unweave (schema {found}, this one reads from "
                f"{OLDEST} on); {_ANEW}"
            )
        problem = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if problem != "ok":
            raise StoreError(f"{path}: damaged ({problem}); {_RESTORE}")
        _check_owner(db, path, terms, me)
        if found == newest:
            try:
                read = read_state(db, terms, me, secret)
                return None if read is None else read[0]
            except BadMac as error:
                raise StoreError(f"{path}: {error} {_CHANGED}; {_RESTORE}") from None
            except (WireError, TypeError, AttributeError) as error:  # a column of another type
                raise StoreError(f"{path}: damaged ({error}); {_RESTORE}") from None
    return None


@contextmanager
def _looking(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection that sees the write-ahead log and leaves no file behind."""
    sides = [path.with_name(path.name + suffix) for suffix in ("-shm", "-wal")]
    made = [side for side in sides if not side.exists()]
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0)
    try:
        yield db
    finally:
        db.close()
        for side in made:
            # An empty log and its index, made by looking. Whoever else opened the file meanwhile
            # for writing uses no index, and would have been refused by the lock of `db`.
            if side.name.endswith("-shm") or (side.exists() and not side.stat().st_size):
                side.unlink(missing_ok=True)


def _check_owner(db: sqlite3.Connection, path: Path, terms: Terms, me: int) -> None:
    owner = db.execute("SELECT network_id, agent, name FROM identity").fetchone()
    if owner is None:
        raise StoreError(f"{path}: damaged (it has no owner); {_RESTORE}")
    run, agent, name = owner
    if run != terms.network_id:
        raise StoreError(
            f"{path}: belongs to the network {bytes(run).hex()[:12]}…, not to "
            f"{terms.network_id.hex()[:12]}…; the manifest has changed, or the path is wrong"
        )
    if (agent, name) != (me, terms.name(me)):
        raise StoreError(
            f"{path}: belongs to agent {name} (number {agent}), not to {terms.name(me)} "
            f"(number {me}); every agent needs its own file"
        )


# ------------------------------------------------------------------------------------- for good


def _inode(path: Path) -> tuple[int, int]:
    info = path.stat()
    return info.st_dev, info.st_ino


def claim(path: Path) -> tuple[int, int]:
    """Note that this process has the file open. SQLite's lock keeps other processes away, but POSIX
    drops it as soon as this one closes any other handle of the file: so it must not open one."""
    inode = _inode(path)
    _OPEN.add(inode)
    return inode


def release(inode: tuple[int, int]) -> None:
    _OPEN.discard(inode)


def connect(path: Path) -> sqlite3.Connection:
    """The one writer. The lock is SQLite's own and is released when the process ends."""
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,  # one thread at a time, but not always the same one
    )
    try:
        # Exclusive before the first access: then the index of the log lives in memory.
        _pragma(db, "locking_mode", "EXCLUSIVE")
        if _pragma(db, "journal_mode", "WAL") != "wal":
            raise StoreError(f"{path}: its file system cannot hold a log; use a local disk")
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


def settle(db: sqlite3.Connection, path: Path, migrations: Sequence[Migration]) -> None:
    """Bring an intact file to the current version and empty its log."""
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
    """Write the log's content to its place and cut the log to nothing."""
    busy, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise StoreError(f"{path}: the log is in use by another process; stop it")
