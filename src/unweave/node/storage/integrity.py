"""Seals: what shows that the rows of a store are those that this agent wrote.

Every row has a seal over its place and its values, and the seal of the state's row covers those of
all other rows: none can be changed, left out, added, or put back from an earlier time, unless one
holds the secret, which is derived from the agent's key. Noticed in the same way: bits that flipped
inside a value, which SQLite does not see.

Not noticed: what somebody does who can read the agent's key; and a whole file of this very agent
from an earlier time, which is a backup (its neighbours tell it what was erased since).

    seal of a row of 4 kB and more = number ‖ Poly1305(row; key = BLAKE2b(number; key = secret))
    seal of any other row          = BLAKE2b(row; key = secret)
    number                         = 16 random bytes

Tokens of a megabyte are written at every hop, and a key that is used once allows the fastest check
there is: 0.16 ms where CRC-32 takes 0.27, HMAC-SHA256 0.66 and keyed BLAKE2b 1.3. A smaller row
has its seal in the time that it takes to make such a key. All seals are 32 bytes: a row keeps its
length.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, Self

from unweave.errors import MissingExtra, WireError

__all__ = ["BadMac", "RowMacs"]


try:
    from cryptography.hazmat.primitives.poly1305 import Poly1305
except ImportError:
    raise MissingExtra("cryptography", "node", "opening a store") from None


_NUMBER = _TAG = 16
_LONG = 256
_LARGE = 1 << 12  # from here on, the fastest check pays for its key
_RAW = bytes | memoryview


class BadMac(WireError):
    """Rows that are not those that the holder of the secret wrote."""


class RowMacs:
    """The seals of all rows but the state's, by table or field, and then by the row's key.

    A step works on a `draft`, which takes the place of the last one when the step is committed.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._seals: dict[str, dict[Hashable, bytes]] = {}
        self._rolls: dict[str, str] = {}  # of each table with rows, all its seals in one hash
        self._touched: set[str] = set()

    def draft(self) -> Self:
        """What will be changed by one step."""
        new = type(self)(self._secret)
        new._seals, new._rolls = dict(self._seals), dict(self._rolls)
        return new

    @property
    def touched(self) -> bool:
        """Whether a row was written or deleted, so that the state's seal is another one."""
        return bool(self._touched)

    # ------------------------------------------------------------------------------ writing

    def write(self, table: str, key: Hashable, *values: Any) -> bytes:
        """The seal of a row that is written."""
        made = _make(self._secret, (table, key, *values))
        self._of(table)[key] = made
        return made

    def delete(self, table: str, key: Hashable) -> None:
        self._of(table).pop(key, None)

    def close(self, *values: Any) -> bytes:
        """The seal of the state's row, which covers all others."""
        return _make(self._secret, ("state", self._all_rolls(), *values))

    # ------------------------------------------------------------------------------ reading

    def read(self, seal: bytes, table: str, key: Hashable, *values: Any) -> None:
        """Raises `Unsealed` unless this is the row as it was written."""
        if not _holds(self._secret, seal, (table, key, *values)):
            raise BadMac(f"a row of {table}")
        self._of(table)[key] = seal

    def check(self, seal: bytes, *values: Any) -> None:
        """Raises `Unsealed` unless the rows that were read are all, and those of one time."""
        if not _holds(self._secret, seal, ("state", self._all_rolls(), *values)):
            raise BadMac("the row of state, or the set of all rows,")

    # ----------------------------------------------------------------------------- internal

    def _of(self, table: str) -> dict[Hashable, bytes]:
        if table not in self._touched:
            self._touched.add(table)
            self._seals[table] = dict(self._seals.get(table, {}))
        return self._seals[table]

    def _all_rolls(self) -> str:
        """Every seal names its row, so their set is enough."""
        for table in self._touched:
            seals = sorted(self._seals[table].values())
            self._rolls.pop(table, None)
            if seals:
                roll = blake2b(b"".join(seals), digest_size=32)
                self._rolls[table] = f"{table} {roll.hexdigest()}"
        return ", ".join(sorted(self._rolls.values()))


def _make(secret: bytes, values: tuple[Any, ...], number: bytes = b"") -> bytes:
    """Short values as one text, in which each has its place and kind; long ones after it, with
    their lengths in the text: so no two rows are the same bytes."""
    text: list[Any] = []
    long = []
    for value in values:
        if isinstance(value, _RAW):
            if len(value) > _LONG:
                long.append(value)
                text.append((len(value),))
            else:
                text.append(bytes(value))
        else:
            text.append(value)
    shown = repr(text).encode()
    if sum(map(len, long)) < _LARGE:
        whole = b"".join((shown, *long))
        return blake2b(whole, key=secret, digest_size=_NUMBER + _TAG, person=b"row").digest()
    number = number or os.urandom(_NUMBER)
    mac = Poly1305(blake2b(number, key=secret, digest_size=32, person=b"long row").digest())
    mac.update(shown)
    for value in long:
        mac.update(value)
    return number + mac.finalize()


def _holds(secret: bytes, seal: Any, values: tuple[Any, ...]) -> bool:
    if not isinstance(seal, bytes) or len(seal) != _NUMBER + _TAG:
        return False
    return compare_digest(seal, _make(secret, values, seal[:_NUMBER]))
