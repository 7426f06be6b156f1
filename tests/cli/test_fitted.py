"""`unweave posterior --draws --covariance` and `unweave predict`, of agents that ran by name."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pytest
from tests.support.commands import run_command
from tests.support.processes import Processes

from unweave import Federation
from unweave.models import (
    BetaBinomial,
    DirichletCategorical,
    GammaEvents,
    Grouped,
    LinearRegression,
    LogisticRegression,
    Model,
    NormalKnownVariance,
    PoissonRegression,
    Posterior,
)
from unweave.models.atoms.library import BetaExponentialAtoms
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
    place = "line 11" if kind == "csv" else "row 10"
    assert f"{rows}, {place}, column 'ward': the value is no known level" in done.err
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
        (
            ("posterior", tmp_path / "net", "--draws", "3", "--out", tmp_path / "no" / "x.csv"),
            "x.csv: its folder does not exist. Fix: create it",
        ),
        (
            ("posterior", tmp_path / "net", "--sum", tmp_path / "no" / "s", "--secret", "k"),
            "s: its folder does not exist. Fix: create it",
        ),
        (
            ("posterior", tmp_path / "net", "--sum", "s", "--secret", tmp_path),
            "a folder. Fix: name a file",
        ),
        (
            ("report", tmp_path / "net", "--out", tmp_path / "no" / "r.html"),
            "r.html: its folder does not exist. Fix: create it",
        ),
    ):
        done = run_command(*words)
        assert done.code == 2, words
        assert what in done.err, (words, done.err)
    rows.write_text("a\n1\n")
    done = run_command("predict", tmp_path / "net", rows)
    assert done.code == 1
    assert "no complete posterior yet" in done.err
    assert f"Fix: start the network with `unweave up {tmp_path / 'net'}`" in done.err


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Callable[[Model], Posterior]:
    """The posterior that `unweave predict` finds: a model's prior."""

    def serve(model: Model) -> Posterior:
        prior = model.posterior(model.eta0)
        monkeypatch.setattr(tables, "current_posterior", lambda folder: prior)
        return prior

    return serve


Served = Callable[[Model], Posterior]
ILL = LogisticRegression(["age", "ward"], levels={"ward": ["007", "8"]}, target="ill")
TEXTS = "id,age,note,ward,n,ill\n12345678901234567,0.5,007,007,0,\n2,1,,8,1e5,x\n"


def test_the_columns_of_a_file_come_out_as_they_are(served: Served, tmp_path: Path) -> None:
    prior = served(ILL)
    rows = tmp_path / "rows.csv"
    rows.write_text(TEXTS)
    wanted = prior.predict_table({"age": [0.5, 1.0], "ward": ["007", "8"]})
    for out in (tmp_path / "out.csv", tmp_path / "out.parquet"):
        done = run_command("predict", tmp_path, rows, "--out", out)
        assert done.code == 0, done.err
    with (tmp_path / "out.csv").open(newline="") as file:
        lines = list(csv.reader(file))
    assert [line[:6] for line in lines] == [line.split(",") for line in TEXTS.splitlines()]
    assert lines[0][6:] == list(wanted)
    np.testing.assert_array_equal(np.array(lines[1:])[:, 6].astype(float), wanted["p[0]"])
    found = duckdb.execute(f"FROM '{tmp_path / 'out.parquet'}'").fetchall()
    assert [list(row[:6]) for row in found] == [line.split(",") for line in TEXTS.splitlines()[1:]]


def test_between_parquet_files_types_stay(served: Served, tmp_path: Path) -> None:
    served(ILL)
    rows, out = tmp_path / "rows.parquet", tmp_path / "out.parquet"
    given = (
        "SELECT 12345678901234567::BIGINT AS id, 1::DECIMAL(9, 3) AS age, '007' AS note, "
        "DATE '2024-02-29' AS day, NULL::INTEGER[] AS list, true AS yes, 8.0::DOUBLE AS ward"
    )
    duckdb.execute(f"COPY ({given} UNION ALL {given}) TO '{rows}'")
    done = run_command("predict", tmp_path, rows, "--out", out)
    assert done.code == 0, done.err
    kinds = [duckdb.sql(f"FROM '{path}'").types for path in (rows, out)]
    assert kinds[1][:7] == kinds[0]
    before, after = (duckdb.execute(f"FROM '{path}'").fetchall() for path in (rows, out))
    assert [row[:7] for row in after] == before
    assert len(after[0]) == 11


def test_predictions_replace_nothing(served: Served, tmp_path: Path) -> None:
    served(ILL)
    rows, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    rows.write_text("age,ward,P[1]\n1,8,mine\n")
    done = run_command("predict", tmp_path, rows, "--out", out)
    assert done.code == 2
    assert "the column 'p[1]' has the name of a prediction. Fix: rename it" in done.err
    assert run_command("predict", tmp_path, rows, "--json").code == 0
    (tmp_path / "link.csv").symlink_to(rows)
    done = run_command("predict", tmp_path, rows, "--out", tmp_path / "link.csv")
    assert done.code == 2
    assert "the output would replace the input. Fix: name another file" in done.err
    assert rows.read_text() == "age,ward,P[1]\n1,8,mine\n"
    assert not out.exists()


def test_separators_and_decimal_commas(served: Served, tmp_path: Path) -> None:
    prior = served(ILL)
    rows, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    rows.write_text("age;ward\n1,5;8\n")
    done = run_command("predict", tmp_path, rows)
    assert done.code == 2
    assert f"{rows}, line 2, column 'age': the value looks like a number with a" in done.err
    assert "Fix: add --decimal ," in done.err
    done = run_command("predict", tmp_path, rows, "--decimal", ",", "--json", "--out", out)
    assert done.code == 0, done.err
    wanted = prior.predict_table({"age": [1.5], "ward": ["8"]})["p[0]"]
    assert done.json["predictions"]["p[0]"] == pytest.approx(wanted)
    head, line = out.read_text().splitlines()
    assert head.startswith("age;ward;p[0];")
    assert line.startswith(f"1,5;8;{wanted[0]!r}".replace("np.float64(", "").replace(")", "")
                           .replace(".", ","))  # fmt: skip
    done = run_command("predict", tmp_path, rows, "--decimal", "x")
    assert "no such sign" in done.err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('age,ward\n"1",8\n\n2,9\n', "line 4, column 'ward': the value is no known level"),
        ("age,ward\n1,8\n,8\n", "line 3, column 'age': the value is missing (NaN). Fix"),
        ("age,ward\n1,8\nold,8\n", "line 3, column 'age': the value is not a number"),
        ("age,ward\n1,8\n1,\n", "line 3, column 'ward': the value is missing"),
        ("age,ward\n1,8\n1\n", "line 3: another number of fields"),
        ("age,age\n1,8\n", "two columns have one name"),
        ("age\n1\n", "lack a column. Fix: add 'ward'"),
    ],
)
def test_wrong_rows_have_the_line_of_the_file(
    served: Served, tmp_path: Path, text: str, told: str
) -> None:
    served(ILL)
    (tmp_path / "rows.csv").write_text(text)
    done = run_command("predict", tmp_path, tmp_path / "rows.csv")
    assert done.code == 2
    assert told in done.err


def test_another_quantity_is_named(served: Served, tmp_path: Path) -> None:
    """Without an exposure gamma-events predicts a duration, not a number of events."""
    rows = tmp_path / "rows.csv"
    rows.write_text("ward\nnorth\n")
    grouped = Grouped(["north", "south"], by="ward", each=GammaEvents())
    for model in (GammaEvents(), grouped):
        served(model)
        done = run_command("predict", tmp_path, rows, "--json")
        assert done.code == 0, done.err
        assert done.json["predictions"]["sd"] == [None]  # of one event, it is infinite
        (note,) = done.json["notes"]
        assert "the exposure until the next event (Lomax), not a number of events" in note
    rows.write_text("ward,exposure\nnorth,2\nnorth,4\n")
    for model in (GammaEvents(), grouped):
        served(model)
        done = run_command("predict", tmp_path, rows, "--json")
        assert not done.json["notes"]
        mean = done.json["predictions"]["mean"]
        assert mean[1] == pytest.approx(2.0 * mean[0])


def test_what_is_assumed_is_said(served: Served, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    for model, column in (
        (PoissonRegression(["age"], exposure="days"), "days"),
        (BetaBinomial(), "trials"),
    ):
        served(model)
        rows.write_text("age\n1\n")
        done = run_command("predict", tmp_path, rows)
        assert done.code == 0, done.err
        assert f"(column '{column}'), and 1 is assumed" in done.out
        assert column in run_command("predict", tmp_path, rows, "--json").json["notes"][0]
        rows.write_text(f"age,{column}\n1,2\n")
        done = run_command("predict", tmp_path, rows)
        assert "assumed" not in done.out
        rows.write_text(f"age,{column}\n1,0\n")
        done = run_command("predict", tmp_path, rows)
        assert done.code == 2
        assert f"line 2, column '{column}': the value is " in done.err


def test_a_model_whose_predictions_are_draws(served: Served, tmp_path: Path) -> None:
    served(BetaExponentialAtoms())
    (tmp_path / "rows.csv").write_text("id\n1\n")
    done = run_command("predict", tmp_path, tmp_path / "rows.csv")
    assert done.code == 2
    assert f"`unweave posterior {tmp_path} --draws 4000 --out draws.csv`" in done.err


def test_an_option_without_its_value_names_the_help_of_its_command() -> None:
    done = run_command("evaluate", "net", "--membership")
    assert done.code == 2
    assert " evaluate --help`" in done.err
