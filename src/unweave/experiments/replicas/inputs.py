"""Inputs of `simulate`: shards (shared by all replicas, or one set per replica) and `Forget`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.arguments import shown, whole_number
from unweave.errors import ConfigError, DataError, GridOverflow
from unweave.graph import Topology, as_topology, match
from unweave.grid import Ints
from unweave.manifest.privacy import Mode
from unweave.models import ConjugateModel, LossModel, Model, Shard
from unweave.models.resolution import check_shards

__all__ = ["Forget", "PerReplica", "factors", "read_shards", "summaries"]


Floats = NDArray[np.float64]
Shards = list[list[Shard]]  # [R or 1][K]

_PLAIN, _MASKED = ("subtract", "refine", "retrain"), ("round",)  # `Forget.how` by privacy


@dataclass(frozen=True, eq=False)
class PerReplica:
    """A separate data set for each replica: `data` is [R, K, N] or [R, K, N, C], with N records per
    agent. Bands over replicas then include the randomness of the data."""

    data: ArrayLike


@dataclass(frozen=True)
class Forget:
    """Forgetting after learning: `agents` are forgotten during `iterations` more iterations.

    "subtract": the token is only forwarded; a forgotten agent removes its factor when scheduled.
    "refine": as "subtract"; after all removals the other agents learn again.
    "retrain": the others start again from the prior, on the graph without the forgotten agents.
    "round": with privacy="masked", a new private round without their data; nothing is subtracted.
    By default "subtract", or "round".
    """

    agents: str | Sequence[str]
    how: str | None = None
    iterations: int = 100

    @classmethod
    def read(cls, value: Any) -> Forget | None:
        """Convert the argument of `simulate`: None, a name, names, a mapping, or `Forget`."""
        if value is None or isinstance(value, Forget):
            return value
        if isinstance(value, Mapping):
            try:
                return cls(**value)
            except TypeError as error:
                raise ConfigError(
                    f"forget: {error}. Fix: give agents, how and iterations"
                ) from None
        return cls(value)

    def __post_init__(self) -> None:
        names = [self.agents] if isinstance(self.agents, str) else self.agents
        if not isinstance(names, Iterable) or any(not isinstance(name, str) for name in names):
            raise ConfigError(
                f"forget: agents = {shown(self.agents)}. Fix: give the name of an agent, or a "
                "list of names"
            )
        if self.how not in (None, *_PLAIN, *_MASKED):
            raise ConfigError(
                f"forget: how = {self.how!r}. Fix: choose 'subtract', 'refine' or 'retrain'"
            )
        whole_number(self.iterations, "forget: iterations", 1)

    def under(self, privacy: Mode) -> Forget:
        """With the default of `how` in this mode; ConfigError if `how` is not possible in it."""
        possible = _MASKED if privacy == "masked" else _PLAIN
        if self.how is not None and self.how not in possible:
            raise ConfigError(
                f"forget: how = {self.how!r} and privacy = {privacy!r}: "
                + (
                    "no agent sees a factor, so forgetting is a new round. "
                    if privacy == "masked"
                    else "the paper's walk has no rounds. "
                )
                + f"Fix: how = {possible[0]!r}, or leave it out"
            )
        return replace(self, how=self.how or possible[0])

    @property
    def names(self) -> list[str]:
        return [self.agents] if isinstance(self.agents, str) else list(self.agents)

    def mask(self, topology: Topology) -> NDArray[np.bool_]:
        chosen = np.zeros(len(topology), dtype=bool)
        for name in self.names:
            chosen[topology.index(name)] = True
        if not chosen.any() or chosen.all():
            raise ConfigError(
                "forget names no agent, or all. Fix: name at least one, and leave at least one"
            )
        return chosen


def read_shards(model: Model, shards: Any, graph: Any, replicas: int) -> tuple[Topology, Shards]:
    """The graph, and validated shards [R or 1][K] in the order of its agents."""
    if isinstance(shards, PerReplica):
        try:
            data = np.asarray(shards.data, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(
                "data of every replica: not numbers. Fix: give an array of numbers"
            ) from None
        topology = as_topology(graph, data.shape[1] if data.ndim > 1 else 1)
        return topology, _per_replica(model, data, topology, replicas)
    topology, parts = match(graph, shards)
    row = [
        part if isinstance(part, Shard) else model.shard(part, name)
        for part, name in zip(parts, topology.agents, strict=True)
    ]
    check_shards(model, row)
    return topology, [row]


def _per_replica(model: Model, data: Floats, topology: Topology, replicas: int) -> Shards:
    columns = len(model.columns)
    rows = data[..., None] if data.ndim == 3 else data
    if rows.ndim != 4 or rows.shape[:2] != (replicas, len(topology)) or rows.shape[3] != columns:
        raise DataError(
            f"data of every replica has shape {data.shape}. Fix: give "
            f"({replicas}, {len(topology)}, records, {columns})"
        )
    # One validation for all replicas: errors count rows over all replicas together.
    checked = model.shard(rows.reshape(-1, columns), "all replicas").rows.reshape(rows.shape)
    return [
        [Shard(name, checked[r, k]) for k, name in enumerate(topology.agents)]
        for r in range(replicas)
    ]


def factors(model: ConjugateModel, shards: Shards) -> Ints:
    """Exact factors [R or 1, K, D]; raises if a sum could overflow along any path."""
    units = np.array([[model.factor(shard) for shard in row] for row in shards], dtype=np.int64)
    reach = np.abs(units.astype(np.float64)).sum(axis=1) + np.abs(model.eta0.astype(np.float64))
    if np.any(reach >= 2.0**62):
        j = int(np.argwhere(reach >= 2.0**62)[0][-1])
        raise GridOverflow(
            f"{model.grid.names[j]}: the sum over all agents could leave the grid with "
            f"{model.grid.bits[j]} fractional bits. Fix: a larger scale for the columns, or for "
            "counts fewer bits"
        )
    return units


def summaries(model: LossModel, shards: Shards) -> Floats:
    """Summaries [R or 1, K, ...] of a model whose summaries have equal shapes."""
    return np.array([[model.summary(shard) for shard in row] for row in shards])
