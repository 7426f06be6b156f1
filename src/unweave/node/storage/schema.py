"""The tables of a store, and the migrations from older versions.

A migration is a tuple of SQL statements. The first creates all tables in version OLDEST, each
further one leads to the next version. They run in one transaction. Older files are refused: before
1.0 a format may change in ways that no migration can follow. `identity` has the same columns in
every version, because it is read before the migrations run. A migration that changes the values of
a row needs the agent's secret: each row has a MAC.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

__all__ = ["APPLICATION_ID", "MIGRATIONS", "OLDEST", "Migration", "latest", "migrate", "version"]


APPLICATION_ID = 0x756E7776  # "unwv": SQLite's mark of the program that owns the file

Migration = Sequence[str]

_FIRST = (
    # The owner of the store; written once. Each row of the other tables has a MAC (integrity.py).
    """CREATE TABLE identity (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        network_id BLOB NOT NULL,
        agent INTEGER NOT NULL,
        name TEXT NOT NULL
    )""",
    # A token as it is sent; at most two: the one that the agent is responsible for, and its copy.
    # `room` is zeros, so that the row keeps its length while the message varies by a few bytes.
    """CREATE TABLE token (
        id INTEGER PRIMARY KEY,
        mac BLOB NOT NULL,
        message BLOB NOT NULL,
        padding BLOB NOT NULL
    )""",
    """CREATE TABLE factor (
        id INTEGER PRIMARY KEY,
        mac BLOB NOT NULL,
        revision BLOB NOT NULL,
        rows INTEGER NOT NULL,
        data INTEGER NOT NULL,
        retrain_epoch BLOB NOT NULL,
        units BLOB NOT NULL
    )""",
    # The state's small fields. `factors` lists ids, the current one first.
    """CREATE TABLE state (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        mac BLOB NOT NULL,
        counter INTEGER NOT NULL,
        solved_for BLOB NOT NULL,
        last BLOB NOT NULL,
        fence BLOB NOT NULL,
        wake BLOB NOT NULL,
        rows INTEGER NOT NULL,
        data INTEGER NOT NULL,
        detached INTEGER NOT NULL,
        factors TEXT NOT NULL,
        role TEXT NOT NULL,
        role_token INTEGER REFERENCES token (id),
        role_to INTEGER,
        copy INTEGER REFERENCES token (id)
    )""",
    # The fields of the state that are one value of any size.
    """CREATE TABLE part (
        name TEXT PRIMARY KEY,
        mac BLOB NOT NULL,
        value BLOB NOT NULL
    ) WITHOUT ROWID""",
    # Signed statements: tombstones, compacted erasures, intents, votes, mismatches, receipts. With
    # row ids: without them a row that is longer than a quarter of a page would fill a whole one.
    """CREATE TABLE statement (
        field TEXT NOT NULL,
        key BLOB NOT NULL,
        mac BLOB NOT NULL,
        author INTEGER NOT NULL,
        raw BLOB NOT NULL,
        signature BLOB NOT NULL,
        PRIMARY KEY (field, key)
    )""",
)

MIGRATIONS: tuple[Migration, ...] = (_FIRST,)

# Version 1 had request ids that did not name their agent, version 2 rows of varying length,
# version 3 names from before the vocabulary.
OLDEST = 4


def latest(migrations: Sequence[Migration]) -> int:
    """The version that these migrations lead to."""
    return OLDEST + len(migrations) - 1


def version(db: sqlite3.Connection) -> int:
    """The version of the file; 0: the file is empty."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def migrate(db: sqlite3.Connection, migrations: Sequence[Migration]) -> None:
    """Migrate the file to the latest version; the caller holds the transaction."""
    done = max(0, version(db) - OLDEST + 1)
    for migration in migrations[done:]:
        for statement in migration:
            db.execute(statement)
    db.execute(f"PRAGMA user_version = {latest(migrations)}")
