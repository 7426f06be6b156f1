"""The schema of a store: whatever another program adds to it, changes in it or removes from it is
refused, wherever a store is opened, copied or restored."""

import hashlib
import json
import shutil
import sqlite3
from random import Random

import pytest
from tests.node.test_store import SECRET, edit, refused, sealed
from tests.operations.test_backup import asleep, members, rewrite  # noqa: F401

from unweave.errors import ConfigError, StoreError
from unweave.node.agent import open_identity
from unweave.node.config import AgentFolder
from unweave.node.storage.file import connect
from unweave.node.storage.schema import MIGRATIONS
from unweave.node.storage.sqlite import SqliteStore, look_into_store, open_store
from unweave.operations.backup import back_up, restore
from unweave.protocol.state import State
from unweave.testing.store import ME, TERMS
from unweave.testing.values import same_durable, state

KEEP = "CREATE TRIGGER keep BEFORE DELETE ON factor BEGIN INSERT INTO old VALUES (OLD.units); END"
REWRITE = (
    "PRAGMA writable_schema = ON",
    "UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', 'NOT NULL DEFAULT 0') "
    "WHERE name = 'factor'",
)

PLANTED = {
    "table": (("CREATE TABLE old (units)",), "the table old was added"),
    "trigger": ((KEEP.replace("old VALUES", "part VALUES"),), "the trigger keep on factor was"),
    "trigger and table": (("CREATE TABLE old (units)", KEEP), "was added"),
    "view": (("CREATE VIEW old AS SELECT units FROM factor",), "the view old was added"),
    "index": (("CREATE INDEX old ON factor (units)",), "the index old on factor was added"),
    "generated column": (
        ("ALTER TABLE factor ADD COLUMN old AS (units || units)",),
        "the table factor was changed",
    ),
    "column": (("ALTER TABLE token ADD COLUMN old",), "the table token was changed"),
    "renamed column": (("ALTER TABLE token RENAME padding TO room",), "the table token was"),
    "text of a table": (REWRITE, "the table factor was changed"),
    "missing table": (("DROP TABLE statement",), "(table|index) .*statement.* was removed"),
    "statistics": (("ANALYZE",), "the table sqlite_stat1 was added"),
    "virtual table": (("CREATE VIRTUAL TABLE old USING rtree (a, b, c)",), "old.* was added"),
    "auto_vacuum": (("PRAGMA auto_vacuum = FULL", "VACUUM"), "auto_vacuum was set"),
    "hostile name": (('CREATE TABLE "\x1b[2J" (a)',), r"the table \\x1b\[2J was added"),
}


def plant(path, statements):
    db = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        db.execute(statement)
    db.close()


@pytest.mark.parametrize("kind", PLANTED)
def test_what_another_program_plants_is_refused(kind, tmp_path):
    path = tmp_path / "a.db"
    held = sealed(path)
    good = path.read_bytes()
    statements, says = PLANTED[kind]
    plant(path, statements)
    refused(path, says, secret=SECRET)
    with pytest.raises(StoreError, match=r"Fix: restore a backup") as error:
        SqliteStore.open(path, TERMS, ME, SECRET)
    assert len(str(error.value).split()) <= 40
    path.write_bytes(good)
    with SqliteStore.open(path, TERMS, ME, SECRET) as store:
        assert same_durable(store.load(TERMS, ME), held)


def test_a_replaced_log_is_part_of_the_file(tmp_path):
    """The trigger is in the write-ahead log alone, as if somebody had put that file there."""
    path, log = tmp_path / "a.db", tmp_path / "a.db-wal"
    sealed(path)
    good = path.read_bytes()
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE old (units)")
    db.commit()
    planted = log.read_bytes()
    db.close()
    path.write_bytes(good)
    log.write_bytes(planted)
    refused(path, "the table old was added", secret=SECRET)


def test_a_planted_rollback_journal_is_refused(tmp_path):
    path, journal = tmp_path / "a.db", tmp_path / "a.db-journal"
    sealed(path)
    good = path.read_bytes()
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = DELETE")
    planted = tmp_path / "planted"
    db.execute("CREATE TABLE old (units)")
    db.execute("BEGIN")
    db.execute("DROP TABLE old")
    db.execute("PRAGMA cache_spill = 1")
    db.execute("PRAGMA cache_size = 1")
    db.execute("CREATE TABLE more AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM "
               "n WHERE i < 20000) SELECT i, randomblob(99) FROM n")  # fmt: skip
    shutil.copy(journal, planted)
    db.execute("ROLLBACK")
    db.close()
    path.write_bytes(good)
    shutil.move(planted, journal)
    refused(path, "a.db", secret=SECRET)


def test_planted_between_inspection_and_lock(tmp_path, monkeypatch):
    """The inspection holds no lock, so the schema is compared again under the lock."""
    path = tmp_path / "a.db"
    sealed(path)

    def planting(file):
        plant(file, ("CREATE TABLE old (units)",))
        return connect(file)

    monkeypatch.setattr("unweave.node.storage.sqlite.connect", planting)
    with pytest.raises(StoreError, match="the table old was added"):
        SqliteStore.open(path, TERMS, ME, SECRET)


def test_the_comparison_follows_the_migrations(tmp_path):
    """Triggers and tables that a migration creates belong to the store, and only those."""
    path = tmp_path / "a.db"
    held = sealed(path)
    newer = (*MIGRATIONS, ("CREATE TABLE old (units)", KEEP))
    with SqliteStore.open(path, TERMS, ME, SECRET, migrations=newer) as store:
        assert same_durable(store.load(TERMS, ME), held)
    SqliteStore.open(path, TERMS, ME, SECRET, migrations=newer).close()
    plant(path, ("DROP TRIGGER keep",))
    with pytest.raises(StoreError, match="the trigger keep was removed"):
        SqliteStore.open(path, TERMS, ME, SECRET, migrations=newer)


def test_an_older_file_is_compared_before_it_is_migrated(tmp_path):
    path = tmp_path / "a.db"
    sealed(path)
    plant(path, ("CREATE TABLE note (text)",))
    with pytest.raises(StoreError, match="the table note was added"):
        SqliteStore.open(
            path, TERMS, ME, SECRET, migrations=(*MIGRATIONS, ("CREATE TABLE other (a)",))
        )


# ------------------------------------------------------------------------------ agents and backups


def test_a_stopped_agent_with_a_planted_trigger(asleep, tmp_path):  # noqa: F811
    """Neither started, nor read, nor copied: a backup would carry the trigger on."""
    home = AgentFolder.read(asleep)
    plant(home.store, ("CREATE TABLE old (units)", KEEP))
    for use in (open_store, look_into_store, lambda *_: back_up(asleep, tmp_path / "a.tar")):
        with pytest.raises(StoreError, match="was added by another program"):
            use(home, open_identity(home))
    assert not (tmp_path / "a.tar").exists()


def test_a_copy_of_an_open_store_has_no_foreign_objects(tmp_path):
    path = tmp_path / "a.db"
    with SqliteStore.open(path, TERMS, ME, SECRET) as store:
        store.commit(State(TERMS, ME), state(Random(1), TERMS, ME))
        store.image()
        store._db.execute("CREATE TABLE old (units)")
        with pytest.raises(StoreError, match="the table old was added"):
            store.image()


def test_a_restored_store_has_no_foreign_objects(asleep, tmp_path):  # noqa: F811
    archive = tmp_path / "a.tar"
    back_up(asleep, archive)
    files = members(archive)
    path = tmp_path / "planted.db"
    path.write_bytes(files["store.db"])
    edit(path, "CREATE TABLE old (units)", KEEP)
    index = json.loads(files["backup.json"])
    files["store.db"] = path.read_bytes()
    index["files"]["store.db"] = hashlib.sha256(files["store.db"]).hexdigest()
    rewrite(archive, {**files, "backup.json": json.dumps(index).encode()})
    with pytest.raises(ConfigError, match="was added by another program"):
        restore(archive, tmp_path / "new")
    assert not (tmp_path / "new").exists()


# -------------------------------------------------------------------------------- links and modes


@pytest.mark.parametrize("side", ["", "-wal", "-shm", "-journal"])
def test_a_linked_file_is_refused(side, tmp_path):
    path, outside = tmp_path / "in" / "a.db", tmp_path / "outside"
    path.parent.mkdir()
    sealed(path)
    linked = path.with_name(path.name + side)
    if side:
        outside.write_bytes(b"")
    else:
        path.rename(outside)
    linked.symlink_to(outside)
    with pytest.raises(StoreError, match=r"a link or a special file.*Fix: stop the agent"):
        SqliteStore.open(path, TERMS, ME, SECRET)
    assert linked.is_symlink()


def test_a_store_that_others_can_read_becomes_private(tmp_path):
    """As after a copy without its modes; the log gets the mode of the store."""
    path = tmp_path / "a.db"
    held = sealed(path)
    path.chmod(0o644)
    with SqliteStore.open(path, TERMS, ME, SECRET) as store:
        loaded = store.load(TERMS, ME)
        assert same_durable(loaded, held)
        after = loaded.fork()
        after.own.counter += 1
        store.commit(loaded, after)
        modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
        assert modes == {"a.db": 0o600, "a.db-wal": 0o600}
