"""What was asked before: an erasure that is asked for again is the one that was asked first."""

from __future__ import annotations

from collections.abc import Iterator

from unweave.protocol.chapters import Filed
from unweave.protocol.records import Intent, Tombstone
from unweave.protocol.state import State

__all__ = ["asked_before", "erased_before"]


def _own(s: State) -> Iterator[Intent | Tombstone | Filed]:
    """All erasures of this agent: asked for, carried out, put away."""
    yield from s.own_intents()
    yield from (record for record in s.tombstones.values() if record.agent == s.me)
    for chapter in s.chapters.values():
        if chapter.agent == s.me:
            yield from chapter.filed


def erased_before(s: State) -> bytes | None:
    """The request by which this agent erases, or has erased, itself."""
    return next((one.request for one in _own(s) if one.whole), None)


def asked_before(s: State, rows: frozenset[bytes]) -> tuple[bytes | None, frozenset[bytes]]:
    """The request that covers most of these rows, and those that no request covers."""
    found = [(len(rows & one.rows), one.request, one.rows) for one in _own(s) if rows & one.rows]
    fresh = rows.difference(*(known for _, _, known in found))
    return (max(found)[1] if found else None), fresh
