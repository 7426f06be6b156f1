"""Arbitrary protocol values from a source of randomness, and equality that looks into arrays.

`draw` is a `random.Random`; Hypothesis can supply one (`st.randoms()`), so the same builders serve
property tests and plain ones. Values have the right shape for their network and are otherwise
arbitrary: a codec or a store must accept every value of the type, not only the protocol's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np

from unweave.graph import Topology
from unweave.grid import Grid, Ints
from unweave.persistent import Bitmap, Stack, Vector
from unweave.protocol.messages import (
    Ack,
    Alive,
    Digests,
    Erasures,
    Gossip,
    Heard,
    Hello,
    Message,
    News,
    ParkNotice,
    Pass,
    Share,
    Welcome,
)
from unweave.protocol.state import (
    DURABLE,
    NOTHING_WAITS,
    Factor,
    GivenValue,
    Hold,
    Idle,
    Out,
    Parked,
    Role,
    State,
    Waiting,
)
from unweave.protocol.statements import (
    AuditMismatch,
    CompactedErasures,
    Enrolment,
    InfluenceReport,
    Intent,
    Opening,
    Receipt,
    SignedStatement,
    Tombstone,
    Vote,
    tombs_in,
)
from unweave.protocol.steps import Origin, Revealed, TokenHeader, TokenStep, write_header
from unweave.protocol.terms import Terms
from unweave.protocol.token import (
    HOPS,
    NOT_MASKED,
    OPENINGS,
    OUT,
    PASSES,
    SECRET_BYTES,
    AttestationRound,
    MaskedRound,
    Revision,
    Stamp,
    Token,
    Tomb,
    join,
    request_id,
)

__all__ = ["MESSAGES", "gossip", "same", "same_durable", "small_terms", "state", "token"]


_EDGE_INTS = (0, 1, -1, 2**63 - 1, -(2**63))


def small_terms(agents: int = 4, dim: int = 3, **settings: Any) -> Terms:
    """A ring of a few agents."""
    edges = [(k, (k + 1) % agents) for k in range(agents if agents > 2 else agents - 1)]
    topology = Topology([f"a{k + 1}" for k in range(agents)], edges)
    grid = Grid((8,) * dim)
    eta0 = np.arange(1, dim + 1, dtype=np.int64)
    return Terms(network_id=b"\x07" * 32, topology=topology, grid=grid, eta0=eta0, **settings)


# ---------------------------------------------------------------------------------- small values


def _bytes(draw: Random, size: int) -> bytes:
    return draw.getrandbits(8 * size).to_bytes(size, "little") if size else b""


def _nonce(draw: Random) -> int:
    return draw.choice((0, 1, 2**63, 2**64 - 1, draw.getrandbits(64)))


def _ids(draw: Random) -> frozenset[bytes]:
    return frozenset(_bytes(draw, 16) for _ in range(draw.randrange(3)))


def _stamp(draw: Random, terms: Terms) -> Stamp:
    return Stamp(
        draw.choice((0, 1, 7, 2**62 - 1)),
        draw.randrange(terms.size),
        _nonce(draw),
        draw.choice((0, 1, HOPS - 1)),
        _nonce(draw),
    )


def _vector(draw: Random, terms: Terms) -> Ints:
    values = [draw.choice((*_EDGE_INTS, draw.getrandbits(40))) for _ in range(terms.grid.dim)]
    return np.array(values, dtype=np.int64)


def _included(draw: Random, terms: Terms) -> Vector[Revision]:
    return Vector(_revision(draw) for _ in range(terms.size))


def _revision(draw: Random) -> Revision:
    if draw.random() < 0.4:
        return OUT
    return Revision(draw.randrange(1, 9), _nonce(draw), _bytes(draw, 32))


def _bitmap(draw: Random, terms: Terms) -> Bitmap:
    all_agents = (1 << terms.size) - 1
    return Bitmap.of(draw.choice((0, all_agents, draw.randint(0, all_agents))))


def _tombs(draw: Random, terms: Terms, *, with_compacted: bool = False) -> dict[int, Tomb]:
    def tomb() -> Tomb:
        compacted_ids = _ids(draw) if with_compacted else frozenset()
        return Tomb(
            _ids(draw) | compacted_ids, draw.random() < 0.3, draw.random() < 0.3, compacted_ids
        )

    return {agent: tomb() for agent in range(terms.size) if draw.random() < 0.4}


def token(draw: Random, terms: Terms) -> Token:
    included = _included(draw, terms)
    return Token(
        network_id=terms.network_id,
        stamp=_stamp(draw, terms),
        eta=_vector(draw, terms),
        included=included,
        inside=Bitmap(k for k, revision in enumerate(included) if revision.counter),
        tombs=_tombs(draw, terms, with_compacted=True),
        retrain_epoch=_ids(draw),
        passes=draw.choice((0, 3, PASSES)),
        seen=_bitmap(draw, terms),
        stack=Stack.of(draw.sample(range(terms.size), draw.randrange(terms.size + 1))),
        busy=draw.random() < 0.5,
        round=_round(draw, terms),
        receipts=_bytes(draw, 32),
        masked=_masked_round(draw, terms) if terms.masked else NOT_MASKED,
    )


def _masked_round(draw: Random, terms: Terms) -> MaskedRound:
    return MaskedRound(
        keys=_enrolments(draw, terms),
        spare=_enrolments(draw, terms),
        point=_bytes(draw, draw.choice((0, 8, 100))),
        step=draw.choice((0, 1, terms.max_rounds)),
        rested=draw.random() < 0.5,
        base=_bytes(draw, draw.choice((0, 32))) if terms.publish else b"",
    )


def _waiting(draw: Random, terms: Terms) -> Waiting:
    if not terms.masked or draw.random() < 0.4:
        return NOTHING_WAITS
    due = draw.choice((None, 0.0, 1.7e9 + draw.random()))
    requests = _statements(draw, terms, Intent)
    return Waiting(requests, draw.random() < 0.5, draw.randrange(9), due, draw.randrange(9))


def _enrolments(draw: Random, terms: Terms) -> dict[int, Enrolment]:
    return {
        agent: Enrolment.write(
            agent,
            lambda _: b"e",
            network_id=terms.network_id.hex(),
            agent=agent,
            incarnation=_nonce(draw),
            key=_bytes(draw, draw.choice((0, 32, 32)) if terms.noise else 32).hex(),
            **({"changed": draw.randrange(9), "base": "00" * 32} if terms.publish else {}),
            **({"given": draw.choice((0, 1, 2**47))} if terms.noise else {}),
        )
        for agent in range(terms.size)
        if draw.random() < 0.5
    }


def _round(draw: Random, terms: Terms) -> AttestationRound:
    if draw.random() < 0.3:
        return AttestationRound()
    agents = _bitmap(draw, terms)
    return AttestationRound(
        agents=agents,
        audit=_vector(draw, terms) if draw.random() < 0.5 else None,
        frozen=_vector(draw, terms) if draw.random() < 0.5 else None,
        statement=_bytes(draw, draw.randrange(40)),
        signatures={k: _bytes(draw, 8) for k in range(terms.size) if draw.random() < 0.5},
        converged=draw.random() < 0.5,
        unknown=draw.random() < 0.2,
        secret=_bytes(draw, SECRET_BYTES) if agents else b"",
    )


# ---------------------------------------------------------------------------------------- steps


def _maybe(draw: Random, value: Any) -> Any:
    return value if draw.random() < 0.5 else None


def _revealed(draw: Random, terms: Terms) -> Revealed:
    audit = _vector(draw, terms) if terms.masked else None
    return Revealed(_bytes(draw, 16), _vector(draw, terms), audit)


def _header(draw: Random, terms: Terms, step: TokenStep | None = None) -> TokenHeader:
    step = step or TokenStep(None, _revision(draw))
    author = draw.randrange(terms.size)
    return write_header(terms.network_id, author, lambda _: b"head", token(draw, terms), step)


def _step(draw: Random, terms: Terms) -> TokenStep:
    return TokenStep(
        _maybe(draw, _header(draw, terms)),
        _revision(draw),
        None if terms.masked else _maybe(draw, _revealed(draw, terms)),
        _maybe(draw, _revealed(draw, terms)),
    )


def _origin(draw: Random, terms: Terms) -> Origin:
    return Origin(*_step(draw, terms)[:3])


def _proofs(draw: Random, terms: Terms) -> dict[int, Pass]:
    def proof() -> Pass:
        step = _step(draw, terms)
        return Pass(token(draw, terms), None, _header(draw, terms, step), step)

    return {one.header.author: one for one in _some(draw, proof) if one.header is not None}


def _openings(draw: Random, terms: Terms) -> dict[int, Opening]:
    def opening() -> Opening:
        author = draw.randrange(terms.size)
        return Opening.write(
            author,
            lambda _: b"o",
            network_id=terms.network_id.hex(),
            agent=author,
            count=draw.choice((1, OPENINGS - 1)),
            epoch=draw.choice((1, 2**62 - 1)),
            incarnation=_nonce(draw),
        )

    return {one.author: one for one in _some(draw, opening)}


# ------------------------------------------------------------------------- statements and gossip


def _erasure(
    draw: Random, terms: Terms, kind: type[Intent | Tombstone], **more: Any
) -> Intent | Tombstone:
    agent = draw.randrange(terms.size)
    rows = [_bytes(draw, 32).hex() for _ in range(draw.randrange(3))]
    return kind.write(
        agent,
        lambda payload: _bytes(draw, 8),
        network_id=terms.network_id.hex(),
        request=request_id(agent, _bytes(draw, 12)).hex(),
        agent=agent,
        whole=not rows,
        rows=rows,
        **more,
    )


def _some(draw: Random, make: Callable[[], Any]) -> list[Any]:
    return [make() for _ in range(draw.randrange(3))]


def _statements(draw: Random, terms: Terms, kind: type[Intent | Tombstone]) -> dict[bytes, Any]:
    more = {"retrain": draw.random() < 0.5} if kind is Tombstone else {}
    made = _some(draw, lambda: _erasure(draw, terms, kind, **more))
    return {statement.request: statement for statement in made}


def _votes(draw: Random, terms: Terms) -> dict[tuple[int, int], Vote]:
    def vote() -> Vote:
        target, voter = draw.sample(range(terms.size), 2)
        request = request_id(target, _bytes(draw, 12)).hex()
        network_id_hex = terms.network_id.hex()
        return Vote.write(
            voter, lambda _: b"sig", network_id=network_id_hex, agent=target, request=request
        )

    return {(vote.target, vote.author): vote for vote in _some(draw, vote)}


def _statement(draw: Random, terms: Terms, kind: type[SignedStatement]) -> Any:
    author = draw.randrange(terms.size)
    return kind.write(
        author,
        lambda _: b"s",
        network_id=terms.network_id.hex(),
        agent=author,
        eta=_bytes(draw, 8).hex(),
        departed=sorted(_bitmap(draw, terms)),
    )


def _influences(draw: Random, terms: Terms) -> dict[int, InfluenceReport]:
    def report() -> InfluenceReport:
        agent = draw.randrange(terms.size)
        return InfluenceReport.write(
            agent,
            lambda _: b"f",
            network_id=terms.network_id.hex(),
            agent=agent,
            stamp=list(_stamp(draw, terms)),
            influence=draw.choice((None, draw.random())),
        )

    return {report.author: report for report in _some(draw, report)}


def _park_notice(draw: Random, terms: Terms) -> ParkNotice:
    return ParkNotice(
        _stamp(draw, terms),
        draw.randrange(terms.size),
        _included(draw, terms),
        _bitmap(draw, terms),
        _tombs(draw, terms),
        _bytes(draw, draw.randrange(30)),
        *((_bytes(draw, 32), _enrolled(draw, terms)) if terms.masked else ()),
    )


def _enrolled(draw: Random, terms: Terms) -> dict[int, int]:
    return {agent: _nonce(draw) for agent in range(terms.size) if draw.random() < 0.5}


def _compacted(draw: Random, terms: Terms) -> dict[bytes, CompactedErasures]:
    def compacted_erasures() -> CompactedErasures:
        first = _erasure(draw, terms, Tombstone, retrain=draw.random() < 0.5)
        assert isinstance(first, Tombstone)
        return CompactedErasures.write_all(first.agent, lambda _: b"c", terms.network_id, [first])

    return {
        compacted_erasures.name: compacted_erasures
        for compacted_erasures in _some(draw, compacted_erasures)
    }


def _digests(draw: Random) -> Digests:
    return Digests(*(_bytes(draw, 32) for _ in Digests._fields))


def gossip(draw: Random, terms: Terms) -> Gossip:
    """Any gossip, with any of its parts left out."""

    def maybe(part: Any) -> Any:
        return part if draw.random() < 0.7 else None

    return Gossip(
        digests=_digests(draw),
        compacted=maybe(_compacted(draw, terms)),
        erasures=maybe(
            Erasures(
                tombs=_tombs(draw, terms),
                retrain_epoch=_ids(draw),
                tombstones=_statements(draw, terms, Tombstone),
                votes=_votes(draw, terms),
            )
        ),
        parked=maybe(_park_notice(draw, terms)),
        news=maybe(
            News(
                intents=_statements(draw, terms, Intent),
                mismatches=frozenset(_some(draw, lambda: _statement(draw, terms, AuditMismatch))),
                influences=_influences(draw, terms),
                wake=_stamp(draw, terms),
                proofs=_proofs(draw, terms),
            )
        ),
        openings=maybe(_openings(draw, terms)),
    )


MESSAGES: Mapping[type, Callable[[Random, Terms], Message]] = {
    Hello: lambda draw, terms: Hello(
        _stamp(draw, terms), gossip(draw, terms), _nonce(draw), draw.randrange(9)
    ),
    Welcome: lambda draw, terms: Welcome(
        *(_stamp(draw, terms), gossip(draw, terms), _nonce(draw), _nonce(draw), draw.randrange(9)),
        *([next(iter(_enrolments(draw, terms).values()), None)] if terms.noise else []),
    ),
    Share: lambda draw, terms: Share(_stamp(draw, terms), gossip(draw, terms)),
    Pass: lambda draw, terms: Pass(
        token(draw, terms),
        _maybe(draw, gossip(draw, terms)),
        _maybe(draw, _header(draw, terms)),
        _maybe(draw, _step(draw, terms)),
    ),
    Ack: lambda draw, terms: Ack(_stamp(draw, terms), _stamp(draw, terms)),
    Alive: lambda draw, terms: Alive(_stamp(draw, terms), draw.random() * 1e9),
    Heard: lambda draw, terms: Heard(_stamp(draw, terms), _digests(draw), _nonce(draw)),
}


# ---------------------------------------------------------------------------------------- states


def _role(draw: Random, terms: Terms, shared: Token) -> Role:
    mine = draw.choice((shared, token(draw, terms)))
    return draw.choice((Idle(), Hold(mine), Out(mine, draw.randrange(terms.size)), Parked(mine)))


def _factor(draw: Random, terms: Terms) -> Factor:
    revision = Revision(draw.randrange(1, 2**40), _nonce(draw), _bytes(draw, 32))
    versions = draw.randrange(9), draw.randrange(9)
    factor = Factor(revision, _vector(draw, terms), _ids(draw), *versions, _bytes(draw, 16))
    if not terms.masked:
        return factor
    given = GivenValue(
        _bytes(draw, 32), _bytes(draw, 32), _vector(draw, terms), _vector(draw, terms)
    )
    return factor._replace(given=_maybe(draw, given), point=_bytes(draw, draw.choice((0, 32))))


def state(draw: Random, terms: Terms, me: int, before: State | None = None) -> State:
    """Any durable state; with `before`, a random part of it is kept, object for object."""
    s = State(terms, me) if before is None else before.fork()
    shared = token(draw, terms)
    fresh: dict[str, Any] = {
        "factors": tuple(_factor(draw, terms) for _ in range(draw.randrange(4))),
        "counter": draw.randrange(2**40),
        "solved_for": _bytes(draw, draw.choice((0, 32))),
        "last": _stamp(draw, terms),
        "fence": _stamp(draw, terms),
        "role": _role(draw, terms, shared),
        "copy": draw.choice((None, shared, token(draw, terms))),
        "published": draw.choice((None, shared, token(draw, terms))) if terms.masked else None,
        "origin": _maybe(draw, _origin(draw, terms)),
        "copy_origin": _maybe(draw, _origin(draw, terms)),
        "tombs": _tombs(draw, terms),
        "retrain_epoch": _ids(draw),
        "tombstones": _statements(draw, terms, Tombstone),
        "compacted": _compacted(draw, terms),
        "proved": _ids(draw),
        "intents": _statements(draw, terms, Intent),
        "votes": _votes(draw, terms),
        "mismatches": frozenset(_some(draw, lambda: _statement(draw, terms, AuditMismatch))),
        "openings": _openings(draw, terms),
        "enrolments": _enrolments(draw, terms) if terms.masked else {},
        "parked": draw.choice((None, _park_notice(draw, terms))),
        "wake": _stamp(draw, terms),
        "rows": draw.randrange(9),
        "data": draw.randrange(9),
        "dropped": frozenset(_bytes(draw, draw.choice((4, 32))) for _ in range(draw.randrange(3))),
        "detached": draw.random() < 0.5,
        "receipts": tuple(_some(draw, lambda: _statement(draw, terms, Receipt))),
        "waiting": _waiting(draw, terms),
    }
    if fresh.keys() != set(DURABLE):
        raise AssertionError(f"no value for {sorted(set(DURABLE) ^ fresh.keys())}")
    for name, value in fresh.items():
        if before is None or draw.random() < 0.4:
            s.set_durable(name, value)
    # Invariant: the compacted ids in `tombs` are those of the compacted erasures.
    uncompacted = {k: tomb._replace(compacted=frozenset()) for k, tomb in s.known.tombs.items()}
    s.known.tombs = join(uncompacted, tombs_in(s.known.compacted.values()))
    if before is not None and before.own.factors and draw.random() < 0.5:
        # As in a visit: the new factor comes first, and the oldest is dropped.
        s.own.factors = (_factor(draw, terms), *before.own.factors[:2])
    return s


# -------------------------------------------------------------------------------------- equality


def same(a: object, b: object) -> bool:
    """Equality of protocol values: types, numbers, arrays, bytes and signatures."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.array_equal(a, b)
    if isinstance(a, Mapping) and isinstance(b, Mapping):  # of different types for signatures
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if type(a) is not type(b):
        return False
    if isinstance(a, SignedStatement) and isinstance(b, SignedStatement):
        return (a.raw, a.author, a.signature) == (b.raw, b.author, b.signature)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


def same_durable(a: State, b: State) -> bool:
    """Whether two states of one agent would survive a crash as the same state."""
    return a.me == b.me and all(same(a.durable(name), b.durable(name)) for name in DURABLE)
