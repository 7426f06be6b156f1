"""The validated records of one agent: the only form of data that a model accepts.

`read` accepts arrays, lists, a tuple of columns, or a mapping or data frame of columns. It returns
a `Shard`, or raises an error with the agent, the column, the row and the expected values. An error
never quotes a value, because the data is private and errors appear in logs. A record with a missing
value is refused, or left out if the owner says so; it keeps its row number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import ConfigError, DataError
from unweave.models.columns import Column, cell_text, truth, unseen
from unweave.models.data import Data, chunks
from unweave.text import count, listed

__all__ = ["Missing", "MissingRule", "RowProblem", "Shard", "feature_rows", "read"]

Rows = NDArray[np.float64]
MissingRule = Literal["refuse", "drop"]
RowProblem = tuple[NDArray[np.bool_], str, str, str]
"""The rows that break a rule between columns, the column, the cause and the expected values."""
Between = Callable[[Rows], RowProblem | None]


def _nothing(rows: Rows) -> None:
    return None


@dataclass(frozen=True)
class Missing:
    """The records that were left out for a missing value, and the missing values by column."""

    records: int = 0
    columns: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        by_column = ", ".join(f"{name} {n}" for name, n in self.columns.items() if n)
        return f"{count(self.records, 'record')} dropped, with a missing value ({by_column})"

    @property
    def report(self) -> dict[str, Any]:
        return {"records": self.records, "columns": dict(self.columns)}


@dataclass(frozen=True, eq=False)
class Shard(Data):
    """The records of one agent: `rows` is a read-only float64 array [N, C], already validated.

    `numbers` are the places of the rows among the `given` records of the data, if some are left
    out.
    """

    agent: str
    rows: Rows
    numbers: NDArray[np.int64] | None = None
    given: int = -1  # unless stated: as many as there are rows
    missing: Missing = Missing()

    def __post_init__(self) -> None:
        self.rows.setflags(write=False)
        if self.given < 0:
            object.__setattr__(self, "given", self.n)

    @property
    def n(self) -> int:
        return int(self.rows.shape[0])

    def batches(self) -> Iterator[Rows]:
        return chunks(self.rows)

    def drop(self, records: ArrayLike) -> Shard:
        """The shard without `records`: a boolean mask, or row numbers, of the data as given.

        Dropping every record leaves an empty shard, whose factor is zero.
        """
        chosen = self.chosen(records)
        if not chosen.size:
            return self
        keep = np.ones(self.given, dtype=bool)
        keep[chosen] = False
        numbers = np.arange(self.n) if self.numbers is None else self.numbers
        stays = keep[numbers]
        return replace(self, rows=self.rows[stays].copy(), numbers=numbers[stays])

    def chosen(self, records: ArrayLike) -> NDArray[np.int64]:
        """The row numbers of a choice of records, checked."""
        chosen = np.asarray(sorted(records) if isinstance(records, Set) else records)
        if chosen.dtype == bool:
            if chosen.shape != (self.given,):
                raise DataError(
                    f"agent {self.agent!r}: a mask of records has shape {chosen.shape}. Fix: one "
                    f"entry for each of {self.given} records"
                )
            return np.flatnonzero(chosen)
        if chosen.size == 0:
            return np.empty(0, dtype=np.int64)
        if chosen.ndim > 1 or chosen.dtype.kind not in "iu":
            raise DataError(
                f"agent {self.agent!r}: records have no such names. Fix: a boolean mask, or row "
                "indices"
            )
        chosen = np.atleast_1d(chosen)
        outside = (chosen < 0) | (chosen >= self.given)
        if outside.any():
            raise DataError(
                f"agent {self.agent!r}: record {int(chosen[np.argmax(outside)])} does not exist. "
                f"Fix: choose from 0 to {self.given - 1}"
            )
        return chosen.astype(np.int64)


def read(
    data: Any,
    schema: Sequence[Column],
    agent: str,
    between: Between = _nothing,
    called: Mapping[str, str] | None = None,
    missing: MissingRule = "refuse",
) -> Shard:
    """Turn `data` into a validated shard of the columns in `schema`.

    `between` finds the rows that break a condition between columns. `called` maps a column of the
    schema to its name in the data; other columns are ignored. `missing` says what becomes of a
    record with a missing value.
    """
    called = {} if called is None else called
    names = list(dict.fromkeys(c.given for c in schema))
    if unknown := [name for name in called if name not in names]:
        raise ConfigError(
            f"columns names {unknown[0]!r}, which the model does not have. Fix: choose from "
            f"{listed(names)}"
        )
    if missing not in ("refuse", "drop"):
        raise ConfigError(f'missing = {missing!r}. Fix: choose "refuse" or "drop"')
    whole = _table(data, schema, agent, called)
    rows, numbers, left_out = whole, None, Missing()
    if missing == "drop" and (lacking := np.isnan(whole)).any():
        by_column = {c.given: int(lacking[:, j].sum()) for j, c in enumerate(schema)}
        numbers = np.flatnonzero(~lacking.any(axis=1))
        rows = np.ascontiguousarray(whole[numbers])
        left_out = Missing(len(whole) - len(rows), {k: n for k, n in by_column.items() if n})
    if rows.shape[0] == 0:
        lost = f" left: {left_out}" if left_out.records else ""
        raise DataError(
            f"agent {agent!r} has no records{lost}. Fix: at least one, or leave it out of the "
            "network"
        )
    for j, column in enumerate(schema):
        found = column.problem(rows[:, j])
        if found is not None:
            row, problem = found
            at = _number(numbers, row)
            raise DataError(_at(agent, column.given, at, problem, column.expects))
    broken = between(rows)
    if broken is not None:
        bad, name, problem, expects = broken
        row = int(np.argmax(bad))
        raise DataError(_at(agent, name, _number(numbers, row), problem, expects))
    return Shard(agent, rows, numbers, len(whole), left_out)


def feature_rows(x: Any, schema: Sequence[Column], model: str) -> Rows:
    """Rows of features to predict for, [N, C]: by name, or in the order of the features."""
    names = list(dict.fromkeys(column.given for column in schema))
    texts = any(column.codes for column in schema)
    if isinstance(x, Mapping) or hasattr(x, "columns"):
        if absent := [name for name in names if name not in x]:
            raise DataError(f"{model}: rows to predict lack a column. Fix: add {absent[0]!r}")
        cells = [np.atleast_1d(np.asarray(x[name], dtype=object)) for name in names]
        x = np.column_stack(cells)
    try:
        table = np.atleast_2d(np.asarray(x, dtype=object if texts else np.float64))
    except (TypeError, ValueError):
        raise DataError(
            f"{model}: rows to predict are not numbers. Fix: give {len(names)} in each row "
            f"({', '.join(names)})"
        ) from None
    if table.ndim != 2 or table.shape[1] != len(names):
        raise DataError(
            f"{model}: rows to predict have shape {np.shape(x)}. Fix: give {len(names)} columns "
            f"({', '.join(names)})"
        )
    rows = table if not texts else _feature_cells(table, schema, names, model)
    if not np.isfinite(rows).all():
        row, j = (int(i) for i in np.argwhere(~np.isfinite(rows))[0])
        raise DataError(
            f"{model}: rows to predict, column {schema[j].given!r}, row {row}: the value is "
            "missing (NaN) or infinite. Fix: a finite number"
        )
    return rows


def _feature_cells(
    table: NDArray[Any], schema: Sequence[Column], names: Sequence[str], model: str
) -> Rows:
    """Cells of mixed types, by the columns of the schema."""
    cells = {name: table[:, j] for j, name in enumerate(names)}
    try:
        return _from_named(cells, schema, "", {})
    except DataError as found:
        error = str(found).replace("agent ''", "rows to predict", 1)
        raise DataError(f"{model}: {error}") from None


def _number(numbers: NDArray[np.int64] | None, row: int) -> int:
    """The number of a row in the data as given."""
    return row if numbers is None else int(numbers[row])


def _at(agent: str, column: str, row: int, problem: str, expects: str) -> str:
    return f"agent {agent!r}, column {column!r}, row {row}: the value {problem}. Fix: {expects}"


def _table(data: Any, schema: Sequence[Column], agent: str, called: Mapping[str, str]) -> Rows:
    if isinstance(data, Mapping) or hasattr(data, "columns"):
        return _from_named(data, schema, agent, called)
    if called:
        raise DataError(
            f"agent {agent!r}: columns={{…}} needs data whose columns have names. Fix: give a "
            "mapping or a data frame"
        )
    names = list(dict.fromkeys(column.given for column in schema))
    if any(column.codes for column in schema):
        return _from_named(_by_place(data, names, agent), schema, agent, called)
    if isinstance(data, tuple) and any(np.ndim(part) > 0 for part in data):
        parts: list[Rows] = []
        for i, part in enumerate(data):
            done = sum(p.shape[1] for p in parts)
            parts.append(_block(part, agent, f"part {i}", schema[done:]))
        lengths = [len(part) for part in parts]
        if len(set(lengths)) > 1:
            raise DataError(
                f"agent {agent!r}: the columns have different lengths {lengths}. Fix: one value "
                "per record in each"
            )
        rows = np.hstack(parts)
    else:
        rows = _block(data, agent, "", schema)
    if rows.shape[1] != len(names):
        raise DataError(
            f"agent {agent!r}: the data has {rows.shape[1]} columns. Fix: give {len(names)} "
            f"({listed(names)})"
        )
    return np.array(rows, dtype=np.float64, order="C")


def _by_place(data: Any, names: Sequence[str], agent: str) -> dict[str, NDArray[Any]]:
    """Unnamed columns by name. With texts among the cells, all cells are kept as objects."""
    try:
        if isinstance(data, tuple):
            cells = np.column_stack([np.asarray(part, dtype=object) for part in data])
        else:
            cells = np.asarray(data, dtype=object)
    except ValueError:
        cells = np.empty((0, 0, 0))
    if cells.ndim == 1:
        cells = cells[:, None]
    if cells.ndim != 2 or cells.shape[1] != len(names):
        raise DataError(
            f"agent {agent!r}: the data do not have {len(names)} columns. Fix: give "
            f"{listed(names)} in each record"
        )
    return {name: cells[:, j] for j, name in enumerate(names)}


def _from_named(data: Any, schema: Sequence[Column], agent: str, called: Mapping[str, str]) -> Rows:
    # Data frames may have numbers as names of columns.
    given = {str(name): name for name in (data if isinstance(data, Mapping) else data.columns)}
    names = [str(called.get(column.given, column.given)) for column in schema]
    for expected, name in zip(schema, names, strict=True):
        if name not in given:
            raise DataError(
                f"agent {agent!r}: column {name!r} is missing; {unseen(name, [*given])}. "
                f"Fix: rename one, or say columns={{{expected.given!r}: …}}"
            )
    columns = []
    for expected, name in zip(schema, names, strict=True):
        cells = data[given[name]]
        coded = expected.codes and np.ndim(cells) == 1
        column = (
            _coded(cells, agent, name, expected)
            if coded
            else _block(cells, agent, name, [expected])
        )
        if column.shape[1] != 1:
            raise DataError(
                f"agent {agent!r}: column {name!r} has several dimensions. Fix: give one"
            )
        columns.append(column)
    lengths = {name: len(column) for name, column in zip(names, columns, strict=True)}
    if len(set(lengths.values())) > 1:
        raise DataError(
            f"agent {agent!r}: the columns have different lengths {lengths}. Fix: one value per "
            "record in each"
        )
    return np.ascontiguousarray(np.hstack(columns))


def _coded(cells: Any, agent: str, name: str, column: Column) -> Rows:
    """Texts as the numbers of their levels, [N, 1]; a missing text is NaN."""
    codes = dict(column.codes)
    rows = np.empty((len(cells), 1))
    for i, cell in enumerate(np.asarray(cells, dtype=object)):
        text = cell_text(cell)
        found = np.nan if text is None else codes.get(text)
        if found is None:
            raise DataError(_at(agent, name, i, "is no known level", column.expects))
        rows[i] = found
    return rows


def _block(data: Any, agent: str, place: str, schema: Sequence[Column]) -> Rows:
    """`data` as a float64 array [N, c]; a one-dimensional array is one column."""
    names = [column.name for column in schema]
    where = f"agent {agent!r}" + (f", column {place!r}" if place else "")
    if isinstance(data, np.ma.MaskedArray):
        data = np.ma.filled(data.astype(np.float64), np.nan)  # a masked value counts as missing
    try:
        array = np.asarray(data)
        if array.dtype.kind not in "biufO":
            # One text in a list turns every cell into text; an array of objects keeps the types.
            array = np.asarray(data, dtype=object)
    except (ValueError, TypeError):
        raise DataError(
            f"{where}: the rows have different lengths. Fix: give {len(names)} columns "
            f"({listed(names)})"
        ) from None
    if array.ndim == 0:
        if isinstance(data, Iterable) and not isinstance(data, str | bytes | Set):
            return _block(list(data), agent, place, schema)  # for example, a generator
        what = "None" if data is None else f"of type {type(data).__name__}"
        raise DataError(
            f"{where}: the data is {what}. Fix: an array, a list, a mapping or a data frame "
            f"with {len(names)} columns ({listed(names)})"
        )
    if array.ndim > 2:
        raise DataError(
            f"{where}: the data has {array.ndim} dimensions. Fix: rows of "
            f"{len(names)} columns ({listed(names)})"
        )
    if array.ndim == 1:
        array = array[:, None]
    if array.dtype.kind in "iu" and array.size and max(-int(array.min()), int(array.max())) > 2**53:
        row = int(np.argwhere((array > 2**53) | (array < -(2**53)))[0][0])
        raise DataError(
            f"{where}, row {row}: a whole number above 2^53 cannot be represented. Fix: scale it"
        )
    if array.dtype.kind in "biuf":
        return array.astype(np.float64, copy=False)  # the caller makes the only copy
    return _from_objects(array, where, schema)


def _from_objects(array: NDArray[Any], where: str, schema: Sequence[Column]) -> Rows:
    """Convert cells of mixed types: numbers, true and false in columns of 0 and 1, and None as NaN;
    DataError for other types."""
    rows = np.empty(array.shape, dtype=np.float64)
    for (i, j), cell in np.ndenumerate(array):
        if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
            rows[i, j] = np.nan
        elif isinstance(cell, Real):
            rows[i, j] = float(cell)
        elif isinstance(cell, str) and _is_binary(schema, j) and truth(cell) is not None:
            rows[i, j] = truth(cell)
        else:
            whole = array.shape[1] == len(schema) > 1
            column = f", column {schema[j].name!r}" if whole else ""
            kind = "text" if isinstance(cell, str | bytes) else f"of type {type(cell).__name__}"
            raise DataError(f"{where}{column}, row {i}: the value is {kind}. Fix: a number")
    return cast(Rows, rows)


def _is_binary(schema: Sequence[Column], j: int) -> bool:
    return j < len(schema) and schema[j].truth
