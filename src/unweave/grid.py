"""The integer grid of the factors.

Component j of a natural parameter is an int64 multiple of 2^-q_j. Integer sums are exact and do not
depend on their order, so subtracting a factor undoes adding it, bit for bit. Floating-point sums do
not have this property, so every value that is added to a token is encoded here.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from hashlib import sha256

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import ConfigError, DataError, GridOverflow

__all__ = ["LIMIT", "Grid", "Ints", "digest", "exact_sum", "keyed_digest"]

Ints = NDArray[np.int64]

LIMIT = 2**63 - 1


def digest(units: Ints) -> bytes:
    """SHA-256 of the little-endian int64 bytes: the id of a grid point."""
    return sha256(units.astype("<i8", copy=False).tobytes()).digest()


def keyed_digest(secret: bytes, units: Ints) -> bytes:
    """HMAC-SHA256(secret, units), of the same bytes as `digest`. A digest of a sum over few records
    can be found by guessing the sum; this one only with the secret."""
    return hmac.digest(secret, units.astype("<i8", copy=False).tobytes(), "sha256")


def exact_sum(records: Ints) -> list[int]:
    """Σ over the first axis of [N, D] as unbounded integers: no partial sum can wrap.

    Each int64 is high·2^32 + low, and both halves of up to 2^31 records sum within int64.
    """
    high = (records >> 32).sum(axis=0, dtype=np.int64)
    low = (records & 0xFFFFFFFF).sum(axis=0, dtype=np.int64)
    return [(int(h) << 32) + int(lo) for h, lo in zip(high, low, strict=True)]


@dataclass(frozen=True)
class Grid:
    """Resolution per component: component j is a multiple of 2^-bits[j].

    >>> grid = Grid((0, 24), names=("count", "sum"))
    >>> grid.decode(grid.encode([3.0, 0.1]) + grid.encode([1.0, 0.2]))
    array([4.        , 0.30000001])
    """

    bits: tuple[int, ...]
    names: Sequence[str] = field(default=())

    def __post_init__(self) -> None:
        if not self.bits or any(not 0 <= b <= 62 for b in set(self.bits)):
            raise ConfigError(
                f"grid bits {self.bits} cannot be used. Fix: give a number from 0 to 62 for each"
            )
        if not self.names:
            object.__setattr__(self, "names", tuple(f"eta[{j}]" for j in range(len(self.bits))))
        if len(self.names) != len(self.bits):
            raise ConfigError(
                f"grid: {len(self.bits)} components, {len(self.names)} names. Fix: name each one"
            )

    @property
    def dim(self) -> int:
        return len(self.bits)

    @cached_property
    def scale(self) -> NDArray[np.float64]:
        """2^q_j, exact in float64."""
        return np.ldexp(1.0, self._exponents)

    @cached_property
    def _step(self) -> NDArray[np.float64]:
        return np.ldexp(1.0, -self._exponents)

    @property
    def _exponents(self) -> Ints:
        first = self.bits[0]
        if self.bits.count(first) == len(self.bits):  # much faster than reading a million numbers
            return np.full(len(self.bits), first, dtype=np.int64)
        return np.asarray(self.bits, dtype=np.int64)

    def zeros(self) -> Ints:
        return np.zeros(self.dim, dtype=np.int64)

    def encode(self, values: ArrayLike) -> Ints:
        """Nearest grid point, ties to even; `values` is [..., D]."""
        scaled = np.rint(np.asarray(values, dtype=np.float64) * self.scale)
        # NaN fails the comparison too, so one test catches NaN, infinity and overflow.
        fits = np.abs(scaled) < 2.0**63
        if not np.all(fits):
            place = np.argwhere(~fits)[0]
            j = int(place[-1])
            value = float(np.asarray(values, dtype=np.float64)[tuple(place)])
            if not np.isfinite(value):
                raise DataError(
                    f"{self.names[j]}: {value} cannot be summed. Fix: give finite numbers"
                )
            raise GridOverflow(self._overflow(j))
        return scaled.astype(np.int64)

    def decode(self, units: Ints) -> NDArray[np.float64]:
        """The float64 nearest to `units` · 2^-q; shape [..., D] is kept."""
        result: NDArray[np.float64] = units * self._step
        return result

    def add(self, a: Ints, b: Ints) -> Ints:
        """a + b, or GridOverflow. NumPy wraps int64 silently, so the signs are checked."""
        total = a + b
        # The sum has wrapped where it differs in sign from both of its terms.
        if np.bitwise_and(a ^ total, b ^ total).min() < 0:
            wrapped = ((a ^ total) & (b ^ total)) < 0
            raise GridOverflow(self._overflow(int(np.argwhere(wrapped)[0][-1])))
        return total

    def subtract(self, a: Ints, b: Ints) -> Ints:
        """a − b, or GridOverflow."""
        total = a - b
        if np.bitwise_and(a ^ b, a ^ total).min() < 0:
            wrapped = ((a ^ b) & (a ^ total)) < 0
            raise GridOverflow(self._overflow(int(np.argwhere(wrapped)[0][-1])))
        return total

    def total(self, records: Ints) -> Ints:
        """Sum over the first axis, or GridOverflow; exact for any order and any chunking."""
        if records.shape[0] == 0:
            return self.zeros()
        return self.units(exact_sum(records))

    def units(self, integers: Sequence[int]) -> Ints:
        """Unbounded integers as grid units, or GridOverflow."""
        for j, v in enumerate(integers):
            if abs(v) > LIMIT:
                raise GridOverflow(self._overflow(j))
        return np.array(integers, dtype=np.int64)

    def rescale(self, units: Sequence[int] | Ints, factor: Fraction) -> Ints:
        """round(units · factor), ties to even, in exact rational arithmetic.

        For temperatures, means and known noise: the records are summed exactly first and scaled
        once, so the result is a function of the set of records alone.
        """
        if factor == 1:
            return np.asarray(units, dtype=np.int64)
        return self.units([round(int(v) * factor) for v in units])

    def _overflow(self, j: int) -> str:
        largest = 2.0 ** (63 - self.bits[j])
        return (
            f"component {self.names[j]} leaves the grid: with {self.bits[j]} fractional bits it "
            f"holds at most ±{largest:.3g} over the whole network. Fix: a larger scale for the "
            "columns (scale=…), or for counts fewer bits (bits=…)"
        )
