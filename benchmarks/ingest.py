"""Exact statistics of an agent's file against the engine's own sums in floating point."""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb

from benchmarks.harness import benchmark, ratio
from unweave.models import Model, by_name
from unweave.node.data.private import PrivateData
from unweave.node.data.source import DataSource

RECORDS = 10_000_000


def _ratio(model: Model, columns: str, aggregate: str, records: int, repeats: int) -> float:
    """CPU of the exact statistics over CPU of a float64 aggregate on the same Parquet file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records.parquet"
        with duckdb.connect() as writer:
            writer.execute(f"COPY (SELECT {columns} FROM range({records})) TO '{file}'")
        data = PrivateData(folder, DataSource(path=file.name), model, "a1", b"")

        def exact() -> None:
            data.factor()

        def floats() -> None:
            with duckdb.connect(config={"threads": 2}) as engine:
                engine.execute(f"SELECT {aggregate} FROM read_parquet('{file}')").fetchall()

        return ratio(exact, floats, repeats)


def _columns(names: list[str]) -> str:
    return ", ".join(f"random() * 4 - 2 AS {name}" for name in names)


@benchmark(
    "ingest: exact normal statistics, 1e7 records, against float sums", target=1.5, at_most=True
)
def ingest_normal() -> float:
    return _ratio(
        by_name("normal-unknown"), _columns(["x"]), "COUNT(*), SUM(x), SUM(x * x)", RECORDS, 5
    )


@benchmark("ingest: exact counts, 1e7 records, against a float sum", target=3.0, at_most=True)
def ingest_counts() -> float:
    columns = "CAST(random() < 0.3 AS INTEGER) AS x"
    return _ratio(
        by_name("beta-bernoulli"), columns, "COUNT(*), SUM(CAST(x AS DOUBLE))", RECORDS, 5
    )


@benchmark(
    "ingest: exact regression, 1e6 records of 10 features, against float sums of products",
    target=2.0,
    at_most=True,
)
def ingest_regression() -> float:
    names = [*(f"x{j + 1}" for j in range(10)), "y"]
    products = [f"SUM({a} * {b})" for i, a in enumerate(names) for b in names[i:]]
    model = by_name("linear-regression-unknown-noise", features=10)
    return _ratio(model, _columns(names), ", ".join(products), RECORDS // 10, 3)
