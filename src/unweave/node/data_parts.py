"""The parts of a source, a file or a query each, as SQL that gives typed records.

Types are never guessed from values: a CSV column is text that is cast cell by cell, so that one bad
row makes one bad cell, not a column of text.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from unweave.errors import DataError, MissingExtra
from unweave.node.data_csv import csv_lines, csv_problem, likely_delimiter, read_header
from unweave.node.data_records import (
    COMMA,
    FINE,
    MISSING,
    NO_NUMBER,
    TOO_LARGE,
    Wanted,
    listed,
    missing_column,
)
from unweave.node.data_source import DataSource, FileFormat, format_of
from unweave.node.data_sql import double
from unweave.node.dealing import read_records
from unweave.node.mending import BadData

try:
    import duckdb
except ImportError:
    raise MissingExtra("duckdb", "node", "reading an agent's data") from None

__all__ = ["Part", "parts_of", "private", "quoted", "records"]

_REAL = re.compile(r"FLOAT|DOUBLE|DECIMAL\(.*\)")
_WHOLE = re.compile(r"BOOLEAN|U?(TINY|SMALL)?INT(EGER)?")
_WIDE = re.compile(r"U?(BIG|HUGE)INT|BIGNUM")
_IN_MEMORY = 1 << 26  # bytes of JSON that are read again to count lines
_UNREADABLE = "cannot be read: damaged, or not of the kind that its name says"

# All that is taken of an engine's error: a number that follows the engine's own words.
_CSV_LINE = re.compile(r"^[^\n]*CSV Error on Line: (\d+)")
_JSON_LINE = re.compile(r"^[^\n]*JSON[^\n]*? in line (\d+)")


@dataclass(frozen=True)
class Part:
    """A file or a query: its columns with their types, and how it is scanned."""

    place: str
    format: FileFormat | Literal["query"]
    types: tuple[tuple[str, str], ...]
    text: str  # the file's path, or the query
    delimiter: str = ","
    decimal: str = "."

    def where(self, number: int) -> str:
        """Where a record is, for people: the line where it begins, if the file has lines."""
        file = Path(self.text)
        try:
            if self.format == "csv":
                lines = csv_lines(file, self.delimiter)
                return f"line {next(islice(lines, number - 1, None))}"
            if self.format == "json" and file.stat().st_size < _IN_MEMORY:
                return read_records(file).place(number - 1)
        except (OSError, EOFError, StopIteration, IndexError, DataError, csv.Error):
            pass  # it changes meanwhile: the number of the record is true all the same
        return f"record {number} (counted from 1)"


def quoted(name: str, mark: str = '"') -> str:
    return mark + name.replace(mark, mark * 2) + mark


# -- opening ----------------------------------------------------------------------------------


def parts_of(
    connection: duckdb.DuckDBPyConnection,
    source: DataSource,
    files: Sequence[Path],
    wanted: Wanted,
) -> list[Part]:
    """The parts of a source, each checked to have the columns that are wanted."""
    if source.sql is not None:
        parts = [_query(connection, source.sql, wanted)]
    else:
        parts = [_file(connection, file, source, wanted) for file in files]
    for part in parts:
        names = [name for name, _ in part.types]
        for name in (*wanted.names, *([wanted.key] if wanted.key else [])):
            if name not in names:
                mark = None
                if part.format == "csv":
                    mark = likely_delimiter(names, name, part.delimiter)
                raise missing_column(wanted, name, part.place, names, mark)
            if names.count(name) > 1:
                raise DataError(
                    f"agent {wanted.agent!r}, {part.place}: {names.count(name)} columns are called "
                    f"{name!r}: rename all but one"
                )
        for name in wanted.names:
            _number(part, name, wanted)
    return parts


def _query(connection: duckdb.DuckDBPyConnection, sql: str, wanted: Wanted) -> Part:
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
            f"agent {wanted.agent!r}: sql is not one SELECT statement; correct it in agent.toml"
        ) from None
    try:
        types = _described(connection, wrapped)
    except duckdb.PermissionException:
        raise DataError(
            f"agent {wanted.agent!r}: sql reaches for something other than the agent's database, "
            "which is refused"
        ) from None
    except duckdb.Error:
        tables = connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 'source' UNION ALL "
            "SELECT view_name FROM duckdb_views() WHERE database_name = 'source' AND NOT internal "
            "ORDER BY 1"
        ).fetchall()
        raise DataError(
            f"agent {wanted.agent!r}: sql does not fit the database: a table, column or function "
            f"does not exist or has another type; its tables are {listed([t for (t,) in tables])}"
        ) from None
    return Part(place, "query", types, text)


def _file(
    connection: duckdb.DuckDBPyConnection, file: Path, source: DataSource, wanted: Wanted
) -> Part:
    kind = format_of(file, wanted.agent)
    path = quoted(str(file), "'")
    if kind == "csv":
        tabs = file.name.lower().removesuffix(".gz").endswith(".tsv")
        delimiter = source.delimiter or ("\t" if tabs else ",")
        names = read_header(file, delimiter, wanted.agent)
        types = tuple((name, "TEXT") for name in names)
        return Part(file.name, "csv", types, str(file), delimiter, source.decimal)
    with private(wanted.agent, file.name, f"is not a readable {kind} file"):
        if kind == "parquet":
            return Part(
                file.name, kind, _described(connection, f"FROM read_parquet({path})"), str(file)
            )
        seen = _described(connection, f"FROM read_json({path}, maximum_depth = 1)")
        return Part(file.name, kind, tuple((name, "JSON") for name, _ in seen), str(file))


def _described(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[tuple[str, str], ...]:
    rows = connection.execute(f"DESCRIBE {query}").fetchall()
    return tuple((str(row[0]), str(row[1])) for row in rows)


@contextmanager
def private(
    agent: str, place: str, why: str = _UNREADABLE, part: Part | None = None
) -> Iterator[None]:
    """Turn an engine's error into one without the engine's text, which quotes raw records; a CSV
    file is read again to say what is wrong with it."""
    try:
        yield
    except (duckdb.Error, RuntimeError) as error:
        where = ""
        if part is not None and part.format == "csv":
            found = csv_problem(Path(part.text), part.delimiter)
            if found is not None:
                number, wrong, fix = found
                wrong = f"agent {agent!r}, {place}, line {number}: {wrong}"
                raise BadData(wrong, fix, "; ") from None
        if line := _CSV_LINE.match(str(error)):
            where = f", line {line[1]}"
            why = "is malformed there: too few or too many fields, a stray quote, or not UTF-8"
        elif line := _JSON_LINE.match(str(error)):
            where, why = f", near line {line[1]}", "is not readable JSON there"
        raise DataError(f"agent {agent!r}, {place}{where}: {why}") from None


# -- scanning ---------------------------------------------------------------------------------


def records(
    parts: Sequence[Part],
    wanted: Wanted,
    *,
    told: bool = False,
    numbered: bool = False,
    place: int = 0,
) -> str:
    """Parts that look alike as (c0, c1, …, key[, f0, f1, …][, place, number])."""
    part = parts[0]
    cells = []
    for j, name in enumerate(wanted.names):
        number, fault = _number(part, name, wanted)
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
    cells.append(f"{_key(part, wanted.key)} AS key")
    if numbered:
        cells.append(f"{place} AS place")
        cells.append("CAST(row_number() OVER () AS DOUBLE) AS number")
    return f"(SELECT {', '.join(cells)} FROM {_scan(parts, wanted)})"


def _scan(parts: Sequence[Part], wanted: Wanted) -> str:
    part = parts[0]
    if part.format == "query":
        return f"(\n{part.text}\n)"
    files = ", ".join(quoted(p.text, "'") for p in parts)
    if part.format == "parquet":
        return f"read_parquet([{files}])"
    if part.format == "json":
        asked = dict.fromkeys((*wanted.names, *([wanted.key] if wanted.key else [])), "JSON")
        return f"read_json([{files}], columns = {_struct(asked)})"
    # Columns by position: the header has been read, and may hold any names.
    columns = {f"s{i}": "VARCHAR" for i in range(len(part.types))}
    return (
        f"read_csv([{files}], columns = {_struct(columns)}, auto_detect = false, header = true, "
        f"delim = {quoted(part.delimiter, chr(39))}, quote = '\"', escape = '\"')"
    )


def _struct(values: dict[str, str]) -> str:
    cells = (f"{quoted(key, chr(39))}: {quoted(value, chr(39))}" for key, value in values.items())
    return "{" + ", ".join(cells) + "}"


def _column(part: Part, name: str) -> str:
    if part.format == "csv":
        return f"s{[n for n, _ in part.types].index(name)}"
    return quoted(name)


def _number(part: Part, name: str, wanted: Wanted) -> tuple[str, float]:
    """A cell as DOUBLE or as BIGINT up to 2^53, else NULL; and why it is NULL, if not missing."""
    column = _column(part, name)
    kind = dict(part.types)[name]
    if part.format == "csv":
        text = _with_comma(column) if part.decimal == "," else f"TRY_CAST({column} AS DOUBLE)"
        return text, NO_NUMBER
    if part.format == "json":
        numeric = f"json_type({column}) IN ('DOUBLE', 'BIGINT', 'UBIGINT', 'BOOLEAN')"
        return f"CASE WHEN {numeric} THEN TRY_CAST({column} AS DOUBLE) END", NO_NUMBER
    if _REAL.fullmatch(kind):
        return f"CAST({column} AS DOUBLE)", NO_NUMBER  # DECIMAL too: it rounds half away from 0
    if _WHOLE.fullmatch(kind):
        return f"CAST({column} AS BIGINT)", NO_NUMBER
    if _WIDE.fullmatch(kind):
        safe = f"{column} BETWEEN {-(2**53)} AND {2**53}"
        return f"CASE WHEN {safe} THEN CAST({column} AS BIGINT) END", TOO_LARGE
    raise DataError(
        f"agent {wanted.agent!r}, {part.place}: column {name!r} holds {kind}; expected numbers"
    )


def _with_comma(column: str) -> str:
    """A number with a decimal comma. A point in it would separate thousands, or be the decimal
    point: 1.234 could mean either, so it is none."""
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
