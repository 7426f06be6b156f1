"""What agents say to their neighbours. Every message carries the highest stamp its sender knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from unweave.protocol.ids import Revision, Stamp
from unweave.protocol.records import Figure, Halt, Intent, Tombstone, Vote
from unweave.protocol.token import Token
from unweave.protocol.tombs import Tombs

__all__ = [
    "Ack",
    "Alive",
    "Gossip",
    "Heard",
    "Hello",
    "Message",
    "Pass",
    "Rest",
    "Share",
    "Welcome",
]


class Rest(NamedTuple):
    """Where the token rests, and what it held; the largest stamp wins."""

    stamp: Stamp
    holder: int
    included: tuple[Revision, ...]
    quiet: int
    tombs: Tombs  # the erasures that this rest covers
    certificate: bytes = b""  # evidence of the erasures that this rest completes
    signature: bytes = b""


class Gossip(NamedTuple):
    """State that spreads by joining: sent to each neighbour until it acknowledges this digest."""

    tombs: Tombs
    generation: frozenset[bytes]
    tombstones: Mapping[bytes, Tombstone]
    intents: Mapping[bytes, Intent]
    votes: Mapping[tuple[int, int], Vote]  # (target, voter)
    halts: frozenset[Halt]
    figures: Mapping[int, Figure]
    rest: Rest | None
    wake: Stamp
    digest: bytes
    tombs_digest: bytes


class Hello(NamedTuple):
    """I have just started: tell me what I missed, and forget what I acknowledged."""

    fence: Stamp
    gossip: Gossip
    boot: int = 0  # which of my lives is speaking


class Welcome(NamedTuple):
    """The answer to Hello."""

    fence: Stamp
    gossip: Gossip
    boot: int = 0


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
    beat: float


class Share(NamedTuple):
    """Gossip in passing."""

    fence: Stamp
    gossip: Gossip


class Heard(NamedTuple):
    """I have stored the gossip with these digests. Only the word of the life that goes on counts:
    one that arrives late, from before a lost disk, does not."""

    fence: Stamp
    digest: bytes
    tombs_digest: bytes
    boot: int = 0


Message = Hello | Welcome | Pass | Ack | Alive | Share | Heard
