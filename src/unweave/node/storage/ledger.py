"""An agent's privacy ledger in an SQLite file of its own, `ledger.db`, with one table, `charge`.

A file of its own, because a charge is durable before the value that it pays for is computed, while
the commit of the state follows it; and because a restored store must not restore the account.
One charge is one transaction, synced to the disk before `charge` returns.

Rows are only ever added. The MAC of a row covers the row and the MAC of the row before it, under a
secret of the agent, so no row can be changed, removed from the middle or added by anybody else.
Removing the *last* rows is what a backup does: `observe` notices it from what others remember.
Two kinds of rows charge nothing: `restored` begins a doubt, and `vouched` ends it.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple, Self

from unweave.errors import StoreError
from unweave.node.config import AgentFolder
from unweave.node.identity import Identity
from unweave.node.storage.file import (
    claim,
    connect,
    create,
    examine,
    explained,
    make_private,
    release,
    settle,
)
from unweave.node.storage.integrity import BadMac, RowMacs
from unweave.node.storage.schema import LEDGER_MIGRATIONS
from unweave.privacy.ledger import check_charge, repeated
from unweave.protocol.terms import Terms

__all__ = ["SqliteLedger", "open_ledger"]


_RESTORE = (
    "Fix: move the file away and start the agent while all its neighbours run: they tell what it "
    "has given. If one of them cannot, the agent's budget counts as spent"
)
_RESTORED, _VOUCHED = b"restored", b"vouched"  # in place of a one-time key


class _Account(NamedTuple):
    """The rows, added up."""

    spent: Fraction = Fraction(0)
    given: int = 0
    rows: int = 0
    mac: bytes = b""
    in_doubt: bool = False

    def plus(self, mac: bytes, key: bytes, values: int, rho: Fraction) -> _Account:
        """With one more row."""
        doubt = self.in_doubt or not key if values else key.startswith(_RESTORED)
        return _Account(self.spent + rho, self.given + values, self.rows + 1, mac, doubt)


class SqliteLedger:
    """`with SqliteLedger.open("ledger.db", terms, me, budget, secret) as ledger: …`"""

    def __init__(
        self, path: Path, db: sqlite3.Connection, budget: float, secret: bytes, account: _Account
    ) -> None:
        self.path = path
        self.budget = budget
        self._db = db
        self._secret = secret
        self._account = account
        self._claim = claim(path)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        terms: Terms,
        me: int,
        budget: float,
        secret: bytes = b"",
    ) -> Self:
        """Open the ledger of agent `me`, or create it. A file that is damaged, or of another agent
        or network, is refused and not changed."""
        file = Path(path)
        with explained(file, _RESTORE):
            if not file.exists():
                create(file, terms, me, LEDGER_MIGRATIONS)
            examine(file, terms, me, LEDGER_MIGRATIONS, lambda db: _read(db, secret), _RESTORE)
            make_private(file)
            db = connect(file)
            try:
                settle(db, file, LEDGER_MIGRATIONS, _RESTORE)
                account = _read(db, secret)
            except BaseException:
                db.close()
                raise
        return cls(file, db, budget, secret, account)

    @property
    def spent(self) -> Fraction:
        return self._account.spent

    @property
    def given(self) -> int:
        return self._account.given

    @property
    def in_doubt(self) -> bool:
        return self._account.in_doubt

    def charge(self, key: bytes, rho: float) -> None:
        if not key:
            raise ValueError("an empty key")
        with explained(self.path, _RESTORE):
            known = "SELECT 1 FROM charge WHERE key = ? AND key <> x''"
            if self._db.execute(known, (key,)).fetchone() is not None:
                raise StoreError(f"{self.path}: {repeated(key)}")
        check_charge(self.budget, self.spent, self.given, rho)
        self._add(key, 1, Fraction(rho))

    def observe(self, given: int, rho: float) -> int:
        missing = max(0, given - self.given)
        if missing:
            self._add(b"", missing, missing * Fraction(rho))
        return missing

    def doubt(self) -> None:
        if not self.in_doubt:
            self._note(_RESTORED)

    def vouch(self) -> None:
        if self.in_doubt:
            self._note(_VOUCHED)

    def _note(self, kind: bytes) -> None:
        # With the number of the row, because no key is in the table twice.
        self._add(kind + b" %d" % (self._account.rows + 1), 0, Fraction(0))

    def _add(self, key: bytes, values: int, rho: Fraction) -> None:
        before = self._account
        number, cost = before.rows + 1, str(rho)
        mac = RowMacs(self._secret).write("charge", number, key, values, cost, before.mac)
        with explained(self.path, _RESTORE):
            try:
                self._db.execute("BEGIN IMMEDIATE")
                row = (number, mac, key, values, cost)
                self._db.execute("INSERT INTO charge VALUES (?, ?, ?, ?, ?)", row)
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise
        self._account = before.plus(mac, key, values, rho)

    def close(self) -> None:
        self._db.close()
        release(self._claim)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def open_ledger(folder: AgentFolder, identity: Identity, budget: float) -> SqliteLedger:
    """The ledger in an agent's folder, under its key. It is created if there is none."""
    return SqliteLedger.open(folder.ledger, folder.terms, folder.me, budget, identity.store_secret)


def _read(db: sqlite3.Connection, secret: bytes) -> _Account:
    """The account, after every MAC was checked."""
    account, macs = _Account(), RowMacs(secret)
    rows = db.execute("SELECT number, mac, key, values_given, rho FROM charge ORDER BY number")
    for number, mac, key, values, rho in rows:
        if number != account.rows + 1:
            raise BadMac("the list of charges")
        macs.read(mac, "charge", number, key, values, rho, account.mac)
        account = account.plus(mac, key, values, Fraction(rho))
    return account
