"""The signed records inside a certificate: tombstones with their removal receipts, and votes.

Every record is a DSSE envelope. A signature counts only if its key is pinned for an agent of the
manifest and it covers exactly the bytes that are read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from unweave.errors import NotCertified
from unweave.protocol.records import Tombstone, Vote, pae
from unweave.protocol.strict import Node
from unweave.protocol.terms import Terms
from unweave.protocol.visit import Receipt

__all__ = ["Check", "Evidence", "Removal", "read_evidence", "signed_by", "signers"]

Check = Callable[[int, bytes, bytes], bool]
"""`check(agent, payload, signature)`: did this agent's pinned key sign exactly these bytes?"""

_ENVELOPE = ("payload", "payloadType", "signatures")
_OUT = [0, 0]  # the revision of what is not included


@dataclass(frozen=True)
class Removal:
    """A tombstone and the receipt of the visit that carried it out."""

    place: str
    request: bytes
    agent: int
    whole: bool
    rows: int
    retrain: bool
    before: tuple[int, int]
    after: tuple[int, int]


@dataclass(frozen=True)
class Evidence:
    """What agents signed one by one: removals by request, votes by target and voter."""

    tombstones: Mapping[bytes, Removal]
    votes: Mapping[int, Mapping[int, bytes]]
    digests: list[str]  # SHA-256 of every record's bytes, as they stand


# ----------------------------------------------------------------------------------- envelopes


def signed_by(node: Node, kind: str) -> tuple[bytes, list[tuple[str, bytes]]]:
    """The payload of a DSSE envelope and its signatures (key id, signature)."""
    body = node.table(*_ENVELOPE)
    body["payloadType"].equal(kind, f"{kind!r} was expected")
    signatures = []
    for item in body["signatures"].items():
        entry = item.table("keyid", "sig")
        signatures.append((entry["keyid"].text(), entry["sig"].base64()))
    return body["payload"].base64(), signatures


def signers(
    place: str,
    kind: str,
    payload: bytes,
    signatures: list[tuple[str, bytes]],
    terms: Terms,
    check: Check,
) -> tuple[int, ...]:
    """Who signed; every signature must hold, and they stand in the manifest's order."""
    known = {terms.keyid(k): k for k in range(terms.size)}
    signed = pae(kind, payload)
    found: list[int] = []
    for keyid, signature in signatures:
        if keyid not in known:
            raise NotCertified(
                f"{place}: signed by the unknown key {keyid!r}: the manifest pins it for nobody"
            )
        agent = known[keyid]
        if found and agent <= found[-1]:
            raise NotCertified(f"{place}: signatures are repeated, or not in the manifest's order")
        if not check(agent, signed, signature):
            raise NotCertified(
                f'{place}: the signature of "{terms.name(agent)}" does not hold: the bytes were '
                "altered, or another key signed them"
            )
        found.append(agent)
    return tuple(found)


def one_signer(node: Node, kind: str, terms: Terms, check: Check) -> tuple[Node, int]:
    """The body of a record and the agent that signed it."""
    payload, signatures = signed_by(node, kind)
    by = signers(node.place, kind, payload, signatures, terms, check)
    if len(by) != 1:
        raise node.refuse(f"exactly one signature was expected; it has {len(by)}")
    return Node.parse(payload, node.place), by[0]


# ------------------------------------------------------------------------------------- records


def read_evidence(tombstones: Node, votes: Node, terms: Terms, check: Check) -> Evidence:
    removals: dict[bytes, Removal] = {}
    order = []
    for item in tombstones.items():
        removal = read_tombstone(item, terms, check)
        removals[removal.request] = removal
        order.append((removal.agent, removal.request))
    if order != sorted(set(order)) or len(removals) != len(order):
        raise tombstones.refuse("repeated, or not in the order of agents and requests")
    cast: dict[int, dict[int, bytes]] = {}
    pairs = []
    for item in votes.items():
        target, voter, request = read_vote(item, terms, check)
        cast.setdefault(target, {})[voter] = request
        pairs.append((target, voter))
    if pairs != sorted(set(pairs)):
        raise votes.refuse("repeated, or not in the order of agents and voters")
    records = [*tombstones.items(), *votes.items()]
    payloads = [record.table(*_ENVELOPE)["payload"].base64() for record in records]
    return Evidence(removals, cast, [hashlib.sha256(p).hexdigest() for p in payloads])


def about(body: Mapping[str, Node], terms: Terms) -> int:
    """The agent that a record names, by number and by name."""
    body["run"].equal(terms.run.hex(), "is of another network: not the manifest's digest")
    agent = body["agent"].number()
    if agent >= terms.size:
        raise body["agent"].refuse(f"the manifest has {terms.size} agents")
    if "name" in body:
        body["name"].equal(terms.name(agent), f"agent {agent} is named {terms.name(agent)!r}")
    return agent


def read_tombstone(node: Node, terms: Terms, check: Check) -> Removal:
    record, author = one_signer(node, Tombstone.kind, terms, check)
    body = record.table(
        "agent",
        "name",
        "receipt",
        "receipt_signature",
        "request",
        "retrain",
        "rows",
        "run",
        "whole",
    )
    agent = about(body, terms)
    if agent != author:
        raise node.refuse(
            f'about "{terms.name(agent)}", but signed by "{terms.name(author)}": only the owner '
            "can erase its data"
        )
    request = body["request"].hex(16)
    whole, retrain = body["whole"].flag(), body["retrain"].flag()
    raw = body["receipt"].text().encode()
    place = f"{node.place}.receipt"
    signature = body["receipt_signature"].hex()
    if not check(agent, pae(Receipt.kind, raw), signature):
        raise NotCertified(
            f'{place}: the signature of "{terms.name(agent)}" does not hold: the receipt was '
            "altered, or another key signed it"
        )
    before, after = read_receipt(Node.parse(raw, place), agent, request, terms)
    if (whole or retrain) and after != _OUT:
        raise NotCertified(f"{place}: it does not take the agent out of the token")
    return Removal(
        place=node.place,
        request=request,
        agent=agent,
        whole=whole,
        rows=len([row.hex() for row in body["rows"].items()]),
        retrain=retrain,
        before=(before[0], before[1]),
        after=(after[0], after[1]),
    )


def read_receipt(
    node: Node, agent: int, request: bytes, terms: Terms
) -> tuple[list[int], list[int]]:
    """The revisions before and after the visit that removed what was asked."""
    body = node.table(
        "after",
        "agent",
        "before",
        "eta_after",
        "eta_before",
        "previous",
        "requests",
        "run",
        "stamp",
    )
    if about(body, terms) != agent:
        raise node.refuse("it is about another agent")
    for key in ("eta_after", "eta_before", "previous"):
        body[key].hex(32)
    body["stamp"].numbers(5)
    if request not in body["requests"].hexes(16):
        raise body["requests"].refuse(f"the request {request.hex()} is not among them")
    return body["before"].numbers(2), body["after"].numbers(2)


def read_vote(node: Node, terms: Terms, check: Check) -> tuple[int, int, bytes]:
    """(target, voter, request)."""
    record, voter = one_signer(node, Vote.kind, terms, check)
    body = record.table("agent", "name", "request", "run")
    target = about(body, terms)
    if target == voter:
        raise node.refuse(f'"{terms.name(voter)}" cannot declare itself gone')
    return target, voter, body["request"].hex(16)
