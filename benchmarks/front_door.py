"""What a user waits for: a visit in a Federation, and the import."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tracemalloc

import numpy as np

from benchmarks.harness import benchmark, cpu, ratio
from unweave.federation import Federation
from unweave.models import BetaBernoulli, DirichletCategorical, LinearRegression, Model

_VISITS = 1000


def _visit(model: Model, shards: list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]) -> float:
    """CPU µs of one visit once everybody is in, routing and history included."""
    federation = Federation(model, shards, "complete").learn()
    return cpu(lambda: federation.learn(iterations=_VISITS, progress=False)) / _VISITS * 1e6


@benchmark(
    "one visit in a Federation, Dirichlet of 10 classes (PVI in PyTorch: 468 µs)",
    target=50.0,
    unit="µs",
    at_most=True,
)
def visit_dirichlet() -> float:
    rng = np.random.default_rng(0)
    shards = [rng.integers(0, 10, (100, 1)).astype(np.float64) for _ in range(10)]
    return _visit(DirichletCategorical(classes=10), shards)


@benchmark(
    "one visit in a Federation, regression on 10 features", target=50.0, unit="µs", at_most=True
)
def visit_regression() -> float:
    rng = np.random.default_rng(0)
    shards = [rng.standard_normal((100, 11)) for _ in range(10)]
    return _visit(LinearRegression(features=10), shards)


def _learn_and_forget(agents: int) -> Federation:
    """Everybody on a ring learns in one sweep, and the agent a third of the way round is erased."""
    rng = np.random.default_rng(0)
    shards = [rng.integers(0, 2, 1 + k % 5) for k in range(agents)]
    federation = Federation(BetaBernoulli(), shards, "ring", "sweep", seed=1)
    federation.learn(progress=False)
    return federation.forget(federation.agents[agents // 3], progress=False)


@benchmark(
    "Federation: learn, forget one: per agent at K=16,000 against K=2,000 (ring; 8 is quadratic)",
    target=1.5,
    at_most=True,
)
def growth() -> float:
    small, large = (lambda: _learn_and_forget(2_000)), (lambda: _learn_and_forget(16_000))
    return ratio(large, small, repeats=3) / 8


@benchmark(
    "Federation: memory per agent after it, K=8,000 against K=1,000 (ring; 8 is quadratic)",
    target=1.5,
    at_most=True,
)
def memory() -> float:
    return _bytes_per_agent(8_000) / _bytes_per_agent(1_000)


def _bytes_per_agent(agents: int) -> float:
    tracemalloc.start()
    federation = _learn_and_forget(agents)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return used / len(federation.agents)


def _process(code: str) -> float:
    """CPU seconds of a fresh interpreter that runs `code`, as it measures itself. It may keep what
    it compiles, as an installed package does, whatever this shell says."""
    timed = f"{code}\nimport time\nprint(time.process_time())"
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    found = subprocess.run(
        [sys.executable, "-c", timed], capture_output=True, check=True, text=True, env=env
    )
    return float(found.stdout)


@benchmark(
    "import unweave, beyond NumPy, scipy.special and scikit-learn",
    target=0.3,
    unit="s",
    at_most=True,
)
def importing() -> float:
    """Every public name is fetched too: the package itself imports its parts when they are used."""
    base = "import numpy, scipy.special, sklearn.base"  # of the estimator, which is an extra
    whole = f"{base}, unweave\nfor name in unweave.__all__: getattr(unweave, name)"
    _process(whole)
    return statistics.median(_process(whole) - _process(base) for _ in range(7))
