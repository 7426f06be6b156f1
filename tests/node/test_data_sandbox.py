"""An agent's settings reach the agent's own files and nothing else."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from unweave.errors import DataError
from unweave.models import BetaBernoulli
from unweave.node.data import duckdb_reader as data_duck
from unweave.node.data.private import PrivateData
from unweave.node.data.reader import Selection
from unweave.node.data.source import DataSource

SELECTION = Selection("north", BetaBernoulli(), ("x",), None)

OUTSIDE = [
    "SELECT * FROM read_csv('/etc/hostname')",
    "SELECT * FROM read_text('/etc/hostname')",
    "SELECT * FROM '{other}'",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM parquet_metadata('{other}')",
    "SELECT * FROM sniff_csv('{other}')",
    "ATTACH '{folder}/new.db'",
    "ATTACH ':memory:' AS more; ATTACH '{folder}/more.db'",
    "COPY (SELECT 1) TO '{folder}/out.csv'",
    "COPY (SELECT 1) TO '{folder}/d.csv'",
    "EXPORT DATABASE '{folder}/all'",
    "INSTALL sqlite",
    "INSTALL httpfs FROM community",
    "LOAD sqlite",
    "SET enable_external_access = true",
    "SET allowed_paths = ['/etc/hostname']",
    "SET lock_configuration = false",
    "SET temp_directory = '/tmp'",
    "SELECT * FROM variable_of_python",
    "SELECT getenv('HOME')",
]


@pytest.mark.parametrize("sql", OUTSIDE)
def test_the_engine_is_shut_in(tmp_path: Path, sql: str) -> None:
    folder = tmp_path / "north"
    folder.mkdir()
    (folder / "d.csv").write_text("x\n1\n")
    other = tmp_path / "other.csv"
    other.write_text("x\n1\n")
    variable_of_python = pd.DataFrame({"x": [1]})
    source = DataSource(path="d.csv")
    before = sorted(tmp_path.rglob("*"))
    with data_duck.open_duck(folder, source, [folder / "d.csv"], SELECTION, 1) as reader:
        assert reader.count(frozenset()) == 1
        with pytest.raises(duckdb.Error):
            reader._connection.execute(sql.format(other=other, folder=folder)).fetchall()
        assert reader.count(frozenset()) == 1
    assert sorted(tmp_path.rglob("*")) == before
    assert (folder / "d.csv").read_text() == "x\n1\n"
    assert len(variable_of_python) == 1


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/hostname')",
        "SELECT x FROM t; DROP TABLE t",
        "DROP TABLE t",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO t VALUES (1) RETURNING x",
        "ATTACH 'more.db' AS more",
        "COPY t TO 'out.csv'",
        "PRAGMA journal_mode = DELETE",
        "SELECT load_extension('libevil.so')",
        "SELECT 1) UNION (SELECT 2",
        "SELECT nextval('s') AS x",
        "SELECT y FROM t",
        "SELECT x FROM u",
        "",
    ],
)
def test_sql_only_selects_from_its_database(tmp_path: Path, kind: str, sql: str) -> None:
    file = tmp_path / f"d.{kind}"
    with duckdb.connect(str(file)) if kind == "duckdb" else sqlite3.connect(file) as base:
        base.execute("CREATE TABLE t AS SELECT 1 AS x")
        if kind == "duckdb":
            base.execute("CREATE SEQUENCE s")
    base.close()
    before = file.read_bytes()
    data = PrivateData(
        tmp_path, DataSource(database=file.name, sql=sql), BetaBernoulli(), "north", b""
    )
    with pytest.raises(DataError, match="'north'") as caught:
        data.check()
    assert any(word in str(caught.value) for word in ("sql", "cannot be read"))
    assert file.read_bytes() == before
    assert [f.name for f in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize("path", ["../other.csv", "/etc/hostname", "a/../../other.csv", "../*.csv"])
def test_paths_stay_inside_the_folder(tmp_path: Path, path: str) -> None:
    (tmp_path / "other.csv").write_text("x\n1\n")
    (tmp_path / "north").mkdir()
    data = PrivateData(tmp_path / "north", DataSource(path=path), BetaBernoulli(), "north", b"")
    with pytest.raises(DataError, match="outside of the agent's folder"):
        data.check()


def test_names_of_files_and_columns_are_only_names(tmp_path: Path) -> None:
    folder = tmp_path / "it's [one] of?"
    folder.mkdir()
    column = "x\") FROM read_csv('/etc/hostname') --"
    header = '"' + column.replace('"', '""') + '"'
    (folder / "a'b.csv").write_text(f"{header}\n1\n0\n")
    source = DataSource(path="a'b.csv", columns={"x": column})
    assert PrivateData(folder, source, BetaBernoulli(), "north", b"").count() == 2
    quoted = duckdb.sql("SELECT 1 AS x")
    quoted.project("x AS " + '"' + column.replace('"', '""') + '"').to_parquet(
        str(tmp_path / "p.parquet")
    )
    source = DataSource(path="p.parquet", columns={"x": column})
    assert PrivateData(tmp_path, source, BetaBernoulli(), "north", b"").check() == 1


def test_a_database_is_released_after_each_look(tmp_path: Path) -> None:
    """Its owner writes to it while the agent runs."""
    file = tmp_path / "d.duckdb"
    source = DataSource(database=file.name, sql="SELECT x FROM t")
    data = PrivateData(tmp_path, source, BetaBernoulli(), "north", b"")
    for n in (1, 2):
        with duckdb.connect(str(file)) as base:
            base.execute("CREATE TABLE IF NOT EXISTS t (x INTEGER)")
            base.execute("INSERT INTO t VALUES (1)")
        assert data.check() == n
        assert not data.refresh()


def test_something_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "d.db").write_text("SECRET text")
    source = DataSource(database="d.db", sql="SELECT 1 AS x")
    with pytest.raises(DataError, match="neither a DuckDB nor a SQLite database"):
        PrivateData(tmp_path, source, BetaBernoulli(), "north", b"").check()
    (tmp_path / "d.db").write_bytes(b"SQLite format 3\0" + b"SECRET" * 99)
    with pytest.raises(DataError, match="damaged") as caught:
        PrivateData(tmp_path, source, BetaBernoulli(), "north", b"").check()
    assert "SECRET" not in str(caught.value)
