"""What a completed cover proves, as bytes that other tools can read.

Two in-toto statements in DSSE envelopes. The *attestation* is written by the first agent of a
quiet cover and signed by every agent: this is the sum, this is what it includes, these are the
tombstones I know. The *closing* is signed by the agent that completes the cover: the audit, and for
each erasure how it was earned. Beside them travel the owners' signed tombstones with their removal
receipts, and the votes about agents that are gone.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from unweave.protocol.ids import Stamp
from unweave.protocol.records import Record, Sign, pae
from unweave.protocol.state import State
from unweave.protocol.terms import Terms
from unweave.protocol.token import Token, digest
from unweave.protocol.tombs import NOTHING

__all__ = [
    "ATTESTATION",
    "CLOSING",
    "PAYLOAD_TYPE",
    "attestation",
    "certificate",
    "closing",
    "envelope",
    "sign_statement",
]

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
ATTESTATION = "urn:unweave:attestation:v1"
CLOSING = "urn:unweave:erasure:v1"


def encode(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _statement(kind: str, eta: bytes, predicate: Mapping[str, Any]) -> bytes:
    return encode(
        {
            "_type": STATEMENT,
            "subject": [{"name": "eta", "digest": {"sha256": eta.hex()}}],
            "predicateType": kind,
            "predicate": predicate,
        }
    )


def attestation(terms: Terms, token: Token) -> bytes:
    """What every agent of a quiet cover signs: a function of the token alone."""
    names = terms.topology.agents
    tombs = {
        names[agent]: {
            "requests": sorted(request.hex() for request in tomb.ids),
            "whole": tomb.whole,
            "left": tomb.left,
        }
        for agent, tomb in token.tombs.items()
    }
    return _statement(
        ATTESTATION,
        digest(token.eta),
        {
            "manifest": terms.run.hex(),
            "epoch": list(token.stamp[:3]),
            "included": {
                names[agent]: f"{revision.counter}.{revision.boot}"
                for agent, revision in enumerate(token.included)
                if revision.counter
            },
            "tombstones": tombs,
            "generation": sorted(request.hex() for request in token.generation),
            "receipts": token.receipts.hex(),
        },
    )


def sign_statement(statement: bytes, sign: Sign) -> bytes:
    return sign(pae(PAYLOAD_TYPE, statement))


def closing(s: State, token: Token, stamp: Stamp, estimate: Mapping[str, Any] | None) -> bytes:
    """What the agent that completes the cover signs."""
    names = s.terms.topology.agents
    return _statement(
        CLOSING,
        digest(token.eta),
        {
            "manifest": s.terms.run.hex(),
            "stamp": list(stamp),
            "closed_by": names[s.me],
            "attestation": hashlib.sha256(token.quiet.statement).hexdigest(),
            "audit": "equal",
            "converged": token.quiet.converged,
            "estimate": estimate,
            "not_attested": [names[k] for k, tomb in sorted(token.tombs.items()) if tomb.left],
            "erasures": {
                request.hex(): {
                    "agent": names[agent],
                    "scope": scope(s, agent, request),
                    "kind": kind(s.terms, token, request),
                }
                for agent, tomb in sorted(token.tombs.items())
                for request in sorted(tomb.ids)
            },
        },
    )


def kind(terms: Terms, token: Token, request: bytes) -> str:
    """Never a stronger word than was earned."""
    if terms.conjugate:
        return "exact"
    return "retrained" if request in token.generation else "refined"


def scope(s: State, agent: int, request: bytes) -> str:
    record = s.tombstones.get(request)
    whole = s.tombs.get(agent, NOTHING).whole if record is None else record.whole
    return "agent" if whole else "records"


def envelope(kind: str, payload: bytes, signatures: Mapping[str, bytes]) -> dict[str, Any]:
    """A DSSE envelope with one signature per key."""
    return {
        "payloadType": kind,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [
            {"keyid": keyid, "sig": base64.b64encode(signature).decode()}
            for keyid, signature in signatures.items()
        ],
    }


def _record_envelope(terms: Terms, record: Record) -> dict[str, Any]:
    return envelope(record.kind, record.raw, {terms.keyid(record.author): record.signature})


def certificate(s: State, token: Token, sign: Sign, estimate: Mapping[str, Any] | None) -> bytes:
    """The one file. It covers every erasure that the token knows."""
    terms = s.terms
    closed = closing(s, token, token.stamp.next(s.boot), estimate)
    known = [
        s.tombstones[request]
        for _, tomb in sorted(token.tombs.items())
        for request in sorted(tomb.ids)
        if request in s.tombstones
    ]
    left = {agent for agent, tomb in token.tombs.items() if tomb.left}
    votes = [vote for (target, _), vote in sorted(s.votes.items()) if target in left]
    return encode(
        {
            "format": "unweave certificate 1",
            "attestation": envelope(
                PAYLOAD_TYPE,
                token.quiet.statement,
                {terms.keyid(k): sig for k, sig in sorted(token.quiet.signatures.items())},
            ),
            "closing": envelope(
                PAYLOAD_TYPE, closed, {terms.keyid(s.me): sign_statement(closed, sign)}
            ),
            "tombstones": [_record_envelope(terms, record) for record in known],
            "votes": [_record_envelope(terms, vote) for vote in votes],
        }
    )
