"""The DuckDB reader of an agent's files: sandboxed, typed, streaming.

A source has parts: files, or one query. Each part becomes SQL that gives typed records. Numbers are
columns c0, c1, …, NULL where a cell is not a number. The key is its canonical text. Types are never
guessed from values: a CSV column is text that is cast cell by cell, so that one invalid cell does
not turn its column into text. Only the owner's own `where` and `sql` on a text file need types:
there a column is a number if all its cells are numbers, else text, and the engine refuses to
compare the two.

The connection can read the agent's own files only. It can use no other path, no extension, no
network and no Python variable, and its settings are locked.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DataError, MissingExtra
from unweave.models import ConjugateModel
from unweave.models.columns import unseen
from unweave.models.resolution import Extremes
from unweave.models.shards import Missing
from unweave.node.data.commitments import pads
from unweave.node.data.csv_lines import (
    LineProblem,
    bad_lines,
    csv_lines,
    csv_problems,
    likely_delimiter,
    lines_of,
    read_header,
)
from unweave.node.data.duckdb_sql import double, form
from unweave.node.data.json_lines import json_lines, json_problem
from unweave.node.data.reader import (
    COMMA,
    FINE,
    MISSING,
    NO_LEVEL,
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
_REJECTS = 100_000  # malformed lines that are counted
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
    where: str = ""  # the owner's condition on the records
    numeric: frozenset[str] = frozenset()  # columns of a text file that hold only numbers

    def places(self, numbers: Sequence[int]) -> list[str]:
        """The places of records for error messages: their first lines, or their numbers, which
        count from 1 and ascend."""
        file = Path(self.text)
        lines: Iterator[int] = iter(())
        if self.format == "csv":
            lines = csv_lines(file, self.delimiter)
        elif self.format == "json":
            lines = json_lines(file)
        found, read = [], 0
        for number in numbers:
            try:
                found.append(f"line {next(islice(lines, number - read - 1, None))}")
                read = number
            except (OSError, EOFError, StopIteration, ValueError, csv.Error):
                # The file changed meanwhile; the record number is still correct.
                found.append(f"record {number} (counted from 1)")
        return found

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
        for name in selection.asked:
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
    if source.where is not None:
        wanted = source.where.lower()
        parts = _with_types(connection, parts, selection, lambda name: name.lower() in wanted)
        parts = [replace(part, where=source.where) for part in parts]
        for part in parts:
            _check_where(connection, part, selection)
    return parts


def _with_types(
    connection: duckdb.DuckDBPyConnection,
    parts: Sequence[Part],
    selection: Selection,
    wanted: Callable[[str], bool],
) -> list[Part]:
    """The parts with the columns of numbers among their text columns. The key stays text: 007 is
    not 7; for the same reason, so does a column with a leading zero."""
    others: set[str] = set()
    for part in parts if parts[0].format in ("csv", "json") else ():
        names = [n for n, _ in part.types if wanted(n) and n != selection.key]
        for start in range(0, len(names), 100):
            some = names[start : start + 100]
            tests = ", ".join(
                f"bool_and({_missing(part, name)} OR ({_decimal(part, name)} IS NOT NULL AND NOT "
                f"regexp_matches({_text(part, name)}, '^[+-]?0[0-9]')))"
                for name in some
            )
            with private(connection, selection.agent, part):
                found = connection.execute(f"SELECT {tests} FROM {_raw([part], some)}").fetchone()
            others |= {name for name, good in zip(some, found or (), strict=True) if good is False}
    # A column without cells in one file may hold numbers in another.
    return [replace(p, numeric=frozenset(n for n, _ in p.types if n not in others)) for p in parts]


def _named(part: Part, key: str | None) -> str:
    """The columns of a text file under their own names, for the owner's `where` and `sql`."""
    names = [name for name, _ in part.types]
    return ", ".join(
        f"{_decimal(part, n) if n in part.numeric and n != key else _text(part, n)} AS {quoted(n)}"
        for n in names
        if n and names.count(n) == 1
    )


def _check_where(connection: duckdb.DuckDBPyConnection, part: Part, selection: Selection) -> None:
    agent = selection.agent
    try:
        (one,) = connection.extract_statements(f"SELECT 1 WHERE (\n{part.where}\n)")
        if one.type != duckdb.StatementType.SELECT:
            raise ValueError
        _described(connection, f"SELECT * FROM {_scan([part], selection)}")
    except duckdb.PermissionException:
        raise DataError(
            f"agent {agent!r}: where reaches for something other than the agent's files, which is "
            "refused"
        ) from None
    except (duckdb.Error, ValueError):
        raise BadData(
            f"agent {agent!r}, {part.place}: where is not a condition on its columns",
            'correct it in agent.toml ([data]), as in where = "age >= 18"; columns with other '
            "cells than numbers are texts there",
        ) from None


def create_view(
    connection: duckdb.DuckDBPyConnection, parts: Sequence[Part], selection: Selection
) -> list[Part]:
    """Make all files one table, `data`, for the owner's `sql`."""
    typed = _with_types(connection, parts, selection, lambda _: True)
    alike = groupby(typed, key=lambda part: (part.format, part.types))
    scans = []
    for _, some in alike:
        same = list(some)
        names = [name for name, _ in same[0].types]
        cells = "*" if same[0].format == "parquet" else _named(same[0], selection.key)
        scans.append(f"SELECT {cells} FROM {_raw(same, names)}")
    with private(connection, selection.agent, typed[0]):
        connection.execute(f"CREATE TEMP VIEW data AS {' UNION ALL BY NAME '.join(scans)}")
    return typed


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
            "own data, which is refused"
        ) from None
    except duckdb.Error:
        tables = connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 'source' UNION ALL "
            "SELECT view_name FROM duckdb_views() WHERE database_name IN ('source', 'temp') "
            "AND NOT internal ORDER BY 1"
        ).fetchall()
        shown = listed([repr(table) for (table,) in tables], 12)
        raise DataError(
            f"agent {selection.agent!r}: sql does not fit the data: a table, column or "
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
    read again to find the lines and the causes."""
    try:
        yield
    except (duckdb.Error, RuntimeError):
        file = Path(part.text)
        found: list[LineProblem] = []
        if part.format == "csv":
            problems = [*csv_problems(file, part.delimiter), *_rejected(connection, part)]
            found = sorted({problem[0]: problem for problem in reversed(problems)}.values())
        elif part.format == "json":
            found = json_problem(file)
        if found:
            raise bad_lines(agent, part.place, found) from None
        raise DataError(f"agent {agent!r}, {part.place}: {why}") from None


def _rejected(connection: duckdb.DuckDBPyConnection, part: Part) -> list[LineProblem]:
    """The lines of a CSV file that the engine rejects.

    With `store_rejects` the engine skips the rejected lines, so this query must not compute sums.
    The texts in the table of rejects are not used, because they quote the line. The engine counts a
    record of several lines as one line; the position in bytes gives the real line.
    """
    scan = csv_scan([part], f"header = true, store_rejects = true, rejects_limit = {_REJECTS}")
    cells = ", ".join(f"MAX({_field(j)})" for j in range(len(part.types)))
    try:
        connection.execute(f"SELECT {cells} FROM {scan}").fetchall()
        found = connection.execute(
            "SELECT line_byte_position, CAST(first(error_type) AS VARCHAR), MAX(column_idx) "
            "FROM reject_errors GROUP BY 1 ORDER BY 1"
        ).fetchall()
        lines = lines_of(Path(part.text), [row[0] - 1 for row in found])
    except (duckdb.Error, OSError, EOFError):
        return []
    finally:
        connection.execute("DROP TABLE IF EXISTS reject_errors")
        connection.execute("DROP TABLE IF EXISTS reject_scans")
    problems = []
    for line, (_, kind, column) in zip(lines, found, strict=True):
        fields = int(column or 0)  # a line that is too long has no field
        has = f"has {fields} field{'s' * (fields != 1)}, but the header has {len(part.types)}"
        known = {
            "MISSING COLUMNS": (has, "complete the line, or take it out"),
            "TOO MANY COLUMNS": (
                has,
                "take out what is too much, or put quotation marks around a field that holds the "
                "delimiter",
            ),
            "UNQUOTED VALUE": ("has a stray quotation mark, or one that is never closed", _QUOTE),
            "LINE SIZE OVER MAXIMUM": ("is too long", "close a quotation mark before, or split it"),
        }
        if kind in known:
            problems.append((line, *known[kind]))
    return problems


def records(
    parts: Sequence[Part],
    selection: Selection,
    *,
    told: bool = False,
    numbered: bool = False,
    flags: bool = False,
    everything: bool = False,
    place: int = 0,
) -> str:
    """Parts of equal format and types as (c0, c1, …, key[, f0, f1, …][, m0, m1, …][, place,
    number]): numbers, faults and whether a cell is missing. `everything` ignores `where`."""
    part = parts[0]
    cells = []
    for j, name in enumerate(selection.names):
        number, fault = _number(part, j, selection)
        missing = _missing(part, name, coded=fault == NO_LEVEL)
        cells.append(f"{number} AS c{j}")
        if told:
            comma = ""
            if part.format == "csv" and part.decimal == "." and fault == NO_NUMBER:
                column = _column(part, name)
                comma = f"WHEN {_with_comma(column)} IS NOT NULL THEN {double(COMMA)} "
            cells.append(
                f"CASE WHEN {missing} THEN {double(MISSING)} WHEN {number} IS NOT NULL "
                f"THEN {double(FINE)} {comma}ELSE {double(fault)} END AS f{j}"
            )
        if flags and selection.first(name) == j:
            # A column of numbers may also hold NaN, which is no number.
            nan = "" if fault == NO_LEVEL else f" OR coalesce(isnan({number}), false)"
            cells.append(f"({missing}{nan}) AS m{j}")
    cells.append(f"{_key(part, selection.key)} AS key")
    if numbered:
        cells.append(f"{place} AS place")
        cells.append(f"{_NUMBER} AS number")
    scan = _scan(parts, selection, numbered=numbered, everything=everything)
    return f"(SELECT {', '.join(cells)} FROM {scan})"


_NUMBER = '"#"'  # no column of a file has this name


def _scan(
    parts: Sequence[Part],
    selection: Selection,
    *,
    numbered: bool = False,
    everything: bool = False,
) -> str:
    """The records before they are typed; numbers count those that `where` excludes, too."""
    part = parts[0]
    names = selection.asked
    filtered = bool(part.where) and not everything
    if filtered:
        names = tuple(name for name, _ in part.types)
    scan = _raw(parts, names)
    if numbered:
        scan = f"(SELECT *, CAST(row_number() OVER () AS DOUBLE) AS {_NUMBER} FROM {scan})"
    if filtered:
        if part.format in ("csv", "json"):
            scan = f"(SELECT *, {_named(part, selection.key)} FROM {scan})"
        scan = f"(SELECT * FROM {scan} WHERE (\n{part.where}\n))"
    return scan


def _raw(parts: Sequence[Part], names: Sequence[str]) -> str:
    """The files or the query; of a JSON file, the columns `names`."""
    part = parts[0]
    if part.format == "query":
        return f"(\n{part.text}\n)"
    files = ", ".join(quoted(p.text, "'") for p in parts)
    if part.format == "parquet":
        return f"read_parquet([{files}])"
    if part.format == "json":
        asked = _struct(dict.fromkeys(names, "JSON"))
        cells = ", ".join(f"{quoted(name)} AS {_column(part, name)}" for name in names)
        return f"(SELECT {cells} FROM read_json([{files}], columns = {asked}))"
    return csv_scan(parts)


def csv_scan(parts: Sequence[Part], options: str = "header = true") -> str:
    """Columns "#0", "#1", … of text, by position: the names in the header may be any text."""
    files = ", ".join(quoted(p.text, "'") for p in parts)
    columns = {f"#{j}": "VARCHAR" for j in range(len(parts[0].types))}
    return (
        f"read_csv([{files}], columns = {_struct(columns)}, auto_detect = false, {options}, "
        f"delim = {quoted(parts[0].delimiter, chr(39))}, quote = '\"', escape = '\"')"
    )


def _struct(values: dict[str, str]) -> str:
    cells = (f"{quoted(key, chr(39))}: {quoted(value, chr(39))}" for key, value in values.items())
    return "{" + ", ".join(cells) + "}"


def _field(j: int) -> str:
    return quoted(f"#{j}")


def _column(part: Part, name: str) -> str:
    if part.format in ("csv", "json"):
        return _field([n for n, _ in part.types].index(name))
    return quoted(name)


def _decimal(part: Part, name: str) -> str:
    """A cell of a text file as DOUBLE, else NULL."""
    column = _column(part, name)
    if part.format == "json":
        numeric = f"json_type({column}) IN ('DOUBLE', 'BIGINT', 'UBIGINT', 'BOOLEAN')"
        return f"CASE WHEN {numeric} THEN TRY_CAST({column} AS DOUBLE) END"
    return _with_comma(column) if part.decimal == "," else f"TRY_CAST({column} AS DOUBLE)"


def _text(part: Part, name: str) -> str:
    """A cell as text: 17 for the number 17 in every format (`columns.cell_text`)."""
    column, kind = _column(part, name), dict(part.types)[name]
    if part.format == "csv":
        return column
    if part.format == "json":
        return f"({column} ->> '$')"
    if kind in ("FLOAT", "DOUBLE"):
        whole = f"{column} = trunc({column}) AND abs({column}) < {double(2.0**53)}"
        number = f"CASE WHEN {whole} THEN CAST(CAST({column} AS BIGINT) AS VARCHAR)"
        return f"CASE WHEN NOT isnan({column}) THEN {number} ELSE CAST({column} AS VARCHAR) END END"
    return f"CAST({column} AS VARCHAR)"


def _missing(part: Part, name: str, coded: bool = False) -> str:
    """Whether a cell holds nothing; a text also if it is empty. (NaN, where a number is expected,
    is missing, too.)"""
    empty = f" OR {_text(part, name)} = ''" if coded else ""
    return f"({_column(part, name)} IS NULL{empty})"


def _number(part: Part, j: int, selection: Selection) -> tuple[str, float]:
    """A cell of column j as DOUBLE or as BIGINT up to 2^53, else NULL; and the fault of a cell that
    is NULL but not missing."""
    name, column = selection.names[j], selection.model.schema[j]
    cell, kind = _column(part, name), dict(part.types)[name]
    if column.codes:
        levels = " ".join(
            f"WHEN {quoted(level, chr(39))} THEN {double(code)}" for level, code in column.codes
        )
        return f"CASE {_text(part, name)} {levels} END", NO_LEVEL
    if part.format == "csv":
        text = _decimal(part, name)
        return _or_truth(text, cell) if column.truth else text, NO_NUMBER
    if part.format == "json":
        text = _decimal(part, name)
        return _or_truth(text, f"({cell} ->> '$')") if column.truth else text, NO_NUMBER
    if column.truth and kind == "VARCHAR":
        return _truth(cell), NO_NUMBER
    if _REAL.fullmatch(kind):  # DECIMAL too: DECIMAL rounds half away from 0
        return f"CAST({cell} AS DOUBLE)", NO_NUMBER
    if _WHOLE.fullmatch(kind):
        return f"CAST({cell} AS BIGINT)", NO_NUMBER
    if _WIDE.fullmatch(kind):
        safe = f"{cell} BETWEEN {-(2**53)} AND {2**53}"
        return f"CASE WHEN {safe} THEN CAST({cell} AS BIGINT) END", TOO_LARGE
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
    if dict(part.types)[name] == "BLOB":
        return f"'b:' || lower(hex({_column(part, name)}))"
    return f"'t:' || {_text(part, name)}"


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
    """A reader of `files`, or of `sql` on them or on the one database file, until the block
    ends."""
    with connect(folder, threads) as connection:
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
        return [] if None in found else list(zip(found[::2], found[1::2], strict=True))

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
                    scan = _raw([part], [name for name, _ in part.types])
                    self._connection.execute(f"SELECT COUNT(COLUMNS(*)) FROM {scan}").fetchall()
            for part in self._parts:
                whys = (_UNREADABLE, "its where fails on a record; correct it in agent.toml")
                for whole, why in zip((True, False), whys, strict=True):
                    scan = records([part], self._selection, everything=whole)
                    with private(self._connection, self._selection.agent, part, why):
                        self._connection.execute(
                            f"SELECT {columns}, MAX(key) FROM {scan}"
                        ).fetchall()
            place = self._parts[0].place
            raise DataError(f"agent {self._selection.agent!r}, {place}: {_UNREADABLE}") from None


def _whole_number(j: int) -> str:
    """Column j with NaN for NULL: Arrow would store NULL in a separate bitmap."""
    return f"coalesce(c{j}, CAST('nan' AS DOUBLE)) AS c{j}"
