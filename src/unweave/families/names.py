"""Names of numbered components, made when they are read.

A million strings would take a hundred megabytes and most of a second, and few of them are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import overload

import numpy as np

__all__ = ["Names"]


class Names(Sequence[str]):
    """`Names(("h", (2,)), ("c", ()))` is h[0], h[1], c: parts with a name and a shape. It equals
    the tuple of its names."""

    def __init__(self, *parts: tuple[str, tuple[int, ...]]) -> None:
        self._parts = parts
        self._ends = np.cumsum([np.prod(shape, dtype=int) for _, shape in parts]).tolist()

    def __len__(self) -> int:
        return int(self._ends[-1])

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[str, ...]: ...
    def __getitem__(self, at: int | slice) -> str | tuple[str, ...]:
        if isinstance(at, slice):
            return tuple(self[j] for j in range(*at.indices(len(self))))
        j = range(len(self))[at]  # IndexError beyond the end
        part = int(np.searchsorted(self._ends, j, side="right"))
        name, shape = self._parts[part]
        start = self._ends[part - 1] if part else 0
        return _numbered(name, tuple(map(int, np.unravel_index(j - start, shape))))

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(
            (_numbered(name, index) for index in np.ndindex(*shape)) for name, shape in self._parts
        )

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Names):
            return self._parts == other._parts or tuple(self) == tuple(other)
        return isinstance(other, tuple) and len(self) == len(other) and tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Names({', '.join(map(repr, self._parts))})"


def _numbered(name: str, index: tuple[int, ...]) -> str:
    return f"{name}[{','.join(map(str, index))}]" if index else name
