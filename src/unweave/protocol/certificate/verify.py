"""Reading a certificate offline: does it prove what it says, under this manifest?

`verify` believes nothing but the manifest and the signatures of the agents that it pins. It takes
the certificate apart strictly, so that every value in it is either covered by a signature or has
one legal form (how the JSON around it is spaced does not matter), and refuses with the first reason
it finds. What it proves, and what it cannot, is written in `docs/security.md`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from unweave.errors import NotACertificate, NotCertified
from unweave.protocol.certificate.read import (
    Attested,
    Check,
    Evidence,
    Node,
    Tomb,
    agent_named,
    check_attesters,
    load_json,
    read_attestation,
    read_evidence,
    signed_by,
    signers,
    statement,
)
from unweave.protocol.certificate.write import CLOSING, FORMAT, PAYLOAD_TYPE
from unweave.protocol.terms import Terms

__all__ = ["Account", "Check", "Erased", "verify"]


_INSTEAD = "give the file that `unweave forget` wrote"


@dataclass(frozen=True)
class Erased:
    """One erasure that a certificate proves."""

    request: str
    agent: str
    scope: str  # "agent" or "records"
    kind: str  # "exact", "refined" or "retrained"
    by: str  # "owner" or "quorum"
    # For scope "records": how many keys; how many of them the owner's data had when it asked, and
    # how many it did not have, which are only remembered: nothing was taken out for them.
    rows: int | None
    found: int | None = None
    remembered: int | None = None


@dataclass(frozen=True)
class Account:
    """What a certificate proves."""

    manifest: str
    eta: str
    stamp: tuple[int, ...]
    erasures: tuple[Erased, ...]
    attested: tuple[str, ...]
    not_attested: tuple[str, ...]
    included: tuple[str, ...]
    closed_by: str
    converged: bool
    estimate: Mapping[str, Any] | None

    @property
    def epoch(self) -> int:
        return self.stamp[0]

    @property
    def hop(self) -> int:
        return self.stamp[3]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "epoch": self.epoch, "hop": self.hop}


def verify(raw: bytes, terms: Terms, check: Check) -> Account:
    """What this certificate proves; NotCertified says why it does not, NotACertificate that it is
    something else. `terms` come from the manifest, `check` from the keys it pins."""
    file = open_file(raw)
    part = file.table("attestation", "closing", "format", "tombstones", "votes")
    part["format"].equal(FORMAT, f"{FORMAT!r} was expected: this version reads nothing else")
    attested = read_attestation(part["attestation"], terms, check)
    evidence = read_evidence(part["tombstones"], part["votes"], terms, check)
    check_attesters(attested, evidence, terms)
    found = check_erasures(attested, evidence, terms)
    return read_closing(part["closing"], attested, evidence, found, terms, check)


def open_file(raw: bytes) -> Node:
    """Tell a damaged certificate from a file that never was one."""
    try:
        value = load_json(raw)
    except ValueError as error:
        if FORMAT.encode() in raw or raw.startswith(b'{"attestation":'):
            raise NotCertified(f"the file is damaged: {error}") from None
        raise NotACertificate(f"not a certificate: {not_json(raw, error)}; {_INSTEAD}") from None
    if not isinstance(value, dict) or not {"attestation", "closing"} & value.keys():
        raise NotACertificate(
            f"not a certificate: it has neither an attestation nor a closing; {_INSTEAD}"
        )
    return Node(value, "certificate")


def not_json(raw: bytes, error: ValueError) -> str:
    """Why these bytes are no JSON, for somebody who gave another file."""
    if not raw.strip():
        return "the file is empty"
    if isinstance(error, UnicodeDecodeError):
        return "the file is not text"
    if isinstance(error, json.JSONDecodeError):
        return f"the file is not JSON (from line {error.lineno} on)"
    return f"the file is not plain JSON: {error}"


# ------------------------------------------------------------------------------------ erasures


def check_erasures(attested: Attested, evidence: Evidence, terms: Terms) -> dict[str, Erased]:
    """Every attested erasure has its owner's word or a quorum's, and is not in the sum."""
    found: dict[str, Erased] = {}
    for agent, tomb in sorted(attested.tombs.items()):
        check_agent(agent, tomb, attested, evidence, terms)
        asked = evidence.votes.get(agent, {}).values()
        for request in sorted(tomb.requests.union(asked)):
            if request.hex() in found:
                raise NotCertified(f"attestation: the request {request.hex()} names two agents")
            found[request.hex()] = erased(request, agent, tomb, attested, evidence, terms)
    for request, record in evidence.tombstones.items():
        tomb = attested.tombs.get(record.agent, Tomb(frozenset(), False, False))
        if request not in tomb.requests:
            raise NotCertified(f"{record.place}: the attestation does not know this request")
        if record.retrain and request not in attested.generation:
            raise NotCertified(f"{record.place}: asked to retrain, which nobody attested")
    for request in sorted(attested.generation):
        if not any(request in tomb.requests for tomb in attested.tombs.values()):
            raise NotCertified(
                f"attestation: the generation has an unknown request {request.hex()}"
            )
    return found


def check_agent(
    agent: int, tomb: Tomb, attested: Attested, evidence: Evidence, terms: Terms
) -> None:
    name = terms.name(agent)
    whole = any(r.agent == agent and r.whole for r in evidence.tombstones.values())
    if whole != tomb.whole and not (tomb.whole and tomb.filed):
        raise NotCertified(
            f'tombstones: "{name}" is attested as {"erased" if tomb.whole else "not erased"} as a '
            f"whole, and its own tombstones say {'so' if whole else 'nothing of it'}"
        )
    if (tomb.whole or tomb.left) and agent in attested.included:
        raise NotCertified(f'attestation: "{name}" is erased as a whole, but still included')
    for record in evidence.tombstones.values():
        changed = record.before != record.after
        if record.agent == agent and changed and attested.included.get(agent) == record.before:
            raise NotCertified(
                f'attestation: it includes the revision of "{name}" from before the erasure '
                f"{record.request.hex()}"
            )


def erased(
    request: bytes, agent: int, tomb: Tomb, attested: Attested, evidence: Evidence, terms: Terms
) -> Erased:
    """One erasure as it was earned."""
    name = terms.name(agent)
    record = evidence.tombstones.get(request)
    if record is not None and record.agent != agent:
        raise NotCertified(f'{record.place}: not signed by the owner "{name}"')
    own = request in tomb.requests and (record is not None or tomb.whole)
    if not own and not tomb.left:
        raise NotCertified(
            f'tombstones: the erasure {request.hex()} of "{name}" has no tombstone signed by it'
        )
    kind = "retrained" if request in attested.generation else "refined"
    part = record if record is not None and not record.whole else None
    return Erased(
        request=request.hex(),
        agent=name,
        scope="agent" if part is None else "records",
        kind="exact" if terms.conjugate else kind,
        by="owner" if own else "quorum",
        rows=None if part is None else part.rows,
        found=None if part is None else part.rows - part.remembered,
        remembered=None if part is None else part.remembered,
    )


# ------------------------------------------------------------------------------------- closing


def read_closing(
    node: Node,
    attested: Attested,
    evidence: Evidence,
    found: Mapping[str, Erased],
    terms: Terms,
    check: Check,
) -> Account:
    """The closing agent's word must be about this attestation, and claim no more than it proves."""
    payload, signatures = signed_by(node, PAYLOAD_TYPE)
    eta, predicate = statement(payload, CLOSING, "closing", terms)
    body = predicate.table(
        "attestation",
        "audit",
        "closed_by",
        "converged",
        "erasures",
        "estimate",
        "evidence",
        "manifest",
        "not_attested",
        "stamp",
    )
    by = signers("closing", PAYLOAD_TYPE, payload, signatures, terms, check)
    closer = agent_named(body["closed_by"].text(), body["closed_by"], terms)
    if by != (closer,):
        raise NotCertified(f'closing: "{terms.name(closer)}" alone must have signed it')
    if closer not in attested.signers:
        raise NotCertified(f'closing: by "{terms.name(closer)}", which has not attested')
    body["attestation"].equal(
        hashlib.sha256(attested.payload).hexdigest(), "is about another attestation"
    )
    if eta != attested.eta:
        raise NotCertified("closing: its eta is not the one that was attested")
    body["audit"].equal("equal", "the audit did not add up")
    stamp = body["stamp"].numbers(5)
    if stamp[:3] != attested.epoch:
        raise body["stamp"].refuse("is of another epoch than the attestation")
    left = [terms.name(k) for k, tomb in sorted(attested.tombs.items()) if tomb.left]
    body["not_attested"].equal(left, f"must list the agents that are gone: {left}")
    check_claims(body["erasures"], found)
    body["evidence"].equal(
        evidence.digests, "other tombstones or votes were there when it was closed"
    )
    estimate = body["estimate"].value
    if (estimate is None) != terms.conjugate or not isinstance(estimate, dict | None):
        raise body["estimate"].refuse(
            "must be null for a conjugate model, and an object for any other"
        )
    return Account(
        manifest=terms.network_id.hex(),
        eta=eta,
        stamp=tuple(stamp),
        erasures=tuple(found.values()),
        attested=tuple(terms.name(k) for k in attested.signers),
        not_attested=tuple(left),
        included=tuple(terms.name(k) for k in sorted(attested.included)),
        closed_by=terms.name(closer),
        converged=body["converged"].flag(),
        estimate=estimate,
    )


def check_claims(node: Node, found: Mapping[str, Erased]) -> None:
    claims = node.entries()
    for request in found:
        if request not in claims:
            raise node.refuse(f"the erasure {request} is missing")
    for request, claim in claims.items():
        if request not in found:
            raise claim.refuse("nobody attested this erasure")
        for key, value in claim.table("agent", "by", "kind", "scope").items():
            earned = getattr(found[request], key)
            value.equal(earned, f"{earned!r} is what was earned")
