"""CSV files as text: their header, the line of a record, and why an engine refused one.

The engine that reads the records says little about lines, and what it says quotes them. These
functions read a file again, line by line, when there is something to explain; a value never comes
out.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO, cast

from unweave.errors import DataError

__all__ = ["DELIMITERS", "csv_lines", "csv_problem", "likely_delimiter", "read_header"]


DELIMITERS = ",;\t|"
_SHOWN = {"\t": r"\t"}
_QUOTE = 'put quotation marks around whole fields only, and double them inside: "a ""b"" c"'
_FIELDS = (
    "complete the line, or take it out",
    "take out what is too much, or put quotation marks around a field that holds the delimiter",
)
_ENDINGS = {"\n": "LF", "\r\n": "CRLF", "\r": "CR"}


def _open(file: Path) -> TextIO:
    # Bytes that are not UTF-8 are told where they are: they must not end the reading here.
    opened = gzip.open if file.suffix.lower() == ".gz" else open
    found = opened(file, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="")
    return cast(TextIO, found)


def read_header(file: Path, delimiter: str, agent: str) -> list[str]:
    """The names of the columns, from the first line."""
    try:
        with _open(file) as lines:
            names = next(csv.reader(lines, delimiter=delimiter), [])
        "".join(names).encode()
    except (OSError, UnicodeError, csv.Error, EOFError):
        raise DataError(
            f"agent {agent!r}, {file.name}: its first line cannot be read as a header in UTF-8"
        ) from None
    if not names:
        raise DataError(
            f"agent {agent!r}, {file.name}: the file is empty; expected a first line with the "
            "names of the columns"
        )
    return names


def likely_delimiter(names: Sequence[str], wanted: str, delimiter: str) -> str | None:
    """What separates the names of a header that was split at `delimiter`, if `wanted` is among
    them only then; as TOML writes it."""
    line = delimiter.join(names)
    for mark in DELIMITERS:
        if wanted in (name.strip().strip('"') for name in line.split(mark)):
            return _SHOWN.get(mark, mark)
    return None


def csv_lines(file: Path, delimiter: str) -> Iterator[int]:
    """The line where each record begins, as the engine counts them: an empty line is a record if
    there is but one column."""
    with _open(file) as lines:
        reader = csv.reader(lines, delimiter=delimiter)
        header = next(reader, [])
        ended = reader.line_num
        for row in reader:
            if row or len(header) == 1:
                yield ended + 1
            ended = reader.line_num


class _Lines:
    """Lines that remember the latest one."""

    def __init__(self, lines: TextIO) -> None:
        self._lines = lines
        self.latest = ""

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self.latest = line
            yield line

    def ending(self) -> str:
        return _ENDINGS.get(self.latest[len(self.latest.rstrip("\r\n")) :], "")


def csv_problem(file: Path, delimiter: str) -> tuple[int, str, str] | None:
    """The first line that a strict reader refuses: its number, what is wrong there, and the fix."""
    try:
        with _open(file) as text:
            return _first_problem(_Lines(text), delimiter, file.name)
    except (OSError, EOFError):
        return None


def _first_problem(lines: _Lines, delimiter: str, name: str) -> tuple[int, str, str] | None:
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    columns, ending, ended = 0, "", 0
    while True:
        begins = ended + 1
        try:
            row = next(reader, None)
        except csv.Error:
            return begins, "has a stray quotation mark, or one that is never closed", _QUOTE
        if row is None:
            return None
        ended = reader.line_num
        columns, ending = columns or len(row), ending or lines.ending()
        if lines.ending() not in ("", ending):
            why = f"ends in {lines.ending()}, but the lines before it in {ending}"
            return ended, why, f"give all lines the same ending (dos2unix {name})"
        if row and len(row) != columns:
            fields = "1 field" if len(row) == 1 else f"{len(row)} fields"
            return (
                begins,
                f"has {fields}, but the header has {columns}",
                _FIELDS[len(row) > columns],
            )
        if any("\udc80" <= c <= "\udcff" for cell in row for c in cell):
            return begins, "is not UTF-8", "save the file as UTF-8"
