"""Signed records: small statements that agents pass on unchanged.

A record carries the bytes that its author signed; readers parse those bytes and never re-serialise
them, so a signature always covers exactly what was signed. The bytes are JSON, the signature covers
their pre-authentication encoding (DSSE) under the record's type.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

from unweave.protocol.token import ID_BYTES, Tomb, Tombs, request_id

__all__ = [
    "AuditMismatch",
    "CompactedErasure",
    "CompactedErasures",
    "InfluenceReport",
    "Intent",
    "Receipt",
    "Sign",
    "SignedStatement",
    "Tombstone",
    "Vote",
    "pae",
    "tombs_in",
]


Sign = Callable[[bytes], bytes]


def pae(kind: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: DSSEv1 SP len(type) SP type SP len(body) SP body."""
    name = kind.encode()
    return b"DSSEv1 %d %s %d %s" % (len(name), name, len(payload), payload)


@dataclass(frozen=True)
class SignedStatement:
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
        return (
            type(self) is type(other)
            and isinstance(other, SignedStatement)
            and self.raw == other.raw
        )

    def __hash__(self) -> int:
        return hash(self.raw)


class _ErasureStatement(SignedStatement):
    """What an intent and a tombstone share: a request, its agent and its scope."""

    @property
    def network_id(self) -> str:
        return str(self.body["network_id"])

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

    @property
    def remembered(self) -> int:
        """Of the rows: those that the owner's data did not have when the erasure was asked for.
        Nothing of them was taken out; they only can never be learned."""
        return int(self.body["remembered"])


class Intent(_ErasureStatement):
    """An erasure that was asked for: a wake-up call and a hint where to go. It kills no token."""

    kind = "application/vnd.unweave.intent+json"


class Tombstone(_ErasureStatement):
    """An erasure that was carried out, written in the transaction of the removal visit."""

    kind = "application/vnd.unweave.tombstone+json"

    @property
    def retrain(self) -> bool:
        """Whether the removing agent asked everybody to start from zero."""
        return bool(self.body["retrain"])


class Vote(SignedStatement):
    """One agent's word that another is gone."""

    kind = "application/vnd.unweave.vote+json"

    @property
    def target(self) -> int:
        return int(self.body["agent"])

    @cached_property
    def request(self) -> bytes:
        return bytes.fromhex(self.body["request"])


class AuditMismatch(SignedStatement):
    """An audit that did not add up. The first leads to a rebuild, a second one to a halt."""

    kind = "application/vnd.unweave.audit-mismatch+json"


class InfluenceReport(SignedStatement):
    """What an agent publishes about itself: how far the posterior would move without it. One
    number, at one place of rest; the latest replaces the others."""

    kind = "application/vnd.unweave.influence+json"

    @cached_property
    def stamp(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.body["stamp"])

    @property
    def influence(self) -> float | None:
        """KL(q ‖ q without the agent); None if nothing proper would be left."""
        value = self.body["influence"]
        return None if value is None else float(value)


# ------------------------------------------------------------------------------
# Chapters: erasures that their agent holds certificates for, put away in a few bytes each.
#
# The signed evidence of an erasure is large. It is needed until the agent that asked has its
# certificate; after that the network only has to remember that the request was made, so that
# nothing of it comes back, and which rows it covered, so that an agent whose disk was restored
# from a backup drops them again. A chapter says that about many requests at once, in its agent's
# signed word.

_RUN = 32
_HEAD = _RUN + 4
_WHOLE, _RETRAIN = 1, 2


class CompactedErasure(NamedTuple):
    """What is remembered of one erasure."""

    request: bytes
    whole: bool
    retrain: bool
    rows: frozenset[bytes]


class CompactedErasures(SignedStatement):
    """Erasures of one agent, in binary: JSON would take twice the room for ever.

    run (32 bytes) · agent (4) · then for each request, in order: the 12 bytes of its id after the
    agent's number · flags (1: whole, 2: retrain) · number of rows (4) · each row's commitment after
    its length (1). Numbers are big-endian.
    """

    kind = "application/vnd.unweave.compacted-erasures"

    @classmethod
    def write_all(
        cls, author: int, sign: Sign, run: bytes, erasures: Iterable[Tombstone | CompactedErasure]
    ) -> CompactedErasures:
        """The chapter of an agent's own erasures."""
        parts = [run, author.to_bytes(4, "big")]
        for one in sorted(erasures, key=lambda one: one.request):
            flags = _WHOLE * one.whole + _RETRAIN * one.retrain
            parts += [one.request[4:], bytes([flags]), len(one.rows).to_bytes(4, "big")]
            parts += [bytes([len(row)]) + row for row in sorted(one.rows)]
        raw = b"".join(parts)
        return cls(raw, author, sign(pae(cls.kind, raw)))

    @cached_property
    def erasures(self) -> tuple[CompactedErasure, ...]:
        """The requests; ValueError if the bytes are anything but a chapter."""
        reader = _Reader(self.raw)
        reader.take(_HEAD)
        found: list[CompactedErasure] = []
        while not reader.done:
            request = request_id(self.agent, reader.take(ID_BYTES - 4))
            flags, count = reader.number(1), reader.number(4)
            rows = [reader.take(reader.number(1)) for _ in range(count)]
            if flags > _WHOLE + _RETRAIN or rows != sorted(set(rows)):
                raise ValueError("the chapter is not in the one form it has")
            whole, retrain = bool(flags & _WHOLE), bool(flags & _RETRAIN)
            found.append(CompactedErasure(request, whole, retrain, frozenset(rows)))
        requests = [entry.request for entry in found]
        if not found or requests != sorted(set(requests)):
            raise ValueError("the chapter's requests are not in order")
        return tuple(found)

    @property
    def agent(self) -> int:
        return int.from_bytes(self.raw[_RUN:_HEAD], "big")

    @cached_property
    def ids(self) -> frozenset[bytes]:
        return frozenset(entry.request for entry in self.erasures)

    @cached_property
    def generation(self) -> frozenset[bytes]:
        return frozenset(entry.request for entry in self.erasures if entry.retrain)

    @cached_property
    def rows(self) -> frozenset[bytes]:
        return frozenset(row for entry in self.erasures for row in entry.rows)

    @cached_property
    def tomb(self) -> Tomb:
        whole = any(entry.whole for entry in self.erasures)
        return Tomb(self.ids, whole=whole, compacted=self.ids)

    @cached_property
    def body(self) -> dict[str, Any]:
        return {
            "network_id": self.raw[:_RUN].hex(),
            "agent": self.agent,
            "requests": len(self.erasures),
        }


class _Reader:
    """Takes bytes from the front; never more than there are."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at == len(self._raw)

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._raw):
            raise ValueError("the chapter ends too early")
        found = self._raw[self._at : end]
        self._at = end
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")


def tombs_in(chapters: Iterable[CompactedErasures]) -> Tombs:
    """What these chapters say is erased."""
    by_agent: dict[int, list[Tomb]] = {}
    for chapter in chapters:
        by_agent.setdefault(chapter.agent, []).append(chapter.tomb)
    tombs = {}
    for agent, parts in by_agent.items():
        ids = frozenset().union(*(part.ids for part in parts))
        tombs[agent] = Tomb(ids, whole=any(part.whole for part in parts), compacted=ids)
    return tombs


class Receipt(SignedStatement):
    """One agent's signed word on one change of the token; receipts form a hash chain."""

    kind = "application/vnd.unweave.receipt+json"
