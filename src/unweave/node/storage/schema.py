"""The tables of a store and of a ledger, and the migrations from older versions.

A migration is a tuple of SQL statements. The first creates all tables in version OLDEST, each
further one leads to the next version. They run in one transaction. Older files are refused: before
1.0 a format may change in ways that no migration can follow. `identity` has the same columns in
every version, because it is read before the migrations run. A migration that changes the values of
a row needs the agent's secret: each row has a MAC.

MACs cover rows, not the schema. A trigger or an index that another program added would keep copies
of what a commit deletes. So `difference` compares the schema of a file with what the migrations
create: every table, index, trigger and view, and the SQL of each. (TEMP triggers and attached
databases belong to one connection; no other process can add them to the agent's.) The SQL is
compared as text, so a migration must not rename: how ALTER TABLE rewrites the text of a renamed
table or column depends on SQLite's version.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing

from unweave.text import visible

__all__ = [
    "APPLICATION_ID",
    "LEDGER_MIGRATIONS",
    "MIGRATIONS",
    "OLDEST",
    "Migration",
    "difference",
    "latest",
    "migrate",
    "version",
]


APPLICATION_ID = 0x756E7776  # "unwv": SQLite's mark of the program that owns the file

Migration = Sequence[str]

# The owner of the file; written once. Each row of the other tables has a MAC (integrity.py).
_IDENTITY = """CREATE TABLE identity (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        network_id BLOB NOT NULL,
        agent INTEGER NOT NULL,
        name TEXT NOT NULL
    )"""

_FIRST = (
    _IDENTITY,
    # A token as it is sent; at most three: the one that the agent is responsible for, its copy, and
    # the last complete sum of private rounds.
    # `padding` is zeros, so that the row keeps its length while the message varies by a few bytes.
    """CREATE TABLE token (
        id INTEGER PRIMARY KEY,
        mac BLOB NOT NULL,
        message BLOB NOT NULL,
        padding BLOB NOT NULL
    )""",
    # `round` to `audit`: what was given to a private round; NULL: nothing was.
    """CREATE TABLE factor (
        id INTEGER PRIMARY KEY,
        mac BLOB NOT NULL,
        revision BLOB NOT NULL,
        rows INTEGER NOT NULL,
        data INTEGER NOT NULL,
        retrain_epoch BLOB NOT NULL,
        salt BLOB NOT NULL,
        point BLOB NOT NULL,
        units BLOB NOT NULL,
        round BLOB,
        key BLOB,
        masked BLOB,
        audit BLOB
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
        copy INTEGER REFERENCES token (id),
        published INTEGER REFERENCES token (id)
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

# The privacy ledger is a file of its own (ledger.py), with steps of its own. Its versions count
# from OLDEST too: raising OLDEST needs a step for ledgers, which no agent may lose.
LEDGER_MIGRATIONS: tuple[Migration, ...] = (
    (
        _IDENTITY,
        # `values_given` is 1, or for values that only others remembered their number; then the key
        # is empty. `rho` is the cost of all of them.
        """CREATE TABLE charge (
        number INTEGER PRIMARY KEY,
        mac BLOB NOT NULL,
        key BLOB NOT NULL,
        values_given INTEGER NOT NULL,
        rho TEXT NOT NULL
    )""",
        "CREATE UNIQUE INDEX charged ON charge (key) WHERE key <> x''",
    ),
)

# Version 1 had request ids that did not name their agent, version 2 rows of varying length,
# version 3 names from before the vocabulary, version 4 revisions without commitments, version 5
# attestation rounds without secrets, receipts with digests of sums, and no private rounds.
OLDEST = 6


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


def difference(db: sqlite3.Connection, migrations: Sequence[Migration]) -> str | None:
    """What another program added to, changed in or removed from the file's schema; None: nothing.
    Reads the schema alone, so nothing that was added runs."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as pattern:
        migrate(pattern, migrations[: version(db) - OLDEST + 1])
        wanted, found = _objects(pattern), _objects(db)
    if added := found - wanted:
        kind, name, table, _ = min(added, key=str)
        there = any(one[:2] == (kind, name) for one in wanted)
        on = "" if table == name else f" on {visible(table)}"
        how = "was changed" if there else "was added"
        return f"the {kind} {visible(name)}{on} {how}"
    if removed := wanted - found:
        kind, name, *_ = min(removed, key=str)
        return f"the {kind} {name} was removed"
    # Pages that auto_vacuum cuts off would keep their content on the disk.
    return "auto_vacuum was set" if db.execute("PRAGMA auto_vacuum").fetchone()[0] else None


def _objects(db: sqlite3.Connection) -> Counter[tuple[str, str, str, str | None]]:
    return Counter(db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))
