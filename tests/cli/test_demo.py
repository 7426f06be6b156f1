"""`unweave demo`: it verifies what it shows, and says so when it is not true."""

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.support.commands import run_command

import unweave.demo
from unweave.cli import common
from unweave.datasets import load, names
from unweave.demo import run_scenario
from unweave.demo.pictures import CAPTION
from unweave.errors import ConfigError
from unweave.models import BetaBernoulli


@pytest.fixture
def run():
    return partial(run_command, "demo")


def test_json_reports_the_whole_scenario(run, tmp_path):
    code, out, err = run("--out", tmp_path / "new" / "place", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["exact"] is True
    assert sum(h["patients"] for h in report["hospitals"].values()) == 569
    assert sum(h["malignant"] for h in report["hospitals"].values()) == 212
    share = report["models"]["share of malignant diagnoses"]
    data = load("breast_cancer")
    pooled = BetaBernoulli(a=1, b=1)
    everything = pooled.posterior(pooled.eta0 + pooled.factor(pooled.shard(data["diagnosis"])))
    assert share["posterior"]["before"]["digest"] == everything.digest
    for model in report["models"].values():
        q = model["posterior"]
        assert q["after"] == q["never_had_it"] != q["before"]
        assert set(model["kinds"]) == {"exact"}
        assert len(model["attested_by"]) == 5
    place = tmp_path / "new" / "place"
    files = {n.rsplit("/", 1)[-1] for n in report["files"]}
    certificates = {name for name in files if name.startswith("certificate-")}
    assert files - certificates == {"posteriors.png", "token.png", "report.md", "network.toml"}
    assert all((place / name).stat().st_size > 500 for name in files)
    page = (place / "report.md").read_text(encoding="utf-8")
    assert "equal, bit for bit" in page
    # The picture of a walk beside the number of hops: it is another walk, and says so.
    assert page.index("![token](token.png)") < page.index(f"*{CAPTION}*")
    assert "in memory" in CAPTION

    # The processes: killed on the way, and still exactly what one memory gives.
    network = report["network"]
    regression = report["models"]["diagnosis from cell features"]["posterior"]
    assert network["learned"] == regression["before"]["digest"]
    assert network["forgotten"] == regression["never_had_it"]["digest"]
    assert len(network["agents"]) == network["attested"] == 5
    assert set(network["certificates"]) == certificates
    assert len(certificates) == 2
    for pid in network["agents"].values():
        assert not Path(f"/proc/{pid}").exists()  # no process remains
    for name in certificates:
        assert run_command("verify", place / name, "--network", place).code == 0


def test_a_difference_is_a_failure_and_people_are_told(run, tmp_path, monkeypatch):
    def wrong(seed, tick):
        scenario = run_scenario(seed)
        stage = scenario.stages[0]
        return replace(scenario, stages=(replace(stage, never=stage.before), scenario.stages[1]))

    monkeypatch.setattr(unweave.demo, "run_scenario", wrong)
    code, out, _ = run("--out", tmp_path, "--seed", 1)
    assert code == 1
    assert "Not exact" in out
    assert "hops in" in out
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "NOT equal" in report
    assert "![posteriors](posteriors.png)" in report


def test_a_directory_that_cannot_be_made(run, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    code, _, err = run("--out", tmp_path / "file")
    assert code == 2
    assert "cannot be made" in err


def test_the_data_set_is_what_it_says():
    assert names() == ("breast_cancer",)
    data = load("breast_cancer")
    assert len(data) == 32
    assert data["id"].tolist() == list(range(1, 570))
    assert data["diagnosis"].sum() == 212
    assert all(np.isfinite(column).all() and len(column) == 569 for column in data.values())
    sick, well = (data["mean_radius"][data["diagnosis"] == d].mean() for d in (1, 0))
    assert sick == pytest.approx(17.46, abs=0.01)  # malignant nuclei are larger
    assert well == pytest.approx(12.15, abs=0.01)
    with pytest.raises(ConfigError, match="Fix: choose from breast_cancer"):
        load("iris")


def test_commands_to_copy_work_where_the_shell_does_not_find_unweave(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    for started, called in (
        (".venv/bin/unweave", ".venv/bin/unweave"),
        (str(tmp_path / "my tools/unweave"), "'my tools/unweave'"),
        ("/opt/bin/unweave", "/opt/bin/unweave"),
        ("unweave", "unweave"),
    ):
        monkeypatch.setattr(sys, "argv", [started])
        assert common.program() == called
    script = tmp_path / "none/unweave"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [".venv/bin/unweave"])
    assert common.program() == "unweave"
