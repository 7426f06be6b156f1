"""What a complete attestation round proves, as bytes that other tools can read.

Two in-toto statements in DSSE envelopes. The *attestation* is written by the first agent of an
attestation round and signed by every agent: this is the sum, this is what it includes, these are
the tombstones I know (compacted ones by their number and digest). The *closing* is signed by the
agent that completes the round: the audit, and for each erasure how it was carried out. Beside them
travel the owners' signed tombstones with their removal receipts, and the votes about departed
agents. `verify` reads what this file writes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, Context
from functools import lru_cache
from operator import is_
from typing import TYPE_CHECKING, Any, TypeVar

from unweave.grid import keyed_digest
from unweave.protocol.certificate.format import (
    ATTESTATION,
    CLOSING,
    FORMAT,
    PAYLOAD_TYPE,
    STATEMENT,
    Attestation,
    AttestationEnvelope,
    AttestationStatement,
    AttestedErasures,
    Certificate,
    Claim,
    Closing,
    ClosingEnvelope,
    ClosingStatement,
    CompactedRequests,
    Envelope,
    Kind,
    NoiseStatement,
    Signature,
    Strict,
    Subject,
    SubjectDigest,
    TombstoneEnvelope,
    VoteEnvelope,
)
from unweave.protocol.statements import Sign, SignedStatement, Tombstone, Vote, pae
from unweave.protocol.terms import Terms
from unweave.protocol.token import Stamp, Token, round_name

if TYPE_CHECKING:
    from unweave.protocol.state import State

__all__ = [
    "attestation",
    "certificate",
    "closing",
    "evident",
    "record_envelope",
    "sign_statement",
]

E = TypeVar("E", bound=Envelope)


def _encode(model: Strict) -> bytes:
    value = model.model_dump(by_alias=True)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _subject(token: Token, secret: bytes) -> list[Subject]:
    found = SubjectDigest(hmac_sha256=keyed_digest(secret, token.eta).hex())
    return [Subject(name="eta", digest=found)]


def attestation(terms: Terms, token: Token, secret: bytes) -> bytes:
    """What every agent signs in an attestation round: a function of the token and of the round's
    secret, which it does not show."""
    about = (
        token.eta,
        token.included,
        token.tombs,
        token.retrain_epoch,
        token.receipts,
        token.masked.keys,
        secret,
    )
    for epoch, statement, *known in terms.attested:
        if epoch == token.stamp[:3] and all(map(is_, known, about)):
            return bytes(statement)
    statement = _attestation(terms, token, secret)
    terms.attested[:] = [(token.stamp[:3], statement, *about)]
    return statement


def _attestation(terms: Terms, token: Token, secret: bytes) -> bytes:
    names = terms.topology.agents
    tombs = {
        names[agent]: AttestedErasures(
            requests=sorted(request.hex() for request in tomb.open),
            whole=tomb.whole,
            departed=tomb.departed,
            compacted=CompactedRequests(
                count=len(tomb.compacted), sha256=_ids_digest(tomb.compacted)
            ),
        )
        for agent, tomb in token.tombs.items()
    }
    unproved = {request for tomb in token.tombs.values() for request in tomb.open}
    predicate = Attestation(
        manifest=terms.network_id.hex(),
        epoch=list(token.stamp[:3]),
        included={
            names[agent]: f"{revision.counter}.{revision.incarnation}"
            for agent, revision in enumerate(token.included)
            if revision.counter
        },
        tombstones=tombs,
        retrain_epoch=sorted(request.hex() for request in token.retrain_epoch & unproved),
        receipts=token.receipts.hex(),
        round=round_name(terms.network_id, token.masked).hex() if terms.masked else None,
        noise=None if terms.noise is None else NoiseStatement(**terms.noise.statement),
    )
    return _encode(
        AttestationStatement(
            _type=STATEMENT,
            subject=_subject(token, secret),
            predicateType=ATTESTATION,
            predicate=predicate,
        )
    )


@lru_cache(maxsize=16)  # most are compacted, and every statement names them
def _ids_digest(ids: frozenset[bytes]) -> str:
    """The name of a set of requests: SHA-256 of their bytes in order."""
    return hashlib.sha256(b"".join(sorted(ids))).hexdigest()


def sign_statement(statement: bytes, sign: Sign) -> bytes:
    return sign(_signed_bytes(statement))


@lru_cache(maxsize=1)  # as long as the network is large, and the same for every agent
def _signed_bytes(statement: bytes) -> bytes:
    return pae(PAYLOAD_TYPE, statement)


def closing(s: State, token: Token, stamp: Stamp, estimate: Mapping[str, Any] | None) -> bytes:
    """What the agent that completes the round signs."""
    names = s.terms.topology.agents
    predicate = Closing(
        manifest=s.terms.network_id.hex(),
        stamp=list(stamp),
        closed_by=names[s.me],
        attestation=hashlib.sha256(token.round.statement).hexdigest(),
        audit="equal",
        converged=token.round.converged,
        estimate=None if estimate is None else _coarse(estimate),
        not_attested=[names[k] for k, tomb in sorted(token.tombs.items()) if tomb.departed],
        erasures=erasures(s, token),
        evidence=[
            hashlib.sha256(record.raw).hexdigest()
            for records in evidence(s, token)
            for record in records
        ],
    )
    return _encode(
        ClosingStatement(
            _type=STATEMENT,
            subject=_subject(token, token.round.secret),
            predicateType=CLOSING,
            predicate=predicate,
        )
    )


def erasures(s: State, token: Token) -> dict[str, Claim]:
    """Every request that this round completes: whose it was, its scope, and who vouches for it.

    The word is the owner's tombstone; for a departed agent, the quorum's votes, whose request
    then stands for everything of that agent.
    """
    names = s.terms.topology.agents
    found = {}
    for agent, tomb in sorted(token.tombs.items()):
        asked = {vote.request for vote in votes_about(s, agent)} if tomb.departed else set()
        for request in sorted(tomb.open | asked):
            record = s.known.tombstones.get(request)
            signed = record is not None or tomb.whole
            found[request.hex()] = Claim(
                agent=names[agent],
                scope="records" if record is not None and not record.whole else "agent",
                kind=kind(s.terms, token, request),
                by="owner" if request in tomb.open and signed else "quorum",
            )
    return found


def kind(terms: Terms, token: Token, request: bytes) -> Kind:
    """Never a stronger word than was earned. Of a sum with noise no bit is proved: what is exact is
    the sum before noise."""
    if terms.noise is not None:
        return "exact_before_noise"
    if terms.conjugate or (terms.settles and token.round.converged):
        return "exact"
    return "retrained" if request in token.retrain_epoch else "refined"


def votes_about(s: State, agent: int) -> list[Vote]:
    return [vote for (target, _), vote in sorted(s.known.votes.items()) if target == agent]


def evidence(s: State, token: Token) -> tuple[list[Tombstone], list[Vote]]:
    """The records that travel with the statements, in the order of agents."""
    tombs = sorted(token.tombs.items())
    return (
        [
            s.known.tombstones[r]
            for _, tomb in tombs
            for r in sorted(tomb.open)
            if r in s.known.tombstones
        ],
        [vote for agent, tomb in tombs if tomb.departed for vote in votes_about(s, agent)],
    )


def evident(s: State) -> bool:
    """Whether this agent holds the signed evidence of every open erasure it knows.

    The token carries request ids, which can arrive before the evidence for them, which travels by
    gossip; whoever attests could be the one to write the certificate, and must have them.
    """
    for agent, tomb in s.known.tombs.items():
        if tomb.departed:
            if len(votes_about(s, agent)) < s.terms.quorum:
                return False
        elif not tomb.open <= s.known.tombstones.keys():
            return False
    return True


def _coarse(value: Any) -> Any:
    """An estimate follows from the sum: with all its digits it would tell a right guess of the sum
    from a wrong one. So its numbers have one digit, rounded up: a bound stays a bound. JSON has no
    infinity: a bound that does not exist is null."""
    if isinstance(value, Mapping):
        return {str(key): _coarse(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_coarse(v) for v in value]
    if isinstance(value, float):
        return float(_ONE_DIGIT.create_decimal(repr(value))) if math.isfinite(value) else None
    return value


_ONE_DIGIT = Context(prec=1, rounding=ROUND_CEILING)


def _envelope(model: type[E], kind: str, payload: bytes, signatures: Mapping[str, bytes]) -> E:
    """A DSSE envelope with one signature per key."""
    return model(
        payloadType=kind,
        payload=base64.b64encode(payload).decode(),
        signatures=[
            Signature(keyid=keyid, sig=base64.b64encode(signature).decode())
            for keyid, signature in signatures.items()
        ],
    )


def record_envelope(model: type[E], terms: Terms, record: SignedStatement) -> E:
    return _envelope(model, record.kind, record.raw, {terms.keyid(record.author): record.signature})


def certificate(s: State, token: Token, sign: Sign, estimate: Mapping[str, Any] | None) -> bytes:
    """The one file. It proves every erasure on the token that its agent has not compacted."""
    terms = s.terms
    closed = closing(s, token, token.stamp.next(s.incarnation), estimate)
    tombstones, votes = evidence(s, token)
    attesters = {terms.keyid(k): sig for k, sig in sorted(token.round.signatures.items())}
    closer = {terms.keyid(s.me): sign_statement(closed, sign)}
    return _encode(
        Certificate(
            format=FORMAT,
            attestation=_envelope(
                AttestationEnvelope, PAYLOAD_TYPE, token.round.statement, attesters
            ),
            closing=_envelope(ClosingEnvelope, PAYLOAD_TYPE, closed, closer),
            tombstones=[record_envelope(TombstoneEnvelope, terms, one) for one in tombstones],
            votes=[record_envelope(VoteEnvelope, terms, one) for one in votes],
        )
    )
