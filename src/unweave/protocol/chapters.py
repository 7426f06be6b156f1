"""Chapters: erasures that their agent holds certificates for, put away in a few bytes each.

The signed evidence of an erasure is large. It is needed until the agent that asked has its
certificate; after that the network only has to remember that the request was made, so that nothing
of it comes back, and which rows it covered, so that an agent whose disk was restored from a backup
drops them again. A chapter says that about many requests at once, in its agent's signed word.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

from unweave.protocol.ids import ID_BYTES, request_id
from unweave.protocol.records import Record, Sign, Tombstone, pae
from unweave.protocol.tombs import Tomb, Tombs

__all__ = ["Chapter", "Filed", "tombs_of"]

_RUN = 32
_HEAD = _RUN + 4
_WHOLE, _RETRAIN = 1, 2


class Filed(NamedTuple):
    """What is remembered of one erasure."""

    request: bytes
    whole: bool
    retrain: bool
    rows: frozenset[bytes]


class Chapter(Record):
    """Erasures of one agent, in binary: JSON would take twice the room for ever.

    run (32 bytes) · agent (4) · then for each request, in order: the 12 bytes of its id after the
    agent's number · flags (1: whole, 2: retrain) · number of rows (4) · each row's commitment after
    its length (1). Numbers are big-endian.
    """

    kind = "application/vnd.unweave.chapter"

    @classmethod
    def put_away(
        cls, author: int, sign: Sign, run: bytes, erasures: Iterable[Tombstone | Filed]
    ) -> Chapter:
        """The chapter of an agent's own erasures."""
        parts = [run, author.to_bytes(4, "big")]
        for one in sorted(erasures, key=lambda one: one.request):
            flags = _WHOLE * one.whole + _RETRAIN * one.retrain
            parts += [one.request[4:], bytes([flags]), len(one.rows).to_bytes(4, "big")]
            parts += [bytes([len(row)]) + row for row in sorted(one.rows)]
        raw = b"".join(parts)
        return cls(raw, author, sign(pae(cls.kind, raw)))

    @cached_property
    def filed(self) -> tuple[Filed, ...]:
        """The requests; ValueError if the bytes are anything but a chapter."""
        reader = _Reader(self.raw)
        reader.take(_HEAD)
        found: list[Filed] = []
        while not reader.done:
            request = request_id(self.agent, reader.take(ID_BYTES - 4))
            flags, count = reader.number(1), reader.number(4)
            rows = [reader.take(reader.number(1)) for _ in range(count)]
            if flags > _WHOLE + _RETRAIN or rows != sorted(set(rows)):
                raise ValueError("the chapter is not in the one form it has")
            whole, retrain = bool(flags & _WHOLE), bool(flags & _RETRAIN)
            found.append(Filed(request, whole, retrain, frozenset(rows)))
        requests = [entry.request for entry in found]
        if not found or requests != sorted(set(requests)):
            raise ValueError("the chapter's requests are not in order")
        return tuple(found)

    @property
    def agent(self) -> int:
        return int.from_bytes(self.raw[_RUN:_HEAD], "big")

    @cached_property
    def ids(self) -> frozenset[bytes]:
        return frozenset(entry.request for entry in self.filed)

    @cached_property
    def generation(self) -> frozenset[bytes]:
        return frozenset(entry.request for entry in self.filed if entry.retrain)

    @cached_property
    def rows(self) -> frozenset[bytes]:
        return frozenset(row for entry in self.filed for row in entry.rows)

    @cached_property
    def tomb(self) -> Tomb:
        whole = any(entry.whole for entry in self.filed)
        return Tomb(self.ids, whole=whole, filed=self.ids)

    @cached_property
    def body(self) -> dict[str, Any]:
        return {"run": self.raw[:_RUN].hex(), "agent": self.agent, "requests": len(self.filed)}


class _Reader:
    """Takes bytes from the front; never more than there are."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at == len(self._raw)

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._raw):
            raise ValueError("the chapter ends too early")
        found = self._raw[self._at : end]
        self._at = end
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")


def tombs_of(chapters: Iterable[Chapter]) -> Tombs:
    """What these chapters say is erased."""
    by_agent: dict[int, list[Tomb]] = {}
    for chapter in chapters:
        by_agent.setdefault(chapter.agent, []).append(chapter.tomb)
    tombs = {}
    for agent, parts in by_agent.items():
        ids = frozenset().union(*(part.ids for part in parts))
        tombs[agent] = Tomb(ids, whole=any(part.whole for part in parts), filed=ids)
    return tombs
