"""A user's own file, looked at as an agent will: what is wrong is named by its line there.

An agent refuses records that its model cannot use. Once they were dealt out, the number of a bad
record in somebody's share would tell its user nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from unweave.errors import DataError, GridOverflow, UnweaveError
from unweave.models import ConjugateModel, Model
from unweave.models.resolution import Extremes
from unweave.node.data.diagnostics import refusal
from unweave.node.data.duckdb_reader import open_duck
from unweave.node.data.duckdb_sql import Sums
from unweave.node.data.reader import Reader, Wanted, checked, mended, read_sums
from unweave.node.data.record_files import Records
from unweave.node.data.source import DataSource

__all__ = ["Trial", "read_extremes", "scale_for", "try_records"]


_CELLS = 1 << 18
_ALL: frozenset[str] = frozenset()


class Trial(NamedTuple):
    """What is worth saying of records that can be used."""

    size: int
    repeated: int  # with the key of another
    sums: Sums | None  # None if the model has none


def try_records(
    path: Path, source: DataSource, records: Records, model: Model, names: Mapping[str, str]
) -> Trial:
    """DataError if a record cannot be used, or has no key though the others have."""
    with _opened(path, source, model, names) as (reader, wanted, chunk):
        size, sums = _tried(reader, wanted, chunk)
        nameless, repeated = reader.named()
    if source.key is not None and nameless:
        values = enumerate(records.column(source.key))
        first = next((i for i, value in values if value in (None, "") or value != value), 0)
        more = f", and {nameless - 1} more" if nameless > 1 else ""
        raise DataError(
            f"{path}, {records.place(first)}{more}: the key {source.key!r} is empty, so this "
            "record could never be erased alone: give it one, or leave --key away"
        )
    return Trial(size, repeated, sums)


def read_extremes(
    path: Path, source: DataSource, model: Model, names: Mapping[str, str]
) -> Extremes:
    """The smallest and the largest number of every column."""
    with _opened(path, source, model, names) as (reader, _, _):
        return reader.extremes(_ALL)


def scale_for(path: Path, source: DataSource, model: Model, names: Mapping[str, str]) -> str:
    """The center and scale with which the model would learn these records as they are."""
    assert isinstance(model, ConjugateModel)
    with _opened(path, source, model, names) as (reader, _, chunk):
        return mended(reader, model, _ALL, chunk)


@contextmanager
def _opened(
    path: Path, source: DataSource, model: Model, names: Mapping[str, str]
) -> Iterator[tuple[Reader, Wanted, int]]:
    wanted = Wanted("", model, tuple(names.get(name, name) for name in model.columns), source.key)
    chunk = max(1, _CELLS // len(model.columns))
    try:
        with open_duck(Path(tempfile.gettempdir()), source, [path.absolute()], wanted, 2) as reader:
            yield reader, wanted, chunk
    except UnweaveError as error:
        raise DataError(_here(str(error), path)) from None


def _tried(reader: Reader, wanted: Wanted, chunk: int) -> tuple[int, Sums | None]:
    """The number of records and the sums of their statistics."""
    model = wanted.model
    try:
        if isinstance(model, ConjugateModel):
            sums = read_sums(reader, model, _ALL, chunk)
            if sums is not None:
                return sums.n, sums
        else:
            with closing(reader.batches(_ALL, chunk)) as batches:
                sizes = [len(b.rows) if checked(model, b.rows) else None for b in batches]
            if None not in sizes:
                return sum(size or 0 for size in sizes), None
    except GridOverflow:
        pass
    raise refusal(reader, wanted, _ALL, chunk) or DataError("it changes while it is read")


def _here(text: str, path: Path) -> str:
    """The words of an agent about its file, about the user's."""
    return text.removeprefix("agent '', ").replace(path.name, str(path), 1)
