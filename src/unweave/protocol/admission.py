"""What an agent checks before it handles a neighbour's message: signatures, certificates, effort.

`check_message` accepts a message only if every new statement inside it holds: signed statements,
the certificate of a parked token, attestations, and the one-time keys of a private round.
Statements keep their authors' signatures wherever they travel; `KnownSignatures` checks each one
once. `WorkBudget` bounds the processor time that one neighbour can cost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from unweave.errors import NotACertificate, NotCertified, WireError
from unweave.protocol.certificate.format import PAYLOAD_TYPE, TombstoneEnvelope, VoteEnvelope
from unweave.protocol.certificate.read import Check, EnvelopeReader
from unweave.protocol.certificate.verify import verify
from unweave.protocol.certificate.write import record_envelope
from unweave.protocol.messages import Gossip, Hello, Message, Pass, Share, Welcome
from unweave.protocol.state import Knowledge, State
from unweave.protocol.statements import Enrolment, SignedStatement, Tombstone, Vote, pae
from unweave.protocol.terms import Terms
from unweave.protocol.token import NOT_MASKED

__all__ = [
    "KnownSignatures",
    "WorkBudget",
    "check_attestations",
    "check_message",
    "check_parked",
    "check_private_round",
    "check_statements",
]


class KnownSignatures:
    """A `Check` that remembers the signatures that hold: a repeated statement costs a hash."""

    def __init__(self, check: Check, most: int = 1 << 14) -> None:
        self._check = check
        self._most = most
        self._known: set[tuple[int, bytes, bytes]] = set()
        self._hashed = (b"", b"")  # the last bytes and their digest: all agents attest the same

    def __call__(self, author: int, signed: bytes, signature: bytes) -> bool:
        hashed = self._hashed  # one read: large messages are checked on threads
        if hashed[0] is not signed:
            hashed = self._hashed = signed, hashlib.sha256(signed).digest()
        key = author, hashed[1], signature
        if key in self._known:
            return True
        if not self._check(author, signed, signature):
            return False
        if len(self._known) >= self._most:
            self._known.clear()
        self._known.add(key)
        return True


class WorkBudget:
    """Processor time for the messages of each neighbour that bring nothing new: `burst` seconds at
    once, and `rate` seconds per second. A neighbour that has used more must wait."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._used: dict[int, tuple[float, float]] = {}  # neighbour → seconds used, and when

    def charge(self, neighbour: int, seconds: float, now: float) -> None:
        """`seconds` below zero give back what an earlier charge took. The debt is bounded: who
        stops is heard again after `burst / rate` seconds."""
        used = self._left(neighbour, now) + seconds
        self._used[neighbour] = min(max(0.0, used), 2.0 * self._burst), now

    def exhausted(self, neighbour: int, now: float) -> bool:
        return self._left(neighbour, now) > self._burst

    def _left(self, neighbour: int, now: float) -> float:
        used, at = self._used.get(neighbour, (0.0, now))
        return max(0.0, used - self._rate * (now - at))


def check_message(message: Message, state: State | None, terms: Terms, check: Check) -> None:
    """Every statement in `message` that `state` does not hold must hold, or WireError."""
    check_statements(message, state, terms, check)
    check_parked(message, state, terms, check)
    check_attestations(message, terms, check)
    check_private_round(message, terms, check)


def check_statements(message: Message, state: State | None, terms: Terms, check: Check) -> None:
    """Every statement in `message` that `state` does not hold must be signed by its author; so must
    the headers of the token and of the proofs."""
    if not isinstance(message, Hello | Welcome | Share | Pass):
        return
    statements = list(_headers(message)) if isinstance(message, Pass) else []
    if message.gossip is not None:
        statements += _news(message.gossip, state)
    reader: EnvelopeReader | None = None  # knows all agents: made once, if at all
    for statement in statements:
        author = terms.name(statement.author)
        if statement.body.get("network_id") != terms.network_id.hex():
            raise WireError(f"a statement of {author} belongs to another network")
        about = statement.body.get("agent", statement.author)
        if about != statement.author and not isinstance(statement, Vote):
            raise WireError(f"a statement of {author} about another agent")
        if not check(statement.author, pae(statement.kind, statement.raw), statement.signature):
            raise WireError(f"a statement with a signature that is not {author}'s")
        if isinstance(statement, Tombstone | Vote):
            reader = reader or EnvelopeReader(terms, check)
            _check_provable(statement, terms, reader)


def _check_provable(statement: Tombstone | Vote, terms: Terms, reader: EnvelopeReader) -> None:
    """Statements that become part of certificates are checked as `unweave verify` checks them: a
    bad one would make every later certificate invalid."""
    try:
        if isinstance(statement, Tombstone):
            envelope = record_envelope(TombstoneEnvelope, terms, statement)
            reader.tombstone(envelope, "tombstone")
        else:
            vote = record_envelope(VoteEnvelope, terms, statement)
            reader.vote(vote, "vote")
    except (NotCertified, NotACertificate) as error:
        raise WireError(f"a statement that no certificate can hold: {error}") from None


def check_parked(message: Message, state: State | None, terms: Terms, check: Check) -> None:
    """The certificate of a parked token must hold, and be about that token: because of it the agent
    that requested an erasure deletes its evidence."""
    if not isinstance(message, Hello | Welcome | Share | Pass) or message.gossip is None:
        return
    parked = message.gossip.parked
    if parked is None or not parked.certificate:
        return
    known = None if state is None else state.token.parked
    if known is not None and (
        known.certificate == parked.certificate or known.stamp > parked.stamp
    ):
        return
    try:
        account = verify(parked.certificate, terms, check)
    except (NotCertified, NotACertificate) as error:
        raise WireError(f"a parked token with an invalid certificate: {error}") from None
    proved = {bytes.fromhex(erased.request) for erased in account.erasures}
    claimed = {request for tomb in parked.tombs.values() for request in tomb.open}
    departed = {terms.name(agent) for agent, tomb in parked.tombs.items() if tomb.departed}
    included = {terms.name(k) for k, revision in enumerate(parked.included) if revision.counter}
    attested = {terms.name(k) for k in parked.attested}
    if (
        account.stamp != tuple(parked.stamp)
        or not claimed <= proved
        or departed != {*account.not_attested}
        or included != {*account.included}
        or attested != {*account.attested}
        or terms.name(parked.holder) != account.closed_by
    ):
        raise WireError("a parked token with the certificate of another one")


def check_attestations(message: Message, terms: Terms, check: Check) -> None:
    """A false signature in an attestation round would make an invalid certificate."""
    if not isinstance(message, Pass):
        return
    current = message.token.round
    if set(current.signatures) != set(current.agents):
        raise WireError("the attestations are not those of the agents of the round")
    signed = pae(PAYLOAD_TYPE, current.statement)
    for agent, signature in current.signatures.items():
        if not check(agent, signed, signature):
            raise WireError(f"an attestation that {terms.name(agent)} did not sign")


def check_private_round(message: Message, terms: Terms, check: Check) -> None:
    """Both modes have one wire form: an agent refuses the parts of the other mode. In a private
    round every one-time key must be usable and signed by the agent that it names: under a forged
    key another agent could unmask what is given."""
    if isinstance(message, Welcome) and message.enrolment is not None:
        if terms.noise is None:
            raise WireError("a count of given values: the manifest asks for no noise")
        _check_enrolment(message.enrolment.author, message.enrolment, terms, check)
    passes = [message] if isinstance(message, Pass) else []
    gossip = getattr(message, "gossip", None)
    if isinstance(gossip, Gossip):
        if gossip.parked is not None and (
            bool(gossip.parked.masked) != terms.masked
            or (gossip.parked.enrolled and not terms.masked)
        ):
            raise WireError(_OTHER_MODE[terms.masked])
        passes += gossip.news.proofs.values() if gossip.news is not None else ()
    for one in passes:
        _check_mode(one, terms)
        _check_enrolments(one, terms, check)


_OTHER_MODE = {
    False: "a part of a private round: the manifest says privacy = plain",
    True: "a token or a factor without masks: the manifest says privacy = masked",
}


def _check_mode(message: Pass, terms: Terms) -> None:
    masked, step = message.token.masked, message.step
    shown = () if step is None else (step.removed, step.factor)
    if not terms.masked:
        if masked != NOT_MASKED or any(one is not None and one.audit is not None for one in shown):
            raise WireError(_OTHER_MODE[False])
        return
    if message.token.inside and not masked.keys:
        raise WireError(_OTHER_MODE[True])
    if any(one is not None and one.audit is None for one in shown):
        raise WireError(_OTHER_MODE[True])
    if not terms.iterates and masked.point != terms.first_point:
        raise WireError("a private round at a point: this model needs none")


def _check_enrolments(message: Pass, terms: Terms, check: Check) -> None:
    masked = message.token.masked
    for enrolments in (masked.keys, masked.spare):
        for agent, one in enrolments.items():
            _check_enrolment(agent, one, terms, check)


def _check_enrolment(agent: int, one: Enrolment, terms: Terms, check: Check) -> None:
    from unweave.keyring import is_usable_key  # private rounds need the cryptography package

    name = terms.name(agent)
    if one.author != agent or one.body.get("agent") != agent:
        raise WireError(f"a one-time key of {name} in another agent's name")
    if one.body.get("network_id") != terms.network_id.hex():
        raise WireError(f"a one-time key of {name} for another network")
    if not check(agent, pae(one.kind, one.raw), one.signature):
        raise WireError(f"a one-time key that {name} did not sign")
    spent = terms.noise is not None and not one.key  # rule 22
    if not spent and not is_usable_key(one.key):
        raise WireError(f"a one-time key of {name} that hides nothing")


def _headers(message: Pass) -> Iterator[SignedStatement]:
    if message.header is not None:
        yield message.header
    if message.step is not None and message.step.before is not None:
        yield message.step.before


def _news(gossip: Gossip, state: State | None) -> Iterable[SignedStatement]:
    """The statements that `state` does not hold, byte for byte."""
    known = Knowledge() if state is None else state.known
    compacted, erasures, news = gossip.compacted, gossip.erasures, gossip.news
    pairs: list[tuple[Mapping[Any, SignedStatement], Mapping[Any, SignedStatement]]] = []
    if compacted is not None:
        pairs.append((compacted, known.compacted))
    if erasures is not None:
        pairs.append((erasures.tombstones, known.tombstones))
        pairs.append((erasures.votes, known.votes))
    if news is not None:
        pairs.append((news.intents, known.intents))
        pairs.append((news.influences, known.influences))
        yield from news.mismatches - known.mismatches
        for liar, proof in news.proofs.items():
            if liar not in known.proofs:
                yield from _headers(proof)
    if gossip.openings is not None:
        pairs.append((gossip.openings, known.openings))
    for theirs, mine in pairs:
        yield from (one for key, one in theirs.items() if mine.get(key) != one)
