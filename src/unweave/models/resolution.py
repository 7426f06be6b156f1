"""What the grid does to columns: a warning where rounding leaves nothing of one.

Records are rounded to a step (`Model.resolution`). A column measured in units far above its values
rounds to zeros or to one constant; the posterior would then be exact for data that say nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from unweave.errors import RoundingWarning
from unweave.models.shards import Shard

if TYPE_CHECKING:
    from unweave.models.base import Model

__all__ = ["flattened", "warn_if_flattened"]


def flattened(low: float, high: float, step: float) -> str | None:
    """What values from `low` to `high` become, if rounding to `step` leaves no difference in them.

    Rounding keeps the order, so the smallest and the largest value speak for all.
    """
    if not step or np.rint(low / step) != np.rint(high / step):
        return None
    if np.rint(low / step) == 0.0:
        return "0" if low or high else None
    return "one constant" if low != high else None


def warn_if_flattened(model: Model, shards: Iterable[Shard], stacklevel: int = 3) -> None:
    """One RoundingWarning that names every column the grid flattens, and at which agents."""
    steps = model.resolution
    if not any(steps):
        return
    found: dict[tuple[str, str, float], list[str]] = {}
    for shard in shards:
        if not shard.n:
            continue
        low, high = shard.rows.min(axis=0), shard.rows.max(axis=0)
        for j, (column, step) in enumerate(zip(model.columns, steps, strict=True)):
            becomes = flattened(float(low[j]), float(high[j]), step)
            if becomes is not None:
                found.setdefault((column, becomes, step), []).append(shard.agent)
    if found:
        parts = [
            f"every value of column {column!r} becomes {becomes} on the grid, whose step is "
            f"{step:.2g} ({_agents(agents)})"
            for (column, becomes, step), agents in found.items()
        ]
        warnings.warn(
            f"{model.name}: {'; '.join(parts)}: measure it in smaller units, or use more bits "
            f"than {max(model.grid.bits)} (bits=…)",
            RoundingWarning,
            stacklevel=stacklevel,
        )


def _agents(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return f"agent {shown}" if len(names) == 1 else f"agents {shown}{', …' * (len(names) > 5)}"
