"""Signed statements, which agents pass on unchanged.

A statement carries the bytes that its author signed. Readers parse these bytes and never serialise
them again. The bytes are JSON (`CompactedErasures`: binary); the signature covers their
pre-authentication encoding (DSSE) under the statement's type.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

from unweave.bounded import load_json
from unweave.protocol.token import ID_BYTES, Tomb, Tombs, request_id

__all__ = [
    "COMMITMENT_BYTES",
    "AuditMismatch",
    "CompactedErasure",
    "CompactedErasures",
    "Enrolment",
    "InfluenceReport",
    "Intent",
    "Opening",
    "Receipt",
    "Sign",
    "SignedStatement",
    "Tombstone",
    "Vote",
    "pae",
    "tombs_in",
]


Sign = Callable[[bytes], bytes]

COMMITMENT_BYTES = 16  # of the keyed hash that names an erased row


def pae(kind: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: DSSEv1 SP len(type) SP type SP len(body) SP body."""
    name = kind.encode()
    return b"DSSEv1 %d %s %d %s" % (len(name), name, len(payload), payload)


@dataclass(frozen=True)
class SignedStatement:
    """Bytes, their author and the signature; equal iff the bytes are equal."""

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
        value = load_json(self.raw)
        if not isinstance(value, dict):
            raise ValueError(f"{self.kind}: the statement is not a JSON object")
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
    """The common part of intents and tombstones: a request, its agent and its scope."""

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
        """How many of the rows were not in the owner's data when the erasure was asked for. They
        were not taken out; they can never be learned."""
        return int(self.body["remembered"])


class Intent(_ErasureStatement):
    """A requested erasure: it wakes the token and names the agent to seek. It forbids nothing."""

    kind = "application/vnd.unweave.intent+json"


class Tombstone(_ErasureStatement):
    """A carried-out erasure, written in the transaction of the removal visit."""

    kind = "application/vnd.unweave.tombstone+json"

    @property
    def retrain(self) -> bool:
        """Whether the removing agent asked all agents to start from zero."""
        return bool(self.body["retrain"])

    @property
    def counter(self) -> int:
        """The larger counter of the revisions before and after the removal."""
        receipt = json.loads(self.body["receipt"])
        return int(max(receipt["before"][0], receipt["after"][0]))


class Vote(SignedStatement):
    """One agent's vote that another has departed."""

    kind = "application/vnd.unweave.vote+json"

    @property
    def target(self) -> int:
        return int(self.body["agent"])

    @cached_property
    def request(self) -> bytes:
        return bytes.fromhex(self.body["request"])


class AuditMismatch(SignedStatement):
    """An audit mismatch (rule 6), and the agents that had departed when it was found."""

    kind = "application/vnd.unweave.audit-mismatch+json"

    @cached_property
    def departed(self) -> frozenset[int]:
        return frozenset(int(agent) for agent in self.body["departed"])


class Opening(SignedStatement):
    """An agent has opened an epoch; `count` is the number of epochs that it has opened so far. No
    epoch has a larger number than 1 + the sum of all agents' counts (rule 17)."""

    kind = "application/vnd.unweave.opening+json"

    @cached_property
    def order(self) -> tuple[int, int, int]:
        """Of two openings of one agent, the larger is the later one."""
        return int(self.body["count"]), int(self.body["epoch"]), int(self.body["incarnation"])

    @property
    def count(self) -> int:
        return self.order[0]

    @property
    def epoch(self) -> tuple[int, int, int]:
        """The first parts of every stamp of this epoch: number, initiator, incarnation."""
        return self.order[1], self.author, self.order[2]


class Enrolment(SignedStatement):
    """An agent's one-time key for a private round (rule 20). The private half is in the memory of
    the incarnation that signed it, and nowhere else."""

    kind = "application/vnd.unweave.enrolment+json"

    @property
    def incarnation(self) -> int:
        return int(self.body["incarnation"])

    @cached_property
    def key(self) -> bytes:
        """The X25519 public key: 32 bytes. None: the agent's budget is spent (rule 22)."""
        return bytes.fromhex(self.body["key"])

    @property
    def given(self) -> int:
        """How many values the agent will have given before it uses the key (rule 22)."""
        return int(self.body.get("given", 0))

    @property
    def changed(self) -> int:
        """The records of this agent that have changed since the round `base` (rule 21)."""
        return int(self.body.get("changed", 0))

    @cached_property
    def base(self) -> bytes:
        """The name of the last published round."""
        return bytes.fromhex(self.body.get("base", ""))


class InfluenceReport(SignedStatement):
    """An agent's influence: how far the posterior at one parked token would move without the agent.
    The latest replaces the others."""

    kind = "application/vnd.unweave.influence+json"

    @cached_property
    def stamp(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.body["stamp"])

    @property
    def influence(self) -> float | None:
        """KL(q ‖ q without the agent); None if no proper posterior would remain."""
        value = self.body["influence"]
        return None if value is None else float(value)


_NETWORK_ID = 32
_HEAD = _NETWORK_ID + 4
_WHOLE, _RETRAIN = 1, 2


class CompactedErasure(NamedTuple):
    """One compacted erasure."""

    request: bytes
    whole: bool
    retrain: bool
    rows: frozenset[bytes]


class CompactedErasures(SignedStatement):
    """Erasures of one agent for which it holds certificates.

    The signed evidence of an erasure is large, and is needed until the agent that asked has its
    certificate. After that the network remembers the request, so that no token may include it, and
    its rows, so that an agent restored from a backup drops them again. JSON would take twice the
    space, for ever. The bytes:

    network_id (32 bytes) · agent (4) · then for each request, in order: the 12 bytes of its id
    after the agent's number · flags (1: whole, 2: retrain) · number of rows (4) · each row's
    commitment after its length (1). Numbers are big-endian.
    """

    kind = "application/vnd.unweave.compacted-erasures"

    @classmethod
    def write_all(
        cls,
        author: int,
        sign: Sign,
        network_id: bytes,
        erasures: Iterable[Tombstone | CompactedErasure],
    ) -> CompactedErasures:
        """The statement of an agent's own erasures."""
        parts = [network_id, author.to_bytes(4, "big")]
        for entry in sorted(erasures, key=lambda entry: entry.request):
            flags = _WHOLE * entry.whole + _RETRAIN * entry.retrain
            parts += [entry.request[4:], bytes([flags]), len(entry.rows).to_bytes(4, "big")]
            parts += [bytes([len(row)]) + row for row in sorted(entry.rows)]
        raw = b"".join(parts)
        return cls(raw, author, sign(pae(cls.kind, raw)))

    @cached_property
    def erasures(self) -> tuple[CompactedErasure, ...]:
        """The entries; ValueError if the bytes are not in canonical form."""
        reader = _Reader(self.raw)
        reader.take(_HEAD)
        found: list[CompactedErasure] = []
        while not reader.done:
            request = request_id(self.agent, reader.take(ID_BYTES - 4))
            flags, count = reader.number(1), reader.number(4)
            rows = [reader.take(reader.number(1)) for _ in range(count)]
            if flags > _WHOLE + _RETRAIN or rows != sorted(set(rows)):
                raise ValueError("compacted erasures: the bytes are not in canonical form")
            whole, retrain = bool(flags & _WHOLE), bool(flags & _RETRAIN)
            found.append(CompactedErasure(request, whole, retrain, frozenset(rows)))
        requests = [entry.request for entry in found]
        if not found or requests != sorted(set(requests)):
            raise ValueError("compacted erasures: the requests are not in order")
        return tuple(found)

    @property
    def agent(self) -> int:
        return int.from_bytes(self.raw[_NETWORK_ID:_HEAD], "big")

    @cached_property
    def ids(self) -> frozenset[bytes]:
        return frozenset(entry.request for entry in self.erasures)

    @cached_property
    def retrain_epoch(self) -> frozenset[bytes]:
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
            "network_id": self.raw[:_NETWORK_ID].hex(),
            "agent": self.agent,
            "requests": len(self.erasures),
        }


class _Reader:
    """Reads bytes from the front; ValueError past the end."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at == len(self._raw)

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._raw):
            raise ValueError("compacted erasures: the bytes end too early")
        found = self._raw[self._at : end]
        self._at = end
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")


def tombs_in(statements: Iterable[CompactedErasures]) -> Tombs:
    """The union of the tombs of these statements."""
    by_agent: dict[int, list[Tomb]] = {}
    for compacted in statements:
        by_agent.setdefault(compacted.agent, []).append(compacted.tomb)
    tombs = {}
    for agent, parts in by_agent.items():
        ids = frozenset().union(*(part.ids for part in parts))
        tombs[agent] = Tomb(ids, whole=any(part.whole for part in parts), compacted=ids)
    return tombs


class Receipt(SignedStatement):
    """One change of the token by one agent; receipts form a hash chain."""

    kind = "application/vnd.unweave.receipt+json"
