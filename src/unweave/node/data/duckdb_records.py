"""Parts of a source (files or a query) as SQL: their cells, and tables of typed records.

Numbers are columns c0, c1, …, NULL where a cell is not a number. The key is its canonical text.
Types are never guessed from values: a CSV column is text that is cast cell by cell, so that one
invalid cell does not turn its column into text.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Literal

from unweave.errors import DataError
from unweave.models.columns import unseen
from unweave.node.data.csv_lines import csv_lines
from unweave.node.data.duckdb_sql import double
from unweave.node.data.json_lines import json_lines
from unweave.node.data.reader import (
    COMMA,
    FINE,
    MISSING,
    NO_LEVEL,
    NO_NUMBER,
    TOO_LARGE,
    Selection,
    schema_names,
)
from unweave.node.data.source import FileFormat

__all__ = [
    "Part",
    "csv_scan",
    "decimal_of",
    "field",
    "is_missing",
    "named_cells",
    "number_of",
    "quoted",
    "raw_sql",
    "records",
    "scan_sql",
    "text_of",
]

_REAL = re.compile(r"FLOAT|DOUBLE|DECIMAL\(.*\)")
_WHOLE = re.compile(r"BOOLEAN|U?(TINY|SMALL)?INT(EGER)?")
_WIDE = re.compile(r"U?(BIG|HUGE)INT|BIGNUM")
_NUMBER = '"#"'  # no column of a file has this name


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

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Column → type; of two columns of one name, the last one's."""
        return dict(self.types)

    @cached_property
    def positions(self) -> dict[str, int]:
        """Column → its position; of two columns of one name, the first one's."""
        return {name: j for j, (name, _) in reversed(list(enumerate(self.types)))}

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


def field(j: int) -> str:
    return quoted(f"#{j}")


def _column(part: Part, name: str) -> str:
    if part.format in ("csv", "json"):
        return field(part.positions[name])
    return quoted(name)


def decimal_of(part: Part, name: str) -> str:
    """A cell of a text file as DOUBLE, else NULL."""
    column = _column(part, name)
    if part.format == "json":
        numeric = f"json_type({column}) IN ('DOUBLE', 'BIGINT', 'UBIGINT', 'BOOLEAN')"
        return f"CASE WHEN {numeric} THEN TRY_CAST({column} AS DOUBLE) END"
    return _with_comma(column) if part.decimal == "," else f"TRY_CAST({column} AS DOUBLE)"


def text_of(part: Part, name: str) -> str:
    """A cell as text: 17 for the number 17 in every format (`columns.cell_text`)."""
    column, kind = _column(part, name), part.kinds[name]
    if part.format == "csv":
        return column
    if part.format == "json":
        return f"({column} ->> '$')"
    if kind in ("FLOAT", "DOUBLE"):
        whole = f"{column} = trunc({column}) AND abs({column}) < {double(2.0**53)}"
        number = f"CASE WHEN {whole} THEN CAST(CAST({column} AS BIGINT) AS VARCHAR)"
        return f"CASE WHEN NOT isnan({column}) THEN {number} ELSE CAST({column} AS VARCHAR) END END"
    return f"CAST({column} AS VARCHAR)"


def is_missing(part: Part, name: str, coded: bool = False) -> str:
    """Whether a cell holds nothing; a text also if it is empty. (NaN, where a number is expected,
    is missing, too.)"""
    empty = f" OR {text_of(part, name)} = ''" if coded else ""
    return f"({_column(part, name)} IS NULL{empty})"


def number_of(part: Part, j: int, selection: Selection) -> tuple[str, float]:
    """A cell of column j as DOUBLE or as BIGINT up to 2^53, else NULL; and the fault of a cell that
    is NULL but not missing."""
    name, column = selection.names[j], selection.schema[j]
    cell, kind = _column(part, name), part.kinds[name]
    if column.codes:
        levels = " ".join(
            f"WHEN {quoted(level, chr(39))} THEN {double(code)}" for level, code in column.codes
        )
        return f"CASE {text_of(part, name)} {levels} END", NO_LEVEL
    if part.format == "csv":
        text = decimal_of(part, name)
        return _or_truth(text, cell) if column.truth else text, NO_NUMBER
    if part.format == "json":
        text = decimal_of(part, name)
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
    if part.kinds[name] == "BLOB":
        return f"'b:' || lower(hex({_column(part, name)}))"
    return f"'t:' || {text_of(part, name)}"


def named_cells(part: Part, key: str | None) -> str:
    """The columns of a text file under their own names, for the owner's `where` and `sql`."""
    names = [name for name, _ in part.types]
    return ", ".join(
        f"{(decimal_of if n in part.numeric and n != key else text_of)(part, n)} AS {quoted(n)}"
        for n in names
        if n and names.count(n) == 1
    )


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
        number, fault = number_of(part, j, selection)
        missing = is_missing(part, name, coded=fault == NO_LEVEL)
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
    scan = scan_sql(parts, selection, numbered=numbered, everything=everything)
    return f"(SELECT {', '.join(cells)} FROM {scan})"


def scan_sql(
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
    scan = raw_sql(parts, names)
    if numbered:
        scan = f"(SELECT *, CAST(row_number() OVER () AS DOUBLE) AS {_NUMBER} FROM {scan})"
    if filtered:
        if part.format in ("csv", "json"):
            scan = f"(SELECT *, {named_cells(part, selection.key)} FROM {scan})"
        scan = f"(SELECT * FROM {scan} WHERE (\n{part.where}\n))"
    return scan


def raw_sql(parts: Sequence[Part], names: Sequence[str]) -> str:
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
