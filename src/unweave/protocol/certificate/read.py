"""Strict reading: bytes that others wrote become the models of `format`, or are refused.

A certificate has one reading or none. Every refusal names the place of the first error. A signature
counts only if the manifest pins its key for an agent and it covers exactly the bytes that are read.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import ValidationError

from unweave.bounded import load_json
from unweave.errors import NotACertificate, NotCertified
from unweave.protocol.certificate.format import (
    FORMAT,
    FORMS,
    MOST_BYTES,
    Certificate,
    Envelope,
    ReceiptBody,
    RecordBody,
    Statement,
    Strict,
    TombstoneBody,
    TombstoneEnvelope,
    VoteBody,
    VoteEnvelope,
)
from unweave.protocol.statements import Receipt, pae
from unweave.protocol.terms import Terms
from unweave.text import clip

__all__ = ["Check", "EnvelopeReader", "Evidence", "Signed", "parse", "read_file"]

Check = Callable[[int, bytes, bytes], bool]
"""`check(agent, payload, signature)`: did this agent's pinned key sign exactly these bytes?"""

Body = TypeVar("Body", bound=Statement | RecordBody)
Model = TypeVar("Model", bound=Strict)


# ---------------------------------------------------------------------------------------- JSON


def parse(model: type[Model], value: object, place: str) -> Model:
    """The value (or the JSON document in these bytes) as a model, or `NotCertified`."""
    try:
        if isinstance(value, bytes):
            value = load_json(value)
        return model.model_validate(value)
    except ValidationError as error:
        raise NotCertified(_first_error(error, place)) from None
    except ValueError as error:
        raise NotCertified(f"{place}: not JSON: {error}") from None


_EXPECTED = {
    "model_type": "an object",
    "dict_type": "an object",
    "list_type": "a list",
    "string_type": "a text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "greater_than_equal": "a number from 0 up",
    "less_than": "a number below 2^64",
}


def _first_error(error: ValidationError, place: str) -> str:
    """The first error of pydantic in our words: the place, then what was expected there."""
    first = error.errors(include_url=False, include_input=False)[0]
    kind, context, path = first["type"], first.get("ctx", {}), list(first["loc"])
    if kind in ("missing", "extra_forbidden"):
        key = path.pop()
        why = f"{key} is missing" if kind == "missing" else f"unknown key {clip(repr(key), 80)}"
    elif kind in ("too_short", "too_long"):
        why = f"expected a list of {context.get('min_length', context.get('max_length'))}"
    elif kind == "string_too_long":
        why = f"expected at most {context['max_length']} characters"
    elif kind == "string_pattern_mismatch":
        why = f"expected {FORMS[context['pattern']]}"
    elif kind == "literal_error":
        why = f"expected {context['expected']}"
    else:
        why = f"expected {_EXPECTED[kind]}" if kind in _EXPECTED else first["msg"]
    if path[:1] == ["predicate"]:  # the place of a statement's content is that of the statement
        path = path[1:]
    if path[-1:] == ["[key]"]:  # pydantic's mark of an error in a key
        path.pop()
    return f"{place}{''.join(map(_step, path))}: {why}"


def _step(step: str | int) -> str:
    plain = isinstance(step, str) and re.fullmatch(r"[\w-]+", step)
    return clip(f".{step}" if plain else f"[{step!r}]", 80)


def read_file(raw: bytes) -> Certificate:
    """The parts of a certificate. A damaged certificate is told from a file that never was one."""
    fix = "Fix: give the file that `unweave forget` wrote"
    if len(raw) > MOST_BYTES:
        raise NotACertificate(f"not a certificate: larger than {MOST_BYTES} bytes. {fix}")
    try:
        value = load_json(raw)
    except ValueError as error:
        if FORMAT.encode() in raw or raw.startswith(b'{"attestation":'):
            raise NotCertified(f"the file is damaged: {error}") from None
        raise NotACertificate(f"not a certificate: {_not_json(raw, error)}. {fix}") from None
    if not isinstance(value, dict) or not {"attestation", "closing"} & value.keys():
        raise NotACertificate(
            f"not a certificate: the file has neither an attestation nor a closing. {fix}"
        )
    return parse(Certificate, value, "certificate")


def _not_json(raw: bytes, error: ValueError) -> str:
    """Why these bytes are no JSON, for somebody who gave another file."""
    if not raw.strip():
        return "the file is empty"
    if isinstance(error, UnicodeDecodeError):
        return "the file is not text"
    if isinstance(error, json.JSONDecodeError):
        return f"the file is not JSON (from line {error.lineno} on)"
    return f"the file is not plain JSON: {error}"


# -------------------------------------------------------------------------- envelopes, records


@dataclass(frozen=True)
class Signed(Generic[Body]):
    """The document in an envelope, and the agents that signed it."""

    place: str
    body: Body
    digest: str  # SHA-256 of the signed bytes
    signers: tuple[int, ...]


@dataclass(frozen=True)
class Evidence:
    """What agents signed one by one."""

    tombstones: Mapping[str, Signed[TombstoneBody]]  # by request
    receipts: Mapping[str, ReceiptBody]  # by request
    votes: Mapping[str, Mapping[int, str]]  # target's name → voter → request
    digests: list[str]  # of every tombstone and vote, in order


class EnvelopeReader:
    """Opens envelopes under one manifest: `terms` are its terms, `check` knows the keys it pins."""

    def __init__(self, terms: Terms, check: Check) -> None:
        self._terms = terms
        self._check = check
        self._agents = {terms.keyid(k): k for k in range(terms.size)}

    def open(self, envelope: Envelope, body: type[Body], place: str) -> Signed[Body]:
        """The document in this envelope; every signature must hold, in the manifest's order."""
        payload = base64.b64decode(envelope.payload)
        document = parse(body, payload, place)
        run = self._terms.network_id.hex()
        if document.network_id != run:
            raise NotCertified(
                f"{place}: made under another manifest: its digest is {document.network_id}, "
                f"the digest of the given file is {run}. Fix: give the network.toml that this "
                "network was started with"
            )
        signed = pae(envelope.payloadType, payload)
        signers: list[int] = []
        for one in envelope.signatures:
            agent = self._agents.get(one.keyid)
            if agent is None:
                raise NotCertified(f"{place}: the manifest pins no key {one.keyid!r}")
            if signers and agent <= signers[-1]:
                raise NotCertified(f"{place}: signatures repeat or leave the manifest's order")
            self._verify(agent, signed, base64.b64decode(one.sig), place)
            signers.append(agent)
        return Signed(place, document, hashlib.sha256(payload).hexdigest(), tuple(signers))

    def _verify(self, agent: int, signed: bytes, signature: bytes, place: str) -> None:
        if not self._check(agent, signed, signature):
            raise NotCertified(
                f"{place}: the signature of agent {self._terms.name(agent)} does not hold: the "
                "bytes were altered, or another key signed them"
            )

    def tombstone(
        self, envelope: Envelope, place: str
    ) -> tuple[Signed[TombstoneBody], ReceiptBody]:
        """An owner's tombstone, and the receipt of the visit that removed the data."""
        found = self.open(envelope, TombstoneBody, place)
        body, (author,) = found.body, found.signers
        self._check_agent(body, place)
        if body.agent != author:
            raise NotCertified(
                f"{place}: about agent {body.name}, but signed by agent "
                f"{self._terms.name(author)}: only the owner can erase its data"
            )
        if body.whole == bool(body.rows):
            wanted = "no row beside the whole agent" if body.whole else "at least one row"
            raise NotCertified(f"{place}.rows: expected {wanted}")
        if body.remembered > len(body.rows):
            raise NotCertified(f"{place}.remembered: more than the {len(body.rows)} erased rows")
        raw, where = body.receipt.encode(), f"{place}.receipt"
        signature = bytes.fromhex(body.receipt_signature)
        self._verify(author, pae(Receipt.kind, raw), signature, where)
        receipt = parse(ReceiptBody, raw, where)
        if receipt.network_id != body.network_id or receipt.agent != author:
            raise NotCertified(f"{where}: about another agent or another network")
        if receipt.request != body.request:
            raise NotCertified(f"{where}.request: not the tombstone's request, {body.request}")
        if (body.whole or body.retrain) and any(receipt.after):
            raise NotCertified(f"{where}: the visit did not take the agent out of the token")
        return found, receipt

    def vote(self, envelope: Envelope, place: str) -> Signed[VoteBody]:
        """One agent's vote that another has departed."""
        found = self.open(envelope, VoteBody, place)
        self._check_agent(found.body, place)
        if found.body.agent in found.signers:
            raise NotCertified(f"{place}: agent {found.body.name} cannot vote about itself")
        return found

    def _check_agent(self, body: RecordBody, place: str) -> None:
        """The manifest has an agent of this number and name."""
        if body.agent >= self._terms.size:
            raise NotCertified(f"{place}.agent: the manifest has {self._terms.size} agents")
        name = self._terms.name(body.agent)
        if body.name != name:
            raise NotCertified(f"{place}.name: agent {body.agent} is named {name!r}")

    def evidence(
        self, tombstones: Sequence[TombstoneEnvelope], votes: Sequence[VoteEnvelope]
    ) -> Evidence:
        """Every tombstone and vote, each in its order."""
        removals = [
            self.tombstone(one, f"certificate.tombstones[{k}]") for k, one in enumerate(tombstones)
        ]
        owned = [(one.body.agent, one.body.request) for one, _ in removals]
        by_request = {one.body.request: one for one, _ in removals}
        if owned != sorted(owned) or len(by_request) != len(owned):
            raise NotCertified(
                "certificate.tombstones: repeated, or not in the order of agents and requests"
            )
        cast = [self.vote(one, f"certificate.votes[{k}]") for k, one in enumerate(votes)]
        pairs = [(one.body.agent, *one.signers) for one in cast]
        if pairs != sorted(set(pairs)):
            raise NotCertified(
                "certificate.votes: repeated, or not in the order of agents and voters"
            )
        asked: dict[str, dict[int, str]] = {}
        for one in cast:
            asked.setdefault(one.body.name, {})[one.signers[0]] = one.body.request
        return Evidence(
            tombstones=by_request,
            receipts={one.body.request: receipt for one, receipt in removals},
            votes=asked,
            digests=[one.digest for one, _ in removals] + [one.digest for one in cast],
        )
