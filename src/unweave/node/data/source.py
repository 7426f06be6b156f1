"""The source of an agent's private records: the `[data]` table of agent.toml.

    [data]
    path = "visits/*.parquet"        # CSV, Parquet or JSON files
    where = "age >= 18"              # only these records of the files; or, in place of it,
    sql = "SELECT id, dose * 1000 AS x FROM data"      # a SELECT on the files; or
    database = "clinic.duckdb"       # a DuckDB or SQLite file, with
    sql = "SELECT age, dose FROM visits"
    key = "patient"                  # identifies records, for the erasure of single records
    columns = { x = "dose" }         # the model's column x is called dose here
    missing = "refuse"               # or "drop": leave records with a missing value out
    delimiter = ";"                  # CSV: between the fields
    decimal = ","                    # CSV: 1,5 is one and a half
    links = false                    # true: a file may be a link to a place outside the folder

Paths are relative to the agent's folder and stay inside it. A link out of the folder is refused
unless `links` allows it: the folder may come from somebody else, and must not choose which of the
owner's files is learned from.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from unweave.errors import DataError
from unweave.models.shards import MissingRule
from unweave.node.errors import BadData
from unweave.text import clip, listed

__all__ = ["SEEN_FILE", "DataSource", "FileFormat", "format_of", "is_file", "is_sqlite"]


SEEN_FILE = "data.seen"  # the data behind the stored factor (`watch`)

FileFormat = Literal["csv", "parquet", "json"]

_FORMATS: dict[str, FileFormat] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_WILD = frozenset("*?[")
_SQLITE = b"SQLite format 3\0"
# Files beside a database file, with changes that are not in the database file yet.
_JOURNALS = ("-wal", ".wal")


class DataSource(BaseModel):
    """Files by `path` (one, or a pattern), or a SELECT by `sql` on them or on a `database` file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str | None = None
    database: str | None = None
    sql: str | None = None
    where: Annotated[str, Field(min_length=1)] | None = None
    missing: MissingRule = "refuse"
    key: str | None = None
    columns: dict[str, str] = Field(default_factory=dict)
    delimiter: str | None = Field(default=None, min_length=1, max_length=1)
    decimal: Literal[".", ","] = "."
    links: bool = False

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.path is None) == (self.database is None):
            raise ValueError("data needs either a path or a database with sql")
        if self.database is not None and self.sql is None:
            raise ValueError("a database needs sql, a SELECT on it")
        if self.sql is not None and self.where is not None:
            raise ValueError("where belongs to files without sql: put the condition into sql")
        return self

    def files(self, folder: Path, agent: str) -> tuple[Path, ...]:
        """The files of the source, in the order of their names."""
        place = self.path if self.path is not None else self.database
        assert place is not None  # validation has ensured that one of them is set
        folder = folder.absolute()
        inside = Path(os.path.relpath(place, folder) if os.path.isabs(place) else place)
        if ".." in inside.parts:
            raise BadData(
                f"agent {agent!r}: {place!r} is outside of the agent's folder ({folder})",
                "move the data there, and name them in agent.toml ([data])",
            )
        if self.path is not None and _WILD & set(place):
            found = _matching(folder, inside)
        else:
            found = (folder / inside,) if is_file(folder / inside) else ()
        if not found:
            raise BadData(
                f"agent {agent!r}: no file {clip(repr(place), 200)} in the agent's folder "
                f"({folder}); "
                f"{_nearby(folder / inside.parent)}",
                "put the file there, or name another one in agent.toml ([data])",
            )
        for file in () if self.links else (beside for one in found for beside in self._all(one)):
            if not file.resolve().is_relative_to(folder.resolve()):
                raise BadData(
                    f"agent {agent!r}: {file.relative_to(folder)} is a link that leads out of the "
                    f"agent's folder ({folder})",
                    "copy the data there, or allow links: links = true in agent.toml ([data])",
                )
        return found

    def _all(self, file: Path) -> list[Path]:
        """The file, and its journals if it is a database."""
        journals = () if self.database is None else _JOURNALS
        return [file, *(file.with_name(file.name + journal) for journal in journals)]

    def fingerprint(self, folder: Path, agent: str) -> str:
        """A digest of the files' names, sizes and times; it changes when a file changes."""
        digest = hashlib.sha256(self.model_dump_json().encode())
        for file in self.files(folder, agent):
            for path in self._all(file):
                try:
                    stat = path.stat()
                except OSError:
                    continue
                about = (path.name, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
                digest.update(repr((str(file.parent), *about)).encode())
        return digest.hexdigest()


_DEEPEST = 32  # folders in a pattern


def _matching(folder: Path, pattern: Path) -> tuple[Path, ...]:
    """The files of a pattern; none, if it is no pattern."""
    if len(pattern.parts) > _DEEPEST:
        return ()
    try:
        return tuple(sorted(file for file in folder.glob(str(pattern)) if is_file(file)))
    except ValueError:  # for example, ** as a part of a name
        return ()


def is_file(path: Path) -> bool:
    """Whether there is such a file; a name that no file can have is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def format_of(file: Path, agent: str) -> FileFormat:
    """The format of a file by its ending, which `.gz` may follow (Parquet compresses itself)."""
    suffixes = [s.lower() for s in file.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    kind = _FORMATS.get(suffixes[-1] if suffixes else "")
    if kind is None:
        raise DataError(
            f"agent {agent!r}: {file.name}: unknown kind of file: it must end in "
            f"{', '.join(_FORMATS)} (also with .gz), or be named as a database with sql in "
            "agent.toml ([data])"
        )
    return kind


def is_sqlite(file: Path, agent: str) -> bool:
    """Whether a database file is SQLite (else DuckDB), by its first bytes."""
    try:
        with file.open("rb") as stream:
            start = stream.read(16)
    except OSError as error:
        raise DataError(f"agent {agent!r}: {file.name} cannot be read: {error.strerror}") from None
    if start == _SQLITE:
        return True
    if start[8:12] == b"DUCK":
        return False
    raise DataError(f"agent {agent!r}: {file.name} is neither a DuckDB nor a SQLite database")


def _nearby(folder: Path) -> str:
    try:
        names = sorted(f.name for f in folder.iterdir() if f.is_file() and f.name[0] != ".")
    except OSError:
        return f"there is no folder {folder.name!r} either"
    return f"the files there are {listed(names)}" if names else "there are no files there"
