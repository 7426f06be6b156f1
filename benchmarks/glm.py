"""Logistic regression: one visit in memory and in an agent, a million records, whole fits."""

from __future__ import annotations

import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from tests.support.processes import Processes

from benchmarks.harness import benchmark, cpu
from benchmarks.million import write
from unweave.federation import Federation
from unweave.models import LogisticRegression
from unweave.node.compute import DataWorker
from unweave.node.data.private import PrivateData
from unweave.node.data.source import DataSource
from unweave.protocol.events import Solve
from unweave.solvers import default_solver
from unweave.solvers.worker import ModelWorker
from unweave.testing.values import small_terms

Floats = NDArray[np.float64]

_VISITS = 4  # of each agent until a fit of breast_cancer rests


def _records(n: int) -> Floats:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 54))
    y = rng.random(n) < 1 / (1 + np.exp(-x @ rng.standard_normal(54)))
    return np.column_stack([x, y])


def _solve(cavity: Any, current: Any) -> Solve:
    return Solve(("s",), 1, 3, cavity, current, frozenset())


@benchmark(
    "one visit of logistic regression, D = 55, 60 records", target=8.0, unit="ms", at_most=True
)
def logistic_visit() -> float:
    """The second visit of an agent, after another agent has changed the cavity."""
    model = LogisticRegression(features=54, intercept=True)
    one, two = (
        ModelWorker(model, default_solver(model), model.shard(part), 0, tolerance=1e-8)
        for part in np.array_split(_records(120), 2)
    )
    first = one.solve(_solve(model.eta0, None)).units
    assert first is not None
    second = two.solve(_solve(model.eta0 + first, None)).units
    assert second is not None
    work = _solve(model.eta0 + second, first)
    return 1e3 * cpu(lambda: one.solve(work), 21)


@benchmark(
    "the same in an agent, its CSV file read once for the four visits of a fit",
    target=15.0,
    unit="ms",
    at_most=True,
)
def agent_visit() -> float:
    model = LogisticRegression(features=54, intercept=True)
    rows = _records(60)
    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "d.csv").open("w", newline="") as file:
            csv.writer(file).writerows([model.columns, *rows.tolist()])
        data = PrivateData(
            folder, DataSource(path="d.csv"), model, "a1", b"", threads=1, small_shards=True
        )
        worker = DataWorker(model, default_solver(model), data, small_terms(10))
        first = worker.solve(_solve(model.eta0, None)).units
        assert first is not None
        work = _solve(model.eta0 + first // 3, first)

        def fit() -> None:
            worker.let_go(whole=False)  # forgets the records, so that they are read again
            data.check()
            for _ in range(_VISITS):
                worker.solve(work)

        return 1e3 * cpu(fit, 11) / _VISITS


# ----------------------------------------------------------------------------------- whole fits


@cache
def _breast_cancer() -> tuple[Floats, ...]:
    """Ten shards, sorted by label."""
    x, y = load_breast_cancer(return_X_y=True)
    rows = np.column_stack([(x - x.mean(axis=0)) / x.std(axis=0), y])
    return tuple(np.array_split(rows[np.argsort(y, kind="stable")], 10))


@benchmark(
    "breast_cancer, 10 agents, logistic regression: a fit in a Federation",
    target=1.5,
    unit="s",
    at_most=True,
)
def breast_cancer_federation() -> float:
    model = LogisticRegression(features=30, intercept=True)
    shards = list(_breast_cancer())
    return cpu(lambda: Federation(model, shards, "complete").learn(progress=False), 5)


@benchmark(
    "the same between ten processes, from their start to rest (wall time)",
    target=8.0,
    unit="s",
    at_most=True,
)
def breast_cancer_processes() -> float:
    model = LogisticRegression(features=30, intercept=True)
    found = []
    for _ in range(3):
        with (
            tempfile.TemporaryDirectory() as root,
            Processes(
                Path(root) / "net",
                10,
                graph="complete",
                model=model,
                rows=0,
                small_shards="neighbours can reconstruct records",
            ) as net,
        ):
            for name, part in zip(net.names, _breast_cancer(), strict=True):
                with (net.folder(name) / "data.csv").open("w", newline="") as file:
                    rows = [[f"{name}-{i}", *row] for i, row in enumerate(part.tolist())]
                    csv.writer(file).writerows([["id", *model.columns], *rows])
            begun = time.perf_counter()
            net.start()
            digests = net.settled()
            found.append(time.perf_counter() - begun)
            assert len(digests) == 1
    print("to rest:", *(f"{seconds:.1f} s" for seconds in found))
    return statistics.median(found)


# -------------------------------------------------------------------------------- a million records


@cache
def _million_measured() -> dict[str, float]:
    """In a process of its own, with one thread for linear algebra, as agents have."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.million", folder],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
    found: dict[str, float] = json.loads(done.stdout)
    print(", ".join(f"{name} {value:.3g}" for name, value in found.items()))
    return found


@benchmark(
    "a visit to 1e6 records of 20 features, from Parquet: a pass against a plain one in NumPy",
    target=2.0,
    at_most=True,
)
def million_pass() -> float:
    found = _million_measured()
    return found["ours"] / found["theirs"]


@benchmark("the same: peak memory of the process", target=300.0, unit="MB", at_most=True)
def million_memory() -> float:
    return _million_measured()["megabytes"]
