"""Splits a user's file of records among several agents, after a dry run.

The dry run reads the file as an agent reads it, and refuses records that the model cannot use.
Errors name the line in the user's file, because the user does not know the lines of the shares.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unweave.bounded import load_json
from unweave.errors import DataError, GridOverflow, UnweaveError
from unweave.models import ConjugateModel, Model
from unweave.models.resolution import Extremes
from unweave.models.shards import Missing
from unweave.node.data.csv_lines import DELIMITERS, open_text
from unweave.node.data.diagnostics import refusal
from unweave.node.data.duckdb_parts import delimiter_of, file_part, private
from unweave.node.data.duckdb_reader import connect, open_duck
from unweave.node.data.duckdb_records import csv_scan, quoted
from unweave.node.data.json_lines import is_array
from unweave.node.data.reader import Reader, Selection, Sums, checked, mended
from unweave.node.data.source import DataSource, format_of
from unweave.node.storage.atomic import create_private

__all__ = [
    "DryRun",
    "Records",
    "data_name",
    "read_batches",
    "read_extremes",
    "read_missing",
    "scale_for",
    "try_records",
]


_CELLS = 1 << 18
_ALL: frozenset[str] = frozenset()


class Records:
    """The records of one file, in the engine's memory and in the file's order.

    CSV cells and JSON records stay text and Parquet columns keep their types, so that writing a
    record cannot change it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb"):
                pass  # the engine gives no reason for a file that cannot be opened
        except OSError as error:
            raise DataError(
                f"{path}: cannot be read ({error.strerror or error}). Fix: let this user read it"
            ) from None
        temporary = tempfile.mkdtemp()  # private: the engine may write records there
        weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)
        self._engine = connect(Path(temporary), 2)
        with _errors_about(path):
            self.delimiter = found_delimiter(path)
            source = DataSource(path=path.name, delimiter=self.delimiter)
            self._part = part = file_part(self._engine, path, source, "")
            name = quoted(str(path), "'")
            scan = {
                # The header is read as a record: so duplicate names stay unchanged.
                "csv": f"FROM {csv_scan([part], 'header = false')}" if part.types else "",
                "json": "SELECT CASE json_type(json) WHEN 'OBJECT' THEN json ELSE error('') END "
                f"AS json FROM read_json_objects({name})",
                "parquet": f"FROM read_parquet({name})",
            }[part.format]
            with private(self._engine, "", part):
                self._engine.execute(f"CREATE TABLE records AS {scan}")
        self.columns = [name for name, _ in part.types]
        self._header = int(part.format == "csv")
        self.size = int(self._rows("SELECT COUNT(*) FROM records")[0][0]) - self._header
        if self.size == 0:
            raise DataError(f"{path}: no records. Fix: give at least one record")

    def column(self, name: str) -> list[Any]:
        """The values of one column; those of a CSV file are text."""
        cell = {"csv": quoted(f"#{self.columns.index(name)}"), "json": "json"}
        chosen = cell.get(self._part.format, quoted(name))
        found = self._rows(
            f"SELECT {chosen} FROM records WHERE rowid >= {self._header} ORDER BY rowid"
        )
        if self._part.format == "json":
            return [self._json(row, text).get(name) for row, (text,) in enumerate(found)]
        return [value for (value,) in found]

    def _json(self, row: int, text: str) -> dict[str, Any]:
        try:
            record: dict[str, Any] = load_json(text.encode())
        except ValueError as error:
            raise DataError(
                f"{self.path}, {self.place(row)}: {error}. Fix: write the record as plain JSON"
            ) from None
        return record

    def place(self, row: int) -> str:
        """The place of a record for error messages: its first line, or its number."""
        return self._part.places([row + 1])[0]

    def described(self, wanted: str) -> str:
        """What an error may say of the names of the columns, which lack `wanted`."""
        return self._part.described(wanted)

    def write(self, path: Path, rows: Iterable[int]) -> None:
        """Write some records to another file of the same format, in their present order."""
        chosen = [*range(self._header), *(int(row) + self._header for row in rows)]
        self._engine.execute(
            "CREATE OR REPLACE TEMP TABLE mine AS SELECT unnest(CAST(? AS BIGINT[])) AS row",
            [chosen],
        )
        form = "FORMAT parquet"
        if self._part.format == "csv":
            mark = quoted(self._part.delimiter, "'")
            form = f"FORMAT csv, HEADER false, DELIMITER {mark}, QUOTE '\"', ESCAPE '\"'"
        elif self._part.format == "json":
            # FORMAT json would rewrite records: 1e2 as 100.0, and null for a missing value.
            form = "FORMAT csv, HEADER false, DELIMITER '', QUOTE '', ESCAPE ''"
            if is_array(self.path):
                form += ", PREFIX '[\n', NEW_LINE ',\n', SUFFIX '\n]\n'"
        create_private(path).close()  # the engine would let the umask decide
        self._engine.execute(
            "COPY (SELECT * FROM records WHERE rowid IN (SELECT row FROM mine) ORDER BY rowid) "
            f"TO {quoted(str(path), chr(39))} ({form}, USE_TMP_FILE false)"
        )

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._engine.execute(sql).fetchall()
        return found


def data_name(path: Path) -> str:
    """The file name of a share: data.csv, data.ndjson, …; shares are not compressed."""
    plain = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return f"data{plain.suffix.lower()}"


def found_delimiter(path: Path) -> str | None:
    """The delimiter in the first line of a CSV file; None if its name implies the same one."""
    expected = delimiter_of(path)
    if format_of(path, "") != "csv":
        return None
    try:
        with open_text(path) as lines:
            header = next(lines, "")
    except (OSError, EOFError):
        return None  # `read_header` raises the error
    found = expected if expected in header else max(DELIMITERS, key=header.count)
    return None if found == expected else found


class DryRun(NamedTuple):
    """The result of a dry run on usable records."""

    size: int
    repeated: int  # records that repeat the key of another record
    sums: Sums | None  # None if the model is not conjugate


def try_records(
    source: DataSource, records: Records, model: Model, names: Mapping[str, str]
) -> DryRun:
    """Read all records as an agent would; DataError if a record is invalid or lacks a key."""
    path = records.path
    with _opened(path, source, model, names) as (reader, selection, chunk):
        size, sums = _read_all(reader, selection, chunk)
        nameless, repeated = reader.named()
    if source.key is not None and nameless:
        values = enumerate(records.column(source.key))
        first = next((i for i, value in values if value in (None, "") or value != value), 0)
        more = f", and {nameless - 1} more" if nameless > 1 else ""
        raise DataError(
            f"{path}, {records.place(first)}{more}: the key {source.key!r} is empty, so this "
            "record could never be erased alone. Fix: give it a key, or leave --key out"
        )
    return DryRun(size, repeated, sums)


def read_extremes(
    path: Path, source: DataSource, model: Model, names: Mapping[str, str]
) -> Extremes:
    """The smallest and the largest number of every column."""
    with _opened(path, source, model, names) as (reader, _, _):
        return reader.extremes(_ALL)


def read_missing(path: Path, source: DataSource, model: Model, names: Mapping[str, str]) -> Missing:
    """The records with a missing value, by column."""
    with _opened(path, source, model, names) as (reader, _, _):
        return reader.missing(_ALL)


def read_batches(
    path: Path, source: DataSource, model: Model, names: Mapping[str, str]
) -> Iterator[NDArray[np.float64]]:
    """The model's columns of all records, some at a time."""
    with _opened(path, source, model, names) as (reader, _, chunk):
        for batch in reader.batches(_ALL, chunk):
            yield batch.rows


def scale_for(path: Path, source: DataSource, model: Model, names: Mapping[str, str]) -> str:
    """The fix for an error: the center and scale with which the grid can hold these records."""
    assert isinstance(model, ConjugateModel)
    with _opened(path, source, model, names) as (reader, _, chunk):
        return mended(reader, model, _ALL, chunk)


@contextmanager
def _opened(
    path: Path, source: DataSource, model: Model, names: Mapping[str, str]
) -> Iterator[tuple[Reader, Selection, int]]:
    selection = Selection.of("", model, source, names)
    chunk = max(1, _CELLS // len(model.columns))
    files = [path.absolute()]
    with (
        _errors_about(path),
        tempfile.TemporaryDirectory() as temporary,
        open_duck(Path(temporary), source, files, selection, 2) as reader,
    ):
        yield reader, selection, chunk


def _read_all(reader: Reader, selection: Selection, chunk: int) -> tuple[int, Sums | None]:
    """The number of records and the sums of their statistics."""
    model = selection.model
    try:
        if isinstance(model, ConjugateModel):
            sums = reader.sums(model, _ALL, chunk)
            if sums is not None:
                return sums.n, sums
        else:
            with closing(reader.batches(_ALL, chunk)) as batches:
                sizes = [len(b.rows) if checked(model, b.rows) else None for b in batches]
            if None not in sizes:
                return sum(size or 0 for size in sizes), None
    except GridOverflow:
        pass
    raise refusal(reader, selection, _ALL, chunk) or DataError(
        "the file changes while it is read. Fix: run the command again"
    )


@contextmanager
def _errors_about(path: Path) -> Iterator[None]:
    """Turn errors about an agent's file into errors about the user's file."""
    try:
        yield
    except UnweaveError as error:
        text = str(error).removeprefix("agent '', ").removeprefix("agent '': ")
        raise DataError(text.replace(path.name, str(path), 1)) from None
