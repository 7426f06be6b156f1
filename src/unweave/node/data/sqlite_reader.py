"""The reader of SQLite files. (DuckDB reads SQLite only with an extension from the network.)

The file is opened read-only. The query may only select rows and call functions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from unweave.errors import DataError
from unweave.models.columns import Column, cell_text, truth
from unweave.models.resolution import Extremes
from unweave.models.shards import Missing
from unweave.node.data.commitments import canonical, commitment
from unweave.node.data.reader import (
    FINE,
    MISSING,
    NO_LEVEL,
    NO_NUMBER,
    TOO_LARGE,
    Batch,
    Batches,
    Selection,
    batched_sums,
    missing_column,
    schema_names,
)
from unweave.text import listed

__all__ = ["SqliteReader", "open_sqlite"]


_PLACE = "the result of its sql"
_ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
_ROWS = 1 << 14


@contextmanager
def open_sqlite(file: Path, sql: str, selection: Selection) -> Iterator[SqliteReader]:
    """A reader of `sql` on one SQLite file until the block ends."""
    try:
        opened = sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)
    except sqlite3.Error:
        raise DataError(f"agent {selection.agent!r}: {file.name} cannot be opened") from None
    with closing(opened) as connection:
        try:
            tables = connection.execute(
                "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') "
                "AND name NOT LIKE 'sqlite_%' ORDER BY name"
            ).fetchall()
        except sqlite3.Error:
            raise DataError(
                f"agent {selection.agent!r}: {file.name} is damaged, or in use"
            ) from None
        connection.set_authorizer(_authorize)
        yield SqliteReader(connection, sql, selection, [name for (name,) in tables])


def _authorize(action: int, first: str | None, second: str | None, *_: object) -> int:
    if action not in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and second == "load_extension"):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


class SqliteReader:
    """Reads the result of a query; see `Reader`. Sums are computed in batches."""

    def __init__(
        self, connection: sqlite3.Connection, sql: str, selection: Selection, tables: Sequence[str]
    ) -> None:
        self._connection = connection
        self._selection = selection
        text = sql.strip().rstrip(";")
        self._query = f"SELECT * FROM (\n{text}\n)"
        try:
            connection.execute(f"EXPLAIN {text}").close()
            names = [d[0] for d in connection.execute(f"{self._query} LIMIT 0").description]
        except (sqlite3.Error, sqlite3.Warning) as error:
            refused = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_AUTH
            why = (
                "reaches for more than the rows of the agent's database, which is refused"
                if refused
                else "is not one SELECT statement that fits the database"
            )
            raise DataError(
                f"agent {selection.agent!r}: sql {why}; its tables are "
                f"{listed(map(repr, tables), 12)}"
            ) from None
        for name in selection.asked:
            if name not in names:
                raise missing_column(selection, name, _PLACE, schema_names(names))
        places = map(names.index, selection.names)
        self._cells = list(zip(places, selection.schema, strict=True))
        self._key = names.index(selection.key) if selection.key else None

    def batches(self, erased: frozenset[str], chunk: int, ordered: bool = False) -> Batches:
        for batch in self._whole(erased, chunk):
            if not self._selection.drop:
                yield batch
                continue
            assert batch.faults is not None
            assert batch.numbers is not None
            stays = ~(batch.faults == MISSING).any(axis=1)
            yield Batch(
                np.ascontiguousarray(batch.rows[stays]),
                _PLACE,
                batch.numbers[stays],
                batch.faults[stays],
            )

    def missing(self, erased: frozenset[str]) -> Missing:
        names, records = self._selection.names, 0
        counts = dict.fromkeys(names, 0)
        for batch in self._whole(erased, _ROWS):
            assert batch.faults is not None
            lacking = batch.faults == MISSING
            records += int(lacking.any(axis=1).sum())
            for name in counts:
                counts[name] += int(lacking[:, self._selection.first(name)].sum())
        return Missing(records, {name: n for name, n in counts.items() if n})

    def _whole(self, erased: frozenset[str], chunk: int) -> Batches:
        number = 0
        for rows in self._fetched(chunk):
            numbers = np.arange(number + 1, number + 1 + len(rows), dtype=np.float64)
            number += len(rows)
            if erased:
                remaining = [i for i, row in enumerate(rows) if self._canonical(row) not in erased]
                rows, numbers = [rows[i] for i in remaining], numbers[remaining]
            cells = [_cell(row[j], column) for row in rows for j, column in self._cells]
            both = np.array(cells, dtype=np.float64).reshape(len(rows), len(self._cells), 2)
            yield Batch(np.ascontiguousarray(both[..., 0]), _PLACE, numbers, both[..., 1])

    told = batches

    sums = batched_sums

    def count(self, erased: frozenset[str]) -> int:
        if not erased and not self._selection.drop:
            return int(self._one(f"SELECT COUNT(*) FROM ({self._query})"))
        return sum(len(batch.rows) for batch in self.batches(erased, _ROWS))

    def extremes(self, erased: frozenset[str]) -> Extremes:
        found = [
            (np.fmin.reduce(batch.rows), np.fmax.reduce(batch.rows))  # without missing values
            for batch in self.batches(erased, _ROWS)
            if len(batch.rows)
        ]
        if not found:
            return []
        low, high = zip(*found, strict=True)
        return list(zip(np.fmin.reduce(low), np.fmax.reduce(high), strict=True))

    def committed(self, dropped: frozenset[bytes], secret: bytes) -> frozenset[str]:
        return frozenset(key for key in self._keys() if commitment(secret, key) in dropped)

    def known(self, keys: frozenset[str]) -> frozenset[str]:
        return frozenset(key for key in self._keys() if key in keys)

    def named(self) -> tuple[int, int]:
        keys = [key for key in self._keys() if key != "t:"]
        whole = int(self._one(f"SELECT COUNT(*) FROM ({self._query})"))
        return whole - len(keys), len(keys) - len(set(keys))

    def _one(self, sql: str) -> Any:
        with self._private():
            return self._connection.execute(sql).fetchone()[0]

    def _keys(self) -> Iterator[str]:
        for rows in self._fetched(_ROWS):
            for row in rows:
                key = self._canonical(row)
                if key is not None:
                    yield key

    def _canonical(self, row: tuple[Any, ...]) -> str | None:
        return canonical(row[self._key]) if self._key is not None else None

    def _fetched(self, chunk: int) -> Iterator[list[tuple[Any, ...]]]:
        with self._private(), closing(self._connection.execute(self._query)) as cursor:
            while rows := cursor.fetchmany(min(chunk, _ROWS)):
                yield rows

    @contextmanager
    def _private(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error:
            raise DataError(f"agent {self._selection.agent!r}: sql failed while it ran") from None


def _cell(value: object, column: Column) -> tuple[float, float]:
    """(number, reason why the value is not a number)."""
    if column.codes:
        text = cell_text(value)
        code = dict(column.codes).get(text or "")
        fault = FINE if code is not None else MISSING if text is None else NO_LEVEL
        return (np.nan if code is None else code), fault
    if column.truth and isinstance(value, str) and (number := truth(value)) is not None:
        return number, FINE
    if isinstance(value, float):
        return value, FINE
    if isinstance(value, int):
        return (float(value), FINE) if abs(value) <= 2**53 else (np.nan, TOO_LARGE)
    return np.nan, MISSING if value is None else NO_NUMBER
