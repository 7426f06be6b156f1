"""Exact sums of record statistics, as unbounded integers.

Three kinds cover every conjugate model: whole numbers, real numbers rounded per record, and
products of rounded features. Each result is a function of the set of records: float64 is used only
where every partial sum is a whole number below 2^53, so that no order or blocking causes rounding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unweave.errors import GridOverflow
from unweave.grid import exact_sum
from unweave.lazy import special

__all__ = ["FEATURE_LIMIT", "count_sum", "gram_sum", "log_choose", "whole_sum"]

Floats = NDArray[np.float64]

# float64 represents every whole number below this limit.
_EXACT = 2.0**53

# Features of `gram_sum` are whole numbers below this.
FEATURE_LIMIT = 2.0**31


def count_sum(values: Floats) -> int:
    """Σ of whole numbers ≥ 0.

    The partial sums of non-negative numbers never exceed the total, so a total below 2^53 proves
    that none of them was rounded.
    """
    total = float(values.sum())
    if total < _EXACT:
        return int(total)
    return exact_sum(values.astype(np.int64)[:, None])[0]


def log_choose(n: Floats, k: Floats) -> Floats:
    """log of n!/(k! (n − k)!)."""
    value: Floats = -np.log1p(n) - special.betaln(n - k + 1, k + 1)
    return value


def whole_sum(values: Floats) -> int:
    """Σ of whole numbers of either sign; GridOverflow from 2^63 on."""
    if not float(np.abs(values).max(initial=0.0)) < 2.0**63:
        raise GridOverflow("a record is too large for the grid. Fix: fewer bits (bits=…)")
    # The same argument as in `count_sum`, on magnitudes.
    if float(np.abs(values).sum()) < _EXACT:
        return int(values.sum())
    return exact_sum(values.astype(np.int64)[:, None])[0]


def gram_sum(z: Floats) -> NDArray[np.object_]:
    """Zᵀ Z of whole-number features |z| < 2^31, as unbounded integers.

    BLAS on blocks of at most 2^53 / max|z|² rows is exact: every partial sum is a whole number
    below 2^53. Large features are split as high·2^16 + low, so that blocks stay long.
    """
    largest = float(np.abs(z).max(initial=0.0))
    if largest < 2.0**20:
        return _blocked(z, z, largest, largest)
    high = np.floor(z * 2.0**-16)
    low = z - high * 2.0**16
    top = float(np.abs(high).max(initial=0.0))
    cross = _blocked(high, low, top, 2.0**16)
    squares = _blocked(high, high, top, top), _blocked(low, low, 2.0**16, 2.0**16)
    total: NDArray[np.object_] = (squares[0] << 32) + ((cross + cross.T) << 16) + squares[1]
    return total


def _blocked(a: Floats, b: Floats, a_max: float, b_max: float) -> NDArray[np.object_]:
    rows = int(min(max(_EXACT / max(a_max * b_max, 1.0), 1.0), 2.0**40))
    total = np.zeros((a.shape[1], b.shape[1]), dtype=object)
    for start in range(0, len(a), rows):
        part = a[start : start + rows].T @ b[start : start + rows]
        total = total + part.astype(np.int64).astype(object)
    return total
