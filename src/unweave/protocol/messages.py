"""The messages between neighbours. Every message carries the highest stamp its sender knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from unweave.persistent import Bitmap, Vector
from unweave.protocol.statements import (
    AuditMismatch,
    CompactedErasures,
    Enrolment,
    InfluenceReport,
    Intent,
    Opening,
    Tombstone,
    Vote,
)
from unweave.protocol.steps import TokenHeader, TokenStep
from unweave.protocol.token import Revision, Stamp, Token, Tombs

__all__ = [
    "Ack",
    "Alive",
    "Digests",
    "Erasures",
    "Gossip",
    "Heard",
    "Hello",
    "Message",
    "News",
    "ParkNotice",
    "Pass",
    "Share",
    "Welcome",
]


class ParkNotice(NamedTuple):
    """Where the token is parked, and what it includes; the largest stamp wins."""

    stamp: Stamp
    holder: int
    included: Vector[Revision]
    attested: Bitmap
    tombs: Tombs  # the open erasures on the token
    certificate: bytes = b""  # of these erasures, if the attestation round was complete
    masked: bytes = b""  # the name of the private round
    enrolled: Mapping[int, int] = {}  # agent → the incarnation that holds its one-time key


class Erasures(NamedTuple):
    """The open erasures, with their signed evidence."""

    tombs: Tombs
    retrain_epoch: frozenset[bytes]
    tombstones: Mapping[bytes, Tombstone]
    votes: Mapping[tuple[int, int], Vote]  # (target, voter)


class News(NamedTuple):
    """The part of a gossip that changes often."""

    intents: Mapping[bytes, Intent]
    mismatches: frozenset[AuditMismatch]
    influences: Mapping[int, InfluenceReport]
    wake: Stamp
    proofs: Mapping[int, Pass] = {}  # wrong steps, by the agent that signed them


class Digests(NamedTuple):
    """The digests of the five parts of a gossip."""

    compacted: bytes
    erasures: bytes
    parked: bytes
    news: bytes
    openings: bytes


class Gossip(NamedTuple):
    """State that spreads by joining: each part is sent to each neighbour until it acknowledges the
    part's digest. None: the neighbour has acknowledged the part, or no token was ever parked."""

    digests: Digests
    compacted: Mapping[bytes, CompactedErasures] | None = None
    erasures: Erasures | None = None
    parked: ParkNotice | None = None
    news: News | None = None
    openings: Mapping[int, Opening] | None = None  # the latest of each agent


class Hello(NamedTuple):
    """A question: asks for the receiver's knowledge and its incarnation."""

    fence: Stamp
    gossip: Gossip
    incarnation: int = 0  # of the sender
    question: int = 0  # number of the question, counted by this incarnation per neighbour


class Welcome(NamedTuple):
    """The answer to one Hello. Incarnations are not ordered, but only the running one can answer
    the latest question."""

    fence: Stamp
    gossip: Gossip
    incarnation: int = 0  # of the sender
    asker: int = 0  # the incarnation that asked
    question: int = 0  # number of its question
    enrolment: Enrolment | None = None  # rule 22: the asker's, with its largest count of values


class Pass(NamedTuple):
    """The token, how its sender made it, and the knowledge that the neighbour has not acknowledged:
    an erasure or an epoch without its signed evidence would be refused."""

    token: Token
    gossip: Gossip | None = None
    header: TokenHeader | None = None  # None: the agents run in one memory (`Terms.checked`)
    step: TokenStep | None = None


class Ack(NamedTuple):
    """The sender has stored the token with this stamp, or a newer one."""

    fence: Stamp
    stamp: Stamp


class Alive(NamedTuple):
    """A heartbeat of the token: its stamp and its holder's clock, relayed between neighbours."""

    stamp: Stamp
    clock: float


class Share(NamedTuple):
    """Gossip."""

    fence: Stamp
    gossip: Gossip


class Heard(NamedTuple):
    """The sender has stored the gossip with these digests. Counts only from the running
    incarnation, not if it arrives late from before a lost disk."""

    fence: Stamp
    digests: Digests
    incarnation: int = 0


Message = Hello | Welcome | Pass | Ack | Alive | Share | Heard
