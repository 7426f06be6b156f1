"""`unweave init`: what it makes of each kind of file, what it refuses, and no halves."""

import gzip
import json
import os
import socket
import tomllib
from pathlib import Path

import numpy as np
import pytest

from unweave.models import LinearRegression
from unweave.node.agent import open_data, open_identity
from unweave.node.config import AgentFolder
from unweave.operations import create as layout
from unweave.operations.shares import Columns, data_ranges

ROWS = [{"id": f"p{k}", "ill": int(k % 3 == 0)} for k in range(36)]


def csv_text(mark: str = ",") -> str:
    return "".join(f"{a}{mark}{b}\n" for a, b in [("id", "ill"), *(r.values() for r in ROWS)])


def write(folder: Path, name: str) -> Path:
    """The same records in each kind of file."""
    path = folder / name
    if name.endswith(".parquet"):
        import duckdb

        with duckdb.connect() as engine:
            engine.execute("CREATE TABLE t (id VARCHAR, ill INTEGER)")
            engine.executemany("INSERT INTO t VALUES (?, ?)", [list(r.values()) for r in ROWS])
            engine.execute(f"COPY t TO '{path}' (FORMAT parquet)")
    elif ".json" in name and "l" not in name:
        path.write_text(json.dumps(ROWS, indent=1))
    elif "json" in name:
        path.write_text("\n".join(map(json.dumps, ROWS)) + "\n\n")
    elif name.endswith(".gz"):
        path.write_bytes(gzip.compress(csv_text().encode()))
    else:
        text = csv_text(
            {"s": "\t", "semicolons.csv": ";"}.get(name, "\t" if "tsv" in name else ",")
        )
        path.write_bytes(b"\xef\xbb\xbf" + text.encode() if "bom" in name else text.encode())
    return path


NAMES = ("visits.csv", "bom.csv", "semicolons.csv", "visits.tsv", "visits.csv.gz", "v.ndjson",
         "v.jsonl", "v.json", "v.parquet")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_one_file_is_split(unweave, tmp_path, name):
    data, net = write(tmp_path, name), tmp_path / "net"
    words = ("--agents", "3", "--data", data, "--key", "id", "--column", "x=ill")
    done = unweave("init", net, *words, "--split", "sorted", "--json")
    assert done.code == 0, done.err
    assert [a["records"] for a in done.json["agents"].values()] == [12, 12, 12]
    checked = unweave("check", net, "--json")
    assert checked.json["ok"], checked.json
    assert [c["note"] for c in checked.json["checks"] if c["what"] == "data"] == ["12 records"] * 3
    # By the model's last column: nobody of the first agent is ill, everybody of the last one is.
    from unweave.node.agent import open_data, open_identity
    from unweave.node.config import AgentFolder

    ill, keys = [], []
    for agent in ("a1", "a2", "a3"):
        folder = AgentFolder.read(net / "agents" / agent)
        shard = open_data(folder, open_identity(folder))
        ill.append(shard.shard().rows.sum())
        keys.append(shard.commit_keys([r["id"] for r in ROWS])[1])
    assert ill == [0, 0, 12]
    assert sum(len(ROWS) - len(unknown) for unknown in keys) == len(ROWS), "each record once"


def test_records_keep_their_text(unweave, tmp_path):
    text = ['{"id": 1e2, "x": 1,  "at": "2024-01-01T00:00:00Z"}', '{"x": 0.0, "id": "007"}']
    data = tmp_path / "v.ndjson"
    data.write_text("\n".join(text) + "\n")
    assert unweave("init", tmp_path / "net", "--agents", "2", "--data", data).code == 0
    found = [f.read_text() for f in sorted(tmp_path.glob("net/agents/*/data.ndjson"))]
    assert sorted(found) == sorted(line + "\n" for line in text)


def test_a_folder_with_a_file_for_each(unweave, tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    (folder / "north.csv").write_text(csv_text())
    os.rename(write(folder, "v.ndjson"), folder / "east.ndjson")
    words = ("--agents", "north,east", "--data", folder, "--column", "x=ill")
    done = unweave("init", tmp_path / "net", *words)
    assert done.code == 0, done.err
    assert unweave("check", tmp_path / "net", "--json").json["ok"]
    (folder / "east.csv").write_text(csv_text())
    both = unweave("init", tmp_path / "two", *words)
    assert both.code == 2
    assert "keep one" in both.err
    none = unweave("init", tmp_path / "two", "--agents", "north,west", "--data", folder,
                   "--column", "x=ill")  # fmt: skip
    assert "add west.csv" in none.err


def test_names_come_from_the_edges(unweave, tmp_path):
    edges = tmp_path / "edges.txt"
    edges.write_text("oslo bergen\nbergen trondheim\n")
    done = unweave("init", tmp_path / "net", "--edges", edges, "--json")
    assert set(done.json["agents"]) == {"oslo", "bergen", "trondheim"}
    for words, said in (
        (("--agents", "5"), "leave --agents out"),
        (("--agents", "oslo,bergen"), "names 'trondheim'"),
        (("--agents", "oslo,bergen,trondheim,voss"), "names 'voss'"),
        (("--graph", "ring"), "two graphs"),
    ):
        refused = unweave("init", tmp_path / "other", "--edges", edges, *words)
        assert refused.code == 2
        assert said in refused.err, words


def test_what_is_wrong_leaves_nothing_behind(unweave, tmp_path):
    data = write(tmp_path, "visits.csv")
    broken = tmp_path / "broken.json"
    broken.write_text('[{"id": 1, "ill": 0},\n {"id": 2, "ill"')
    lists = tmp_path / "lists.ndjson"
    lists.write_text("[1, 2]\n")
    endless = tmp_path / "endless.json"
    endless.write_text('[{"id": 1, "ill": 0}')
    cut = tmp_path / "cut.parquet"
    cut.write_text("PAR1")
    empty = tmp_path / "empty.csv"
    empty.write_text("id,ill\n")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "notes.txt").write_text("x")
    good = ("--column", "x=ill")
    before = sorted(tmp_path.iterdir())
    for words, said in (
        (
            ("--data", data),
            "no column 'x' (beta-bernoulli needs it); the names of its 2 columns are not shown",
        ),
        (("--data", data, "--column", "x=sick"), "no column 'sick'"),
        (("--data", data, *good, "--key", "ID "), "--key id"),
        (
            ("--data", data, *good, "--split", "fair"),
            "--split fair: no such split. Fix: choose from iid",
        ),
        (("--data", data, *good, "--agents", "99"), "fewer agents"),
        (("--data", broken, *good), "broken.json, line 2: is not readable JSON there"),
        (("--data", lists, *good), "lists.ndjson, line 1"),
        (("--data", endless, *good), "is the file complete?"),
        (("--data", cut, *good), "is not a readable parquet file"),
        (("--data", empty, *good), "no records"),
        (("--data", tmp_path / "binary.csv", *good), "UTF-8"),
        (("--data", tmp_path / "notes.txt", *good), "must end in .csv"),
        (("--agents", "0"), "above 0"),
        (("--agents", "..,a"), "choose another"),
        (("--schedule", "random"), "schedule"),
        (("--forget", "network_id"), "forget: input should be 'seek' or 'walk'"),
    ):
        refused = unweave("init", tmp_path / "net", "--agents", "3", *words)
        assert refused.code == 2, words
        assert said in refused.err, (words, refused.err)
    assert sorted(tmp_path.iterdir()) == before
    for place in (data, data / "below"):
        assert "choose another folder" in unweave("init", place).err


@pytest.mark.parametrize("exists", [False, True])
def test_a_failure_on_the_way_leaves_nothing_behind(unweave, tmp_path, monkeypatch, exists):
    net = tmp_path / "net"
    if exists:
        net.mkdir()
        (net / "notes.txt").write_text("mine")
    written = []

    def fails(home, name, *more):
        written.append(name)
        if name == "a3":
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(layout, "_write_agent_file", fails)
        done = unweave("init", net, "--agents", "3")
    assert written == ["a1", "a2", "a3"]
    assert done.code == 2
    assert "No space left" in done.err
    assert [p.name for p in tmp_path.rglob("*")] == (["net", "notes.txt"] if exists else [])
    assert unweave("init", net, "--agents", "3").code == 0
    assert sorted(p.name for p in net.iterdir()) == ["agents", "network.toml",
                                                    *["notes.txt"] * exists]  # fmt: skip


def test_commands_to_copy_are_not_wrapped(unweave, tmp_path):
    net = tmp_path / ("a-long-name-" * 12).strip("-")
    done = unweave("init", net, "--agents", "2", width=80)
    assert f"  unweave check {net}\n  unweave up {net}\n" in done.out
    spaced = unweave("init", tmp_path / "my clinics", "--name", "clinics", width=40)
    assert f"  unweave up '{tmp_path}/my clinics'\n" in spaced.out


UNFIT = {
    "age.csv": ("id,x\np1,1\np2,44\n", "line 3, column 'x': the value is above 1; expected 0 or"),
    "text.csv": ("id,x\n\np1,1\np2,no\n", "line 4, column 'x': the value is not a number"),
    "blank.csv": ('id,x\n"p\n1",1\np2,\n', "line 4, column 'x': the value is missing"),
    "short.csv": ("id,x\np1,1\np2\n", "line 3: has 1 field, but the header has 2"),
    "long.csv": ("id,x\np1,1\np2,1,1\n", "line 3: has 3 fields, but the header has 2"),
    "ends.csv": ("id,x\r\np1,1\np2,0\n", "line 2: ends in LF, but the lines before it in CRLF"),
    "comma.csv": ("id;x\np1;1\np2;0,5\n", "line 3, column 'x': the value is not a number; it"),
    "key.csv": ("id,x\np1,1\n,1\n,0\n", "line 3, and 1 more: the key 'id' is empty"),
    "v.json": ('[{"id": 1, "x": 1},\n {"id": 2, "x": "1"}]', "line 2, column 'x': the value is"),
    "v.ndjson": ('{"id": 1, "x": 1}\n{"id": 2}\n', "line 2, column 'x': the value is missing"),
    "v.parquet": (None, "record 2 (counted from 1), column 'x': the value is above 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
@pytest.mark.parametrize("own", [False, True])
def test_records_that_the_model_refuses_are_told_by_their_line(unweave, tmp_path, name, own):
    text, said = UNFIT[name]
    data = tmp_path / "data"
    data.mkdir()
    file = data / (f"a1{Path(name).suffix}" if own else name)
    if text is None:
        import duckdb

        with duckdb.connect() as engine:
            engine.execute(f"COPY (SELECT unnest([1, 2]) AS x, 7 AS id) TO '{file}'")
    else:
        file.write_bytes(text.encode())
    words = ("--agents", "1", "--data", data if own else file, "--key", "id")
    done = unweave("init", tmp_path / "net", *words)
    assert done.code == 2, done.out
    assert f"{file}, {said}" in done.err
    assert not (tmp_path / "net").exists()


def test_keys_that_repeat_are_told(unweave, tmp_path):
    data = tmp_path / "v.csv"
    data.write_text("id,x\n" + "p1,1\np2,0\np1,1\n")
    words = ("--agents", "1", "--data", data)
    told = unweave("init", tmp_path / "one", *words, "--key", "id").out
    assert "1 record repeats the key of another" in told
    assert "and 1 agent folder." in told
    assert "repeats" not in unweave("init", tmp_path / "two", *words).out


@pytest.mark.parametrize("own", [False, True])
def test_rounding_that_moves_a_result_is_refused_at_once(unweave, tmp_path, own):
    data = tmp_path / "data"
    data.mkdir()
    text = "x\n" + "".join(f"{k}e-5\n" for k in range(24))
    for agent in ("a1", "a2"):
        (data / f"{agent}.csv").write_text(text)
    words = ("--agents", "2", "--model", "normal-unknown", "--set", "b=1e-8", "--set", "bits=34")
    given = (*words, "--data", data if own else data / "a1.csv")
    done = unweave("init", tmp_path / "net", *given)
    assert done.code == 2
    assert "rounding would move" in done.err
    assert "Fix: scale = {x = 0.0001} (or --scale auto)" in done.err
    done = unweave("init", tmp_path / "net", *given, "--scale", "auto")
    assert done.code == 0, done.err
    said = "x: scale 0.0001, center 0.0001, from its range in --data; the constants become public."
    assert said in done.out
    assert unweave("check", tmp_path / "net", "--json").json["ok"]
    assert tomllib.loads((tmp_path / "net/network.toml").read_text())["model"]["scale"] == {
        "x": 0.0001
    }
    assert unweave("init", tmp_path / "bare", *words).code == 0
    for agent in ("a1", "a2"):
        (tmp_path / f"bare/agents/{agent}/data.csv").write_text(text)
    found = unweave("check", tmp_path / "bare", "--json")
    problems = [c for c in found.json["checks"] if c["problem"]]
    assert [c["agent"] for c in problems] == ["a1", "a2"]
    assert {c["fix"] for c in problems} == {"scale = {x = 0.0001}"}


def test_a_small_dose_is_learned_in_its_own_units(unweave, tmp_path):
    """The whole way from a file to a slope: what 2^-16 of a unit would have made of it is 1500."""
    rng = np.random.default_rng(8)
    dose = 1e-5 * rng.normal(size=600)
    effect = 1998 * dose + 1e-3 * rng.normal(size=600)
    lines = [f"{x!r},{y!r}\n" for x, y in zip(dose.tolist(), effect.tolist(), strict=True)]
    (tmp_path / "trial.csv").write_text("dose,y\n" + "".join(lines))
    words = ("--agents", "3", "--model", "linear-regression-unknown-noise", "--data")
    words = (
        *words,
        tmp_path / "trial.csv",
        "--set",
        'features=["dose"]',
        "--set",
        "intercept=true",
    )
    prior = ("--set", 'sd={"dose": 1e7}', "--set", "b=1e-6")
    done = unweave("init", tmp_path / "net", *words, *prior, "--scale", "auto")
    assert done.code == 0, done.err
    assert "dose: scale 1e-05, center 0, from its range in --data" in done.out
    assert unweave("check", tmp_path / "net", "--json").json["ok"]
    units = None
    for home in sorted((tmp_path / "net/agents").iterdir()):
        agent = AgentFolder.read(home)
        data = open_data(agent, open_identity(agent))
        units = data.model.eta0 if units is None else units
        units = data.model.grid.add(units, data.factor())
    slope = data.model.posterior(units).table()[1]
    assert slope.name == "dose"
    assert abs(slope.mean - 1998) < 4 * slope.sd < 40


@pytest.mark.parametrize("cell", ["n/a", ""])
def test_a_column_without_numbers_is_the_one_that_is_named(unweave, tmp_path, cell):
    data = tmp_path / "trial.csv"
    data.write_text("dose,y\n" + "".join(f"{k},{cell}\n" for k in range(8)))
    words = ("--agents", "4", "-m", "linear-regression", "--set", "features=dose", "--data", data)
    done = unweave("init", tmp_path / "net", *words, "--scale", "auto")
    assert done.code == 2
    assert "the range of column 'y' is unknown: it has no numbers in --data" in done.err
    assert "--range y=LOW:HIGH" in done.err
    assert "dose" not in done.err
    done = unweave("init", tmp_path / "net", *words, "--scale", "auto", "--missing", "drop")
    assert done.code == 2
    dropped = "8 records dropped, with a missing value (y 8)"  # a word is no missing value
    assert ("column 'y'" if cell else dropped) in " ".join(done.err.split())


def test_the_other_columns_of_a_file_without_numbers_in_one_count(unweave, tmp_path):
    """a1 has the largest dose, and no y."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a1.csv").write_text("dose,y\n9000,\n8000,\n")
    (folder / "a2.csv").write_text("dose,y\n1,2\n3,4\n")
    model = LinearRegression(features=["dose"], noise=1.0)
    found = data_ranges(folder, ["a1", "a2"], Columns(model, {}, None))
    assert found == {"dose": (1.0, 9000.0), "y": (2.0, 4.0)}


def test_scales_are_proposed_from_public_ranges(unweave, tmp_path):
    words = ("--agents", "2", "-m", "linear-regression", "--set", "features=dose,age")
    words = (*words, "--set", "intercept=true")
    for more, said in (
        (
            ("--scale", "auto"),
            "the range of column 'dose' is unknown. Fix: give --range dose=LOW:HIGH",
        ),
        (("--range", "dose=0:1"), "--range needs --scale auto"),
        (("--scale", "auto", "--range", "weight=0:1"), "has no column 'weight'"),
        (("--scale", "auto", "--range", "dose=1:0"), "COLUMN=LOW:HIGH, LOW < HIGH"),
        (("--scale", "auto", "--range", "dose=0"), "not a number"),
        (("--scale", "dose"), "write name=value"),
        (("--scale", "dose=-1"), "from 1e-100 to 1e100"),
    ):
        done = unweave("init", tmp_path / "net", *words, *more)
        assert (done.code, said in done.err) == (2, True), done.err
    ranges = ("--range", "dose=0:9e-5", "--range", "age=1900:1999", "--center", "y=7")
    told = unweave("init", tmp_path / "net", *words, "--scale", "auto", "--scale", "y=3", *ranges)
    assert told.code == 0, told.err
    assert "dose: scale 1e-05, center 4.5e-05, from the range that --range declares." in told.out
    assert "age: scale 10, center 1950, from the range" in told.out
    stated = tomllib.loads((tmp_path / "net/network.toml").read_text())["model"]
    assert stated["scale"] == {"dose": 1e-5, "age": 10.0, "y": 3.0}
    assert stated["center"] == {"dose": 4.5e-5, "age": 1950.0, "y": 7.0}
    assert "noise = 3: the known standard deviation of 'y' around its prediction" in told.out
    done = unweave("init", tmp_path / "coins", "--scale", "auto")
    assert "beta-bernoulli has no real columns" in done.err


def test_small_mistakes(unweave, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words, said in (
        (("",), "DIR is empty"),
        (("net", "--set", "a=-1"), "--set: beta-bernoulli: impossible prior"),
    ):
        done = unweave("init", *words)
        assert (done.code, said in done.err) == (2, True), done.err
    assert not list(tmp_path.iterdir())


def test_few_records_are_told_at_once(unweave, tmp_path):
    data = write(tmp_path, "visits.csv")
    words = ("--data", data, "--column", "x=ill")
    five = ("--agents", "5", "--privacy", "plain", *words)
    assert "min_records" in unweave("init", tmp_path / "few", *five).out
    assert "min_records" not in unweave("init", tmp_path / "net", "--agents", "3", *words).out


def test_all_bad_files_are_told_at_once(unweave, tmp_path):
    data = tmp_path / "shards"
    data.mkdir()
    for k in range(14):
        (data / f"n{k:02}.csv").write_text("id,x\n1,1\n2,no\n" if k else "id,x\n1,1\n")
    (data / "n13.csv").write_text("id,y\n1,1\n")
    (data / "notes.txt").write_text("not an agent")
    done = unweave("init", tmp_path / "net", "--data", data)
    assert done.code == 2
    assert "13 files cannot be used" in done.err
    assert done.err.count("line 3, column 'x': the value is not a number") == 10
    assert "… and 3 more" in done.err
    for k in range(2, 14):
        (data / f"n{k:02}.csv").unlink()
    (data / "n02.csv").write_text("id,y\n1,1\n")
    done = unweave("init", tmp_path / "net", "--agents", "n01,n02,n03", "--data", data)
    for said in ("n01.csv, line 3", "n02.csv: there is no column 'x'", "no file for agent 'n03'"):
        assert said in done.err
    assert not (tmp_path / "net").exists()


def test_names_come_from_the_files(unweave, tmp_path):
    data = tmp_path / "shards"
    data.mkdir()
    for name in ("oslo.csv", "7.csv.gz", "st.olav.ndjson"):
        os.rename(write(data, "v.ndjson" if "json" in name else "t.csv.gz"
                        if "gz" in name else "t.csv"), data / name)  # fmt: skip
    (data / "README.md").write_text("not data")
    words = ("--data", data, "--column", "x=ill", "--json")
    done = unweave("init", tmp_path / "net", *words)
    assert done.code == 0, done.err
    assert {n: a["records"] for n, a in done.json["agents"].items()} == {
        "7": 36, "oslo": 36, "st.olav": 36}  # fmt: skip
    (data / "7.csv.gz").rename(data / "one.gz")
    for path in (data / "oslo.csv", data / "st.olav.ndjson"):
        path.unlink()
    done = unweave("init", tmp_path / "two", *words)
    assert "no data file" in done.json["error"]["message"]


@pytest.mark.parametrize("own", [False, True])
def test_what_the_grid_cannot_hold_is_refused_at_once(unweave, tmp_path, own):
    data = tmp_path / "data"
    data.mkdir()
    rows = [30_000 + 300 * k for k in range(12)]
    (data / "a1.csv").write_text("x\n" + "".join(f"{r}\n" for r in rows))
    given = data if own else data / "a1.csv"
    words = ("--agents", "1", "--model", "normal-unknown", "--data", given)
    done = unweave("init", tmp_path / "net", *words)
    assert done.code == 2
    assert f"{data / 'a1.csv'}, line 12: normal-unknown, column 'x': a record is" in done.err
    assert "up to ±3.28e+04" in done.err
    assert "Fix: scale = {x = 1000}, center = {x = 30000}" in done.err
    done = unweave("init", tmp_path / "net", *words, "--set", "bits=30")
    assert "leaves the grid" in done.err, "single records fit, their sum does not"
    assert "Fix: scale = {x = 1000}, center = {x = 30000} (or --scale auto)" in done.err
    done = unweave("init", tmp_path / "net", *words, "--scale", "x=1000", "--center", "x=30000")
    assert done.code == 0, done.err
    assert unweave("check", tmp_path / "net", "--json").json["ok"]


def test_a_decimal_comma(unweave, tmp_path):
    data = tmp_path / "weights.csv"
    data.write_text("id;x\n" + "".join(f"{k};{k},5\n" for k in range(24)))
    words = ("--agents", "2", "--model", "normal-unknown", "--data", data, "--split", "sorted")
    assert "--decimal ," in unweave("init", tmp_path / "net", *words).err
    assert unweave("init", tmp_path / "net", *words, "--decimal", ",").code == 0
    assert unweave("check", tmp_path / "net", "--json").json["ok"]
    first = (tmp_path / "net/agents/a1/data.csv").read_text().split()
    assert first == ["id;x", *(f"{k};{k},5" for k in range(12))], "sorted as numbers"
    assert "choose . or ," in unweave("init", tmp_path / "two", *words, "--decimal", ";").err


def test_an_unknown_setting_is_named_before_a_missing_one(unweave, tmp_path):
    for words, said in (
        (("--set", "foo=3"), "has no setting 'foo'. Fix: its settings are features"),
        (("--set", "feature=3"), "has no setting 'feature'. Fix: did you mean features?"),
        ((), "features"),
    ):
        done = unweave("init", tmp_path / "net", "--model", "linear-regression", *words)
        assert done.code == 2
        assert said in done.err


def test_ports_are_not_those_that_a_system_hands_out():
    drawn = [layout.free_ports(5) for _ in range(6)]
    assert all(10_000 <= port < 32_768 for ports in drawn for port in ports)
    assert all(len(set(ports)) == 5 for ports in drawn)
    assert len({port for ports in drawn for port in ports}) > 20, "drawn at random"


def test_ports_where_none_is_free(monkeypatch):
    """The system's own choice, then."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setattr(layout, "_PORTS", [taken.getsockname()[1]])
        assert len(set(layout.free_ports(2))) == 2


def test_one_agent_learns_alone(unweave, tmp_path):
    assert "a1 is the only agent" in unweave("init", tmp_path / "one", "--agents", "1").out
    assert "is alone" not in unweave("init", tmp_path / "two", "--agents", "2").out


def test_splits_are_spelled_either_way(unweave, tmp_path):
    from unweave import partition

    data = write(tmp_path, "visits.csv")
    words = ("--agents", "2", "--data", data, "--column", "x=ill", "--split")
    for how in ("by-label", "by_label"):
        assert unweave("init", tmp_path / how, *words, how).code == 0
        assert partition([0, 1, 0, 1], 2, how=how) == {"a1": [0, 0], "a2": [1, 1]}


@pytest.mark.parametrize("agents", ["-3", "2.5", "3,", "+3", "1e3", ".5", "²", "-1,", ""])
def test_what_is_neither_a_number_nor_a_name(unweave, tmp_path, agents):
    done = unweave("init", tmp_path / "net", f"--agents={agents}")
    if agents == "²":  # a name, if a strange one
        assert done.code == 0
        return
    assert done.code == 2
    assert (
        f"--agents {agents}: no agents. Fix: give a whole number above 0 (a1, a2, …), or names"
        in done.err
    )
    assert not (tmp_path / "net").exists()


def test_names_that_are_numbers(unweave, tmp_path):
    done = unweave("init", tmp_path / "net", "--agents", "1,2,3", "--json")
    assert set(done.json["agents"]) == {"1", "2", "3"}
    refused = unweave("init", tmp_path / "two", "--agents", "north,-south")
    assert refused.code == 2
    assert "agent '-south': commands would read it as an option" in refused.err


def test_more_agents_than_folders_make_sense_for(unweave, tmp_path, monkeypatch):
    def never(*_):
        raise AssertionError("nothing is made of so many")

    monkeypatch.setattr(layout.Identity, "create", never)
    monkeypatch.setattr(layout.socket, "socket", never)
    edges = tmp_path / "edges.txt"
    edges.write_text("".join(f"n{k} n{k + 1}\n" for k in range(2001)))
    for words in (("-k", "2001"), ("-k", "1000000"), ("-k", "9" * 5000), ("--edges", edges)):
        done = unweave("init", tmp_path / "net", *words)
        assert done.code == 2
        assert "has at most 2000, because every folder holds all certif" in done.err
        assert "unweave simulate" in done.err


def test_many_ports_without_holding_them(monkeypatch):
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 200), hard))
    try:
        ports = layout.free_ports(2000)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(set(ports)) == 2000
    monkeypatch.setattr(layout, "_PORTS", ports[:4])
    assert set(layout.free_ports(2, ports[:2])) == set(ports[2:4])


def test_hosts_from_a_file(unweave, tmp_path):
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("# ours\nn.example:7400  # in the cellar\n\ne.example:7400\n")
    words = ("--agents", "north,east", "--hosts", hosts, "--json")
    done = unweave("init", tmp_path / "net", *words)
    assert done.code == 0, done.err
    assert [a["address"] for a in done.json["agents"].values()] == ["n.example:7400",
                                                                    "e.example:7400"]  # fmt: skip


def test_many_hosts_on_the_command_line_are_no_file():
    given = [f"hospital-{k}.example.org:7400" for k in range(200)]
    assert layout.addresses_of(",".join(given), 200) == given


def test_a_file_of_hosts_has_a_largest_size(unweave, tmp_path):
    hosts = tmp_path / "hosts.txt"
    hosts.write_bytes(b"#" * (1 << 20) + b"\nn.example:7400\n")
    done = unweave("init", tmp_path / "net", "--agents", "north", "--hosts", hosts)
    assert done.code == 2
    assert "larger than 1048576 bytes" in done.err
    assert "one address per line" in done.err


def test_every_agent_has_a_port_for_its_metrics(unweave, tmp_path, monkeypatch):
    from unweave.node.config import AgentFolder

    monkeypatch.setattr(layout, "_PORTS", layout.free_ports(8))
    done = unweave("init", tmp_path / "net", "--agents", "4", "--json")
    own = [a["address"] for a in done.json["agents"].values()]
    metrics = [AgentFolder.read(a["folder"]).config.metrics for a in done.json["agents"].values()]
    assert all(one.startswith("127.0.0.1:") for one in metrics)
    assert len({*own, *metrics}) == 8, "all different"
    # Also from those that are given.
    taken = layout.free_ports(2)
    monkeypatch.setattr(layout, "_PORTS", [*taken, *layout.free_ports(2, taken)])
    hosts = ",".join(f"127.0.0.1:{port}" for port in taken)
    unweave("init", tmp_path / "two", "--agents", "2", "--hosts", hosts)
    for home in (tmp_path / "two/agents").iterdir():
        port = int(AgentFolder.read(home).config.metrics.rpartition(":")[2])
        assert port in layout._PORTS
        assert port not in taken


def test_one_feature_needs_no_list(unweave, tmp_path):
    from unweave.manifest import load

    words = ("--agents", "2", "--model", "linear-regression", "--set", "features=conc")
    done = unweave("init", tmp_path / "net", *words)
    assert done.code == 0, done.err
    assert load(tmp_path / "net" / "network.toml").build_model().columns == ("conc", "y")


@pytest.mark.parametrize("forget", ["walk", "seek"])
def test_the_way_to_an_erasure_is_written_into_the_manifest(unweave, tmp_path, forget):
    from unweave.manifest import load

    done = unweave("init", tmp_path / "net", "--agents", "3", "--forget", forget)
    assert done.code == 0, done.err
    assert load(tmp_path / "net" / "network.toml").terms().forget == forget


def test_four_agents_are_masked_and_told_so(unweave, tmp_path):
    done = unweave("init", tmp_path / "net", "--agents", "4")
    assert "Privacy: masked. No agent sees another's sums" in done.out
    assert "the difference of two published sums shows what changed" in done.out
    table = tomllib.loads((tmp_path / "net/network.toml").read_text())["privacy"]
    assert table == {"mode": "masked", "min_roster": 3, "degree": 0}
    settings = (tmp_path / "net/agents/a1/agent.toml").read_text()
    assert "min_records" not in settings
    told = unweave("init", tmp_path / "json", "--agents", "6", "--json").json["privacy"]
    assert (told["mode"], told["min_roster"]) == ("masked", 4)
    assert "No agent sees" in told["seen"]


def test_chosen_points_are_named_where_a_model_learns_in_rounds(unweave, tmp_path):
    """`docs/explanation/security.md`, where masks end."""
    glm = ("-m", "logistic-regression", "--set", "features=2", "--agents", "4")
    done = unweave("init", tmp_path / "glm", *glm)
    assert "can choose the points" in " ".join(done.out.split())
    assert "a narrower prior hides more" in " ".join(done.out.split())
    told = unweave("init", tmp_path / "json", *glm, "--json").json["privacy"]
    assert "can choose the points" in told["seen"]
    done = unweave("init", tmp_path / "plain", *glm, "--privacy", "plain", "--small-shards")
    assert "the points" not in " ".join(done.out.split())
    done = unweave("init", tmp_path / "conjugate", "--agents", "4")
    assert "the points" not in " ".join(done.out.split())


def test_batches_are_told_where_they_are_chosen(unweave, tmp_path):
    words = ("--agents", "4", "--publish", "20,3,14d")
    done = unweave("init", tmp_path / "net", *words)
    waits = "will wait until 20 records of 3 agents have changed, or for 14d"
    assert waits in " ".join(done.out.split())
    told = unweave("init", tmp_path / "json", *words, "--json").json["publish"]
    assert (told["records"], waits in told["waiting"]) == (20, True)
    done = unweave("init", tmp_path / "none", "--agents", "4")
    assert "will wait" not in " ".join(done.out.split())
    glm = ("-m", "logistic-regression", "--set", "features=2")
    done = unweave("init", tmp_path / "glm", *glm, *words)
    assert done.code == 2
    assert "no change can wait. Fix: remove publish" in " ".join(done.err.split())


def test_plain_is_a_choice_or_follows_from_three_agents(unweave, tmp_path):
    by_choice = unweave("init", tmp_path / "a", "--agents", "4", "--privacy", "plain").out
    too_small = unweave("init", tmp_path / "b", "--agents", "3").out
    for out in (by_choice, too_small):
        assert "Neighbours can compute an agent's sufficient statistics" in out
    assert "Privacy: plain, the paper's walk, by choice." in by_choice
    assert "because masks hide nothing among fewer than 4 agents." in too_small
    for net in ("a", "b"):
        table = tomllib.loads((tmp_path / net / "network.toml").read_text())["privacy"]
        assert table == {"mode": "plain"}
    assert "min_records" in (tmp_path / "a/agents/a1/agent.toml").read_text()


def test_under_masks_one_record_is_enough(unweave, tmp_path):
    net = tmp_path / "net"
    done = unweave("init", net, "--agents", "4", "--model", "beta-bernoulli")
    assert done.code == 0
    for home in (net / "agents").iterdir():
        (home / "data.csv").write_text("x\n1\n")
    assert unweave("check", net, "--json").json["ok"]
    plain = tmp_path / "plain"
    assert unweave("init", plain, "--agents", "4", "--privacy", "plain").code == 0
    for home in (plain / "agents").iterdir():
        (home / "data.csv").write_text("x\n1\n")
    assert not unweave("check", plain, "--json").json["ok"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--privacy", "dark"), "--privacy dark: no such mode. Fix: choose masked or plain"),
        (("--agents", "3", "--privacy", "masked"), "at least 4 agents, not 3"),
        (("--small-shards",), "leave it out, or add --privacy plain"),
        (("--model", "beta-exponential"), "has no private rounds"),
        (("--model", "beta-exponential"), "--privacy masked: beta-exponential"),
    ],
)
def test_what_masks_exclude_is_refused_before_anything_is_written(unweave, tmp_path, words, said):
    done = unweave("init", tmp_path / "net", *words)
    assert (done.code, said in done.err) == (2, True), done.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("logistic-regression", "breast_cancer"),
        ("linear-regression", "diabetes"),
        ("poisson-regression", "diabetes"),
    ],
)
def test_scales_are_derived_by_private_rounds(unweave, tmp_path, model, name):
    """Real data in their own units; the constants depend on all records, and not on the split."""
    from sklearn import datasets

    load = getattr(datasets, f"load_{name}")
    x, y = load(return_X_y=True, **({"scaled": False} if name == "diabetes" else {}))
    names = [f"f{j}" for j in range(x.shape[1])]
    rows = zip(x.tolist(), y, strict=True)
    table = [[*names, "y"], *([*map(repr, row), int(target)] for row, target in rows)]
    data = tmp_path / "data.csv"
    data.write_text("".join(",".join(map(str, row)) + "\n" for row in table))
    words = ("-k", "5", "-m", model, "--set", f"features={','.join(names)}", "--data", data)
    words = (*words, "--set", "intercept=true", "--scale", "masked")
    scales = []
    for split in ("iid", "sorted"):
        net = tmp_path / split
        done = unweave("init", net, *words, "--split", split)
        assert done.code == 0, done.err
        assert f"how many of all {len(x)} records are in each power of ten" in done.out
        assert unweave("check", net, "--json").json["ok"]
        found = tomllib.loads((net / "network.toml").read_text())["model"]
        scales.append((found["scale"], found.get("center")))
        assert ("y" in found["scale"]) == (model == "linear-regression")
    assert scales[0] == scales[1]
    ratio = x.std(axis=0) / [scales[0][0].get(f, 1.0) for f in names]
    assert ratio.min() > 0.05
    assert ratio.max() < 5


def test_masked_scales_need_data_and_four_agents(unweave, tmp_path):
    (tmp_path / "data.csv").write_text("x\n" + "".join(f"{k}e-3\n" for k in range(40)))
    words = ("-m", "normal-known-variance", "--scale", "masked")
    for more, said in (
        (("-k", "5"), "--scale masked: the range of column 'x' is unknown. Fix: give --range"),
        (("-k", "3", "--data", tmp_path / "data.csv"), "fewer than 4 gives each one away"),
        (("-k", "5", "--scale", "auto"), "two sources. Fix: choose one"),
    ):
        done = unweave("init", tmp_path / "net", *words, *more)
        assert (done.code, said in done.err) == (2, True), done.err
    done = unweave("init", tmp_path / "net", "-k", "5", *words, "--range", "x=0:9")
    assert done.code == 0, done.err
    assert "x: scale 1, center 4.5, from the range that --range declares." in done.out
    folder = tmp_path / "shards"
    folder.mkdir()
    for k in range(4):
        lines = "".join(f"{k}{j}\n" for j in range(10, 30))
        (folder / f"b{k}.csv").write_text("x\n" + lines)
    done = unweave("init", tmp_path / "own", *words, "--data", folder)
    assert done.code == 0, done.err
    assert "x: scale 100" in done.out
    assert unweave("check", tmp_path / "own", "--json").json["ok"]


RISK = """patient,age,bmi,ward,bp
""" + "".join(
    f"p{k},{20 + k % 80},{15 + k % 30},{('north', 'south', 'icu')[k % 3]},{100 + k % 60}\n"
    for k in range(120)
)
WARDS = 'levels={ward = ["north", "south", "icu"]}'  # as network.toml writes it


@pytest.mark.parametrize("model", ["linear-regression", "robust-regression"])
def test_constants_are_near_the_middle_and_the_noise_is_said(unweave, tmp_path, model):
    """Default priors are at the center, so it must be near the records; texts need no range."""
    (tmp_path / "risk.csv").write_text(RISK)
    words = ("-m", model, "--data", tmp_path / "risk.csv", "--set", "intercept=true")
    words = (*words, "--set", "features=age,bmi,ward", "--set", WARDS, "--set", "target=bp")
    ranges = ("--range", "age=20:100", "--range", "bmi=15:45", "--range", "bp=60:220")
    done = unweave("init", tmp_path / "net", *words, "--scale", "auto", *ranges)
    assert done.code == 0, done.err
    assert "bmi: scale 10, center 30, from the range that --range declares." in done.out
    found = tomllib.loads((tmp_path / "net/network.toml").read_text())["model"]
    assert found["center"] == {"age": 60.0, "bmi": 30.0, "bp": 150.0}
    assert found["levels"] == {"ward": ["north", "south", "icu"]}
    assert found["noise"] == 20.0, "a sixth of the range, not the scale 100"
    what = "scale of Student's t" if model == "robust-regression" else "standard deviation"
    said = f"noise = 20: the known {what} of 'bp' around its prediction, an assumption to confirm."
    assert said in done.out
    assert said in unweave("check", tmp_path / "net").out
    stated = ("--set", "noise=8", "--set", "sd={age=2, bmi=1}")
    done = unweave("init", tmp_path / "own", *words, "--scale", "auto", *ranges, *stated)
    found = tomllib.loads((tmp_path / "own/network.toml").read_text())["model"]
    assert (found["noise"], found["sd"]) == (8.0, {"age": 2.0, "bmi": 1.0})
    assert "noise" not in done.out


def test_the_model_of_each_group_has_scales(unweave, tmp_path):
    words = ("-m", "grouped", "--set", "each=gamma-events", "--set", "groups=n,s")
    done = unweave("init", tmp_path / "net", *words, "--scale", "exposure=10")
    assert done.code == 0, done.err
    each = tomllib.loads((tmp_path / "net/network.toml").read_text())["model"]["each"]
    assert each["scale"] == {"exposure": 10.0}
    done = unweave("init", tmp_path / "own", *words, "--scale", "auto", "--range", "exposure=0:99")
    assert "exposure: scale 10, from the range" in done.out
    for model, column in (("weibull", "t"), ("student-t", "x")):
        done = unweave("init", tmp_path / "atoms", "-m", model, "--scale", f"{column}=10")
        assert f"{model} has no scales of columns: records are used in their own units" in done.err
        assert "Fix: leave it out, and set the priors" in done.err


def test_a_manifest_of_atoms_is_short(unweave, tmp_path):
    assert unweave("init", tmp_path / "net", "-m", "weibull", "-k", "2").code == 0
    written = (tmp_path / "net/network.toml").read_text()
    assert tomllib.loads(written)["model"]["bits"] == 24
    assert len(written) < 4000
    assert unweave("check", tmp_path / "net").code == 1, "no data yet"


def test_an_unknown_column_of_where_is_named(unweave, tmp_path):
    (tmp_path / "risk.csv").write_text(RISK)
    words = ("-m", "normal-unknown", "--column", "x=bp", "--data", tmp_path / "risk.csv")
    done = unweave("init", tmp_path / "net", *words, "--where", "bmx > 25 AND age > 1")
    assert done.code == 2
    assert "where names 'bmx', which is no column" in done.err
    assert "the columns are patient, age, bmi, ward, bp" in done.err
