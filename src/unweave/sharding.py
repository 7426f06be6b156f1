"""Splitting one data set into shards, with equal or unequal sizes and distributions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.arguments import is_whole, number, seed_number, shown
from unweave.errors import ConfigError, DataError
from unweave.rng import Purpose, Stream, derive

__all__ = ["partition"]


Index = NDArray[np.intp]


def partition(
    data: Any,
    agents: int | Sequence[str],
    how: str = "iid",
    seed: int = 0,
    labels: ArrayLike | None = None,
    concentration: float = 0.5,
) -> dict[str, Any]:
    """Split `data` among `agents` (a number: a1, a2, …); every record goes to exactly one agent.

    * `iid`: at random, in equal numbers.
    * `quantity`: at random, in numbers drawn from a symmetric Dirichlet(`concentration`).
    * `dirichlet`: each label's records in shares drawn from Dirichlet(`concentration`); a smaller
      value makes the agents more different.
    * `by_label`: each agent gets as few labels as possible.
    * `sorted`: in the order of the labels, in equal numbers.

    `labels` defaults to the last column. Shards have the form of `data` (array, list, tuple of
    arrays, mapping or data frame) and keep its order. No shard is empty: an agent without a record
    after the draw takes one record from the agent with the most records.

    >>> partition(np.array([0, 1, 0, 1]), 2, how="by_label")
    {'a1': array([0, 0]), 'a2': array([1, 1])}
    """
    names = _names(agents)
    seed = seed_number(seed)
    n = _length(data)
    if n < len(names):
        raise DataError(
            f"{n} records cannot be split among {len(names)} agents. Fix: give fewer agents, or "
            "more records"
        )
    how = how.replace("-", "_") if isinstance(how, str) else how  # the command line uses hyphens
    if how not in _METHODS:
        raise ConfigError(f"how = {how!r}: no such split. Fix: choose from {', '.join(_METHODS)}")
    if not number(concentration, "concentration") > 0:
        raise ConfigError(
            f"concentration = {concentration}: not above 0. Fix: give a number above 0"
        )
    draws = Stream(derive(seed, Purpose.PARTITION))
    needs_labels = how in ("dirichlet", "by_label", "sorted")
    codes = _codes(_last_column(data) if labels is None else labels, n) if needs_labels else None
    owner = _METHODS[how](n, len(names), codes, concentration, draws)
    _fill_empty(owner, len(names))
    return {name: _take(data, np.flatnonzero(owner == k)) for k, name in enumerate(names)}


def _names(agents: int | Sequence[str]) -> list[str]:
    fix = "give a number of at least 1, or different names"
    names: list[str]
    if is_whole(agents):
        names = [f"a{k + 1}" for k in range(agents)]
    elif isinstance(agents, str | Set) or not isinstance(agents, Iterable):
        raise ConfigError(f"agents = {shown(agents)} cannot be used. Fix: {fix}")
    else:
        names = [str(name) for name in agents]
    if not names or len(set(names)) != len(names):
        raise ConfigError(f"agents: none, or a name twice. Fix: {fix}")
    return names


# The methods: each returns the owner of every record.


def _iid(n: int, k: int, codes: Index | None, c: float, draws: Stream) -> Index:
    return _assign(_shuffled(np.arange(n), draws), np.full(k, 1.0 / k), n)


def _quantity(n: int, k: int, codes: Index | None, c: float, draws: Stream) -> Index:
    return _assign(_shuffled(np.arange(n), draws), _shares(k, c, draws), n)


def _dirichlet(n: int, k: int, codes: Index | None, c: float, draws: Stream) -> Index:
    assert codes is not None
    owner = np.zeros(n, dtype=np.intp)
    for label in range(int(codes.max()) + 1):
        rows = _shuffled(np.flatnonzero(codes == label), draws)
        owner[rows] = _cut(rows.size, _shares(k, c, draws))
    return owner


def _by_label(n: int, k: int, codes: Index | None, c: float, draws: Stream) -> Index:
    """Label l belongs to agent l mod K; with fewer labels than agents, agents k ≡ l share it."""
    assert codes is not None
    classes = int(codes.max()) + 1
    if classes >= k:
        return codes % k
    owner = np.zeros(n, dtype=np.intp)
    for label in range(classes):
        sharers = np.arange(label, k, classes)
        rows = _shuffled(np.flatnonzero(codes == label), draws)
        owner[rows] = sharers[_cut(rows.size, np.full(sharers.size, 1.0 / sharers.size))]
    return owner


def _sorted(n: int, k: int, codes: Index | None, c: float, draws: Stream) -> Index:
    assert codes is not None
    return _assign(np.argsort(codes, kind="stable"), np.full(k, 1.0 / k), n)


_Method = Callable[[int, int, "Index | None", float, Stream], Index]
_METHODS: dict[str, _Method] = {
    "iid": _iid,
    "dirichlet": _dirichlet,
    "by_label": _by_label,
    "quantity": _quantity,
    "sorted": _sorted,
}


def _assign(order: Index, shares: NDArray[np.float64], n: int) -> Index:
    owner = np.empty(n, dtype=np.intp)
    owner[order] = _cut(n, shares)
    return owner


def _cut(n: int, shares: NDArray[np.float64]) -> Index:
    """0, …, 0, 1, …, 1, 2, …: n records cut in proportion to the shares."""
    ends = np.rint(np.cumsum(shares) * n)
    ends[-1] = n
    return np.searchsorted(ends, np.arange(n), side="right").astype(np.intp)


def _shuffled(items: Index, draws: Stream) -> Index:
    return items[np.argsort(draws.random((items.size,)), kind="stable")]


def _shares(k: int, concentration: float, draws: Stream) -> NDArray[np.float64]:
    gammas = draws.standard_gamma(concentration, (k,))
    if not gammas.sum() > 0:  # every draw underflowed: one agent takes all records
        gammas[int(draws.random((1,))[0] * k)] = 1.0
    shares: NDArray[np.float64] = gammas / gammas.sum()
    return shares


def _fill_empty(owner: Index, k: int) -> None:
    counts = np.bincount(owner, minlength=k)
    for empty in np.flatnonzero(counts == 0):
        donor = int(np.argmax(counts))
        owner[np.flatnonzero(owner == donor)[-1]] = empty
        counts[donor] -= 1
        counts[empty] += 1


# The types of data


def _length(data: Any) -> int:
    fix = "give an array, a list, a tuple of arrays, a mapping or a data frame"
    wrong = DataError(f"data of type {type(data).__name__} cannot be split. Fix: {fix}")
    if isinstance(data, str | bytes | Set):
        raise wrong
    if isinstance(data, Mapping) or _is_columns(data):
        if not all(_is_column(part) for _, part in _parts(data)):
            raise DataError("a column is a single value. Fix: give a list or an array")
        lengths = [len(part) for _, part in _parts(data)]
        if len(set(lengths)) > 1:
            raise DataError(
                f"the columns have different lengths {lengths}. Fix: give one value per record"
            )
        return lengths[0] if lengths else 0
    try:
        return len(data)
    except TypeError:
        raise wrong from None


def _is_column(part: Any) -> bool:
    return hasattr(part, "__len__") and not isinstance(part, str | bytes | Mapping | Set)


def _is_columns(data: Any) -> bool:
    """A tuple of columns, as opposed to a tuple of records."""
    return isinstance(data, tuple) and len(data) > 0 and np.ndim(data[0]) > 0


def _parts(data: Any) -> list[tuple[Any, Any]]:
    return list(data.items()) if isinstance(data, Mapping) else list(enumerate(data))


def _last_column(data: Any) -> Any:
    if isinstance(data, Mapping):
        return data[list(data)[-1]]
    if hasattr(data, "columns"):
        return data[data.columns[-1]]
    if _is_columns(data):
        return _last_column(data[-1])
    array = np.asarray(data)
    return array if array.ndim == 1 else array[:, -1]


def _codes(labels: Any, n: int) -> Index:
    """Labels as 0, 1, … in sorted order."""
    array = np.asarray(labels)
    if array.shape != (n,):
        raise DataError(
            f"labels: shape {array.shape} for {n} records. Fix: give one label for each record"
        )
    return np.unique(array, return_inverse=True)[1].astype(np.intp)


def _take(data: Any, rows: Index) -> Any:
    if isinstance(data, Mapping):
        return {name: _take(part, rows) for name, part in data.items()}
    if hasattr(data, "iloc"):
        return data.iloc[rows]
    if _is_columns(data):
        return tuple(_take(part, rows) for part in data)
    if isinstance(data, list | tuple):
        return type(data)(data[i] for i in rows)
    return np.asarray(data)[rows]
