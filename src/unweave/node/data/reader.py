"""Records on their way from a source to a model, in batches."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DataError
from unweave.models import Model
from unweave.models.resolution import Extremes
from unweave.node.data.duckdb_sql import Form
from unweave.node.errors import BadData

__all__ = [
    "COMMA",
    "FINE",
    "MISSING",
    "NO_NUMBER",
    "TOO_LARGE",
    "Batch",
    "Batches",
    "Reader",
    "Wanted",
    "checked",
    "listed",
    "missing_column",
]


Floats = NDArray[np.float64]

# Why a cell is not a number; as floats, because they travel beside numbers.
FINE, MISSING, NO_NUMBER, TOO_LARGE, COMMA = 0.0, 1.0, 2.0, 3.0, 4.0


@dataclass(frozen=True)
class Wanted:
    """What is read: the model's columns, what they are called in the source, and the key."""

    agent: str
    model: Model
    names: tuple[str, ...]  # in the source, one for each of model.schema
    key: str | None


@dataclass(frozen=True)
class Batch:
    """Some records: `rows` [n, C] with NaN where a cell is no number.

    `numbers` counts records from 1 within `place`, and `faults` [n, C] says why a cell is no
    number; both are None where only sums are asked for.
    """

    rows: Floats
    place: str = ""
    numbers: Floats | None = None
    faults: Floats | None = None
    where: Callable[[int], str] = "record {} (counted from 1)".format


Batches = Generator[Batch]


class Reader(Protocol):
    """An open source. `gone` are canonical keys: their records do not exist any more."""

    def batches(self, gone: frozenset[str], chunk: int, ordered: bool = False) -> Batches:
        """All records, if `ordered` as the source has them; numbers and faults may be left out."""

    def told(self, gone: frozenset[str], chunk: int) -> Batches:
        """All records with numbers and faults, to tell what is wrong with them."""

    def totals(self, form: Form, gone: frozenset[str]) -> tuple[int, list[int]] | None:
        """The engine's own sums (records, sums), or None: not possible, or not all are valid."""

    def count(self, gone: frozenset[str]) -> int:
        """How many records there are."""

    def extremes(self, gone: frozenset[str]) -> Extremes:
        """The smallest and the largest number of every column; empty without records."""

    def committed(self, dropped: frozenset[bytes], secret: bytes) -> frozenset[str]:
        """The canonical keys in the source whose commitment is in `dropped`."""

    def known(self, keys: frozenset[str]) -> frozenset[str]:
        """The canonical keys among `keys` that the source has."""

    def named(self) -> tuple[int, int]:
        """How many records have no key (or an empty one), and how many repeat another's."""


def checked(model: Model, rows: Floats) -> bool:
    """Whether a model can use these records as they are."""
    if not np.isfinite(rows).all():
        return False
    for j, column in enumerate(model.schema):
        bounded = column.whole or column.low > -np.inf or column.high < np.inf
        if bounded and column.problem(rows[:, j]) is not None:
            return False
    return model.row_problem(rows) is None


def missing_column(
    wanted: Wanted, name: str, place: str, found: Sequence[str], mark: str | None = None
) -> DataError:
    """`mark` is what seems to separate the names, if that is not what they were split at."""
    for column, source in zip(wanted.model.schema, wanted.names, strict=True):
        if source == name:
            role = f"the model's {column.name!r}, {column.expects}"
            break
    else:
        role = "the key of its records"
    problem = (
        f"agent {wanted.agent!r}, {place}: column {name!r} ({role}) is missing; its columns are "
        f"{listed(found)}"
    )
    if mark is not None:
        fix = f'write delimiter = "{mark}" in agent.toml ([data]): that seems to separate them'
        return BadData(problem, fix, "; ")
    fix = "name the right one in agent.toml ([data] columns = { … } or key = …)"
    return BadData(problem, fix, "; ")


def listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:12])
    return shown + (f", … ({len(names)} in all)" if len(names) > 12 else "") or "none"
