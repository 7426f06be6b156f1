"""Records keep their authors' signatures wherever they travel: each new one is checked once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from unweave.errors import NotACertificate, NotCertified, WireError
from unweave.node.envelope import Verify
from unweave.protocol.certificate import PAYLOAD_TYPE, record_envelope
from unweave.protocol.evidence import read_tombstone, read_vote
from unweave.protocol.ids import members
from unweave.protocol.messages import Gossip, Hello, Message, Pass, Rest, Share, Welcome
from unweave.protocol.records import Intent, Record, Tombstone, Vote, pae
from unweave.protocol.state import State
from unweave.protocol.strict import Node
from unweave.protocol.terms import Terms
from unweave.protocol.verify import verify

__all__ = ["check_attestations", "check_records", "check_rest"]


def check_records(message: Message, state: State | None, terms: Terms, check: Verify) -> None:
    """Every record in `message` that is news to `state` must be its author's own word."""
    if not isinstance(message, Hello | Welcome | Share | Pass) or message.gossip is None:
        return
    for record in _news(message.gossip, state):
        if record.body.get("run") != terms.run.hex():
            raise WireError(f"a record of another network, by {terms.name(record.author)}")
        if isinstance(record, Tombstone | Intent) and record.agent != record.author:
            raise WireError(
                f"{terms.name(record.author)} speaks for {terms.name(record.agent)}: only the "
                "owner may erase"
            )
        if not check(record.author, pae(record.kind, record.raw), record.signature):
            raise WireError(f"a record with a signature that is not {terms.name(record.author)}'s")
        _check_provable(record, terms, check)


def _check_provable(record: Record, terms: Terms, check: Verify) -> None:
    """What ends up in certificates is held to the same rules here as by those who verify them, or
    one bad record would spoil every later certificate."""
    try:
        if isinstance(record, Tombstone):
            read_tombstone(Node(record_envelope(terms, record), "tombstone"), terms, check)
        elif isinstance(record, Vote):
            read_vote(Node(record_envelope(terms, record), "vote"), terms, check)
    except (NotCertified, NotACertificate) as error:
        raise WireError(f"a record that could never be proved: {error}") from None


def check_rest(message: Message, state: State | None, terms: Terms, check: Verify) -> None:
    """A certificate that arrives with a rest must hold, and be about that rest: by it the agent
    that asked for an erasure lets its evidence go."""
    rest = _rest_of(message)
    if rest is None or not rest.certificate:
        return
    known = None if state is None else state.rest
    if known is not None and (known.certificate == rest.certificate or known.stamp > rest.stamp):
        return
    try:
        account = verify(rest.certificate, terms, check)
    except (NotCertified, NotACertificate) as error:
        raise WireError(f"a rest with a certificate that does not hold: {error}") from None
    proved = {bytes.fromhex(erased.request) for erased in account.erasures}
    said = {request for tomb in rest.tombs.values() for request in tomb.open}
    left = {terms.name(agent) for agent, tomb in rest.tombs.items() if tomb.left}
    held = {terms.name(k) for k, revision in enumerate(rest.included) if revision.counter}
    attested = {terms.name(k) for k in members(rest.quiet)}
    if (
        account.stamp != tuple(rest.stamp)
        or not said <= proved
        or left != {*account.not_attested}
        or held != {*account.included}
        or attested != {*account.attested}
        or terms.name(rest.holder) != account.closed_by
    ):
        raise WireError("a rest with a certificate that is about something else")


def _rest_of(message: Message) -> Rest | None:
    if not isinstance(message, Hello | Welcome | Share | Pass) or message.gossip is None:
        return None
    return message.gossip.rest


def check_attestations(
    message: Message, known: dict[tuple[int, bytes], bytes], terms: Terms, check: Verify
) -> None:
    """A false signature in the quiet group would make a certificate that nobody believes. `known`
    remembers the signatures that hold, so that each is checked once per cover."""
    if not isinstance(message, Pass):
        return
    quiet = message.token.quiet
    if not quiet.agents:
        return
    if set(quiet.signatures) != set(members(quiet.agents)):
        raise WireError("the attestations are not those of the agents that are said to attest")
    signed = pae(PAYLOAD_TYPE, quiet.statement)
    name = hashlib.sha256(signed).digest()
    for agent, signature in quiet.signatures.items():
        if known.get((agent, name)) == signature:
            continue
        if not check(agent, signed, signature):
            raise WireError(f"an attestation that {terms.name(agent)} did not sign")
        if len(known) > 4 * terms.size:
            known.clear()
        known[agent, name] = signature


def _news(gossip: Gossip, known: State | None) -> Iterable[Record]:
    """The records that `known` does not have, byte for byte."""
    chapters, erasures, news = gossip.chapters, gossip.erasures, gossip.news
    said: list[tuple[Mapping[Any, Record], Mapping[Any, Record]]] = []
    if chapters is not None:
        said.append((chapters, {} if known is None else known.chapters))
    if erasures is not None:
        said.append((erasures.tombstones, {} if known is None else known.tombstones))
        said.append((erasures.votes, {} if known is None else known.votes))
    if news is not None:
        said.append((news.intents, {} if known is None else known.intents))
        said.append((news.figures, {} if known is None else known.figures))
        yield from (halt for halt in news.halts if known is None or halt not in known.halts)
    for records, mine in said:
        yield from (record for key, record in records.items() if mine.get(key) != record)
