"""MACs of rows: they show that the rows of a store are those that this agent wrote.

Every row has a MAC over its place and its values, and the MAC of the state's row covers the MACs of
all other rows. Without the secret, which is derived from the agent's key, no row can be changed,
left out, added, or replaced by an earlier one. Noticed in the same way: bits that flipped inside a
value, which SQLite does not see.

Not noticed: changes by a process that can read the agent's key; and a whole earlier file of the
same agent, which is a backup (the neighbours send the erasures since then).

    MAC of a row of 4 kB and more = number ‖ Poly1305(row; key = BLAKE2b(number; key = secret))
    MAC of any other row          = BLAKE2b(row; key = secret)
    number                        = 16 random bytes

Tokens of a megabyte are written at every hop, and a key that is used once allows the fastest check:
0.16 ms where CRC-32 takes 0.27, HMAC-SHA256 0.66 and keyed BLAKE2b 1.3. Making such a key takes as
long as the BLAKE2b of a small row. All MACs have 32 bytes: a row keeps its length.
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
_LONG = 256  # bytes of a value that is not copied into the text
_LARGE = 1 << 12  # bytes of a row for which Poly1305 is faster, including its key
_RAW = bytes | memoryview


class BadMac(WireError):
    """Rows that the holder of the secret did not write."""


class RowMacs:
    """The MACs of all rows but the state's, by table or field, and then by the row's key.

    A transaction works on a `draft`, which replaces the last one after the commit.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._macs: dict[str, dict[Hashable, bytes]] = {}
        self._digests: dict[str, str] = {}  # per table with rows: a hash of all its MACs
        self._touched: set[str] = set()

    def draft(self) -> Self:
        """A copy for one transaction."""
        new = type(self)(self._secret)
        new._macs, new._digests = dict(self._macs), dict(self._digests)
        return new

    @property
    def touched(self) -> bool:
        """Whether a row was written or deleted, so that the state's MAC changes."""
        return bool(self._touched)

    def write(self, table: str, key: Hashable, *values: Any) -> bytes:
        """The MAC of a row that is written."""
        mac = _make(self._secret, (table, key, *values))
        self._of(table)[key] = mac
        return mac

    def delete(self, table: str, key: Hashable) -> None:
        self._of(table).pop(key, None)

    def close(self, *values: Any) -> bytes:
        """The MAC of the state's row, which covers all others."""
        return _make(self._secret, ("state", self._all_digests(), *values))

    def read(self, mac: bytes, table: str, key: Hashable, *values: Any) -> None:
        """Raises `BadMac` unless this is the row as it was written."""
        if not _holds(self._secret, mac, (table, key, *values)):
            raise BadMac(f"a row of {table}")
        self._of(table)[key] = mac

    def check(self, mac: bytes, *values: Any) -> None:
        """Raises `BadMac` unless the rows that were read are all the rows of one commit."""
        if not _holds(self._secret, mac, ("state", self._all_digests(), *values)):
            raise BadMac("the row of state, or the set of all rows,")

    def _of(self, table: str) -> dict[Hashable, bytes]:
        if table not in self._touched:
            self._touched.add(table)
            self._macs[table] = dict(self._macs.get(table, {}))
        return self._macs[table]

    def _all_digests(self) -> str:
        """A digest of the set of all MACs: each MAC covers the place of its row."""
        for table in self._touched:
            macs = sorted(self._macs[table].values())
            self._digests.pop(table, None)
            if macs:
                digest = blake2b(b"".join(macs), digest_size=32)
                self._digests[table] = f"{table} {digest.hexdigest()}"
        return ", ".join(sorted(self._digests.values()))


def _make(secret: bytes, values: tuple[Any, ...], number: bytes = b"") -> bytes:
    """Short values are one text, in which each has its place and type; long ones follow, with their
    lengths in the text. So no two rows give the same bytes."""
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


def _holds(secret: bytes, mac: Any, values: tuple[Any, ...]) -> bool:
    if not isinstance(mac, bytes) or len(mac) != _NUMBER + _TAG:
        return False
    return compare_digest(mac, _make(secret, values, mac[:_NUMBER]))
