"""The validated records of one agent: the only form of data that a model accepts.

`read` accepts arrays, lists, a tuple of columns, or a mapping or data frame of columns. It returns
a `Shard`, or raises an error with the agent, the column, the row and the expected values. An error
never quotes a value, because the data is private and errors appear in logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from numbers import Real
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import ConfigError, DataError
from unweave.models.columns import Column, truth, unseen
from unweave.models.data import Data, chunks
from unweave.text import listed

__all__ = ["Shard", "read"]

Rows = NDArray[np.float64]
Between = Callable[[Rows], tuple[int, str, str, str] | None]


def _nothing(rows: Rows) -> None:
    return None


@dataclass(frozen=True, eq=False)
class Shard(Data):
    """The records of one agent: `rows` is a read-only float64 array [N, C], already validated."""

    agent: str
    rows: Rows

    def __post_init__(self) -> None:
        self.rows.setflags(write=False)

    @property
    def n(self) -> int:
        return int(self.rows.shape[0])

    def batches(self) -> Iterator[Rows]:
        return chunks(self.rows)

    def drop(self, records: ArrayLike) -> Shard:
        """The shard without `records` (a boolean mask of length N, or row indices).

        Dropping every record leaves an empty shard, whose factor is zero.
        """
        chosen = np.asarray(sorted(records) if isinstance(records, Set) else records)
        if chosen.dtype == bool:
            if chosen.shape != (self.n,):
                raise DataError(
                    f"agent {self.agent!r}: a mask of records has shape {chosen.shape}. Fix: one "
                    f"entry for each of {self.n} records"
                )
            return Shard(self.agent, self.rows[~chosen].copy())
        if chosen.size == 0:
            return self
        if chosen.ndim > 1 or chosen.dtype.kind not in "iu":
            raise DataError(
                f"agent {self.agent!r}: records have no such names. Fix: a boolean mask, or row "
                "indices"
            )
        chosen = np.atleast_1d(chosen)
        outside = (chosen < 0) | (chosen >= self.n)
        if outside.any():
            raise DataError(
                f"agent {self.agent!r}: record {int(chosen[np.argmax(outside)])} does not exist. "
                f"Fix: choose from 0 to {self.n - 1}"
            )
        keep = np.ones(self.n, dtype=bool)
        keep[chosen] = False
        return Shard(self.agent, self.rows[keep].copy())


def read(
    data: Any,
    schema: Sequence[Column],
    agent: str,
    between: Between = _nothing,
    called: Mapping[str, str] | None = None,
) -> Shard:
    """Turn `data` into a validated shard of the columns in `schema`.

    `between` finds a row that breaks a condition between columns: (row, column, problem, expected).
    `called` maps a column of the schema to its name in the data; other columns are ignored.
    """
    called = {} if called is None else called
    if unknown := [name for name in called if name not in {c.name for c in schema}]:
        raise ConfigError(
            f"columns names {unknown[0]!r}, which the model does not have. Fix: choose from "
            f"{listed([c.name for c in schema])}"
        )
    rows = _table(data, schema, agent, called)
    if rows.shape[0] == 0:
        raise DataError(
            f"agent {agent!r} has no records. Fix: at least one, or leave it out of the network"
        )
    for j, column in enumerate(schema):
        found = column.problem(rows[:, j])
        if found is not None:
            row, problem = found
            raise DataError(_at(agent, column.name, row, problem, column.expects))
    broken = between(rows)
    if broken is not None:
        row, name, problem, expects = broken
        raise DataError(_at(agent, name, row, problem, expects))
    return Shard(agent, rows)


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
    names = [column.name for column in schema]
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


def _from_named(data: Any, schema: Sequence[Column], agent: str, called: Mapping[str, str]) -> Rows:
    # Data frames may have numbers as names of columns.
    given = {str(name): name for name in (data if isinstance(data, Mapping) else data.columns)}
    names = [str(called.get(column.name, column.name)) for column in schema]
    for expected, name in zip(schema, names, strict=True):
        if name not in given:
            raise DataError(
                f"agent {agent!r}: column {name!r} is missing; {unseen(name, [*given])}. "
                f"Fix: rename one, or say columns={{{expected.name!r}: …}}"
            )
    columns = []
    for expected, name in zip(schema, names, strict=True):
        column = _block(data[given[name]], agent, name, [expected])
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
    return j < len(schema) and schema[j].binary
