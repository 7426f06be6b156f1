"""No text quotes a record: values that occur nowhere else are put into files that are broken in
every way, and looked for in every error, log, report and answer, and in what an agent stores.

A canary is in the key, in the values and in the other columns of every record.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from tests.support.commands import run_command
from tests.support.processes import Processes

from unweave import Federation
from unweave.errors import UnweaveError
from unweave.models import BetaBernoulli, DirichletCategorical, GammaExponential
from unweave.node.agent import open_data, open_identity
from unweave.node.config import AgentFolder
from unweave.operations.create import create_network
from unweave.operations.shares import Columns
from unweave.operations.split import Records
from unweave.sharding import partition

KEY, TEXT, NUMBER = "zyxwanda", "qqvalue", "918273645"
CANARIES = (KEY, TEXT, "918273", "9.1827")
GOOD = 12  # records before the bad one


def silent(text: str, what: object = "") -> None:
    """No canary in this text."""
    for canary in CANARIES:
        at = text.lower().find(canary)
        assert at < 0, (what, canary, text[max(0, at - 300) : at + 60])


# ------------------------------------------------------------------------- files of every kind

Table = dict[str, Callable[[Path], None]]


def lines(*bad: str, head: str = "id,x,note\n", good: str = "{k},{v},n\n") -> bytes:
    rows = "".join(good.format(k=f"{KEY}{k}", v=k % 2) for k in range(GOOD))
    return (head + rows + "".join(bad)).encode()


CSV: dict[str, bytes] = {
    "no header": lines(f"{KEY}a,{NUMBER},{TEXT}\n", head=""),
    "no header, first record bad": lines(head=f"{KEY}a,{TEXT},{TEXT}\n"),
    "no header, one field": f"{KEY}\n{TEXT}\n{NUMBER}\n".encode(),
    "no header, first field a name": lines(head=f"x,{KEY},{TEXT}\n"),
    "wrong delimiter": lines(head="id;x;note\n", good="{k};{v};" + TEXT + "\n"),
    "wrong delimiter, no header": lines(head="", good="{k};{v};" + TEXT + "\n"),
    "names nearly": lines(head="ID,X ,note\n"),
    "text for a number": lines(f"{KEY}a,{TEXT},n\n"),
    "number out of range": lines(f"{KEY}a,-{NUMBER},n\n"),
    "number with a unit": lines(f"{KEY}a,{NUMBER} kg,n\n"),
    "decimal comma": lines(f'{KEY}a,"{NUMBER},5",n\n'),
    "too many digits": lines(f"{KEY}a,{NUMBER * 30},n\n"),
    "huge": lines(f"{KEY}a,{NUMBER}e299,n\n"),
    "not a number": lines(f"{KEY}a,nan,{TEXT}\n"),
    "infinite": lines(f"{KEY}a,-inf,{TEXT}\n"),
    "empty value": lines(f"{KEY}a,,{TEXT}\n"),
    "empty key": lines(f",{NUMBER},{TEXT}\n"),
    "same key": lines(f"{KEY}1,{NUMBER},{TEXT}\n"),
    "too few fields": lines(f"{KEY}a\n"),
    "too many fields": lines(f"{KEY}a,{NUMBER},{TEXT},{TEXT},{NUMBER}\n"),
    "stray quote": lines(f'{KEY}"a,"{NUMBER}"x,{TEXT}\n'),
    "open quote": lines(f'"{KEY}a,{NUMBER},{TEXT}\n'),
    "long line": lines(f"{KEY}a,{NUMBER},{TEXT * 300_000}\n"),
    "other ending": lines(f"{KEY}a,{NUMBER},{TEXT}\r\n", f"{KEY}b,1,{TEXT}\r\n"),
    "zero byte": lines(f"{KEY}\0a,{NUMBER}\0,{TEXT}\n"),
    "latin-1": lines() + f"{KEY}é,{TEXT},n\n".encode("latin-1"),
    "utf-16": lines(f"{KEY}a,{NUMBER},{TEXT}\n").decode().encode("utf-16"),
    "utf-16, no header": lines(head="").decode().encode("utf-16"),
    "same name twice": lines(head="id,x,x\n"),
    "only a record": f"{KEY}a,{NUMBER},{TEXT}".encode(),
    "nothing": b"",
}
GZIP = {
    "compressed": gzip.compress(CSV["no header"]),
    "compressed and cut": gzip.compress(CSV["text for a number"])[:-20],
    "not compressed": CSV["no header"],
}


def objects(*bad: str) -> bytes:
    rows = [{"id": f"{KEY}{k}", "x": k % 2, "note": TEXT} for k in range(GOOD)]
    return ("".join(json.dumps(row) + "\n" for row in rows) + "".join(bad)).encode()


JSON: dict[str, bytes] = {
    "people as keys": f'{{"{KEY}": {NUMBER}, "{TEXT}": 1}}\n'.encode(),
    "text for a number": objects(f'{{"id": "{KEY}", "x": "{TEXT}"}}\n'),
    "digits as text": objects(f'{{"id": "{KEY}", "x": "{NUMBER}"}}\n'),
    "out of range": objects(f'{{"id": "{KEY}", "x": -{NUMBER}}}\n'),
    "huge": objects(f'{{"id": "{KEY}", "x": {NUMBER}e299}}\n'),
    "too many digits": objects(f'{{"id": "{KEY}", "x": {NUMBER * 30}}}\n'),
    "NaN": objects(f'{{"id": "{KEY}", "x": NaN, "note": "{TEXT}"}}\n'),
    "nested": objects(f'{{"id": ["{KEY}"], "x": {{"{TEXT}": {NUMBER}}}}}\n'),
    "cut": objects(f'{{"id": "{KEY}", "x": {NUMBER}, "note": "{TEXT}'),
    "no JSON": objects(f"{KEY}, {NUMBER}, {TEXT}\n"),
    "a list": objects(f'["{KEY}", {NUMBER}, "{TEXT}"]\n'),
    "name twice": objects(f'{{"id": "{KEY}", "x": {NUMBER}, "x": "{TEXT}"}}\n'),
    "null": objects(f'{{"id": null, "x": {NUMBER}}}\n', f'{{"id": "{KEY}", "x": null}}\n'),
    "latin-1": objects() + f'{{"id": "{KEY}é", "x": {NUMBER}}}\n'.encode("latin-1"),
    "utf-16": objects().decode().encode("utf-16"),
    "csv": CSV["no header"],
}


def sql(name: str, rows: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with duckdb.connect() as engine:
            engine.execute(f"COPY ({rows}) TO '{path}' (FORMAT parquet)")

    write.__name__ = name
    return write


GOODS = f"SELECT '{KEY}' || i AS id, i % 2 AS x FROM range({GOOD}) t(i)"
PARQUET = {
    "text for a number": sql("t", f"SELECT '{KEY}' AS id, '{TEXT}' AS x"),
    "out of range": sql("r", f"{GOODS} UNION ALL SELECT '{KEY}a', -{NUMBER}"),
    "whole and wide": sql("w", f"SELECT '{KEY}' AS id, {NUMBER}{NUMBER} AS x"),
    "infinite": sql("i", f"SELECT '{KEY}' AS id, CAST('inf' AS DOUBLE) AS x"),
    "null": sql("n", f"{GOODS} UNION ALL SELECT '{KEY}a', NULL"),
    "no key": sql("k", f"{GOODS} UNION ALL SELECT NULL, 1"),
    "same key": sql("s", f"{GOODS} UNION ALL SELECT '{KEY}1', 1"),
    "nested": sql("l", f"SELECT ['{KEY}'] AS id, [{NUMBER}] AS x"),
    "other columns": sql("o", f"SELECT '{KEY}' AS a, {NUMBER} AS b"),
    "garbage": lambda path: path.write_bytes(b"PAR1" + CSV["no header"] + b"PAR1") and None,
}


def duck(path: Path, statements: str) -> None:
    with duckdb.connect(str(path)) as base:
        base.execute(statements)


def lite(path: Path, *statements: str) -> None:
    base = sqlite3.connect(path)
    for statement in statements:
        base.execute(statement)
    base.commit()
    base.close()


ROWS = f"INSERT INTO t VALUES ('{KEY}1', '1', '{TEXT}'), ('{KEY}2', '{TEXT}', '{NUMBER}')"
QUERIES = (
    "SELECT id, x FROM t",
    "SELECT id, CAST(x AS INTEGER) AS x FROM t",
    "SELECT id, CAST(note AS INTEGER) / 0 AS x FROM t",
    "SELECT id, abs(x) AS x FROM t",
    "SELECT id, note AS x FROM t",
    "SELECT * FROM t WHERE x > (SELECT id FROM t)",
    f"SELECT id, json(x) AS x FROM t WHERE id = '{KEY[:2]}' OR 1",
    "SELECT id FROM t",
    "SELECT x FROM nothing",
    "no sql",
)


# --------------------------------------------------------------------------------- commands


def model_of(real: bool) -> Any:
    return GammaExponential() if real else BetaBernoulli()


def agent(tmp_path: Path, data: dict[str, Any], real: bool = False, model: Any = None) -> Path:
    """A network of one agent with this [data] table."""
    root = tmp_path / "net"
    shutil.rmtree(root, ignore_errors=True)
    create_network(
        root,
        name="net",
        model=model or model_of(real),
        agents=["a1"],
        addresses=["127.0.0.1:1"],
        data={"a1": data},
    )
    return root


def read_all(root: Path) -> None:
    """The same without the commands around it, which take longer."""
    folder = AgentFolder.read(root / "agents" / "a1")
    data = open_data(folder, open_identity(folder))
    for read in (
        data.check,
        data.shard,
        data.named,
        lambda: data.commit_keys([KEY, NUMBER]),
        lambda: data.count(frozenset({bytes(16)})),
    ):
        try:
            read()
        except UnweaveError as error:
            silent(str(error))


def ask_all(root: Path) -> None:
    """Every command that reads an agent's data, in a network that does not run."""
    home = root / "agents" / "a1"
    for words in (("check", root), ("check", home, "--json")):
        done = run_command(*words)
        silent(done.out + done.err, words)


@pytest.mark.parametrize("real", [False, True], ids=["bernoulli", "exponential"])
@pytest.mark.parametrize(
    ("ending", "kinds"), [("csv", CSV), ("csv.gz", GZIP), ("ndjson", JSON), ("json", JSON)]
)
def test_text_files(tmp_path, ending, kinds, real):
    text_files(tmp_path, ending, kinds, real, {"no header", "compressed", "people as keys"})


@pytest.mark.slow
@pytest.mark.parametrize("real", [False, True], ids=["bernoulli", "exponential"])
@pytest.mark.parametrize(
    ("ending", "kinds"), [("csv", CSV), ("csv.gz", GZIP), ("ndjson", JSON), ("json", JSON)]
)
def test_text_files_by_commands(tmp_path, ending, kinds, real):
    text_files(tmp_path, ending, kinds, real, set(kinds))


def text_files(
    tmp_path: Path, ending: str, kinds: dict[str, bytes], real: bool, by_commands: set[str]
) -> None:
    name = f"data.{ending}"
    root = agent(tmp_path, {"path": name, "key": "id"}, real)
    path = root / "agents" / "a1" / name
    for kind, content in kinds.items():
        path.write_bytes(content)
        read_all(root)
        try:
            Columns(model_of(real), {}, "id").try_on(Records(path))
        except UnweaveError as error:
            silent(str(error), kind)
        if kind in by_commands:
            ask_all(root)
            split(tmp_path, path, kind, real)


@pytest.mark.parametrize("real", [False, True], ids=["bernoulli", "exponential"])
def test_parquet(tmp_path, real):
    root = agent(tmp_path, {"path": "data.parquet", "key": "id"}, real)
    for kind, write in PARQUET.items():
        write(root / "agents" / "a1" / "data.parquet")
        read_all(root)
        split(tmp_path, root / "agents" / "a1" / "data.parquet", kind, real)


def split(tmp_path: Path, path: Path, kind: str, real: bool) -> None:
    """`init --data` in its several ways."""
    model = ("--model", "gamma-exponential") if real else ()
    ways: tuple[tuple[object, ...], ...] = (
        ("--key", "id", "--split", "by-label", "--json"),
        ("--column", "x=note"),
        (*(("--scale", "auto") if real else ()), "--decimal", ","),
    )
    for way in ways[: 3 if real or "header" in kind else 1]:
        out = tmp_path / "new"
        shutil.rmtree(out, ignore_errors=True)
        done = run_command("init", out, "--agents", "2", "--data", path, *model, *way)
        silent(done.out + done.err, (kind, way))
        if done.code == 0:
            for file in (out / "network.toml", *out.glob("agents/*/agent.toml")):
                silent(file.read_text(), (kind, file.name))


CONDITIONS = ("x > 0", "CAST(note AS INTEGER) > 0", "note > 3", f"id <> '{KEY[:2]}'", "no column")


@pytest.mark.parametrize("ending", ["csv", "ndjson", "parquet"])
def test_conditions_levels_and_missing_values(tmp_path, ending):
    """With every kind of broken file, a condition, a query, levels, and incomplete records."""
    tables = [{"where": condition} for condition in CONDITIONS]
    tables += [{"sql": query.replace("FROM t", "FROM data")} for query in QUERIES[:5]]
    tables += [{"missing": "drop"}, {"columns": {"x": "note"}}]
    kinds: dict[str, Any] = {"csv": CSV, "ndjson": JSON, "parquet": PARQUET}[ending]
    model = DirichletCategorical(classes=["0", "1"])
    for number, table in enumerate(tables):
        name = f"data.{ending}"
        root = agent(tmp_path, {"path": name, "key": "id", **table}, model=model)
        path = root / "agents" / "a1" / name
        for kind in list(kinds)[number::4]:
            content = kinds[kind]
            content(path) if callable(content) else path.write_bytes(content)
            read_all(root)
            if kind in ("text for a number", "out of range"):
                ask_all(root)


@pytest.mark.parametrize("engine", ["duckdb", "sqlite"])
def test_databases(tmp_path, engine):
    for query in QUERIES:
        root = agent(tmp_path, {"database": "d.db", "sql": query, "key": "id"}, real=True)
        path = root / "agents" / "a1" / "d.db"
        if engine == "duckdb":
            duck(path, f"CREATE TABLE t (id TEXT, x TEXT, note TEXT); {ROWS}")
        else:
            lite(path, "CREATE TABLE t (id, x, note)", ROWS)
        read_all(root)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2 :] = CSV["no header"] * 9
    path.write_bytes(raw)
    ask_all(root)
    path.write_bytes(CSV["no header"])
    ask_all(root)


# ------------------------------------------------------------------------------ a running agent


def test_a_running_agent(tmp_path):
    """Learn, watch, start again, erase: with every broken file in turn."""
    with Processes(tmp_path / "net", agents=1) as net:
        home = net.folder("a1")
        settings = home / "agent.toml"
        settings.write_text("watch = 0.05\nlog_bytes = 0\n" + settings.read_text())
        net.start()
        assert net.settled() == {net.expected()}
        good = (home / "data.csv").read_bytes()
        for kind, content in CSV.items():
            part = home / "data.part"
            part.write_bytes(content)
            part.replace(home / "data.csv")
            try:
                net.ask("a1", "learn")
            except UnweaveError as error:
                silent(str(error), kind)
            try:
                net.ask("a1", "erase", keys=[f"{KEY}nobody", NUMBER])
            except UnweaveError as error:
                silent(str(error), kind)
            else:
                raise AssertionError("a key that is not there was erased")
            silent(json.dumps(net.ask("a1", "status")), kind)
        for words in (("status", net.root), ("learn", net.root), ("learn", home, "--json")):
            done = run_command(*words)
            silent(done.out + done.err, words)
        for kind, text in KEYS_FILES.items():
            keys = tmp_path / "keys.txt"
            keys.write_bytes(text)
            for how in ((), ("--json",)):
                done = run_command("forget", net.root, "a1", "--records", keys, *how)
                assert done.code != 0
                silent(done.out + done.err, (kind, how))
        net.stop()
        net.children["a1"].start()  # with data that cannot be used
        net.ready("a1")
        assert "the data cannot be used" in net.log("a1")
        net.stop()
        (home / "data.csv").write_bytes(good)
        net.start()
        assert net.settled() == {net.expected()}
        net.stop()
        silent(net.log("a1"), "agent.log")
        for file in home.rglob("*"):
            if file.is_file() and file.name != "data.csv":
                raw = file.read_bytes()
                for canary in (KEY, TEXT, NUMBER):
                    assert canary.encode() not in raw, file


KEYS_FILES = {
    "not there": f"{KEY}nobody\n{NUMBER}\n{TEXT}\n".encode(),
    "twice": f"{KEY}nobody\n{KEY}nobody\n".encode(),
    "with columns": f"{KEY}nobody,{NUMBER},{TEXT}\n".encode(),
    "utf-16": f"{KEY}nobody\n".encode("utf-16"),
    "latin-1": f"{KEY}é\n".encode("latin-1"),
    "zero byte": f"{KEY}\0\n".encode(),
    "long": (KEY * 100_000).encode(),
}


def test_up(tmp_path):
    root = agent(tmp_path, {"path": "data.csv", "key": "id"})
    for kind in ("no header",):
        (root / "agents" / "a1" / "data.csv").write_bytes(CSV[kind])
        for how in ((), ("--json",)):
            done = run_command("up", root, "--timeout", "30", *how)
            assert done.code != 0
            silent(done.out + done.err, kind)
        silent((root / "agents" / "a1" / "agent.log").read_text(), kind)
        done = run_command("agent", root / "agents" / "a1")
        assert done.code == 2
        silent(done.out + done.err, kind)


def test_the_owner_looks_for_records_in_a_certificate(tmp_path):
    from tests.cli.test_verify_records import VECTORS
    from tests.support.certificates import fixed_identity

    home = tmp_path / "south"
    home.mkdir()
    fixed_identity("south").save(home)
    for kind, text in KEYS_FILES.items():
        keys = tmp_path / "keys.txt"
        keys.write_bytes(text)
        for how in ((), ("--json",)):
            words = ("-n", VECTORS, "--records", keys, "--agent", home, *how)
            done = run_command("verify", VECTORS / "certificate.json", *words)
            silent(done.out + done.err, kind)


# -------------------------------------------------------------------------------- in memory

TABLES: tuple[Any, ...] = (
    TEXT,
    {KEY},
    {KEY: [1, 0], TEXT: [0, 1]},
    {"X ": [1, 0], KEY: [0, 1]},
    {"x": [1, TEXT]},
    {"x": [1, float(NUMBER)]},
    {"x": [int(NUMBER * 30)]},
    {"x": TEXT},
    {"x": [[1, 2], [int(NUMBER)]]},
    {"x": {KEY: 1}},
    {"x": [1], KEY: [1, 2]},
    [TEXT, 1],
    [float(NUMBER) * 1e290],
    [(KEY, 1), (KEY, 0)],
    np.array([float(NUMBER), np.nan]),
    np.array([f"{KEY}"]),
    float(NUMBER),
)


@pytest.mark.parametrize("model", [BetaBernoulli(), GammaExponential()], ids=["0/1", "real"])
def test_tables_in_memory(model):
    for table in TABLES:
        for build in (
            lambda table=table: Federation(model, [table, table]),
            lambda table=table: Federation(model, {"a": table, "b": [1.0]}),
            lambda table=table: partition(table, 2),
            # The keys of a mapping are the names of agents there.
            lambda table=table: None if isinstance(table, dict) else Federation(model, table),
        ):
            try:
                build()
            except UnweaveError as error:
                silent(str(error), table)
            except Exception as error:
                raise AssertionError((table, type(error))) from error
