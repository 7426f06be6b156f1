"""The durable parts of a state that are stored as one value each, as bytes and back."""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from unweave.errors import WireError
from unweave.node.storage.integrity import RowMacs
from unweave.node.wire.codec import decode, encode, read_parked, write_parked
from unweave.node.wire.primitives import (
    parsed,
    pb,
    read_ids,
    read_stamp,
    read_statement,
    read_tombs,
    read_vector,
    to_bytes,
    unwritable,
    write_ids,
    write_revisions,
    write_tombs,
    write_vector,
    writing,
)
from unweave.protocol.messages import ParkNotice, Pass
from unweave.protocol.state import IDLE, Factor, Hold, Idle, Out, Parked, Role, State
from unweave.protocol.statements import (
    AuditMismatch,
    CompactedErasures,
    Intent,
    Receipt,
    SignedStatement,
    Tombstone,
    Vote,
    tombs_in,
)
from unweave.protocol.terms import Terms
from unweave.protocol.token import Revision, Stamp, Token, Tombs, join, open_tombs

__all__ = [
    "FIELDS",
    "Rows",
    "decode_parked",
    "decode_set",
    "decode_stamp",
    "decode_tombs",
    "encode_parked",
    "encode_set",
    "encode_stamp",
    "encode_tombs",
    "read_state",
    "write_state",
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


def encode_parked(rest: ParkNotice | None) -> bytes:
    """None is no bytes: a rest always has a list of revisions, so it never encodes to nothing."""
    with writing("rest"):
        return b"" if rest is None else to_bytes(write_parked(rest))


def decode_parked(data: bytes, terms: Terms) -> ParkNotice | None:
    return read_parked(parsed(pb.ParkNotice(), data, "rest"), terms) if data else None


def encode_set(members: Iterable[bytes]) -> bytes:
    with writing("set"):
        return to_bytes(pb.Set(members=sorted(members)))


def decode_set(data: bytes, terms: Terms) -> frozenset[bytes]:
    return frozenset(parsed(pb.Set(), data, "set").members)


# ------------------------------------------------------------------------------
# A state as rows.
#
# Only what changed is written: a state's fields are never modified, so a field that is the same
# object has the same value. Every row carries a seal (`seals`).


class Rows(NamedTuple):
    """Which object is in which row: what the file holds, as far as rows are shared or reused."""

    tokens: Mapping[int, Token]
    factors: Mapping[int, Factor]
    seals: RowMacs


# Fields of the one row of `state`.
_SMALL = (
    *("counter", "solved_for", "last", "fence", "wake", "rows", "data", "detached"),
    *("factors", "role", "copy"),
)

PARTS: dict[str, tuple[Callable[[Any], bytes], Callable[[bytes, Terms], Any]]] = {
    "tombs": (encode_tombs, decode_tombs),
    "retrain_epoch": (encode_set, decode_set),
    "parked": (encode_parked, decode_parked),
    "dropped": (encode_set, decode_set),
    "proved": (encode_set, decode_set),
}

RECORDS: dict[str, type[SignedStatement]] = {
    "tombstones": Tombstone,
    "compacted": CompactedErasures,
    "intents": Intent,
    "votes": Vote,
    "mismatches": AuditMismatch,
    "receipts": Receipt,
}

FIELDS = (*_SMALL, *PARTS, *RECORDS)

ROLES: dict[str, type[Role]] = {"idle": Idle, "hold": Hold, "out": Out, "parked": Parked}
_ROLE_NAMES = {role: name for name, role in ROLES.items()}


# ------------------------------------------------------------------------------------- writing


def write_state(
    db: sqlite3.Connection,
    stored: Mapping[str, Any] | None,
    after: State,
    changed: Collection[str],
    rows: Rows,
) -> Rows:
    """Write the fields that differ from `stored` (None: nothing was ever stored); the caller holds
    the transaction. New rows go before those that refer to them, and old ones after."""
    seals = rows.seals.draft()
    tokens, token_rows, old_tokens = _place(rows.tokens, _tokens(after))
    for at, token, exists in token_rows:
        message = encode(Pass(token), after.terms)
        sql = "UPDATE token SET seal = ?, message = ?, room = ? WHERE id = ?"
        if not exists:
            sql = "INSERT INTO token (seal, message, room, id) VALUES (?, ?, ?, ?)"
        db.execute(sql, (seals.write("token", at, message), message, _room(message), at))
    factors, factor_rows, old_factors = _place(rows.factors, after.own.factors)
    for at, factor, exists in factor_rows:
        columns = _factor_columns(factor)
        sql = (
            "UPDATE factor SET seal = ?, revision = ?, rows = ?, data = ?, generation = ?, "
            "units = ? WHERE id = ?"
        )
        if not exists:
            sql = (
                "INSERT INTO factor (seal, revision, rows, data, generation, units, id) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)"
            )
        db.execute(sql, (seals.write("factor", at, *columns), *columns, at))
    for name, (write, _) in PARTS.items():
        if name in changed:
            value = write(after.durable(name))
            sealed = seals.write("part", name, value)
            db.execute("REPLACE INTO part VALUES (?, ?, ?)", (name, sealed, value))
    for name in RECORDS:
        if name in changed:
            old = None if stored is None else stored[name]
            _write_records(db, seals, name, old, after.durable(name))
    for at in old_tokens:
        seals.delete("token", at)
    for at in old_factors:
        seals.delete("factor", at)
    if seals.touched or any(name in changed for name in _SMALL):
        small = _small_columns(after, tokens, factors)
        sql = _UPDATE_STATE if stored is not None else _INSERT_STATE
        db.execute(sql, (seals.close(*small), *small))
    for at in old_tokens:
        db.execute("DELETE FROM token WHERE id = ?", (at,))
    for at in old_factors:
        db.execute("DELETE FROM factor WHERE id = ?", (at,))
    return Rows(tokens, factors, seals)


def _room(message: bytes) -> bytes:
    """Zeros up to a round length. While a row keeps its length SQLite overwrites it where it lies,
    only the pages that differ; otherwise it zeroes all of its pages and fills others, which takes
    three times as long. At least 64, so that the length of `room` has two bytes itself."""
    return bytes(64 + -len(message) % 256)


def _tokens(s: State) -> list[Token]:
    return [token for token in (s.token.held, s.token.copy) if token is not None]


def _place(
    held: Mapping[int, Any], wanted: Iterable[Any]
) -> tuple[dict[int, Any], list[tuple[int, Any, bool]], list[int]]:
    """Give each wanted object a row: (rows, rows to write and whether they exist, rows to delete).

    A row that is no longer needed is overwritten in place: that costs half of deleting it and
    inserting another, since deleted content is zeroed.
    """
    wanted = {id(thing): thing for thing in wanted}
    kept = {at: thing for at, thing in held.items() if id(thing) in wanted}
    for thing in kept.values():
        wanted.pop(id(thing), None)
    free = sorted(at for at in held if at not in kept)
    written = []
    for thing in wanted.values():
        exists = bool(free)
        at = free.pop(0) if exists else max((*kept, *held), default=0) + 1
        kept[at] = thing
        written.append((at, thing, exists))
    return kept, written, free


def _factor_columns(factor: Factor) -> tuple[bytes, int, int, bytes, memoryview]:
    return (
        write_revisions((factor.revision,)),
        factor.rows,
        factor.data,
        write_ids(factor.retrain_epoch),
        write_vector(factor.units),
    )


COLUMNS = (
    *("seal", "counter", "solved_for", "last", "fence", "wake", "rows", "data"),
    *("detached", "factors", "role", "role_token", "role_to", "copy"),
)
_INSERT_STATE = (
    f"INSERT INTO state (one, {', '.join(COLUMNS)}) VALUES (1, {', '.join('?' * len(COLUMNS))})"
)
_UPDATE_STATE = f"UPDATE state SET {', '.join(f'{name} = ?' for name in COLUMNS)}"


def _small_columns(
    s: State, tokens: Mapping[int, Token], factors: Mapping[int, Factor]
) -> tuple[Any, ...]:
    places = {id(thing): at for rows in (tokens, factors) for at, thing in rows.items()}
    return (
        s.own.counter,
        s.own.solved_for,
        encode_stamp(s.token.last),
        encode_stamp(s.token.fence),
        encode_stamp(s.token.wake),
        s.own.rows,
        s.own.data,
        int(s.own.detached),
        " ".join(str(places[id(factor)]) for factor in s.own.factors),
        _ROLE_NAMES[type(s.token.role)],
        None if s.token.held is None else places[id(s.token.held)],
        s.token.role.to if isinstance(s.token.role, Out) else None,
        None if s.token.copy is None else places[id(s.token.copy)],
    )


def _keyed(value: Any) -> dict[bytes, SignedStatement]:
    """The records of a field, each under the key of its row."""
    if isinstance(value, tuple):
        return {b"%04d" % place: record for place, record in enumerate(value)}
    if isinstance(value, frozenset):
        return {hashlib.sha256(record.raw).digest(): record for record in value}
    return {
        key if isinstance(key, bytes) else b"%d,%d" % key: record for key, record in value.items()
    }


def _write_records(db: sqlite3.Connection, seals: RowMacs, name: str, old: Any, new: Any) -> None:
    before = {} if old is None else _keyed(old)
    after = _keyed(new)
    for key in before.keys() - after.keys():
        seals.delete(name, key)
        db.execute("DELETE FROM record WHERE field = ? AND key = ?", (name, key))
    for key, record in after.items():
        if before.get(key) is not record:
            columns = (record.author, record.raw, record.signature)
            row = (name, key, seals.write(name, key, *columns), *columns)
            db.execute("REPLACE INTO record VALUES (?, ?, ?, ?, ?, ?)", row)


# ------------------------------------------------------------------------------
# Rows as a state. Whatever cannot be one is a `WireError`; nothing is read before its seal.

_REVISION = struct.Struct("<QQ")


def read_state(
    db: sqlite3.Connection, terms: Terms, me: int, secret: bytes
) -> tuple[State, Rows] | None:
    """The stored state and where its rows are; None: nothing was ever stored. Raises `WireError`
    for what cannot be a state, `Unsealed` for one that was not written under this secret."""
    seals = RowMacs(secret)
    s = State(terms, me)
    tokens = _read_tokens(db, seals, terms)
    factors = _read_factors(db, seals, terms)
    parts = _read_parts(db, seals)
    for name, kind in RECORDS.items():
        s.set_durable(name, _read_records(db, seals, name, kind, terms))
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
    s.own.counter, s.own.solved_for, s.own.rows, s.own.data = counter, solved_for, rows, data
    s.own.detached = bool(detached)
    s.token.last, s.token.fence, s.token.wake = (
        decode_stamp(stamp, terms) for stamp in (last, fence, wake)
    )
    try:
        s.own.factors = tuple(factors[int(at)] for at in order.split())
        s.token.copy = None if copy is None else tokens[copy]
        s.token.role = _read_role(ROLES[role], None if held is None else tokens[held], to)
    except KeyError as error:
        raise WireError(f"row {error} is missing") from None
    for name, (_, read) in PARTS.items():
        if name not in parts:
            raise WireError(f"part {name} is missing")
        s.set_durable(name, read(parts[name], terms))
    s.known.tombs = join(s.known.tombs, tombs_in(s.known.compacted.values()))
    return s, Rows(tokens, factors, seals)


def _read_role(kind: type[Role], token: Token | None, to: int | None) -> Role:
    if token is None:
        return IDLE
    if kind is Out and to is not None:
        return Out(token, to)
    return Parked(token) if kind is Parked else Hold(token)


def _read_tokens(db: sqlite3.Connection, seals: RowMacs, terms: Terms) -> dict[int, Token]:
    tokens = {}
    for at, seal, data in db.execute("SELECT id, seal, message FROM token"):
        seals.read(seal, "token", at, data)
        message = decode(data, terms)
        if not isinstance(message, Pass):
            raise WireError("a message that is no token")
        tokens[at] = message.token
    return tokens


def _read_factors(db: sqlite3.Connection, seals: RowMacs, terms: Terms) -> dict[int, Factor]:
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


def _read_parts(db: sqlite3.Connection, seals: RowMacs) -> dict[str, bytes]:
    parts = {}
    for name, seal, value in db.execute("SELECT name, seal, value FROM part"):
        seals.read(seal, "part", name, value)
        parts[name] = value
    return parts


def _read_records(
    db: sqlite3.Connection, seals: RowMacs, name: str, kind: type[SignedStatement], terms: Terms
) -> Any:
    read: list[Any] = []
    sql = "SELECT key, seal, author, raw, signature FROM record WHERE field = ? ORDER BY key"
    for key, seal, author, raw, signature in db.execute(sql, (name,)):
        seals.read(seal, name, key, author, raw, signature)
        record = pb.Statement(raw=raw, author=author, signature=signature)
        read.append(read_statement(kind, record, terms))
    if name == "receipts":
        return tuple(read)
    if name == "mismatches":
        return frozenset(read)
    if name == "votes":
        return {(vote.target, vote.author): vote for vote in read}
    if name == "compacted":
        return {chapter.name: chapter for chapter in read}
    return {erasure.request: erasure for erasure in read}
