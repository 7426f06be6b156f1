"""Where an agent keeps the certificates of what was asked of it: one file each, for good.

`certificates/certificate-EPOCH-HOP-DIGEST.json` in the agent's folder. A file is whole or not
there, and the same certificate is the same file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from unweave.node.storage.atomic import write_atomic
from unweave.protocol.certificate.write import closing_of, tombstones_of
from unweave.protocol.ports import Store
from unweave.protocol.requests import record_intent
from unweave.protocol.state import State
from unweave.protocol.statements import CompactedErasure, Intent, Sign, Tombstone, pae
from unweave.protocol.token import requested_of

__all__ = [
    "CertificateStore",
    "Remembered",
    "asked_before",
    "erased_before",
    "remember",
    "unremembered",
]


class CertificateStore:
    """The certificates in one folder, by the requests that they prove."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._index: dict[str, Path] | None = None  # request → file; None: not looked yet

    def keep(self, certificate: bytes) -> Path:
        """Write the file, unless it is there. OSError if the disk refuses."""
        closing = closing_of(certificate)
        epoch, _, _, hop, _ = closing["stamp"]
        name = hashlib.sha256(certificate).hexdigest()[:8]  # stamps come again after a restore
        path = self._folder / f"certificate-{epoch}-{hop}-{name}.json"
        if not path.exists():
            self._folder.mkdir(mode=0o700, exist_ok=True)
            write_atomic(path, certificate)
        if self._index is not None:
            self._index |= dict.fromkeys(closing["erasures"], path)
        return path

    def find(self, request: bytes) -> bytes | None:
        """The certificate that proves this request."""
        if self._index is None:
            self._index = {}
            for path in sorted(self._folder.glob("certificate-*.json")):
                try:
                    erasures = closing_of(path.read_bytes())["erasures"]
                except (OSError, ValueError, KeyError, TypeError):
                    continue  # somebody else's file: `unweave verify` says what is wrong with it
                self._index |= dict.fromkeys(erasures, path)
        found = self._index.get(request.hex())
        try:
            return None if found is None else found.read_bytes()
        except OSError:
            self._index = None  # it was moved away: look again
            return None


# ------------------------------------------------------------------------------
# What an agent's certificates prove stays erased, even if no store remembers it.
#
# A store may be lost, or restored from a backup; then the neighbours tell what was erased. If all
# stores were lost, nobody could. The agent that asked for an erasure keeps its certificate in a
# file of its own: whatever it proves and the store does not know is asked for again before the
# agent says its first word.

_REQUEST = 16  # bytes of an id

Mine = Callable[[bytes, bytes], bool]
"""`mine(payload, signature)`: did this agent sign exactly these bytes?"""


class Remembered(NamedTuple):
    """An erasure of this agent, out of a certificate."""

    request: bytes
    whole: bool
    rows: frozenset[bytes]
    remembered: int
    file: str


def remember(
    folder: Path, store: Store, s: State, sign: Sign, mine: Mine
) -> tuple[State, list[Remembered]]:
    """Ask again for what the certificates in `folder` prove and the store does not know: all of it
    in one commit. It was admitted once, so no limit on requests applies to it."""
    found = list(unremembered(folder, s, mine))
    if not found:
        return s, found
    after = s.fork()
    for one in found:
        record_intent(after, sign, one.request, one.whole, one.rows, one.remembered)
    store.commit(s, after)
    return after, found


def unremembered(folder: Path, s: State, mine: Mine) -> Iterator[Remembered]:
    """The erasures of this agent that the certificates in `folder` prove and its state does not
    know. Whatever this agent has not signed itself is left alone."""
    if s.tomb.whole or s.tomb.departed:
        return
    known = {*s.tomb.ids, *s.known.intents}
    for path in sorted(folder.glob("certificate-*.json")):
        try:
            found = list(_removals(path, s, mine))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        for one in found:
            if one.request not in known:
                known.add(one.request)
                yield one


def _removals(path: Path, s: State, mine: Mine) -> Iterator[Remembered]:
    for payload, signatures in tombstones_of(path.read_bytes()):
        body = json.loads(payload)
        request = bytes.fromhex(body["request"])
        if body["network_id"] != s.terms.network_id.hex() or body["agent"] != s.me:
            continue
        if len(request) != _REQUEST or requested_of(request) != s.me:
            continue
        signed = pae(Tombstone.kind, payload)
        if any(mine(signed, signature) for signature in signatures):
            rows = frozenset(bytes.fromhex(row) for row in body["rows"])
            remembered = int(body["remembered"])
            yield Remembered(request, bool(body["whole"]), rows, remembered, path.name)


# ------------------------------------------------------------------------------
# What was asked before: an erasure that is asked for again is the one that was asked first.


def _own(s: State) -> Iterator[Intent | Tombstone | CompactedErasure]:
    """All erasures of this agent: asked for, carried out, put away."""
    yield from s.own_intents()
    yield from (record for record in s.known.tombstones.values() if record.agent == s.me)
    for chapter in s.known.compacted.values():
        if chapter.agent == s.me:
            yield from chapter.erasures


def erased_before(s: State) -> bytes | None:
    """The request by which this agent erases, or has erased, itself."""
    return next((one.request for one in _own(s) if one.whole), None)


def asked_before(s: State, rows: frozenset[bytes]) -> tuple[bytes | None, frozenset[bytes]]:
    """The request that covers most of these rows, and those that no request covers."""
    found = [(len(rows & one.rows), one.request, one.rows) for one in _own(s) if rows & one.rows]
    fresh = rows.difference(*(known for _, _, known in found))
    return (max(found)[1] if found else None), fresh
