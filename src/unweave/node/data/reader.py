"""The interface of readers, which give the records of a source in batches, and its shared parts."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DataError, GridOverflow
from unweave.models import ConjugateModel, Model
from unweave.models.columns import Column
from unweave.models.resolution import Extremes, Measured, remedy, weighted
from unweave.models.shards import Missing
from unweave.node.data.source import DataSource
from unweave.node.errors import BadData
from unweave.text import listed

__all__ = [
    "COMMA",
    "FINE",
    "MISSING",
    "NO_LEVEL",
    "NO_NUMBER",
    "TOO_LARGE",
    "Batch",
    "Batches",
    "Reader",
    "Selection",
    "Sums",
    "batched_sums",
    "checked",
    "mended",
    "missing_column",
    "schema_names",
]


Floats = NDArray[np.float64]

# Why a cell is not a number. Floats, because they share an array with numbers.
FINE, MISSING, NO_NUMBER, TOO_LARGE, COMMA, NO_LEVEL = 0.0, 1.0, 2.0, 3.0, 4.0, 5.0


@dataclass(frozen=True)
class Selection:
    """The columns that a reader returns: the model's columns, by their names in the source."""

    agent: str
    model: Model
    names: tuple[str, ...]  # in the source, one for each column of model.schema
    key: str | None
    drop: bool = False  # leave out the records with a missing value

    @classmethod
    def of(cls, agent: str, model: Model, source: DataSource, called: Mapping[str, str]) -> Self:
        """The columns of a model; `called` maps a column to its name in the source."""
        names = tuple(called.get(column.given, column.given) for column in model.schema)
        return cls(agent, model, names, source.key, source.missing == "drop")

    @cached_property
    def schema(self) -> tuple[Column, ...]:
        """The model's columns: a model makes them anew whenever it is asked."""
        return self.model.schema

    @cached_property
    def asked(self) -> tuple[str, ...]:
        """The columns of the source that are read, each once."""
        return tuple(dict.fromkeys((*self.names, *([self.key] if self.key else []))))

    def first(self, name: str) -> int:
        """The first column of the model that is read from this column of the source."""
        return self.names.index(name)


class Sums(NamedTuple):
    """The number of records, the sums of their statistics in grid units, the rounding error of
    these sums (not in grid units), and how many records were clipped to their bounds."""

    n: int
    units: list[int]
    added: Floats
    clipped: int = 0


@dataclass(frozen=True)
class Batch:
    """Some records: `rows` [n, C] with NaN where a cell is not a number.

    `numbers` counts records from 1 within `place`. `faults` [n, C] holds the reason why a cell is
    not a number. Both are None if the caller needs only sums.
    """

    rows: Floats
    place: str = ""
    numbers: Floats | None = None
    faults: Floats | None = None
    where: Callable[[Sequence[int]], list[str]] = lambda numbers: [
        f"record {number} (counted from 1)" for number in numbers
    ]


Batches = Generator[Batch]


class Reader(Protocol):
    """An open source. Methods skip the records whose canonical key is in `erased`."""

    def batches(self, erased: frozenset[str], chunk: int, ordered: bool = False) -> Batches:
        """All records, in the order of the source if `ordered`; may omit numbers and faults."""

    def told(self, erased: frozenset[str], chunk: int) -> Batches:
        """All records with numbers and faults, for an error message."""

    def sums(self, model: ConjugateModel, erased: frozenset[str], chunk: int) -> Sums | None:
        """None if a record is invalid; GridOverflow if a record does not fit the grid."""

    def count(self, erased: frozenset[str]) -> int:
        """The number of records."""

    def missing(self, erased: frozenset[str]) -> Missing:
        """The records with a missing value, also if they are left out; by column."""

    def extremes(self, erased: frozenset[str]) -> Extremes:
        """The smallest and the largest number of every column, (nan, nan) of one without numbers;
        empty without records."""

    def committed(self, dropped: frozenset[bytes], secret: bytes) -> frozenset[str]:
        """The canonical keys in the source whose commitment is in `dropped`. Keys are looked for in
        all records, also in those that are left out now: a record may be completed later."""

    def known(self, keys: frozenset[str]) -> frozenset[str]:
        """The canonical keys among `keys` that the source has."""

    def named(self) -> tuple[int, int]:
        """How many records have no key (or an empty one), and how many repeat a key."""


def batched_sums(
    reader: Reader, model: ConjugateModel, erased: frozenset[str], chunk: int
) -> Sums | None:
    """`Reader.sums` for engines and models without sums in SQL."""
    n, clipped, units, added = 0, 0, [0] * model.grid.dim, np.zeros(model.grid.dim)
    with closing(reader.batches(erased, chunk)) as batches:
        for batch in batches:
            if not checked(model, batch.rows):
                return None
            n += len(batch.rows)
            units = [u + int(s) for u, s in zip(units, model.sums(batch.rows), strict=True)]
            added = added + model.rounding(batch.rows)
            clipped += model.clipped(batch.rows)
    return Sums(n, units, added, clipped)


def mended(
    reader: Reader, model: ConjugateModel, erased: frozenset[str], chunk: int, share: float = 1.0
) -> str:
    """The fix for an error: the center and scale with which the grid can hold these records."""

    def measure(candidate: ConjugateModel) -> Measured:
        sums = reader.sums(candidate, erased, chunk)
        if sums is None:  # the files change while they are read
            raise GridOverflow("no sums")
        return weighted(candidate, sums.n, sums.units, sums.added)

    return remedy(model, measure, reader.extremes(erased), share)


def checked(model: Model, rows: Floats) -> bool:
    """Whether all records are valid for the model."""
    if not np.isfinite(rows).all():
        return False
    for j, column in enumerate(model.schema):
        bounded = column.whole or column.low > -np.inf or column.high < np.inf
        if bounded and column.problem(rows[:, j]) is not None:
            return False
    return model.row_problem(rows) is None


def schema_names(found: Iterable[str]) -> str:
    """The names in a schema, which is no record."""
    return f"its columns are {listed(map(repr, found), 12)}"


def missing_column(
    selection: Selection, name: str, place: str, names: str, mark: str | None = None
) -> DataError:
    """The error for a column that is not in the source. `names` says what the source has, `mark` is
    the probable delimiter."""
    for column, source in zip(selection.schema, selection.names, strict=True):
        if source == name:
            role = f"the model's {column.given!r}, {column.expects}"
            break
    else:
        role = "the key of its records"
    problem = f"agent {selection.agent!r}, {place}: column {name!r} ({role}) is missing; {names}"
    if mark is not None:
        fix = f'write delimiter = "{mark}" in agent.toml ([data]): that seems to separate them'
        return BadData(problem, fix, "; ")
    fix = "name the right one in agent.toml ([data] columns = { … } or key = …)"
    return BadData(problem, fix, "; ")
