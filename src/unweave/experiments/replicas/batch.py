"""`simulate` runs thousands of replicas of one federation on arrays.

Replica r has the seed derive(seed, Purpose.REPLICA, r) and equals a Federation with that seed: bit
for bit for conjugate models, to 1e-12 for the others. Paths are computed first. Kernels (compiled
where numba is installed) then learn and forget along the paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast, get_args

import numpy as np
from numpy.typing import NDArray

from unweave.arguments import seed_number, shown, whole_number
from unweave.errors import ConfigError
from unweave.experiments.replicas.engines import Phase, choose_engine
from unweave.experiments.replicas.inputs import Forget, read_shards
from unweave.experiments.replicas.paths import paths, replica_seeds, solving
from unweave.experiments.replicas.result import Replicas
from unweave.graph import Topology
from unweave.grid import Ints
from unweave.manifest.privacy import Mode
from unweave.models import Model, as_model
from unweave.solvers import NaturalGradient, Solver, as_solver, in_rounds

__all__ = ["simulate"]


_Array = TypeVar("_Array", bound=NDArray[Any])


def simulate(
    model: Model | str,
    shards: Any,
    graph: Topology | str | Iterable[tuple[Any, Any]],
    schedule: str = "sweep",
    *,
    iterations: int = 100,
    replicas: int = 1000,
    seed: int = 0,
    start: str | int | None = None,
    solver: Solver | str | None = None,
    estimator: str | None = None,
    rho: float | None = None,
    steps: int = 5,
    samples: int = 30,
    c: float = 0.0,
    solve: str = "pass",
    forget: Forget | Mapping[str, Any] | str | Sequence[str] | None = None,
    kernels: bool = True,
    privacy: Mode = "plain",
) -> Replicas:
    """Run `replicas` independent federations and record every iteration.

    `model` and `graph` are as for `Federation`. `shards` is one data set per agent (a
    sequence in the graph's order, or a mapping by name), shared by all replicas, or
    `PerReplica(array)`. For a model that is not conjugate `estimator`, `rho`, `steps` (L),
    `samples` (S) and `c` make its `NaturalGradient`, unless `solver` is given; `solve="pass"` lets
    an agent solve once per pass, `"visit"` at every visit. `forget` (an agent's name, several, or
    `Forget`) adds iterations in which agents are forgotten.
    Replicas that leave the domain are kept and marked `outside`; if all of them do, an error is
    raised. `kernels=False` calls the solver at each visit, which is slow.

    `privacy="masked"` runs every replica in private rounds, as a Federation does: the sum is the
    prior until the first round is complete and attested, and the token then stays parked. It needs
    a conjugate model, atoms, or a GLM with its own solver. `forget` is then a new round.
    """
    if privacy not in get_args(Mode):
        raise ConfigError(f'privacy = {shown(privacy)}. Fix: choose "plain" or "masked"')
    iterations = whole_number(iterations, "iterations", 1)
    replicas = whole_number(replicas, "replicas", 1)
    model, forget = as_model(model), Forget.read(forget)
    if forget is not None:
        forget = forget.under(privacy)
    walks = privacy == "plain"
    if solver is None and not model.conjugate and (walks or estimator is not None or rho):
        solver = NaturalGradient(estimator, rho=rho, steps=steps, samples=samples, c=c)
    elif estimator is not None or rho is not None:
        raise ConfigError(
            "estimator and rho belong to the default solver of a model that is not conjugate. Fix: "
            f"leave them out for {'a solver of your own' if solver else model.name}"
        )
    solver = as_solver(solver, model)
    seeds = replica_seeds(seed_number(seed), replicas)
    graph, data = read_shards(model, shards, graph, replicas)
    first = None if start is None else graph.index(start)
    if not walks and first is not None:
        raise ConfigError(
            'start and privacy = "masked": the start of a private round follows from the seed. '
            "Fix: leave it out"
        )
    asked, model = model, model if walks else in_rounds(model, solver, len(graph))
    engine = choose_engine(model, solver, data, kernels)
    forgotten = np.zeros(len(graph), dtype=bool) if forget is None else forget.mask(graph)
    if walks:
        phases = _phases(graph, schedule, seeds, iterations, first, solve, forget, forgotten)
        found = [phase.path for phase in phases]
        runs = [engine.run(graph, seeds, phase, forgotten) for phase in phases]
    else:
        from unweave.experiments.replicas.masked import run_masked  # slow to import

        path, run = run_masked(
            model, asked, solver, data, graph, schedule, seeds, iterations, solve, forget
        )
        found, runs = [path], [run]
    return Replicas(
        model=model,
        topology=graph,
        seeds=seeds,
        path=_joined(found),
        units=_joined([run.units for run in runs]),
        changed=_joined([run.changed for run in runs]),
        shortened=cast(Ints, sum(run.shortened for run in runs)),
        outside=_joined([run.outside for run in runs]),
        find_target=lambda: engine.target(~forgotten),
        settings={
            "model": model.name,
            **model.settings(),
            "schedule": schedule,
            "iterations": iterations,
            "replicas": replicas,
            "seed": seed,
            "privacy": privacy,
            "solve": solve,
            "solver": repr(solver),
            "forget": None if forget is None else vars(forget),
        },
    )


def _phases(
    graph: Topology,
    schedule: str,
    seeds: NDArray[np.uint64],
    iterations: int,
    first: int | None,
    solve: str,
    forget: Forget | None,
    forgotten: NDArray[np.bool_],
) -> list[Phase]:
    """Learning and forgetting along the walks of the replicas; retraining is a walk of its own."""
    forget_iterations = 0 if forget is None or forget.how == "retrain" else forget.iterations
    path = paths(graph, schedule, seeds, iterations + forget_iterations, first)
    mask = solving(path, len(graph), schedule, solve)
    refine = forget is not None and forget.how == "refine"
    phases = [Phase(1, path, mask, iterations, refine)]
    if forget is not None and forget.how == "retrain":
        remaining = graph.without(np.flatnonzero(forgotten))
        path = paths(remaining, schedule, seeds, forget.iterations, epoch=2)
        mask = solving(path, len(remaining), schedule, solve)
        index = np.flatnonzero(~forgotten).astype(np.int32)
        phases.append(Phase(2, index[path], mask, forget.iterations))
    return phases


def _joined(parts: list[_Array]) -> _Array:
    """Join the phases along the iterations; a single phase is not copied."""
    return parts[0] if len(parts) == 1 else cast(_Array, np.concatenate(parts, axis=1))
