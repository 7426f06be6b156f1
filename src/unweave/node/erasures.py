"""An agent's erasures: their certificates, what a lost store forgot, and repeated requests.

`CertificateStore` keeps one file per certificate for ever,
`certificates/certificate-EPOCH-HOP-DIGEST.json` in the agent's folder. A file is complete or
absent, and the same certificate is the same file.

`remember` requests again what the certificates prove and the store does not hold. A store may be
lost, or restored from a backup; then the neighbours send the erasures. If all stores are lost, only
the certificates hold them. So an agent reads its certificates before it sends its first message.

`erased_before` and `asked_before` find the earlier request that a new one repeats.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from unweave.bounded import load_json, read_bytes
from unweave.node.storage.atomic import write_atomic
from unweave.protocol.certificate.format import MOST_BYTES
from unweave.protocol.certificate.unchecked import unchecked_closing, unchecked_tombstones
from unweave.protocol.ports import Store
from unweave.protocol.requests import record_intent
from unweave.protocol.state import State
from unweave.protocol.statements import CompactedErasure, Intent, Sign, Tombstone, pae
from unweave.protocol.token import requested_of

__all__ = [
    "CertificateStore",
    "Remembered",
    "asked_before",
    "certificate_files",
    "erased_before",
    "remember",
    "unremembered",
]


def certificate_files(folder: Path) -> list[Path]:
    """The certificates in a folder, in the order of their names. Links are left out: the agent
    writes none, and they may lead anywhere."""
    return sorted(p for p in folder.glob("certificate-*.json") if not p.is_symlink())


class CertificateStore:
    """The certificates in one folder, by the requests that they prove."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._index: dict[str, Path] | None = None  # request → file; None: not read yet

    def keep(self, certificate: bytes) -> Path:
        """Write the file, unless it exists. OSError if the disk refuses."""
        closing = unchecked_closing(certificate)
        epoch, _, _, hop, _ = closing["stamp"]
        name = hashlib.sha256(certificate).hexdigest()[:8]  # stamps repeat after a restore
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
            for path in certificate_files(self._folder):
                try:
                    erasures = unchecked_closing(read_bytes(path, MOST_BYTES))["erasures"]
                except (OSError, ValueError, KeyError, TypeError):
                    continue  # not a certificate of unweave: `unweave verify` says why
                self._index |= dict.fromkeys(erasures, path)
        found = self._index.get(request.hex())
        try:
            return None if found is None else found.read_bytes()
        except OSError:
            self._index = None  # the file was moved: read the folder again
            return None


_REQUEST = 16  # bytes of a request id

Mine = Callable[[bytes, bytes], bool]
"""`mine(payload, signature)`: did this agent sign exactly these bytes?"""


class Remembered(NamedTuple):
    """An erasure of this agent that a certificate proves."""

    request: bytes
    whole: bool
    rows: frozenset[bytes]
    remembered: int
    file: str


def remember(
    folder: Path, store: Store, s: State, sign: Sign, mine: Mine
) -> tuple[State, list[Remembered]]:
    """Request again, in one commit, the erasures that the certificates in `folder` prove and the
    store does not hold. They were admitted once, so no limit on requests applies."""
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
    hold. Only statements that this agent signed count."""
    if s.tomb.whole or s.tomb.departed:
        return
    known = {*s.tomb.ids, *s.known.intents, *s.own.waiting.requests}
    for path in certificate_files(folder):
        try:
            found = list(_removals(path, s, mine))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        for one in found:
            if one.request not in known:
                known.add(one.request)
                yield one


def _removals(path: Path, s: State, mine: Mine) -> Iterator[Remembered]:
    for payload, signatures in unchecked_tombstones(read_bytes(path, MOST_BYTES)):
        body = load_json(payload)
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


def _own(s: State) -> Iterator[Intent | Tombstone | CompactedErasure]:
    """All erasures of this agent: requested, carried out, compacted."""
    yield from s.own_intents()
    yield from s.own.waiting.requests.values()
    yield from (one for one in s.known.tombstones.values() if one.agent == s.me)
    for compacted in s.known.compacted.values():
        if compacted.agent == s.me:
            yield from compacted.erasures


def erased_before(s: State) -> bytes | None:
    """The request by which this agent erases, or has erased, all its data."""
    return next((one.request for one in _own(s) if one.whole), None)


def asked_before(s: State, rows: frozenset[bytes]) -> tuple[bytes | None, frozenset[bytes]]:
    """The request that covers most of these rows, and the rows that no request covers."""
    found = [(len(rows & one.rows), one.request, one.rows) for one in _own(s) if rows & one.rows]
    fresh = rows.difference(*(known for _, _, known in found))
    return (max(found)[1] if found else None), fresh
