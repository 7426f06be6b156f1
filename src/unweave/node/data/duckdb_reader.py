"""The DuckDB reader of an agent's files: sandboxed, typed, streaming.

A source has parts: files, or one query. Each part becomes SQL that gives typed records. Numbers are
columns c0, c1, …, NULL where a cell is not a number. The key is its canonical text. Types are never
guessed from values: a CSV column is text that is cast cell by cell, so that one invalid cell does
not turn its column into text.

The connection can read the agent's own files only. It can use no other path, no extension, no
network and no Python variable, and its settings are locked.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DataError, MissingExtra
from unweave.models import ConjugateModel
from unweave.models.columns import unseen
from unweave.models.resolution import Extremes
from unweave.node.data.commitments import pads
from unweave.node.data.csv_lines import (
    csv_lines,
    csv_problem,
    likely_delimiter,
    line_of,
    read_header,
)
from unweave.node.data.duckdb_sql import double, form
from unweave.node.data.json_lines import json_lines, json_problem
from unweave.node.data.reader import (
    COMMA,
    FINE,
    MISSING,
    NO_NUMBER,
    TOO_LARGE,
    Batch,
    Batches,
    Selection,
    Sums,
    batched_sums,
    missing_column,
    schema_names,
)
from unweave.node.data.source import DataSource, FileFormat, format_of
from unweave.node.errors import BadData
from unweave.protocol.statements import COMMITMENT_BYTES
from unweave.text import listed

__all__ = [
    "Part",
    "connect",
    "csv_scan",
    "delimiter_of",
    "file_part",
    "open_duck",
    "private",
    "quoted",
]


try:
    import duckdb
    import nanoarrow
except ImportError as error:
    raise MissingExtra(str(error.name), "node", "reading an agent's data") from None


_REAL = re.compile(r"FLOAT|DOUBLE|DECIMAL\(.*\)")
_WHOLE = re.compile(r"BOOLEAN|U?(TINY|SMALL)?INT(EGER)?")
_WIDE = re.compile(r"U?(BIG|HUGE)INT|BIGNUM")
_UNREADABLE = "cannot be read: damaged, or not of the kind that its name says"
_QUOTE = 'put quotation marks around whole fields only, and double them inside: "a ""b"" c"'


@dataclass(frozen=True)
class Part:
    """A file or a query: its columns with their types, and the options of its scan."""

    place: str
    format: FileFormat | Literal["query"]
    types: tuple[tuple[str, str], ...]
    text: str  # the file's path, or the query
    delimiter: str = ","
    decimal: str = "."

    def where(self, number: int) -> str:
        """The place of a record for error messages: its first line, or its number."""
        file = Path(self.text)
        try:
            lines: Iterator[int] = iter(())
            if self.format == "csv":
                lines = csv_lines(file, self.delimiter)
            elif self.format == "json":
                lines = json_lines(file)
            return f"line {next(islice(lines, number - 1, None))}"
        except (OSError, EOFError, StopIteration, ValueError, csv.Error):
            pass  # the file changed meanwhile; the record number is still correct
        return f"record {number} (counted from 1)"

    def described(self, wanted: str) -> str:
        """What an error may say of the names of the columns, which lack `wanted`."""
        names = [name for name, _ in self.types]
        return unseen(wanted, names) if self.format in ("csv", "json") else schema_names(names)


def quoted(name: str, mark: str = '"') -> str:
    return mark + name.replace(mark, mark * 2) + mark


def delimiter_of(file: Path) -> str:
    """The default delimiter of a CSV file, by its name."""
    return "\t" if file.name.lower().removesuffix(".gz").endswith(".tsv") else ","


def parts_of(
    connection: duckdb.DuckDBPyConnection,
    source: DataSource,
    files: Sequence[Path],
    selection: Selection,
) -> list[Part]:
    """The parts of a source; DataError if one of them lacks a column of the selection."""
    if source.sql is not None:
        parts = [_query(connection, source.sql, selection)]
    else:
        parts = [file_part(connection, file, source, selection.agent) for file in files]
    for part in parts:
        names = [name for name, _ in part.types]
        for name in (*selection.names, *([selection.key] if selection.key else [])):
            if name not in names:
                mark = None
                if part.format == "csv":
                    mark = likely_delimiter(names, name, part.delimiter)
                raise missing_column(selection, name, part.place, part.described(name), mark)
            if names.count(name) > 1:
                raise DataError(
                    f"agent {selection.agent!r}, {part.place}: {names.count(name)} columns are "
                    f"called {name!r}: rename all but one"
                )
        for j in range(len(selection.names)):
            _number(part, j, selection)
    return parts


def _query(connection: duckdb.DuckDBPyConnection, sql: str, selection: Selection) -> Part:
    text = sql.strip().rstrip(";")
    place = "the result of its sql"
    wrapped = f"SELECT * FROM (\n{text}\n)"
    try:
        for statement in (text, wrapped):
            (one,) = connection.extract_statements(statement)
            if one.type != duckdb.StatementType.SELECT:
                raise ValueError
    except (duckdb.Error, ValueError):
        raise DataError(
            f"agent {selection.agent!r}: sql is not one SELECT statement; correct it in agent.toml"
        ) from None
    try:
        types = _described(connection, wrapped)
    except duckdb.PermissionException:
        raise DataError(
            f"agent {selection.agent!r}: sql reaches for something other than the agent's "
            "database, which is refused"
        ) from None
    except duckdb.Error:
        tables = connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 'source' UNION ALL "
            "SELECT view_name FROM duckdb_views() WHERE database_name = 'source' AND NOT internal "
            "ORDER BY 1"
        ).fetchall()
        shown = listed([repr(table) for (table,) in tables], 12)
        raise DataError(
            f"agent {selection.agent!r}: sql does not fit the database: a table, column or "
            f"function does not exist or has another type; its tables are {shown}"
        ) from None
    return Part(place, "query", types, text)


def file_part(
    connection: duckdb.DuckDBPyConnection, file: Path, source: DataSource, agent: str
) -> Part:
    """One file with the names and types of its columns."""
    kind = format_of(file, agent)
    if kind == "csv":
        delimiter = source.delimiter or delimiter_of(file)
        types = tuple((name, "TEXT") for name in read_header(file, delimiter, agent))
        return Part(file.name, kind, types, str(file), delimiter, source.decimal)
    part = Part(file.name, kind, (), str(file))
    path = quoted(part.text, "'")
    with private(connection, agent, part, f"is not a readable {kind} file"):
        if kind == "parquet":
            types = _described(connection, f"FROM read_parquet({path})")
        else:
            found = _described(connection, f"FROM read_json({path}, maximum_depth = 1)")
            types = tuple((name, "JSON") for name, _ in found)
    return replace(part, types=types)


def _described(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[tuple[str, str], ...]:
    rows = connection.execute(f"DESCRIBE {query}").fetchall()
    return tuple((str(row[0]), str(row[1])) for row in rows)


@contextmanager
def private(
    connection: duckdb.DuckDBPyConnection, agent: str, part: Part, why: str = _UNREADABLE
) -> Iterator[None]:
    """Replace an error of the engine, whose text quotes raw records, by a DataError. A text file is
    read again to find the line and the cause."""
    try:
        yield
    except (duckdb.Error, RuntimeError):
        file, found = Path(part.text), None
        if part.format == "csv":
            problems = csv_problem(file, part.delimiter), _rejected(connection, part)
            found = min(filter(None, problems), default=None)
        elif part.format == "json":
            found = json_problem(file)
        if found is not None:
            line, wrong, fix = found
            wrong = f"agent {agent!r}, {part.place}, line {line}: {wrong}"
            raise BadData(wrong, fix, "; ") from None
        raise DataError(f"agent {agent!r}, {part.place}: {why}") from None


def _rejected(connection: duckdb.DuckDBPyConnection, part: Part) -> tuple[int, str, str] | None:
    """Number, cause and fix of the first line of a CSV file that the engine rejects.

    With `store_rejects` the engine skips the rejected lines, so this query must not compute sums.
    The texts in the table of rejects are not used, because they quote the line. The engine counts a
    record of several lines as one line; the position in bytes gives the real line.
    """
    scan = csv_scan([part], "header = true, store_rejects = true, rejects_limit = 100000")
    cells = ", ".join(f"MAX(s{j})" for j in range(len(part.types)))
    try:
        connection.execute(f"SELECT {cells} FROM {scan}").fetchall()
        found = connection.execute(
            "SELECT line_byte_position, CAST(first(error_type) AS VARCHAR), MAX(column_idx) "
            "FROM reject_errors GROUP BY 1 ORDER BY 1 LIMIT 1"
        ).fetchone()
        if found is None:
            return None
        line = line_of(Path(part.text), found[0] - 1)
    except (duckdb.Error, OSError, EOFError):
        return None
    finally:
        connection.execute("DROP TABLE IF EXISTS reject_errors")
        connection.execute("DROP TABLE IF EXISTS reject_scans")
    kind, fields = str(found[1]), int(found[2] or 0)  # a line that is too long has no field
    has = f"has {fields} field{'s' * (fields != 1)}, but the header has {len(part.types)}"
    problems = {
        "MISSING COLUMNS": (has, "complete the line, or take it out"),
        "TOO MANY COLUMNS": (
            has,
            "take out what is too much, or put quotation marks around a field that holds the "
            "delimiter",
        ),
        "UNQUOTED VALUE": ("has a stray quotation mark, or one that is never closed", _QUOTE),
        "LINE SIZE OVER MAXIMUM": ("is too long", "close a quotation mark before, or split it"),
    }
    return None if kind not in problems else (line, *problems[kind])


def records(
    parts: Sequence[Part],
    selection: Selection,
    *,
    told: bool = False,
    numbered: bool = False,
    place: int = 0,
) -> str:
    """Parts of equal format and types as (c0, c1, …, key[, f0, f1, …][, place, number])."""
    part = parts[0]
    cells = []
    for j, name in enumerate(selection.names):
        number, fault = _number(part, j, selection)
        cells.append(f"{number} AS c{j}")
        if told:
            column = _column(part, name)
            comma = ""
            if part.format == "csv" and part.decimal == ".":
                comma = f"WHEN {_with_comma(column)} IS NOT NULL THEN {double(COMMA)} "
            cells.append(
                f"CASE WHEN {column} IS NULL THEN {double(MISSING)} WHEN {number} IS NOT NULL "
                f"THEN {double(FINE)} {comma}ELSE {double(fault)} END AS f{j}"
            )
    cells.append(f"{_key(part, selection.key)} AS key")
    if numbered:
        cells.append(f"{place} AS place")
        cells.append("CAST(row_number() OVER () AS DOUBLE) AS number")
    return f"(SELECT {', '.join(cells)} FROM {_scan(parts, selection)})"


def _scan(parts: Sequence[Part], selection: Selection) -> str:
    part = parts[0]
    if part.format == "query":
        return f"(\n{part.text}\n)"
    files = ", ".join(quoted(p.text, "'") for p in parts)
    if part.format == "parquet":
        return f"read_parquet([{files}])"
    if part.format == "json":
        asked = dict.fromkeys(
            (*selection.names, *([selection.key] if selection.key else [])), "JSON"
        )
        return f"read_json([{files}], columns = {_struct(asked)})"
    return csv_scan(parts)


def csv_scan(parts: Sequence[Part], options: str = "header = true") -> str:
    """Columns s0, s1, … of text, by position: the names in the header may be any text."""
    files = ", ".join(quoted(p.text, "'") for p in parts)
    columns = {f"s{j}": "VARCHAR" for j in range(len(parts[0].types))}
    return (
        f"read_csv([{files}], columns = {_struct(columns)}, auto_detect = false, {options}, "
        f"delim = {quoted(parts[0].delimiter, chr(39))}, quote = '\"', escape = '\"')"
    )


def _struct(values: dict[str, str]) -> str:
    cells = (f"{quoted(key, chr(39))}: {quoted(value, chr(39))}" for key, value in values.items())
    return "{" + ", ".join(cells) + "}"


def _column(part: Part, name: str) -> str:
    if part.format == "csv":
        return f"s{[n for n, _ in part.types].index(name)}"
    return quoted(name)


def _number(part: Part, j: int, selection: Selection) -> tuple[str, float]:
    """A cell of column j as DOUBLE or as BIGINT up to 2^53, else NULL; and the fault of a cell that
    is NULL but not missing."""
    name = selection.names[j]
    column = _column(part, name)
    kind = dict(part.types)[name]
    binary = selection.binary[j]
    if part.format == "csv":
        text = _with_comma(column) if part.decimal == "," else f"TRY_CAST({column} AS DOUBLE)"
        return _or_truth(text, column) if binary else text, NO_NUMBER
    if part.format == "json":
        numeric = f"json_type({column}) IN ('DOUBLE', 'BIGINT', 'UBIGINT', 'BOOLEAN')"
        text = f"CASE WHEN {numeric} THEN TRY_CAST({column} AS DOUBLE) END"
        return _or_truth(text, f"({column} ->> '$')") if binary else text, NO_NUMBER
    if binary and kind == "VARCHAR":
        return _truth(column), NO_NUMBER
    if _REAL.fullmatch(kind):
        return (
            f"CAST({column} AS DOUBLE)",
            NO_NUMBER,
        )  # DECIMAL too: DECIMAL rounds half away from 0
    if _WHOLE.fullmatch(kind):
        return f"CAST({column} AS BIGINT)", NO_NUMBER
    if _WIDE.fullmatch(kind):
        safe = f"{column} BETWEEN {-(2**53)} AND {2**53}"
        return f"CASE WHEN {safe} THEN CAST({column} AS BIGINT) END", TOO_LARGE
    raise DataError(
        f"agent {selection.agent!r}, {part.place}: column {name!r} holds {kind}; expected numbers"
    )


def _truth(text: str) -> str:
    """The same rule as `columns.truth`."""
    return (
        f"CASE lower(trim({text})) WHEN 'true' THEN {double(1)} WHEN 'false' THEN {double(0)} END"
    )


def _or_truth(number: str, text: str) -> str:
    """The number, or the truth value where there is none. DuckDB evaluates `coalesce` for whole
    vectors of records: with it, sums of a CSV column of 0 and 1 took 80% more CPU time."""
    return f"CASE WHEN {number} IS NULL THEN {_truth(text)} ELSE {number} END"


def _with_comma(column: str) -> str:
    """A number with a decimal comma. A text with a point is not a number, because the point in
    1.234 could separate thousands or be the decimal point."""
    return (
        f"CASE WHEN NOT contains({column}, '.') THEN "
        f"TRY_CAST(replace({column}, ',', '.') AS DOUBLE) END"
    )


def _key(part: Part, name: str | None) -> str:
    """The canonical text of a key, as in `commitments.canonical`."""
    if name is None:
        return "CAST(NULL AS VARCHAR)"
    column, kind = _column(part, name), dict(part.types)[name]
    if part.format == "json":
        return f"'t:' || ({column} ->> '$')"
    if kind == "BLOB":
        return f"'b:' || lower(hex({column}))"
    if kind in ("FLOAT", "DOUBLE"):
        whole = f"{column} = trunc({column}) AND abs({column}) < {double(2.0**53)}"
        number = f"CASE WHEN {whole} THEN CAST(CAST({column} AS BIGINT) AS VARCHAR)"
        return (
            f"CASE WHEN NOT isnan({column}) THEN 't:' || {number} "
            f"ELSE CAST({column} AS VARCHAR) END END"
        )
    return f"'t:' || CAST({column} AS VARCHAR)"


Floats = NDArray[np.float64]

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",  # a query must not read Python variables
    "preserve_insertion_order": "true",  # the order gives the record numbers
    "memory_limit": "1GiB",
    # type_pushdown moves TRY_CAST into the CSV reader as a cast that fails (duckdb/duckdb#23818).
    "disabled_optimizers": "type_pushdown",
}
_TEMPORARY = ".duckdb-tmp"  # in the agent's folder; the engine removes it


def connect(folder: Path, threads: int) -> duckdb.DuckDBPyConnection:
    """An engine in memory, with its temporary files in `folder`."""
    settings = _SETTINGS | {"threads": threads, "temp_directory": str(folder / _TEMPORARY)}
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute(
        "SET enable_progress_bar = false"
    )  # a setting of the connection, not of the database
    return connection


@contextmanager
def open_duck(
    folder: Path, source: DataSource, files: Sequence[Path], selection: Selection, threads: int
) -> Iterator[DuckReader]:
    """A reader of `files` (or of `sql` on the one database file) until the block ends."""
    with connect(folder, threads) as connection:
        names = ", ".join(quoted(str(file), "'") for file in files)
        if source.sql is not None:
            base = Part(files[0].name, "query", (), "")
            with private(connection, selection.agent, base, "is in use, damaged or too new"):
                connection.execute(f"ATTACH {names} AS source (READ_ONLY)")
                connection.execute("USE source")
        else:
            connection.execute(f"SET allowed_paths = [{names}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield DuckReader(connection, parts_of(connection, source, files, selection), selection)


class DuckReader:
    """Reads the records of some parts; see `Reader`."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, parts: Sequence[Part], selection: Selection
    ) -> None:
        self._connection = connection
        self._parts = parts
        self._selection = selection
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
            one = records([part], self._selection, told=True, numbered=True)
            sql = f"SELECT {', '.join(cells)}, number FROM {self._remaining(one, erased)}"
            for rows in self._stream(sql, chunk):
                faults = rows[:, c : 2 * c]
                yield Batch(rows[:, :c], part.place, rows[:, -1], faults, part.where)

    def sums(self, model: ConjugateModel, erased: frozenset[str], chunk: int) -> Sums | None:
        sql = form(model)
        found = None if sql is None else sql.read(self._rows(sql.query(self._all(erased)))[0])
        # The batches show whether a record is invalid or does not fit the grid.
        return found or batched_sums(self, model, erased, chunk)

    def count(self, erased: frozenset[str]) -> int:
        return int(self._rows(f"SELECT COUNT(*) FROM {self._all(erased)}")[0][0])

    def extremes(self, erased: frozenset[str]) -> Extremes:
        cells = ", ".join(f"MIN(c{j}), MAX(c{j})" for j in range(self._size))
        found = self._rows(f"SELECT {cells} FROM {self._all(erased)}")[0]
        return [] if None in found else list(zip(found[::2], found[1::2], strict=True))

    def committed(self, dropped: frozenset[bytes], secret: bytes) -> frozenset[str]:
        self._set("dropped", [digest.hex() for digest in dropped])
        outer, inner = pads(secret)
        hashed = (
            "left(sha256(CAST(? AS BLOB) || unhex(sha256(CAST(? AS BLOB) || encode(key)))), "
            f"{2 * COMMITMENT_BYTES})"
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

    def _all(self, erased: frozenset[str] = frozenset(), numbered: bool = False) -> str:
        """All records that are not erased: one scan for adjacent parts of the same types."""
        self._set_erased(erased)
        alike = groupby(self._parts, key=lambda part: (part.format, part.types))
        scans = [
            records(list(parts), self._selection, numbered=numbered, place=place)
            for place, (_, parts) in enumerate(alike)
        ]
        union = " UNION ALL ".join(f"SELECT * FROM {scan}" for scan in scans)
        return self._remaining(f"({union})", erased)

    def _remaining(self, scan: str, erased: frozenset[str]) -> str:
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
            for part in self._parts:
                with private(self._connection, self._selection.agent, part):
                    scan = records([part], self._selection)
                    self._connection.execute(f"SELECT {columns}, MAX(key) FROM {scan}").fetchall()
            place = self._parts[0].place
            raise DataError(f"agent {self._selection.agent!r}, {place}: {_UNREADABLE}") from None


def _whole_number(j: int) -> str:
    """Column j with NaN for NULL: Arrow would store NULL in a separate bitmap."""
    return f"coalesce(c{j}, CAST('nan' AS DOUBLE)) AS c{j}"
