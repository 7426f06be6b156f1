"""The DuckDB reader of an agent's files: sandboxed, typed, streaming.

A source has parts (`duckdb_parts`): files, or one query. Each part becomes SQL that gives typed
records (`duckdb_records`).

The connection can read the agent's own files only. It can use no other path, no extension, no
network and no Python variable, and its settings are locked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DataError, MissingExtra
from unweave.models import ConjugateModel
from unweave.models.resolution import Extremes
from unweave.models.shards import Missing
from unweave.node.data.commitments import pads
from unweave.node.data.duckdb_parts import (
    UNREADABLE,
    create_view,
    file_part,
    parts_of,
    private,
)
from unweave.node.data.duckdb_records import Part, quoted, raw_sql, records
from unweave.node.data.duckdb_sql import form
from unweave.node.data.reader import Batch, Batches, Selection, Sums, batched_sums
from unweave.node.data.source import DataSource
from unweave.protocol.statements import COMMITMENT_BYTES

__all__ = ["connect", "open_duck"]


try:
    import duckdb
    import nanoarrow
except ImportError as error:
    raise MissingExtra(str(error.name), "node", "reading an agent's data") from None

Floats = NDArray[np.float64]

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",  # a query must not read Python variables
    "preserve_insertion_order": "true",  # the order gives the record numbers
    # type_pushdown moves TRY_CAST into the CSV reader as a cast that fails (duckdb/duckdb#23818).
    "disabled_optimizers": "type_pushdown",
}
# Megabytes of one reading: the engine needs some for each column that it reads at once. With more,
# it keeps what it has read of a file, which is not read again.
_LEAST, _PER_COLUMN, _MOST = 128, 6, 1024
_TEMPORARY = ".duckdb-tmp"  # in the agent's folder; the engine removes it


def connect(folder: Path, threads: int, memory: int = _MOST) -> duckdb.DuckDBPyConnection:
    """An engine in memory, with its temporary files in `folder`."""
    settings = _SETTINGS | {
        "threads": threads,
        "memory_limit": f"{memory}MiB",
        "temp_directory": str(folder / _TEMPORARY),
    }
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute(
        "SET enable_progress_bar = false"
    )  # a setting of the connection, not of the database
    return connection


@contextmanager
def open_duck(
    folder: Path, source: DataSource, files: Sequence[Path], selection: Selection, threads: int
) -> Iterator[DuckReader]:
    """A reader of `files`, or of `sql` on them or on the one database file, until the block
    ends."""
    free = source.sql is not None or source.where is not None  # it may read any number of columns
    memory = _MOST if free else min(_MOST, max(_LEAST, _PER_COLUMN * len(selection.asked)))
    with connect(folder, threads, memory) as connection:
        names = ", ".join(quoted(str(file), "'") for file in files)
        if source.database is not None:
            base = Part(files[0].name, "query", (), "")
            with private(connection, selection.agent, base, "is in use, damaged or too new"):
                connection.execute(f"ATTACH {names} AS source (READ_ONLY)")
                connection.execute("USE source")
        else:
            connection.execute(f"SET allowed_paths = [{names}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        below: list[Part] = []
        if source.database is None and source.sql is not None:
            below = [file_part(connection, file, source, selection.agent) for file in files]
            below = create_view(connection, below, selection)
        parts = parts_of(connection, source, files, selection)
        yield DuckReader(connection, parts, selection, below)


class DuckReader:
    """Reads the records of some parts; see `Reader`."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        parts: Sequence[Part],
        selection: Selection,
        below: Sequence[Part] = (),
    ) -> None:
        self._connection = connection
        self._parts = parts
        self._selection = selection
        self._below = below  # the files behind `sql`
        self._size = len(selection.names)

    def batches(self, erased: frozenset[str], chunk: int, ordered: bool = False) -> Batches:
        cells = ", ".join(_whole_number(j) for j in range(self._size))
        # Only the join with `gone` can change the order.
        sort = ordered and bool(erased)
        order = " ORDER BY place, number" if sort else ""
        for rows in self._stream(f"SELECT {cells} FROM {self._all(erased, sort)}{order}", chunk):
            yield Batch(rows)

    def told(self, erased: frozenset[str], chunk: int) -> Batches:
        self._set_erased(erased)
        c = self._size
        cells = [_whole_number(j) for j in range(c)] + [f"f{j}" for j in range(c)]
        for part in self._parts:
            drop = self._selection.drop
            one = records([part], self._selection, told=True, numbered=True, flags=drop)
            sql = f"SELECT {', '.join(cells)}, number FROM {self._remaining(one, erased, drop)}"
            for rows in self._stream(sql, chunk):
                faults = rows[:, c : 2 * c]
                yield Batch(rows[:, :c], part.place, rows[:, -1], faults, part.places)

    def sums(self, model: ConjugateModel, erased: frozenset[str], chunk: int) -> Sums | None:
        sql = form(model)
        found = None if sql is None else sql.read(self._rows(sql.query(self._all(erased)))[0])
        # The batches show whether a record is invalid or does not fit the grid.
        return found or batched_sums(self, model, erased, chunk)

    def count(self, erased: frozenset[str]) -> int:
        return int(self._rows(f"SELECT COUNT(*) FROM {self._all(erased)}")[0][0])

    def missing(self, erased: frozenset[str]) -> Missing:
        flags = self._flags
        each = ", ".join(f"COUNT(*) FILTER (WHERE m{j})" for j in flags.values())
        records, *found = self._rows(
            f"SELECT COUNT(*) FILTER (WHERE {self._lacking}), {each} FROM "
            f"{self._all(erased, flags=True, drop=False)}"
        )[0]
        counts = dict(zip(flags, map(int, found), strict=True))
        return Missing(int(records), {name: n for name, n in counts.items() if n})

    def extremes(self, erased: frozenset[str]) -> Extremes:
        cells = ", ".join(f"MIN(c{j}), MAX(c{j})" for j in range(self._size))
        found = self._rows(f"SELECT {cells} FROM {self._all(erased)}")[0]
        if all(end is None for end in found):
            return []
        ends = [np.nan if end is None else float(end) for end in found]
        return list(zip(ends[::2], ends[1::2], strict=True))

    def committed(self, dropped: frozenset[bytes], secret: bytes) -> frozenset[str]:
        self._set("dropped", [digest.hex() for digest in dropped])
        outer, inner = pads(secret)
        hashed = (
            "left(sha256(CAST(? AS BLOB) || unhex(sha256(CAST(? AS BLOB) || encode(key)))), "
            f"{2 * COMMITMENT_BYTES})"
        )
        found = self._rows(
            f"SELECT DISTINCT r.key FROM (SELECT key, {hashed} AS digest FROM {self._keyed()} "
            "WHERE key IS NOT NULL) AS r SEMI JOIN dropped ON r.digest = dropped.key",
            [outer, inner],
        )
        return frozenset(key for (key,) in found)

    def known(self, keys: frozenset[str]) -> frozenset[str]:
        self._set("asked", sorted(keys))
        found = self._rows(
            f"SELECT asked.key FROM asked SEMI JOIN {self._keyed()} AS r ON asked.key = r.key"
        )
        return frozenset(key for (key,) in found)

    def named(self) -> tuple[int, int]:
        key = "CASE WHEN key <> 't:' THEN key END"
        nameless, repeated = self._rows(
            f"SELECT COUNT(*) - COUNT({key}), COUNT({key}) - COUNT(DISTINCT {key}) "
            f"FROM {self._all(drop=False)}"
        )[0]
        return int(nameless), int(repeated)

    @cached_property
    def _flags(self) -> dict[str, int]:
        """Column of the source → the number of its flag, which is true where it is missing."""
        return {name: self._selection.first(name) for name in self._selection.names}

    @property
    def _lacking(self) -> str:
        return " OR ".join(f"m{j}" for j in self._flags.values())

    def _keyed(self) -> str:
        """All records, also those that are left out."""
        return self._all(drop=False, everything=True)

    def _all(
        self,
        erased: frozenset[str] = frozenset(),
        numbered: bool = False,
        *,
        flags: bool = False,
        drop: bool | None = None,
        everything: bool = False,
    ) -> str:
        """All records that are used: one scan for adjacent parts of the same types."""
        self._set_erased(erased)
        drop = self._selection.drop if drop is None else drop
        alike = groupby(self._parts, key=lambda part: (part.format, part.types))
        scans = [
            records(
                list(parts),
                self._selection,
                numbered=numbered,
                flags=flags or drop,
                everything=everything,
                place=place,
            )
            for place, (_, parts) in enumerate(alike)
        ]
        union = " UNION ALL ".join(f"SELECT * FROM {scan}" for scan in scans)
        return self._remaining(f"({union})", erased, drop)

    def _remaining(self, scan: str, erased: frozenset[str], drop: bool) -> str:
        if drop:
            scan = f"(SELECT * FROM {scan} WHERE NOT ({self._lacking}))"
        # ANTI JOIN keeps records without a key; NOT IN would drop them.
        return f"(SELECT * FROM {scan} AS r ANTI JOIN gone ON r.key = gone.key)" if erased else scan

    def _set_erased(self, erased: frozenset[str]) -> None:
        if erased:
            self._set("gone", sorted(erased))

    def _set(self, table: str, keys: list[str]) -> None:
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} (key VARCHAR)")
        self._connection.execute(f"INSERT INTO {table} SELECT unnest(CAST(? AS VARCHAR[]))", [keys])

    def _rows(self, sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        with self._private():
            return self._connection.execute(sql, values or []).fetchall()

    def _stream(self, sql: str, chunk: int) -> Iterator[Floats]:
        """The result as float64 rows, `chunk` at a time; the engine waits for the consumer."""
        with self._private():
            for array in nanoarrow.c_array_stream(self._connection.sql(sql)):
                start, n = array.offset, array.length
                columns = [
                    np.frombuffer(child.view().buffer(1), dtype=np.float64)[
                        start + child.offset : start + child.offset + n
                    ]
                    for child in array.children
                ]
                for first in range(0, n, chunk):
                    yield np.column_stack([column[first : first + chunk] for column in columns])

    @contextmanager
    def _private(self) -> Iterator[None]:
        """Attribute an error of the engine to the first part that cannot be read alone."""
        try:
            yield
        except (duckdb.Error, RuntimeError):
            columns = ", ".join(f"MAX(c{j})" for j in range(self._size))
            for part in self._below:
                with private(self._connection, self._selection.agent, part):
                    scan = raw_sql([part], [name for name, _ in part.types])
                    self._connection.execute(f"SELECT COUNT(COLUMNS(*)) FROM {scan}").fetchall()
            for part in self._parts:
                whys = (UNREADABLE, "its where fails on a record; correct it in agent.toml")
                for whole, why in zip((True, False), whys, strict=True):
                    scan = records([part], self._selection, everything=whole)
                    with private(self._connection, self._selection.agent, part, why):
                        self._connection.execute(
                            f"SELECT {columns}, MAX(key) FROM {scan}"
                        ).fetchall()
            place = self._parts[0].place
            raise DataError(f"agent {self._selection.agent!r}, {place}: {UNREADABLE}") from None


def _whole_number(j: int) -> str:
    """Column j with NaN for NULL: Arrow would store NULL in a separate bitmap."""
    return f"coalesce(c{j}, CAST('nan' AS DOUBLE)) AS c{j}"
