"""The engine's statistics of a file are those of the model in memory, bit for bit."""

from __future__ import annotations

import csv
import gzip
import json
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from unweave.errors import DataError, GridOverflow
from unweave.models import (
    BetaBernoulli,
    BetaBinomial,
    BetaExponential,
    BetaGeometric,
    BetaNegativeBinomial,
    ConjugateModel,
    DirichletCategorical,
    DirichletMultinomial,
    GammaEvents,
    GammaExponential,
    GammaPoisson,
    LinearRegression,
    LinearRegressionUnknownNoise,
    Model,
    MultivariateNormalModel,
    NormalKnownVariance,
    NormalUnknown,
)
from unweave.models.resolution import check_shards
from unweave.node.data.commitments import canonical, commitment, pads
from unweave.node.data.duckdb_sql import form
from unweave.node.data.private import PrivateData
from unweave.node.data.source import DataSource

SECRET = b"a secret of this test"
FORMATS = ("csv", "parquet", "ndjson", "json", "csv.gz", "duckdb", "sqlite")
MODELS: list[Model] = [
    BetaBernoulli(),
    BetaBinomial(),
    BetaBinomial(trials=9),
    BetaGeometric(),
    BetaNegativeBinomial(successes=3),
    DirichletCategorical(4),
    DirichletCategorical(100),
    DirichletMultinomial(3),
    GammaPoisson(),
    GammaPoisson(bits=0),
    GammaExponential(),
    GammaExponential(alpha=0.7, reduction="mean"),
    GammaEvents(),
    GammaEvents(scale={"exposure": 0.3}, reduction="mean"),
    NormalKnownVariance(noise=0.3),
    NormalKnownVariance(noise=300.0, reduction="mean"),
    NormalUnknown(),
    NormalUnknown(bits=(40, 33, 36, 34)),
    LinearRegression(2, noise=0.7),
    LinearRegressionUnknownNoise(2, intercept=True),
    MultivariateNormalModel(3),
    GammaExponential(scale={"x": 0.3}),
    NormalKnownVariance(noise=30.0, center={"x": 0.1}, scale={"x": 7}),
    NormalUnknown(center={"x": 30}, scale={"x": 0.9}),
    NormalUnknown(center={"x": -0.3}, scale={"x": 3.3}, alpha=0.5),
    LinearRegressionUnknownNoise(2, intercept=True, center={"x2": 5}, scale={"x1": 0.3, "y": 10}),
    MultivariateNormalModel(3, center={"x1": 0.1}, scale={"x3": 1e2}),
]


def cells(model: Model) -> st.SearchStrategy[np.ndarray]:
    """Rows that the model takes: halves of grid steps among them, to try the rounding of ties."""
    columns = len(model.schema)
    shape = st.integers(1, 40).map(lambda n: (n, columns))
    if model.schema[0].whole:
        high = min(model.schema[0].high, 2.0**53)
        low = model.schema[0].low
        values = st.integers(int(low), int(min(high, 50)))
        if high == 2.0**53:
            values |= st.integers(2**29, 2**30) if model.grid.bits[0] else st.integers(2**52, 2**53)
        rows = hnp.arrays(np.float64, shape, elements=values.map(float))
    else:
        tie = st.integers(-(2**20), 2**20).map(lambda k: (k + 0.5) * 2.0**-16)
        tie |= st.integers(-(2**20), 2**20).map(lambda k: (k + 0.5) * 2.0**-24)
        real = tie | st.floats(-1e3, 1e3) | st.sampled_from([0.0, -0.0, 5e-324, 0.1, 2.0**-17])
        if model.schema[0].low == 0:
            real = real.map(abs)
        rows = hnp.arrays(np.float64, shape, elements=real)
    if isinstance(model, BetaBinomial) and model.trials is None:
        return rows.map(lambda r: np.maximum(np.sort(r, axis=1), [0.0, 1.0]))
    if isinstance(model, DirichletMultinomial):
        return rows.map(lambda r: r + (r.sum(axis=1, keepdims=True) == 0))
    return rows


def write(
    folder: Path, kind: str, names: Sequence[str], rows: Sequence[Sequence[Any]], key: list[Any]
) -> DataSource:
    """Records in a file of some kind, with a key and a column that nobody asks for."""
    folder.mkdir(parents=True, exist_ok=True)
    header = ["key", *names, "other"]
    records = [[k, *row, 'x,"y"\nz'] for k, row in zip(key, rows, strict=True)]
    path = folder / f"data.{kind}"
    path.unlink(missing_ok=True)
    if kind in ("csv", "csv.gz"):
        plain = folder / "plain.tmp"
        with plain.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows([["" if v is None else v for v in r] for r in records])
        if kind == "csv.gz":
            path.write_bytes(gzip.compress(plain.read_bytes()))
        else:
            plain.rename(path)
    elif kind in ("json", "ndjson"):
        lines = [json.dumps(dict(zip(header, r, strict=True))) for r in records]
        path.write_text("[" + ",\n".join(lines) + "]" if kind == "json" else "\n".join(lines))
    elif kind == "sqlite":
        with sqlite3.connect(path) as base:
            base.execute(f"CREATE TABLE t ({', '.join(header)})")
            base.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(header))})", records)
        base.close()
        return DataSource(database=path.name, sql="SELECT * FROM t;", key="key")
    else:
        place = str(path) if kind == "duckdb" else ":memory:"
        with duckdb.connect(place) as base:
            kinds = ["VARCHAR" if any(isinstance(k, str) for k in key) else "BIGINT"]
            kinds += ["DOUBLE"] * len(names) + ["VARCHAR"]
            typed = ", ".join(f"{n} {k}" for n, k in zip(header, kinds, strict=True))
            base.execute(f"CREATE TABLE t ({typed})")
            base.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(header))})", records)
            if kind == "parquet":
                base.execute(f"COPY t TO '{path}' (FORMAT parquet)")
        if kind == "duckdb":
            return DataSource(database=path.name, sql="SELECT * FROM t", key="key")
    return DataSource(path=path.name, key="key")


def private(folder: Path, source: DataSource, model: Model, **options: Any) -> PrivateData:
    return PrivateData(folder, source, model, "north", SECRET, **options)


def agrees(model: ConjugateModel, kind: str, folder: Path, data: st.DataObject) -> None:
    rows = data.draw(cells(model))
    keys: list[Any] = [k if k < 30 else None for k in data.draw(st.permutations(range(len(rows))))]
    keys = [k if k is None else k // 2 for k in keys]  # each key twice: all of its rows go
    if data.draw(st.booleans()):
        keys = [k if k is None else f"k-{k}ß" for k in keys]
    drop = data.draw(st.sets(st.sampled_from(sorted({k for k in keys if k is not None}))))
    source = write(folder, kind, model.columns, rows.tolist(), keys)
    threads, chunk = data.draw(st.sampled_from([1, 2, 4])), data.draw(st.integers(1, 9))
    here = private(folder, source, model, threads=threads, chunk=chunk)

    whole = model.shard(rows, "north")
    try:
        check_shards(model, [whole])
    except DataError:  # rounding moves the result: an agent alone refuses what `Federation` does
        with pytest.raises(DataError, match="rounding"):
            here.check()
    else:
        assert here.check() == len(rows)
    np.testing.assert_array_equal(here.statistics(), model.statistics(whole.rows))
    dropped, unknown = here.commit_keys([*drop, "no such key"])
    assert unknown == ("no such key",)
    assert len(dropped) == len(drop)
    left = whole.drop(np.array([k is not None and k in drop for k in keys]))
    n, units = here.totals(dropped)
    assert n == left.n
    np.testing.assert_array_equal(units, model.statistics(left.rows))
    np.testing.assert_array_equal(here.factor(dropped), model.factor(left))
    np.testing.assert_array_equal(here.shard(dropped).rows, left.rows)


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_gives_the_statistics_of_its_records(
    model: ConjugateModel, tmp_path: Path, data: st.DataObject
) -> None:
    agrees(model, data.draw(st.sampled_from(FORMATS)), tmp_path, data)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_format_gives_the_statistics_of_its_records(
    model: ConjugateModel, kind: str, tmp_path: Path, data: st.DataObject
) -> None:
    agrees(model, kind, tmp_path, data)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("model", "small"),
    [
        (LinearRegression(["u"], sd=1e4), {"u": 1e-5}),
        (GammaExponential(b=1e-5), {"x": 1e-7}),
        (NormalUnknown(b=1e-7, kappa=0.1), {"x": 3e-5}),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_rounding_that_moves_a_result_is_refused_with_the_scale_that_would_do(
    model: ConjugateModel,
    small: dict[str, float],
    tmp_path: Path,
    kind: str,
) -> None:
    """In every kind of file, of the records that are left, and the more agents the sooner."""
    rng = np.random.default_rng(6)
    rows = np.abs(rng.normal(size=(200, len(model.columns))))
    if "u" in small:
        rows[:, 1] += rows[:, 0]
    rows = rows * [small.get(name, 1.0) for name in model.columns]
    source = write(tmp_path, kind, model.columns, rows.tolist(), list(range(200)))
    with pytest.raises(DataError, match=r"rounding would move .*\. Fix: scale = ") as found:
        private(tmp_path, source, model).check()
    fix = str(found.value).split("Fix: scale = ")[1]
    name, value = fix.strip("{}").split(" = ")
    mended = replace(model, scale={name: float(value)})
    assert private(tmp_path, source, mended, agents=100).check() == 200
    here = private(tmp_path, source, model)
    most, _ = here.commit_keys(range(199))
    assert here.totals(most)[0] == 1  # an erasure is never refused


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    "model",
    [
        GammaExponential(scale={"x": 0.3}),
        NormalKnownVariance(noise=0.3, center={"x": 0.1}, scale={"x": 1e-3}),
        NormalUnknown(center={"x": 7}, scale={"x": 0.7}),
    ],
    ids=lambda model: model.name,
)
def test_an_engine_measures_what_rounding_added(
    model: ConjugateModel, tmp_path: Path, kind: str
) -> None:
    rows = np.abs(np.random.default_rng(7).normal(size=(300, 1)))
    source = write(tmp_path, kind, model.columns, rows.tolist(), list(range(300)))
    found = private(tmp_path, source, model).measured()
    assert found.units == model.factor(model.shard(rows)).tolist()
    np.testing.assert_allclose(found.added, model.rounding(rows), rtol=1e-6, atol=1e-16)
    assert found.added.any()


@pytest.mark.parametrize("kind", FORMATS)
def test_order_and_threads_do_not_change_a_bit(tmp_path: Path, kind: str) -> None:
    model = NormalUnknown()
    rows = np.random.default_rng(3).normal(size=(200, 1))
    expected = model.statistics(rows)
    for threads, order in ((1, slice(None)), (2, slice(None, None, -1))):
        source = write(tmp_path, kind, model.columns, rows[order].tolist(), list(range(200)))
        here = private(tmp_path, source, model, threads=threads)
        np.testing.assert_array_equal(here.statistics(), expected)


@pytest.mark.parametrize("model", [NormalUnknown(), LinearRegression(["u", "v"], target="x")])
def test_a_million_records(tmp_path: Path, model: ConjugateModel) -> None:
    """More than one batch and one row group; a tenth of them is dropped by key."""
    file = tmp_path / "d.parquet"
    with duckdb.connect() as base:
        base.execute(
            "COPY (SELECT random() * 4 - 2 AS x, random() AS u, random() AS v, range // 10 AS id "
            f"FROM range(1000000)) TO '{file}'"
        )
        read = base.execute(f"SELECT * FROM read_parquet('{file}')").fetchnumpy()
    rows = np.column_stack([read[name] for name in model.columns])
    here = private(tmp_path, DataSource(path=file.name, key="id"), model)
    np.testing.assert_array_equal(here.statistics(), model.statistics(rows))
    dropped, unknown = here.commit_keys(range(10_000))
    assert not unknown
    n, units = here.totals(dropped)
    assert n == 900_000
    np.testing.assert_array_equal(units, model.statistics(rows[100_000:]))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """A process that reads four times the records needs hardly more memory."""
    program = """
import resource, sys
from unweave.models import LinearRegression
from unweave.node.data.private import DataSource, PrivateData

source = DataSource(path=sys.argv[2])
PrivateData(sys.argv[1], source, LinearRegression(10), "north", b"").factor()
sys.stdout.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
"""
    columns = ", ".join(f"random() AS {name}" for name in LinearRegression(10).columns)
    peak = {}
    for n in (2_000_000, 8_000_000):
        with duckdb.connect() as base:
            base.execute("SET enable_progress_bar = false")
            base.execute(f"COPY (SELECT {columns} FROM range({n})) TO '{tmp_path}/{n}.parquet'")
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path), f"{n}.parquet"],
            check=True,
            capture_output=True,
            text=True,
        )
        peak[n] = int(done.stdout) * 1024
        (tmp_path / f"{n}.parquet").unlink()
    grown = 6_000_000 * 11 * 8
    assert peak[8_000_000] - peak[2_000_000] < 0.3 * grown


def test_every_one_column_model_and_every_count_is_summed_by_the_engine() -> None:
    without = {m.name for m in MODELS if form(m) is None}
    assert without == {
        "dirichlet-categorical",  # with more classes than aggregates are good for
        "linear-regression",
        "linear-regression-unknown-noise",
        "multivariate-normal",
    }


def test_a_model_of_ones_own_is_not_taken_for_its_base() -> None:
    class Doubled(BetaBernoulli):
        def sums(self, rows: np.ndarray) -> list[int]:
            return [2 * s for s in super().sums(rows)]

    assert form(BetaBernoulli()) is not None
    assert form(Doubled()) is None


def test_loss_models_load_their_records(tmp_path: Path) -> None:
    model = BetaExponential()
    source = write(tmp_path, "parquet", model.columns, [[0.5], [0.25]], [1, 2])
    here = private(tmp_path, source, model)
    assert here.check() == 2
    shard = here.shard(here.commit_keys([1])[0])
    assert shard.agent == "north"
    assert shard.rows.tolist() == [[0.25]]
    assert not shard.rows.flags.writeable
    assert here.empty().rows.shape == (0, 1)


def test_several_files_count_as_one(tmp_path: Path) -> None:
    model = LinearRegression(["a", "b"], target="y")
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(30, 3))
    for i in range(3):
        part = rows[10 * i : 10 * i + 10]
        order = ["y", "b", "a"] if i == 1 else ["a", "b", "y"]  # by name, not by position
        lines = [",".join(order)]
        lines += [
            ",".join(repr(float(row[["a", "b", "y"].index(name)])) for name in order)
            for row in part
        ]
        (tmp_path / f"part{i}.csv").write_text("\n".join(lines))
    here = private(tmp_path, DataSource(path="part*.csv"), model)
    np.testing.assert_array_equal(here.shard().rows, rows)
    np.testing.assert_array_equal(here.statistics(), model.statistics(rows))


def test_columns_are_renamed_by_the_settings(tmp_path: Path) -> None:
    model = BetaBinomial()
    (tmp_path / "d.tsv").write_text('id\t"hits ""so far"""\tn\n1\t3\t9\n2\t1\t4\n')
    source = DataSource(path="d.tsv", columns={"successes": 'hits "so far"', "trials": "n"})
    assert private(tmp_path, source, model).shard().rows.tolist() == [[3, 9], [1, 4]]
    (tmp_path / "d.csv").write_text("x;y\n0;5\n")
    here = private(tmp_path, DataSource(path="d.csv", delimiter=";"), BetaBernoulli())
    assert here.count() == 1


WORDS = {"true": 1, "false": 0, "True": 1, "False": 0, "TRUE": 1, "fAlSe": 0, " true ": 1}


@pytest.mark.parametrize("kind", ["csv", "ndjson", "json", "parquet", "duckdb", "sqlite"])
@pytest.mark.parametrize(
    "model", [BetaBernoulli(), DirichletCategorical(2), BetaBinomial(trials=1)]
)
@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(words=st.lists(st.sampled_from([*WORDS]), min_size=1, max_size=30), data=st.data())
def test_true_and_false_are_one_and_zero(
    tmp_path: Path, kind: str, model: ConjugateModel, words: list[str], data: st.DataObject
) -> None:
    """In columns of 0 and 1, to the bit: by the engine's sums, in batches, and in memory."""
    column = model.columns[0]
    values: list[Any] = list(words)
    if kind in ("parquet", "duckdb"):  # columns with a type
        (tmp_path / "d.duckdb").unlink(missing_ok=True)
        with duckdb.connect(str(tmp_path / "d.duckdb")) as base:
            base.execute(f"CREATE TABLE t ({column} VARCHAR)")
            base.executemany("INSERT INTO t VALUES (?)", [[v] for v in values])
            base.execute(f"COPY t TO '{tmp_path}/d.parquet' (FORMAT parquet)")
        both = (
            {"database": "d.duckdb", "sql": "FROM t"} if kind == "duckdb" else {"path": "d.parquet"}
        )
        source = DataSource(**both)
    else:
        mixed = {"csv": ["1", "0.0"], "sqlite": [1, 0.0]}.get(kind, [1, 0.0, True, False])
        values += data.draw(st.lists(st.sampled_from(mixed), max_size=10))
        source = write(tmp_path, kind, [column], [[v] for v in values], list(range(len(values))))
    numbers = [float(WORDS.get(v, v) if isinstance(v, str) else v) for v in values]
    expected = model.statistics(model.shard(numbers).rows)
    here = private(tmp_path, source, model)
    assert np.array_equal(here.statistics(), expected)
    assert here.shard().rows[:, 0].tolist() == numbers
    if kind != "csv":  # where numbers are not text
        assert np.array_equal(model.statistics(model.shard(values).rows), expected)
        assert np.array_equal(model.statistics(model.shard({column: values}).rows), expected)


@pytest.mark.parametrize("kind", ["csv", "ndjson", "sqlite"])
def test_true_and_false_are_no_numbers_elsewhere(tmp_path: Path, kind: str) -> None:
    source = write(tmp_path, kind, ["x"], [["true"]], [1])
    for model in (NormalUnknown(), GammaPoisson(), DirichletCategorical(3)):
        with pytest.raises(DataError, match="is not a number"):
            private(tmp_path, source, model).check()
        with pytest.raises(DataError, match=r"is text[;.] (expected|Fix:) a number"):
            model.shard(["true"])
    other = write(tmp_path, kind, ["x"], [["yes"]], [1])
    with pytest.raises(DataError, match=r"is not a number; expected 0 or 1, false or true"):
        private(tmp_path, other, BetaBernoulli()).check()


@pytest.mark.parametrize(
    "kind", ["TINYINT", "BIGINT", "HUGEINT", "FLOAT", "DECIMAL(9,3)", "BOOLEAN"]
)
def test_numbers_of_every_type_are_numbers(tmp_path: Path, kind: str) -> None:
    with duckdb.connect(str(tmp_path / "d.db")) as base:
        base.execute(f"CREATE TABLE t AS SELECT CAST(i AS {kind}) AS x FROM (VALUES (1), (0)) v(i)")
    source = DataSource(database="d.db", sql="FROM t")
    assert private(tmp_path, source, NormalUnknown()).shard().rows.tolist() == [[1.0], [0.0]]


def test_a_decimal_is_rounded_half_to_even(tmp_path: Path) -> None:
    """DECIMAL itself rounds half away from zero."""
    with duckdb.connect(str(tmp_path / "d.db")) as base:
        base.execute(
            "CREATE TABLE t AS SELECT CAST(i AS DECIMAL(9,1)) AS x FROM (VALUES (0.5)) v(i)"
        )
    model = GammaExponential(bits=(0, 0))
    source = DataSource(database="d.db", sql="FROM t")
    assert private(tmp_path, source, model).statistics().tolist() == [1, 0]


@pytest.mark.parametrize("model", [NormalUnknown(), NormalKnownVariance(), GammaExponential()])
@pytest.mark.parametrize("x", [1e15, 2.0**15, 1e300])
def test_what_does_not_fit_the_grid_is_refused_as_in_memory(
    tmp_path: Path, model: ConjugateModel, x: float
) -> None:
    source = write(tmp_path, "csv", model.columns, [[1.0], [x]], [1, 2])
    here = private(tmp_path, source, model)
    try:
        expected = model.statistics(np.array([[1.0], [x]]))
    except GridOverflow:
        with pytest.raises(GridOverflow):
            here.statistics()
    else:
        np.testing.assert_array_equal(here.statistics(), expected)


def test_the_engine_commits_as_python_does(tmp_path: Path) -> None:
    """The engine has no HMAC; the two hashes that make one are written out in SQL."""
    for secret in (b"", b"short", bytes(range(64)), bytes(200)):
        outer, inner = pads(secret)
        with duckdb.connect() as base:
            (found,) = base.execute(
                "SELECT left(sha256(CAST(? AS BLOB) || unhex(sha256(CAST(? AS BLOB) || "
                "encode('t:ß')))), 32)",
                [outer, inner],
            ).fetchone() or ("",)
        assert found == commitment(secret, "t:ß").hex()


def test_a_key_is_the_same_in_every_format(tmp_path: Path) -> None:
    """Whoever turns CSV into Parquet or into a data frame's floats brings nobody back."""
    model = BetaBernoulli()
    csv_source = write(tmp_path, "csv", ["x"], [[1], [0]], [17, 18])
    dropped, unknown = private(tmp_path, csv_source, model).commit_keys(["17"])
    assert not unknown
    assert dropped == {commitment(SECRET, "t:17")}
    for kind in FORMATS:
        here = private(tmp_path, write(tmp_path, kind, ["x"], [[1], [0]], [17, 18]), model)
        assert here.shard(dropped).rows.tolist() == [[0.0]]
    with duckdb.connect(str(tmp_path / "f.db")) as base:
        base.execute(
            "CREATE TABLE t AS SELECT * FROM (VALUES (1, 17.0::DOUBLE, '\\x11'::BLOB), "
            "(0, 'nan'::DOUBLE, NULL)) v(x, f, b)"
        )
    (tmp_path / "data.key").unlink()  # it holds the name of the column above
    floats = DataSource(database="f.db", sql="FROM t", key="f")
    assert private(tmp_path, floats, model).shard(dropped).rows.tolist() == [[0.0]]
    (tmp_path / "data.key").unlink()
    blobs = private(tmp_path, DataSource(database="f.db", sql="FROM t", key="b"), model)
    assert blobs.commit_keys([b"\x11", b"\x12"])[1] == (b"\x12",)
    assert canonical(17) == canonical("17") == canonical(17.0) == "t:17"
    assert canonical(float("nan")) is canonical(None) is None


def test_erased_records_stay_erased(tmp_path: Path) -> None:
    model = BetaBernoulli()
    rows = [[1], [0], [1]]
    source = write(tmp_path, "csv", ["x"], rows, ["a", "b", None])
    here = private(tmp_path, source, model)
    here.check()
    assert not here.refresh()
    dropped, _ = here.commit_keys(["a"])
    assert here.count(dropped) == 2
    write(tmp_path, "csv", ["x"], [*rows, [1], [1]], ["a", "b", None, "a", "c"])
    assert here.refresh()
    assert not here.refresh()
    assert here.shard(dropped).rows.tolist() == [[0], [1], [1]]
    assert here.count() == 5
    other, _ = here.commit_keys(["b"])
    assert here.count(other) == 4
    assert here.count(dropped | other) == 2
    write(tmp_path, "csv", ["x"], [[1]], ["c"])
    assert here.count(dropped) == 1  # no such key any more
    write(tmp_path, "csv", ["x"], [*rows, [1], [1]], ["a", "b", None, "a", "c"])
    assert here.count(dropped) == 3  # and it is back, still erased
    again = private(tmp_path, source, model)  # a new process knows the commitments alone
    assert (
        again.statistics(dropped).tolist() == model.statistics(np.array([[0.0], [1], [1]])).tolist()
    )


def test_dropping_everything_leaves_zero(tmp_path: Path) -> None:
    model = NormalUnknown(reduction="mean")
    here = private(tmp_path, write(tmp_path, "parquet", ["x"], [[1.0]], [5]), model)
    dropped, _ = here.commit_keys([5])
    assert here.check(dropped) == here.count(dropped) == 0
    assert not here.factor(dropped).any()


def test_an_erased_record_is_not_even_checked(tmp_path: Path) -> None:
    source = write(tmp_path, "csv", ["x"], [["broken"], [0]], [1, 2])
    here = private(tmp_path, source, BetaBernoulli())
    dropped, _ = here.commit_keys([1])
    assert here.check(dropped) == 1
    with pytest.raises(DataError, match="line 2, "):
        here.check()


def test_without_a_key_nothing_can_come_back(tmp_path: Path) -> None:
    """The settings lost their key: reading on would bring erased records back."""
    write(tmp_path, "csv", ["x"], [[1], [0]], [1, 2])
    here = private(tmp_path, DataSource(path="data.csv"), BetaBernoulli())
    for ask in (lambda: here.count(frozenset([bytes(16)])), lambda: here.commit_keys([1])):
        with pytest.raises(DataError, match="names no key column"):
            ask()


def test_another_key_column_does_not_bring_erased_records_back(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("id,no,x\n" + "".join(f"p{k},{k},{k % 2}\n" for k in range(9)))

    def keyed(key: str) -> PrivateData:
        return private(tmp_path, DataSource(path="d.csv", key=key), BetaBernoulli())

    keyed("no").commit_keys(["none of them"])
    assert not (tmp_path / "data.key").exists()  # nothing was erased: any column will do
    dropped, _ = keyed("id").commit_keys(["p1", "p2"])
    assert keyed("no").check() == 9
    with pytest.raises(DataError, match="known by the column 'id'"):
        keyed("no").commit_keys(["3"])
    for read in (PrivateData.check, PrivateData.count, PrivateData.factor, PrivateData.shard):
        with pytest.raises(DataError, match=r"known by the column 'id'.*'no'.*would come back"):
            read(keyed("no"), dropped)
    assert keyed("id").count(dropped) == 7


@pytest.mark.parametrize("kind", ["csv", "parquet", "duckdb", "sqlite"])
def test_extremes_are_of_the_numbers_that_are_there(tmp_path: Path, kind: str) -> None:
    rows: list[list[float | None]] = [[3.0, None], [None, None], [1.0, None]]
    model = LinearRegression(features=["dose"], noise=1.0)
    source = write(tmp_path, kind, model.columns, rows, [1, 2, 3])
    with private(tmp_path, source, model)._open() as reader:
        dose, y = reader.extremes(frozenset())
        assert dose == (1.0, 3.0)
        assert np.isnan(y).all()
        assert reader.extremes(frozenset({canonical(k) for k in (1, 2, 3)})) == []
