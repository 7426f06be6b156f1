"""What a certificate says, without any check: no signature, no form. For certificates that this
agent wrote or that a check accepted before, and for indexes of files. `verify` checks.

KeyError, TypeError or ValueError if the bytes are no certificate.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from unweave.bounded import load_json

__all__ = [
    "unchecked_closing",
    "unchecked_payloads",
    "unchecked_requests",
    "unchecked_tombstones",
]


def unchecked_closing(certificate: bytes) -> dict[str, Any]:
    """The statement of the closing agent."""
    payload = base64.b64decode(load_json(certificate)["closing"]["payload"])
    predicate: dict[str, Any] = load_json(payload)["predicate"]
    return predicate


def unchecked_payloads(certificate: bytes) -> Iterator[bytes]:
    """The bytes of every document inside."""
    file = load_json(certificate)
    for envelope in (file["attestation"], file["closing"], *file["tombstones"], *file["votes"]):
        yield base64.b64decode(envelope["payload"])


def unchecked_tombstones(certificate: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    """The bytes of each tombstone, and their signatures."""
    for envelope in load_json(certificate)["tombstones"]:
        signatures = [base64.b64decode(one["sig"]) for one in envelope["signatures"]]
        yield base64.b64decode(envelope["payload"]), signatures


def unchecked_requests(certificate: bytes) -> frozenset[bytes]:
    """The requests whose erasure it claims to prove."""
    claimed = unchecked_closing(certificate)["erasures"]
    return frozenset(bytes.fromhex(request) for request in claimed)
