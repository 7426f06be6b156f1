"""Commitments to the keys of records: they identify erased records without storing their keys.

    commitment(key) = the first 16 bytes of HMAC-SHA256(secret, canonical(key))

The secret is derived from the agent's identity, so other parties cannot find a key by trying all
keys. A key has the same canonical text in every file format: the number 17 in Parquet is the text
"17" in CSV. So records stay erased when the format changes. The text "017" is another key, because
it may belong to another person. Converting "017" to a number makes a new record.

The file `data.key` names the key column from the first erasure on. With another key column, no
record would match the commitments, and every erased record would return.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from unweave.node.errors import BadData
from unweave.node.storage.atomic import unwritable, write_atomic
from unweave.protocol.statements import COMMITMENT_BYTES

__all__ = ["KEY_FILE", "Key", "canonical", "check_key", "commitment", "pads"]


Key = str | int | float | bytes

_BLOCK = 64  # of SHA-256, in bytes


def canonical(key: Key | None) -> str | None:
    """`t:` and a text or whole number, `b:` and bytes in hex; None for a missing key."""
    if key is None or key != key:
        return None
    if isinstance(key, bytes):
        return f"b:{key.hex()}"
    if isinstance(key, float) and key.is_integer() and abs(key) < 2.0**53:
        key = int(key)  # data frames turn whole numbers beside a missing one into floats
    return f"t:{key}"


def commitment(secret: bytes, text: str) -> bytes:
    """The commitment to a canonical text."""
    return hmac.digest(secret, text.encode(), "sha256")[:COMMITMENT_BYTES]


def pads(secret: bytes) -> tuple[bytes, bytes]:
    """(outer, inner) with HMAC(secret, m) = H(outer ‖ H(inner ‖ m)), for an engine without HMAC."""
    if len(secret) > _BLOCK:
        secret = hashlib.sha256(secret).digest()
    key = secret.ljust(_BLOCK, b"\0")
    return bytes(b ^ 0x5C for b in key), bytes(b ^ 0x36 for b in key)


KEY_FILE = "data.key"


def check_key(folder: Path, key: str, agent: str, *, write: bool = True) -> None:
    """DataError unless `key` is the key column of earlier erasures. The first call writes it."""
    path = folder / KEY_FILE
    try:
        known = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if not write:
            return
        try:
            write_atomic(path, key.encode())
        except PermissionError:
            pass  # a read-only command of another user
        except OSError as error:
            raise unwritable(path, error) from None
        return
    if known != key:
        raise BadData(
            f"agent {agent!r}: its erased records are known by the column {known!r}, and [data] "
            f"in agent.toml names {key!r} as the key: they would come back",
            f"write key = {known!r} again, and keep that column as it was",
        )
