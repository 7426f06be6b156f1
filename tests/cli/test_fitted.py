"""`unweave posterior --draws --covariance` and `unweave predict`, of agents that ran by name."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import duckdb
import numpy as np
import pytest
from tests.support.commands import run_command
from tests.support.processes import Processes

from unweave import Federation
from unweave.models import (
    DirichletCategorical,
    GammaEvents,
    Grouped,
    LinearRegression,
    Model,
    NormalKnownVariance,
    Posterior,
)
from unweave.node.api import report
from unweave.operations import tables

WARDS = ["north", "south"]
RNG = np.random.default_rng(6)
NETWORKS: dict[str, tuple[Model, dict[str, list[object]], str, list[str]]] = {
    "levels": (
        LinearRegression(["dose", "ward"], levels={"ward": WARDS}, intercept=True, noise=1.0),
        {
            "dose": RNG.normal(size=40).round(3).tolist(),
            "ward": RNG.choice(WARDS, 40).tolist(),
            "y": RNG.normal(size=40).round(3).tolist(),
        },
        "dose,ward\n0.5,south\n1,north\n",
        ["mean", "sd", "low", "high"],
    ),
    "groups": (
        Grouped(WARDS, by="ward", each=NormalKnownVariance(noise=2.0)),
        {"ward": RNG.choice(WARDS, 40).tolist(), "x": RNG.normal(size=40).round(3).tolist()},
        "ward\nsouth\nnorth\n",
        ["mean", "sd", "low", "high"],
    ),
    "events": (
        GammaEvents(a=2, b=3),
        {
            "events": RNG.choice(["true", "false"], 40).tolist(),
            "exposure": RNG.exponential(size=40).round(3).tolist(),
        },
        "exposure\n1.5\n30\n",
        ["mean", "sd", "low", "high"],
    ),
    "labels": (
        DirichletCategorical(["mild", "severe"]),
        {"x": RNG.choice(["mild", "severe"], 40).tolist()},
        "id\n1\n2\n",
        ["p[mild]", "p[severe]"],
    ),
}


def write(path: Path, table: dict[str, list[object]], first: int) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *table])
        rows = zip(*table.values(), strict=True)
        writer.writerows([f"p{first + i}", *row] for i, row in enumerate(rows))


@pytest.mark.parametrize("kind", NETWORKS)
def test_real_agents_by_name(tmp_path: Path, kind: str) -> None:
    """Two processes learn from text files, forget a record, and their posterior is that of a
    Federation, bit for bit; its draws and predictions are those in memory."""
    model, table, rows, expected = NETWORKS[kind]
    parts = [{name: values[k::2] for name, values in table.items()} for k in (0, 1)]
    with Processes(tmp_path / "net", agents=2, model=model, rows=0) as net:
        for k, part in enumerate(parts):
            write(net.folder(f"a{k + 1}") / "data.csv", part, 100 * k)
        net.start()
        net.settled()
        fed = Federation(model, parts).learn()
        found = json.loads(run_command("posterior", net.root, "--json").out)
        assert Posterior.from_json(found) == fed.posterior
        keys = tmp_path / "keys.txt"
        keys.write_text("p103\n")
        words = ("forget", net.root, "a2", "--records", keys, "--timeout", "60")
        done = run_command(*words, "--out", tmp_path / "certificate.json")
        assert done.code == 0, done.err
        fed.forget(records={"a2": [3]})
        net.settled()
        net.stop()
    draws = tmp_path / "draws.csv"
    words = ("posterior", net.root, "--covariance", "--json", "--draws", "50")
    done = run_command(*words, "--out", draws)
    assert done.code == 0, done.err
    shown = json.loads(done.out)
    np.testing.assert_allclose(shown["covariance"], fed.posterior.covariance())
    with draws.open(newline="") as file:
        names, *lines = csv.reader(file)
    assert names == list(fed.posterior.draws(1))
    values = np.array(lines, dtype=np.float64)
    np.testing.assert_array_equal(values[:, 0], fed.posterior.draws(50)[names[0]])
    parquet = tmp_path / "draws.parquet"
    assert run_command("posterior", net.root, "--draws", "50", "--out", parquet).code == 0
    again = duckdb.execute(f"FROM '{parquet}'").fetchnumpy()
    np.testing.assert_array_equal(again[names[0]], values[:, 0])

    (tmp_path / "rows.csv").write_text(rows)
    done = run_command("predict", net.root, tmp_path / "rows.csv", "--json")
    assert done.code == 0, done.err
    predicted = json.loads(done.out)["predictions"]
    assert list(predicted) == expected
    out = tmp_path / "p.parquet"
    assert run_command("predict", net.root, tmp_path / "rows.csv", "--out", out).code == 0
    written = duckdb.execute(f"FROM '{out}'").fetchnumpy()
    np.testing.assert_allclose(np.array(written[expected[0]]), predicted[expected[0]])
    assert run_command("predict", net.root, tmp_path / "rows.csv").code == 0


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Posterior]:
    """A network that has stopped, and its posterior."""
    model, table, _, _ = NETWORKS["levels"]
    with Processes(tmp_path_factory.mktemp("n") / "net", agents=1, model=model, rows=0) as net:
        write(net.folder("a1") / "data.csv", table, 0)
        net.start()
        net.settled()
    return net.root, Federation(model, [table]).learn().posterior


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_many_rows_are_read_and_written_in_blocks(
    learned: tuple[Path, Posterior], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    root, posterior = learned
    monkeypatch.setattr(tables, "_BLOCK", 4)
    table = {"dose": np.arange(11) / 7, "ward": np.array(["north", "south"] * 5 + ["south"])}
    # Numbers in the first blocks only: one type for the whole column.
    table["id"] = np.array([*map(str, range(10)), "ten"])
    rows, out = tmp_path / f"rows.{kind}", tmp_path / f"out.{kind}"
    tables.write_table(rows, [table])
    done = run_command("predict", root, rows, "--out", out, "--json")
    assert done.code == 0, done.err
    wanted = posterior.predict_table(table)
    found = json.loads(done.out)
    assert found["rows"] == 11
    written = duckdb.execute(f"FROM '{out}'").fetchnumpy()
    for name in ("mean", "sd", "low", "high"):
        np.testing.assert_allclose(found["predictions"][name], wanted[name])
        np.testing.assert_allclose(np.asarray(written[name], dtype=float), wanted[name])
    assert list(written["id"]) == table["id"].tolist()
    done = run_command("predict", root, rows)
    assert "… and 7 more rows" in done.out
    table["ward"] = np.array(["north"] * 9 + ["east", "north"])
    tables.write_table(rows, [table])
    done = run_command("predict", root, rows, "--out", out)
    assert done.code == 2
    assert "counted from row 9: " in done.err
    assert duckdb.execute(f"SELECT COUNT(*) FROM '{out}'").fetchall() == [(11,)], "as before"
    assert {path.name for path in tmp_path.iterdir()} == {rows.name, out.name}


def test_a_posterior_of_many_numbers(
    learned: tuple[Path, Posterior], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report has a part of it only; the whole sum is read when it is needed."""
    root, posterior = learned
    monkeypatch.setattr(report, "_SHOWN", 2)
    (tmp_path / "rows.csv").write_text("dose,ward\n0.5,south\n")
    done = run_command("predict", root, tmp_path / "rows.csv", "--json")
    assert done.code == 0, done.err
    wanted = posterior.predict_table({"dose": [0.5], "ward": ["south"]})
    np.testing.assert_allclose(json.loads(done.out)["predictions"]["mean"], wanted["mean"])


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    assert run_command("init", tmp_path / "net", "--agents", "1").code == 0
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b\n1\n")
    for words, what in (
        (("predict", tmp_path / "net", tmp_path / "no.csv"), "no such file"),
        (("predict", tmp_path / "net", rows), "another number of fields"),
        (("predict", tmp_path / "net", tmp_path / "rows.xls"), "unknown kind of file"),
        (("posterior", tmp_path / "net", "--draws", "3"), "belong together"),
        (("posterior", tmp_path / "net", "--draws", "3", "--out", "d.xls"), "unknown kind"),
    ):
        done = run_command(*words)
        assert done.code == 2, words
        assert what in done.err, (words, done.err)
    rows.write_text("a\n1\n")
    done = run_command("predict", tmp_path / "net", rows)
    assert done.code == 1
    assert "no complete posterior yet" in done.err
