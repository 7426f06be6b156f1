"""Actionable errors for records that a model cannot use.

An error names the agent, the place, the line (or record number), the column and the values that the
model expects. An error never quotes a value. It never quotes a message of the engine either,
because these messages contain raw records.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DataError, GridOverflow
from unweave.models import ConjugateModel
from unweave.models.columns import Column
from unweave.node.data.reader import (
    COMMA,
    MISSING,
    NO_NUMBER,
    TOO_LARGE,
    Batch,
    Reader,
    Selection,
    mended,
)
from unweave.node.errors import BadData, BadSum

__all__ = ["refusal"]


Floats = NDArray[np.float64]

_FAULTS = {
    MISSING: "is missing",
    NO_NUMBER: "is not a number",
    TOO_LARGE: "is a whole number above 2^53, which cannot be represented",
    COMMA: "is not a number",
}
_DECIMAL = 'if so, write decimal = "," in agent.toml ([data]; --decimal , for unweave init)'


def refusal(
    reader: Reader, selection: Selection, erased: frozenset[str], chunk: int
) -> DataError | BadSum | None:
    """The error for the first invalid record, else for the first record that does not fit the grid;
    None if there is no such record."""
    with closing(reader.told(erased, chunk)) as batches:
        problem = _first_problem(selection, batches)
    model = selection.model
    if problem is not None or not isinstance(model, ConjugateModel):
        return problem
    with closing(reader.told(erased, chunk)) as batches:
        problem_text = _overflow_text(model, selection.agent, batches)
    if problem_text is None:
        return None
    return BadSum(problem_text, mended(reader, model, erased, chunk), ". Fix: ")


def _first_problem(selection: Selection, batches: Iterable[Batch]) -> DataError | None:
    """The error for the invalid record with the smallest number, in the first place with one."""
    found: tuple[int, Batch, _Cell] | None = None
    for batch in batches:
        if found is not None and batch.place != found[1].place:
            break
        problem = _problem(selection, batch)
        if problem is not None and (found is None or problem[0] < found[0]):
            found = (problem[0], batch, problem[1])
    if found is None:
        return None
    number, batch, (name, why, expects) = found
    text = (
        f"agent {selection.agent!r}, {batch.place}, {batch.where(number)}, column {name}: "
        f"the value {_FAULTS.get(why, why) if isinstance(why, float) else why}"
    )
    if why == COMMA:
        return BadData(f"{text}; it looks like one with a decimal comma", _DECIMAL)
    return DataError(f"{text}; expected {expects}")


def _overflow_text(model: ConjugateModel, agent: str, batches: Iterable[Batch]) -> str | None:
    """Place and cause of the first record that does not fit the grid, in the order of the files."""
    for batch in batches:
        assert batch.numbers is not None
        rows = batch.rows[np.argsort(batch.numbers, kind="stable")]
        if (error := _overflow(model, rows)) is None:
            continue
        fine, bad = 0, len(rows)  # the first `fine` rows fit, the first `bad` rows do not
        while bad - fine > 1:
            middle = (fine + bad) // 2
            if _overflow(model, rows[:middle]) is None:
                fine = middle
            else:
                bad = middle
        number = int(np.sort(batch.numbers)[bad - 1])
        why = str(error).partition(". Fix:")[0]  # its fix considers this batch only
        return f"agent {agent!r}, {batch.place}, {batch.where(number)}: {why}"
    return None


def _overflow(model: ConjugateModel, rows: Floats) -> GridOverflow | None:
    try:
        model.sums(rows)
    except GridOverflow as error:
        return error
    return None


_Cell = tuple[str, "str | float", str]  # column, cause (text or fault), expected values


def _problem(selection: Selection, batch: Batch) -> tuple[int, _Cell] | None:
    """The smallest number of an invalid record in a batch, and its first invalid cell."""
    assert batch.numbers is not None
    assert batch.faults is not None
    order = np.argsort(batch.numbers, kind="stable")
    rows, numbers, faults = batch.rows[order], batch.numbers[order], batch.faults[order]
    candidates: list[tuple[int, _Cell]] = []
    for j, column in enumerate(selection.model.schema):
        found = column.problem(rows[:, j])
        if found is not None:
            row, why = found
            fault = float(faults[row, j])
            wrong = fault if fault in _FAULTS else why
            candidates.append(
                (row, (_column_text(column, selection.names[j]), wrong, column.expects))
            )
    # A rule between columns applies only to records whose cells are all valid.
    valid = rows[: min((c[0] for c in candidates), default=len(rows))]
    between = selection.model.row_problem(valid) if len(valid) else None
    if between is not None:
        row, name, why, expects = between
        candidates = [(row, (name, why, expects))]
    if not candidates:
        return None
    row, cell = min(candidates, key=lambda c: c[0])
    return int(numbers[row]), cell


def _column_text(column: Column, name: str) -> str:
    return repr(name) if name == column.name else f"{name!r} (the model's {column.name!r})"
