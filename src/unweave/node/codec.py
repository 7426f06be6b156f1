"""Messages and tokens as bytes, and back.

    decode(encode(message, terms), terms) == message

The same value always gives the same bytes, so that what is sent again is what was sent. Bytes that
are no message of this network raise `WireError`, whatever they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from unweave.errors import WireError
from unweave.node.parts import (
    Proto,
    agent_of,
    large_field,
    parsed,
    pb,
    read_bitmap,
    read_ids,
    read_record,
    read_revisions,
    read_stamp,
    read_tombs,
    read_vector,
    to_bytes,
    write_bitmap,
    write_ids,
    write_record,
    write_revisions,
    write_stamp,
    write_tombs,
    write_vector,
    writing,
)
from unweave.protocol.messages import (
    Ack,
    Alive,
    Gossip,
    Heard,
    Hello,
    Message,
    Pass,
    Rest,
    Share,
    Welcome,
)
from unweave.protocol.records import Figure, Halt, Intent, Tombstone, Vote
from unweave.protocol.terms import Terms
from unweave.protocol.token import Quiet, Token

__all__ = ["decode", "encode", "read_rest", "write_rest"]


def encode(message: Message, terms: Terms) -> bytes:
    """One message of this network."""
    name, write = _WRITERS[type(message)]
    with writing(name):
        small = to_bytes(pb.Message(run=terms.run, **{name: write(message)}))
        if not isinstance(message, Pass):
            return small
        return b"".join((small, *_vectors(message.token)))


def decode(data: bytes, terms: Terms) -> Message:
    """The message in `data`, every number in it checked against the network's size."""
    message = parsed(pb.Message(), data, "message")
    if message.run != terms.run:
        raise WireError(
            f"a message of network {message.run.hex()[:12]}…, not of {terms.run.hex()[:12]}…: "
            "both sides need the same manifest"
        )
    name = message.WhichOneof("body")
    if name is None:
        raise WireError("an empty message, or one of a kind that this version does not know")
    if name == "token":
        return _read_pass(message, terms)
    return _READERS[name](getattr(message, name), terms)


# --------------------------------------------------------------------------------------- token


def _write_quiet(quiet: Quiet) -> pb.Quiet:
    return pb.Quiet(
        agents=write_bitmap(quiet.agents),
        statement=quiet.statement,
        signatures=[
            pb.Signature(agent=agent, signature=signature)
            for agent, signature in sorted(quiet.signatures.items())
        ],
        converged=quiet.converged,
    )


def _read_quiet(message: pb.Message, terms: Terms) -> Quiet:
    quiet = message.token.token.quiet
    return Quiet(
        agents=read_bitmap(quiet.agents, terms),
        audit=read_vector(message.audit, terms) if message.HasField("audit") else None,
        frozen=read_vector(message.frozen, terms) if message.HasField("frozen") else None,
        statement=quiet.statement,
        signatures={agent_of(s.agent, terms): s.signature for s in quiet.signatures},
        converged=quiet.converged,
    )


def _write_pass(message: Pass) -> pb.Pass:
    token = message.token
    return pb.Pass(
        token=pb.Token(
            run=token.run,
            stamp=write_stamp(token.stamp),
            included=write_revisions(token.included),
            tombs=write_tombs(token.tombs),
            generation=write_ids(token.generation),
            passes=token.passes,
            seen=write_bitmap(token.seen),
            stack=token.stack,
            busy=token.busy,
            quiet=_write_quiet(token.quiet),
            receipts=token.receipts,
        ),
        gossip=None if message.gossip is None else _write_gossip(message.gossip),
    )


def _vectors(token: Token) -> Iterator[bytes | memoryview]:
    """The large fields, each copied once, into the message's bytes."""
    quiet = token.quiet
    yield from large_field(pb.Message.ETA_FIELD_NUMBER, write_vector(token.eta))
    if quiet.audit is not None:
        yield from large_field(pb.Message.AUDIT_FIELD_NUMBER, write_vector(quiet.audit))
    if quiet.frozen is not None:
        yield from large_field(pb.Message.FROZEN_FIELD_NUMBER, write_vector(quiet.frozen))


def _read_pass(message: pb.Message, terms: Terms) -> Pass:
    token = message.token.token
    included, inside = read_revisions(token.included, terms)
    if token.passes >= 2**62:
        raise WireError("a number of passes beyond every count")
    if len(token.stack) > terms.size:
        raise WireError(f"a path of {len(token.stack)} among {terms.size} agents")
    return Pass(
        Token(
            run=token.run,
            stamp=read_stamp(token.stamp, terms),
            eta=read_vector(message.eta, terms),
            included=included,
            inside=inside,
            tombs=read_tombs(token.tombs, terms),
            generation=read_ids(token.generation),
            passes=token.passes,
            seen=read_bitmap(token.seen, terms),
            stack=tuple(agent_of(agent, terms) for agent in token.stack),
            busy=token.busy,
            quiet=_read_quiet(message, terms),
            receipts=token.receipts,
        ),
        _read_gossip(message.token.gossip, terms) if message.token.HasField("gossip") else None,
    )


# -------------------------------------------------------------------------------------- gossip


def write_rest(rest: Rest) -> pb.Rest:
    return pb.Rest(
        stamp=write_stamp(rest.stamp),
        holder=rest.holder,
        included=write_revisions(rest.included),
        quiet=write_bitmap(rest.quiet),
        tombs=write_tombs(rest.tombs),
        certificate=rest.certificate,
        signature=rest.signature,
    )


def read_rest(rest: pb.Rest, terms: Terms) -> Rest:
    return Rest(
        stamp=read_stamp(rest.stamp, terms),
        holder=agent_of(rest.holder, terms),
        included=read_revisions(rest.included, terms)[0],
        quiet=read_bitmap(rest.quiet, terms),
        tombs=read_tombs(rest.tombs, terms),
        certificate=rest.certificate,
        signature=rest.signature,
    )


def _write_gossip(gossip: Gossip) -> pb.Gossip:
    return pb.Gossip(
        tombs=write_tombs(gossip.tombs),
        generation=write_ids(gossip.generation),
        tombstones=[write_record(gossip.tombstones[key]) for key in sorted(gossip.tombstones)],
        intents=[write_record(gossip.intents[key]) for key in sorted(gossip.intents)],
        votes=[write_record(gossip.votes[key]) for key in sorted(gossip.votes)],
        halts=[write_record(halt) for halt in sorted(gossip.halts, key=lambda halt: halt.raw)],
        figures=[write_record(gossip.figures[key]) for key in sorted(gossip.figures)],
        rest=None if gossip.rest is None else write_rest(gossip.rest),
        wake=write_stamp(gossip.wake),
        digest=gossip.digest,
        tombs_digest=gossip.tombs_digest,
    )


def _read_gossip(gossip: pb.Gossip, terms: Terms) -> Gossip:
    """The keys of the maps are taken from the signed records, so they cannot say something else."""
    tombstones = [read_record(Tombstone, record, terms) for record in gossip.tombstones]
    intents = [read_record(Intent, record, terms) for record in gossip.intents]
    votes = [read_record(Vote, record, terms) for record in gossip.votes]
    return Gossip(
        tombs=read_tombs(gossip.tombs, terms),
        generation=read_ids(gossip.generation),
        tombstones={record.request: record for record in tombstones},
        intents={record.request: record for record in intents},
        votes={(record.target, record.author): record for record in votes},
        halts=frozenset(read_record(Halt, record, terms) for record in gossip.halts),
        figures={
            record.author: record
            for record in (read_record(Figure, record, terms) for record in gossip.figures)
        },
        rest=read_rest(gossip.rest, terms) if gossip.HasField("rest") else None,
        wake=read_stamp(gossip.wake, terms),
        digest=gossip.digest,
        tombs_digest=gossip.tombs_digest,
    )


# ------------------------------------------------------------------------------------ messages


def _read_alive(message: pb.Alive, terms: Terms) -> Alive:
    if not math.isfinite(message.beat):
        raise WireError(f"a sign of life at time {message.beat}")
    return Alive(read_stamp(message.stamp, terms), message.beat)


def _read_ack(message: pb.Ack, terms: Terms) -> Ack:
    return Ack(read_stamp(message.fence, terms), read_stamp(message.stamp, terms))


def _read_heard(message: pb.Heard, terms: Terms) -> Heard:
    fence = read_stamp(message.fence, terms)
    return Heard(fence, message.digest, message.tombs_digest, message.boot)


def _write_fenced(kind: Callable[..., Proto]) -> Callable[[Any], Proto]:
    """Hello and Welcome; Share is the same without a boot nonce."""
    return lambda m: kind(fence=write_stamp(m.fence), gossip=_write_gossip(m.gossip), boot=m.boot)


def _read_fenced(kind: Callable[..., Message]) -> Callable[[Any, Terms], Message]:
    return lambda m, terms: kind(read_stamp(m.fence, terms), _read_gossip(m.gossip, terms), m.boot)


def _write_share(m: Share) -> pb.Share:
    return pb.Share(fence=write_stamp(m.fence), gossip=_write_gossip(m.gossip))


def _read_share(m: pb.Share, terms: Terms) -> Share:
    return Share(read_stamp(m.fence, terms), _read_gossip(m.gossip, terms))


_WRITERS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    Hello: ("hello", _write_fenced(pb.Hello)),
    Welcome: ("welcome", _write_fenced(pb.Welcome)),
    Pass: ("token", _write_pass),
    Ack: ("ack", lambda m: pb.Ack(fence=write_stamp(m.fence), stamp=write_stamp(m.stamp))),
    Alive: ("alive", lambda m: pb.Alive(stamp=write_stamp(m.stamp), beat=m.beat)),
    Share: ("share", _write_share),
    Heard: (
        "heard",
        lambda m: pb.Heard(
            fence=write_stamp(m.fence),
            digest=m.digest,
            tombs_digest=m.tombs_digest,
            boot=m.boot,
        ),
    ),
}

_READERS: dict[str, Callable[[Any, Terms], Message]] = {
    "hello": _read_fenced(Hello),
    "welcome": _read_fenced(Welcome),
    "ack": _read_ack,
    "alive": _read_alive,
    "share": _read_share,
    "heard": _read_heard,
}
