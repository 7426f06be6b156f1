"""Replicas in private rounds: each one is a Federation, since a round is keys, masks and laps, and
the protocol has their only rules. Measured: 20 to 26 ms per replica of ten agents."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError
from unweave.experiments.replicas.engines import EngineRun
from unweave.experiments.replicas.inputs import Forget, Shards
from unweave.federation import Federation
from unweave.federation.history import Step
from unweave.graph import Topology
from unweave.models import Model
from unweave.solvers import Solver

__all__ = ["run_masked"]

Paths = NDArray[np.int32]


def run_masked(
    model: Model,
    asked: Model,
    solver: Solver,
    shards: Shards,
    graph: Topology,
    schedule: str,
    seeds: NDArray[np.uint64],
    iterations: int,
    solve: str,
    forget: Forget | None,
) -> tuple[Paths, EngineRun]:
    """The paths and the published sums: eta_0 before the first complete round. At rest the token
    stays where it is parked. `model` is `asked` in the form that private rounds learn."""
    columns = iterations + (0 if forget is None else forget.iterations)
    path = np.empty((len(seeds), columns), dtype=np.int32)
    run = EngineRun.empty(path.shape, model.grid.dim)
    for r, seed in enumerate(seeds.tolist()):
        parts = shards[r if len(shards) > 1 else 0]
        one = Federation(
            asked,
            parts,
            graph,
            schedule,  # type: ignore[arg-type]  # checked there
            seed,
            solver=solver,
            solve=solve,  # type: ignore[arg-type]
            privacy="masked",
        ).learn(progress=False)
        steps = one.history[:iterations]
        if forget is not None:
            took = len(one.history)
            if took > iterations:
                raise ConfigError(
                    f"replica {r}: its private rounds took {took} iterations, and forgetting "
                    f"starts after {iterations}. Fix: raise iterations"
                )
            steps = _padded(steps, iterations)
            one.forget(forget.names, progress=False)
            steps += one.history[took : took + forget.iterations]
        steps = _padded(steps, columns)
        path[r] = [graph.index(step.agent) for step in steps]
        run.units[r] = [step.units for step in steps]
    before = np.concatenate(
        [np.broadcast_to(model.eta0, (len(seeds), 1, model.grid.dim)), run.units[:, :-1]], axis=1
    )
    run.changed[:] = (run.units != before).any(axis=2)
    return path, run


def _padded(steps: list[Step], columns: int) -> list[Step]:
    return steps + [steps[-1]] * (columns - len(steps))
