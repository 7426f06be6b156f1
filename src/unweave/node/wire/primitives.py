"""The parts of messages as protobuf: bytes fields, vectors, sets, stamps, tombstones.

Every value from outside is checked here against the network's size, so that the state machine never
meets an agent or a vector that cannot exist. Any value that does not fit raises `WireError`.

The library copies every field that it reads, and a token of 50 MB is in a chunk, an envelope and a
message: `large_field` and `last_field` write and read the one large field without a copy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain, repeat
from typing import TypeVar

import numpy as np

from unweave.errors import MissingExtra, WireError
from unweave.grid import Grid, Ints
from unweave.persistent import Bitmap, Vector
from unweave.protocol.steps import Revealed
from unweave.protocol.terms import Terms
from unweave.protocol.token import ID_BYTES, Revision, Stamp, Tomb, Tombs

__all__ = [
    "NAME_BYTES",
    "UNWRITABLE",
    "agent_of",
    "large_field",
    "last_field",
    "parsed",
    "pb",
    "read_bitmap",
    "read_enrolled",
    "read_ids",
    "read_name",
    "read_point",
    "read_revealed",
    "read_revision",
    "read_revisions",
    "read_stamp",
    "read_tombs",
    "read_vector",
    "to_bytes",
    "unwritable",
    "write_bitmap",
    "write_enrolled",
    "write_ids",
    "write_revisions",
    "write_stamp",
    "write_tombs",
    "write_vector",
    "writing",
]


try:
    from google.protobuf.message import DecodeError, EncodeError
    from google.protobuf.message import Message as Proto

    from unweave.node.wire import wire_pb2 as pb
except ImportError:
    raise MissingExtra("protobuf", "node", "the wire format") from None


_REVISION = struct.Struct("<QQ32s")
_SALT_BYTES = 16
NAME_BYTES = 32
_POINT_BYTES = 4 << 20
_POINT_VECTORS = 16  # a point is a head of at most 1 KiB and as many vectors of the grid

AnyProto = TypeVar("AnyProto", bound=Proto)


def to_bytes(message: Proto) -> bytes:
    return message.SerializeToString(deterministic=True)


def parsed(message: AnyProto, data: bytes, what: str) -> AnyProto:
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise WireError(f"{len(data)} bytes that cannot be decoded as {what}") from None
    return message


# Raised by values that do not fit their field.
UNWRITABLE = (ValueError, TypeError, OverflowError, EncodeError, struct.error)


def unwritable(what: str, error: Exception) -> WireError:
    if isinstance(error, WireError):
        return error
    return WireError(f"{what}: a value that cannot be written ({error})")


@contextmanager
def writing(what: str) -> Iterator[None]:
    try:
        yield
    except UNWRITABLE as error:
        raise unwritable(what, error) from None


def agent_of(index: int, terms: Terms) -> int:
    if index >= terms.size:
        raise WireError(f"agent number {index}: this network has {terms.size} agents")
    return index


# -------------------------------------------------------------------------------- large fields


_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}


def large_field(number: int, data: bytes | memoryview) -> tuple[bytes, bytes | memoryview]:
    """A bytes field as protobuf writes it, in two pieces: (key, length) and the data itself."""
    head, size = bytearray((number << 3 | 2,)), len(data)
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head), data


def last_field(data: bytes, number: int) -> tuple[bytes, memoryview] | None:
    """The bytes before field `number`, and its content, if it is the last field of `data`, as in
    all that is written here. None: it is not, or `data` is no message; the library decides."""
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
    """A number and its end; the end of `data` if the number does not end."""
    value = 0
    for shift, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    return 0, len(data)


# ------------------------------------------------------------------------------------- vectors


def write_vector(units: Ints) -> memoryview:
    return np.ascontiguousarray(units, dtype="<i8").data.cast("B")


def read_vector(data: bytes, grid: Grid) -> Ints:
    if len(data) != 8 * grid.dim:
        raise WireError(f"a vector of {len(data)} bytes: expected {8 * grid.dim}")
    return np.frombuffer(data, dtype="<i8").astype(np.int64, copy=False)


def read_revealed(salt: bytes, units: bytes, audit: bytes | None, terms: Terms) -> Revealed:
    if len(salt) != _SALT_BYTES:
        raise WireError(f"a salt of {len(salt)} bytes: expected {_SALT_BYTES}")
    audited = None if audit is None else read_vector(audit, terms.grid)
    return Revealed(salt, read_vector(units, terms.grid), audited)


def write_revisions(included: Sequence[Revision]) -> bytes:
    for revision in included:
        if len(revision.commitment) != 32:  # struct would pad or cut it
            raise WireError(f"a commitment of {len(revision.commitment)} bytes: expected 32")
    return struct.pack("<" + "QQ32s" * len(included), *chain.from_iterable(included))


def read_revision(data: bytes) -> Revision:
    if len(data) != _REVISION.size:
        raise WireError(f"a revision of {len(data)} bytes: expected {_REVISION.size}")
    return Revision(*_REVISION.unpack(data))


def read_revisions(data: bytes, terms: Terms) -> tuple[Vector[Revision], Bitmap]:
    """One revision per agent, and the bitmap of the included agents, which is derived from the
    revisions, so that the two cannot disagree."""
    if len(data) != _REVISION.size * terms.size:
        raise WireError(f"{len(data)} bytes of revisions: expected {_REVISION.size * terms.size}")
    return _revisions(data)


@lru_cache(maxsize=2)  # most hops change no revision
def _revisions(data: bytes) -> tuple[Vector[Revision], Bitmap]:
    # tuple.__new__ instead of Revision: 10⁴ revisions are made in C.
    revisions = map(tuple.__new__, repeat(Revision), _REVISION.iter_unpack(data))
    counters = np.frombuffer(data, dtype="<u8")[:: _REVISION.size // 8]
    inside = np.packbits(counters != 0, bitorder="little").tobytes()
    return Vector(revisions), Bitmap.of(int.from_bytes(inside, "little"))


# ---------------------------------------------------------------------------------------- sets


def write_bitmap(agents: Bitmap) -> bytes:
    bits = int(agents)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def read_bitmap(data: bytes, terms: Terms) -> Bitmap:
    bitmap = int.from_bytes(data[: terms.size // 8 + 2], "little")
    if len(data) > terms.size // 8 + 1 or bitmap >> terms.size:
        raise WireError(f"a set of agents beyond number {terms.size - 1}")
    return Bitmap.of(bitmap)


def write_ids(ids: Iterable[bytes]) -> bytes:
    ordered = sorted(ids)
    for request in ordered:
        if len(request) != ID_BYTES:
            raise WireError(f"request id {request.hex()}: must have {ID_BYTES} bytes")
    return b"".join(ordered)


def read_ids(data: bytes) -> frozenset[bytes]:
    if not data:
        return frozenset()
    if len(data) % ID_BYTES:
        raise WireError(f"{len(data)} bytes of request ids: not a multiple of {ID_BYTES}")
    return frozenset(data[at : at + ID_BYTES] for at in range(0, len(data), ID_BYTES))


# -------------------------------------------------------------------------------------- stamps


def write_stamp(stamp: Stamp) -> pb.Stamp:
    epoch, initiator, incarnation, hop, sender = stamp
    return pb.Stamp(
        epoch=epoch, initiator=initiator, incarnation=incarnation, hop=hop, sender=sender
    )


def read_stamp(stamp: pb.Stamp | Stamp, terms: Terms) -> Stamp:
    initiator = agent_of(stamp.initiator, terms)
    read = Stamp(stamp.epoch, initiator, stamp.incarnation, stamp.hop, stamp.sender)
    if not read.is_possible:
        raise WireError(f"a stamp with epoch {read.epoch}, hop {read.hop}: beyond the limits")
    return read


# ---------------------------------------------------------------------------------- tombstones


def write_tombs(tombs: Tombs) -> list[pb.Tomb]:
    return [
        pb.Tomb(
            agent=agent,
            ids=write_ids(tomb.open),
            whole=tomb.whole,
            departed=tomb.departed,
            compacted=write_ids(tomb.compacted),
        )
        for agent, tomb in sorted(tombs.items())
    ]


def read_tombs(tombs: Iterable[pb.Tomb], terms: Terms) -> Tombs:
    read: dict[int, Tomb] = {}
    for tomb in tombs:
        agent = agent_of(tomb.agent, terms)
        compacted = read_ids(tomb.compacted)
        known = Tomb(read_ids(tomb.ids) | compacted, tomb.whole, tomb.departed, compacted)
        read[agent] = known.union(read[agent]) if agent in read else known
    return read


# -------------------------------------------------------------------------------- private rounds


def write_enrolled(enrolled: Mapping[int, int]) -> list[pb.Enrolled]:
    return [pb.Enrolled(agent=k, incarnation=one) for k, one in sorted(enrolled.items())]


def read_enrolled(sent: Sequence[pb.Enrolled], terms: Terms) -> dict[int, int]:
    read = {agent_of(one.agent, terms): one.incarnation for one in sent}
    if len(read) != len(sent):
        raise WireError(f"{len(sent)} enrolments of {len(read)} agents")
    return read


def read_name(data: bytes) -> bytes:
    """The name of a private round, or nothing."""
    if len(data) not in (0, NAME_BYTES):
        raise WireError(f"a name of {len(data)} bytes for a private round")
    return data


def read_point(point: bytes, terms: Terms) -> bytes:
    most = min(_POINT_BYTES, 1024 + 8 * _POINT_VECTORS * terms.grid.dim)
    if len(point) > most:
        raise WireError(f"a point of {len(point)} bytes: at most {most}")
    return point
