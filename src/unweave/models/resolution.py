"""What the grid does to columns: a warning where rounding leaves nothing of one.

Records are rounded to a step (`Model.resolution`). A column measured in units far above its values
rounds to zeros or to one constant; the posterior would then be exact for data that say nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from unweave.errors import RoundingWarning
from unweave.models.shards import Shard

if TYPE_CHECKING:
    from unweave.models.base import Model

__all__ = ["Extremes", "flattened", "rounding_problem", "warn_if_flattened"]

Extremes = Sequence[tuple[float, float]]  # the smallest and the largest value of every column


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
    if not any(model.resolution):
        return
    problem = rounding_problem(
        model,
        {
            shard.agent: list(zip(shard.rows.min(axis=0), shard.rows.max(axis=0), strict=True))
            for shard in shards
            if shard.n
        },
    )
    if problem is not None:
        warnings.warn(problem, RoundingWarning, stacklevel=stacklevel)


def rounding_problem(model: Model, agents: Mapping[str, Extremes]) -> str | None:
    """Every column that the grid flattens, and at which of the agents; None if there is none."""
    found: dict[tuple[str, str, float], list[str]] = {}
    for agent, extremes in agents.items():
        for column, step, (low, high) in zip(
            model.columns, model.resolution, extremes, strict=True
        ):
            becomes = flattened(float(low), float(high), step)
            if becomes is not None:
                found.setdefault((column, becomes, step), []).append(agent)
    if not found:
        return None
    parts = [
        f"every value of column {column!r} becomes {becomes} on the grid, whose step is "
        f"{step:.2g} ({_agents(names)})"
        for (column, becomes, step), names in found.items()
    ]
    return (
        f"{model.name}: {'; '.join(parts)}: measure it in smaller units, or use more bits than "
        f"{max(model.grid.bits)} (bits=…; --set bits=… for `unweave init`)"
    )


def _agents(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return f"agent {shown}" if len(names) == 1 else f"agents {shown}{', …' * (len(names) > 5)}"
