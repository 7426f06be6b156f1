"""A handle to an agent's validated records, which may be in memory or in files.

A solver reads the records through it as often as it needs them. Records that fit the memory are
read from their files once; others are read in batches each time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Data", "chunks"]


Floats = NDArray[np.float64]

# Cells per batch, so that temporary arrays stay in the cache.
_CELLS = 1 << 17


class Data(ABC):
    """The records of one agent: `rows` [N, C] are all of them, `batches` gives some at a time."""

    agent: str
    rows: Floats

    @property
    @abstractmethod
    def n(self) -> int:
        """The number of records."""

    @abstractmethod
    def batches(self) -> Iterator[Floats]:
        """The records, some rows at a time, always in the same order and in the same batches."""

    def reduce(self, part: Callable[[Floats], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Σ part(rows) over the batches, entry by entry; () without records."""
        total: tuple[Any, ...] = ()
        for rows in self.batches():
            found = part(rows)
            total = tuple(a + b for a, b in zip(total, found, strict=True)) if total else found
        return total


def chunks(rows: Floats, size: int | None = None) -> Iterator[Floats]:
    """Chunks of `size` rows; by default, of as many rows as fit into the cache."""
    size = size or max(1, _CELLS // max(1, rows.shape[1]))
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
