"""Records on their way from a source to a model, in batches, and what can be wrong with them.

A problem is told by agent, place, record number and column, with what the model expected. A value
is never quoted, and neither is what an engine says about it: those texts contain raw records.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DataError
from unweave.models import Model
from unweave.models.columns import Column
from unweave.models.resolution import Extremes
from unweave.node.data_sql import Form

__all__ = [
    "FINE",
    "MISSING",
    "NO_NUMBER",
    "TOO_LARGE",
    "Batch",
    "Batches",
    "Reader",
    "Wanted",
    "checked",
    "first_problem",
    "listed",
    "missing_column",
]

Floats = NDArray[np.float64]

# Why a cell is not a number; as floats, because they travel beside numbers.
FINE, MISSING, NO_NUMBER, TOO_LARGE = 0.0, 1.0, 2.0, 3.0

_FAULTS = {
    MISSING: "is missing",
    NO_NUMBER: "is not a number",
    TOO_LARGE: "is a whole number above 2^53, which cannot be represented",
}


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


def first_problem(wanted: Wanted, batches: Iterable[Batch]) -> str | None:
    """The problem of the record with the smallest number, in the first place that has one."""
    found: tuple[float, str] | None = None
    place = None
    for batch in batches:
        if found is not None and batch.place != place:
            break
        place = batch.place
        problem = _problem(wanted, batch)
        if problem is not None and (found is None or problem[0] < found[0]):
            found = problem
    return None if found is None else found[1]


def _problem(wanted: Wanted, batch: Batch) -> tuple[float, str] | None:
    """The smallest number of a bad record in a batch, and its text."""
    assert batch.numbers is not None
    assert batch.faults is not None
    order = np.argsort(batch.numbers, kind="stable")
    rows, numbers, faults = batch.rows[order], batch.numbers[order], batch.faults[order]
    candidates: list[tuple[int, str, str, str]] = []
    for j, column in enumerate(wanted.model.schema):
        found = column.problem(rows[:, j])
        if found is not None:
            row, why = found
            why = _FAULTS.get(float(faults[row, j]), why)
            candidates.append((row, _called(column, wanted.names[j]), why, column.expects))
    # A rule between columns can only be asked of records that are sound before it.
    sound = rows[: min((c[0] for c in candidates), default=len(rows))]
    between = wanted.model.row_problem(sound) if len(sound) else None
    if between is not None:
        row, name, why, expects = between
        candidates = [(row, name, why, expects)]
    if not candidates:
        return None
    row, name, why, expects = min(candidates, key=lambda c: c[0])
    number = int(numbers[row])
    return number, (
        f"agent {wanted.agent!r}, {batch.place}, record {number} (counted from 1), column {name}: "
        f"the value {why}; expected {expects}"
    )


def _called(column: Column, name: str) -> str:
    return repr(name) if name == column.name else f"{name!r} (the model's {column.name!r})"


def missing_column(wanted: Wanted, name: str, place: str, found: Sequence[str]) -> DataError:
    for column, source in zip(wanted.model.schema, wanted.names, strict=True):
        if source == name:
            role = f"the model's {column.name!r}, {column.expects}"
            break
    else:
        role = "the key of its records"
    return DataError(
        f"agent {wanted.agent!r}, {place}: column {name!r} ({role}) is missing; its columns are "
        f"{listed(found)}; name the right one in agent.toml ([data] columns = "
        "{ … } or key = …)"
    )


def listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:12])
    return shown + (f", … ({len(names)} in all)" if len(names) > 12 else "") or "none"
