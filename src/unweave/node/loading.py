"""Rows as a state. Whatever cannot be one is a `WireError`."""

from __future__ import annotations

import sqlite3
import struct
from typing import Any

from unweave.errors import WireError
from unweave.node.codec import decode
from unweave.node.durable import decode_stamp
from unweave.node.parts import pb, read_ids, read_record, read_vector
from unweave.node.tables import COLUMNS, PARTS, RECORDS, ROLES, Rows, checksum
from unweave.protocol.chapters import tombs_of
from unweave.protocol.ids import Revision
from unweave.protocol.messages import Pass
from unweave.protocol.records import Record
from unweave.protocol.state import IDLE, Factor, Hold, Out, Parked, Role, State
from unweave.protocol.terms import Terms
from unweave.protocol.token import Token
from unweave.protocol.tombs import join

__all__ = ["read_state"]

_REVISION = struct.Struct("<QQ")


def _intact(crc: bytes, *values: Any) -> None:
    if crc != checksum(*values):
        raise WireError("a row that is not what was written")


def read_state(db: sqlite3.Connection, terms: Terms, me: int) -> tuple[State, Rows] | None:
    """The stored state and where its rows are. Raises `WireError` for what cannot be a state."""
    row = db.execute(f"SELECT {', '.join(COLUMNS)} FROM state").fetchone()
    if row is None:
        return None
    crc, *small = row
    _intact(crc, *small)
    tokens = _read_tokens(db, terms)
    factors = _read_factors(db, terms)
    s = State(terms, me)
    counter, solved_for, last, fence, wake, rows, data, detached, order, role, held, to, copy = (
        small
    )
    s.counter, s.solved_for, s.rows, s.data = counter, solved_for, rows, data
    s.detached = bool(detached)
    s.last, s.fence, s.wake = (decode_stamp(stamp, terms) for stamp in (last, fence, wake))
    try:
        s.factors = tuple(factors[int(at)] for at in order.split())
        s.copy = None if copy is None else tokens[copy]
        s.role = _read_role(ROLES[role], None if held is None else tokens[held], to)
    except KeyError as error:
        raise WireError(f"row {error} is missing") from None
    parts = {name: (crc, value) for name, crc, value in db.execute("SELECT * FROM part")}
    for name, (_, read) in PARTS.items():
        if name not in parts:
            raise WireError(f"part {name} is missing")
        _intact(parts[name][0], name, parts[name][1])
        setattr(s, name, read(parts[name][1], terms))
    for name, kind in RECORDS.items():
        setattr(s, name, _read_records(db, name, kind, terms))
    s.tombs = join(s.tombs, tombs_of(s.chapters.values()))
    return s, Rows(tokens, factors)


def _read_role(kind: type[Role], token: Token | None, to: int | None) -> Role:
    if token is None:
        return IDLE
    if kind is Out and to is not None:
        return Out(token, to)
    return Parked(token) if kind is Parked else Hold(token)


def _read_tokens(db: sqlite3.Connection, terms: Terms) -> dict[int, Token]:
    tokens = {}
    for at, crc, data in db.execute("SELECT id, crc, message FROM token"):
        _intact(crc, at, data)
        message = decode(data, terms)
        if not isinstance(message, Pass):
            raise WireError("a message that is no token")
        tokens[at] = message.token
    return tokens


def _read_factors(db: sqlite3.Connection, terms: Terms) -> dict[int, Factor]:
    factors = {}
    for at, crc, *columns in db.execute(
        "SELECT id, crc, revision, rows, data, generation, units FROM factor"
    ):
        _intact(crc, at, *columns)
        revision, rows, data, generation, units = columns
        vector = read_vector(units, terms)
        name = Revision(*_REVISION.unpack(revision))
        factors[at] = Factor(name, vector, read_ids(generation), rows, data)
    return factors


def _read_records(db: sqlite3.Connection, name: str, kind: type[Record], terms: Terms) -> Any:
    read: list[Any] = []
    sql = "SELECT key, crc, author, raw, signature FROM record WHERE field = ? ORDER BY key"
    for key, crc, author, raw, signature in db.execute(sql, (name,)):
        _intact(crc, name, key, author, raw, signature)
        record = pb.Record(raw=raw, author=author, signature=signature)
        read.append(read_record(kind, record, terms))
    if name == "receipts":
        return tuple(read)
    if name == "halts":
        return frozenset(read)
    if name == "votes":
        return {(vote.target, vote.author): vote for vote in read}
    if name == "chapters":
        return {chapter.name: chapter for chapter in read}
    return {erasure.request: erasure for erasure in read}
