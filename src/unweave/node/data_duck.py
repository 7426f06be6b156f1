"""DuckDB as the reader of an agent's files: sandboxed, typed, streaming.

The connection sees the agent's own files and nothing else: no other path, no extension, no network,
no Python variable, and its settings are locked. Numbers arrive as columns c0, c1, …,
NULL where a cell is no number; the key as its canonical text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DataError, MissingExtra
from unweave.models.resolution import Extremes
from unweave.node.commitments import COMMITMENT_SIZE, pads
from unweave.node.data_parts import Part, parts_of, private, quoted, records
from unweave.node.data_records import Batch, Batches, Wanted
from unweave.node.data_source import DataSource
from unweave.node.data_sql import Form

try:
    import duckdb
    import nanoarrow
except ImportError:
    raise MissingExtra("nanoarrow", "node", "reading an agent's data") from None

__all__ = ["DuckReader", "open_duck"]

Floats = NDArray[np.float64]

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",  # a query must not find Python's variables
    "preserve_insertion_order": "true",  # records are numbered
    "memory_limit": "1GiB",
    # It would move TRY_CAST into the CSV reader as a cast that fails (duckdb/duckdb#23818).
    "disabled_optimizers": "type_pushdown",
}
_TEMPORARY = ".duckdb-tmp"  # in the agent's folder; the engine removes it


@contextmanager
def open_duck(
    folder: Path, source: DataSource, files: Sequence[Path], wanted: Wanted, threads: int
) -> Iterator[DuckReader]:
    """A reader of `files` (or of `sql` on the one database file) until the block ends."""
    settings = _SETTINGS | {"threads": threads, "temp_directory": str(folder / _TEMPORARY)}
    with duckdb.connect(":memory:", config=settings) as connection:
        connection.execute("SET enable_progress_bar = false")  # belongs to a connection
        names = ", ".join(quoted(str(file), "'") for file in files)
        if source.sql is not None:
            with private(wanted.agent, files[0].name, "is in use, damaged or too new"):
                connection.execute(f"ATTACH {names} AS source (READ_ONLY)")
                connection.execute("USE source")
        else:
            connection.execute(f"SET allowed_paths = [{names}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield DuckReader(connection, parts_of(connection, source, files, wanted), wanted)


class DuckReader:
    """Reads the records of some parts; see `Reader`."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, parts: Sequence[Part], wanted: Wanted
    ) -> None:
        self._connection = connection
        self._parts = parts
        self._wanted = wanted
        self._size = len(wanted.names)

    def batches(self, gone: frozenset[str], chunk: int, ordered: bool = False) -> Batches:
        cells = ", ".join(_number(j) for j in range(self._size))
        # Only a join can change the order.
        sort = ordered and bool(gone)
        order = " ORDER BY place, number" if sort else ""
        for rows in self._stream(f"SELECT {cells} FROM {self._all(gone, sort)}{order}", chunk):
            yield Batch(rows)

    def told(self, gone: frozenset[str], chunk: int) -> Batches:
        self._set_gone(gone)
        c = self._size
        cells = [_number(j) for j in range(c)] + [f"f{j}" for j in range(c)]
        for part in self._parts:
            one = records([part], self._wanted, told=True, numbered=True)
            sql = f"SELECT {', '.join(cells)}, number FROM {self._left(one, gone)}"
            for rows in self._stream(sql, chunk):
                faults = rows[:, c : 2 * c]
                yield Batch(rows[:, :c], part.place, rows[:, -1], faults, part.where)

    def totals(self, form: Form, gone: frozenset[str]) -> tuple[int, list[int]] | None:
        return form.read(self._rows(form.query(self._all(gone)))[0])

    def count(self, gone: frozenset[str]) -> int:
        return int(self._rows(f"SELECT COUNT(*) FROM {self._all(gone)}")[0][0])

    def extremes(self, gone: frozenset[str]) -> Extremes:
        cells = ", ".join(f"MIN(c{j}), MAX(c{j})" for j in range(self._size))
        found = self._rows(f"SELECT {cells} FROM {self._all(gone)}")[0]
        return [] if None in found else list(zip(found[::2], found[1::2], strict=True))

    def committed(self, dropped: frozenset[bytes], secret: bytes) -> frozenset[str]:
        self._set("dropped", [digest.hex() for digest in dropped])
        outer, inner = pads(secret)
        hashed = (
            "left(sha256(CAST(? AS BLOB) || unhex(sha256(CAST(? AS BLOB) || encode(key)))), "
            f"{2 * COMMITMENT_SIZE})"
        )
        found = self._rows(
            f"SELECT DISTINCT r.key FROM (SELECT key, {hashed} AS digest FROM {self._all()} "
            "WHERE key IS NOT NULL) AS r SEMI JOIN dropped ON r.digest = dropped.key",
            [outer, inner],
        )
        return frozenset(key for (key,) in found)

    def known(self, keys: frozenset[str]) -> frozenset[str]:
        self._set("asked", sorted(keys))
        found = self._rows(
            f"SELECT asked.key FROM asked SEMI JOIN {self._all()} AS r ON asked.key = r.key"
        )
        return frozenset(key for (key,) in found)

    def named(self) -> tuple[int, int]:
        key = "CASE WHEN key <> 't:' THEN key END"
        nameless, repeated = self._rows(
            f"SELECT COUNT(*) - COUNT({key}), COUNT({key}) - COUNT(DISTINCT {key}) "
            f"FROM {self._all()}"
        )[0]
        return int(nameless), int(repeated)

    # -- SQL ----------------------------------------------------------------------------------

    def _all(self, gone: frozenset[str] = frozenset(), numbered: bool = False) -> str:
        """All records but those that are gone: one scan for parts that look alike."""
        self._set_gone(gone)
        alike = groupby(self._parts, key=lambda part: (part.format, part.types))
        scans = [
            records(list(parts), self._wanted, numbered=numbered, place=place)
            for place, (_, parts) in enumerate(alike)
        ]
        union = " UNION ALL ".join(f"SELECT * FROM {scan}" for scan in scans)
        return self._left(f"({union})", gone)

    def _left(self, scan: str, gone: frozenset[str]) -> str:
        # ANTI JOIN keeps records without a key; NOT IN would drop them.
        return f"(SELECT * FROM {scan} AS r ANTI JOIN gone ON r.key = gone.key)" if gone else scan

    def _set_gone(self, gone: frozenset[str]) -> None:
        if gone:
            self._set("gone", sorted(gone))

    def _set(self, table: str, keys: list[str]) -> None:
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} (key VARCHAR)")
        self._connection.execute(f"INSERT INTO {table} SELECT unnest(CAST(? AS VARCHAR[]))", [keys])

    def _rows(self, sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        with self._private():
            return self._connection.execute(sql, values or []).fetchall()

    def _stream(self, sql: str, chunk: int) -> Iterator[Floats]:
        """The result as float64 rows, `chunk` at a time; the engine waits while they are used."""
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
        """Engine errors name one part: with several, the first that cannot be read on its own."""
        first, several = self._parts[0], len(self._parts) > 1
        try:
            with private(self._wanted.agent, first.place, part=None if several else first):
                yield
        except DataError:
            for part in self._parts if several else ():
                columns = ", ".join(f"MAX(c{j})" for j in range(self._size))
                with private(self._wanted.agent, part.place, part=part):
                    scan = records([part], self._wanted)
                    self._connection.execute(f"SELECT {columns}, MAX(key) FROM {scan}").fetchall()
            raise


def _number(j: int) -> str:
    """NULL travels as NaN: Arrow would carry it beside the numbers."""
    return f"coalesce(c{j}, CAST('nan' AS DOUBLE)) AS c{j}"
