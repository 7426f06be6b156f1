"""Messages and tokens as bytes, and back.

    decode(encode(message, terms), terms) == message

The same value always gives the same bytes, so that a repeated message is the same. Bytes that
are no message of this network raise `WireError`.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from unweave.errors import WireError
from unweave.node.wire.primitives import (
    UNWRITABLE,
    agent_of,
    large_field,
    parsed,
    pb,
    read_bitmap,
    read_enrolled,
    read_ids,
    read_name,
    read_point,
    read_revealed,
    read_revision,
    read_revisions,
    read_stamp,
    read_tombs,
    read_vector,
    to_bytes,
    unwritable,
    write_bitmap,
    write_enrolled,
    write_ids,
    write_revisions,
    write_stamp,
    write_tombs,
    write_vector,
)
from unweave.node.wire.statements import (
    AnyStatement,
    read_enrolments,
    read_statement,
    write_enrolments,
    write_statement,
)
from unweave.persistent import Stack
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
from unweave.protocol.requests import MISMATCHES, OPEN_REQUESTS
from unweave.protocol.statements import (
    AuditMismatch,
    CompactedErasures,
    InfluenceReport,
    Intent,
    Opening,
    SignedStatement,
    Tombstone,
    Vote,
)
from unweave.protocol.steps import TokenHeader, TokenStep
from unweave.protocol.terms import Terms
from unweave.protocol.token import (
    NO_ROUND,
    NOT_MASKED,
    PASSES,
    SECRET_BYTES,
    AttestationRound,
    MaskedRound,
    Stamp,
    Token,
)

__all__ = ["decode", "encode", "read_parked", "write_parked"]


def encode(message: Message, terms: Terms) -> bytes:
    """One message of this network."""
    name, write = _WRITERS[type(message)]
    try:
        if isinstance(message, Pass):
            written = pb.Message(network_id=terms.network_id)
            _write_pass(written.token, message, terms)
            return b"".join((to_bytes(written), *_vectors(message)))
        return to_bytes(pb.Message(network_id=terms.network_id, **{name: write(message, terms)}))
    except UNWRITABLE as error:
        raise unwritable(name, error) from None


def decode(data: bytes, terms: Terms) -> Message:
    """The message in `data`, every number in it checked against the network's size."""
    message = parsed(pb.Message(), data, "message")
    if message.network_id != terms.network_id:
        raise WireError(
            f"a message of network {message.network_id.hex()[:12]}…, not of "
            f"{terms.network_id.hex()[:12]}…. Fix: give both agents the same manifest"
        )
    name = message.WhichOneof("body")
    if name is None:
        raise WireError("a message that is empty or of an unknown kind")
    if name == "token":
        return _read_pass(message, terms)
    return _READERS[name](getattr(message, name), terms)


# --------------------------------------------------------------------------------------- token


_HEAD = struct.Struct("<QIQQQQ?")  # the token's stamp, passes and busy


def _write_pass(written: pb.Pass, message: Pass, terms: Terms) -> None:
    """In place: protobuf copies a message that is put into another. Empty fields are omitted."""
    token, place = message.token, written.token
    if token.network_id != terms.network_id:
        raise WireError("a token of another network")
    place.head = _HEAD.pack(*token.stamp, token.passes, token.busy)
    place.included = write_revisions(token.included)
    place.receipts = token.receipts
    if token.seen:
        place.seen = write_bitmap(token.seen)
    if token.stack:
        place.stack.extend(token.stack)
    if token.tombs:
        place.tombs.extend(write_tombs(token.tombs))
    if token.retrain_epoch:
        place.retrain_epoch = write_ids(token.retrain_epoch)
    if token.round is not NO_ROUND:
        _write_round(place.round, token.round)
    if token.masked is not NOT_MASKED:
        _write_masked(place.masked, token.masked)
    if message.gossip is not None:
        written.gossip.CopyFrom(_write_gossip(message.gossip, terms))
    if message.header is not None:
        written.header.CopyFrom(write_statement(message.header))
    if message.step is not None:
        _write_step(written.step, message.step)


def _write_step(place: pb.Step, step: TokenStep) -> None:
    if step.before is not None:
        place.before.CopyFrom(write_statement(step.before))
    place.revision = write_revisions((step.revision,))
    if step.removed is not None:
        place.removed_salt = step.removed.salt
    if step.factor is not None:
        place.factor_salt = step.factor.salt


def _read_step(message: pb.Message, terms: Terms) -> TokenStep:
    sent = message.token.step
    removed, factor = message.HasField("removed"), message.HasField("factor")
    audit = message.factor_audit if message.HasField("factor_audit") else None
    return TokenStep(
        read_statement(TokenHeader, sent.before, terms) if sent.HasField("before") else None,
        read_revision(sent.revision),
        read_revealed(sent.removed_salt, message.removed, None, terms) if removed else None,
        read_revealed(sent.factor_salt, message.factor, audit, terms) if factor else None,
    )


def _write_masked(place: pb.MaskedRound, masked: MaskedRound) -> None:
    place.SetInParent()
    place.keys.extend(write_enrolments(masked.keys))
    place.spare.extend(write_enrolments(masked.spare))
    place.step = masked.step
    place.rested = masked.rested
    place.base = masked.base


def _read_masked(message: pb.Message, terms: Terms) -> MaskedRound:
    if not (message.point or message.token.token.HasField("masked")):
        return NOT_MASKED
    sent = message.token.token.masked
    if sent.step > terms.max_rounds:
        raise WireError(f"private round {sent.step}: the last one is {terms.max_rounds}")
    return MaskedRound(
        keys=read_enrolments(sent.keys, terms),
        spare=read_enrolments(sent.spare, terms),
        point=read_point(message.point, terms),
        step=sent.step,
        rested=sent.rested,
        base=read_name(sent.base),
    )


def _write_round(place: pb.AttestationRound, attested: AttestationRound) -> None:
    place.SetInParent()
    place.agents = write_bitmap(attested.agents)
    place.statement = attested.statement
    place.converged = attested.converged
    place.unknown = attested.unknown
    place.secret = attested.secret
    place.signatures.extend(
        pb.Signature(agent=agent, signature=signature)
        for agent, signature in sorted(attested.signatures.items())
    )


def _read_round(message: pb.Message, terms: Terms) -> AttestationRound:
    audit, frozen = message.HasField("audit"), message.HasField("frozen")
    if not (audit or frozen or message.token.token.HasField("round")):
        return NO_ROUND
    sent = message.token.token.round
    if len(sent.secret) != (SECRET_BYTES if sent.agents else 0):
        raise WireError(f"an attestation round with a secret of {len(sent.secret)} bytes")
    return AttestationRound(
        agents=read_bitmap(sent.agents, terms),
        audit=read_vector(message.audit, terms.grid) if audit else None,
        frozen=read_vector(message.frozen, terms.frozen_grid) if frozen else None,
        statement=sent.statement,
        signatures={agent_of(s.agent, terms): s.signature for s in sent.signatures},
        converged=sent.converged,
        unknown=sent.unknown,
        secret=sent.secret,
    )


def _vectors(message: Pass) -> Iterator[bytes | memoryview]:
    """The large fields, each copied once, into the message's bytes."""
    attested, step = message.token.round, message.step
    removed, factor = (None, None) if step is None else (step.removed, step.factor)
    if message.token.masked.point:
        yield from large_field(pb.Message.POINT_FIELD_NUMBER, message.token.masked.point)
    for number, units in (
        (pb.Message.FACTOR_AUDIT_FIELD_NUMBER, None if factor is None else factor.audit),
        (pb.Message.ETA_FIELD_NUMBER, message.token.eta),
        (pb.Message.AUDIT_FIELD_NUMBER, attested.audit),
        (pb.Message.FROZEN_FIELD_NUMBER, attested.frozen),
        (pb.Message.REMOVED_FIELD_NUMBER, None if removed is None else removed.units),
        (pb.Message.FACTOR_FIELD_NUMBER, None if factor is None else factor.units),
    ):
        if units is not None:
            yield from large_field(number, write_vector(units))


def _read_pass(message: pb.Message, terms: Terms) -> Pass:
    read = message.token
    token = read.token
    try:
        *numbers, passes, busy = _HEAD.unpack(token.head)
    except struct.error:
        raise WireError(f"a token's head of {len(token.head)} bytes") from None
    stamp = Stamp(*numbers)
    agent_of(stamp.initiator, terms)
    if not stamp.is_possible or passes > PASSES:
        raise WireError(f"a token at {stamp}, pass {passes}: beyond the limits")
    stack = token.stack
    if stack:
        if len(stack) > terms.size:
            raise WireError(f"a path of {len(stack)} among {terms.size} agents")
        agent_of(max(stack), terms)
    if len(token.receipts) != 32:  # no certificate could name it
        raise WireError(f"a digest of receipts of {len(token.receipts)} bytes")
    included, inside = read_revisions(token.included, terms)
    return Pass(
        Token(
            message.network_id,
            stamp,
            read_vector(message.eta, terms.grid),
            included,
            inside,
            read_tombs(token.tombs, terms),
            read_ids(token.retrain_epoch),
            passes,
            read_bitmap(token.seen, terms),
            Stack.of(stack),
            busy,
            _read_round(message, terms),
            token.receipts,
            _read_masked(message, terms),
        ),
        _read_gossip(read.gossip, terms) if read.HasField("gossip") else None,
        read_statement(TokenHeader, read.header, terms) if read.HasField("header") else None,
        _read_step(message, terms) if read.HasField("step") else None,
    )


# -------------------------------------------------------------------------------------- gossip


def write_parked(parked: ParkNotice) -> pb.ParkNotice:
    return pb.ParkNotice(
        stamp=write_stamp(parked.stamp),
        holder=parked.holder,
        included=write_revisions(parked.included),
        attested=write_bitmap(parked.attested),
        tombs=write_tombs(parked.tombs),
        certificate=parked.certificate,
        masked=parked.masked,
        enrolled=write_enrolled(parked.enrolled),
    )


def read_parked(sent: pb.ParkNotice, terms: Terms) -> ParkNotice:
    return ParkNotice(
        stamp=read_stamp(sent.stamp, terms),
        holder=agent_of(sent.holder, terms),
        included=read_revisions(sent.included, terms)[0],
        attested=read_bitmap(sent.attested, terms),
        tombs=read_tombs(sent.tombs, terms),
        certificate=sent.certificate,
        masked=read_name(sent.masked),
        enrolled=read_enrolled(sent.enrolled, terms),
    )


def _write_gossip(gossip: Gossip, terms: Terms) -> pb.Gossip:
    compacted, erasures, news = gossip.compacted, gossip.erasures, gossip.news
    openings = gossip.openings
    return pb.Gossip(
        digests=pb.Digests(**gossip.digests._asdict()),
        compacted=None if compacted is None else pb.Compacted(compacted=_in_order(compacted)),
        erasures=None if erasures is None else _write_erasures(erasures),
        parked=None if gossip.parked is None else write_parked(gossip.parked),
        news=None if news is None else _write_news(news, terms),
        openings=None if openings is None else pb.Openings(openings=_in_order(openings)),
    )


def _in_order(statements: Mapping[Any, SignedStatement]) -> list[pb.Statement]:
    return [write_statement(statements[key]) for key in sorted(statements)]


def _write_erasures(part: Erasures) -> pb.Erasures:
    return pb.Erasures(
        tombs=write_tombs(part.tombs),
        retrain_epoch=write_ids(part.retrain_epoch),
        tombstones=_in_order(part.tombstones),
        votes=_in_order(part.votes),
    )


def _write_news(part: News, terms: Terms) -> pb.News:
    return pb.News(
        intents=_in_order(part.intents),
        mismatches=[
            write_statement(one) for one in sorted(part.mismatches, key=lambda one: one.raw)
        ],
        influences=_in_order(part.influences),
        wake=write_stamp(part.wake),
        proofs=[encode(part.proofs[liar], terms) for liar in sorted(part.proofs)],
    )


def _read_gossip(gossip: pb.Gossip, terms: Terms) -> Gossip:
    """The keys of the maps are taken from the signed statements, so the two cannot differ."""
    return Gossip(
        digests=_read_digests(gossip.digests),
        compacted=(
            {c.name: c for c in _statements(CompactedErasures, gossip.compacted.compacted, terms)}
            if gossip.HasField("compacted")
            else None
        ),
        erasures=_read_erasures(gossip.erasures, terms) if gossip.HasField("erasures") else None,
        parked=read_parked(gossip.parked, terms) if gossip.HasField("parked") else None,
        news=_read_news(gossip.news, terms) if gossip.HasField("news") else None,
        openings=(
            {o.author: o for o in _statements(Opening, gossip.openings.openings, terms, 1)}
            if gossip.HasField("openings")
            else None
        ),
    )


def _read_digests(digests: pb.Digests) -> Digests:
    return Digests(*(getattr(digests, name) for name in Digests._fields))


def _statements(
    kind: type[AnyStatement], sent: Sequence[pb.Statement], terms: Terms, most: int | None = None
) -> list[AnyStatement]:
    """An author with more than `most` statements is refused before any of them is read: to read and
    to verify them costs far more than to send them."""
    if most is not None and len(sent) > most:
        author, number = Counter(one.author for one in sent).most_common(1)[0]
        if number > most:
            who = terms.name(agent_of(author, terms))
            raise WireError(f"{number} {kind.__name__}s of {who}: an agent has at most {most}")
    return [read_statement(kind, one, terms) for one in sent]


def _read_erasures(part: pb.Erasures, terms: Terms) -> Erasures:
    size = terms.size
    return Erasures(
        tombs=read_tombs(part.tombs, terms),
        retrain_epoch=read_ids(part.retrain_epoch),
        tombstones={r.request: r for r in _statements(Tombstone, part.tombstones, terms)},
        votes={(v.target, v.author): v for v in _statements(Vote, part.votes, terms, size)},
    )


def _read_news(part: pb.News, terms: Terms) -> News:
    if len(part.proofs) > terms.size:
        raise WireError(f"{len(part.proofs)} proofs in a network of {terms.size} agents")
    return News(
        intents={r.request: r for r in _statements(Intent, part.intents, terms, OPEN_REQUESTS)},
        mismatches=frozenset(
            _statements(AuditMismatch, part.mismatches, terms, MISMATCHES * (terms.size + 1))
        ),
        influences={f.author: f for f in _statements(InfluenceReport, part.influences, terms, 1)},
        wake=read_stamp(part.wake, terms),
        proofs=dict(_read_proof(proof, terms) for proof in part.proofs),
    )


def _read_proof(data: bytes, terms: Terms) -> tuple[int, Pass]:
    """A proof carries no gossip: otherwise a message could hold a message in a message …"""
    message = parsed(pb.Message(), data, "proof")
    if message.WhichOneof("body") != "token" or message.token.HasField("gossip"):
        raise WireError("a proof that is no token, or with gossip")
    proof = decode(data, terms)
    if not isinstance(proof, Pass) or proof.header is None or proof.step is None:
        raise WireError("a proof without a header or a step")
    return proof.header.author, proof


# ------------------------------------------------------------------------------------ messages


def _read_alive(message: pb.Alive, terms: Terms) -> Alive:
    if not math.isfinite(message.clock):
        raise WireError(f"a heartbeat at time {message.clock}")
    return Alive(read_stamp(message.stamp, terms), message.clock)


def _read_ack(message: pb.Ack, terms: Terms) -> Ack:
    return Ack(read_stamp(message.fence, terms), read_stamp(message.stamp, terms))


def _read_heard(message: pb.Heard, terms: Terms) -> Heard:
    fence = read_stamp(message.fence, terms)
    return Heard(fence, _read_digests(message.digests), message.incarnation)


def _write_hello(m: Hello, terms: Terms) -> pb.Hello:
    fence, gossip = write_stamp(m.fence), _write_gossip(m.gossip, terms)
    return pb.Hello(fence=fence, gossip=gossip, incarnation=m.incarnation, question=m.question)


def _read_hello(m: pb.Hello, terms: Terms) -> Hello:
    return Hello(
        read_stamp(m.fence, terms), _read_gossip(m.gossip, terms), m.incarnation, m.question
    )


def _write_welcome(m: Welcome, terms: Terms) -> pb.Welcome:
    return pb.Welcome(
        fence=write_stamp(m.fence),
        gossip=_write_gossip(m.gossip, terms),
        incarnation=m.incarnation,
        asker=m.asker,
        question=m.question,
        enrolment=None if m.enrolment is None else write_statement(m.enrolment),
    )


def _read_welcome(m: pb.Welcome, terms: Terms) -> Welcome:
    fence, gossip = read_stamp(m.fence, terms), _read_gossip(m.gossip, terms)
    known = list(read_enrolments([m.enrolment], terms).values()) if m.HasField("enrolment") else []
    return Welcome(fence, gossip, m.incarnation, m.asker, m.question, *known)


def _write_share(m: Share, terms: Terms) -> pb.Share:
    return pb.Share(fence=write_stamp(m.fence), gossip=_write_gossip(m.gossip, terms))


def _read_share(m: pb.Share, terms: Terms) -> Share:
    return Share(read_stamp(m.fence, terms), _read_gossip(m.gossip, terms))


_WRITERS: dict[type, tuple[str, Callable[[Any, Terms], Any]]] = {
    Hello: ("hello", _write_hello),
    Welcome: ("welcome", _write_welcome),
    Pass: ("token", lambda m, terms: None),  # written in place
    Ack: ("ack", lambda m, terms: pb.Ack(fence=write_stamp(m.fence), stamp=write_stamp(m.stamp))),
    Alive: ("alive", lambda m, terms: pb.Alive(stamp=write_stamp(m.stamp), clock=m.clock)),
    Share: ("share", _write_share),
    Heard: (
        "heard",
        lambda m, terms: pb.Heard(
            fence=write_stamp(m.fence),
            digests=pb.Digests(**m.digests._asdict()),
            incarnation=m.incarnation,
        ),
    ),
}

_READERS: dict[str, Callable[[Any, Terms], Message]] = {
    "hello": _read_hello,
    "welcome": _read_welcome,
    "ack": _read_ack,
    "alive": _read_alive,
    "share": _read_share,
    "heard": _read_heard,
}
