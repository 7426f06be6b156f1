"""What replicas learn from: shards shared by all replicas, or data drawn anew for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import ConfigError, DataError, GridOverflow
from unweave.graph import Topology
from unweave.grid import Ints
from unweave.models import ConjugateModel, LossModel, Model, Shard

__all__ = ["Forget", "PerReplica", "factors", "read_shards", "summaries"]

Floats = NDArray[np.float64]
Shards = list[list[Shard]]  # [R or 1][K]


@dataclass(frozen=True, eq=False)
class PerReplica:
    """Data of its own for every replica: `data` is [R, K, N] or [R, K, N, C], as many records for
    every agent. Bands over replicas then include the randomness of the data."""

    data: ArrayLike


@dataclass(frozen=True)
class Forget:
    """What happens after learning: `agents` are to be forgotten, over `iterations` more.

    "subtract": the token is only forwarded; a forgotten agent removes its factor when scheduled.
    "refine": the same, and once all are removed the others learn on.
    "retrain": the others start again from the prior, on the graph without the forgotten agents.
    """

    agents: str | Sequence[str]
    how: str = "subtract"
    iterations: int = 100

    def __post_init__(self) -> None:
        if self.how not in ("subtract", "refine", "retrain"):
            raise ConfigError(
                f"forget: how = {self.how!r}: choose 'subtract', 'refine' or 'retrain'"
            )
        if self.iterations < 1:
            raise ConfigError(f"forget: iterations = {self.iterations}: at least 1")

    def mask(self, topology: Topology) -> NDArray[np.bool_]:
        names = [self.agents] if isinstance(self.agents, str) else list(self.agents)
        chosen = np.zeros(len(topology), dtype=bool)
        for name in names:
            chosen[topology.index(name)] = True
        if not chosen.any() or chosen.all():
            raise ConfigError("forget: name at least one agent, and leave at least one")
        return chosen


def read_shards(model: Model, shards: Any, topology: Topology, replicas: int) -> Shards:
    """Validated shards [R or 1][K] in the order of the graph's agents."""
    count = len(topology)
    if isinstance(shards, PerReplica):
        return _per_replica(model, np.asarray(shards.data, dtype=np.float64), topology, replicas)
    if isinstance(shards, Mapping):
        unknown = [name for name in shards if name not in topology.agents]
        missing = [name for name in topology.agents if name not in shards]
        if unknown or missing:
            raise DataError(
                f"shards and graph name different agents: no data for {missing}, "
                f"no place in the graph for {unknown}"
            )
        parts = [shards[name] for name in topology.agents]
    else:
        parts = list(shards)
        if len(parts) != count:
            raise DataError(
                f"{len(parts)} shards for {count} agents: give one per agent, in their order"
            )
    return [
        [
            part if isinstance(part, Shard) else model.shard(part, name)
            for part, name in zip(parts, topology.agents, strict=True)
        ]
    ]


def _per_replica(model: Model, data: Floats, topology: Topology, replicas: int) -> Shards:
    columns = len(model.columns)
    rows = data[..., None] if data.ndim == 3 else data
    if rows.ndim != 4 or rows.shape[:2] != (replicas, len(topology)) or rows.shape[3] != columns:
        raise DataError(
            f"data of every replica has shape {data.shape}: expected "
            f"({replicas}, {len(topology)}, records, {columns})"
        )
    # One validation for everything; a bad row is then named within all rows together.
    checked = model.shard(rows.reshape(-1, columns), "all replicas").rows.reshape(rows.shape)
    return [
        [Shard(name, checked[r, k]) for k, name in enumerate(topology.agents)]
        for r in range(replicas)
    ]


def factors(model: ConjugateModel, shards: Shards) -> Ints:
    """Exact factors [R or 1, K, D]; refuses what could overflow along any path."""
    units = np.array([[model.factor(shard) for shard in row] for row in shards], dtype=np.int64)
    reach = np.abs(units.astype(np.float64)).sum(axis=1) + np.abs(model.eta0.astype(np.float64))
    if np.any(reach >= 2.0**62):
        j = int(np.argwhere(reach >= 2.0**62)[0][-1])
        raise GridOverflow(
            f"{model.grid.names[j]}: the sum over all agents could leave the grid with "
            f"{model.grid.bits[j]} fractional bits; use fewer bits or standardise the data"
        )
    return units


def summaries(model: LossModel, shards: Shards) -> Floats:
    """Summaries [R or 1, K, ...] of models whose summaries all have one shape."""
    return np.array([[model.summary(shard) for shard in row] for row in shards])
