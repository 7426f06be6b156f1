"""One file of records, dealt out to several agents: each record reaches one of them as it stands.

Nothing is parsed and printed again where that could change it: a JSON record keeps its text, a
CSV cell its characters, a Parquet column its type.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from unweave.errors import DataError
from unweave.node.data.source import FileFormat, format_of

__all__ = ["Records", "data_name", "read_records"]


_DELIMITERS = ",;\t|"


class Records(Protocol):
    """The records of one file."""

    @property
    def columns(self) -> Sequence[str]: ...
    @property
    def size(self) -> int: ...
    @property
    def delimiter(self) -> str | None:
        """Of a CSV file, if it is not the one that its name tells."""

    def column(self, name: str) -> list[Any]:
        """The values of one column, as they are."""

    def place(self, row: int) -> str:
        """Where a record is, for people: the line where it begins, if the file has lines."""

    def write(self, path: Path, rows: Iterable[int]) -> None:
        """Some of the records to another file of the same kind."""


def read_records(path: Path) -> Records:
    """The records of a CSV, TSV, JSON, NDJSON or Parquet file, by its ending."""
    try:
        kind: FileFormat = format_of(path, "")
    except DataError:
        raise DataError(
            f"{path}: unknown kind of file: it must end in .csv, .tsv, .json, .jsonl, .ndjson "
            "(also with .gz) or .parquet; a database is named in each agent.toml ([data] database "
            "and sql)"
        ) from None
    try:
        records: Records
        if kind == "csv":
            records = _Csv(path)
        else:
            records = _Json(path) if kind == "json" else _Parquet(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, EOFError):
        raise DataError(f"{path}: not text in UTF-8: save it as UTF-8") from None
    if records.size == 0:
        raise DataError(f"{path}: there are no records in it: expected at least one")
    return records


def data_name(path: Path) -> str:
    """What a share of this file is called: data.csv, data.ndjson, …; shares are not compressed."""
    plain = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return f"data{plain.suffix.lower()}"


def _text(path: Path) -> str:
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix.lower() == ".gz" else raw).decode("utf-8-sig")


class _Csv:
    def __init__(self, path: Path) -> None:
        text = _text(path)
        expected = "\t" if data_name(path).endswith(".tsv") else ","
        self._delimiter = _delimiter(text.split("\n", 1)[0], expected)
        self.delimiter = None if self._delimiter == expected else self._delimiter
        try:
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter)
            rows, self._lines, ended = [], array("q"), 0
            for row in reader:
                if row:
                    rows.append(row)
                    self._lines.append(ended + 1)
                ended = reader.line_num
        except csv.Error as error:
            raise DataError(f"{path}: cannot be read as CSV: {error}") from None
        if not rows:
            raise DataError(f"{path}: it is empty: expected a line with names, then the records")
        self.columns = rows[0]
        self._rows = rows[1:]
        self.size = len(self._rows)

    def column(self, name: str) -> list[Any]:
        j = self.columns.index(name)
        return [row[j] if j < len(row) else "" for row in self._rows]

    def place(self, row: int) -> str:
        return f"line {self._lines[row + 1]}"

    def write(self, path: Path, rows: Iterable[int]) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=self._delimiter, lineterminator="\n")
            writer.writerow(self.columns)
            writer.writerows(self._rows[i] for i in rows)


def _delimiter(header: str, expected: str) -> str:
    """What separates the names of the first line; the expected one if it does."""
    return expected if expected in header else max(_DELIMITERS, key=header.count)


class _Json:
    """An array of objects, or objects one after the other (usually one per line)."""

    delimiter = None

    def __init__(self, path: Path) -> None:
        text = _text(path)
        here = _after(text, 0)
        self._array = text[here : here + 1] == "["
        self._text, self._starts = text, array("q")
        self._texts: list[str] = []
        self._values: list[dict[str, Any]] = []
        here = _after(text, here + 1) if self._array else here
        while here < len(text) and not (self._array and text[here] == "]"):
            try:
                value, end = json.JSONDecoder().raw_decode(text, here)
            except json.JSONDecodeError as error:
                raise _not_records(path, text, error.pos) from None
            if not isinstance(value, dict):
                raise _not_records(path, text, here)
            self._starts.append(here)
            self._texts.append(text[here:end])
            self._values.append(value)
            here = _after(text, end)
            if self._array and text[here : here + 1] == ",":
                here = _after(text, here + 1)
        if self._array and here == len(text):
            raise DataError(f"{path}: its array has no end: is the file complete?")
        self.columns = list(dict.fromkeys(name for value in self._values for name in value))
        self.size = len(self._values)

    def column(self, name: str) -> list[Any]:
        return [value.get(name) for value in self._values]

    def place(self, row: int) -> str:
        return f"line {_line(self._text, self._starts[row])}"

    def write(self, path: Path, rows: Iterable[int]) -> None:
        texts = [self._texts[i] for i in rows]
        if self._array:
            text = "[\n" + ",\n".join(texts) + "\n]\n"
        else:
            text = "".join(f"{one}\n" for one in texts)
        path.write_text(text, encoding="utf-8")


def _after(text: str, start: int) -> int:
    """The next place that is not white space."""
    while start < len(text) and text[start] in " \t\r\n":
        start += 1
    return start


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _not_records(path: Path, text: str, place: int) -> DataError:
    return DataError(
        f"{path}, line {_line(text, place)}: no record there: expected one JSON object per "
        'line, or an array of objects, like {"id": "p1", "x": 0.5}'
    )


class _Parquet:
    delimiter = None

    def __init__(self, path: Path) -> None:
        import duckdb

        from unweave.node.data.duckdb_reader import quoted

        self._quoted = quoted
        with path.open("rb"):
            pass  # the engine's words for a file that may not be read are not for people
        self._connection = duckdb.connect(":memory:")
        try:
            self._connection.execute(
                f"CREATE TABLE records AS FROM read_parquet({quoted(str(path), chr(39))})"
            )
        except duckdb.Error:
            raise DataError(f"{path}: not a readable Parquet file: is it complete?") from None
        cursor = self._connection.execute("SELECT * FROM records LIMIT 0")
        self.columns = [str(column[0]) for column in cursor.description]
        self.size = int(self._rows("SELECT COUNT(*) FROM records")[0][0])

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._connection.execute(sql).fetchall()
        return found

    def column(self, name: str) -> list[Any]:
        found = self._rows(f"SELECT {self._quoted(name)} FROM records ORDER BY rowid")
        return [value for (value,) in found]

    def place(self, row: int) -> str:
        return f"record {row + 1}"

    def write(self, path: Path, rows: Iterable[int]) -> None:
        self._connection.execute(
            "CREATE OR REPLACE TEMP TABLE mine AS SELECT unnest(CAST(? AS BIGINT[])) AS row",
            [[int(i) for i in rows]],
        )
        self._connection.execute(
            "COPY (SELECT * FROM records WHERE rowid IN (SELECT row FROM mine) ORDER BY rowid) "
            f"TO {self._quoted(str(path), chr(39))} (FORMAT parquet)"
        )
