"""Immutable containers: a changed copy shares most of its memory with the original.

A token has an entry for each of the K agents, and every agent keeps the last token that it sent. A
change creates a new value that shares all but O(log K) of the old value, so that K agents in one
process need O(K log K) memory in total, not K².
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from functools import reduce
from itertools import chain
from typing import Any, TypeVar, overload

__all__ = ["NOBODY", "Bitmap", "Stack", "Vector"]

T = TypeVar("T")

_BITS = 5  # a node of a vector has 32 places
_PLACE = (1 << _BITS) - 1
_WORD = 1024  # bits per word of a bitmap: a small network needs one word


class Vector(Sequence[T]):
    """A sequence of fixed length, as a tree of tuples: reading and replacing cost O(log n)."""

    __slots__ = ("_root", "_shift", "_size", "digest")

    digest: str | None  # a hash of the values, kept by the one that computes it

    def __init__(self, values: Iterable[T] = ()) -> None:
        level: tuple[Any, ...] = tuple(values)
        self._size = len(level)
        self.digest = None
        self._shift = 0  # bits to shift an index by to find its place in the root
        while len(level) > 1 << _BITS:
            level = tuple(level[i : i + (1 << _BITS)] for i in range(0, len(level), 1 << _BITS))
            self._shift += _BITS
        self._root = level

    def set(self, index: int, value: T) -> Vector[T]:
        """A copy with `value` at `index`; itself, if the value is there already."""
        if not 0 <= index < self._size:
            raise IndexError(f"index {index}, length {self._size}")
        if self[index] == value:
            return self
        new: Vector[T] = object.__new__(Vector)
        new._size, new._shift, new.digest = self._size, self._shift, None
        new._root = _replaced(self._root, self._shift, index, value)
        return new

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if not self._shift:  # a small network: the root is a tuple of values
            found: T | tuple[T, ...] = self._root[index]
            return found
        if isinstance(index, slice):
            return tuple(self)[index]
        if index < 0:
            index += self._size
        if not 0 <= index < self._size:
            raise IndexError(f"index {index}, length {self._size}")
        node: Any = self._root
        for shift in range(self._shift, 0, -_BITS):
            node = node[index >> shift & _PLACE]
        value: T = node[index & _PLACE]
        return value

    def __iter__(self) -> Iterator[T]:
        values: Iterable[Any] = self._root
        for _ in range(0, self._shift, _BITS):
            values = chain.from_iterable(values)
        return iter(values)

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        """Equal lengths give equal trees, and tuples compare shared parts by identity."""
        if not isinstance(other, Vector):
            return NotImplemented
        return self._size == other._size and self._root == other._root

    def __hash__(self) -> int:
        return hash(self._root)

    def __repr__(self) -> str:
        return f"Vector({list(self)})"


def _replaced(node: tuple[Any, ...], shift: int, index: int, value: object) -> tuple[Any, ...]:
    place = index >> shift & _PLACE
    child = _replaced(node[place], shift - _BITS, index, value) if shift else value
    return (*node[:place], child, *node[place + 1 :])


class Bitmap(Set[int]):
    """A set of small non-negative integers. `int(bitmap)` is the integer with these bits."""

    __slots__ = ("_size", "_words")

    _words: Vector[int]
    _size: int

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        words: list[int] = []
        for k in numbers:
            if k < 0:
                raise ValueError(f"{k}: a bitmap holds no negative number")
            words.extend([0] * (k // _WORD + 1 - len(words)))
            words[k // _WORD] |= 1 << k % _WORD
        self._fill(words)

    @classmethod
    def of(cls, bits: int) -> Bitmap:
        """The set of the bits of an integer."""
        if bits < 0:
            raise ValueError("a bitmap is not a negative integer")
        if not bits:
            return NOBODY
        data, width = bits.to_bytes((bits.bit_length() + 7) // 8, "little"), _WORD // 8
        new: Bitmap = object.__new__(cls)
        new._fill(
            [int.from_bytes(data[i : i + width], "little") for i in range(0, len(data), width)]
        )
        return new

    def _fill(self, words: list[int]) -> None:
        self._words = Vector(words)
        self._size = sum(map(int.bit_count, words))

    def plus(self, k: int) -> Bitmap:
        """This set and k."""
        if k in self:
            return self
        if k // _WORD >= len(self._words):
            return Bitmap.of(int(self) | 1 << k)
        return self._flipped(k, 1)

    def minus(self, k: int) -> Bitmap:
        """This set without k."""
        return self._flipped(k, -1) if k in self else self

    def __or__(self, other: Set[int]) -> Bitmap:  # type: ignore[override]
        """O(len(other)): usually a few agents are added to many."""
        return reduce(Bitmap.plus, other, self)

    def _flipped(self, k: int, change: int) -> Bitmap:
        new: Bitmap = object.__new__(Bitmap)
        word = k // _WORD
        new._words = self._words.set(word, self._words[word] ^ 1 << k % _WORD)
        new._size = self._size + change
        return new

    def __contains__(self, k: object) -> bool:
        words = self._words
        if not isinstance(k, int) or not 0 <= k < _WORD * words._size:
            return False
        return words[k // _WORD] >> k % _WORD & 1 == 1

    def __iter__(self) -> Iterator[int]:
        """In ascending order."""
        digits = f"{int(self):b}"
        return (k for k, digit in enumerate(reversed(digits)) if digit == "1")

    def __len__(self) -> int:
        return self._size

    def __int__(self) -> int:
        words = self._words
        if len(words) <= 1:
            return words[0] if words else 0
        width = _WORD // 8
        return int.from_bytes(b"".join(word.to_bytes(width, "little") for word in words), "little")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Bitmap):
            return self._size == other._size and int(self) == int(other)
        return super().__eq__(other)

    __hash__ = Set._hash

    def __repr__(self) -> str:
        return f"Bitmap({list(self)})"


NOBODY = Bitmap()


class Stack(Sequence[int]):
    """An immutable stack of numbers."""

    __slots__ = ("_below", "_size", "root", "top")

    _below: Stack | None
    root: int | None  # the first number; None: the stack is empty
    top: int | None  # the last number

    def __init__(self) -> None:
        self._below, self._size = None, 0
        self.root = self.top = None

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Stack:
        stack = cls()
        for k in numbers:
            stack = stack.push(k)
        return stack

    def push(self, k: int) -> Stack:
        new: Stack = object.__new__(Stack)
        new._below, new._size = self, self._size + 1
        new.root = self.root if self._size else k
        new.top = k
        return new

    def pop(self) -> Stack:
        """This stack without its top."""
        if self._below is None:
            raise IndexError("the stack is empty")
        return self._below

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        return tuple(self)[index]

    def __iter__(self) -> Iterator[int]:
        return reversed(list(self.__reversed__()))

    def __reversed__(self) -> Iterator[int]:
        here = self
        while here.top is not None and here._below is not None:
            yield here.top
            here = here._below

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stack):
            return NotImplemented
        return self._size == other._size and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Stack({list(self)})"
