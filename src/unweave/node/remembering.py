"""What an agent's certificates prove stays erased, even if no store remembers it.

A store may be lost, or restored from a backup; then the neighbours tell what was erased. If all
stores were lost, nobody could. The agent that asked for an erasure keeps its certificate in a file
of its own: whatever it proves and the store does not know is asked for again before the agent says
its first word.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from unweave.protocol.certificate import tombstones_of
from unweave.protocol.ids import requested_of
from unweave.protocol.records import Sign, Tombstone, pae
from unweave.protocol.requests import intend
from unweave.protocol.state import State
from unweave.protocol.store import Store

__all__ = ["Remembered", "remember", "unremembered"]

_REQUEST = 16  # bytes of an id

Mine = Callable[[bytes, bytes], bool]
"""`mine(payload, signature)`: did this agent sign exactly these bytes?"""


class Remembered(NamedTuple):
    """An erasure of this agent, out of a certificate."""

    request: bytes
    whole: bool
    rows: frozenset[bytes]
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
        intend(after, sign, one.request, one.whole, one.rows)
    store.commit(s, after)
    return after, found


def unremembered(folder: Path, s: State, mine: Mine) -> Iterator[Remembered]:
    """The erasures of this agent that the certificates in `folder` prove and its state does not
    know. Whatever this agent has not signed itself is left alone."""
    if s.tomb.whole or s.tomb.left:
        return
    known = {*s.tomb.ids, *s.intents}
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
        if body["run"] != s.terms.run.hex() or body["agent"] != s.me:
            continue
        if len(request) != _REQUEST or requested_of(request) != s.me:
            continue
        signed = pae(Tombstone.kind, payload)
        if any(mine(signed, signature) for signature in signatures):
            rows = frozenset(bytes.fromhex(row) for row in body["rows"])
            yield Remembered(request, bool(body["whole"]), rows, path.name)
