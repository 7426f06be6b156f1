"""A user's own file, looked at as an agent will: what is wrong is named by its line there.

An agent refuses records that its model cannot use. Once they were dealt out, the number of a bad
record in somebody's share would tell its user nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from unweave.errors import DataError, GridOverflow, UnweaveError
from unweave.models import ConjugateModel, Model
from unweave.models.resolution import Extremes
from unweave.node.data.diagnostics import refusal
from unweave.node.data.duckdb_reader import open_duck
from unweave.node.data.reader import Reader, Wanted, checked
from unweave.node.data.record_files import Records
from unweave.node.data.source import DataSource

__all__ = ["Trial", "try_records"]


_CELLS = 1 << 18
_ALL: frozenset[str] = frozenset()


class Trial(NamedTuple):
    """What is worth saying of records that can be used."""

    size: int
    repeated: int  # with the key of another
    extremes: Extremes
    sums: list[int]  # Σ of their statistics in units of the grid; empty if the model has none


def try_records(
    path: Path, source: DataSource, records: Records, model: Model, names: Mapping[str, str]
) -> Trial:
    """DataError if a record cannot be used, or has no key though the others have."""
    wanted = Wanted("", model, tuple(names.get(name, name) for name in model.columns), source.key)
    chunk = max(1, _CELLS // len(model.columns))
    try:
        with open_duck(Path(tempfile.gettempdir()), source, [path.absolute()], wanted, 2) as reader:
            size, sums = _sums(reader, wanted, chunk)
            nameless, repeated = reader.named()
            extremes = reader.extremes(_ALL)
    except UnweaveError as error:
        raise DataError(_here(str(error), path)) from None
    if source.key is not None and nameless:
        values = enumerate(records.column(source.key))
        first = next((i for i, value in values if value in (None, "") or value != value), 0)
        more = f", and {nameless - 1} more" if nameless > 1 else ""
        raise DataError(
            f"{path}, {records.place(first)}{more}: the key {source.key!r} is empty, so this "
            "record could never be erased alone: give it one, or leave --key away"
        )
    return Trial(size, repeated, extremes, sums)


def _sums(reader: Reader, wanted: Wanted, chunk: int) -> tuple[int, list[int]]:
    """The number of records and the sum of their statistics."""
    model = wanted.model
    size, sums = 0, [0] * model.grid.dim if isinstance(model, ConjugateModel) else []
    try:
        with closing(reader.batches(_ALL, chunk)) as batches:
            for batch in batches:
                if not checked(model, batch.rows):
                    break
                size += len(batch.rows)
                if isinstance(model, ConjugateModel):
                    found = model.sums(batch.rows)
                    sums = [a + int(b) for a, b in zip(sums, found, strict=True)]
            else:
                return size, sums
    except GridOverflow:
        pass
    raise refusal(reader, wanted, _ALL, chunk) or DataError("it changes while it is read")


def _here(text: str, path: Path) -> str:
    """The words of an agent about its file, about the user's."""
    return text.removeprefix("agent '', ").replace(path.name, str(path), 1)
