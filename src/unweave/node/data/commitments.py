"""Commitments to the keys of records: how an erased record is remembered without its key.

    commitment(key) = the first 16 bytes of HMAC-SHA256(secret, canonical(key))

The secret is derived from the owner's identity, so nobody else can find a key by trying them all.
A key has one canonical text whatever file it is read from: the number 17 in Parquet is the text
"17" in CSV, so records stay erased when their owner changes the format. The text "017" is another
key, as it may be another person's: whoever turns it into a number makes a new record.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from pathlib import Path

from unweave.node.errors import BadData
from unweave.node.storage.atomic import write_atomic

__all__ = ["COMMITMENT_SIZE", "KEY_FILE", "Key", "canonical", "check_key", "commitment", "pads"]


Key = str | int | float | bytes

COMMITMENT_SIZE = 16

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
    return hmac.digest(secret, text.encode(), "sha256")[:COMMITMENT_SIZE]


def pads(secret: bytes) -> tuple[bytes, bytes]:
    """(outer, inner) with HMAC(secret, m) = H(outer ‖ H(inner ‖ m)), for an engine without HMAC."""
    if len(secret) > _BLOCK:
        secret = hashlib.sha256(secret).digest()
    key = secret.ljust(_BLOCK, b"\0")
    return bytes(b ^ 0x5C for b in key), bytes(b ^ 0x36 for b in key)


# ------------------------------------------------------------------------------
# By which column erased records are known, kept beside the data from the first erasure on.
#
# Commitments are to keys. If another column became the key, no record would match them any more,
# and everything that was erased would come back with the next look at the file.

KEY_FILE = "data.key"


def check_key(folder: Path, key: str, agent: str) -> None:
    """DataError unless `key` is the column by which the first record was erased; it is, if this is
    the first."""
    path = folder / KEY_FILE
    try:
        known = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        with contextlib.suppress(PermissionError):  # somebody else's look at the folder
            write_atomic(path, key.encode())
        return
    if known != key:
        raise BadData(
            f"agent {agent!r}: its erased records are known by the column {known!r}, and [data] "
            f"in agent.toml names {key!r} as the key: they would come back",
            f"write key = {known!r} again, and keep that column as it was",
        )
