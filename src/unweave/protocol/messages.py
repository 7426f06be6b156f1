"""What agents say to their neighbours. Every message carries the highest stamp its sender knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from unweave.persistent import Bitmap, Vector
from unweave.protocol.statements import (
    AuditMismatch,
    CompactedErasures,
    InfluenceReport,
    Intent,
    Tombstone,
    Vote,
)
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
    """Where the token rests, and what it held; the largest stamp wins."""

    stamp: Stamp
    holder: int
    included: Vector[Revision]
    attested: Bitmap
    tombs: Tombs  # the open erasures that this rest covers
    certificate: bytes = b""  # evidence of the erasures that this rest completes


class Erasures(NamedTuple):
    """What is erased and not yet put away, with the signed word of those who may erase it."""

    tombs: Tombs
    retrain_epoch: frozenset[bytes]
    tombstones: Mapping[bytes, Tombstone]
    votes: Mapping[tuple[int, int], Vote]  # (target, voter)


class News(NamedTuple):
    """What changes often."""

    intents: Mapping[bytes, Intent]
    mismatches: frozenset[AuditMismatch]
    influences: Mapping[int, InfluenceReport]
    wake: Stamp


class Digests(NamedTuple):
    """The names of the four parts of a gossip."""

    compacted: bytes
    erasures: bytes
    parked: bytes
    news: bytes


class Gossip(NamedTuple):
    """State that spreads by joining: each part is sent to each neighbour until it acknowledges the
    part's digest. None: a part that the neighbour has acknowledged, or a rest that never was."""

    digests: Digests
    compacted: Mapping[bytes, CompactedErasures] | None = None
    erasures: Erasures | None = None
    parked: ParkNotice | None = None
    news: News | None = None


class Hello(NamedTuple):
    """Tell me what I missed, and which life of yours it is that answers."""

    fence: Stamp
    gossip: Gossip
    incarnation: int = 0  # which of my lives is speaking
    question: int = 0  # its number among those that this life has put to the neighbour


class Welcome(NamedTuple):
    """The answer to Hello, and to which one: lives are not ordered, but only the one that goes on
    can answer the latest question."""

    fence: Stamp
    gossip: Gossip
    incarnation: int = 0
    asker: int = 0  # whose question it was: a life,
    question: int = 0  # and its number


class Pass(NamedTuple):
    """The token, handed over. With it goes the evidence of the erasures it knows, unless the
    neighbour has acknowledged it: an id that outlives the record behind it could never be proved.
    """

    token: Token
    gossip: Gossip | None = None


class Ack(NamedTuple):
    """I have stored the token with this stamp, or something newer."""

    fence: Stamp
    stamp: Stamp


class Alive(NamedTuple):
    """The token lives: its stamp and its holder's clock, passed on from neighbour to neighbour."""

    stamp: Stamp
    clock: float


class Share(NamedTuple):
    """Gossip in passing."""

    fence: Stamp
    gossip: Gossip


class Heard(NamedTuple):
    """I have stored the gossip with these digests. Only the word of the life that goes on counts:
    one that arrives late, from before a lost disk, does not."""

    fence: Stamp
    digests: Digests
    incarnation: int = 0


Message = Hello | Welcome | Pass | Ack | Alive | Share | Heard
