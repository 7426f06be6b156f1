"""Rows as a state. Whatever cannot be one is a `WireError`; nothing is read before its seal."""

from __future__ import annotations

import sqlite3
import struct
from typing import Any

from unweave.errors import WireError
from unweave.node.codec import decode
from unweave.node.durable import decode_stamp
from unweave.node.parts import pb, read_ids, read_record, read_vector
from unweave.node.seals import Seals
from unweave.node.tables import COLUMNS, PARTS, RECORDS, ROLES, Rows
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


def read_state(
    db: sqlite3.Connection, terms: Terms, me: int, secret: bytes
) -> tuple[State, Rows] | None:
    """The stored state and where its rows are; None: nothing was ever stored. Raises `WireError`
    for what cannot be a state, `Unsealed` for one that was not written under this secret."""
    seals = Seals(secret)
    s = State(terms, me)
    tokens = _read_tokens(db, seals, terms)
    factors = _read_factors(db, seals, terms)
    parts = _read_parts(db, seals)
    for name, kind in RECORDS.items():
        setattr(s, name, _read_records(db, seals, name, kind, terms))
    row = db.execute(f"SELECT {', '.join(COLUMNS)} FROM state").fetchone()
    if row is None:
        if seals.touched:
            raise WireError("the row of state is missing")
        return None
    seal, *small = row
    seals.check(seal, *small)
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
    for name, (_, read) in PARTS.items():
        if name not in parts:
            raise WireError(f"part {name} is missing")
        setattr(s, name, read(parts[name], terms))
    s.tombs = join(s.tombs, tombs_of(s.chapters.values()))
    return s, Rows(tokens, factors, seals)


def _read_role(kind: type[Role], token: Token | None, to: int | None) -> Role:
    if token is None:
        return IDLE
    if kind is Out and to is not None:
        return Out(token, to)
    return Parked(token) if kind is Parked else Hold(token)


def _read_tokens(db: sqlite3.Connection, seals: Seals, terms: Terms) -> dict[int, Token]:
    tokens = {}
    for at, seal, data in db.execute("SELECT id, seal, message FROM token"):
        seals.read(seal, "token", at, data)
        message = decode(data, terms)
        if not isinstance(message, Pass):
            raise WireError("a message that is no token")
        tokens[at] = message.token
    return tokens


def _read_factors(db: sqlite3.Connection, seals: Seals, terms: Terms) -> dict[int, Factor]:
    factors = {}
    for at, seal, *columns in db.execute(
        "SELECT id, seal, revision, rows, data, generation, units FROM factor"
    ):
        seals.read(seal, "factor", at, *columns)
        revision, rows, data, generation, units = columns
        vector = read_vector(units, terms)
        name = Revision(*_REVISION.unpack(revision))
        factors[at] = Factor(name, vector, read_ids(generation), rows, data)
    return factors


def _read_parts(db: sqlite3.Connection, seals: Seals) -> dict[str, bytes]:
    parts = {}
    for name, seal, value in db.execute("SELECT name, seal, value FROM part"):
        seals.read(seal, "part", name, value)
        parts[name] = value
    return parts


def _read_records(
    db: sqlite3.Connection, seals: Seals, name: str, kind: type[Record], terms: Terms
) -> Any:
    read: list[Any] = []
    sql = "SELECT key, seal, author, raw, signature FROM record WHERE field = ? ORDER BY key"
    for key, seal, author, raw, signature in db.execute(sql, (name,)):
        seals.read(seal, name, key, author, raw, signature)
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
