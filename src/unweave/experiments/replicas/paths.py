"""Token paths of many replicas: agent indices [R, I], and the mask of visits that solve.

A path depends on the seed, the graph and the schedule, but not on the token's contents. So paths
are computed first, and learning follows them.
"""

from __future__ import annotations

from itertools import islice

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError
from unweave.graph import Topology, sweep_walk

__all__ = ["paths", "replica_seeds", "solving"]


Paths = NDArray[np.int32]
Bools = NDArray[np.bool_]
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
            for row, seed in zip(path, seeds.tolist(), strict=True):
                walk = sweep_walk(topology, int(row[0]), seed)
                row[:] = [k for k, _ in islice(walk, iterations)]
        else:
            raise ConfigError(
                f"schedule {schedule!r} cannot run replicas. Fix: choose 'metropolis' or 'sweep'"
            )
    return path


def solving(path: Paths, agents: int, schedule: str, solve: str) -> Bools:
    """The iterations [R, I] at which an agent that is already included solves again.

    `solve="visit"`: every visit, as in the paper. `"pass"`: the agent's first visit of each pass.
    """
    from unweave.experiments.replicas import kernels

    mask = np.ones(path.shape, dtype=bool)
    if solve == "pass":
        kernels.first_in_pass(path, agents, schedule == "sweep", mask)
    elif solve != "visit":
        raise ConfigError(f'solve = {solve!r}. Fix: choose "pass" or "visit"')
    return mask
