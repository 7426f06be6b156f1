"""Reports of real networks, running and stopped: what they say, and what they must not disclose."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.support.commands import run_command
from tests.support.page import Page
from tests.support.processes import Processes, erase

from unweave.families.marginals import BetaMarginal
from unweave.json_form import as_json
from unweave.report import html_of, report_of
from unweave.report.facts import Moments, plain
from unweave.report.quantities import coarse, matched

ROOT = Path(__file__).parents[2]
GONE = ["a2-0", "a2-7", "a2-8"]


def told(report):
    return [plain(one) for one in report.verdict.sentences]


def undisclosed(net, report, page):
    """No sum, no digest of one, no number with more digits than two of the standard deviation; and
    in private rounds no figure of a single agent. Attachments are searched, too."""
    facts = as_json(report.to_dict())
    everything = "\n".join(
        [page.text, facts, *(content.decode() for content in page.files.values())]
        + [value for _, _, value in page.attributes]
    )
    for name in net.running():
        shown = net.ask(name, "posterior", everything=True, secret=True)["posterior"]
        hidden = [shown.get("digest"), shown.get("secret"), *map(str, shown.get("units", ()))]
        hidden += [
            repr(value) for row in shown.get("marginals", ()) for value in row.values()
            if isinstance(value, float) and len(repr(value)) > 6
        ]  # fmt: skip
        own = net.ask(name, "influence")["influence"]
        hidden += [repr(v) for v in own.values() if isinstance(v, float)]
        for value in filter(None, hidden):
            assert not re.search(rf"(?<![\w.]){re.escape(value)}(?![\w.])", everything), value
            assert value[:16] not in everything or len(value) < 16
    for model in report.models:
        for quantity in model.quantities:
            assert set(quantity.moments) == {"prior", "posterior"}  # no earlier posterior
            now = quantity.moments["posterior"]
            assert coarse(now) == now
            assert {c.label for c in quantity.curves} <= {"prior", "posterior"}
            # The density is that of the numbers in the report.
            law = matched(BetaMarginal("theta", np.array(1.0), np.array(1.0)), now)
            (curve,) = (one for one in quantity.curves if one.label == "posterior")
            density = law.pdf(np.array(curve.x))
            np.testing.assert_allclose(curve.y, density / density.max(), atol=1e-3)
    for agent in report.agents:
        assert agent.note in ("", "did not answer")
    for key in ("digest", "units", "secret", "revision", "influence", "commitment"):
        assert f'"{key}"' not in facts.replace('\\"', "'"), key


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    place = tmp_path_factory.mktemp("report") / "net"
    with Processes(place, agents=5, rows=15, privacy="masked") as network:
        network.start()
        network.rest()
        yield network


def test_a_masked_network_from_learning_to_its_stores(net, tmp_path):
    report = report_of(net.root)
    assert report.verdict.headline == "Nothing was erased"
    assert [a.state for a in report.agents] == ["in"] * 5
    (model,) = report.models
    assert (model.name, model.exact, model.total) == ("beta-bernoulli", True, 1)
    (theta,) = model.quantities
    ones = sum(v for rows in net.rows.values() for v in rows.values())
    assert theta.moments["posterior"].mean == pytest.approx((1 + ones) / (2 + 75), abs=5e-3)
    undisclosed(net, report, Page(html_of(net.root)))

    # Records, then a whole agent.
    erase(net, "a2", GONE)
    erase(net, "a3")
    net.rest()
    report, page = report_of(net.root), Page(html_of(net.root))
    assert (report.verdict.level, report.verdict.headline) == ("good", "Erased and certified")
    first, second = report.erasures
    assert (first.agent, first.scope, first.records, first.by) == ("a2", "records", 3, "owner")
    assert (second.agent, second.scope, second.kind) == ("a3", "agent", "exact")
    for one in report.erasures:  # the dates come from the agents' logs
        assert one.requested <= one.carried_out <= one.certified
        assert one.requested in told(report)[0] + told(report)[1]
    assert told(report)[-2:] == [
        "All 5 agents of the network signed this.",
        "The certified model is exactly, to the last bit, that of a network that never had these "
        "data.",
    ]
    assert [a.state for a in report.agents] == ["in", "in", "erased", "in", "in"]
    assert report.privacy.mode == "masked"
    assert "No agent sees another's sums" in page.flat
    assert len(page.files) == 2
    undisclosed(net, report, page)

    # An agent is down: the next erasure is requested, and open.
    net.kill("a5")
    net.ask("a1", "erase", keys=["a1-1"])
    net.wait(
        "to know of the request",
        lambda: [n for n, s in net.statuses("a1", "a2", "a4").items() if not s["erasures"] > 2],
    )
    done = run_command("report", net.root, "--json", "--out", tmp_path / "open.html")
    assert done.code == 0, done
    assert done.json["verdict"]["level"] == "open"
    assert done.json["verdict"]["headline"] == "1 erasure not certified yet"
    sentence = done.json["verdict"]["sentences"][0]
    assert sentence.startswith("Records of a1 were removed from the model; still to sign: ")
    assert "a5" in sentence
    last = done.json["erasures"][-1]
    assert (last["agent"], last["state"], last["certified"]) == ("a1", "removed", None)
    assert {a["name"]: a["note"] for a in done.json["agents"]}["a5"] == "did not answer"
    assert "No posterior is shown" in Page((tmp_path / "open.html").read_bytes()).flat

    # Stopped: the stores and files say the same.
    net.stop()
    assert told(report_of(net.root))[0] == sentence
    net.start()
    net.rest()
    running = report_of(net.root)
    page = Page(html_of(net.root))
    undisclosed(net, running, page)
    net.stop()
    stopped = report_of(net.root)
    assert stopped.erasures == running.erasures
    assert stopped.as_of >= max(one.carried_out for one in stopped.erasures)
    assert re.fullmatch(r"[\d-]{10} \d\d:\d\d UTC", stopped.as_of)
    assert stopped.models == running.models
    assert stopped.verdict == running.verdict
    assert {c.sha256 for c in stopped.certificates} <= {c.sha256 for c in running.certificates}
    # One agent's folder will do.
    alone = report_of(net.folder("a1"))
    assert alone.verdict.level in ("good", "open")
    assert not any(one.waits_for for one in alone.erasures)  # all are certified, also without file
    assert all(one.certified for one in alone.erasures)
    contents = [one.content for one in alone.certificates]
    assert len(contents) == len(set(contents))
    assert "a1" in {one.agent for one in alone.erasures}


def test_a_request_that_waits_for_a_batch_is_open(tmp_path):
    publish = {"records": 9, "agents": 2, "at_most": "30d"}
    with Processes(tmp_path / "net", agents=4, rows=15, privacy="masked", publish=publish) as net:
        net.start()
        net.rest()
        net.ask("a2", "erase", keys=["a2-0", "a2-1"])
        report = report_of(net.root)
    assert (report.verdict.level, report.verdict.headline) == (
        "open",
        "1 erasure not certified yet",
    )
    (one,) = report.erasures
    assert (one.agent, one.scope, one.state) == ("a2", "records", "waiting")
    assert told(report)[0] == (
        f"Records of a2 are still in the model: the request waits for other changes, until "
        f"{one.until}."
    )


def test_a_network_with_noise(tmp_path):
    privacy = {"mode": "masked", "epsilon": 4.0, "delta": 1e-6, "releases": 20}
    with Processes(tmp_path / "net", agents=4, rows=40, privacy=privacy) as net:
        net.start()
        net.settled()
        erase(net, "a2", GONE)
        net.settled()
        report, page = report_of(net.root), Page(html_of(net.root))
        shown = net.ask("a1", "posterior", everything=True)["posterior"]
        undisclosed(net, report, page)
    (one,) = report.erasures
    assert (one.agent, one.records, one.kind) == ("a2", 3, "exact_before_noise")
    assert told(report)[-1].startswith("Before noise, the certified sum is exactly that of")
    assert "to the last bit" not in page.flat
    assert "epsilon 4, delta 1e-06 for each record, over 20 values of an agent" in page.flat
    (theta,) = report.models[0].quantities  # its interval knows of the noise
    assert theta.moments["posterior"].sd == float(f"{shown['marginals'][0]['sd']:.1e}")


NAMES = ("<b>", "x' onload='", "حسن", "]]>&amp;", "a1")


def test_hostile_names_of_agents_are_text(tmp_path):
    with Processes(tmp_path / "net", agents=NAMES, rows=12) as net:
        net.start()
        net.rest()
        erase(net, "<b>")
        erase(net, "حسن", ["حسن-0"])
        net.rest()
        report, page = report_of(net.root), Page(html_of(net.root))
    assert {one.agent for one in report.erasures} == {"<b>", "حسن"}
    for name in NAMES:
        assert name in page.pieces  # one text of its own
    assert set(page.tags) & {"b", "script"} == set()
    assert report.privacy.mode == "plain"
    assert "Neighbours can compute" in page.flat
    assert json.loads(as_json(report.to_dict()))["erasures"][0]["agent"] in NAMES


def test_coarse_numbers_are_two_digits_of_the_deviation():
    assert coarse(Moments(0.37301234, 0.020247, 0.3339, 0.41321)) == Moments(
        0.373, 0.02, 0.334, 0.413
    )
    assert coarse(Moments(-1234.567, 98.765, -1400.0, -1000.4)) == Moments(-1235, 99, -1400, -1000)
    assert coarse(Moments(3.14159, 1234.5, None, None)) == Moments(0.0, 1200.0, None, None)
    assert coarse(Moments(None, None, 0.18, 4.128)) == Moments(None, None, 0.18, 4.13)
    assert coarse(Moments(1.5, 0.0)) == Moments(None, None)
