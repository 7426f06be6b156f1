"""Ranges of real columns from private rounds of coarse counts (`unweave init --scale masked`).

Every agent counts how many of its records lie in each of a few intervals, and one private round
(rule 20) adds these counts up. All that follows is a function of the sum.

    first     intervals by sign and power of ten, from 1e-30 to 1e30
    then      sixteen equal parts of the range that the last sum gave, until the range covers at
              least four parts, or the column proves constant

The range goes from the 1st to the 99th percentile of all records, and leaves out the smallest and
the largest record at least: one outlier decides nothing, and no agent shows its own range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError
from unweave.federation import Federation
from unweave.grid import Ints
from unweave.manifest.privacy import LEAST_AGENTS
from unweave.models import DirichletMultinomial
from unweave.text import count

__all__ = ["CoarseRanges", "Rows", "coarse_ranges"]

Floats = NDArray[np.float64]
Rows = Callable[[], Iterator[Floats]]
"""The records of one agent, some at a time: [n, columns]."""

_ORDERS = 30  # powers of ten on each side of 1
_PARTS = 16
_RESOLVED = 4  # parts that a range covers at least
_ROUNDS = 7  # at most; each one but the first is up to 16 times as fine as the one before
_SHARE = 100  # one of so many records, at each end, is outside the range
_INSIDE = 1e-9  # a range ends below the upper edge of its last interval


class CoarseRanges(NamedTuple):
    """(low, high) of each column, the number of all records, and the private rounds that it
    took."""

    ranges: dict[str, tuple[float, float]]
    records: int
    rounds: int


@dataclass(frozen=True)
class _Column:
    """The edges of the intervals of one column, ascending. Below the first and above the last there
    is one more interval each."""

    edges: Floats
    zoomed: bool = False  # not those of the first round
    share: int = _SHARE

    @property
    def size(self) -> int:
        return len(self.edges) + 1

    def counts(self, values: Floats) -> Ints:
        at = np.searchsorted(self.edges, values, side="right")
        return np.bincount(at, minlength=self.size)

    def ends(self, counts: Ints) -> tuple[int, int]:
        """The intervals of the smallest and of the largest record that are not left out."""
        n = int(counts.sum())
        rank = min(max(2, -(-n // self.share)), (n + 1) // 2)
        first = int(np.searchsorted(np.cumsum(counts), rank))
        last = len(counts) - 1 - int(np.searchsorted(np.cumsum(counts[::-1]), rank))
        return first, last

    def is_zero(self, first: int, last: int) -> bool:
        """Whether nearly all records are 0: then the others decide."""
        zero = len(self.edges) // 2
        return not self.zoomed and self.share == _SHARE and first == last == zero

    def range(self, first: int, last: int) -> tuple[float, float]:
        low = self.edges[max(first - 1, 0)]
        high = self.edges[min(last, len(self.edges) - 1)]
        return float(low), float(high)


def coarse_ranges(
    shards: Mapping[str, Rows], names: Sequence[str], movable: Sequence[bool], seed: int = 0
) -> CoarseRanges:
    """The ranges of the columns `names` of all agents' records. Of a column that is not `movable`
    only the order of magnitude is asked for."""
    if len(shards) < LEAST_AGENTS:
        raise ConfigError(
            f"--scale masked: {count(len(shards), 'agent')}: the sum of fewer than {LEAST_AGENTS} "
            "gives each one away. Fix: add agents, or --scale auto with --range"
        )
    tens = 10.0 ** np.arange(-_ORDERS, _ORDERS + 1)
    open_columns = {j: _Column(np.concatenate([-tens[::-1], tens])) for j in range(len(names))}
    ranges: dict[str, tuple[float, float]] = {}
    rounds = records = 0
    while open_columns:
        rounds += 1
        total = _round(shards, open_columns, (seed + rounds) % 2**32)
        at, still_open = 0, {}
        for j, column in open_columns.items():
            counts = total[at : at + column.size]
            at, records = at + column.size, int(counts.sum())
            first, last = column.ends(counts)
            if column.is_zero(first, last):
                column = replace(column, share=records)
                first, last = column.ends(counts)
            low, high = column.range(first, last)
            resolved = column.zoomed and last - first + 1 >= _RESOLVED
            if resolved or not movable[j]:
                ranges[names[j]] = _without_edges(low, high)
            elif rounds == _ROUNDS:
                # Constant, as far as float64 and these rounds tell: its size is its scale.
                ranges[names[j]] = (low, low) if first == last else _without_edges(low, high)
            else:
                edges = np.linspace(low, high, _PARTS + 1)
                still_open[j] = replace(column, edges=edges, zoomed=True)
        open_columns = still_open
    return CoarseRanges({name: ranges[name] for name in names}, records, rounds)


def _without_edges(low: float, high: float) -> tuple[float, float]:
    """The range without the edges at which the next power of ten begins."""
    return low * (1.0 - _INSIDE * (low < 0.0)), high * (1.0 - _INSIDE * (high > 0.0))


def _round(shards: Mapping[str, Rows], columns: Mapping[int, _Column], seed: int) -> Ints:
    """The sum of all agents' counts, by a private round of the protocol."""
    model = DirichletMultinomial(sum(column.size for column in columns.values()))
    given = {name: _counted(rows, columns)[None, :] for name, rows in shards.items()}
    federation = Federation(model, given, "ring", privacy="masked", seed=seed).learn()
    units: Ints = (federation.units - model.eta0) >> np.array(model.grid.bits)
    return units


def _counted(rows: Rows, columns: Mapping[int, _Column]) -> Floats:
    """One agent's counts, column by column."""
    total = np.zeros(sum(column.size for column in columns.values()))
    for batch in rows():
        total += np.concatenate([one.counts(batch[:, j]) for j, one in columns.items()])
    return total
