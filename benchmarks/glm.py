"""One visit of logistic regression, in memory."""

from __future__ import annotations

import numpy as np

from benchmarks.harness import benchmark, cpu
from unweave.models import LogisticRegression
from unweave.protocol.events import Solve
from unweave.solvers import default_solver
from unweave.solvers.worker import ModelWorker


@benchmark(
    "one visit of logistic regression, D = 55, 60 records", target=8.0, unit="ms", at_most=True
)
def logistic_visit() -> float:
    """The second visit of an agent, after another agent has changed the cavity."""
    rng = np.random.default_rng(0)
    model = LogisticRegression(features=54, intercept=True)
    x = rng.standard_normal((120, 54))
    y = rng.random(120) < 1 / (1 + np.exp(-x @ rng.standard_normal(54)))
    rows = np.column_stack([x, y])
    solver = default_solver(model)
    one, two = (
        ModelWorker(model, solver, model.shard(part), 0, tolerance=1e-8)
        for part in np.array_split(rows, 2)
    )
    first = one.solve(Solve(("s",), 1, 1, model.eta0, None, frozenset())).units
    assert first is not None
    second = two.solve(Solve(("s",), 1, 2, model.eta0 + first, None, frozenset())).units
    assert second is not None
    work = Solve(("s",), 1, 3, model.eta0 + second, first, frozenset())
    return 1e3 * cpu(lambda: one.solve(work), 21)
