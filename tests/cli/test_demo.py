"""`unweave demo`: it verifies what it shows, and says so when it is not true."""

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import webbrowser
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.support.commands import run_command
from tests.support.page import Page

import unweave.demo
from unweave.cli import common
from unweave.datasets import load, names
from unweave.demo import run_scenario
from unweave.errors import ConfigError
from unweave.models import BetaBernoulli
from unweave.report import report_of


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
    assert files - certificates == {"report.html", "report.json", "network.toml"}
    assert all((place / name).stat().st_size > 500 for name in files)
    saved = json.loads((place / "report.json").read_text(encoding="utf-8"))
    assert saved == {key: value for key, value in report.items() if key != "files"}
    _check_page(place, report, certificates)

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


def _check_page(place, run, certificates):
    """report.html says what report.json says, with the certificates inside."""
    page = Page((place / "report.html").read_bytes())
    facts = report_of(place / "report.json")
    assert facts.verdict.headline == "Erased and certified"
    assert page.files == {name: (place / name).read_bytes() for name in certificates}
    out, ((owner, ids),) = run["forgotten"]["hospital"], run["forgotten"]["patients"].items()
    assert [(e.agent, e.scope, e.records, e.kind) for e in facts.erasures] == [
        (out, "agent", None, "exact"),
        (owner, "records", len(ids), "exact"),
    ]
    assert all(e.requested and e.carried_out and e.certified for e in facts.erasures)
    assert [check.holds for check in facts.checks] == [True, True, True, None, True]
    regression, share = facts.models  # what the processes learned comes first
    assert regression.title == run["network"]["model"]
    assert "in memory" in share.title
    (theta,) = share.quantities
    assert set(theta.moments) == {"prior", "posterior", "before", "never"}
    assert theta.moments["posterior"] == theta.moments["never"] != theta.moments["before"]
    assert {curve.label for curve in theta.curves} == set(theta.moments)
    assert {a.name: a.state for a in facts.agents if a.state != "in"} == {out: "erased"}
    (place / next(iter(certificates))).rename(place / "kept.json")
    missing = report_of(place / "report.json")
    (place / "kept.json").rename(place / next(iter(certificates)))
    assert len(missing.certificates) == 1


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
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Not exact" in page
    assert "Erased and certified" not in page


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("terminal", "environment", "opens"),
    [
        (True, {"DISPLAY": ":0"}, True),
        (True, {"WAYLAND_DISPLAY": "wayland-0"}, True),
        (True, {}, False),
        (True, {"DISPLAY": ":0", "CI": "true"}, False),
        (False, {"DISPLAY": ":0"}, False),
    ],
)
def test_a_page_opens_where_a_person_sees_it(monkeypatch, tmp_path, terminal, environment, opens):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: bool(opened.append(address) or True))
    monkeypatch.setattr(sys, "stdout", Terminal() if terminal else io.StringIO())
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    page = tmp_path / "a page.html"
    assert common.open_page(page) is opens
    assert opened == ([page.as_uri()] if opens else [])


def test_a_browser_that_fails_is_no_error(monkeypatch, tmp_path):
    def fails(address):
        raise webbrowser.Error("no browser")

    monkeypatch.setattr(webbrowser, "open", fails)
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("CI", raising=False)
    assert common.open_page(tmp_path / "page.html") is False


def descendants(mark: Path) -> list[int]:
    """Processes whose environment names this folder."""
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if str(mark).encode() in file.read_bytes():
                found.append(int(file.parent.name))
    return found


@pytest.mark.parametrize("finished", [False, True])
def test_sigterm_leaves_no_process_and_nothing_of_them(tmp_path, finished, request):
    # A short path: the fork server has a socket in it.
    temporary = Path(tempfile.mkdtemp(prefix="demo-"))
    request.addfinalizer(lambda: shutil.rmtree(temporary))
    command = [sys.executable, "-m", "unweave", "demo", "--out", str(tmp_path / "out")]
    with subprocess.Popen(
        [*command, "--dashboard", "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(temporary), "PYTHONWARNINGS": ""},
        text=True,
    ) as demo:
        try:
            assert "url" in json.loads(demo.stdout.readline())
            if finished:  # the network runs on
                while demo.stdout.readline() != "}\n":
                    assert demo.poll() is None
            demo.send_signal(signal.SIGTERM)
            out, err = demo.communicate(timeout=120)
        finally:
            demo.kill()
    assert (demo.returncode, err) == (0 if finished else 1, "")
    if not finished:
        assert "stopped before" in json.loads(out)["error"]["message"]
    assert descendants(temporary) == []
    # Of the process that the demonstration kills (kill -9): the next start of an agent removes it.
    assert [one.name[:13] for one in temporary.iterdir()] in ([], ["unweave-gate-"])


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
