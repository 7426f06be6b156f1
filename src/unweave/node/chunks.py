"""An envelope in chunks, and back. The first chunk announces the size of the whole."""

from __future__ import annotations

import io
from collections.abc import Iterator

from unweave.errors import WireError
from unweave.node.fields import last_field
from unweave.node.limits import CHUNK
from unweave.node.parts import large_field, parsed, pb, to_bytes

__all__ = ["Assembly", "Oversize", "split"]


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
