"""The one large field of a protobuf message, without a copy of it.

The library copies every field that it reads. A token of 50 MB is in a chunk, in an envelope and in
a message; what is read here instead costs nothing but a few steps per field.
"""

from __future__ import annotations

__all__ = ["last_field"]

_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}


def last_field(data: bytes, number: int) -> tuple[bytes, memoryview] | None:
    """The bytes before field `number`, and what it holds, if it is the last field of `data`, as in
    everything that is written here. None: it is not, or `data` is no message; ask the library."""
    at, end, key = 0, len(data), number << 3 | _BYTES
    while at < end:
        begun = at
        found, at = _varint(data, at)
        kind = found & 7
        if kind == _VARINT:
            _, at = _varint(data, at)
        elif kind in _FIXED:
            at += _FIXED[kind]
        elif kind == _BYTES:
            size, at = _varint(data, at)
            if found == key and size == end - at:
                return data[:begun], memoryview(data)[at:]
            at += size
        else:
            return None
    return None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends; beyond everything if it does not."""
    value = 0
    for shift, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    return 0, len(data)
