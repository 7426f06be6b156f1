"""One visit of logistic regression to a million records in a Parquet file, in a process of its own.

python -m benchmarks.million FOLDER        CPU seconds per pass, ours and plain; megabytes at most
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

import unweave.node.agent  # noqa: F401 — a process with everything that an agent loads
from benchmarks.harness import once
from unweave.models import LogisticRegression
from unweave.models.glm.quadrature import nodes
from unweave.node.data.private import PrivateData
from unweave.node.data.source import DataSource
from unweave.rng import Stream
from unweave.solvers import Context, default_solver

__all__ = ["write"]

Floats = NDArray[np.float64]

_RECORDS, _FEATURES = 1_000_000, 20


def write(folder: Path) -> None:
    """The file, written by the engine."""
    columns = ", ".join(f"(random() + random() - 1) * 2 AS x{j + 1}" for j in range(_FEATURES))
    labels = "CAST(random() < 1 / (1 + exp(x2 - x1)) AS DOUBLE) AS y"
    with duckdb.connect(config={"threads": 1}) as engine:
        engine.execute("SELECT setseed(0.5)")
        table = f"SELECT *, {labels} FROM (SELECT {columns} FROM range({_RECORDS}))"
        engine.execute(f"COPY ({table}) TO '{folder / 'd.parquet'}' (FORMAT parquet)")


def _plain_pass(file: Path, mean: Floats, cov: Floats) -> list[Floats]:
    """The sums of one pass as one would write them first, with the same quadrature."""
    z, weights = nodes(9)
    with duckdb.connect(config={"threads": 1}) as engine:
        columns = engine.execute(f"SELECT * FROM read_parquet('{file}')").fetchnumpy()
    rows = np.column_stack([np.asarray(column) for column in columns.values()])
    loss, gradient, curvature = 0.0, 0.0, 0.0
    for start in range(0, len(rows), 10_000):
        x, y = rows[start : start + 10_000, :-1], rows[start : start + 10_000, -1]
        x = np.column_stack([np.ones(len(x)), x])
        a, s = x @ mean, np.sqrt(np.einsum("ij,ij->i", x @ cov, x))
        t = a[:, None] + s[:, None] * z
        p = 1 / (1 + np.exp(-t))
        loss += (np.logaddexp(0, t) @ weights - y * a).sum()
        gradient += (p @ weights - y) @ x
        curvature += (x.T * ((p * (1 - p)) @ weights)) @ x
    return [np.asarray(loss), np.asarray(gradient), np.asarray(curvature)]


def visit(folder: Path) -> dict[str, float]:
    """CPU seconds per pass of a visit, and of a plain one; megabytes before the plain one."""
    model = LogisticRegression(features=_FEATURES, intercept=True)
    data = PrivateData(folder, DataSource(path="d.parquet"), model, "a1", b"", threads=1)
    solver, passes = default_solver(model), 0
    records = data.shard()

    def solve(current: Any) -> Any:
        return solver.solve(model, records, model.eta0, current, Context(Stream(1)))

    factor = solve(None).factor  # the mode and the solution: the next visit starts at the solution
    start = factor + (factor - model.eta0) // 20
    batches = records.batches

    def counted() -> Any:
        nonlocal passes
        passes += 1
        return batches()

    vars(records)["batches"] = counted
    ours = once(lambda: solve(start))
    megabytes = _peak_megabytes()
    q = model.gaussian(model.grid.decode(model.eta0 + factor))
    theirs = min(once(lambda: _plain_pass(folder / "d.parquet", q.mean, q.cov)) for _ in range(2))
    sums = _plain_pass(folder / "d.parquet", q.mean, q.cov)
    for mine, other in zip(model.curvature(q, records), sums, strict=True):
        np.testing.assert_allclose(np.asarray(mine), other, rtol=1e-7, atol=1e-3)  # the same sums
    return {"ours": ours / passes, "theirs": theirs, "passes": passes, "megabytes": megabytes}


def _peak_megabytes() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    print(json.dumps(visit(Path(sys.argv[1]))))
