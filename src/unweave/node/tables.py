"""A state as rows.

Only what changed is written: a state's fields are never modified, so a field that is the same
object has the same value. Every row carries a seal (`seals`).
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from unweave.node.codec import encode
from unweave.node.durable import (
    decode_rest,
    decode_set,
    decode_tombs,
    encode_rest,
    encode_set,
    encode_stamp,
    encode_tombs,
)
from unweave.node.parts import write_ids, write_revisions, write_vector
from unweave.node.seals import Seals
from unweave.protocol.chapters import Chapter
from unweave.protocol.messages import Pass
from unweave.protocol.records import Halt, Intent, Record, Tombstone, Vote
from unweave.protocol.state import Factor, Hold, Idle, Out, Parked, Role, State
from unweave.protocol.terms import Terms
from unweave.protocol.token import Token
from unweave.protocol.visit import Receipt

__all__ = [
    "COLUMNS",
    "FIELDS",
    "PARTS",
    "RECORDS",
    "ROLES",
    "Rows",
    "write_state",
]


class Rows(NamedTuple):
    """Which object is in which row: what the file holds, as far as rows are shared or reused."""

    tokens: Mapping[int, Token]
    factors: Mapping[int, Factor]
    seals: Seals


# Fields of the one row of `state`.
_SMALL = (
    *("counter", "solved_for", "last", "fence", "wake", "rows", "data", "detached"),
    *("factors", "role", "copy"),
)

PARTS: dict[str, tuple[Callable[[Any], bytes], Callable[[bytes, Terms], Any]]] = {
    "tombs": (encode_tombs, decode_tombs),
    "generation": (encode_set, decode_set),
    "rest": (encode_rest, decode_rest),
    "dropped": (encode_set, decode_set),
    "proved": (encode_set, decode_set),
}

RECORDS: dict[str, type[Record]] = {
    "tombstones": Tombstone,
    "chapters": Chapter,
    "intents": Intent,
    "votes": Vote,
    "halts": Halt,
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
    fields = after.__dict__
    seals = rows.seals.draft()
    tokens, token_rows, old_tokens = _place(rows.tokens, _tokens(after))
    for at, token, exists in token_rows:
        message = encode(Pass(token), after.terms)
        sql = "UPDATE token SET seal = ?, message = ?, room = ? WHERE id = ?"
        if not exists:
            sql = "INSERT INTO token (seal, message, room, id) VALUES (?, ?, ?, ?)"
        db.execute(sql, (seals.write("token", at, message), message, _room(message), at))
    factors, factor_rows, old_factors = _place(rows.factors, after.factors)
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
            value = write(fields[name])
            sealed = seals.write("part", name, value)
            db.execute("REPLACE INTO part VALUES (?, ?, ?)", (name, sealed, value))
    for name in RECORDS:
        if name in changed:
            old = None if stored is None else stored[name]
            _write_records(db, seals, name, old, fields[name])
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
    return [token for token in (s.token, s.copy) if token is not None]


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
        write_ids(factor.generation),
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
        s.counter,
        s.solved_for,
        encode_stamp(s.last),
        encode_stamp(s.fence),
        encode_stamp(s.wake),
        s.rows,
        s.data,
        int(s.detached),
        " ".join(str(places[id(factor)]) for factor in s.factors),
        _ROLE_NAMES[type(s.role)],
        None if s.token is None else places[id(s.token)],
        s.role.to if isinstance(s.role, Out) else None,
        None if s.copy is None else places[id(s.copy)],
    )


def _keyed(value: Any) -> dict[bytes, Record]:
    """The records of a field, each under the key of its row."""
    if isinstance(value, tuple):
        return {b"%04d" % place: record for place, record in enumerate(value)}
    if isinstance(value, frozenset):
        return {hashlib.sha256(record.raw).digest(): record for record in value}
    return {
        key if isinstance(key, bytes) else b"%d,%d" % key: record for key, record in value.items()
    }


def _write_records(db: sqlite3.Connection, seals: Seals, name: str, old: Any, new: Any) -> None:
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
