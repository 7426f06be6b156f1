"""Which of its records an owner finds in a certificate: only its key can tell."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable

from unweave.node.identity import Identity

__all__ = ["erased_keys"]


def erased_keys(certificate: bytes, owner: Identity, keys: Iterable[str]) -> list[str]:
    """Those of `keys` whose records this certificate, which must have been verified, erases one by
    one. A tombstone names records by commitments that the owner alone can compute."""
    rows: set[str] = set()
    for envelope in json.loads(certificate)["tombstones"]:
        rows.update(json.loads(base64.b64decode(envelope["payload"]))["rows"])
    return [key for key in keys if owner.commit(key).hex() in rows]
