"""The state of one agent, and what a transition may use beside it (`Turn`, `ask`).

A transition works on a fork of the state, so an old state never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from unweave.grid import Ints
from unweave.persistent import Vector
from unweave.protocol.events import Effect, Key, Send, Work
from unweave.protocol.messages import Digests, Gossip, Message, ParkNotice, Pass
from unweave.protocol.statements import (
    AuditMismatch,
    CompactedErasures,
    Enrolment,
    InfluenceReport,
    Intent,
    Opening,
    Sign,
    SignedStatement,
    Tombstone,
    Vote,
)
from unweave.protocol.steps import Origin, Revealed
from unweave.protocol.terms import Terms
from unweave.protocol.token import (
    NEVER,
    NOTHING,
    SECRET_BYTES,
    Revision,
    Stamp,
    Token,
    Tomb,
    Tombs,
)

__all__ = [
    "DURABLE",
    "IDLE",
    "NOTHING_WAITS",
    "Contribution",
    "Factor",
    "GivenValue",
    "Hold",
    "Idle",
    "Knowledge",
    "Out",
    "Parked",
    "Peers",
    "Role",
    "State",
    "TokenState",
    "Turn",
    "Waiting",
    "ask",
    "unsigned",
]


class GivenValue(NamedTuple):
    """What an agent gave to a private round: the only bytes that ever leave under this key."""

    round: bytes
    key: bytes  # the public half
    units: Ints  # factor + mask
    audit: Ints  # factor + the mask of the audit


class Waiting(NamedTuple):
    """Changes of this agent's records that wait for a batch (rule 21)."""

    requests: Mapping[bytes, Intent] = MappingProxyType({})  # erasures of records
    data: bool = False  # the data have changed
    records: int = 0  # how many of them, at least
    due: float | None = None  # the date at which they leave at the latest
    leaving: int = 0  # records that have left and are in no published sum yet

    @property
    def total(self) -> int:
        """The records that an enrolment announces."""
        erased = sum(len(one.rows) - one.remembered for one in self.requests.values())
        return erased + self.records + self.leaving


NOTHING_WAITS = Waiting()


class Factor(NamedTuple):
    """A revision of the agent's factor, and the versions that it was computed from."""

    revision: Revision
    units: Ints
    retrain_epoch: frozenset[bytes]
    rows: int  # version of the row set
    data: int  # version of the data
    salt: bytes  # of the revision's commitment
    given: GivenValue | None = None  # in a private round
    point: bytes = b""  # digest of the point that it was computed at

    @property
    def added(self) -> Ints:
        """What a token that includes this revision holds of it."""
        return self.units if self.given is None else self.given.units

    @property
    def audited(self) -> Ints:
        """What the second sum of an attestation round holds of it."""
        return self.units if self.given is None else self.given.audit

    @property
    def revealed(self) -> Revealed:
        return Revealed(self.salt, self.added, None if self.given is None else self.given.audit)


class Idle(NamedTuple):
    """Not responsible for a token."""


class Hold(NamedTuple):
    """The token is here and is being visited."""

    token: Token


class Out(NamedTuple):
    """The token was sent to `to` and is not acknowledged yet."""

    token: Token
    to: int


class Parked(NamedTuple):
    """The token is parked here."""

    token: Token


Role = Idle | Hold | Out | Parked
IDLE = Idle()

_NONE: Mapping[Any, Any] = MappingProxyType({})


class _Group:
    """Fields that belong together. A field that was never set has its default."""

    def fork(self) -> Self:
        copy = object.__new__(type(self))
        copy.__dict__ = self.__dict__.copy()
        return copy

    def keep(self, names: Iterable[str]) -> Self:
        """Only these fields; the others fall back to their defaults."""
        copy = object.__new__(type(self))
        copy.__dict__ = {name: value for name, value in self.__dict__.items() if name in names}
        return copy


class TokenState(_Group):
    """The agent's responsibility for a token, and the newest stamps it knows."""

    # durable
    last: Stamp = NEVER  # highest accepted stamp; a token with this stamp was seen
    fence: Stamp = NEVER  # highest stamp heard of; a token with a smaller one is superseded
    role: Role = IDLE
    origin: Origin | None = None  # of the role token; None: it cannot be shown, so it is no base
    copy: Token | None = None  # the last token sent from here, for reading and for recovery
    copy_origin: Origin | None = None
    published: Token | None = None  # masked: the last complete and audited sum, for readers
    parked: ParkNotice | None = None  # the newest known parked token
    wake: Stamp = NEVER  # the newest parked token for which an agent has pending work

    # volatile
    pending: Key | None = None  # the work that is running
    memo: Mapping[Key, Any] = _NONE  # answers that the current visit has received
    heartbeat: tuple[Stamp, float] = (NEVER, 0.0)
    relay: bool = False  # the heartbeat was not relayed yet
    losses: int = 0  # how often the loss timer fired without a heartbeat
    tried_routes: frozenset[tuple[int, int, int]] = frozenset()  # (epoch, target, neighbour)

    @property
    def held(self) -> Token | None:
        """The token this agent is responsible for."""
        return None if isinstance(self.role, Idle) else self.role.token


class Contribution(_Group):
    """The agent's own factor, and the data behind it."""

    # durable
    factors: tuple[Factor, ...] = ()  # the current one first, then older ones
    counter: int = 0  # revisions made
    solved_for: bytes = b""  # digest of the cavity last solved against
    rows: int = 0  # version of the row set
    data: int = 0  # version of the data
    dropped: frozenset[bytes] = frozenset()  # commitments of rows that must never be used again
    detached: bool = False  # the agent erased itself: no rows remain
    receipts: tuple[SignedStatement, ...] = ()
    waiting: Waiting = NOTHING_WAITS  # masked: for a batch

    # volatile
    announced: tuple[int, bytes] = (0, b"")  # records that wait, on the token of which round
    infeasible_at: Vector[Revision] | None = None  # `included` when the solver refused new data
    spent: bool = False  # masked: the keyring makes no more keys
    exhausted: bool = False  # … because the privacy budget is spent, which the token must hear

    @property
    def current(self) -> Factor | None:
        return self.factors[0] if self.factors else None

    def factor(self, revision: Revision) -> Factor | None:
        """The kept factor with exactly this revision."""
        for factor in self.factors:
            if factor.revision == revision:
                return factor
        return None


class Knowledge(_Group):
    """Knowledge that spreads by joining: erasures, requests, votes, audit mismatches."""

    # durable
    tombs: Tombs = _NONE
    retrain_epoch: frozenset[bytes] = frozenset()
    tombstones: Mapping[bytes, Tombstone] = _NONE  # of open erasures
    compacted: Mapping[bytes, CompactedErasures] = _NONE  # by digest
    proved: frozenset[bytes] = frozenset()  # own requests whose certificate is kept, not compacted
    intents: Mapping[bytes, Intent] = _NONE
    votes: Mapping[tuple[int, int], Vote] = _NONE  # (target, voter)
    mismatches: frozenset[AuditMismatch] = frozenset()
    openings: Mapping[int, Opening] = _NONE  # the latest of each agent
    enrolments: Mapping[int, Enrolment] = _NONE  # neighbour → its largest count (rule 22)

    # volatile
    proofs: Mapping[int, Pass] = _NONE  # wrong steps, by the agent that signed them
    influences: Mapping[int, InfluenceReport] = _NONE
    gossip: Gossip | None = None  # all of it as gossip, cached until it grows


class Peers(_Group):
    """Knowledge about the neighbours' processes; all of it is volatile."""

    synced: bool = False  # quarantine is over
    alone: bool = False  # started without quarantine: no agent has had another incarnation
    incarnations: Mapping[int, int] = _NONE  # neighbour → the incarnation that answered last
    claimed: Mapping[int, int] = _NONE  # neighbour → the one that said Hello since the question
    questions: Mapping[int, int] = _NONE  # neighbour → how often its incarnation was in doubt
    acked: Mapping[int, Digests] = _NONE  # neighbour → the digests it has acknowledged
    told: Mapping[int, Mapping[bytes, CompactedErasures]] = _NONE  # … the compacted erasures
    welcomed: frozenset[int] = frozenset()  # the neighbours that answered
    waited: int = 0  # how often the wait for all of them has ended
    counted: frozenset[int] = frozenset()  # those that ever answered, and so told of given values
    vouched: frozenset[int] = frozenset()  # … and remembered an enrolment of this agent (rule 22)
    suspects: frozenset[int] = frozenset()
    heard: Mapping[int, float] = _NONE  # neighbour → when it was last heard
    repeated: Mapping[tuple[str, int], tuple[int, float]] = _NONE  # see `gossip.is_due`
    reminded: Mapping[int, float] = _NONE  # departed neighbour → when it was last sent the votes
    aware: frozenset[int] = frozenset()  # departed neighbours that have acknowledged the votes


# The fields that survive a crash, and their group. `start` and `resume` restore everything else.
DURABLE = {
    **dict.fromkeys(("last", "fence", "role", "origin"), "token"),
    **dict.fromkeys(("copy", "copy_origin", "published", "parked", "wake"), "token"),
    **dict.fromkeys(("factors", "counter", "solved_for", "rows"), "own"),
    **dict.fromkeys(("data", "dropped", "detached", "receipts", "waiting"), "own"),
    **dict.fromkeys(("tombs", "retrain_epoch", "tombstones", "compacted"), "known"),
    **dict.fromkeys(("proved", "intents", "votes", "mismatches"), "known"),
    **dict.fromkeys(("openings", "enrolments"), "known"),
}


class State:
    """One agent. Containers are never mutated: a changed field is a new object."""

    __slots__ = ("incarnation", "known", "me", "own", "peers", "terms", "timers", "token")

    terms: Terms
    me: int
    incarnation: int  # fresh entropy at every start: part of every name that the agent makes
    timers: Mapping[str, float]  # volatile
    token: TokenState
    own: Contribution
    known: Knowledge
    peers: Peers

    def __init__(self, terms: Terms, me: int) -> None:
        self.terms = terms
        self.me = me
        self.incarnation = 0
        self.timers = _NONE
        self.token = TokenState()
        self.own = Contribution()
        self.known = Knowledge()
        self.peers = Peers()

    def fork(self) -> Self:
        copy = object.__new__(type(self))
        copy.terms = self.terms
        copy.me = self.me
        copy.incarnation = self.incarnation
        copy.timers = self.timers
        copy.token = self.token.fork()
        copy.own = self.own.fork()
        copy.known = self.known.fork()
        copy.peers = self.peers.fork()
        return copy

    def restarted(self, incarnation: int) -> Self:
        """The same durable state in a new process."""
        copy = type(self)(self.terms, self.me)
        copy.incarnation = incarnation
        copy.token = self.token.keep(DURABLE)
        copy.own = self.own.keep(DURABLE)
        copy.known = self.known.keep(DURABLE)
        return copy

    def durable(self, name: str) -> Any:
        """A durable field by its name."""
        return getattr(getattr(self, DURABLE[name]), name)

    def set_durable(self, name: str, value: Any) -> None:
        setattr(getattr(self, DURABLE[name]), name, value)

    @property
    def neighbours(self) -> tuple[int, ...]:
        return self.terms.topology.adjacency[self.me]

    @property
    def tomb(self) -> Tomb:
        """The tomb of this agent."""
        tombs = self.known.tombs
        return tombs.get(self.me, NOTHING) if tombs else NOTHING

    @property
    def departed(self) -> frozenset[int]:
        """The agents that a quorum declared departed."""
        return frozenset(agent for agent, tomb in self.known.tombs.items() if tomb.departed)

    @property
    def audit_failed(self) -> bool:
        """Whether two agents, which have not departed, found an audit mismatch since the last
        departure: then no token is accepted, sent or served. One agent alone cannot stop the
        network, and the departure of the agent that caused the mismatches starts it again."""
        if len(self.known.mismatches) < 2:
            return False
        departed = self.departed
        found = (m for m in self.known.mismatches if m.departed == departed)
        return len({m.author for m in found} - departed) >= 2

    def own_intents(self) -> list[Intent]:
        """The requests about this agent that are not carried out yet."""
        intents = self.known.intents
        return [i for i in intents.values() if i.agent == self.me] if intents else []


def unsigned(payload: bytes) -> bytes:
    """The null signer, for simulations without dishonest agents."""
    return b""


class Turn:
    """One transition: the time, the agent's signer, 32 random bytes that no other transition gets,
    and the effects so far."""

    __slots__ = ("effects", "entropy", "now", "sign")

    def __init__(self, now: float, sign: Sign, entropy: bytes = bytes(SECRET_BYTES)) -> None:
        self.now = now
        self.sign = sign
        self.entropy = entropy
        self.effects: list[Effect] = []

    def do(self, effect: Effect) -> None:
        self.effects.append(effect)

    def send(self, to: int, message: Message) -> None:
        self.effects.append(Send(to, message))


def ask(s: State, turn: Turn, work: Work) -> Any:
    """The answer to `work`; None while it is awaited. The driver is asked once per key."""
    key: Key = work.key
    if key in s.token.memo:
        return s.token.memo[key]
    if s.token.pending != key:
        s.token.pending = key
        turn.do(work)
    return None
