"""Limits on messages, and envelopes in chunks.

`Limits` bounds size, number and duration of messages. `split` and `Assembly` turn an envelope into
`Chunk`s and back; the first chunk announces the size of the whole.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from unweave.errors import WireError
from unweave.node.wire.primitives import large_field, last_field, parsed, pb, to_bytes
from unweave.protocol.terms import Terms

__all__ = ["CHUNK", "Assembly", "Limits", "Oversize", "split"]


CHUNK = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What a neighbour may send, and how long this agent waits for a neighbour."""

    message: int  # bytes of the largest envelope
    incoming: int = 8  # messages from one neighbour at a time
    outgoing: int = 8  # messages to one neighbour at a time; further ones wait
    unknown_peers: int = 64  # connections on which no neighbour has called; each has 3 descriptors
    connect: float = 3.0  # seconds to open a connection
    handshake: float = 5.0  # seconds to complete the TLS handshake
    idle: float = 10.0  # seconds between two chunks
    reply: float = 10.0  # seconds to handle a complete message
    rate: float = 2.0**17  # bytes per second of the slowest useful link
    grace: float = 2.0  # seconds for messages under way when the agent stops
    work: float = 0.1  # seconds of processor time per second for useless messages of a neighbour
    work_burst: float = 5.0  # seconds of it at once
    pause: float = 0.2  # seconds for which the call of a neighbour that has used it up is held
    backoff: tuple[float, float] = (0.1, 2.0)  # seconds between connections: first, longest

    def deadline(self, size: int) -> float:
        """Seconds for a message of this size, from the first byte to its answers."""
        return self.idle + self.reply + size / self.rate

    @classmethod
    def of(cls, terms: Terms, **changes: Any) -> Limits:
        """Room for the largest token of a network: its vectors; per agent a revision, a signature
        and its part of the evidence; and the tombstones of many records."""
        vectors = 8 * (4 * terms.grid.dim + terms.frozen_grid.dim)
        return cls(**{"message": vectors + (8 << 10) * terms.size + (64 << 20), **changes})


class Oversize(WireError):
    """A message that is larger than the limit, or than it announced."""


def split(data: bytes, size: int = CHUNK) -> Iterator[bytes]:
    """`data` as encoded `Chunk`s, one at a time: a message of 50 MB is never held twice."""
    view = memoryview(data)
    head = to_bytes(pb.Chunk(total=len(data)))
    for start in range(0, len(data), size):
        piece = view[start : start + size]
        yield b"".join((head, *large_field(pb.Chunk.DATA_FIELD_NUMBER, piece)))
        head = b""


class Assembly:
    """Joins the chunks of one envelope; a chunk that does not fit is a WireError."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0  # 0: not announced yet
        self.size = 0
        self._buffer = io.BytesIO()

    def add(self, raw: bytes) -> None:
        total, data = _read(raw)
        if self.total == 0:
            self.total = total
            if self.total == 0:
                raise WireError("the first chunk does not announce the size of the message")
            if self.total > self.limit:
                raise Oversize(f"a message of {self.total} bytes exceeds the limit, {self.limit}")
            # All at once: a growing buffer would be copied, and untouched pages cost nothing.
            self._buffer = io.BytesIO(bytes(self.total))
        elif total:
            raise WireError("a later chunk announces a size")
        if not data:
            raise WireError("an empty chunk")
        self.size += len(data)
        if self.size > self.total:
            raise Oversize(f"the message is longer than the announced {self.total} bytes")
        self._buffer.write(data)

    @property
    def complete(self) -> bool:
        return 0 < self.total == self.size

    def take(self) -> bytes:
        """The envelope, without copying it; the assembly is empty afterwards."""
        buffer, self._buffer = self._buffer, io.BytesIO()
        return buffer.getvalue()


def _read(raw: bytes) -> tuple[int, bytes | memoryview]:
    """(total, data) of a Chunk."""
    found = last_field(raw, pb.Chunk.DATA_FIELD_NUMBER)
    chunk = parsed(pb.Chunk(), raw if found is None else found[0], "chunk")
    return chunk.total, chunk.data if found is None else found[1]
