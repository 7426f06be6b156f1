"""The parts of a source, chosen and checked: files, or the owner's query.

A part that the engine refuses is explained without the engine's texts, which quote raw records.

Only the owner's own `where` and `sql` on a text file need types: there a column is a number if all
its cells are numbers, else text, and the engine refuses to compare the two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from unweave.errors import DataError, MissingExtra
from unweave.node.data.csv_lines import (
    LineProblem,
    bad_lines,
    csv_problems,
    likely_delimiter,
    lines_of,
    read_header,
)
from unweave.node.data.duckdb_records import (
    Part,
    csv_scan,
    decimal_of,
    field,
    is_missing,
    named_cells,
    number_of,
    quoted,
    raw_sql,
    scan_sql,
    text_of,
)
from unweave.node.data.json_lines import json_problem
from unweave.node.data.reader import Selection, missing_column
from unweave.node.data.source import DataSource, format_of
from unweave.node.errors import BadData
from unweave.text import listed

_REFERENCE = "COLUMN_REF"

__all__ = ["UNREADABLE", "create_view", "delimiter_of", "file_part", "parts_of", "private"]


try:
    import duckdb
except ImportError as error:
    raise MissingExtra(str(error.name), "node", "reading an agent's data") from None

_REJECTS = 100_000  # malformed lines that are counted
UNREADABLE = "cannot be read: damaged, or not of the kind that its name says"
_QUOTE = 'put quotation marks around whole fields only, and double them inside: "a ""b"" c"'


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
            number_of(part, j, selection)
    if source.where is not None:
        wanted = source.where.lower()
        parts = _with_types(connection, parts, selection, lambda name: name.lower() in wanted)
        parts = [replace(part, where=source.where) for part in parts]
        for part in parts:
            _check_where(connection, part, selection)
    return parts


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
            types = described_columns(connection, f"FROM read_parquet({path})")
        else:
            found = described_columns(connection, f"FROM read_json({path}, maximum_depth = 1)")
            types = tuple((name, "JSON") for name, _ in found)
    return replace(part, types=types)


def delimiter_of(file: Path) -> str:
    """The default delimiter of a CSV file, by its name."""
    return "\t" if file.name.lower().removesuffix(".gz").endswith(".tsv") else ","


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
        cells = "*" if same[0].format == "parquet" else named_cells(same[0], selection.key)
        scans.append(f"SELECT {cells} FROM {raw_sql(same, names)}")
    with private(connection, selection.agent, typed[0]):
        connection.execute(f"CREATE TEMP VIEW data AS {' UNION ALL BY NAME '.join(scans)}")
    return typed


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
                f"bool_and({is_missing(part, name)} OR ({decimal_of(part, name)} IS NOT NULL "
                f"AND NOT regexp_matches({text_of(part, name)}, '^[+-]?0[0-9]')))"
                for name in some
            )
            with private(connection, selection.agent, part):
                found = connection.execute(
                    f"SELECT {tests} FROM {raw_sql([part], some)}"
                ).fetchone()
            others |= {name for name, good in zip(some, found or (), strict=True) if good is False}
    # A column without cells in one file may hold numbers in another.
    return [replace(p, numeric=frozenset(n for n, _ in p.types if n not in others)) for p in parts]


def _check_where(connection: duckdb.DuckDBPyConnection, part: Part, selection: Selection) -> None:
    agent = selection.agent
    try:
        (one,) = connection.extract_statements(f"SELECT 1 WHERE (\n{part.where}\n)")
        if one.type != duckdb.StatementType.SELECT:
            raise ValueError
        described_columns(connection, f"SELECT * FROM {scan_sql([part], selection)}")
    except duckdb.PermissionException:
        raise DataError(
            f"agent {agent!r}: where reaches for something other than the agent's files, which is "
            "refused"
        ) from None
    except (duckdb.Error, ValueError):
        if unknown := _unknown_names(connection, part):
            names = [name for name, _ in part.types]
            if part.format == "json":  # its keys may be the names of people
                names = [name for name in names if name in (*selection.names, selection.key)]
            known = listed(names, 12)
            raise BadData(
                f"agent {agent!r}, {part.place}: where names {listed(unknown)}, which is no column",
                f"correct it in agent.toml ([data]); the columns are {known}",
            ) from None
        raise BadData(
            f"agent {agent!r}, {part.place}: where is not a condition on its columns",
            'correct it in agent.toml ([data]), as in where = "age >= 18"; columns with other '
            "cells than numbers are texts there",
        ) from None


def _unknown_names(connection: duckdb.DuckDBPyConnection, part: Part) -> list[str]:
    """The names in the owner's condition that are no column of the part."""
    try:
        row = connection.execute(
            "SELECT json_serialize_sql(?::VARCHAR)", [f"SELECT 1 WHERE (\n{part.where}\n)"]
        ).fetchone()
        tree = json.loads(row[0]) if row else {}
    except (duckdb.Error, ValueError):
        return []
    known = {name.lower() for name, _ in part.types}
    # A name of several parts is that of a table and a column, or of a column and a field.
    found = [names for names in _column_names(tree) if not known & {n.lower() for n in names}]
    return list(dict.fromkeys(repr(".".join(names)) for names in found))


def _column_names(tree: Any) -> Iterator[list[str]]:
    """The references to columns in a parsed statement."""
    if isinstance(tree, dict):
        if isinstance(names := tree.get("column_names"), list) and tree.get("class") == _REFERENCE:
            yield names
        tree = list(tree.values())
    if isinstance(tree, list):
        for part in tree:
            yield from _column_names(part)


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
        types = described_columns(connection, wrapped)
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


def described_columns(
    connection: duckdb.DuckDBPyConnection, query: str
) -> tuple[tuple[str, str], ...]:
    rows = connection.execute(f"DESCRIBE {query}").fetchall()
    return tuple((str(row[0]), str(row[1])) for row in rows)


@contextmanager
def private(
    connection: duckdb.DuckDBPyConnection, agent: str, part: Part, why: str = UNREADABLE
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
    cells = ", ".join(f"MAX({field(j)})" for j in range(len(part.types)))
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
