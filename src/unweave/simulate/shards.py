"""The records of a rehearsal: of a CSV file, or drawn so that the model accepts them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unweave.draws import Purpose, derive
from unweave.errors import ConfigError, DataError
from unweave.models import Model, Shard
from unweave.models.columns import Column

__all__ = ["draw_shards", "read_csv"]

_ROWS = 100  # of synthetic data, per agent


def draw_shards(model: Model, agents: Sequence[str], seed: int) -> list[Shard]:
    """Synthetic data for a network that names none."""
    return [_draw(model, name, derive(seed, Purpose.PARTITION, k)) for k, name in enumerate(agents)]


def read_csv(path: Path, columns: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """The model's columns of a CSV file with a header."""
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    found = set(rows[0]) if rows else set(columns)
    absent = [column for column in columns if column not in found]
    if absent:
        raise DataError(f"{path}: no column {absent[0]!r}: the model needs {', '.join(columns)}")
    try:
        return {c: np.array([float(row[c]) for row in rows]) for c in columns}
    except (TypeError, ValueError):
        raise DataError(f"{path}: a value is not a number: every field must be one") from None


def _draw(model: Model, agent: str, key: int) -> Shard:
    """Records that the model accepts: within its columns' bounds and its rules between columns."""
    rng = np.random.default_rng(key)
    rows = np.empty((0, len(model.schema)))
    for _ in range(200):
        drawn = np.stack([_draw_column(column, rng) for column in model.schema], axis=1)
        good = [r for r in range(len(drawn)) if model.row_problem(drawn[r : r + 1]) is None]
        rows = np.concatenate([rows, drawn[good]])[:_ROWS]
        if len(rows) == _ROWS:
            return model.shard({c: rows[:, j] for j, c in enumerate(model.columns)}, agent)
    raise ConfigError(
        f'no synthetic data for {model.name}: give every agent data = "file.csv" in the manifest'
    )


def _draw_column(column: Column, rng: np.random.Generator) -> NDArray[np.float64]:
    low, high = column.low, column.high
    if column.whole:
        first = int(low) + column.strict if np.isfinite(low) else 0
        if np.isfinite(high) and high - first < 1000:
            return rng.integers(first, int(high) + 1, _ROWS).astype(float)
        return first + rng.poisson(3.0, _ROWS).astype(float)
    if np.isfinite(low) and np.isfinite(high):
        return low + (high - low) * (0.05 + 0.9 * rng.random(_ROWS))
    if np.isfinite(low):
        return low + 0.05 + rng.gamma(2.0, 1.0, _ROWS)
    return rng.normal(size=_ROWS)
