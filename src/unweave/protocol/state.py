"""What an agent knows. A transition works on a fork, so an old state never changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from unweave.grid import Ints
from unweave.persistent import Vector
from unweave.protocol.events import Effect, Key, Send, Work
from unweave.protocol.messages import Digests, Gossip, Message, ParkNotice
from unweave.protocol.statements import (
    AuditMismatch,
    CompactedErasures,
    InfluenceReport,
    Intent,
    Sign,
    SignedStatement,
    Tombstone,
    Vote,
)
from unweave.protocol.terms import Terms
from unweave.protocol.token import NEVER, NOTHING, Revision, Stamp, Token, Tomb, Tombs

__all__ = [
    "DURABLE",
    "IDLE",
    "Factor",
    "Hold",
    "Idle",
    "Out",
    "Parked",
    "Role",
    "State",
    "Turn",
    "ask",
    "unsigned",
]


class Factor(NamedTuple):
    """A revision of the agent's contribution, and what it was computed from."""

    revision: Revision
    units: Ints
    generation: frozenset[bytes]
    rows: int  # version of the row set
    data: int  # version of the data


class Idle(NamedTuple):
    """Not responsible for a token."""


class Hold(NamedTuple):
    """Visiting."""

    token: Token


class Out(NamedTuple):
    """Sent, not acknowledged yet."""

    token: Token
    to: int


class Parked(NamedTuple):
    """At rest here."""

    token: Token


Role = Idle | Hold | Out | Parked
IDLE = Idle()

# What survives a crash. Everything else is rebuilt by `boot` and `resume`.
DURABLE = (
    "factors",
    "counter",
    "solved_for",
    "last",
    "fence",
    "role",
    "copy",
    "tombs",
    "generation",
    "tombstones",
    "chapters",
    "proved",
    "intents",
    "votes",
    "halts",
    "rest",
    "wake",
    "rows",
    "data",
    "dropped",
    "detached",
    "receipts",
)


class State:
    """One agent. Containers are never mutated: a changed field is a new object."""

    terms: Terms
    me: int

    # durable
    factors: tuple[Factor, ...]  # the current one first, then older ones
    counter: int  # revisions made
    solved_for: bytes  # digest of the cavity last solved against
    last: Stamp  # highest accepted stamp, inclusive: what was seen
    fence: Stamp  # highest stamp heard of, exclusive: what is superseded
    role: Role
    copy: Token | None  # the last token that left this agent, for reading and for recovery
    tombs: Tombs
    generation: frozenset[bytes]
    tombstones: Mapping[bytes, Tombstone]  # of open erasures
    chapters: Mapping[bytes, CompactedErasures]  # digest → erasures that were put away
    proved: frozenset[bytes]  # requests of this agent whose certificate is kept, not put away yet
    intents: Mapping[bytes, Intent]
    votes: Mapping[tuple[int, int], Vote]
    halts: frozenset[AuditMismatch]
    rest: ParkNotice | None
    wake: Stamp
    rows: int
    data: int
    dropped: frozenset[bytes]  # commitments of rows that must never be used again
    detached: bool  # the agent erased itself: no rows are left
    receipts: tuple[SignedStatement, ...]

    # volatile
    boot: int
    synced: bool
    alone: bool  # started without quarantine: nobody has had another life
    peers: Mapping[int, int]  # neighbour → the boot nonce of the life that answered last
    claims: Mapping[int, int]  # neighbour → the life that said Hello since the latest question
    questions: Mapping[int, int]  # neighbour → how often its life was in doubt
    acked: Mapping[int, Digests]  # neighbour → what it has acknowledged
    told: Mapping[
        int, Mapping[bytes, CompactedErasures]
    ]  # neighbour → chapters that it has acknowledged
    welcomed: frozenset[int]  # the neighbours that answered
    suspects: frozenset[int]
    heard: Mapping[int, float]  # neighbour → when it was last heard
    reminded: Mapping[int, float]  # neighbour that has left → when it was last sent the votes
    aware: frozenset[int]  # the neighbours that have left and have acknowledged the votes
    pending: Key | None  # the work that is running
    memo: Mapping[Key, Any]  # answers that the current visit has already got
    figures: Mapping[int, InfluenceReport]  # what agents publish about themselves
    gossip: Gossip | None  # what is spread, cached until it grows
    pulse: tuple[Stamp, float]
    relay: bool  # the pulse has not been passed on yet
    losses: int  # how often the loss timer fired without a sign of life
    baulked: Vector[Revision] | None  # what was included when the solver refused new data
    sought: frozenset[tuple[int, int, int]]  # (epoch, target, neighbour): where it was sought
    alarms: Mapping[str, float]

    def __init__(self, terms: Terms, me: int) -> None:
        self.terms = terms
        self.me = me
        self.factors = ()
        self.counter = 0
        self.solved_for = b""
        self.last = NEVER
        self.fence = NEVER
        self.role = IDLE
        self.copy = None
        self.tombs = {}
        self.generation = frozenset()
        self.tombstones = {}
        self.chapters = {}
        self.proved = frozenset()
        self.intents = {}
        self.votes = {}
        self.halts = frozenset()
        self.rest = None
        self.wake = NEVER
        self.rows = 0
        self.data = 0
        self.dropped = frozenset()
        self.detached = False
        self.receipts = ()
        self._forget_volatile(0)

    def _forget_volatile(self, boot: int) -> None:
        self.boot = boot
        self.synced = False
        self.alone = False
        self.peers = {}
        self.claims = {}
        self.questions = {}
        self.acked = {}
        self.told = {}
        self.welcomed = frozenset()
        self.suspects = frozenset()
        self.heard = {}
        self.reminded = {}
        self.aware = frozenset()
        self.pending = None
        self.memo = {}
        self.figures = {}
        self.gossip = None
        self.pulse = (NEVER, 0.0)
        self.relay = False
        self.losses = 0
        self.baulked = None
        self.sought = frozenset()
        self.alarms = {}

    def fork(self) -> Self:
        copy = object.__new__(type(self))
        copy.__dict__ = self.__dict__.copy()
        return copy

    def rebooted(self, boot: int) -> Self:
        """The same durable state in a new process."""
        copy = self.fork()
        copy._forget_volatile(boot)
        return copy

    # ------------------------------------------------------------------ reading

    @property
    def neighbours(self) -> tuple[int, ...]:
        return self.terms.topology.adjacency[self.me]

    @property
    def tomb(self) -> Tomb:
        """What is erased of this agent."""
        return self.tombs.get(self.me, NOTHING) if self.tombs else NOTHING

    @property
    def left(self) -> frozenset[int]:
        """The agents that a quorum declared gone."""
        return frozenset(agent for agent, tomb in self.tombs.items() if tomb.left)

    @property
    def halted(self) -> bool:
        return len(self.halts) >= 2

    @property
    def current(self) -> Factor | None:
        return self.factors[0] if self.factors else None

    def factor(self, revision: Revision) -> Factor | None:
        """The kept factor with exactly this revision."""
        for factor in self.factors:
            if factor.revision == revision:
                return factor
        return None

    @property
    def token(self) -> Token | None:
        """The token this agent is responsible for."""
        return None if isinstance(self.role, Idle) else self.role.token

    def own_intents(self) -> list[Intent]:
        """Requests about this agent that were not carried out yet."""
        if not self.intents:
            return []
        return [intent for intent in self.intents.values() if intent.agent == self.me]


# ------------------------------------------------------------------------------
# One turn of one agent: the clock, the pen, and the effects gathered so far.


def unsigned(payload: bytes) -> bytes:
    """The null signer, for simulations in which nobody lies."""
    return b""


class Turn:
    """What a rule may use beside the state: the time and the agent's signature are arguments."""

    __slots__ = ("effects", "now", "sign")

    def __init__(self, now: float, sign: Sign) -> None:
        self.now = now
        self.sign = sign
        self.effects: list[Effect] = []

    def do(self, effect: Effect) -> None:
        self.effects.append(effect)

    def send(self, to: int, message: Message) -> None:
        self.effects.append(Send(to, message))


# ------------------------------------------------------------------------------
# Asking the driver for work: once per question, until the question changes.


def ask(s: State, turn: Turn, work: Work) -> Any:
    """The answer to `work`, or None after asking for it."""
    key: Key = work.key
    if key in s.memo:
        return s.memo[key]
    if s.pending != key:
        s.pending = key
        turn.do(work)
    return None
