"""The privacy ledger: the laws of every ledger, and what is special about a file."""

import os
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
from tests.support.processes import Processes

from unweave.errors import StoreError
from unweave.node.agent import open_identity
from unweave.node.config import LEDGER_FILE, AgentFolder
from unweave.node.storage.ledger import SqliteLedger, open_ledger
from unweave.node.storage.sqlite import SqliteStore
from unweave.privacy.ledger import BudgetSpent, MemoryLedger
from unweave.testing.ledger import LAWS, RHO
from unweave.testing.store import ME, TERMS

SECRET = bytes(range(32))


def opened(path, budget=1.0, secret=SECRET, me=ME):
    return SqliteLedger.open(path, TERMS, me, budget, secret)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_laws(law, kind, tmp_path):
    memory = MemoryLedger(1.0)
    law((lambda budget: memory) if kind == "memory" else partial(opened, tmp_path / LEDGER_FILE))


def filled(path, charges=3):
    with opened(path) as ledger:
        for n in range(charges):
            ledger.charge(bytes([n]) * 32, RHO)


_CHILD = """
import os, sys
from tests.privacy.test_ledger import opened
ledger = opened(sys.argv[1])
ledger.charge(b"given", 0.25)
print("charged", flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_charge_survives_the_death_of_the_process(tmp_path):
    path = tmp_path / LEDGER_FILE
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path)], capture_output=True, text=True, cwd=root
    )
    assert (done.stdout, done.returncode) == ("charged\n", -9), done.stderr
    with opened(path) as ledger:
        assert (ledger.given, ledger.spent) == (1, Fraction(1, 4))
        with pytest.raises(StoreError, match="charged before"):
            ledger.charge(b"given", 0.25)


def test_a_charge_that_cannot_be_written_is_refused_and_does_not_count(tmp_path, monkeypatch):
    path = tmp_path / LEDGER_FILE
    with opened(path) as ledger:
        ledger.charge(b"one", RHO)
        ledger._db.execute("PRAGMA query_only = ON")
        with pytest.raises(StoreError):
            ledger.charge(b"two", RHO)
        assert ledger.given == 1
        ledger._db.execute("PRAGMA query_only = OFF")
        ledger.charge(b"two", RHO)
        assert ledger.given == 2


def test_a_restored_backup_catches_up_with_what_others_remember(tmp_path):
    path, aside = tmp_path / LEDGER_FILE, tmp_path / "backup"
    filled(path)
    shutil.copy(path, aside)
    with opened(path) as ledger:
        for n in range(3, 9):
            ledger.charge(bytes([n]) * 32, RHO)
        seen = ledger.given
    for file in tmp_path.glob(LEDGER_FILE + "*"):
        file.unlink()
    shutil.copy(aside, path)
    with opened(path) as ledger:
        assert ledger.given == 3  # the backup itself is intact, and cannot tell
        assert ledger.observe(seen, RHO) == 6
        assert ledger.spent == 9 * Fraction(RHO)
        with pytest.raises(BudgetSpent, match="9 values were given"):
            ledger.charge(b"key", RHO)


TAMPERED = {
    "cheaper": "UPDATE charge SET rho = '1/1000' WHERE number = 2",
    "another key": "UPDATE charge SET key = x'99' WHERE number = 1",
    "fewer values": "UPDATE charge SET values_given = 0 WHERE number = 1",
    "removed from the middle": "DELETE FROM charge WHERE number = 2",
    "renumbered": "DELETE FROM charge WHERE number = 1; UPDATE charge SET number = number - 1",
    "swapped": "UPDATE charge SET number = 9 WHERE number = 1; "
    "UPDATE charge SET number = 1 WHERE number = 2; UPDATE charge SET number = 2 WHERE number = 9",
    "trigger": "CREATE TRIGGER t AFTER INSERT ON charge BEGIN DELETE FROM charge; END",
}


@pytest.mark.parametrize("change", TAMPERED)
def test_changes_by_others_are_refused(change, tmp_path):
    path = tmp_path / LEDGER_FILE
    filled(path)
    with sqlite3.connect(path) as db:
        db.executescript(TAMPERED[change])
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="Fix"):
        opened(path)
    assert path.read_bytes() == before


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def overwrite_a_page(path):
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)


def without_an_owner(path):
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM identity")
    db.close()


def with_a_trigger(path):
    with sqlite3.connect(path) as db:
        db.executescript(TAMPERED["trigger"])
    db.close()


@pytest.mark.parametrize(
    "damage",
    [
        cut,
        overwrite_a_page,
        without_an_owner,
        with_a_trigger,
        lambda path: path.write_text("no database"),
        lambda path: path.write_bytes(path.read_bytes()[:68] + bytes(4) + path.read_bytes()[72:]),
    ],
)
def test_the_fix_of_a_damaged_ledger_is_that_of_a_ledger(damage, tmp_path):
    """A backup would not help: its ledger forgets what was given since."""
    path = tmp_path / LEDGER_FILE
    filled(path)
    damage(path)
    with pytest.raises(StoreError, match="Fix: move the file away and start") as caught:
        opened(path)
    assert "learns again" not in str(caught.value)
    assert "the agent's budget counts as spent" in str(caught.value)


def test_another_key_another_agent_another_network_and_a_store_are_refused(tmp_path):
    path = tmp_path / LEDGER_FILE
    filled(path)
    with pytest.raises(StoreError, match="move the file away"):
        opened(path, secret=b"x" * 32)
    with pytest.raises(StoreError, match="belongs to agent"):
        opened(path, me=0)
    with pytest.raises(StoreError, match="belongs to the network"):
        SqliteLedger.open(path, replace(TERMS, network_id=b"x" * 32), ME, 1.0, SECRET)
    SqliteStore.open(tmp_path / "store.db", TERMS, ME, SECRET).close()
    with pytest.raises(StoreError):
        opened(tmp_path / "store.db")


def test_one_process_at_a_time_and_a_private_file(tmp_path):
    path = tmp_path / LEDGER_FILE
    with opened(path):
        with pytest.raises(StoreError, match="in use"):
            opened(path)
        assert os.stat(path).st_mode & 0o077 == 0
    opened(path).close()


def test_an_agents_folder_has_its_ledger(tmp_path):
    with Processes(tmp_path / "net", agents=2) as net:
        folders = [AgentFolder.read(net.folder(name)) for name in ("a1", "a2")]
        first, second = ((folder, open_identity(folder)) for folder in folders)
        with open_ledger(*first, 1.0) as ledger:
            ledger.charge(b"key", RHO)
        assert (net.folder("a1") / "ledger.db").stat().st_mode & 0o077 == 0
        shutil.copy(net.folder("a1") / "ledger.db", net.folder("a2") / "ledger.db")
        with pytest.raises(StoreError, match="belongs to agent a1"):
            open_ledger(*second, 1.0)
        with open_ledger(*first, 1.0) as ledger:
            assert ledger.given == 1
