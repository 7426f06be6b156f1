"""Names that are never used twice: stamps of tokens, revisions of factors.

A boot nonce is fresh entropy at every start of an agent. It is part of every name that the agent
makes, so an agent that was restored from a backup, or lost its disk, cannot reuse an old name.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple, Protocol

from unweave.grid import Ints, digest
from unweave.persistent import NOBODY, Bitmap, Stack, Vector

__all__ = [
    "FAR",
    "ID_BYTES",
    "NEVER",
    "NOTHING",
    "NO_ROUND",
    "OUT",
    "AttestationRound",
    "Revision",
    "Stamp",
    "Token",
    "Tomb",
    "Tombs",
    "all_out",
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
]


class Stamp(NamedTuple):
    """When a token was made: (epoch number, initiator, its boot), hop, sender's boot. Totally
    ordered; a larger stamp supersedes a smaller one."""

    epoch: int
    initiator: int
    incarnation: int
    hop: int
    sender: int

    def next(self, sender: int) -> Stamp:
        """The same epoch, one hop on."""
        return Stamp(self.epoch, self.initiator, self.incarnation, self.hop + 1, sender)

    def __str__(self) -> str:
        return f"{self.epoch}.{self.initiator}/{self.hop}"


class Revision(NamedTuple):
    """Which factor of an agent a token includes; matched exactly, never by order."""

    counter: int
    incarnation: int


NEVER = Stamp(0, 0, 0, 0, 0)  # before every token
OUT = Revision(0, 0)  # not included


# An epoch so far ahead of everything heard is a lie: believed, it would use up the numbers.
FAR = 2**32


ID_BYTES = 16  # of a request


def request_id(agent: int, entropy: bytes) -> bytes:
    """The id of a request about `agent`: its number, and 12 random bytes. An id that names its
    agent cannot be taken by another one's record."""
    return agent.to_bytes(4, "big") + entropy[:12]


def requested_of(request: bytes) -> int:
    """Whom a request is about."""
    return int.from_bytes(request[:4], "big")


# ------------------------------------------------------------------------------
# Tombstones: what is known to be erased, and which tokens that kills.
#
# A tombstone is a grow-only set of random 16-byte request ids per agent, plus two marks: `whole`
# (the agent erased itself) and `left` (a quorum declared it gone). They are joined by union, in
# any order, any number of times, and are kept for ever. An id is *open* until its agent holds the
# certificate and has filed it in a chapter (`archive`); the signed evidence is kept for open ids
# only.


class Tomb(NamedTuple):
    """What is erased of one agent."""

    ids: frozenset[bytes] = frozenset()
    whole: bool = False
    departed: bool = False
    compacted: frozenset[bytes] = frozenset()  # ⊆ ids: certified, and put away by the agent itself

    @property
    def open(self) -> frozenset[bytes]:
        """What the next certificate has to prove."""
        if not self.compacted:
            return self.ids
        return self.ids - self.compacted if len(self.compacted) < len(self.ids) else frozenset()

    @property
    def out(self) -> bool:
        """Nothing of this agent may ever be included again."""
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
    """The union; returns `a` itself when `b` adds nothing, so that growth is `is not`."""
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
    """What decides whether a sum is forbidden: who is in it, and which erasures it has carried out.
    A token, or what an agent reports of one."""

    @property
    def inside(self) -> Set[int]: ...
    @property
    def tombs(self) -> Tombs: ...
    @property
    def retrain_epoch(self) -> frozenset[bytes]: ...


def dead(token: Sum, tombs: Tombs, generation: frozenset[bytes]) -> bool:
    """Whether somebody who knows `tombs` and `generation` must refuse `token`.

    Dead iff it includes k and (k is whole or left, or an id of k is missing on the token), or it is
    not empty and misses an id of the generation.
    """
    for agent, tomb in tombs.items():
        if agent in token.inside and (
            tomb.out or not tomb.ids <= token.tombs.get(agent, NOTHING).ids
        ):
            return True
    return bool(token.inside) and not generation <= token.retrain_epoch


def open_tombs(tombs: Tombs) -> Tombs:
    """Without the ids that were filed: what is still to be told and proved. The marks stay."""
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
    """Agents that will never be included again: erased or gone."""
    return sorted(agent for agent, tomb in tombs.items() if tomb.out)


# ------------------------------------------------------------------------------
# The token: an immutable sum of factors that walks the graph.
#
# I1. Every token ever sent satisfies eta = eta_0 + Σ_k factor_k[included_k], and factor_k[r] was
# durable at agent k before any token with included_k = r left it.


class AttestationRound(NamedTuple):
    """The quiet group: what a change-free cover collects. It is always reset as one."""

    agents: Bitmap = NOBODY  # those who attested
    audit: Ints | None = None  # a second sum of the factors, from eta_0
    frozen: Ints | None = None  # Σ of the solver's frozen vectors (None: conjugate)
    statement: bytes = b""  # what everybody signs
    signatures: Mapping[int, bytes] = {}
    converged: bool = True
    unknown: bool = False  # an agent's frozen vector does not exist: there is no sum of them


NO_ROUND = AttestationRound()


class Token(NamedTuple):
    """What travels. `busy`: something changed, was solved or joined quiet during this pass."""

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
    busy: bool
    round: AttestationRound
    receipts: bytes  # running hash of all receipts


def is_missing(token: Token, agent: int) -> bool:
    """Whether this agent belongs in the token and is not in it."""
    return agent not in token.inside and not token.tombs.get(agent, NOTHING).out


def lacking(token: Token) -> int:
    """How many agents belong in the token and are not in it; every visit asks, so nobody is
    searched for."""
    out = sum(tomb.out and agent not in token.inside for agent, tomb in token.tombs.items())
    return len(token.included) - len(token.inside) - out


def missing(token: Token) -> list[int]:
    """The agents that belong in the token and are not in it."""
    if not lacking(token):
        return []
    return [agent for agent in range(len(token.included)) if is_missing(token, agent)]
