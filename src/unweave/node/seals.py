"""Seals: what shows that the rows of a store are those that this agent wrote.

Every row has a seal over its place and its values, and the seal of the state's row covers those of
all other rows: none can be changed, left out, added, or put back from an earlier time, unless one
holds the secret, which is derived from the agent's key. Noticed in the same way: bits that flipped
inside a value, which SQLite does not see.

Not noticed: what somebody does who can read the agent's key; and a whole file of this very agent
from an earlier time, which is a backup (its neighbours tell it what was erased since).

    seal = number ‖ Poly1305(place and values; key = BLAKE2b(number; key = secret))
    number = 16 random bytes

Tokens of a megabyte are written at every hop, and a key that is used once allows the fastest check
there is: 0.16 ms where CRC-32 takes 0.27, HMAC-SHA256 0.66 and keyed BLAKE2b 1.3. Its length never
changes, nor does that of the row.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, Self

from unweave.errors import MissingExtra, WireError

try:
    from cryptography.hazmat.primitives.poly1305 import Poly1305
except ImportError:
    raise MissingExtra("cryptography", "node", "opening a store") from None

__all__ = ["Seals", "Unsealed"]

_NUMBER = 16


class Unsealed(WireError):
    """Rows that are not those that the holder of the secret wrote."""


class Seals:
    """The seals of all rows but the state's, by table or field, and then by the row's key.

    A step works on a `draft`, which takes the place of the last one when the step is committed.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._seals: dict[str, dict[Hashable, bytes]] = {}
        self._rolls: dict[str, bytes] = {}  # of each table, all its seals in one hash
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
        made = _make(self._secret, os.urandom(_NUMBER), (table, key, *values))
        self._of(table)[key] = made
        return made

    def delete(self, table: str, key: Hashable) -> None:
        self._of(table).pop(key, None)

    def close(self, *values: Any) -> bytes:
        """The seal of the state's row, which covers all others."""
        number = os.urandom(_NUMBER)
        return _make(self._secret, number, ("state", self._all_rolls(), *values))

    # ------------------------------------------------------------------------------ reading

    def read(self, seal: bytes, table: str, key: Hashable, *values: Any) -> None:
        """Raises `Unsealed` unless this is the row as it was written."""
        if not _holds(self._secret, seal, (table, key, *values)):
            raise Unsealed(f"a row of {table}")
        self._of(table)[key] = seal

    def check(self, seal: bytes, *values: Any) -> None:
        """Raises `Unsealed` unless the rows that were read are all, and those of one time."""
        if not _holds(self._secret, seal, ("state", self._all_rolls(), *values)):
            raise Unsealed("the row of state, or the set of all rows,")

    # ----------------------------------------------------------------------------- internal

    def _of(self, table: str) -> dict[Hashable, bytes]:
        if table not in self._touched:
            self._touched.add(table)
            self._seals[table] = dict(self._seals.get(table, {}))
        return self._seals[table]

    def _all_rolls(self) -> str:
        for table in self._touched:
            self._rolls[table] = _roll(self._seals[table])
        full = sorted(table for table in self._rolls if self._seals[table])
        return " ".join(f"{table}:{self._rolls[table].hex()}" for table in full)


def _roll(seals: Mapping[Hashable, bytes]) -> bytes:
    """Every seal names its row, so their set is enough."""
    return blake2b(b"".join(sorted(seals.values())), digest_size=32).digest()


def _make(secret: bytes, number: bytes, values: tuple[Any, ...]) -> bytes:
    """Kinds and lengths go first, so that no two rows are the same bytes."""
    head, parts = [], []
    for value in values:
        raw = isinstance(value, bytes | memoryview)
        parts.append(value if raw else repr(value).encode())
        head.append(f"{'b' if raw else 'v'}{len(parts[-1])}")
    mac = Poly1305(blake2b(number, key=secret, digest_size=32).digest())
    mac.update(f"{','.join(head)};".encode())
    for part in parts:
        mac.update(part)
    return number + mac.finalize()


def _holds(secret: bytes, seal: Any, values: tuple[Any, ...]) -> bool:
    if not isinstance(seal, bytes) or len(seal) != _NUMBER + 16:
        return False
    return compare_digest(seal, _make(secret, seal[:_NUMBER], values))
