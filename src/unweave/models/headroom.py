"""Whether the grid has room for records and for their sum over a whole network, and which number
of bits would give it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from unweave.errors import GridOverflow, UnweaveError
from unweave.grid import LIMIT
from unweave.models.base import ConjugateModel, Model
from unweave.models.resolution import Extremes

__all__ = ["bits_for_records", "enough_bits", "fewer_bits", "sum_problem"]


def enough_bits(model: Model, fits: Callable[[Model], bool]) -> int | None:
    """The largest number of bits, below the model's, with which it `fits`; None: other units."""
    for bits in range(max(model.grid.bits) - 1, -1, -1):
        try:
            candidate = replace(model, bits=bits)
        except UnweaveError:  # the prior would not survive so few
            continue
        if fits(candidate):
            return bits
    return None


def bits_for_records(model: ConjugateModel, extremes: Extremes) -> int | None:
    """How many bits leave room for single records as large as these."""
    rows = np.array(extremes, dtype=np.float64).T

    def fits(candidate: Model) -> bool:
        assert isinstance(candidate, ConjugateModel)
        try:
            candidate.sums(rows)
        except GridOverflow:
            return False
        return True

    return enough_bits(model, fits)


def sum_problem(model: Model, units: Sequence[int], whose: str) -> tuple[str, str] | None:
    """Problem and fix if the prior and this sum of factors (in units of the grid, unbounded) leave
    the grid."""
    total = [int(a) + int(b) for a, b in zip(model.eta0, units, strict=True)]
    j = max(range(len(total)), key=lambda i: abs(total[i]))
    if abs(total[j]) <= LIMIT:
        return None
    values = [Fraction(t, 2**q) for t, q in zip(total, model.grid.bits, strict=True)]

    def fits(candidate: Model) -> bool:
        """With as much room again, for records that are still to come."""
        pairs = zip(values, candidate.grid.bits, strict=True)
        return all(2 * abs(value) * 2**q <= LIMIT for value, q in pairs)

    bits = enough_bits(model, fits)
    q = model.grid.bits[j]
    problem = (
        f"the sum over {whose} leaves the grid of {model.name}: {model.grid.names[j]} is "
        f"{float(abs(values[j])):.3g}, {abs(total[j]) / LIMIT:.3g} times what fits with {q} "
        f"fractional bits (±{2.0 ** (63 - q):.3g} over the whole network)"
    )
    return problem, fewer_bits(bits)


def fewer_bits(bits: int | None) -> str:
    """The fix, for people."""
    units = "measure the data in units with smaller numbers (standardise them)"
    if bits is None:
        return units
    return f"{units}, or make the network with fewer bits (--set bits={bits} would do)"
