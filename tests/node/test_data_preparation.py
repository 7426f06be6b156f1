"""Missing values, conditions, queries on files and levels of text, in every kind of source.

The reference is always the same records in memory: filtered by Python and summed by the model.
"""

from __future__ import annotations

import csv
import json
import sqlite3
import traceback
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unweave.errors import ConfigError, DataError
from unweave.models import (
    BetaBinomial,
    LinearRegression,
    LinearRegressionUnknownNoise,
    Model,
    NormalUnknown,
)
from unweave.node.data.private import PrivateData
from unweave.node.data.source import DataSource
from unweave.node.errors import BadLines

SECRET = b"a secret of this test"
KINDS = ("csv", "ndjson", "parquet", "duckdb", "sqlite")
WARDS = ("north", "south", "west")
MODEL = LinearRegression(["dose", "ward"], levels={"ward": WARDS}, target="y", noise=1.0)

Row = tuple[str, float | None, str | None, float | None, int]  # id, dose, ward, y, age


def write(folder: Path, kind: str, rows: list[Row]) -> dict[str, Any]:
    """The records in a file of some kind, as the place of a [data] table."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ("id", "dose", "ward", "y", "age")
    path = folder / f"data.{kind}"
    path.unlink(missing_ok=True)
    if kind == "csv":
        with path.open("w", newline="") as file:
            cells = [["" if v is None else v for v in row] for row in rows]
            csv.writer(file).writerows([names, *cells])
    elif kind == "ndjson":
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
        path.write_text("".join(f"{line}\n" for line in lines))
    elif kind == "sqlite":
        base = sqlite3.connect(path)
        base.execute(f"CREATE TABLE t ({', '.join(names)})")
        base.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
        base.commit()
        base.close()
    else:
        engine = duckdb.connect(str(path) if kind == "duckdb" else ":memory:")
        engine.execute("CREATE TABLE t (id TEXT, dose DOUBLE, ward TEXT, y DOUBLE, age INTEGER)")
        engine.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", [list(row) for row in rows])
        if kind == "parquet":
            engine.execute(f"COPY t TO '{path}'")
        engine.close()
    if kind in ("duckdb", "sqlite"):
        return {"database": path.name, "sql": "SELECT * FROM t"}
    return {"path": path.name}


def opened(folder: Path, model: Model = MODEL, **source: Any) -> PrivateData:
    return PrivateData(folder, DataSource(**source), model, "north", SECRET, threads=2, chunk=7)


def expected(rows: list[Row]) -> list[int]:
    table = [(dose, ward, y) for _, dose, ward, y, _ in rows]
    shard = MODEL.shard(table, missing="drop")
    return MODEL.statistics(shard.rows).tolist()


def complete(row: Row) -> bool:
    return None not in (row[1], row[2], row[3])


_number = st.integers(-40, 40).map(lambda k: k / 8)
tables = st.lists(
    st.tuples(
        st.integers(0, 30).map(lambda k: f"p{k:02}"),
        st.none() | _number,
        st.none() | st.sampled_from(WARDS),
        st.none() | _number,
        st.integers(0, 99),
    ),
    min_size=1,
    max_size=30,
).filter(lambda rows: any(complete(row) and row[4] >= 18 for row in rows))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=tables, chosen=st.sets(st.integers(0, 30), max_size=4))
def test_records_with_a_missing_value_are_left_out_counted_and_stay_erasable(
    tmp_path: Path, kind: str, rows: list[Row], chosen: set[int]
) -> None:
    data = opened(tmp_path, **write(tmp_path, kind, rows), key="id", missing="drop")
    assert data.check() == sum(map(complete, rows))
    assert data.statistics().tolist() == expected(rows)
    assert data.shard().rows.shape == (sum(map(complete, rows)), 4)
    assert data.missing is not None
    assert data.missing.records == sum(not complete(row) for row in rows)
    for j, name in ((1, "dose"), (2, "ward"), (3, "y")):
        assert data.missing.columns.get(name, 0) == sum(row[j] is None for row in rows)
    # A key whose records are all left out is known, too: they may be completed later.
    keys = {f"p{k:02}" for k in chosen}
    here = {row[0] for row in rows}
    dropped, unknown = data.commit_keys(sorted(keys))
    assert set(unknown) == keys - here
    remaining = [row for row in rows if row[0] not in keys]
    if any(map(complete, remaining)):
        assert data.statistics(dropped).tolist() == expected(remaining)
    completed = [(key, dose or 0.0, ward or "west", y or 0.0, age)
                 for key, dose, ward, y, age in rows]  # fmt: skip
    again = opened(tmp_path, **write(tmp_path, kind, completed), key="id", missing="drop")
    left = [row for row in completed if row[0] not in keys]
    assert again.count(dropped) == len(left)
    if left:
        assert again.statistics(dropped).tolist() == expected(left)


@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet"])
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=tables, chosen=st.sets(st.integers(0, 30), max_size=4))
def test_where_and_sql_choose_records_of_files(
    tmp_path: Path, kind: str, rows: list[Row], chosen: set[int]
) -> None:
    place = write(tmp_path, kind, rows)
    grown = [row for row in rows if row[4] >= 18 and row[2] != "west"]
    if not any(map(complete, grown)):
        return
    condition = "age >= 18 AND ward IS DISTINCT FROM 'west'"
    data = opened(tmp_path, **place, key="id", missing="drop", where=condition)
    assert data.check() == sum(map(complete, grown))
    assert data.statistics().tolist() == expected(grown)
    assert data.missing is not None
    assert data.missing.records == sum(not complete(row) for row in grown)
    query = f"SELECT id, dose * 2 AS dose, ward, y FROM data WHERE {condition}"
    doubled = [(k, None if d is None else 2 * d, w, y, a) for k, d, w, y, a in grown]
    if any(d is not None for _, d, _, _, _ in rows):  # else dose is no number: text
        by_sql = opened(tmp_path, **place, key="id", missing="drop", sql=query)
        assert by_sql.statistics().tolist() == expected(doubled)
    # A record outside of the condition can be erased, and stays erased under another condition.
    keys = {f"p{k:02}" for k in chosen} & {row[0] for row in rows}
    dropped, unknown = data.commit_keys(sorted(keys))
    assert not unknown
    everybody = opened(tmp_path, **place, key="id", missing="drop")
    left = [row for row in rows if row[0] not in keys]
    assert everybody.count(dropped) == sum(map(complete, left))
    if any(map(complete, left)):
        assert everybody.statistics(dropped).tolist() == expected(left)


def people(n: int = 40) -> list[Row]:
    return [(f"p{k}", k / 4, WARDS[k % 3], k / 8, 10 + k) for k in range(n)]


@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet"])
def test_lines_count_the_records_that_where_excludes(tmp_path: Path, kind: str) -> None:
    rows = people()
    rows[7] = ("p7", 1.0, "north", None, 5)  # excluded
    rows[30] = ("p30", 1.0, "north", None, 50)
    place = write(tmp_path, kind, rows)
    with pytest.raises(DataError) as caught:
        opened(tmp_path, **place, where="age >= 18").check()
    line = {"csv": "line 32", "ndjson": "line 31"}.get(kind, "record 31 (counted from 1)")
    assert f"{line}, column 'y': the value is missing" in str(caught.value)
    assert "more" not in str(caught.value).partition("Fix")[0]


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_level_is_refused_with_its_line_and_the_known_levels(
    tmp_path: Path, kind: str
) -> None:
    rows = people()
    rows[5] = ("p5", 1.0, "secret-ward-5", 1.0, 50)
    rows[9] = ("p9", 1.0, "North", 1.0, 50)
    place = write(tmp_path, kind, rows)
    for ask in ("check", "statistics", "shard"):
        with pytest.raises(BadLines) as caught:
            getattr(opened(tmp_path, **place, key="id", missing="drop"), ask)()
        text = str(caught.value)
        line = {"csv": "line 7", "ndjson": "line 6"}.get(kind, "record 6 (counted from 1)")
        known = "the value is no known level; expected one of 'north', 'south', 'west'"
        assert f"{line}, column 'ward': {known}" in text
        assert caught.value.total == 2
        shown = "".join(traceback.format_exception(caught.value)) + "".join(caught.value.details)
        assert "secret" not in shown
        assert "North" not in shown


def test_texts_of_levels_are_the_same_in_every_format(tmp_path: Path) -> None:
    """A level "2" is the number 2 in JSON and Parquet, and the text 2 in CSV."""
    model = LinearRegressionUnknownNoise(["ward"], levels={"ward": [1, 2, 3]})
    assert model.feature_names == ("ward[2]", "ward[3]")
    found = set()
    for kind in KINDS:
        rows = [(f"p{k}", 0.0, 1 + k % 3, float(k), 0) for k in range(12)]
        if kind in ("parquet", "duckdb"):
            rows = [(i, d, str(w), y, a) for i, d, w, y, a in rows]
        place = write(tmp_path, kind, rows)  # type: ignore[arg-type]
        found.add(tuple(opened(tmp_path, model, **place).statistics().tolist()))
    table = {"ward": [1 + k % 3 for k in range(12)], "y": range(12)}
    found.add(tuple(model.statistics(model.shard(table).rows).tolist()))
    assert len(found) == 1


# ---------------------------------------------------------------------------- all bad lines


def test_all_bad_lines_are_listed(tmp_path: Path) -> None:
    rows = ["0.5", *("a", "", "1e999") * 20, "0.25"]
    (tmp_path / "d.csv").write_text("x\n" + "".join(f"{cell},\n" for cell in rows).replace(",", ""))
    with pytest.raises(BadLines) as caught:
        opened(tmp_path, NormalUnknown(), path="d.csv").check()
    error = caught.value
    assert error.total == 60
    assert len(error.listed) == 20
    assert error.listed[0] == "line 3, column 'x': the value is not a number"
    assert error.listed[1] == "line 4, column 'x': the value is missing"
    assert error.listed[2] == "line 5, column 'x': the value is infinite"
    assert error.listed[19].startswith("line 22, ")
    assert "59 more: line 4, line 5, " in str(error)
    assert "missing values by column: x 20" in str(error)
    assert error.details[-1].strip() == "… and 40 more"


def test_all_malformed_lines_are_listed(tmp_path: Path) -> None:
    body = "x,id\n" + "1,a\n2\n" * 30 + "3,b,c\n" + '4,"d" e\n'
    (tmp_path / "d.csv").write_text(body)
    with pytest.raises(BadLines) as caught:
        opened(tmp_path, NormalUnknown(), path="d.csv").check()
    error = caught.value
    assert error.total == 32
    assert error.listed[:2] == [
        "line 3: has 1 field, but the header has 2",
        "line 5: has 1 field, but the header has 2",
    ]
    assert len(error.listed) == 20


def test_bad_lines_of_several_files_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("successes,trials\n1,2\n5,4\n")
    (tmp_path / "b.csv").write_text("successes,trials\n1,2\n9,4\nx,3\n")
    with pytest.raises(BadLines) as caught:
        opened(tmp_path, BetaBinomial(), path="*.csv").check()
    assert [line.partition(", column")[0] for line in caught.value.listed] == [
        "a.csv, line 3",
        "b.csv, line 3",
        "b.csv, line 4",
    ]


# --------------------------------------------------------------------------- wrong conditions


@pytest.mark.parametrize(
    "where",
    [
        "nothing > 3",
        "age > ",
        "age >= 18; DROP TABLE t",
        "1) UNION SELECT (1",
        "ward > 3",
        "dose > (SELECT COUNT(*) FROM read_csv('/etc/hostname'))",
        "getenv('HOME') = ''",
    ],
)
@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet"])
def test_conditions_that_do_not_fit_are_refused(tmp_path: Path, kind: str, where: str) -> None:
    place = write(tmp_path, kind, people())
    with pytest.raises(DataError) as caught:
        opened(tmp_path, **place, where=where).check()
    assert "where" in str(caught.value)
    assert "p1" not in str(caught.value)


def test_a_condition_that_fails_on_a_record_quotes_nothing(tmp_path: Path) -> None:
    rows = people()
    rows[5] = ("secret-p5", 1.0, "north", 1.0, 50)
    for kind in ("csv", "parquet", "ndjson"):
        place = write(tmp_path, kind, rows)
        with pytest.raises(DataError) as caught:
            opened(tmp_path, **place, where="CAST(id AS INTEGER) > 3").check()
        assert "where fails on a record" in str(caught.value)
        assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_a_text_column_is_a_number_if_all_its_cells_are(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("x,code,part,gone\n1,007,1.5,\n2,008,,\n4,100,2.5,\n")
    model = NormalUnknown()

    def chosen(where: str) -> list[float]:
        rows = opened(tmp_path, model, path="d.csv", where=where).shard().rows
        return rows[:, 0].tolist()

    assert chosen("part > 1.75") == [4.0]
    assert chosen("code LIKE '00%'") == [1.0, 2.0]
    assert chosen("code = '008'") == [2.0]
    assert chosen("gone IS NULL AND x >= 2") == [2.0, 4.0]
    with pytest.raises(DataError, match="where is not a condition"):
        chosen("code > 7")


def test_a_decimal_comma_in_a_condition(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("x;part\n1;1,5\n2;2,5\n")
    source = {"path": "d.csv", "delimiter": ";", "decimal": ","}
    data = opened(tmp_path, NormalUnknown(), **source, where="part > 2")
    assert data.shard().rows.tolist() == [[2.0]]


def test_sql_over_several_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,kind\n1,a\n2,b\n")
    (tmp_path / "b.csv").write_text("kind,x,more\na,3,1\nb,4,2\n")
    sql = "SELECT 10 * x AS x FROM data WHERE kind = 'a' ORDER BY x"
    data = opened(tmp_path, NormalUnknown(), path="*.csv", sql=sql)
    assert data.shard().rows[:, 0].tolist() == [10.0, 30.0]
    (tmp_path / "b.csv").write_text("kind,x,more\na,3,1\nb,4\n")
    with pytest.raises(DataError, match=r"b\.csv, line 3: has 2 fields"):
        opened(tmp_path, NormalUnknown(), path="*.csv", sql=sql).check()
    with pytest.raises(DataError, match="sql does not fit the data"):
        opened(tmp_path, NormalUnknown(), path="a.csv", sql="SELECT x FROM other").check()
    with pytest.raises(DataError, match="other than the agent's own data"):
        sql = "SELECT 1 AS x FROM read_csv('/etc/hostname')"
        opened(tmp_path, NormalUnknown(), path="a.csv", sql=sql).check()


def test_nan_in_parquet_is_missing(tmp_path: Path) -> None:
    duckdb.execute(
        f"COPY (SELECT unnest([1.0, 'nan'::DOUBLE, 2.0, NULL]) AS x) TO '{tmp_path / 'd.parquet'}'"
    )
    data = opened(tmp_path, NormalUnknown(), path="d.parquet", missing="drop")
    assert data.check() == 2
    assert data.missing is not None
    assert data.missing.columns == {"x": 2}


def test_no_record_is_complete(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("x,id\n,1\n,2\n")
    with pytest.raises(DataError, match=r"no records: 2 records dropped, .*\(x 2\)"):
        opened(tmp_path, NormalUnknown(), path="d.csv", missing="drop").check()


# --------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    "levels",
    [
        {"ward": ["a"]},
        {"ward": ["a", "a"]},
        {"site": ["a", "b"]},
        {"ward": "a"},
        ["a"],
        {"ward": 3},
    ],
)
def test_wrong_levels(levels: Any) -> None:
    with pytest.raises(ConfigError, match="Fix: "):
        LinearRegression(["ward"], levels=levels)


def test_the_reference_level_is_the_first(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    ward = rng.choice(WARDS, 4000)
    y = np.select([ward == "south", ward == "west"], [3.0, -2.0], 1.0) + 0.1 * rng.normal(size=4000)
    model = LinearRegression(["ward"], levels={"ward": WARDS}, intercept=True, noise=0.1, sd=10)
    shard = model.shard({"ward": ward, "y": y})
    post = model.posterior(model.grid.add(model.eta0, model.factor(shard)))
    assert [row.name for row in post.table()] == ["intercept", "ward[south]", "ward[west]"]
    assert np.allclose(post.mean(), [1.0, 2.0, -3.0], atol=0.02)
    predicted = post.predict({"ward": ["north", "west"]}).mean()
    assert np.allclose(predicted, [1.0, -2.0], atol=0.02)
    with pytest.raises(DataError, match=r"column 'ward', row 1: the value is no known level"):
        post.predict({"ward": ["north", "secret"]})
