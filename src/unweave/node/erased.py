"""Which of its records an owner finds in a certificate: only its key can tell."""

from __future__ import annotations

import json
from collections.abc import Iterable

from unweave.node.identity import Identity
from unweave.protocol.certificate import tombstones_of

__all__ = ["erased_keys"]


def erased_keys(certificate: bytes, owner: Identity, keys: Iterable[str]) -> list[str]:
    """Those of `keys` whose records this certificate, which must have been verified, erases one by
    one. A tombstone names records by commitments that the owner alone can compute."""
    rows: set[str] = set()
    for payload, _ in tombstones_of(certificate):
        rows.update(json.loads(payload)["rows"])
    return [key for key in keys if owner.commit(key).hex() in rows]
