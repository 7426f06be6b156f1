"""Signed records: small statements that agents pass on unchanged.

A record carries the bytes that its author signed; readers parse those bytes and never re-serialise
them, so a signature always covers exactly what was signed. The bytes are JSON, the signature covers
their pre-authentication encoding (DSSE) under the record's type.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

__all__ = ["Figure", "Halt", "Intent", "Record", "Sign", "Tombstone", "Vote", "pae"]

Sign = Callable[[bytes], bytes]


def pae(kind: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: DSSEv1 SP len(type) SP type SP len(body) SP body."""
    name = kind.encode()
    return b"DSSEv1 %d %s %d %s" % (len(name), name, len(payload), payload)


@dataclass(frozen=True)
class Record:
    """Bytes, who signed them, and the signature; equal iff the bytes are equal."""

    raw: bytes
    author: int
    signature: bytes

    kind: ClassVar[str] = ""

    @classmethod
    def write(cls, author: int, sign: Sign, **body: Any) -> Self:
        raw = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
        return cls(raw, author, sign(pae(cls.kind, raw)))

    @cached_property
    def body(self) -> dict[str, Any]:
        value = json.loads(self.raw)
        if not isinstance(value, dict):
            raise ValueError(f"{self.kind}: the record is not a JSON object")
        return value

    @cached_property
    def name(self) -> bytes:
        """SHA-256 of the bytes that were signed."""
        return hashlib.sha256(self.raw).digest()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Record) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)


class _Erasure(Record):
    """What an intent and a tombstone share: a request, its agent and its scope."""

    @property
    def run(self) -> str:
        return str(self.body["run"])

    @cached_property
    def request(self) -> bytes:
        return bytes.fromhex(self.body["request"])

    @property
    def agent(self) -> int:
        return int(self.body["agent"])

    @property
    def whole(self) -> bool:
        return bool(self.body["whole"])

    @cached_property
    def rows(self) -> frozenset[bytes]:
        """Commitments to the erased rows: keyed hashes that only the owner can compute."""
        return frozenset(bytes.fromhex(row) for row in self.body["rows"])


class Intent(_Erasure):
    """An erasure that was asked for: a wake-up call and a hint where to go. It kills no token."""

    kind = "application/vnd.unweave.intent+json"


class Tombstone(_Erasure):
    """An erasure that was carried out, written in the transaction of the removal visit."""

    kind = "application/vnd.unweave.tombstone+json"

    @property
    def retrain(self) -> bool:
        """Whether the removing agent asked everybody to start from zero."""
        return bool(self.body["retrain"])


class Vote(Record):
    """One agent's word that another is gone."""

    kind = "application/vnd.unweave.vote+json"

    @property
    def target(self) -> int:
        return int(self.body["agent"])

    @cached_property
    def request(self) -> bytes:
        return bytes.fromhex(self.body["request"])


class Halt(Record):
    """An audit that did not add up. The first leads to a rebuild, a second one to a halt."""

    kind = "application/vnd.unweave.mismatch+json"


class Figure(Record):
    """What an agent publishes about itself: how far the posterior would move without it. One
    number, at one place of rest; the latest replaces the others."""

    kind = "application/vnd.unweave.figure+json"

    @cached_property
    def stamp(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.body["stamp"])

    @property
    def influence(self) -> float | None:
        """KL(q ‖ q without the agent); None if nothing proper would be left."""
        value = self.body["influence"]
        return None if value is None else float(value)
