"""Strict reading of JSON that others wrote: exactly these keys, exactly these types.

Whatever is not as it must be is refused with the place where it stands, so that a certificate has
one reading or none.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from unweave.errors import NotCertified
from unweave.protocol.certificate.write import ATTESTATION, PAYLOAD_TYPE, STATEMENT
from unweave.protocol.statements import Receipt, Tombstone, Vote, pae
from unweave.protocol.terms import Terms

__all__ = [
    "Attested",
    "Check",
    "Evidence",
    "Node",
    "Tomb",
    "agent_named",
    "check_attesters",
    "load_json",
    "read_attestation",
    "read_evidence",
    "signed_by",
    "signers",
    "statement",
]


def load_json(raw: bytes) -> Any:
    """The value in these bytes; ValueError for anything but one plain JSON document."""
    try:
        return json.loads(raw.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


class Node:
    """A JSON value and where it stands."""

    __slots__ = ("place", "value")

    def __init__(self, value: Any, place: str) -> None:
        self.value = value
        self.place = place

    @classmethod
    def parse(cls, raw: bytes, place: str) -> Node:
        try:
            return cls(load_json(raw), place)
        except ValueError as error:
            raise NotCertified(f"{place}: not JSON: {error}") from None

    def refuse(self, why: str) -> NotCertified:
        return NotCertified(f"{self.place}: {why}")

    def _typed(self, wanted: type, what: str) -> Any:
        # `type` and not `isinstance`: true is not the number 1.
        if type(self.value) is not wanted:
            raise self.refuse(f"{what} was expected")
        return self.value

    def table(self, *keys: str) -> dict[str, Node]:
        """An object with exactly these keys."""
        value: Mapping[str, Any] = self._typed(dict, "an object")
        for key in keys:
            if key not in value:
                raise self.refuse(f"{key} is missing")
        for key in value:
            if key not in keys:
                raise self.refuse(f"unknown key {key!r}")
        return {key: Node(value[key], f"{self.place}.{key}") for key in keys}

    def entries(self) -> dict[str, Node]:
        """An object with any keys."""
        value: Mapping[str, Any] = self._typed(dict, "an object")
        return {key: Node(v, f"{self.place}[{key!r}]") for key, v in value.items()}

    def items(self) -> list[Node]:
        value: list[Any] = self._typed(list, "a list")
        return [Node(v, f"{self.place}[{k}]") for k, v in enumerate(value)]

    def text(self) -> str:
        text: str = self._typed(str, "a text")
        return text

    def flag(self) -> bool:
        flag: bool = self._typed(bool, "true or false")
        return flag

    def number(self) -> int:
        number: int = self._typed(int, "a whole number")
        if number < 0:
            raise self.refuse("a number from 0 up was expected")
        return number

    def numbers(self, count: int) -> list[int]:
        found = [item.number() for item in self.items()]
        if len(found) != count:
            raise self.refuse(f"{count} numbers were expected")
        return found

    def hex(self, length: int | None = None) -> bytes:
        """Bytes in lower-case hex."""
        text = self.text()
        try:
            found = bytes.fromhex(text)
        except ValueError:
            found = None
        if found is None or found.hex() != text or length not in (None, len(found)):
            size = "" if length is None else f"{2 * length} "
            raise self.refuse(f"{size}lower-case hex digits were expected")
        return found

    def hexes(self, length: int | None = None) -> list[bytes]:
        """A list of distinct byte strings, in order."""
        found = [item.hex(length) for item in self.items()]
        if found != sorted(set(found)):
            raise self.refuse("a list in ascending order, without repetitions, was expected")
        return found

    def base64(self) -> bytes:
        """Bytes in the one base64 form that they have."""
        text = self.text()
        try:
            found = base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error):
            found = None
        if found is None or base64.b64encode(found).decode() != text:
            raise self.refuse("base64 was expected")
        return found

    def equal(self, wanted: object, why: str) -> None:
        """Refuse any other value, or one of another type."""
        if type(self.value) is not type(wanted) or self.value != wanted:
            raise self.refuse(why)


# ------------------------------------------------------------------------------
# What everybody signed: the attestation inside a certificate, read strictly.


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
    if found is not None and found.value != terms.network_id.hex():
        raise NotCertified(
            f"{place}: made under another manifest: its digest is {found.value}, that of the "
            f"given file is {terms.network_id.hex()}; give the network.toml that this network was "
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


# ------------------------------------------------------------------------------
# The signed records inside a certificate: tombstones with their removal receipts, and votes.
#
# Every record is a DSSE envelope. A signature counts only if its key is pinned for an agent of the
# manifest and it covers exactly the bytes that are read.

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
    remembered: int
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
    body["run"].equal(terms.network_id.hex(), "is of another network: not the manifest's digest")
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
        "remembered",
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
    rows, remembered = body["rows"].hexes(), body["remembered"].number()
    if remembered > len(rows):
        raise body["remembered"].refuse(f"more than the {len(rows)} rows that are erased")
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
        rows=len(rows),
        remembered=remembered,
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
