"""One erasure by each method: how far it ends from the optimum of the remaining data, at what cost.

The reference is a network that has never seen the erased data, learned to a much smaller tolerance.
`subtract` takes the factor out; `refine` then lets the remaining agents solve again from there;
`retrain` starts from the prior. Their posteriors are compared with the reference in both directions
of KL. A conjugate model, or one of atoms, has one method, `exact`: it ends at the reference, bit
for bit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import SolverError
from unweave.experiments.evaluation.scores import log_density, positive, response
from unweave.federation import Federation
from unweave.graph import Topology
from unweave.grid import Ints
from unweave.models import Model, Shard
from unweave.models.fitted.calibration import CalibrationBin, calibration_curve, calibration_error
from unweave.models.fitted.posterior import Posterior
from unweave.node.wire.codec import encode
from unweave.protocol.messages import Pass
from unweave.solvers import Solver, as_solver

__all__ = ["Deletion", "MethodScore", "Trial", "compare", "deletions", "proper"]

Floats = NDArray[np.float64]

_REFERENCE = 1e-10  # the tolerance to which the reference is learned


@dataclass(frozen=True)
class Trial:
    """A model, its data over a graph, and records on which predictions are compared."""

    model: Model
    shards: Sequence[Shard]
    graph: Topology
    solver: Solver | str | None = None
    seed: int = 0
    tol: float = 1e-4
    test: Floats | None = None

    @property
    def exact(self) -> bool:
        """Whether an erasure leaves nothing to refine."""
        return self.model.conjugate or self.model.settles

    def start(self, shards: Sequence[Shard] | None = None) -> tuple[Federation, _Counted]:
        """A network that has learned nothing yet, and its solver. It never retrains by itself."""
        solver = _Counted(as_solver(self.solver, self.model))
        # As shards: their texts are coded already, and an agent without records passes the token.
        parts = {shard.agent: shard for shard in (self.shards if shards is None else shards)}
        federation = Federation(
            self.model, parts, self.graph, seed=self.seed, solver=solver, retrain_above=np.inf
        )
        return federation, solver

    def subtract(self, federation: Federation, **erasure: Any) -> bool:
        """Forget without retraining; False: a sum left the domain, where nothing can be refined."""
        try:
            federation.forget(**erasure, method="subtract", progress=False)
        except SolverError:
            return False
        return bool(self.model.inside(federation.units))


@dataclass(frozen=True)
class MethodScore:
    """The result of one method. The scores are None without test records."""

    method: str
    kl_to_reference: float | None  # KL(q ‖ reference); None: q is no proper posterior
    kl_from_reference: float | None  # KL(reference ‖ q)
    grid_change: int  # the largest difference from the reference, in units of the grid
    nll: float | None  # mean −log p of the test records
    ece: float | None  # of a binary response
    calibration: list[CalibrationBin]  # its bins
    prediction_change: float | None  # largest |Δp| (binary) or |Δ log p| from the reference
    visits: int  # calls of the solver
    hops: int
    bytes: int  # of the tokens that were sent
    seconds: float  # CPU

    def row(self) -> dict[str, Any]:
        return {**asdict(self), "calibration": [one._asdict() for one in self.calibration]}


@dataclass(frozen=True)
class Deletion:
    """The state after one of many erasures in a row: KL(q ‖ reference) by method."""

    erased: int  # records so far
    subtracted: float | None  # every factor was only subtracted
    refined: float | None  # the network was refined after each erasure
    hops: int  # of refining so far

    def row(self) -> dict[str, Any]:
        return asdict(self)


class _Counted(Solver):
    """A solver that counts its calls."""

    def __init__(self, inner: Solver) -> None:
        self.inner, self.calls = inner, 0

    def check(self, model: Model) -> None:
        self.inner.check(model)

    def solve(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.inner.solve(*args, **kwargs)


@dataclass
class _Cost:
    visits: int = 0
    hops: int = 0
    bytes: int = 0
    seconds: float = 0.0


@contextmanager
def _counted(federation: Federation, solver: _Counted, cost: _Cost) -> Iterator[None]:
    """Add what happens inside to `cost`."""
    calls, hops, began = solver.calls, len(federation.history), time.process_time()
    yield
    cost.seconds += time.process_time() - began
    cost.visits += solver.calls - calls
    cost.hops += (new := len(federation.history) - hops)
    token = federation.token
    assert token is not None
    cost.bytes += new * len(encode(Pass(token), federation.terms))


def compare(
    case: Trial, agents: Sequence[str] = (), records: Mapping[str, ArrayLike] | None = None
) -> list[MethodScore]:
    """Subtract, refine and retrain (or, if the model is exact, exact and retrain) for one
    erasure."""
    erasure: dict[str, Any] = {"agents": agents, "records": records}
    retrained, solver = case.start()
    again = _Cost()
    with _counted(retrained, solver, again):
        retrained.forget(**erasure, progress=False)
        retrained.learn(tol=case.tol, progress=False)
    from_zero = retrained.units
    reference = retrained.learn(tol=_REFERENCE, progress=False).posterior

    learned, solver = case.start()
    learned.learn(tol=case.tol, progress=False)
    cost = _Cost()
    with _counted(learned, solver, cost):
        inside = case.subtract(learned, **erasure)
    if case.exact:
        found = [("exact", learned.units, cost)]
    else:
        refining = _Cost(**asdict(cost))
        subtracted = learned.units
        if inside:
            with _counted(learned, solver, refining):
                learned.refine(tol=case.tol, progress=False)
        found = [("subtract", subtracted, cost), ("refine", learned.units, refining)]
    found.append(("retrain", from_zero, again))
    return [_method(case, name, units, reference, spent) for name, units, spent in found]


def _method(case: Trial, name: str, units: Ints, reference: Posterior, cost: _Cost) -> MethodScore:
    q = proper(case.model, units)
    nll = change = None
    curve: list[CalibrationBin] = []
    if q is not None and case.test is not None and len(case.test):
        density = log_density(q, case.test)
        nll = -float(density.mean())
        p, wanted = positive(q, case.test), positive(reference, case.test)
        if p is not None and wanted is not None:
            place = response(case.model)
            assert place is not None
            curve = calibration_curve(p, case.test[:, place])
            change = float(np.max(np.abs(p - wanted)))
        else:
            change = float(np.max(np.abs(density - log_density(reference, case.test))))
    return MethodScore(
        method=name,
        kl_to_reference=None if q is None else q.kl(reference),
        kl_from_reference=None if q is None else reference.kl(q),
        grid_change=int(np.max(np.abs(units - reference.units))),
        nll=nll,
        ece=calibration_error(curve) if curve else None,
        calibration=curve,
        prediction_change=change,
        **asdict(cost),
    )


def deletions(case: Trial, count: int) -> list[Deletion]:
    """`count` erasures of one random record each, refined after each one, and subtracted only."""
    rng = np.random.default_rng(case.seed)
    places = [(shard.agent, row) for shard in case.shards for row in range(shard.n)]
    chosen = [places[i] for i in rng.permutation(len(places))[:count]]
    refined, solver = case.start()
    refined.learn(tol=case.tol, progress=False)
    subtracted, _ = case.start()
    subtracted.learn(tol=case.tol, progress=False)
    spent, found = _Cost(), []
    for n, (agent, row) in enumerate(chosen, 1):
        one = {agent: [row]}
        case.subtract(subtracted, records=one)
        with _counted(refined, solver, spent):
            if case.subtract(refined, records=one):
                refined.refine(tol=case.tol, progress=False)
        never, _ = case.start()
        never.forget(records=_by_agent(chosen[:n]), progress=False)
        reference = never.learn(tol=_REFERENCE, progress=False).posterior
        first, second = (
            None if (q := proper(case.model, net.units)) is None else q.kl(reference)
            for net in (subtracted, refined)
        )
        found.append(Deletion(n, first, second, spent.hops))
    return found


def _by_agent(places: Sequence[tuple[str, int]]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for agent, row in places:
        rows.setdefault(agent, []).append(row)
    return rows


def proper(model: Model, units: Ints) -> Posterior | None:
    """The posterior at `units`; None outside the domain, where a subtraction may end."""
    return model.posterior(units) if model.inside(units) else None
