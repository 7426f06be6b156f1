"""The change of mean and standard deviation by an erasure: what two reports tell, and no more."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest
from tests.support.commands import run_command
from tests.support.page import Page

from unweave.node.api.client import Operator
from unweave.report import html_of, report_of
from unweave.report.facts import ChangeFact, Moments
from unweave.report.quantities import change

CONJUGATE = ("--column", "x=ill")
LOGISTIC = ("-m", "logistic-regression", "--set", "features=age", "--set", "target=ill",
            "--scale", "age=10", "--center", "age=50", "--set", "intercept=true")  # fmt: skip


@contextmanager
def network(folder, *options):
    """A network of processes that has learned."""
    rng = np.random.default_rng(5)
    age = rng.integers(20, 80, 240)
    ill = rng.random(240) < 1.0 / (1.0 + np.exp(-(age - 55) / 10.0))
    rows = [f"p{i:03},{int(y)},{x}" for i, (x, y) in enumerate(zip(age, ill, strict=True))]
    table = folder / "visits.csv"
    table.write_text("\n".join(["patient,ill,age", *rows]))
    root = folder / "clinics"
    made = run_command("init", root, "--agents", 4, "--data", table, "--split", "sorted",
                       "--key", "patient", *options)  # fmt: skip
    assert made.code == 0, made.err
    command = [sys.executable, "-m", "unweave", "up", str(root), "--json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as up:
        try:
            settled(root)
            yield root
        finally:
            up.terminate()


def settled(root):
    done = run_command("posterior", root, "--wait", 120, "--json")
    assert done.code == 0, done.out


def moments(report):
    return {q.name: q.moments["posterior"] for q in report.models[0].quantities}


@pytest.mark.parametrize("options", [CONJUGATE, LOGISTIC], ids=["conjugate", "logistic"])
def test_a_report_shows_the_change_that_two_reports_tell(tmp_path, options):
    with network(tmp_path, "--privacy", "plain", *options) as root:
        before = report_of(root)
        done = run_command("forget", root, "a1", "--json")
        assert done.code == 0, done.out
        settled(root)
        after = report_of(root)
        (one,) = after.erasures
        old, new = moments(before), moments(after)
        assert {c.name for c in one.changes} == new.keys()
        for c in one.changes:
            assert (c.mean, c.sd) == change(old[c.name], new[c.name])
        assert any(c.mean != 0.0 for c in one.changes)
        (file,) = root.glob("change-*.json")
        assert file.stat().st_mode & 0o777 == 0o600
        kept = file.read_bytes()
        assert json.loads(kept) == {
            "request": one.request,
            "changes": {c.name: [c.mean, c.sd] for c in one.changes},
        }
        page = Page(html_of(root))
        assert "Not known here" not in page.flat
        for c in one.changes:
            assert f"{c.mean:+.6g}".replace("-", "−") in page.pieces or c.mean == 0.0

        # The same request again: the numbers of now are not those from before it.
        assert run_command("forget", root, "a1", "--json").code == 0
        assert file.read_bytes() == kept

        # Nobody has waited for this one.
        with Operator(root / "agents" / "a2", 30.0) as operator:
            operator.ask("erase", keys=[_first_key(root, "a2")])
        assert run_command("audit", root).code == 0
        report = report_of(root)
        assert [bool(e.changes) for e in report.erasures] == [True, False]
        assert "Not known here: 1 erasure." in Page(html_of(root)).flat


def test_private_rounds_keep_and_show_no_change(tmp_path):
    with network(tmp_path, *CONJUGATE) as root:
        assert run_command("forget", root, "a1", "--json").code == 0
        assert not [*root.glob("change-*")]
        request = report_of(root).erasures[0].request
        planted = {"request": request, "changes": {"theta": [0.1, 0.1]}}
        (root / "change-a1.json").write_text(json.dumps(planted))
        assert report_of(root).erasures[0].changes == ()
        assert "Not shown: in private rounds" in Page(html_of(root)).flat


def test_a_change_is_no_finer_than_two_reports():
    assert change(Moments(0.34, 0.033), Moments(0.338, 0.035)) == (-0.002, 0.002)
    assert change(Moments(0.5, 0.095), Moments(0.52, 0.11)) == (0.02, 0.01)  # of the larger sd
    assert change(Moments(0.338, 0.033), Moments(0.338, 0.033)) == (0.0, 0.0)
    assert change(Moments(None, None), Moments(0.3, 0.1)) is None


OLD, NEW = {"theta": Moments(0.34, 0.033)}, {"theta": Moments(0.338, 0.035)}


def _known(*ids, out=False):
    return {"a2": {"erasures": {"known": {"a1": {"ids": list(ids), "out": out}}}}}


@pytest.mark.parametrize(
    ("reports", "now", "done", "kept"),
    [
        (_known("r0", "r1"), NEW, True, True),
        (_known("r0", "r1", out=True), NEW, True, True),
        (_known("r0", out=True), NEW, True, True),  # by votes
        (_known("r0", "r1"), None, False, False),  # no posterior yet
        (_known("r0"), NEW, False, False),
        (_known("r0", "r1", "r2"), NEW, True, False),  # the change by two
    ],
)
def test_a_change_is_kept_if_it_is_that_of_one_erasure(
    tmp_path, monkeypatch, reports, now, done, kept
):
    from unweave.report import changes

    monkeypatch.setattr(changes, "_read", lambda folder: (reports, now))
    before = changes.Before(OLD, frozenset(["r0"]))
    assert changes.keep_change(tmp_path, "a1", "r1", before) is done
    assert bool(changes.kept_changes([tmp_path])) is kept
    earlier = changes.Before(OLD, frozenset(["r0", "r1"]))
    assert changes.keep_change(tmp_path / "x", "a1", "r1", earlier)  # nothing is written


def test_files_that_are_no_change_are_ignored(tmp_path):
    from unweave.report.changes import kept_changes

    (tmp_path / "change-a.json").write_text('{"request": "00", "changes": {"theta": [1, 0.5]}}')
    for number, text in enumerate(("", "[]", '{"request": 1}', '{"request": "1", "changes": []}')):
        (tmp_path / f"change-{number}.json").write_text(text)
    assert kept_changes([tmp_path]) == {"00": (ChangeFact("theta", 1.0, 0.5),)}


def _first_key(root, name):
    return (root / "agents" / name / "data.csv").read_text().splitlines()[1].split(",")[0]
