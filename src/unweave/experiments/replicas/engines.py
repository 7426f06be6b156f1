"""Engines learn and forget along given paths: two run kernels, `_General` runs any solver."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DomainError, SolverError
from unweave.experiments.replicas.inputs import Shards, factors, summaries
from unweave.experiments.replicas.result import Target
from unweave.graph import Topology
from unweave.grid import Ints
from unweave.models import ConjugateModel, Model
from unweave.models.beta_exponential import BetaExponential
from unweave.rng import Purpose, Stream, derive
from unweave.solvers import Context, Exact, NaturalGradient, Solver
from unweave.solvers.estimators import choose
from unweave.solvers.natural_gradient import DIVERGED, outside

__all__ = ["Engine", "EngineRun", "Phase", "choose_engine"]


Bools = NDArray[np.bool_]

# Work (visits times cost per visit) per additional thread: less work does not repay its start.
_WORK_PER_THREAD = 200_000


@dataclass(frozen=True, eq=False)
class Phase:
    """Consecutive iterations that start at the prior. Forgetting starts at column `learn`."""

    epoch: int
    path: NDArray[np.int32]  # [R, I]
    solving: Bools  # [R, I]: where an agent that is already included solves again
    learn: int
    refine: bool = False


@dataclass(frozen=True, eq=False)
class EngineRun:
    units: Ints  # [R, I, D]
    changed: Bools  # [R, I]
    shortened: Ints  # [R]
    outside: Bools  # [R, I]

    @classmethod
    def empty(cls, shape: tuple[int, ...], dim: int) -> EngineRun:
        return cls(
            np.empty((*shape, dim), dtype=np.int64),
            np.ones(shape, dtype=bool),
            np.zeros(shape[0], dtype=np.int64),
            np.zeros(shape, dtype=bool),
        )


class Engine(ABC):
    """Runs one model with one solver along paths."""

    @abstractmethod
    def run(
        self, graph: Topology, seeds: NDArray[np.uint64], phase: Phase, forgotten: Bools
    ) -> EngineRun: ...

    @abstractmethod
    def target(self, remaining: Bools) -> Ints | Target | None:
        """The exact posterior of the remaining agents' data, one per data set: [R or 1, 1]."""


def choose_engine(model: Model, solver: Solver, shards: Shards, kernels: bool) -> Engine:
    if kernels and isinstance(model, ConjugateModel) and isinstance(solver, Exact):
        return _Conjugate(model, shards)
    if kernels and isinstance(model, BetaExponential) and isinstance(solver, NaturalGradient):
        return _BetaExponential(model, solver, shards)
    return _General(model, solver, shards)


class _Conjugate(Engine):
    def __init__(self, model: ConjugateModel, shards: Shards) -> None:
        self.model = model
        self.factors = factors(model, shards)

    def run(
        self, graph: Topology, seeds: NDArray[np.uint64], phase: Phase, forgotten: Bools
    ) -> EngineRun:
        from unweave.experiments.replicas import kernels

        run = EngineRun.empty(phase.path.shape, self.model.grid.dim)
        mode = kernels.REFINE if phase.refine else kernels.SUBTRACT

        def part(rows: slice) -> None:
            kernels.conjugate(
                phase.path[rows],
                self.model.eta0,
                self.factors if len(self.factors) == 1 else self.factors[rows],
                forgotten,
                phase.learn,
                mode,
                run.units[rows],
                run.changed[rows],
            )

        _run_in_threads(part, len(seeds), phase.path.size // 10)
        _find_outside(self.model, graph, forgotten, run)
        return run

    def target(self, remaining: Bools) -> Ints:
        total: Ints = self.model.eta0 + self.factors[:, remaining].sum(axis=1)
        return total[:, None, :]


class _BetaExponential(Engine):
    def __init__(self, model: BetaExponential, solver: NaturalGradient, shards: Shards) -> None:
        self.model = model
        self.solver = solver
        self.estimator = choose(solver.estimator, model)
        self.data = summaries(model, shards)

    def run(
        self, graph: Topology, seeds: NDArray[np.uint64], phase: Phase, forgotten: Bools
    ) -> EngineRun:
        from unweave.experiments.replicas import beta_exact, beta_exponential, kernels
        from unweave.experiments.replicas.beta_gradients import ESTIMATORS

        model, solver = self.model, self.solver
        run = EngineRun.empty(phase.path.shape, 2)
        mode = kernels.REFINE if phase.refine else kernels.SUBTRACT

        # `learn_exact` is faster, but covers only learning with the exact gradient and fixed rho.
        only_learns_exactly = self.estimator.name == "exact" and phase.learn >= phase.path.shape[1]

        def part(rows: slice) -> None:
            if only_learns_exactly and solver.rho is not None:
                beta_exact.learn_exact(
                    phase.path[rows],
                    phase.solving[rows],
                    model.eta0,
                    self.data if len(self.data) == 1 else self.data[rows],
                    solver.rho,
                    solver.steps,
                    model.alpha,
                    model.grid.scale,
                    run.units[rows],
                    run.shortened[rows],
                )
                return
            beta_exponential.learn(
                seeds[rows],
                phase.epoch,
                1,
                phase.path[rows],
                phase.solving[rows],
                model.eta0,
                self.data if len(self.data) == 1 else self.data[rows],
                forgotten,
                phase.learn,
                mode,
                ESTIMATORS[self.estimator.name],
                0.0 if solver.rho is None else solver.rho,
                solver.steps,
                solver.samples,
                solver.c,
                model.alpha,
                model.grid.scale,
                run.units[rows],
                run.shortened[rows],
            )

        cost = 20 if self.estimator.noisy else 1
        _run_in_threads(part, len(seeds), phase.path.size * solver.steps * cost)
        failed = np.flatnonzero(run.shortened < 0)
        stopped = -1 - run.shortened[failed]
        for r, i in zip(failed, stopped, strict=True):
            run.outside[r, i:], run.shortened[r] = True, 0
        why = self._why(graph, phase, run, failed[0], stopped[0]) if failed.size else None
        _find_outside(model, graph, forgotten, run, why)
        return run

    def _why(self, graph: Topology, phase: Phase, run: EngineRun, r: int, i: int) -> str:
        """Why iteration i of replica r could not be solved."""
        eta = self.model.decode(run.units[r, i])
        margin = self.model.margin(eta, 2 if self.estimator.noisy else 1)
        why = DIVERGED if margin > 0.0 else outside(self.model, self.estimator, eta, margin)
        agent = graph.agents[phase.path[r, i]]
        return f"replica {r}, iteration {i + 1}, agent {agent!r}: {why}"

    def target(self, remaining: Bools) -> Target:
        return self.model.exact(self.model.combine(self.data[:, remaining])[:, None, :])


class _General(Engine):
    """Calls the solver at each visit; tests compare the kernels with this engine."""

    def __init__(self, model: Model, solver: Solver, shards: Shards) -> None:
        self.model = model
        self.solver = solver
        self.shards = shards

    def run(
        self, graph: Topology, seeds: NDArray[np.uint64], phase: Phase, forgotten: Bools
    ) -> EngineRun:
        run = EngineRun.empty(phase.path.shape, self.model.grid.dim)
        why = None
        for r, seed in enumerate(seeds.tolist()):
            shards = self.shards[r if len(self.shards) > 1 else 0]
            eta: Ints = self.model.eta0
            held: dict[int, Ints] = {}
            stopped = False
            for i, k in enumerate(phase.path[r].tolist()):
                forgetting = i >= phase.learn
                pending = forgetting and any(forgotten[j] for j in held)
                before = eta
                if forgetting and forgotten[k]:
                    if k in held:
                        eta = self.model.grid.subtract(eta, held.pop(k))
                elif (
                    not stopped
                    and (not forgetting or (phase.refine and not pending))
                    and (phase.solving[r, i] or k not in held)
                ):
                    cavity = self.model.grid.subtract(eta, held[k]) if k in held else eta
                    stream = Stream(derive(seed, phase.epoch, i + 1, Purpose.SOLVE))
                    try:
                        solution = self.solver.solve(
                            self.model, shards[k], cavity, held.get(k), Context(stream)
                        )
                    except SolverError as error:
                        stopped, run.outside[r, i:], run.shortened[r] = True, True, 0
                        why = why or f"replica {r}, iteration {i + 1}, {error}"
                    else:
                        run.shortened[r] += solution.info.get("shortened", 0)
                        held[k] = solution.factor
                        eta = self.model.grid.add(cavity, solution.factor)
                run.units[r, i] = eta
                run.changed[r, i] = not np.array_equal(before, eta)
        _find_outside(self.model, graph, forgotten, run, why)
        return run

    def target(self, remaining: Bools) -> Ints | Target | None:
        if isinstance(self.model, ConjugateModel):
            return _Conjugate(self.model, self.shards).target(remaining)
        if isinstance(self.model, BetaExponential):
            data = summaries(self.model, self.shards)[:, remaining]
            return self.model.exact(self.model.combine(data)[:, None, :])
        return None


def _find_outside(
    model: Model, graph: Topology, forgotten: Bools, run: EngineRun, why: str | None = None
) -> None:
    """Mark the iterations at which eta is outside the domain.

    The other factors were fitted while the forgotten factors were included, so the sum without the
    forgotten factors may leave the domain. Raises if every replica leaves the domain; `why`
    describes the first failed solve.
    """
    # Without forgetting, a replica that leaves the domain either fails at its next solve or is
    # outside at the last iteration, so the other replicas need no check.
    some = forgotten.any() | run.outside.any(axis=1) | ~model.inside(run.units[:, -1])
    rows = np.flatnonzero(some)
    run.outside[rows] |= ~model.inside(run.units[rows])
    if not run.outside.any(axis=1).all():
        return
    if not forgotten.any() or model.inside(run.units[:, -1]).any():
        raise SolverError(why or DIVERGED)
    names = ", ".join(graph.agents[k] for k in np.flatnonzero(forgotten))
    raise DomainError(
        f"taking out {names} leaves natural parameters outside the domain of {model.family.name} "
        f"in every replica: the other factors were fitted with it present. Fix: forget with "
        f"how='retrain'"
    )


def _run_in_threads(part: Callable[[slice], None], rows: int, work: int) -> None:
    """Run `part` over all rows, in threads if the work is large enough. Rows are independent."""
    from unweave.experiments.replicas.jit import COMPILED

    with np.errstate(over="ignore"):
        threads = min(len(os.sched_getaffinity(0)), 1 + work // _WORK_PER_THREAD, rows)
        if threads == 1 or not COMPILED:
            part(slice(0, rows))
            return
        # The first slice compiles the kernel; other threads would only wait for the compiler.
        cuts = np.linspace(0, rows, 4 * threads + 1).astype(int)
        slices = [slice(int(a), int(b)) for a, b in pairwise(cuts) if b > a]
        part(slices[0])
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(part, slices[1:]):
                pass
