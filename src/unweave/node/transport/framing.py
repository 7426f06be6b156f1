"""How large, how many and how slow messages may be."""

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
    """What a neighbour may ask of this agent, and how long this agent waits for a neighbour."""

    message: int  # bytes of the largest envelope
    incoming: int = 8  # messages of one neighbour at a time
    outgoing: int = 8  # messages to one neighbour at a time; further ones wait
    strangers: int = 128  # connections beyond those that the neighbours need
    connect: float = 3.0  # seconds to open a connection
    handshake: float = 5.0  # seconds for a stranger to prove that it is a neighbour
    idle: float = 10.0  # seconds between two chunks
    reply: float = 10.0  # seconds to take a complete message
    rate: float = 2.0**17  # bytes per second of the slowest useful link
    grace: float = 2.0  # seconds for messages under way when the agent stops
    backoff: tuple[float, float] = (0.1, 2.0)  # seconds between connections: first, longest

    def deadline(self, size: int) -> float:
        """Seconds for a message of this size, from the first byte to its answers."""
        return self.idle + self.reply + size / self.rate

    @classmethod
    def of(cls, terms: Terms, **changes: Any) -> Limits:
        """Room for the largest token of a network: three vectors; per agent a revision, a signature
        and its share of the evidence; and for the tombstones of many records."""
        vectors = 3 * 8 * terms.grid.dim
        return cls(**{"message": vectors + (8 << 10) * terms.size + (64 << 20), **changes})


# ------------------------------------------------------------------------------
# An envelope in chunks, and back. The first chunk announces the size of the whole.


class Oversize(WireError):
    """More bytes than the network's messages can have, or than were announced."""


def split(data: bytes, size: int = CHUNK) -> Iterator[bytes]:
    """`data` as encoded `Chunk`s, one at a time: a message of 50 MB is never held twice."""
    view = memoryview(data)
    head = to_bytes(pb.Chunk(total=len(data)))
    for start in range(0, len(data), size):
        piece = view[start : start + size]
        yield b"".join((head, *large_field(pb.Chunk.DATA_FIELD_NUMBER, piece)))
        head = b""


class Assembly:
    """Puts an envelope together; anything that cannot become one is a WireError at once."""

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
                raise WireError("the first chunk does not say how long the message is")
            if self.total > self.limit:
                raise Oversize(
                    f"a message of {self.total} bytes: in this network the limit is {self.limit}"
                )
            # All of it at once, and no growing: untouched pages cost nothing until they are filled.
            self._buffer = io.BytesIO(bytes(self.total))
        elif total:
            raise WireError("a later chunk announces a size again")
        if not data:
            raise WireError("an empty chunk")
        self.size += len(data)
        if self.size > self.total:
            raise Oversize(f"more than the {self.total} bytes that were announced")
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
