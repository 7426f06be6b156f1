"""The store: the laws of every store, and what is special about a file."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from functools import partial
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.processes import Processes

from unweave.errors import StoreError
from unweave.node import agent as serve
from unweave.node.config import AgentFolder
from unweave.node.storage.integrity import BadMac, RowMacs
from unweave.node.storage.rows import FIELDS
from unweave.node.storage.schema import APPLICATION_ID, MIGRATIONS, OLDEST, latest
from unweave.node.storage.sqlite import SqliteStore, StoreThread, open_store
from unweave.node.wire.codec import decode
from unweave.operations import preflight
from unweave.persistent import Stack
from unweave.protocol.messages import Pass
from unweave.protocol.ports import MemoryStore
from unweave.protocol.state import DURABLE, Hold, Idle, Out, State
from unweave.protocol.token import NO_ROUND
from unweave.testing.store import LAWS, MASKED, ME, TERMS, the_last_commit_is_what_is_loaded
from unweave.testing.values import same, same_durable, small_terms, state, token


def _same(store):
    return store


MODES = pytest.mark.parametrize("terms", [TERMS, MASKED], ids=lambda terms: terms.privacy)


@MODES
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_laws(law, kind, terms, tmp_path):
    for seed in range(2):
        memory = partial(_same, MemoryStore())
        path = tmp_path / f"{seed}.db"
        reopen = memory if kind == "memory" else partial(SqliteStore.open, path, terms, ME)
        law(reopen, Random(seed), terms)


def test_every_durable_field_has_a_place():
    assert sorted(FIELDS) == sorted(DURABLE)


@MODES
@given(seed=st.integers(0, 2**32))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_states_in_any_order(seed, terms, tmp_path):
    path = tmp_path / f"{len(os.listdir(tmp_path))}.db"
    reopen = partial(SqliteStore.open, path, terms, ME)
    the_last_commit_is_what_is_loaded(reopen, Random(seed), terms)


def filled(path: Path, seed: int = 1, steps: int = 4, terms=TERMS) -> State:
    """A store with some history, closed; the state it holds."""
    draw = Random(seed)
    with SqliteStore.open(path, terms, ME) as store:
        at = State(terms, ME)
        for step in range(steps):
            after = state(draw, terms, ME, at if step else None)
            store.commit(at, after)
            at = after
    return at


def pragma(store: SqliteStore, name: str):
    return store._db.execute(f"PRAGMA {name}").fetchone()[0]


def test_settings_of_the_file(tmp_path):
    path = tmp_path / "a.db"
    filled(path)
    assert path.stat().st_mode & 0o777 == 0o600
    with SqliteStore.open(path, TERMS, ME) as store:
        wanted = {
            "journal_mode": "wal",
            "synchronous": 2,
            "foreign_keys": 1,
            "secure_delete": 1,
            "temp_store": 2,
            "locking_mode": "exclusive",
            "user_version": latest(MIGRATIONS),
            "application_id": APPLICATION_ID,
        }
        assert {name: pragma(store, name) for name in wanted} == wanted
        with pytest.raises(sqlite3.IntegrityError):
            store._db.execute("UPDATE state SET copy = 99")
        assert not (tmp_path / "a.db-shm").exists()
    assert sorted(os.listdir(tmp_path)) == ["a.db"]


def test_a_step_is_one_transaction_and_no_change_is_none(tmp_path):
    draw = Random(2)
    with SqliteStore.open(tmp_path / "a.db", TERMS, ME) as store:
        first = state(draw, TERMS, ME)
        statements: list[str] = []
        store._db.set_trace_callback(statements.append)
        store.commit(State(TERMS, ME), first)
        assert statements[0] == "BEGIN IMMEDIATE"
        assert statements[-1] == "COMMIT"
        assert not any(s.startswith(("BEGIN", "COMMIT")) for s in statements[1:-1])
        statements.clear()
        store.commit(first, first.restarted(3))
        assert statements == []
        after = first.fork()
        after.token.fence = after.token.fence._replace(hop=after.token.fence.hop + 1)
        store.commit(first, after)
        assert [s.split()[0] for s in statements] == ["BEGIN", "UPDATE", "COMMIT"]
        store._db.set_trace_callback(None)


def test_a_lost_step_is_noticed(tmp_path):
    draw = Random(2)
    with SqliteStore.open(tmp_path / "a.db", TERMS, ME) as store:
        first = state(draw, TERMS, ME)
        store.commit(State(TERMS, ME), first)
        second = first.fork()
        second.own.counter += 1
        third = second.fork()
        with pytest.raises(StoreError, match="counter that were not committed"):
            store.commit(second, third)


def outbox(store: SqliteStore) -> tuple[int, bytes] | None:
    """The receiver of the unacknowledged token, and the message without gossip."""
    role = None if store._stored is None else store._stored["role"]
    if not isinstance(role, Out):
        return None
    at = next(at for at, token in store._rows.tokens.items() if token is role.token)
    (message,) = store._db.execute("SELECT message FROM token WHERE id = ?", (at,)).fetchone()
    return role.to, message


def test_the_outbox_is_the_message_as_it_was_sent(tmp_path):
    draw = Random(4)
    with SqliteStore.open(tmp_path / "a.db", TERMS, ME) as store:
        assert outbox(store) is None
        at = state(draw, TERMS, ME)
        while not isinstance(at.token.role, Out):
            at = state(draw, TERMS, ME)
        store.commit(State(TERMS, ME), at)
        sent = outbox(store)
    with SqliteStore.open(tmp_path / "a.db", TERMS, ME) as store:
        assert outbox(store) == sent
        assert sent[0] == at.token.role.to
        assert same(decode(sent[1], TERMS), Pass(at.token.role.token))
        loaded = store.load(TERMS, ME)
        idle = loaded.fork()
        idle.token.role = Idle()
        store.commit(loaded, idle)
        assert outbox(store) is None


def test_a_large_token_is_overwritten_where_it_lies(tmp_path):
    """Pages whose content is the same are not written; a head that is longer by a few bytes moves
    the vector, and costs the vector once, not its old pages and new ones."""
    terms = small_terms(agents=4, dim=8_000)
    page, vector = 4096, 8 * 8_000
    at = State(terms, 0)
    carried = token(Random(1), terms)._replace(tombs={}, round=NO_ROUND)
    path = tmp_path / "a.db"
    with SqliteStore.open(path, terms, 0) as store:
        for hop in range(40):
            longer = hop % 5 == 0
            after = at.fork()
            stamp = carried.stamp._replace(hop=1000 + hop)
            after.token.role = Hold(carried._replace(stamp=stamp, stack=Stack.of([1] * longer)))
            before = written(path) if hop else 0
            store.commit(at, after)
            at = after
            allowed = 8 * page + (vector if longer or hop % 5 == 1 else 0)
            assert hop == 0 or written(path) - before < allowed, hop
        assert same_durable(store.load(terms, 0), at)


def written(path: Path) -> int:
    """Bytes in the log; a small one is never emptied meanwhile."""
    return path.with_name(path.name + "-wal").stat().st_size


def test_no_row_is_left_behind(tmp_path):
    """After any step the file holds the state's tokens, factors and records, and no others."""
    draw = Random(9)
    with SqliteStore.open(tmp_path / "a.db", MASKED, ME) as store:
        at = State(MASKED, ME)
        for step in range(30):
            after = state(draw, MASKED, ME, at if step else None)
            store.commit(at, after)
            at = after
            fields = (
                at.known.tombstones,
                at.known.compacted,
                at.known.intents,
                at.known.votes,
                at.known.mismatches,
                at.known.openings,
                at.known.enrolments,
                at.own.receipts,
            )
            tokens = (at.token.held, at.token.copy, at.token.published)
            wanted = {
                "token": len({id(token) for token in tokens if token is not None}),
                "factor": len(at.own.factors),
                "statement": sum(len(field) for field in fields),
            }
            for table, count in wanted.items():
                found = store._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                assert found == count, (step, table)


# ------------------------------------------------------------------------------- what is refused


def refused(path: Path, says: str, terms=TERMS, me=ME, secret=b"") -> None:
    """Opening raises, names the file, and changes nothing in the directory."""
    before = {f.name: f.read_bytes() for f in path.parent.iterdir()}
    with pytest.raises(StoreError, match=says) as error:
        SqliteStore.open(path, terms, me, secret)
    assert str(path) in str(error.value)
    assert {f.name: f.read_bytes() for f in path.parent.iterdir()} == before


def test_files_of_others_are_refused(tmp_path):
    path = tmp_path / "a.db"
    path.write_bytes(b"")
    refused(path, "nor any database")
    path.write_text("[network]\nname = 'x'\n" * 30)
    refused(path, "nor any database")
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE holidays (day)")
    db.close()
    refused(path, "another program")
    path.unlink()
    filled(path)
    other = small_terms(agents=3, dim=2)
    object.__setattr__(other, "network_id", b"\x09" * 32)
    refused(path, "belongs to the network 070707", terms=other)
    refused(path, r"belongs to agent a2 .number 1., not to a3", me=2)
    SqliteStore.open(path, TERMS, ME).close()


def test_a_newer_schema_is_refused(tmp_path):
    path = tmp_path / "a.db"
    filled(path)
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {latest(MIGRATIONS) + 1}")
    db.close()
    refused(path, "newer unweave")


def test_an_older_format_is_refused_by_its_name(tmp_path):
    path = tmp_path / "a.db"
    filled(path)
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {OLDEST - 1}")
    db.close()
    refused(path, "older unweave.*move the file away")


def test_a_log_left_by_a_crash_is_not_touched_by_a_refusal(tmp_path):
    """Refused for its owner, with committed steps still in the log: not even those are moved."""
    path = tmp_path / "a.db"
    code = (
        "import os, sys; from random import Random\n"
        "from unweave.node.storage.sqlite import SqliteStore\n"
        "from unweave.protocol.state import State\n"
        "from unweave.testing.store import ME, TERMS\n"
        "from unweave.testing.values import state\n"
        "store = SqliteStore.open(sys.argv[1], TERMS, ME)\n"
        "store.commit(State(TERMS, ME), state(Random(3), TERMS, ME))\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    log = tmp_path / "a.db-wal"
    assert log.stat().st_size > 4096
    refused(path, "give every agent its own file", me=2)
    with SqliteStore.open(path, TERMS, ME) as store:
        assert same_durable(store.load(TERMS, ME), state(Random(3), TERMS, ME))


def test_any_damage_is_noticed_or_harmless(tmp_path):
    """Flip bits everywhere: either the store is refused, or the state is the one that was stored.
    Never another state, never another error."""
    path = tmp_path / "a.db"
    held = filled(path, seed=6, terms=MASKED)
    good = path.read_bytes()
    draw = Random(1)
    outcomes = {"refused": 0, "harmless": 0}
    for _ in range(400):
        bad = bytearray(good)
        at = draw.randrange(len(good))
        bad[at] ^= 1 << draw.randrange(8)
        path.write_bytes(bad)
        try:
            store = SqliteStore.open(path, MASKED, ME)
        except StoreError:
            outcomes["refused"] += 1
            assert path.read_bytes() == bad
            continue
        loaded = store.load(MASKED, ME)
        store.close()
        assert loaded is not None
        assert same_durable(loaded, held), f"byte {at}"
        outcomes["harmless"] += 1
    assert outcomes["refused"] > 25, outcomes
    for size in range(0, len(good) - 4096, len(good) // 20):
        path.write_bytes(good[:size])
        refused(path, "a.db: (damaged|not an unweave store)", MASKED)


# ---------------------------------------------------------------------- what somebody has changed

SECRET = b"derived from the agent's key".ljust(32)
CHANGED = "changed by something that does not hold this agent's key"
TABLES = ("token", "factor", "part", "statement", "state")


def edit(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    with db:
        for statement in statements:
            db.execute(statement)
    db.close()


def rows_of(path: Path, table: str) -> list[tuple]:
    db = sqlite3.connect(path)
    rows = db.execute(f"SELECT * FROM {table}").fetchall()
    db.close()
    return rows


def sealed(path: Path, secret: bytes = SECRET) -> State:
    """A store in which every table has a row, closed; the state it holds."""
    draw = Random(11)
    while True:
        held = state(draw, MASKED, ME)
        if (
            held.token.held is not None
            and held.token.copy is not None
            and held.token.published is not None
            and any(factor.given is not None for factor in held.own.factors)
            and held.known.tombstones
        ):
            break
    with SqliteStore.open(path, MASKED, ME, secret) as store:
        store.commit(State(MASKED, ME), held)
    assert all(rows_of(path, table) for table in TABLES)
    return held


@pytest.mark.parametrize("table", TABLES)
def test_rows_with_macs_under_another_secret_are_refused(tmp_path, table):
    """As by somebody who changes a row and computes all that he can without the agent's key."""
    path, forged = tmp_path / "a.db", tmp_path / "forged"
    sealed(path)
    sealed(forged, b"another secret")
    rows = rows_of(forged, table)
    forged.unlink()
    db = sqlite3.connect(path)
    with db:
        db.execute(f"DELETE FROM {table}")
        db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    db.close()
    refused(path, CHANGED, terms=MASKED, secret=SECRET)
    refused(path, CHANGED, MASKED)


def test_a_file_with_macs_under_another_secret_is_refused(tmp_path):
    path = tmp_path / "a.db"
    sealed(path, b"another secret")
    refused(path, CHANGED, terms=MASKED, secret=SECRET)


@pytest.mark.parametrize("table", TABLES)
def test_a_row_that_is_missing_is_noticed(tmp_path, table):
    path = tmp_path / "a.db"
    held = sealed(path)
    with SqliteStore.open(path, MASKED, ME, SECRET) as store:
        assert same_durable(store.load(MASKED, ME), held)
    key = {"part": "name", "statement": "key", "state": "one"}.get(table, "id")
    edit(path, f"DELETE FROM {table} WHERE {key} = (SELECT {key} FROM {table} LIMIT 1)")
    refused(
        path,
        "the row of state is missing" if table == "state" else CHANGED,
        terms=MASKED,
        secret=SECRET,
    )


def test_a_row_of_an_earlier_time_is_noticed(tmp_path):
    """The agent wrote both, but not together: an erased record, say, is remembered no more."""
    path = tmp_path / "a.db"
    held = sealed(path)
    before = {table: rows_of(path, table) for table in TABLES}
    with SqliteStore.open(path, MASKED, ME, SECRET) as store:
        loaded = store.load(MASKED, ME)
        after = loaded.fork()
        after.own.dropped = held.own.dropped | {b"one more"}
        store.commit(loaded, after)
    with SqliteStore.open(path, MASKED, ME, SECRET) as store:
        assert same_durable(store.load(MASKED, ME), after)
    db = sqlite3.connect(path)
    with db:
        db.executemany("REPLACE INTO part VALUES (?, ?, ?)", before["part"])
    db.close()
    refused(path, CHANGED, terms=MASKED, secret=SECRET)


def test_the_values_of_a_row_are_told_apart(tmp_path):
    """No bytes can be moved from one column to the next one."""
    path = tmp_path / "a.db"
    sealed(path)
    edit(
        path,
        "UPDATE statement SET raw = substr(raw, 1, length(raw) - 1), "
        "signature = CAST(substr(raw, -1) || signature AS BLOB)",
    )
    refused(path, CHANGED, terms=MASKED, secret=SECRET)


@pytest.mark.parametrize("size", [300, 1000, 5000])
def test_long_values_have_a_key_that_is_used_once(size):
    """Where that pays; all of them are sealed as one."""
    seals, long = RowMacs(SECRET), bytes(size)
    made = [seals.write("token", 1, long) for _ in range(2)]
    assert (made[0][:16] != made[1][:16]) is (size > 4096)
    for mac in made:
        RowMacs(SECRET).read(mac, "token", 1, long)
        for values in ((2, long), (1, long[1:]), (1, b"\1" + long[1:]), (1, long, b"")):
            with pytest.raises(BadMac):
                RowMacs(SECRET).read(mac, "token", *values)
        with pytest.raises(BadMac):
            RowMacs(b"another").read(mac, "token", 1, long)
    two = seals.write("factor", 1, long, long + b"\0")
    with pytest.raises(BadMac):
        RowMacs(SECRET).read(two, "factor", 1, long + b"\0", long)
    short = seals.write("part", "tombs", long[:10])
    assert {len(mac) for mac in (*made, two, short, seals.close(1, "2", None))} == {32}
    RowMacs(SECRET).read(short, "part", "tombs", memoryview(long[:10]))


def test_whoever_opens_an_agents_store_knows_its_secret(tmp_path):
    net = Processes(tmp_path / "net", agents=2)
    folder = AgentFolder.read(net.folder("a1"))
    identity = serve.open_identity(folder)
    assert identity.store_secret != identity.row_secret
    records = serve.open_data(folder, identity)

    def openings():
        async def on_its_thread():
            disk = StoreThread(folder, identity)
            await disk.open()
            await disk.close()

        yield lambda: serve._check_data(folder, records, identity, replaced=False)
        yield lambda: preflight._state(folder)
        yield lambda: asyncio.run(on_its_thread())

    with open_store(folder, identity) as store:
        store.commit(State(folder.terms, 0), state(Random(1), folder.terms, 0))
    for opening in openings():
        opening()
    edit(folder.store, "UPDATE state SET counter = counter + 1")
    for opening in openings():
        with pytest.raises(Exception, match=CHANGED):
            opening()


def test_one_writer(tmp_path):
    path = tmp_path / "a.db"
    filled(path)
    code = (
        "import sys; from unweave.node.storage.sqlite import SqliteStore\n"
        "from unweave.testing.store import ME, TERMS\n"
        "SqliteStore.open(sys.argv[1], TERMS, ME)"
    )
    command = [sys.executable, "-c", code, str(path)]
    with SqliteStore.open(path, TERMS, ME) as store:
        for _ in range(2):
            # The attempt from this very process must not cost the lock against other ones.
            with pytest.raises(StoreError, match="in use"):
                SqliteStore.open(path, TERMS, ME)
            ended = subprocess.run(command, check=False, capture_output=True, text=True)
            assert ended.returncode == 1
            assert "StoreError" in ended.stderr
            assert "in use" in ended.stderr
            loaded = store.load(TERMS, ME)
            after = loaded.fork()
            after.own.counter += 1
            store.commit(loaded, after)
    subprocess.run(command, check=True)
    SqliteStore.open(path, TERMS, ME).close()


def test_a_path_that_cannot_be_written(tmp_path):
    with pytest.raises(StoreError, match="check path and permissions"):
        SqliteStore.open(tmp_path / "none" / "a.db", TERMS, ME)


def test_after_a_failed_write_the_last_commit_stands(tmp_path):
    path = tmp_path / "a.db"
    held = filled(path)
    with SqliteStore.open(path, TERMS, ME) as store:
        before = store.load(TERMS, ME)
        store._db.execute(f"PRAGMA max_page_count = {pragma(store, 'page_count')}")
        after = before.fork()
        after.own.solved_for = b"x" * 10**6
        with pytest.raises(StoreError, match="disk is full"):
            store.commit(before, after)
        with pytest.raises(StoreError, match="an earlier write failed"):
            store.commit(before, before.restarted(1))
    with SqliteStore.open(path, TERMS, ME) as store:
        assert same_durable(store.load(TERMS, ME), held)


# ------------------------------------------------------------------------- versions and backups


def test_an_older_schema_is_brought_up_in_one_transaction(tmp_path):
    path = tmp_path / "a.db"
    held = filled(path)
    newer = (
        *MIGRATIONS,
        ("ALTER TABLE state ADD COLUMN mood TEXT", "UPDATE state SET mood = 'calm'"),
        ("CREATE TABLE note (text TEXT)", "INSERT INTO note SELECT mood FROM state"),
    )
    broken = (*newer[:-1], ("CREATE TABLE note (text TEXT)", "INSERT INTO nowhere VALUES (1)"))
    before = path.read_bytes()
    with pytest.raises(StoreError, match="no such table"):
        SqliteStore.open(path, TERMS, ME, migrations=broken)
    assert path.read_bytes() == before
    with SqliteStore.open(path, TERMS, ME, migrations=newer) as store:
        assert pragma(store, "user_version") == latest(MIGRATIONS) + 2
        assert store._db.execute("SELECT text FROM note").fetchall() == [("calm",)]
        loaded = store.load(TERMS, ME)
        assert same_durable(loaded, held)
        after = loaded.fork()
        after.own.counter += 1
        store.commit(loaded, after)
    refused(path, "newer unweave")
    with SqliteStore.open(path, TERMS, ME, migrations=newer) as store:
        assert same_durable(store.load(TERMS, ME), after)


def test_a_backup_is_the_store_of_its_moment(tmp_path):
    draw = Random(8)
    with SqliteStore.open(tmp_path / "a.db", TERMS, ME) as store:
        first = state(draw, TERMS, ME)
        store.commit(State(TERMS, ME), first)
        image = store.image()
        second = state(draw, TERMS, ME, first)
        store.commit(first, second)
        assert store.image() != image
    (tmp_path / "a.db").write_bytes(image)
    with SqliteStore.open(tmp_path / "a.db", TERMS, ME) as store:
        assert same_durable(store.load(TERMS, ME), first)
    assert sorted(os.listdir(tmp_path)) == ["a.db"]
