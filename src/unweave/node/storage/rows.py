"""A state as rows, and back.

Fields that are one value are encoded as bytes (`encode_…`, `decode_…`). `write_state` writes only
the fields that changed: a field is never modified in place, so the same object has the same value.
`read_state` raises `WireError` for rows that are no state. Every row has a MAC (`integrity`), which
is checked before the row is decoded.
"""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from unweave.errors import WireError
from unweave.node.storage.integrity import RowMacs
from unweave.node.wire.codec import decode, encode, read_parked, write_parked
from unweave.node.wire.primitives import (
    parsed,
    pb,
    read_ids,
    read_revealed,
    read_revision,
    read_stamp,
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
from unweave.node.wire.statements import read_statement, write_statement
from unweave.protocol.messages import ParkNotice, Pass
from unweave.protocol.state import (
    IDLE,
    NOTHING_WAITS,
    Factor,
    GivenValue,
    Hold,
    Idle,
    Out,
    Parked,
    Role,
    State,
    Waiting,
)
from unweave.protocol.statements import (
    AuditMismatch,
    CompactedErasures,
    Enrolment,
    Intent,
    Opening,
    Receipt,
    SignedStatement,
    Tombstone,
    Vote,
    tombs_in,
)
from unweave.protocol.steps import Origin, TokenHeader
from unweave.protocol.terms import Terms
from unweave.protocol.token import Stamp, Token, Tombs, join, open_tombs

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
    """Fixed length: three of them are written in every commit."""
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
    """The open ones: the compacted ones are stored with their statements."""
    tombs = open_tombs(tombs)
    with writing("tombs"):
        return to_bytes(pb.Tombs(tombs=write_tombs(tombs)))


def decode_tombs(data: bytes, terms: Terms) -> Tombs:
    return read_tombs(parsed(pb.Tombs(), data, "tombstones").tombs, terms)


def encode_parked(parked: ParkNotice | None) -> bytes:
    """None is no bytes: a notice always has a list of revisions, so it is never empty."""
    with writing("parked token"):
        return b"" if parked is None else to_bytes(write_parked(parked))


def decode_parked(data: bytes, terms: Terms) -> ParkNotice | None:
    return read_parked(parsed(pb.ParkNotice(), data, "parked token"), terms) if data else None


def encode_set(members: Iterable[bytes]) -> bytes:
    with writing("set"):
        return to_bytes(pb.Set(members=sorted(members)))


def decode_set(data: bytes, terms: Terms) -> frozenset[bytes]:
    return frozenset(parsed(pb.Set(), data, "set").members)


def encode_origin(origin: Origin | None) -> bytes:
    """None is no bytes: an origin always has a revision, so it is never empty."""
    if origin is None:
        return b""
    with writing("origin"):
        removed = origin.removed
        return to_bytes(
            pb.Origin(
                header=None if origin.header is None else write_statement(origin.header),
                revision=write_revisions((origin.revision,)),
                salt=b"" if removed is None else removed.salt,
                removed=None if removed is None else bytes(write_vector(removed.units)),
            )
        )


def decode_origin(data: bytes, terms: Terms) -> Origin | None:
    if not data:
        return None
    stored = parsed(pb.Origin(), data, "origin")
    header, removed = stored.HasField("header"), stored.HasField("removed")
    return Origin(
        read_statement(TokenHeader, stored.header, terms) if header else None,
        read_revision(stored.revision),
        read_revealed(stored.salt, stored.removed, None, terms) if removed else None,
    )


def encode_waiting(waiting: Waiting) -> bytes:
    with writing("waiting changes"):
        return to_bytes(
            pb.Waiting(
                requests=[write_statement(one) for _, one in sorted(waiting.requests.items())],
                data=waiting.data,
                records=waiting.records,
                due=waiting.due,
                leaving=waiting.leaving,
            )
        )


def decode_waiting(data: bytes, terms: Terms) -> Waiting:
    if not data:
        return NOTHING_WAITS
    stored = parsed(pb.Waiting(), data, "waiting changes")
    requests = [read_statement(Intent, one, terms) for one in stored.requests]
    return Waiting(
        {one.request: one for one in requests},
        stored.data,
        stored.records,
        stored.due if stored.HasField("due") else None,
        stored.leaving,
    )


class Rows(NamedTuple):
    """Which object is in which row of the file, and the MACs of all rows."""

    tokens: Mapping[int, Token]
    factors: Mapping[int, Factor]
    macs: RowMacs


# The fields in the one row of the table `state`.
_SMALL = (
    *("counter", "solved_for", "last", "fence", "wake", "rows", "data", "detached"),
    *("factors", "role", "copy", "published"),
)

PARTS: dict[str, tuple[Callable[[Any], bytes], Callable[[bytes, Terms], Any]]] = {
    "tombs": (encode_tombs, decode_tombs),
    "retrain_epoch": (encode_set, decode_set),
    "parked": (encode_parked, decode_parked),
    "dropped": (encode_set, decode_set),
    "proved": (encode_set, decode_set),
    "origin": (encode_origin, decode_origin),
    "copy_origin": (encode_origin, decode_origin),
    "waiting": (encode_waiting, decode_waiting),
}

STATEMENTS: dict[str, type[SignedStatement]] = {
    "tombstones": Tombstone,
    "compacted": CompactedErasures,
    "intents": Intent,
    "votes": Vote,
    "mismatches": AuditMismatch,
    "openings": Opening,
    "enrolments": Enrolment,
    "receipts": Receipt,
}

FIELDS = (*_SMALL, *PARTS, *STATEMENTS)

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
    the transaction. Rows are inserted before rows that refer to them, and deleted after them."""
    macs = rows.macs.draft()
    tokens, token_rows, old_tokens = _place(rows.tokens, _tokens(after))
    for at, token, exists in token_rows:
        message = encode(Pass(token), after.terms)
        sql = "UPDATE token SET mac = ?, message = ?, padding = ? WHERE id = ?"
        if not exists:
            sql = "INSERT INTO token (mac, message, padding, id) VALUES (?, ?, ?, ?)"
        db.execute(sql, (macs.write("token", at, message), message, _room(message), at))
    factors, factor_rows, old_factors = _place(rows.factors, after.own.factors)
    for at, factor, exists in factor_rows:
        columns = _factor_columns(factor)
        sql = _UPDATE_FACTOR if exists else _INSERT_FACTOR
        db.execute(sql, (macs.write("factor", at, *columns), *columns, at))
    for name, (write, _) in PARTS.items():
        if name in changed:
            value = write(after.durable(name))
            mac = macs.write("part", name, value)
            db.execute("REPLACE INTO part VALUES (?, ?, ?)", (name, mac, value))
    for name in STATEMENTS:
        if name in changed:
            old = None if stored is None else stored[name]
            _write_statements(db, macs, name, old, after.durable(name))
    for at in old_tokens:
        macs.delete("token", at)
    for at in old_factors:
        macs.delete("factor", at)
    if macs.touched or any(name in changed for name in _SMALL):
        small = _small_columns(after, tokens, factors)
        sql = _UPDATE_STATE if stored is not None else _INSERT_STATE
        db.execute(sql, (macs.close(*small), *small))
    for at in old_tokens:
        db.execute("DELETE FROM token WHERE id = ?", (at,))
    for at in old_factors:
        db.execute("DELETE FROM factor WHERE id = ?", (at,))
    return Rows(tokens, factors, macs)


def _room(message: bytes) -> bytes:
    """Zeros up to a round length. While a row keeps its length, SQLite overwrites only the pages
    that differ; otherwise it zeroes all pages of the row and fills others, which takes three times
    as long. At least 64, so that the length of `room` itself has two bytes."""
    return bytes(64 + -len(message) % 256)


def _tokens(s: State) -> list[Token]:
    tokens = (s.token.held, s.token.copy, s.token.published)
    return [token for token in tokens if token is not None]


def _place(
    held: Mapping[int, Any], wanted: Iterable[Any]
) -> tuple[dict[int, Any], list[tuple[int, Any, bool]], list[int]]:
    """Give each wanted object a row: (rows, rows to write and whether they exist, rows to delete).

    A row that is not needed any more is overwritten in place: deleting it and inserting another
    costs twice as much, since deleted content is zeroed.
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


FACTOR_COLUMNS = (
    *("revision", "rows", "data", "retrain_epoch", "salt", "point", "units"),
    *("round", "key", "masked", "audit"),
)
_UPDATE_FACTOR = (
    f"UPDATE factor SET mac = ?, {', '.join(f'{name} = ?' for name in FACTOR_COLUMNS)} WHERE id = ?"
)
_INSERT_FACTOR = (
    f"INSERT INTO factor (mac, {', '.join(FACTOR_COLUMNS)}, id) "
    f"VALUES (?, ?, {', '.join('?' * len(FACTOR_COLUMNS))})"
)


def _factor_columns(factor: Factor) -> tuple[Any, ...]:
    given = factor.given
    return (
        write_revisions((factor.revision,)),
        factor.rows,
        factor.data,
        write_ids(factor.retrain_epoch),
        factor.salt,
        factor.point,
        write_vector(factor.units),
        None if given is None else given.round,
        None if given is None else given.key,
        None if given is None else write_vector(given.units),
        None if given is None else write_vector(given.audit),
    )


COLUMNS = (
    *("mac", "counter", "solved_for", "last", "fence", "wake", "rows", "data"),
    *("detached", "factors", "role", "role_token", "role_to", "copy", "published"),
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
        None if s.token.published is None else places[id(s.token.published)],
    )


def _keyed(value: Any) -> dict[bytes, SignedStatement]:
    """The statements of a field, each under the key of its row."""
    if isinstance(value, tuple):
        return {b"%04d" % place: one for place, one in enumerate(value)}
    if isinstance(value, frozenset):
        return {hashlib.sha256(one.raw).digest(): one for one in value}
    return {
        key if isinstance(key, bytes) else repr(key).encode(): one for key, one in value.items()
    }


def _write_statements(db: sqlite3.Connection, macs: RowMacs, name: str, old: Any, new: Any) -> None:
    before = {} if old is None else _keyed(old)
    after = _keyed(new)
    for key in before.keys() - after.keys():
        macs.delete(name, key)
        db.execute("DELETE FROM statement WHERE field = ? AND key = ?", (name, key))
    for key, statement in after.items():
        if before.get(key) is not statement:
            columns = (statement.author, statement.raw, statement.signature)
            row = (name, key, macs.write(name, key, *columns), *columns)
            db.execute("REPLACE INTO statement VALUES (?, ?, ?, ?, ?, ?)", row)


# ------------------------------------------------------------------------------------- reading


def read_state(
    db: sqlite3.Connection, terms: Terms, me: int, macs: RowMacs
) -> tuple[State, Rows] | None:
    """The stored state and its rows; None: nothing was ever stored. `WireError` if the rows are
    no state, `BadMac` if they were not written under the secret of `macs`, which is empty."""
    s = State(terms, me)
    tokens = _read_tokens(db, macs, terms)
    factors = _read_factors(db, macs, terms)
    parts = _read_parts(db, macs)
    for name, kind in STATEMENTS.items():
        s.set_durable(name, _read_statements(db, macs, name, kind, terms))
    row = db.execute(f"SELECT {', '.join(COLUMNS)} FROM state").fetchone()
    if row is None:
        if macs.touched:
            raise WireError("the row of state is missing")
        return None
    mac, *small = row
    macs.check(mac, *small)
    counter, solved_for, last, fence, wake, rows, data, detached, order, *places = small
    role, held, to, copy, published = places
    s.own.counter, s.own.solved_for, s.own.rows, s.own.data = counter, solved_for, rows, data
    s.own.detached = bool(detached)
    s.token.last, s.token.fence, s.token.wake = (
        decode_stamp(stamp, terms) for stamp in (last, fence, wake)
    )
    try:
        s.own.factors = tuple(factors[int(at)] for at in order.split())
        s.token.copy = None if copy is None else tokens[copy]
        s.token.published = None if published is None else tokens[published]
        s.token.role = _read_role(ROLES[role], None if held is None else tokens[held], to)
    except KeyError as error:
        raise WireError(f"row {error} is missing") from None
    for name, (_, read) in PARTS.items():
        if name not in parts:
            raise WireError(f"part {name} is missing")
        s.set_durable(name, read(parts[name], terms))
    s.known.tombs = join(s.known.tombs, tombs_in(s.known.compacted.values()))
    return s, Rows(tokens, factors, macs)


def _read_role(kind: type[Role], token: Token | None, to: int | None) -> Role:
    if token is None:
        return IDLE
    if kind is Out and to is not None:
        return Out(token, to)
    return Parked(token) if kind is Parked else Hold(token)


def _read_tokens(db: sqlite3.Connection, macs: RowMacs, terms: Terms) -> dict[int, Token]:
    tokens = {}
    for at, mac, data in db.execute("SELECT id, mac, message FROM token"):
        macs.read(mac, "token", at, data)
        message = decode(data, terms)
        if not isinstance(message, Pass):
            raise WireError("a stored message that is no token")
        tokens[at] = message.token
    return tokens


def _read_factors(db: sqlite3.Connection, macs: RowMacs, terms: Terms) -> dict[int, Factor]:
    factors = {}
    sql = f"SELECT id, mac, {', '.join(FACTOR_COLUMNS)} FROM factor"
    for at, mac, *columns in db.execute(sql):
        macs.read(mac, "factor", at, *columns)
        revision, rows, data, retrain_epoch, salt, point, units, name, *given = columns
        factors[at] = Factor(
            read_revision(revision),
            read_vector(units, terms.grid),
            read_ids(retrain_epoch),
            rows,
            data,
            salt,
            None if name is None else _read_given(name, given, terms),
            point,
        )
    return factors


def _read_given(name: bytes, columns: Sequence[bytes], terms: Terms) -> GivenValue:
    key, masked, audit = columns
    return GivenValue(name, key, read_vector(masked, terms.grid), read_vector(audit, terms.grid))


def _read_parts(db: sqlite3.Connection, macs: RowMacs) -> dict[str, bytes]:
    parts = {}
    for name, mac, value in db.execute("SELECT name, mac, value FROM part"):
        macs.read(mac, "part", name, value)
        parts[name] = value
    return parts


def _read_statements(
    db: sqlite3.Connection, macs: RowMacs, name: str, kind: type[SignedStatement], terms: Terms
) -> Any:
    read: list[Any] = []
    sql = "SELECT key, mac, author, raw, signature FROM statement WHERE field = ? ORDER BY key"
    for key, mac, author, raw, signature in db.execute(sql, (name,)):
        macs.read(mac, name, key, author, raw, signature)
        stored = pb.Statement(raw=raw, author=author, signature=signature)
        read.append(read_statement(kind, stored, terms))
    if name == "receipts":
        return tuple(read)
    if name == "mismatches":
        return frozenset(read)
    if name in ("openings", "enrolments"):
        return {one.author: one for one in read}
    if name == "votes":
        return {(vote.target, vote.author): vote for vote in read}
    if name == "compacted":
        return {compacted.name: compacted for compacted in read}
    return {erasure.request: erasure for erasure in read}
