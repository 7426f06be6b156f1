"""Actionable errors for records that a model cannot use.

An error names the agent, the place, the line (or record number), the column and the values that the
model expects. An error never quotes a value. It never quotes a message of the engine either,
because these messages contain raw records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DataError, GridOverflow
from unweave.models import ConjugateModel
from unweave.models.columns import Column
from unweave.node.data.reader import (
    COMMA,
    FINE,
    MISSING,
    NO_LEVEL,
    NO_NUMBER,
    TOO_LARGE,
    Batch,
    Reader,
    Selection,
    mended,
)
from unweave.node.errors import LISTED, BadLines, BadSum

__all__ = ["refusal"]


Floats = NDArray[np.float64]

_FAULTS = {
    MISSING: "is missing",
    NO_NUMBER: "is not a number",
    TOO_LARGE: "is a whole number above 2^53, which cannot be represented",
    COMMA: "is not a number",
    NO_LEVEL: "is no known level",
}
_NAN = "is missing (NaN)"
_DROP = (
    'complete the records, or leave them out: missing = "drop" in agent.toml ([data]; '
    "--missing drop for unweave init)"
)
_DECIMAL = 'if so, write decimal = "," in agent.toml ([data]; --decimal , for unweave init)'


def refusal(
    reader: Reader, selection: Selection, erased: frozenset[str], chunk: int
) -> DataError | BadSum | None:
    """The error for the invalid records, else for the first record that does not fit the grid;
    None if there is no such record."""
    with closing(reader.told(erased, chunk)) as batches:
        problem = _bad_records(selection, batches)
    model = selection.model
    if problem is not None or not isinstance(model, ConjugateModel):
        return problem
    with closing(reader.told(erased, chunk)) as batches:
        problem_text = _overflow_text(model, selection.agent, batches)
    if problem_text is None:
        return None
    return BadSum(problem_text, mended(reader, model, erased, chunk), ". Fix: ")


def _bad_records(selection: Selection, batches: Iterable[Batch]) -> BadLines | None:
    """The error for all invalid records, by their places."""
    found: dict[str, list[tuple[int, _Cell]]] = {}
    where: dict[str, Callable[[Sequence[int]], list[str]]] = {}
    total, missing = 0, Counter[str]()
    for batch in batches:
        problems = _problems(selection, batch)
        if not problems:
            continue
        total += len(problems)
        missing.update(_missing_values(selection, batch))
        where[batch.place] = batch.where
        # The batches of a place come in no order.
        first = found.setdefault(batch.place, [])
        first[:] = sorted([*first, *problems], key=lambda one: one[0])[:LISTED]
    if not found:
        return None
    listed: list[str] = []
    for place, problems in found.items():
        places = where[place]([number for number, _ in problems])
        prefix = f"{place}, " if len(found) > 1 else ""
        for at, (_, (name, why, _)) in zip(places, problems, strict=True):
            listed.append(f"{prefix}{at}, column {name}: the value {_cause(why)}")
    place, problems = next(iter(found.items()))
    number, (name, why, expects) = problems[0]
    problem = (
        f"agent {selection.agent!r}, {place}, {where[place]([number])[0]}, column {name}: "
        f"the value {_cause(why)}"
    )
    notes = []
    if missing:
        counts = ", ".join(f"{name} {n}" for name, n in missing.items())
        notes.append(f"missing values by column: {counts}")
    fix, joint = "", ""
    if why == COMMA:
        problem, fix, joint = f"{problem}; it looks like one with a decimal comma", _DECIMAL, ": "
    else:
        problem = f"{problem}; expected {expects}"
        if why in (MISSING, _NAN):
            fix, joint = _DROP, ". Fix: "
    return BadLines(problem, fix, joint, listed[:LISTED], total, notes if total > 1 else ())


def _cause(why: str | float) -> str:
    return _FAULTS[why] if isinstance(why, float) else why


def _missing_values(selection: Selection, batch: Batch) -> dict[str, int]:
    """The number of missing values of each column of the source."""
    assert batch.faults is not None
    lacking = (batch.faults == MISSING) | ((batch.faults == FINE) & np.isnan(batch.rows))
    counts = {name: int(lacking[:, selection.first(name)].sum()) for name in selection.names}
    return {name: n for name, n in counts.items() if n}


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
        return f"agent {agent!r}, {batch.place}, {batch.where([number])[0]}: {why}"
    return None


def _overflow(model: ConjugateModel, rows: Floats) -> GridOverflow | None:
    try:
        model.sums(rows)
    except GridOverflow as error:
        return error
    return None


_Cell = tuple[str, "str | float", str]  # column, cause (text or fault), expected values


def _problems(selection: Selection, batch: Batch) -> list[tuple[int, _Cell]]:
    """The numbers of all invalid records in a batch, and the first invalid cell of each."""
    assert batch.numbers is not None
    assert batch.faults is not None
    order = np.argsort(batch.numbers, kind="stable")
    rows, numbers, faults = batch.rows[order], batch.numbers[order], batch.faults[order]
    found: dict[int, _Cell] = {}
    for j, column in enumerate(selection.schema):
        for row in np.flatnonzero(column.bad(rows[:, j])).tolist():
            fault = float(faults[row, j])
            wrong = fault if fault in _FAULTS else column.why(float(rows[row, j]))
            named = _column_text(column, selection.names[j])
            found.setdefault(row, (named, wrong, column.expects))
    # A rule between columns applies only to records whose cells are all valid.
    valid = np.setdiff1d(np.arange(len(rows)), list(found))
    between = selection.model.row_problem(rows[valid]) if len(valid) else None
    if between is not None:
        bad, name, why, expects = between
        for row in valid[bad].tolist():
            found[row] = (name, why, expects)
    return [(int(numbers[row]), found[row]) for row in sorted(found)]


def _column_text(column: Column, name: str) -> str:
    return repr(name) if name == column.given else f"{name!r} (the model's {column.given!r})"
