"""`unweave paper`: files and numbers, and what bad input gets."""

import json
from functools import partial

import pytest
from tests.support.commands import run_command


@pytest.fixture
def run(monkeypatch, tmp_path):
    """`unweave paper …` in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return partial(run_command, "paper")


def test_json_has_the_key_numbers(run, tmp_path):
    code, out, err = run("theory", "--replicas", 50, "--seed", 4, "--out", "here", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["out"] == "here"
    assert report["seed"] == 4
    entry = report["figures"]["theory"]
    assert entry["replicas"] == 50
    assert entry["results"]["complete"]["forget"]["exact"] == pytest.approx(9.1)
    assert all((tmp_path / "here" / file).exists() for file in entry["files"])


def test_people_get_the_findings(run, tmp_path):
    code, out, _ = run("fig3", "--replicas", 20)
    assert code == 0
    assert "mean KL is below 0.01" in " ".join(out.split())
    assert "paper-out/" in out
    assert (tmp_path / "paper-out" / "summary.md").exists()
    assert not (tmp_path / "paper-out" / "fig4.csv").exists()


def test_masked_runs_what_has_private_rounds_and_says_why_the_rest_has_none(run):
    code, out, err = run("all", "--privacy", "masked", "--replicas", 3, "--out", "here", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["privacy"] == "masked"
    assert report["figures"].keys() == {"fig3"}
    assert report["refused"].keys() == {"fig4", "fig5", "theory"}
    assert all("Fix: --privacy plain, or" in why for why in report["refused"].values())
    code, out, _ = run("all", "--privacy", "masked", "--replicas", 2)
    assert code == 0
    assert "fig5 was left out: beta-exponential with local steps" in " ".join(out.split())


def test_help_has_examples(run):
    code, out, _ = run("--help")
    assert code == 0
    assert "unweave paper all" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig6"], "choose fig3, fig4, fig5, theory or all"),
        (["figure"], "no figure is called 'figure'"),
        (["fig3", "--replicas", "1"], "at least 2"),
        (["fig3", "--out", "a-file"], "a-file: cannot write there"),
        (["fig3", "--replicas", "many"], "integer"),
        (["fig3", "--privacy", "secret"], "choose plain or masked"),
        (["fig4", "--privacy", "masked"], "no private rounds"),
        (["fig5", "--privacy", "masked"], "beta-exponential-atoms"),
        (["theory", "--privacy", "masked"], "Fix: --privacy plain, or `unweave plan"),
        (["fig3", "--dashboard", "--privacy", "masked"], "leave one of them out"),
    ],
)
def test_bad_input_is_one_line_and_code_2(run, tmp_path, arguments, message):
    (tmp_path / "a-file").write_text("")
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert message in " ".join(err.split())
    assert "Traceback" not in err
