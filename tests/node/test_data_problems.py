"""Bad data are refused with their place and what was expected, and never quoted."""

from __future__ import annotations

import gzip
import json
import sqlite3
import tomllib
import traceback
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from unweave.errors import ConfigError, DataError, GridOverflow
from unweave.models import (
    BetaBernoulli,
    BetaBinomial,
    DirichletMultinomial,
    GammaExponential,
    GammaPoisson,
    LinearRegression,
    Model,
    NormalUnknown,
)
from unweave.node.data.private import PrivateData, check_records
from unweave.node.data.source import DataSource

SENTINEL = "7770777"  # a value that must not show up anywhere


def private(folder: Path, source: DataSource, model: Model, chunk: int = 5) -> PrivateData:
    return PrivateData(folder, source, model, "north", b"secret", threads=2, chunk=chunk)


def refused(data: PrivateData | Callable[[], object], *calls: str) -> str:
    """The one error of every way to read; its text and its traceback hold no value."""
    texts = set()
    for ask in (
        [getattr(data, c) for c in calls or ("check", "shard")]
        if isinstance(data, PrivateData)
        else [data]
    ):
        with pytest.raises(DataError) as caught:
            ask()
        shown = "".join(traceback.format_exception(caught.value))
        assert SENTINEL not in shown
        texts.add(str(caught.value))
    (text,) = texts
    assert "'north'" in text
    return text


def rows_of(folder: Path, kind: str, values: list[object], name: str = "x") -> DataSource:
    """Ten good rows around the bad ones, which become records 6 and on."""
    rows = [0, 1, 0, 1, 0, *values, 0, 1, 0, 1, 0]
    file = folder / f"d.{kind}"
    if kind == "csv":
        cells = ["" if v is None else str(v) for v in rows]
        file.write_text("\n".join([f"id,{name}", *(f"{i},{c}" for i, c in enumerate(cells))]))
    elif kind == "ndjson":
        file.write_text("\n".join(json.dumps({"id": i, name: v}) for i, v in enumerate(rows)))
    elif kind == "sqlite":
        with sqlite3.connect(file) as base:
            base.execute(f"CREATE TABLE t (id, {name})")
            base.executemany("INSERT INTO t VALUES (?, ?)", enumerate(rows))
        base.close()
        return DataSource(database=file.name, sql="SELECT * FROM t")
    else:
        with duckdb.connect(str(folder / "d.duckdb")) as base:
            base.execute(f"CREATE OR REPLACE TABLE t (id BIGINT, {name} DOUBLE)")
            base.executemany("INSERT INTO t VALUES (?, ?)", [list(r) for r in enumerate(rows)])
            base.execute(f"COPY t TO '{folder / 'd.parquet'}' (FORMAT parquet)")
        if kind == "duckdb":
            return DataSource(database="d.duckdb", sql="SELECT * FROM t")
    return DataSource(path=file.name)


# Where record 6 is: a file with lines is opened at a line.
SIXTH = {"csv": "d.csv, line 7", "ndjson": "d.ndjson, line 6"} | dict.fromkeys(
    ("sqlite", "parquet", "duckdb"), "record 6 (counted from 1)"
)


@pytest.mark.parametrize("kind", SIXTH)
@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "is missing"),
        (float(SENTINEL), "is above 1"),
        (-float(SENTINEL), "is below 0"),
        (0.5, "is not a whole number"),
        (float("inf"), "is infinite"),
        (float("nan"), "is missing"),
        (f"text {SENTINEL}", "is not a number"),
    ],
)
def test_a_bad_value_is_told_by_record_and_column(
    tmp_path: Path, kind: str, value: object, why: str
) -> None:
    if isinstance(value, str) and kind in ("parquet", "duckdb"):
        pytest.skip("its column of numbers cannot hold text")
    source = rows_of(tmp_path, kind, [value, value])
    text = refused(private(tmp_path, source, BetaBernoulli()), "check", "statistics", "shard")
    assert f"{SIXTH[kind]}, column 'x'" in text
    assert f"the value {why}" in text
    assert "expected 0 or 1, false or true; 1 more: " in text
    seventh = {"csv": "line 8", "ndjson": "line 7"}.get(kind, "record 7 (counted from 1)")
    assert seventh in text.partition("1 more: ")[2]


@pytest.mark.parametrize("kind", ["csv", "ndjson", "sqlite", "parquet", "duckdb"])
def test_streamed_models_tell_the_same(tmp_path: Path, kind: str) -> None:
    source = rows_of(tmp_path, kind, [None], name="y")
    model = LinearRegression(["id"])
    text = refused(private(tmp_path, source, model), "check", "statistics", "shard")
    assert f"{SIXTH[kind]}, column 'y': the value is missing; expected a finite" in text


def test_the_first_bad_record_of_a_large_file_is_found(tmp_path: Path) -> None:
    """Several threads read it; the number still counts from the top."""
    lines = [f"{i},{i % 2}" for i in range(300_000)]
    lines[250_001] = lines[299_000] = f"1,{SENTINEL}"
    (tmp_path / "d.csv").write_text("\n".join(["id,x", *lines]))
    data = private(tmp_path, DataSource(path="d.csv", key="id"), BetaBernoulli(), chunk=1000)
    assert "line 250003, " in refused(data, "check")
    dropped, _ = data.commit_keys([1])
    assert data.check(dropped) == 299_997


def test_a_rule_between_columns(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(f"successes,trials\n1,2\n3,3\n{SENTINEL},5\n")
    text = refused(private(tmp_path, DataSource(path="d.csv"), BetaBinomial()))
    assert "line 4, " in text
    assert "is above the row's trials" in text
    (tmp_path / "e.csv").write_text("x0,x1\n1,2\n0,0\n")
    text = refused(private(tmp_path, DataSource(path="e.csv"), DirichletMultinomial(2)))
    assert "line 3, " in text


def test_a_value_that_rounds_to_a_good_one_is_still_bad(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("x\n1\n-1e-30\n")
    text = refused(private(tmp_path, DataSource(path="d.csv"), GammaExponential()))
    assert "line 3, " in text
    assert "is below 0" in text


def test_a_bad_file_among_several_is_named(tmp_path: Path) -> None:
    for name, rows in (("a", "0\n1"), ("b", f"0\n{SENTINEL}"), ("c", f"{SENTINEL}\n0")):
        (tmp_path / f"{name}.csv").write_text(f"x\n{rows}\n")
    data = private(tmp_path, DataSource(path="*.csv"), BetaBernoulli())
    assert "b.csv, line 3, " in refused(data)
    (tmp_path / "c.csv").unlink()
    (tmp_path / "b.csv").write_text(f'x\n0\n1\n"{SENTINEL}" 1\n')
    assert "b.csv, line 4: has a stray quotation mark" in refused(data)


@pytest.mark.parametrize(
    ("body", "line", "why"),
    [
        (f"x,id\n0,1\n1,{SENTINEL},3\n", 3, "has 3 fields, but the header has 2; take out"),
        (f"x,id\n0,1\n{SENTINEL}\n", 3, "has 1 field, but the header has 2; complete"),
        (f"x,id\r\n0,1\r\n\r\n{SENTINEL}", 4, "has 1 field, but the header has 2"),
        (f'x,id\n0,"a\nb"\n{SENTINEL}\n', 4, "has 1 field, but the header has 2"),
        (f'x,id\n0,1\n1,"{SENTINEL}\n0,2\n', 3, "has a stray quotation mark"),
        (f'x,id\n0,1\n1,"{SENTINEL}" a\n0,2\n', 3, "has a stray quotation mark"),
        (f"x,id\n0,1\n{SENTINEL}\xff,1\n", 3, "is not UTF-8; save"),
        (f"x,id\r\n0,1\r\n1,{SENTINEL}\n", 3, "ends in LF, but the lines before it in CRLF"),
        (f"x,id\n0,1\r\n1,{SENTINEL}\n", 2, "ends in CRLF, but the lines before it in LF"),
        (f'x,id\n0,"a\r\nb"\n1,{SENTINEL}\r\n', 4, "ends in CRLF, but the lines before it in"),
        (f"x,id\n0,1\n{SENTINEL}\r1,1\n", 3, "ends in CR, but the lines before it in LF"),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_malformed_lines_of_csv(
    tmp_path: Path, body: str, line: int, why: str, zipped: bool
) -> None:
    name = "d.csv.gz" if zipped else "d.csv"
    raw = body.encode("latin-1")
    (tmp_path / name).write_bytes(gzip.compress(raw) if zipped else raw)
    text = refused(private(tmp_path, DataSource(path=name), BetaBernoulli()))
    assert f"{name}, line {line}: {why}" in text


def test_a_line_that_the_engine_accepts_is_not_blamed(tmp_path: Path) -> None:
    """It ignores empty fields at the end of a line; another reader would not."""
    (tmp_path / "d.csv").write_text(f"x,id\n0,1\n1,2,,\n\n1,{SENTINEL},3,4,5\n1\n")
    text = refused(private(tmp_path, DataSource(path="d.csv"), BetaBernoulli()))
    assert "d.csv, line 5: has 5 fields, but the header has 2" in text


@given(
    st.lists(st.sampled_from(["1,a", '0,"a{}b"', "", '1,"{}"', '0,"""{}"""']), max_size=8),
    st.sampled_from(["1", "1,2,3", '1,"a" b', '1,"a']),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_the_line_of_a_refused_record_is_that_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, before: list[str], bad: str, end: str, zipped: bool
) -> None:
    """Whatever blank lines and fields with line breaks come before it."""
    folder = tmp_path_factory.mktemp("data")
    lead = "".join(line.format(end) + end for line in ("x,id", *before))
    raw = f"\ufeff{lead}{bad}{end}1,c{end}".encode()
    name = "d.csv.gz" if zipped else "d.csv"
    (folder / name).write_bytes(gzip.compress(raw) if zipped else raw)
    text = refused(private(folder, DataSource(path=name), BetaBernoulli()))
    assert f"{name}, line {lead.count(end) + 1}: has " in text


def test_line_endings_inside_of_fields_are_not_those_of_lines(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes(b'x,id\r\n1,"a\nb"\r\n0,"c\rd"\r\n1,"e\r\nf"\r\n')
    assert private(tmp_path, DataSource(path="d.csv"), BetaBernoulli()).check() == 3


@pytest.mark.parametrize("text", ["x\n1\n\n0\n", "x,y\n1,1\n\n,1\n", 'y,x\n"a\n",1\n1,\n'])
def test_lines_are_counted_as_the_engine_counts_records(tmp_path: Path, text: str) -> None:
    """An empty line is a record of one column, and none of two."""
    (tmp_path / "d.csv").write_text(text)
    line = {"x\n": 3, "x,": 4, "y,": 4}[text[:2]]
    told = refused(private(tmp_path, DataSource(path="d.csv"), BetaBernoulli()))
    assert f"line {line}, column 'x': the value is missing" in told


def test_a_decimal_comma(tmp_path: Path) -> None:
    def read(body: str, **more: str) -> PrivateData:
        (tmp_path / "d.csv").write_text(body)
        return private(tmp_path, DataSource(path="d.csv", **more), NormalUnknown())

    weights = f"id;x\n1;82\n2;8,{SENTINEL}\n"
    text = refused(read(weights, delimiter=";"))
    assert "line 3, column 'x': the value is not a number; it looks like one with a decimal" in text
    assert 'decimal = ","' in text
    points = f"id;x\n1;82\n2;8.{SENTINEL}\n"
    given = read(weights, delimiter=";", decimal=",").shard().rows
    assert given.tolist() == read(points, delimiter=";").shard().rows.tolist()
    quoted = 'id,x\n1,"82,5"\n'
    assert read(quoted, decimal=",").shard().rows.tolist() == [[82.5]]
    # 1.234 is a thousand and more for one reader and little more than one for the other.
    for thousands in ("1.234", "1.234,5", "1,234,567"):
        told = refused(read(f"id;x\n1;{thousands}\n", delimiter=";", decimal=","))
        assert "is not a number; expected" in told
    assert "decimal" not in refused(read(f"id;x\n1;{SENTINEL},a\n", delimiter=";"))


@pytest.mark.parametrize(("mark", "shown"), [(";", ";"), ("\t", r"\t"), ("|", "|"), (",", ",")])
def test_another_delimiter_is_recognised(tmp_path: Path, mark: str, shown: str) -> None:
    name = "d.tsv" if mark == "," else "d.csv"
    (tmp_path / name).write_text(f"id{mark}x{mark}age\n1{mark}1{mark}{SENTINEL}\n")
    text = refused(private(tmp_path, DataSource(path=name), BetaBernoulli()))
    assert f'write delimiter = "{shown}" in agent.toml' in text
    right = DataSource(path=name, delimiter=tomllib.loads(f'd = "{shown}"')["d"])
    assert private(tmp_path, right, BetaBernoulli()).check() == 1
    elsewhere = DataSource(path=name, columns={"x": "ill"})
    assert "delimiter" not in refused(private(tmp_path, elsewhere, BetaBernoulli()))


@pytest.mark.parametrize("kind", ["csv", "ndjson", "sqlite", "parquet", "duckdb"])
def test_a_record_that_the_grid_cannot_hold_is_told_by_its_place(tmp_path: Path, kind: str) -> None:
    source = rows_of(tmp_path, kind, [float(SENTINEL), 1.5 * float(SENTINEL)])
    with pytest.raises(GridOverflow) as caught:
        private(tmp_path, source, NormalUnknown(), chunk=100).check()
    text = str(caught.value)
    assert SENTINEL not in text
    assert SIXTH[kind] in text
    assert "up to ±3.28e+04" in text
    assert private(tmp_path, source, NormalUnknown(**stated(text))).check() == 12


def stated(text: str) -> dict[str, dict[str, float]]:
    """The settings that an error proposes, as one would write them into network.toml."""
    parts = text.split(". Fix: ")[1].replace("}, ", "}\n")
    assert "bits" not in parts
    return tomllib.loads(parts)


def test_a_sum_that_the_grid_cannot_hold_says_which_scale_would(tmp_path: Path) -> None:
    source = rows_of(tmp_path, "csv", [3e4] * 40)
    with pytest.raises(GridOverflow, match="the sum over the 50 records of agent 'north'") as found:
        private(tmp_path, source, NormalUnknown()).check()
    assert private(tmp_path, source, NormalUnknown(**stated(str(found.value)))).check() == 50


def test_one_early_bad_row_leaves_its_column_numbers(tmp_path: Path) -> None:
    """A reader that guesses types would make text of the column, or skip the row."""
    lines = [f"text {SENTINEL}", *("1" for _ in range(50))]
    (tmp_path / "d.csv").write_text("\n".join(["x", *lines]))
    data = private(tmp_path, DataSource(path="d.csv"), GammaPoisson())
    assert "line 2, " in refused(data)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("d.csv", b"", "the file is empty"),
        ("d.csv", b"\xff\xfe\x00", "cannot be read as a header"),
        ("d.parquet", SENTINEL.encode() * 9, "is not a readable parquet file"),
        (
            "d.ndjson",
            b'{"x": 1}\n{"x": ' + SENTINEL.encode() + b"s}\n",
            "is not readable JSON there",
        ),
        ("d.json", SENTINEL.encode(), "column 'x'"),
        ("d.xlsx", b"", "unknown kind of file"),
        ("d.csv.gz", b"no gzip", "cannot be read as a header"),
    ],
)
def test_unreadable_files(tmp_path: Path, name: str, content: bytes, why: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert why in refused(private(tmp_path, DataSource(path=name), BetaBernoulli()))


def test_missing_files_and_columns_say_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "south.csv").write_text("dose,age\n1,2\n")
    text = refused(private(tmp_path, DataSource(path="north.csv"), BetaBernoulli()))
    assert "no file 'north.csv'" in text
    assert "south.csv" in text
    assert "no file 'n/*.csv'" in refused(
        private(tmp_path, DataSource(path="n/*.csv"), BetaBernoulli())
    )
    text = refused(private(tmp_path, DataSource(path="south.csv"), BetaBernoulli()))
    assert "column 'x' (the model's 'x', 0 or 1, false or true) is missing" in text
    assert "the names of its 2 columns are not shown" in text
    assert "dose" not in text
    keyed = DataSource(path="south.csv", columns={"x": "dose"}, key="id")
    assert "column 'id' (the key of its records)" in refused(
        private(tmp_path, keyed, BetaBernoulli())
    )
    renamed = DataSource(path="south.csv", columns={"x": "age"})
    text = refused(private(tmp_path, renamed, BetaBernoulli()))
    assert "column 'age' (the model's 'x')" in text
    (tmp_path / "twice.csv").write_text("x,x\n1,2\n")
    assert "2 columns are called 'x'" in refused(
        private(tmp_path, DataSource(path="twice.csv"), BetaBernoulli())
    )
    with pytest.raises(ConfigError, match="its columns are 'x'"):
        private(tmp_path, DataSource(path="a.csv", columns={"z": "age"}), BetaBernoulli())


@pytest.mark.parametrize("kind", ["VARCHAR", "DATE", "INTEGER[]"])
def test_columns_of_other_types(tmp_path: Path, kind: str) -> None:
    with duckdb.connect(str(tmp_path / "d.db")) as base:
        base.execute(f"CREATE TABLE t (x {kind})")
    source = DataSource(database="d.db", sql="FROM t")
    text = refused(private(tmp_path, source, NormalUnknown()))
    assert f"column 'x' holds {kind}; expected numbers" in text


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_whole_numbers_that_float64_cannot_hold(tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"d.{kind}"
    with duckdb.connect(str(file)) if kind == "duckdb" else sqlite3.connect(file) as base:
        base.execute("CREATE TABLE t (x BIGINT)")
        base.execute(f"INSERT INTO t VALUES (1), ({2**53 + 1})")
    base.close()
    source = DataSource(database=file.name, sql="SELECT * FROM t")
    text = refused(private(tmp_path, source, NormalUnknown()))
    assert "record 2 " in text
    assert "above 2^53" in text


@pytest.mark.parametrize("kind", ["csv", "parquet", "ndjson", "sqlite"])
def test_no_records(tmp_path: Path, kind: str) -> None:
    source = DataSource(path=f"d.{kind}")
    if kind == "sqlite":
        base = sqlite3.connect(tmp_path / "d.sqlite")
        base.execute("CREATE TABLE t (x)")
        base.close()
        source = DataSource(database="d.sqlite", sql="SELECT x FROM t")
    elif kind == "parquet":
        duckdb.execute(f"COPY (SELECT 1 AS x LIMIT 0) TO '{tmp_path / 'd.parquet'}'")
    else:
        (tmp_path / f"d.{kind}").write_text("x\n" if kind == "csv" else "")
    text = refused(private(tmp_path, source, BetaBernoulli()), "check")
    assert "has no records" in text or "is missing" in text


def test_too_few_records(tmp_path: Path) -> None:
    source = rows_of(tmp_path, "csv", [])
    data = private(tmp_path, source, BetaBernoulli())
    data.admit()
    text = refused(lambda: data.admit(11))
    assert "has 10 records, fewer than min_records = 11" in text
    assert "set min_records in agent.toml" in text
    check_records("north", 10)
    with pytest.raises(DataError, match="9 records, fewer than min_records = 10"):
        check_records("north", 9)


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    source = rows_of(tmp_path, "csv", [])
    changes = iter(range(3))

    class Busy(PrivateData):
        def fingerprint(self) -> str:
            return super().fingerprint() + str(next(changes, "settled"))

    data = Busy(tmp_path, source, BetaBernoulli(), "north", b"")
    assert "change while they are read" in refused(data, "count")
    assert data.count() == 10


def test_the_settings_name_one_place() -> None:
    for wrong in ({}, {"path": "a", "database": "b", "sql": "c"}, {"database": "b"}, {"sql": "c"}):
        with pytest.raises(ValidationError):
            DataSource(**wrong)
    for wrong in ({"database": "d", "sql": "c", "where": "x"}, {"path": "a", "where": ""}):
        with pytest.raises(ValidationError):
            DataSource(**wrong)


def test_statistics_belong_to_conjugate_models(tmp_path: Path) -> None:
    from unweave.models import BetaExponential

    (tmp_path / "d.csv").write_text("z\n1\n")
    with pytest.raises(ConfigError, match="not conjugate"):
        private(tmp_path, DataSource(path="d.csv"), BetaExponential()).statistics()
    assert np.isfinite(
        private(tmp_path, DataSource(path="d.csv"), BetaExponential()).shard().rows
    ).all()


@pytest.mark.parametrize("kind", ["csv", "ndjson", "sqlite", "duckdb", "parquet"])
def test_records_without_a_key_and_with_anothers_are_counted(tmp_path, kind):
    keys = ["p1", "p1", "p1", "p2", "", None, "p3", "p3"]
    source = DataSource(path=f"d.{kind}", key="id")
    if kind == "csv":
        rows = "".join(f"{key or ''},1\n" for key in keys)
        (tmp_path / "d.csv").write_text("id,x\n" + rows)
    elif kind == "ndjson":
        lines = [json.dumps({"id": key, "x": 1}) for key in keys]
        (tmp_path / "d.ndjson").write_text("\n".join(lines))
    else:
        name = str(tmp_path / f"d.{kind}")
        base = sqlite3.connect(name) if kind == "sqlite" else duckdb.connect(
            ":memory:" if kind == "parquet" else name)  # fmt: skip
        base.execute("CREATE TABLE t (id VARCHAR, x INTEGER)")
        base.executemany("INSERT INTO t VALUES (?, 1)", [(key,) for key in keys])
        if kind == "parquet":
            base.execute(f"COPY t TO '{name}'")
        else:
            source = DataSource(database=f"d.{kind}", sql="SELECT * FROM t", key="id")
        if kind == "sqlite":
            base.commit()
        base.close()
    assert private(tmp_path, source, BetaBernoulli()).named() == (2, 3)
    without = source.model_copy(update={"key": None})
    assert private(tmp_path, without, BetaBernoulli()).named() == (0, 0)
