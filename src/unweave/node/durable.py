"""The durable parts of a state that are stored as one value each, as bytes and back."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from unweave.errors import WireError
from unweave.node.codec import read_rest, write_rest
from unweave.node.parts import (
    parsed,
    pb,
    read_stamp,
    read_tombs,
    to_bytes,
    unwritable,
    write_tombs,
    writing,
)
from unweave.protocol.ids import Stamp
from unweave.protocol.messages import Rest
from unweave.protocol.terms import Terms
from unweave.protocol.tombs import Tombs, open_tombs

__all__ = [
    "decode_rest",
    "decode_set",
    "decode_stamp",
    "decode_tombs",
    "encode_rest",
    "encode_set",
    "encode_stamp",
    "encode_tombs",
]


_STAMP = struct.Struct("<QIQQQ")


def encode_stamp(stamp: Stamp) -> bytes:
    """Plain numbers: three of them are written in every step."""
    try:
        return _STAMP.pack(*stamp)
    except struct.error as error:
        raise unwritable("stamp", error) from None


def decode_stamp(data: bytes, terms: Terms) -> Stamp:
    try:
        return read_stamp(Stamp(*_STAMP.unpack(data)), terms)
    except struct.error:
        raise WireError(f"a stamp of {len(data)} bytes") from None


def encode_tombs(tombs: Tombs) -> bytes:
    """The open ones: what was put away is in the chapters, and is stored once."""
    tombs = open_tombs(tombs)
    with writing("tombs"):
        return to_bytes(pb.Tombs(tombs=write_tombs(tombs)))


def decode_tombs(data: bytes, terms: Terms) -> Tombs:
    return read_tombs(parsed(pb.Tombs(), data, "tombstones").tombs, terms)


def encode_rest(rest: Rest | None) -> bytes:
    """None is no bytes: a rest always has a list of revisions, so it never encodes to nothing."""
    with writing("rest"):
        return b"" if rest is None else to_bytes(write_rest(rest))


def decode_rest(data: bytes, terms: Terms) -> Rest | None:
    return read_rest(parsed(pb.Rest(), data, "rest"), terms) if data else None


def encode_set(members: Iterable[bytes]) -> bytes:
    with writing("set"):
        return to_bytes(pb.Set(members=sorted(members)))


def decode_set(data: bytes, terms: Terms) -> frozenset[bytes]:
    return frozenset(parsed(pb.Set(), data, "set").members)
