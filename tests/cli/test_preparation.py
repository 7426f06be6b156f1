"""`unweave init`, `check` and `status` on data with missing values, conditions and levels."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.commands import run_command
from tests.support.processes import Processes


def visits(path: Path, n: int = 60) -> Path:
    rows = [
        f"p{k},{'' if k % 6 == 0 else k / 4},{'' if k % 10 == 0 else 'ab'[k % 2]},{k / 8},{k}"
        for k in range(n)
    ]
    path.write_text("id,dose,ward,y,age\n" + "\n".join(rows) + "\n")
    return path


INIT = (
    *(
        "--agents",
        "2",
        "--key",
        "id",
        "--model",
        "linear-regression",
        "--set",
        "features=dose,ward",
    ),
    *("--set", 'levels={"ward": ["a", "b"]}'),
)


def test_init_refuses_or_drops(tmp_path: Path) -> None:
    data = visits(tmp_path / "visits.csv")
    done = run_command("init", tmp_path / "no", "--data", data, *INIT)
    assert done.code == 2
    assert "line 2, column 'dose': the value is missing" in done.err
    done = run_command(
        "init", tmp_path / "net", "--data", data, *INIT, "--missing", "drop", "--where", "age >= 20"
    )
    assert done.code == 0, done.err
    settings = (tmp_path / "net" / "agents" / "a1" / "agent.toml").read_text()
    assert 'missing = "drop"' in settings
    assert 'where = "age >= 20"' in settings
    found = json.loads(run_command("check", tmp_path / "net", "--json").out)
    assert found["ok"], found
    notes = [r["note"] for r in found["checks"] if r["what"] == "data"]
    assert all("dropped, with a missing value (" in note for note in notes), notes
    wrong = run_command("init", tmp_path / "w", "--data", data, *INIT, "--missing", "keep")
    assert wrong.code == 2


def test_check_lists_all_bad_lines(tmp_path: Path) -> None:
    done = run_command("init", tmp_path / "net", "--agents", "1", *INIT[2:])
    assert done.code == 0, done.err
    visits(tmp_path / "net" / "agents" / "a1" / "data.csv")
    shown = run_command("check", tmp_path / "net")
    assert shown.code == 1
    assert "missing values by column: dose 10, ward 6" in shown.out
    assert "14 bad records:" in shown.out
    for line in (2, 8, 12, 14, 20, 22):
        assert f"line {line}, column " in shown.out
    found = json.loads(run_command("check", tmp_path / "net", "--json").out)
    (bad,) = [r for r in found["checks"] if r["problem"]]
    assert len(bad["details"]) == 16
    assert 'missing = "drop"' in bad["fix"]


def test_status_counts_dropped_records(tmp_path: Path) -> None:
    with Processes(tmp_path / "net", agents=1) as net:
        home = net.folder("a1")
        settings = home / "agent.toml"
        settings.write_text(settings.read_text().rstrip() + '\nmissing = "drop"\n')
        data = home / "data.csv"
        rows = data.read_text().splitlines()
        key, *_ = rows[1].split(",")
        blank = [",".join(["", *("" for _ in row.split(",")[1:])]) for row in rows[1:3]]
        assert rows[0].split(",")[0] == "id", rows[0]
        blank = [f"gone{k}{row}" for k, row in enumerate(blank)]
        data.write_text("\n".join([*rows, *blank]) + "\n")
        net.start()
        net.settled()
        status = net.ask("a1", "status")["status"]
        assert status["dropped_records"]["records"] == 2
        assert "2 records dropped, with a missing value" in run_command("status", net.root).out
        net.ask("a1", "erase", keys=["gone0", key])
        net.settled()
        assert len(net.ask("a1", "status")["status"]["dropped_records"]["columns"]) == 1
