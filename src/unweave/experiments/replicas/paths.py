"""Where the tokens of many replicas go: paths [R, I] of agent indices.

A path depends on the seed, the graph and the schedule alone, never on what the token carries. So it
is made first, and learning runs along it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError
from unweave.graph import Topology, sweep_next, sweep_order
from unweave.persistent import NOBODY, Stack

__all__ = ["paths", "replica_seeds"]


Paths = NDArray[np.int32]
Words = NDArray[np.uint64]


def replica_seeds(seed: int, replicas: int) -> Words:
    """The seed of replica r: derive(seed, Purpose.REPLICA, r)."""
    from unweave.experiments.replicas import kernels

    seeds = np.empty(replicas, dtype=np.uint64)
    with np.errstate(over="ignore"):
        kernels.seed_replicas(np.uint64(seed % 2**64), seeds)
    return seeds


def paths(
    topology: Topology,
    schedule: str,
    seeds: Words,
    iterations: int,
    start: int | None = None,
    epoch: int = 1,
) -> Paths:
    """The agent at every iteration of every replica; column 0 is iteration (hop) 1."""
    from unweave.experiments.replicas import kernels

    path = np.empty((len(seeds), iterations), dtype=np.int32)
    with np.errstate(over="ignore"):
        if start is None:
            kernels.genesis(seeds, epoch, len(topology), path)
        else:
            path[:, 0] = start
        if schedule == "metropolis":
            kernels.walk(seeds, epoch, 1, topology.indptr, topology.indices, path)
        elif schedule == "sweep":
            for r, seed in enumerate(seeds.tolist()):
                _sweep(topology, seed, path[r])
        else:
            raise ConfigError(
                f"schedule {schedule!r} cannot run replicas: choose 'metropolis' or 'sweep'"
            )
    return path


def _sweep(topology: Topology, seed: int, path: NDArray[np.int32]) -> None:
    """Depth-first passes, one after the other. A pass ends at its root, and the next begins with
    one more iteration there."""
    order: dict[int, tuple[int, ...]] = {}
    k, stack, visited = int(path[0]), Stack(), NOBODY
    for i in range(1, len(path)):
        if k not in order:
            order[k] = sweep_order(topology, k, seed)
        step = sweep_next(topology, k, stack, visited, order[k])
        k, stack = step.next, step.stack
        visited = NOBODY if step.done else step.visited
        path[i] = k
