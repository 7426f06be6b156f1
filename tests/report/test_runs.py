"""Reports of runs: a simulation, a demonstration, a saved federation; and files that are none."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.commands import run_command
from tests.support.hostile import HOSTILE, visible_line
from tests.support.page import Page

from unweave import BetaBernoulli, Federation
from unweave.demo import run_scenario
from unweave.errors import ConfigError
from unweave.models import LogisticRegression
from unweave.report import html_of, report_of
from unweave.report.facts import plain
from unweave.report.quantities import figure
from unweave.report.runs import run_report
from unweave.report.settings import setting_words
from unweave.report.timeline import dates, of_votes


def told(report):
    return [plain(one) for one in report.verdict.sentences]


# ------------------------------------------------------------------------------------- simulation


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    place = tmp_path_factory.mktemp("simulated")
    (place / "network.toml").write_text(
        'name = "ring"\nagents = 5\ngraph = "ring"\n[model]\nname = "gamma-poisson"\n'
    )
    done = run_command("simulate", place, "--faults", "calm", "--seed", 3, "--hops", 60, "--json")
    assert done.code == 0, done
    file = place / "run.json"
    file.write_text(done.out)
    return file


def test_a_simulation(simulated):
    run, report = json.loads(simulated.read_text()), report_of(simulated)
    assert run["erasures_asked"] > 0
    assert (report.source, report.network, report.size) == ("simulation", "ring", 5)
    assert report.verdict.headline == "Every rule held"
    asked = run["erasures_asked"]
    assert (
        f"{asked} erasure{'s' * (asked > 1)} requested, {run['erasures_certified']} certified."
        in told(report)
    )
    assert all(check.holds for check in report.checks)
    assert len(report.erasures) == run["erasures_certified"]
    assert {e.agent for e in report.erasures} <= {f"a{k}" for k in range(1, 6)}
    assert {e.kind for e in report.erasures} == {"exact"}
    assert report.commands == (run["repeat"],)
    (model,) = report.models
    (theta,) = model.quantities
    assert theta.moments["posterior"].mean == run["posterior"]["theta"]["mean"]
    assert theta.moments["prior"].sd == run["prior"]["theta"]["sd"] == 1.0
    page = Page(html_of(simulated))
    assert "bit for bit, that of a run without faults" in page.flat
    assert "its numbers can be repeated, not proved" in page.flat
    assert not page.files


def test_a_violated_run_has_no_report(tmp_path):
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"unweave": "simulation", "ok": False, "violation": "I1"}))
    with pytest.raises(ConfigError, match="broke an invariant"):
        report_of(file)


# ------------------------------------------------------------------------------------- federation


def federation(**settings):
    rng = np.random.default_rng(4)
    shards = {name: rng.integers(0, 2, 30) for name in ("north", "east", "south", "west")}
    return Federation(BetaBernoulli(a=2, b=2), shards, "ring", **settings).learn(progress=False)


def test_a_saved_federation(tmp_path):
    network = federation()
    network.forget("east", progress=False)
    network.forget(records={"west": [1, 2]}, progress=False)
    file = tmp_path / "wards.json"
    network.save(file)
    report = report_of(file)
    assert (report.source, report.network) == ("federation", "wards")
    assert [(e.agent, e.scope, e.records, e.kind, e.state) for e in report.erasures] == [
        ("east", "agent", None, "exact", "unsigned"),
        ("west", "records", 2, "exact", "unsigned"),
    ]
    assert [a.state for a in report.agents] == ["in", "erased", "in", "in"]
    (theta,) = report.models[0].quantities
    assert theta.moments["posterior"].mean == pytest.approx(float(network.posterior.mean()))
    assert "No agent signed this: all agents ran in one process." in told(report)
    assert [check.holds for check in report.checks] == [True, True]
    Page(html_of(file))


def test_a_federation_whose_sum_is_not_that_of_its_records(tmp_path):
    network = federation()
    file = tmp_path / "run.json"
    network.save(file)
    values = json.loads(file.read_text())
    rows = values["shards"][0]["rows"]["array"]
    rows[0] = 1.0 - rows[0]
    file.write_text(json.dumps(values))
    report = report_of(file)
    assert report.checks[-1].holds is False
    assert (report.verdict.level, report.verdict.headline) == ("bad", "A check failed")


def test_a_subtracted_factor_is_not_called_exact(tmp_path):
    rng = np.random.default_rng(0)
    shards = {}
    for name in "abcd":
        x = rng.normal(size=(40, 1))
        shards[name] = np.column_stack([x, rng.random(40) < 1 / (1 + np.exp(-x[:, 0]))])
    network = Federation(LogisticRegression(features=("x",), intercept=True), shards, "ring")
    network.learn(progress=False)
    network.forget("b", method="subtract", progress=False)
    network.save(tmp_path / "run.json")
    report = report_of(tmp_path / "run.json")
    assert (report.verdict.level, report.verdict.headline) == ("open", "Subtracted, not refined")
    assert "exact" not in " ".join(told(report))
    assert report.models[0].exact is False


def test_a_federation_in_private_rounds(tmp_path):
    network = federation(privacy="masked")
    network.forget("east", progress=False)
    network.save(tmp_path / "run.json")
    report = report_of(tmp_path / "run.json")
    assert report.privacy.mode == "masked"
    assert report.privacy.least == 3


NOISE = {"epsilon": 4.0, "delta": 1e-6, "releases": 8}


def test_a_federation_with_noise_is_not_called_exact(tmp_path):
    network = federation(privacy=NOISE)
    network.forget("east", progress=False)
    network.save(tmp_path / "run.json")
    report = report_of(tmp_path / "run.json")
    assert [e.kind for e in report.erasures] == ["exact_before_noise"]
    assert (report.privacy.epsilon, report.privacy.delta) == (4.0, 1e-6)
    assert [check.holds for check in report.checks] == [True]  # the records do not give its sum
    text = " ".join(told(report))
    assert "the sum before noise is exactly that of agents that never had the data" in text
    assert "to the last bit" not in text
    (theta,) = report.models[0].quantities
    assert theta.moments["posterior"].mean == pytest.approx(float(network.posterior.mean()))
    page = Page(html_of(tmp_path / "run.json"))
    assert "exact before noise" in page.flat
    assert "No check finds an agent that did not add its noise" in page.flat


def test_a_simulation_with_noise_is_not_called_exact(tmp_path):
    (tmp_path / "network.toml").write_text(
        'name = "ring"\nagents = 5\ngraph = "ring"\n[model]\nname = "beta-bernoulli"\n'
        '[privacy]\nmode = "masked"\nepsilon = 4.0\ndelta = 1e-6\nreleases = 50\n'
    )
    done = run_command(
        "simulate", tmp_path, "--faults", "calm", "--seed", 3, "--hops", 60, "--json"
    )
    assert done.code == 0, done
    (tmp_path / "run.json").write_text(done.out)
    report = report_of(tmp_path / "run.json")
    assert {e.kind for e in report.erasures} <= {"exact_before_noise"}
    assert report.privacy.epsilon == 4.0
    assert "every published sum carries noise" in report.privacy.seen
    assert (
        "Without its noise, the result equals, bit for bit"
        in Page(html_of(tmp_path / "run.json")).flat
    )


# ---------------------------------------------------------------------------------- other files


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"unweave": "certificate"}',
        b'{"unweave": "federation"}',
        b'{"unweave": "simulation"}',
        b'{"unweave": "demonstration"}',
        b'{"unweave": "report"}',
        b"<html>",
        b"[" * 100,
        b"\xff\xfe",
        b'{"unweave": "simulation", "unweave": "simulation"}',
    ],
)
def test_what_is_no_run_is_refused_with_place_and_fix(tmp_path, content):
    file = tmp_path / "run.json"
    file.write_bytes(content)
    done = run_command("report", file, "--out", tmp_path / "r.html")
    assert done.code == 2, done
    assert "Fix: " in done.err
    assert not (tmp_path / "r.html").exists()
    if b"federation" not in content:
        assert "run.json" in done.err


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_an_altered_run_is_reported_or_refused(simulated, data):
    """Any key with any value of another type: a page, or an error of ours."""
    run = json.loads(simulated.read_text())
    key = data.draw(st.sampled_from(sorted(run)))
    wrong = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.sampled_from(HOSTILE)
        | st.just([])
        | st.just({})
    )
    run[key] = data.draw(wrong)
    file = simulated.with_name("altered.json")
    file.write_text(json.dumps(run))
    try:
        page = Page(html_of(file))
    except ConfigError as error:
        found = [str(error).partition("Fix: ")[2]]
        assert found != [""]
    else:
        found = page.pieces
    for piece in found:
        visible_line(piece)


def test_hostile_texts_of_a_run_are_text(simulated):
    run = json.loads(simulated.read_text())
    moments = run["posterior"]["theta"]
    names = ["<script>alert(1)</script>", "\u202eabc", "\x1b[31m", "' onload='"]
    names += [text for text in HOSTILE if "\ud800" not in text]  # half a pair is no text
    run |= {
        "network": "<script>alert(1)</script>",
        "notes": ["</p><img src=x>"],
        "repeat": "unweave simulate <x> && `id`",
        "settings": dict.fromkeys(names, "<b>"),
        "posterior": dict.fromkeys(names, moments),
        "prior": {},
    }
    file = simulated.with_name("hostile.json")
    file.write_text(json.dumps(run))
    page = Page(html_of(file))
    for piece in page.pieces:
        visible_line(piece)
    assert "<script>alert(1)</script>" in page.pieces


# -------------------------------------------------------------------------------- dates, numbers


def test_an_erasure_by_votes_has_the_dates_of_the_votes(tmp_path):
    home = tmp_path / "a"
    home.mkdir()
    vote = "a vote that an agent has departed"
    (home / "agent.log").write_text(
        f"2026-01-31 12:00:00 info    a  {vote}  agent=b c  by=a  votes=1  needed=2\n"
        f"2026-01-31 12:00:03 info    a  {vote}  agent=b c  by=d  votes=2  needed=2\n"
        + json.dumps(
            {
                "time": 5.5,
                "level": "info",
                "agent": "b c",
                "event": "an agent has departed by a quorum of votes",
            }
        )
    )
    noon = time.mktime(time.strptime("2026-01-31 12:00:00", "%Y-%m-%d %H:%M:%S"))
    assert dates([home]) == {of_votes("b c"): {"requested": noon, "carried_out": 5.5}}


def test_dates_come_from_logs_of_both_forms(tmp_path):
    one, two = (f"{k:032x}" for k in (1, 2))
    home = tmp_path / "a"
    home.mkdir()
    (home / "agent.log.1").write_text(
        f"2026-01-31 12:00:00 info    a  an erasure was requested  agent=a  request={one}\n"
        "2026-01-31 12:00:01 warning a  an erasure was requested  request=" + two + "\n"
        "Traceback (most recent call last):\n\x00\xff\n"
    )
    (home / "agent.log").write_text(
        f"2026-01-31 12:00:05 info    a  an erasure was requested  agent={two}  request={one}\n"
        f"2026-01-31 12:00:06 info    a  certified  agents=a, b  requests={one}, {two}\n"
        + json.dumps(
            {
                "time": 5.5,
                "level": "info",
                "agent": "a",
                "event": "an erasure was carried out",
                "request": two,
            }
        )
        + '\n{"time": "x", "event": "certified"}\n{broken\n'
    )
    later = tmp_path / "b"
    later.mkdir()
    (later / "agent.log").write_text(
        f"2026-01-31 13:00:00 info    b  an erasure was requested  agent=a  request={one}\n"
    )
    noon = time.mktime(time.strptime("2026-01-31 12:00:00", "%Y-%m-%d %H:%M:%S"))
    assert dates([home, later, tmp_path / "nothing"]) == {
        one: {"requested": noon, "certified": noon + 6},
        two: {"certified": noon + 6, "carried_out": 5.5},
    }


def test_one_letter_settings_are_explained():
    assert setting_words({"a": 2.0, "b": 3.0}) == {
        "prior: first parameter (a)": "2",
        "prior: second parameter (b)": "3",
    }


def test_figures_have_two_digits_of_the_deviation():
    network = federation()
    (row,) = [report_of_moments(network)]
    assert figure(row.mean, row) == f"{row.mean:.3f}"
    assert figure(None, row) == "–"
    assert figure(-1e-9, row) == "0.000"
    assert figure(-0.25, row) == "−0.250"


def report_of_moments(network):
    from unweave.report.quantities import quantities_of

    (theta,) = quantities_of({"posterior": network.posterior})
    return theta.moments["posterior"]


def test_the_demonstration_without_its_files_is_refused(tmp_path):
    from unweave.demo.network import NetworkRun
    from unweave.demo.report import as_dict
    from unweave.json_form import as_json

    scenario = run_scenario(3)
    run = NetworkRun(tmp_path, {}, "lakeview", "", "", 5, {}, 30, 1.0)
    file = tmp_path / "report.json"
    file.write_text(as_json(as_dict(scenario, run)))
    with pytest.raises(ConfigError, match=r"network\.toml: cannot be read"):
        run_report(file)
