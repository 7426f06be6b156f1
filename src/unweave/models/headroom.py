"""Whether the grid has room for a sum over a whole network, and which number of bits would give
it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from unweave.errors import UnweaveError
from unweave.grid import LIMIT
from unweave.models.base import Model
from unweave.models.scaling import Scaled

__all__ = ["enough_bits", "sum_problem"]


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
    return problem, _fix(model, bits)


def _fix(model: Model, bits: int | None) -> str:
    if isinstance(model, Scaled):
        return "a larger scale for its columns (--scale auto for `unweave init` proposes one)"
    return "fewer records" if bits is None else f"fewer bits (--set bits={bits} would do)"
