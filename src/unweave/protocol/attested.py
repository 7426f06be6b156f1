"""What everybody signed: the attestation inside a certificate, read strictly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from unweave.errors import NotCertified
from unweave.protocol.certificate import ATTESTATION, PAYLOAD_TYPE, STATEMENT
from unweave.protocol.evidence import Check, Evidence, signed_by, signers
from unweave.protocol.strict import Node
from unweave.protocol.terms import Terms

__all__ = ["Attested", "Tomb", "agent_named", "check_attesters", "read_attestation", "statement"]


@dataclass(frozen=True)
class Tomb:
    """What everybody attested about one agent."""

    requests: frozenset[bytes]  # to be proved by this certificate
    whole: bool
    left: bool
    filed: int = 0  # how many were proved by earlier certificates


@dataclass(frozen=True)
class Attested:
    """The statement that everybody signed."""

    eta: str
    epoch: list[int]
    included: Mapping[int, tuple[int, int]]
    tombs: Mapping[int, Tomb]
    generation: frozenset[bytes]
    payload: bytes
    signers: tuple[int, ...]


def statement(payload: bytes, kind: str, place: str, terms: Terms) -> tuple[str, Node]:
    """The subject's digest and the predicate of an in-toto statement about this network."""
    top = Node.parse(payload, place).table("_type", "predicate", "predicateType", "subject")
    top["_type"].equal(STATEMENT, "not an in-toto statement (v1)")
    top["predicateType"].equal(kind, f"{kind!r} was expected")
    subjects = top["subject"].items()
    if len(subjects) != 1:
        raise top["subject"].refuse("exactly one subject was expected")
    subject = subjects[0].table("digest", "name")
    subject["name"].equal("eta", "'eta' was expected")
    eta = subject["digest"].table("sha256")["sha256"].hex(32).hex()
    predicate = Node(top["predicate"].value, place)
    found = predicate.entries().get("manifest")
    if found is not None and found.value != terms.run.hex():
        raise NotCertified(
            f"{place}: made under another manifest: its digest is {found.value}, that of the "
            f"given file is {terms.run.hex()}; give the network.toml that this network was "
            "started with"
        )
    return eta, predicate


def read_attestation(node: Node, terms: Terms, check: Check) -> Attested:
    payload, signatures = signed_by(node, PAYLOAD_TYPE)
    eta, predicate = statement(payload, ATTESTATION, "attestation", terms)
    body = predicate.table("epoch", "generation", "included", "manifest", "receipts", "tombstones")
    body["receipts"].hex(32)
    return Attested(
        eta=eta,
        epoch=body["epoch"].numbers(3),
        included={
            agent_named(name, entry, terms): revision(entry)
            for name, entry in body["included"].entries().items()
        },
        tombs={
            agent_named(name, entry, terms): read_tomb(entry)
            for name, entry in body["tombstones"].entries().items()
        },
        generation=frozenset(body["generation"].hexes(16)),
        payload=payload,
        signers=signers("attestation", PAYLOAD_TYPE, payload, signatures, terms, check),
    )


def agent_named(name: str, node: Node, terms: Terms) -> int:
    if name not in terms.topology.agents:
        raise node.refuse(f"the manifest knows no agent {name!r}")
    return terms.topology.index(name)


def revision(node: Node) -> tuple[int, int]:
    counter, dot, boot = node.text().partition(".")
    digits = counter.isdecimal() and boot.isdecimal() and max(len(counter), len(boot)) <= 20
    if not (dot and digits and int(counter)):
        raise node.refuse("a revision was expected")
    return int(counter), int(boot)


def read_tomb(node: Node) -> Tomb:
    body = node.table("filed", "left", "requests", "whole")
    filed = body["filed"].table("count", "sha256")
    filed["sha256"].hex(32)
    return Tomb(
        requests=frozenset(body["requests"].hexes(16)),
        whole=body["whole"].flag(),
        left=body["left"].flag(),
        filed=filed["count"].number(),
    )


def check_attesters(attested: Attested, evidence: Evidence, terms: Terms) -> None:
    """Exactly the agents that have not left must have signed: a set, not a count."""
    left = {agent for agent, tomb in attested.tombs.items() if tomb.left}
    for agent in sorted(left | evidence.votes.keys()):
        name = terms.name(agent)
        if agent not in left:
            raise NotCertified(f'votes: about "{name}", which the attestation has not as gone')
        count = len(evidence.votes.get(agent, {}))
        if count < terms.quorum:
            raise NotCertified(
                f'votes: "{name}" is attested as gone, with {count} votes; '
                f"{terms.quorum} of {terms.size} are needed"
            )
    for agent in range(terms.size):
        name = terms.name(agent)
        if agent in left and agent in attested.signers:
            raise NotCertified(f'attestation: signed by "{name}", which it has as gone')
        if agent not in left and agent not in attested.signers:
            raise NotCertified(
                f'attestation: "{name}" has not signed; every agent that has not left must'
            )
