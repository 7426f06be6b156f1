"""Reading a certificate offline: does it prove what it says, under this manifest?

`verify` believes nothing but the manifest and the signatures of the agents that it pins. It takes
the certificate apart strictly, so that every value in it is either covered by a signature or has
one legal form (how the JSON around it is spaced does not matter), and refuses with the first reason
it finds. What it proves, and what it cannot, is written in `docs/explanation/security.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hmac import compare_digest
from typing import Any

from unweave.errors import NotCertified
from unweave.grid import Ints, keyed_digest
from unweave.protocol.certificate.format import (
    Attestation,
    AttestationStatement,
    By,
    Claim,
    ClosingStatement,
    Kind,
    ReceiptBody,
    Scope,
    TombstoneBody,
)
from unweave.protocol.certificate.read import Check, EnvelopeReader, Evidence, Signed, read_file
from unweave.protocol.terms import Terms
from unweave.protocol.token import SECRET_BYTES

__all__ = ["Account", "Check", "Erased", "verify"]


@dataclass(frozen=True)
class Erased:
    """One erasure that a certificate proves."""

    request: str
    agent: str
    scope: Scope
    kind: Kind
    by: By
    # For scope "records": how many keys; how many of them the owner's data had when it asked, and
    # how many it did not have, which are only remembered: nothing was taken out for them; and how
    # many an erasure above in the same certificate names, too.
    rows: int | None
    found: int | None = None
    remembered: int | None = None
    repeated: int | None = None


@dataclass(frozen=True)
class Account:
    """What a certificate proves."""

    manifest: str
    commitment: str  # to the sum: HMAC-SHA256 under the round's secret
    stamp: tuple[int, ...]
    erasures: tuple[Erased, ...]
    attested: tuple[str, ...]
    not_attested: tuple[str, ...]
    included: tuple[str, ...]
    closed_by: str
    converged: bool
    estimate: Mapping[str, Any] | None
    noise: Mapping[str, Any] | None = None  # stated by every agent; not verifiable

    @property
    def epoch(self) -> int:
        return self.stamp[0]

    @property
    def hop(self) -> int:
        return self.stamp[3]

    def opens(self, secret: bytes, units: Ints) -> bool:
        """Whether this is the certified sum, under this secret."""
        found = keyed_digest(secret, units).hex()
        return len(secret) == SECRET_BYTES and compare_digest(found, self.commitment)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "epoch": self.epoch, "hop": self.hop}


def verify(raw: bytes, terms: Terms, check: Check) -> Account:
    """What this certificate proves; NotCertified says why it does not, NotACertificate that it is
    something else. `terms` come from the manifest, `check` from the keys it pins."""
    file, reader = read_file(raw), EnvelopeReader(terms, check)
    attested = reader.open(file.attestation, AttestationStatement, "attestation")
    check_names(attested.body.predicate, terms)
    check_round(attested.body.predicate, terms)
    check_noise(attested.body.predicate, terms)
    evidence = reader.evidence(file.tombstones, file.votes)
    check_attesters(attested, evidence, terms)
    closed = reader.open(file.closing, ClosingStatement, "closing")
    exact: Kind | None = None
    if terms.conjugate or (terms.settles and closed.body.predicate.converged):
        exact = "exact" if terms.noise is None else "exact_before_noise"
    found = check_erasures(attested.body.predicate, evidence, terms, exact)
    return check_closing(closed, attested, evidence, found, terms)


def check_names(attested: Attestation, terms: Terms) -> None:
    """The manifest has every agent that the attestation names."""
    known = set(terms.topology.agents)
    for key in ("included", "tombstones"):
        for name in getattr(attested, key):
            if name not in known:
                raise NotCertified(f"attestation.{key}: the manifest has no agent {name!r}")


def check_round(attested: Attestation, terms: Terms) -> None:
    """A private round is complete, or empty because too few agents remain for a sum."""
    if (attested.round is None) == terms.masked:
        mode = "names no private round" if terms.masked else "names a private round"
        raise NotCertified(f"attestation.round: {mode}, but the manifest says {terms.privacy!r}")
    if not terms.masked:
        return
    gone = {name for name, tomb in attested.tombstones.items() if tomb.whole or tomb.departed}
    members = set(terms.topology.agents) - gone
    included = set(attested.included)
    if included == members or (not included and len(members) < terms.min_roster):
        return
    if not included and terms.noise is not None:
        return  # a budget is spent: no sum follows, and an empty one holds nothing that was erased
    raise NotCertified(
        f"attestation.included: a private round includes all of {len(members)} agents, or none if "
        f"fewer than {terms.min_roster} remain; this one includes {len(included)}"
    )


def check_noise(attested: Attestation, terms: Terms) -> None:
    """The attestation states the noise of the manifest."""
    said = None if attested.noise is None else attested.noise.model_dump()
    if said != (None if terms.noise is None else terms.noise.statement):
        raise NotCertified("attestation.noise: is not the noise that the manifest asks for")


def departed(attested: Attestation, terms: Terms) -> list[str]:
    """The agents that the attestation lists as departed, in the manifest's order."""
    agents = attested.tombstones
    return [name for name in terms.topology.agents if name in agents and agents[name].departed]


def check_attesters(
    attested: Signed[AttestationStatement], evidence: Evidence, terms: Terms
) -> None:
    """Exactly the agents that have not departed must have signed: a set, not a count."""
    gone = set(departed(attested.body.predicate, terms))
    for name in sorted(gone | evidence.votes.keys()):
        if name not in gone:
            raise NotCertified(
                f"agent {name}: the certificate holds a vote, but the attestation does not list "
                f"{name} as departed"
            )
        count = len(evidence.votes.get(name, {}))
        if count < terms.quorum:
            raise NotCertified(
                f"agent {name}: the attestation lists it as departed, but the certificate holds "
                f"{count} votes; {terms.quorum} of {terms.size} are needed"
            )
    signed = {terms.name(k) for k in attested.signers}
    for name in terms.topology.agents:
        if name in gone and name in signed:
            raise NotCertified(
                f"attestation: agent {name} signed it, but it lists {name} as departed"
            )
        if name not in gone and name not in signed:
            raise NotCertified(
                f"attestation: agent {name} has not signed; every agent that has not departed must"
            )


# ------------------------------------------------------------------------------------ erasures


def check_erasures(
    attested: Attestation, evidence: Evidence, terms: Terms, exact: Kind | None
) -> dict[str, Erased]:
    """Every attested erasure has the owner's tombstone or a quorum's votes, and its data are not in
    the sum. `exact`: the word for a sum that is a function of the remaining records, and perhaps of
    noise; None: it is not."""
    requests = {name: set(said.requests) for name, said in attested.tombstones.items()}
    retrained = set(attested.retrain_epoch)
    check_listed(requests, retrained, evidence)
    signed: dict[str, list[TombstoneBody]] = {}
    for one in evidence.tombstones.values():
        signed.setdefault(one.body.name, []).append(one.body)
    found: dict[str, Erased] = {}
    for name in terms.topology.agents:
        if name not in requests:
            continue
        said = attested.tombstones[name]
        named: set[str] = set()  # rows of this agent
        check_sum(name, signed.get(name, []), attested, evidence)
        for request in sorted(requests[name].union(evidence.votes.get(name, {}).values())):
            if request in found:
                raise NotCertified(f"attestation: two agents have the request {request}")
            own = request in requests[name] and (request in evidence.tombstones or said.whole)
            if not own and not said.departed:
                raise NotCertified(
                    f"agent {name}: the certificate holds no tombstone for the erasure {request}"
                )
            kind: Kind = "retrained" if request in retrained else "refined"
            found[request] = erased(
                request,
                name,
                exact or kind,
                "owner" if own else "quorum",
                evidence.tombstones.get(request),
                named,
            )
    return found


def check_listed(requests: Mapping[str, set[str]], retrained: set[str], evidence: Evidence) -> None:
    """The attestation lists every request that has a tombstone or asked for retraining."""
    for request, one in evidence.tombstones.items():
        if request not in requests.get(one.body.name, ()):
            raise NotCertified(f"{one.place}: the attestation does not list this request")
        if one.body.retrain and request not in retrained:
            raise NotCertified(
                f"{one.place}: it asked for retraining, but the attestation does not say so"
            )
    unknown = retrained.difference(*requests.values())
    if unknown:
        raise NotCertified(f"attestation.retrain_epoch: no agent has the request {min(unknown)}")


def check_sum(
    name: str, signed: list[TombstoneBody], attested: Attestation, evidence: Evidence
) -> None:
    """The attested sum holds nothing that this agent erased."""
    said, included = attested.tombstones[name], attested.included.get(name)
    whole = any(one.whole for one in signed)
    if whole and not said.whole:
        raise NotCertified(
            f"agent {name}: its tombstone erases it as a whole, but the attestation does not"
        )
    if said.whole and not whole and not said.compacted.count:
        raise NotCertified(
            f"agent {name}: the attestation lists it as erased as a whole, but none of its "
            "tombstones does"
        )
    if (said.whole or said.departed) and included is not None:
        raise NotCertified(
            f"attestation: agent {name} is erased as a whole, but still included in the sum"
        )
    for one in signed:
        if included is not None and not follows(included, evidence.receipts[one.request]):
            raise NotCertified(
                f"attestation: the sum includes a revision of agent {name} from before the "
                f"erasure {one.request}"
            )


def follows(included: str, receipt: ReceiptBody) -> bool:
    """Whether this is the revision that the removal left in the sum, or a later one. An agent's
    counter grows with every revision, also over restarts and lost disks."""
    counter, incarnation = map(int, included.split("."))
    return [counter, incarnation] == receipt.after or counter > max(
        receipt.before[0], receipt.after[0]
    )


def erased(
    request: str,
    name: str,
    kind: Kind,
    by: By,
    signed: Signed[TombstoneBody] | None,
    named: set[str],
) -> Erased:
    """One erasure; without a tombstone of single records it covers the whole agent. Its rows are
    added to `named`, those of the agent's erasures above."""
    if signed is not None and signed.body.name != name:
        raise NotCertified(f"{signed.place}: not signed by the owner, agent {name}")
    if signed is None or signed.body.whole:
        return Erased(request, name, "agent", kind, by, None)
    rows, remembered = len(signed.body.rows), signed.body.remembered
    repeated = len(named.intersection(signed.body.rows))
    named.update(signed.body.rows)
    return Erased(request, name, "records", kind, by, rows, rows - remembered, remembered, repeated)


# ------------------------------------------------------------------------------------- closing


def check_closing(
    closed: Signed[ClosingStatement],
    attested: Signed[AttestationStatement],
    evidence: Evidence,
    found: Mapping[str, Erased],
    terms: Terms,
) -> Account:
    """The closing must be about this attestation, and claim no more than the evidence shows."""
    body, statement = closed.body.predicate, attested.body
    signers = [terms.name(k) for k in closed.signers]
    if body.closed_by not in terms.topology.agents:
        raise NotCertified(f"closing.closed_by: the manifest has no agent {body.closed_by!r}")
    if signers != [body.closed_by]:
        raise NotCertified(
            f"closing: agent {body.closed_by} must have signed it, but {signers[0]} did"
        )
    if not set(closed.signers) <= set(attested.signers):
        raise NotCertified(f"closing: agent {body.closed_by} closed it, but has not attested")
    gone = departed(statement.predicate, terms)
    for key, wanted, why in (
        ("attestation", attested.digest, "is about another attestation"),
        ("not_attested", gone, f"must list the departed agents: {gone}"),
        ("evidence", evidence.digests, "the closing agent had other tombstones or votes"),
    ):
        if getattr(body, key) != wanted:
            raise NotCertified(f"closing.{key}: {why}")
    if closed.body.commitment != statement.commitment:
        raise NotCertified("closing.subject: its eta is not the attested one")
    if body.stamp[:3] != statement.predicate.epoch:
        raise NotCertified("closing.stamp: is of another epoch than the attestation")
    check_claims(body.erasures, found)
    if (body.estimate is None) != terms.conjugate:
        raise NotCertified(
            "closing.estimate: must be null for a conjugate model, and an object for any other"
        )
    return Account(
        manifest=body.manifest,
        commitment=closed.body.commitment,
        stamp=tuple(body.stamp),
        erasures=tuple(found.values()),
        attested=tuple(terms.name(k) for k in attested.signers),
        not_attested=tuple(gone),
        included=tuple(n for n in terms.topology.agents if n in statement.predicate.included),
        closed_by=body.closed_by,
        converged=body.converged,
        estimate=body.estimate,
        noise=None if terms.noise is None else dict(terms.noise.statement),
    )


def check_claims(claims: Mapping[str, Claim], found: Mapping[str, Erased]) -> None:
    """The closing claims for each erasure exactly what the evidence shows."""
    for request in found:
        if request not in claims:
            raise NotCertified(f"closing.erasures: the erasure {request} is missing")
    for request, claim in claims.items():
        place = f"closing.erasures.{request}"
        if request not in found:
            raise NotCertified(f"{place}: the attestation does not list this erasure")
        for key, claimed in claim:
            earned = getattr(found[request], key)
            if claimed != earned:
                raise NotCertified(
                    f"{place}.{key}: {claimed!r} is claimed, but the evidence shows {earned!r}"
                )
