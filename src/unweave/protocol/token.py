"""The token: an immutable sum of factors that walks the graph; its names, and when it is dead.

    I1. Every token ever sent satisfies eta = eta_0 + Σ_k factor_k[included_k], and factor_k[r] was
        durable at agent k before any token with included_k = r left agent k.

Names (stamps of tokens, revisions of factors) are never used twice. An incarnation is fresh entropy
at every start of an agent, and part of every name that the agent makes: an agent that was restored
from a backup, or lost its disk, cannot reuse a name.

Tombs name what is erased: per agent a grow-only set of random 16-byte request ids, and the marks
`whole` (the agent erased itself) and `departed` (a quorum declared it departed). They are joined by
union, in any order, any number of times, and are kept for ever. An id is open until its agent holds
the certificate and has compacted the erasure; signed evidence is kept for open ids only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, NamedTuple, Protocol

from unweave.grid import Ints, digest, keyed_digest
from unweave.persistent import NOBODY, Bitmap, Stack, Vector

if TYPE_CHECKING:
    from unweave.protocol.statements import Enrolment

__all__ = [
    "EPOCHS",
    "HOPS",
    "ID_BYTES",
    "NEVER",
    "NOTHING",
    "NOT_MASKED",
    "NO_ROUND",
    "OPENINGS",
    "OUT",
    "PASSES",
    "SECRET_BYTES",
    "AttestationRound",
    "MaskedRound",
    "Revision",
    "Stamp",
    "Token",
    "Tomb",
    "Tombs",
    "all_out",
    "commitment",
    "dead",
    "digest",
    "entomb",
    "includes",
    "is_missing",
    "join",
    "lacking",
    "missing",
    "open_tombs",
    "request_id",
    "requested_of",
    "roster",
    "round_name",
]


class Stamp(NamedTuple):
    """When a token was made. Totally ordered; a larger stamp supersedes a smaller one."""

    epoch: int
    initiator: int
    incarnation: int  # of the initiator
    hop: int
    sender: int  # incarnation of the sender

    def next(self, sender: int) -> Stamp:
        """The same epoch, one hop on."""
        return Stamp(self.epoch, self.initiator, self.incarnation, self.hop + 1, sender)

    @property
    def is_possible(self) -> bool:
        """Whether its numbers are within the limits (rule 17)."""
        return self.epoch < EPOCHS and self.hop < HOPS

    def __str__(self) -> str:
        return f"{self.epoch}.{self.initiator}/{self.hop}"


class Revision(NamedTuple):
    """Names the factor of an agent that a token includes; matched exactly, never by order."""

    counter: int
    incarnation: int
    commitment: bytes = bytes(32)  # to the factor: SHA-256(salt ‖ units)


NEVER = Stamp(0, 0, 0, 0, 0)  # before every token
OUT = Revision(0, 0)  # not included


# Bounds of everything that is counted: no agent can use up the numbers of the others (rule 17).
HOPS = 2**40  # of one epoch; a token that comes near opens the next epoch
EPOCHS = 2**62  # above every epoch: the sum of the openings of 2^14 agents
PASSES = 2**32  # the count of passes stays there
OPENINGS = 2**48  # of epochs, by one agent


ID_BYTES = 16  # of a request
SECRET_BYTES = 32  # of an attestation round


def request_id(agent: int, entropy: bytes) -> bytes:
    """The id of a request about `agent`: the agent's number and 12 random bytes. Another agent's
    statement cannot use an id that names its agent."""
    return agent.to_bytes(4, "big") + entropy[:12]


def requested_of(request: bytes) -> int:
    """The agent that a request is about."""
    return int.from_bytes(request[:4], "big")


class Tomb(NamedTuple):
    """What is erased of one agent."""

    ids: frozenset[bytes] = frozenset()
    whole: bool = False
    departed: bool = False
    compacted: frozenset[bytes] = frozenset()  # ⊆ ids: certified, compacted by the agent itself

    @property
    def open(self) -> frozenset[bytes]:
        """The ids that the next certificate must prove."""
        if not self.compacted:
            return self.ids
        return self.ids - self.compacted if len(self.compacted) < len(self.ids) else frozenset()

    @property
    def out(self) -> bool:
        """Whether no factor of this agent may ever be included again."""
        return self.whole or self.departed

    def covers(self, other: Tomb) -> bool:
        return (
            other.ids <= self.ids
            and self.whole >= other.whole
            and self.departed >= other.departed
            and other.compacted <= self.compacted
        )

    def union(self, other: Tomb) -> Tomb:
        return Tomb(
            self.ids | other.ids,
            self.whole or other.whole,
            self.departed or other.departed,
            self.compacted | other.compacted,
        )


NOTHING = Tomb()
Tombs = Mapping[int, Tomb]


def join(a: Tombs, b: Tombs) -> Tombs:
    """The union; `a` itself if `b` adds nothing, so that callers test growth by identity."""
    if a is b or not b:
        return a
    grown: dict[int, Tomb] | None = None
    for agent, tomb in b.items():
        mine = a.get(agent, NOTHING)
        if not mine.covers(tomb):
            grown = dict(a) if grown is None else grown
            grown[agent] = mine.union(tomb)
    return a if grown is None else grown


def entomb(tombs: Tombs, agent: int, tomb: Tomb) -> Tombs:
    """`tombs` with `tomb` added for one agent."""
    return join(tombs, {agent: tomb})


class Sum(Protocol):
    """What decides whether a sum is forbidden: the included agents and the carried-out erasures. A
    token, or an agent's report of one."""

    @property
    def inside(self) -> Set[int]: ...
    @property
    def tombs(self) -> Tombs: ...
    @property
    def retrain_epoch(self) -> frozenset[bytes]: ...


def dead(token: Sum, tombs: Tombs, retrain_epoch: frozenset[bytes]) -> bool:
    """Whether an agent that knows `tombs` and `retrain_epoch` must refuse `token`.

    Dead iff the token includes k and (k is whole or departed, or an id of k is missing on the
    token), or it is not empty and misses an id of the retrain epoch.
    """
    for agent, tomb in tombs.items():
        if agent in token.inside and (
            tomb.out or not tomb.ids <= token.tombs.get(agent, NOTHING).ids
        ):
            return True
    return bool(token.inside) and not retrain_epoch <= token.retrain_epoch


def open_tombs(tombs: Tombs) -> Tombs:
    """Without the compacted ids. The marks stay."""
    if not any(tomb.compacted for tomb in tombs.values()):
        return tombs
    return {agent: Tomb(tomb.open, tomb.whole, tomb.departed) for agent, tomb in tombs.items()}


def includes(large: Tombs, small: Tombs) -> bool:
    """Whether `large` knows every open erasure of `small`."""
    for agent, tomb in small.items():
        known = large.get(agent, NOTHING)
        if not tomb.open <= known.ids or tomb.whole > known.whole or tomb.departed > known.departed:
            return False
    return True


def all_out(tombs: Tombs) -> list[int]:
    """The agents that will never be included again: erased or departed."""
    return sorted(agent for agent, tomb in tombs.items() if tomb.out)


class AttestationRound(NamedTuple):
    """What an attestation round collects. It is always reset as a whole."""

    agents: Bitmap = NOBODY  # the agents that have attested
    audit: Ints | None = None  # a second sum of the factors, from eta_0
    frozen: Ints | None = None  # Σ of the solver's frozen vectors (None: conjugate)
    statement: bytes = b""  # the bytes that every agent signs
    signatures: Mapping[int, bytes] = {}
    converged: bool = True
    unknown: bool = False  # a frozen vector does not exist, so neither does the sum
    secret: bytes = b""  # drawn by the round's first agent; the key of the sum's digest


NO_ROUND = AttestationRound()


class MaskedRound(NamedTuple):
    """A private round (rule 20): who takes part, with which one-time keys, and at which point every
    agent computes its factor. A plain network has none."""

    keys: Mapping[int, Enrolment] = {}  # of this round
    spare: Mapping[int, Enrolment] = {}  # of the next round, written while giving
    point: bytes = b""  # public; opaque to the protocol
    step: int = 0  # rounds since learning started from a point
    rested: bool = False  # the sum was complete and attested, and the token was woken
    base: bytes = b""  # the name of the last published round; with batches only


NOT_MASKED = MaskedRound()


def round_name(network_id: bytes, masked: MaskedRound) -> bytes:
    """The name of a private round: a change of its keys or of its point makes another round."""
    h = hashlib.sha256(b"unweave round v1" + network_id)
    h.update(hashlib.sha256(masked.point).digest())
    for agent in sorted(masked.keys):
        h.update(agent.to_bytes(4, "big") + masked.keys[agent].key)
    return h.digest()


class Token(NamedTuple):
    """The token."""

    network_id: bytes  # digest of the manifest
    stamp: Stamp
    eta: Ints
    included: Vector[Revision]
    inside: Bitmap  # the agents with a revision in `included`
    tombs: Tombs
    retrain_epoch: frozenset[bytes]
    passes: int  # passes since the last change from outside
    seen: Bitmap  # the agents visited in this pass
    stack: Stack  # depth-first path from the pass's root to here
    busy: bool  # in this pass the sum changed, or an agent solved or attested
    round: AttestationRound
    receipts: bytes  # running hash of all receipts
    masked: MaskedRound = NOT_MASKED


def commitment(token: Token) -> bytes | None:
    """What the statement of the token's attestation round names its sum by; None: no agent has
    attested. Without the round's secret it says nothing about the sum."""
    secret = token.round.secret
    return keyed_digest(secret, token.eta) if secret else None


def is_missing(token: Token, agent: int) -> bool:
    """Whether the agent should be included and is not."""
    return agent not in token.inside and not token.tombs.get(agent, NOTHING).out


def lacking(token: Token) -> int:
    """How many agents should be included and are not. Every visit asks: counted, not searched."""
    out = sum(tomb.out and agent not in token.inside for agent, tomb in token.tombs.items())
    return len(token.included) - len(token.inside) - out


def roster(size: int, tombs: Tombs) -> frozenset[int]:
    """The agents that take part: all that have not departed and have not erased themselves."""
    return frozenset(k for k in range(size) if not tombs.get(k, NOTHING).out)


def missing(token: Token) -> list[int]:
    """The agents that should be included and are not."""
    if not lacking(token):
        return []
    return [agent for agent in range(len(token.included)) if is_missing(token, agent)]
