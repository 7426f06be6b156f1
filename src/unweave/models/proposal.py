"""Which `center` and `scale` a range of values suggests: powers of ten, so that no more than an
order of magnitude of the data becomes public."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from unweave.models.scaling import Scaled, decade

__all__ = ["finer", "proposed"]

Ranges = Mapping[str, tuple[float, float]]


def proposed(model: Scaled, ranges: Ranges) -> tuple[dict[str, float], dict[str, float]]:
    """(center, scale) by column: the scale is the power of ten at or below the width of the range
    (its size, where the model needs the column's zero), the center is the range's middle, rounded
    to tens of the scale."""
    centers, scales = {}, {}
    for name, (low, high) in ranges.items():
        size = max(abs(low), abs(high))
        width = high - low if model.movable(name) and high > low else size
        scales[name] = decade(width)
        if model.movable(name):
            ten = Decimal(repr(scales[name])) * 10
            middle = (Decimal(low) + Decimal(high)) / 2
            centers[name] = float(round(middle / ten) * ten)
    return centers, scales


def finer(scales: Mapping[str, float], decades: int) -> dict[str, float]:
    """Every scale smaller by so many powers of ten."""
    return {name: float(Decimal(repr(s)).scaleb(-decades)) for name, s in scales.items()}
