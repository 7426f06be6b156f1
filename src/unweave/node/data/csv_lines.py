"""CSV files as text: the header, the line of a record, and the problem of a line.

The engine counts records and bytes, not lines, and its messages quote records. These functions read
a file again to explain an error. They never return a value of a record.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO, cast

from unweave.errors import DataError
from unweave.node.errors import LISTED, BadLines

__all__ = [
    "DELIMITERS",
    "LineProblem",
    "bad_lines",
    "csv_lines",
    "csv_problems",
    "likely_delimiter",
    "lines_of",
    "open_text",
    "read_header",
]


DELIMITERS = ",;\t|"
_SHOWN = {"\t": r"\t"}
LineProblem = tuple[int, str, str]
"""Number, cause and fix of a malformed line."""
_ENDINGS = {"\n": "LF", "\r\n": "CRLF", "\r": "CR"}


def open_text(file: Path) -> TextIO:
    """Open a text file, which may be compressed with gzip."""
    # `csv_problems` reports the line of bytes that are not UTF-8, so decoding must not fail here.
    opened = gzip.open if file.suffix.lower() == ".gz" else open
    found = opened(file, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="")
    return cast(TextIO, found)


def read_header(file: Path, delimiter: str, agent: str) -> list[str]:
    """The names of the columns, from the first line."""
    try:
        with open_text(file) as lines:
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
    """The delimiter, in TOML notation, that would give the header a column `wanted`; the header was
    split at `delimiter`, without success."""
    line = delimiter.join(names)
    for mark in DELIMITERS:
        if wanted in (name.strip().strip('"') for name in line.split(mark)):
            return _SHOWN.get(mark, mark)
    return None


def csv_lines(file: Path, delimiter: str) -> Iterator[int]:
    """The first line of each record. As in the engine, an empty line is a record if the file
    has only one column."""
    with open_text(file) as lines:
        reader = csv.reader(lines, delimiter=delimiter)
        header = next(reader, [])
        ended = reader.line_num
        for row in reader:
            if row or len(header) == 1:
                yield ended + 1
            ended = reader.line_num


def lines_of(file: Path, positions: Sequence[int]) -> list[int]:
    """The lines of the records that begin at these bytes (counted from 0, ascending), or after line
    breaks there: the engine may count the line breaks before a record as part of the record."""
    opened = gzip.open if file.suffix.lower() == ".gz" else open
    found: list[int] = []
    number, start = 1, 0
    with opened(file, "rb") as stream:
        for raw in stream:
            for line in raw.splitlines(keepends=True):
                while len(found) < len(positions):
                    inside = max(0, positions[len(found)] - start)
                    if not line[inside:].strip(b"\r\n"):
                        break
                    found.append(number)
                start += len(line)
                number += 1
    return found + [number] * (len(positions) - len(found))


def bad_lines(agent: str, place: str, problems: Sequence[LineProblem]) -> BadLines:
    """The error for the malformed lines of a file, in their order."""
    line, wrong, fix = problems[0]
    problem = f"agent {agent!r}, {place}, line {line}: {wrong}"
    listed = [f"line {line}: {wrong}" for line, wrong, _ in problems[:LISTED]]
    return BadLines(problem, fix, "; ", listed, len(problems))


def csv_problems(file: Path, delimiter: str) -> list[LineProblem]:
    """The lines that are not UTF-8 or end unlike the first line.

    The engine reports no line number for a wrong line ending.
    """
    found: list[LineProblem] = []
    latest = ""

    def remembered(lines: TextIO) -> Iterator[str]:
        nonlocal latest
        for line in lines:
            latest = line
            yield line

    try:
        with open_text(file) as text:
            reader = csv.reader(remembered(text), delimiter=delimiter)
            first, ended = "", 0
            for row in reader:
                begins, ended = ended + 1, reader.line_num
                ending = _ENDINGS.get(latest[len(latest.rstrip("\r\n")) :], "")
                first = first or ending
                if ending not in ("", first):
                    why = f"ends in {ending}, but the lines before it in {first}"
                    fix = f"give all lines the same ending (dos2unix {file.name})"
                    found.append((ended, why, fix))
                elif any("\udc80" <= c <= "\udcff" for cell in row for c in cell):
                    found.append((begins, "is not UTF-8", "save the file as UTF-8"))
    except (OSError, EOFError, csv.Error):
        pass
    return found
