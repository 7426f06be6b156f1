"""Log-likelihoods of records at atoms, summed exactly on the integer grid.

Each record's value is rounded to the grid by itself, so that a sum is a function of the set of
records. Floating point must not bring the batch back in: a vectorised logarithm may round the last
elements of an array differently from the others. Blocks therefore have one fixed shape, padded by
repeating a record. On one machine with one build of the libraries the value of a record at an atom
is then the same in every block; on another machine the last bits may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DataError
from unweave.families.atoms.parameters import Space

__all__ = ["BITS", "CLIP", "Likelihood", "Named", "evaluate", "log_likelihoods"]

Floats = NDArray[np.float64]
Named = Mapping[str, Floats]
Likelihood = Callable[[Named, Named], Floats]
"""log p(record | θ): parameters by name [1, M] and columns by name [B, 1] → [B, M]."""

# More bits would keep differences of the last bit of a float64 logarithm.
BITS = 24
# One record takes at most this many nats from an atom. A record that is impossible at an atom
# (log 0) then still has a sum: 2^14 · 2^24 units, so that 2^25 such records fit 64 bits.
CLIP = 2.0**14

_CELLS = 1 << 16  # of one block: its temporary arrays stay in the cache
_LEAST_ROWS = 8


def evaluate(
    likelihood: Likelihood,
    space: Space,
    columns: Sequence[str],
    u: Floats,
    rows: Floats,
    bits: int = BITS,
) -> list[int]:
    """Σ_n rint(2^bits · log p(z_n | θ_m)) over rows [N, C] for atoms u [M, d], as integers [M]."""
    totals = np.zeros(len(u), dtype=np.int64)
    for values in _blocks(likelihood, space, columns, u, rows):
        units = np.rint(np.maximum(values, -CLIP) * 2.0**bits).astype(np.int64)
        # Rows come in chunks of at most 2^18, of at most 2^38 units each: no sum can wrap.
        totals += units.sum(axis=0)
    return [int(t) for t in totals]


def log_likelihoods(
    likelihood: Likelihood, space: Space, columns: Sequence[str], u: Floats, rows: Floats
) -> Floats:
    """log p(z_n | θ_m) [N, M], not rounded and not clipped."""
    parts = [*_blocks(likelihood, space, columns, u, rows)]
    return np.concatenate(parts) if parts else np.empty((0, len(u)))


def _blocks(
    likelihood: Likelihood,
    space: Space,
    columns: Sequence[str],
    u: Floats,
    rows: Floats,
) -> Iterator[Floats]:
    size = max(_LEAST_ROWS, _CELLS // len(u))
    # The atoms are padded, too: their number need not fill the processor's vectors.
    padded = np.concatenate([u, np.repeat(u[-1:], -len(u) % 64, axis=0)])
    theta = space.outward(padded)
    named = {name: theta[None, :, j] for j, name in enumerate(space.names)}
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        n = len(block)
        if n < size:
            block = np.concatenate([block, np.repeat(block[:1], size - n, axis=0)])
        record = {name: np.ascontiguousarray(block[:, j : j + 1]) for j, name in enumerate(columns)}
        with np.errstate(all="ignore"):  # what is not a number is explained below
            values = np.asarray(likelihood(named, record), dtype=np.float64)
        if values.shape != (size, len(padded)):
            raise DataError(
                f"the log-likelihood gives shape {values.shape} for {size} records and "
                f"{len(padded)} atoms. Fix: return one number for each pair, [{size}, "
                f"{len(padded)}]"
            )
        part = values[:n, : len(u)]
        if not (part < CLIP).all():  # NaN fails, too
            row = start + int(np.argwhere(~(part < CLIP))[0][0])
            raise DataError(
                f"row {row}: the log-likelihood is not a number, or above {CLIP:.0f}, at some "
                "atom. Fix: make it finite, or minus infinity, for all parameters of the prior"
            )
        yield part
