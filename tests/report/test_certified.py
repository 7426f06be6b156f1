"""Folders with network.toml and certificates alone: what the report says of each kind of erasure,
and that every claim is one that the certificate proves."""

from __future__ import annotations

import json

import pytest
from tests.support.certificates import CONJUGATE, OTHER, Bench
from tests.support.commands import run_command
from tests.support.page import Page

from unweave.report import html_of, report_of
from unweave.report.facts import plain


@pytest.fixture
def folder(tmp_path):
    """Writes a bench's manifest, and these certificates."""

    def write(bench, *certificates):
        bench.manifest.write(tmp_path / "network.toml")
        for k, content in enumerate(certificates, 1):
            (tmp_path / f"certificate-{k}.json").write_bytes(content)
        return tmp_path

    return write


def told(report):
    return [plain(one) for one in report.verdict.sentences]


EXACT = (
    "The certified model is exactly, to the last bit, that of a network that never had these data."
)


def test_everything_of_an_agent_exactly(folder):
    bench = Bench(model=CONJUGATE)
    content = bench.erase("b", "one")
    place = folder(bench, content)
    report = report_of(place)
    assert (report.verdict.level, report.verdict.headline) == ("good", "Erased and certified")
    removed, signed, meaning = told(report)
    assert removed == "Everything of b was removed from the model."
    assert signed == "All 4 agents of the network signed this."
    assert meaning == EXACT
    (one,) = report.erasures
    assert (one.agent, one.scope, one.state, one.by, one.kind) == (
        "b", "agent", "certified", "owner", "exact",
    )  # fmt: skip
    assert one.requested is one.carried_out is None
    assert one.certified.startswith("by 20")  # the file's time: the latest possible date
    assert [a.state for a in report.agents] == ["in", "erased", "in", "in"]
    (certificate,) = report.certificates
    assert certificate.attested == ("a", "b", "c", "d")
    assert certificate.included == ("a", "c", "d")
    assert [c.holds for c in report.checks] == [True, True, True, None]
    assert report.commands == ("unweave verify certificate-1.json --network network.toml",)
    page = Page(html_of(place))
    assert page.files == {"certificate-1.json": content}
    for text in (removed, signed, meaning, certificate.sha256, "Physical deletion."):
        assert text in page.flat
    assert "No posterior is shown" in page.flat


def test_the_command_of_the_report_verifies_the_attached_file(folder, tmp_path):
    bench = Bench(model=CONJUGATE)
    place = folder(bench, bench.erase("b", "one"))
    ((name, content),) = Page(html_of(place)).files.items()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / name).write_bytes(content)
    (command,) = report_of(place).commands
    words = command.replace("network.toml", str(place / "network.toml")).split()[1:]
    words[1] = str(tmp_path / "new" / words[1])
    assert run_command(*words).code == 0


def test_records_and_a_later_agent_have_the_newest_certificate(folder):
    bench = Bench(model=CONJUGATE)
    first = bench.erase("c", "one", rows=[1, 2, 3])
    report = report_of(folder(bench, first, bench.erase("b", "two")))
    assert [(e.agent, e.scope, e.records) for e in report.erasures] == [
        ("c", "records", 3),
        ("b", "agent", None),
    ]
    assert {e.certificate for e in report.erasures} == {"certificate-2.json"}
    assert [c.file for c in report.certificates] == ["certificate-2.json", "certificate-1.json"]
    assert "3 records of c were removed." in told(report)


@pytest.mark.parametrize("judgement", [True, False])
def test_other_models_are_refined_or_retrained_and_never_called_exact(folder, judgement):
    bench = Bench(model=OTHER, judgement=judgement)
    place = folder(bench, bench.erase("b", "one"))
    report = report_of(place)
    (one,) = report.erasures
    text = " ".join(told(report))
    assert EXACT not in text
    assert "The distance from training without the data was not estimated" in text
    if one.kind == "retrained":
        assert "all agents started again from zero" in text
        assert "need not equal" not in text
    else:
        assert one.kind == "refined"
        assert "The result need not equal that of a network that never had them." in text
    # The page explains the kind in the same words.
    kinds = Page(html_of(place)).flat
    assert "bit for bit, that of training without the erased data" not in kinds


def test_both_kinds_occur(folder):
    kinds = {
        report_of(folder(bench, bench.erase("b", "one"))).erasures[0].kind
        for bench in (Bench(model=OTHER, judgement=True), Bench(model=OTHER, judgement=False))
    }
    assert kinds == {"refined", "retrained"}


def test_a_departed_agent(folder):
    bench = Bench(model=CONJUGATE)
    report = report_of(folder(bench, bench.declare_departed("c", "gone")))
    removed, signed, _ = told(report)
    assert removed == (
        "Everything of c is out of the model: a majority of the agents declared it permanently "
        "absent."
    )
    assert signed == "All 3 agents that have not departed signed this; departed: c."
    assert [a.state for a in report.agents] == ["in", "in", "departed", "in"]
    assert any("No vote makes an absent agent delete" in plain(one) for one in report.limits)


def test_a_masked_network_that_is_too_small_says_that_nothing_is_left(folder):
    bench = Bench(model=CONJUGATE, privacy="masked")
    bench.erase("a", "one")
    report = report_of(folder(bench, bench.erase("b", "two")))
    assert told(report)[-1] == (
        "The certified model is empty: fewer than 3 agents remain; nothing is published any more."
    )
    assert EXACT not in told(report)


def altered(content):
    """One signature with another digit."""
    value = json.loads(content)
    one = value["attestation"]["signatures"][0]
    one["sig"] = ("A" if one["sig"][0] != "A" else "B") + one["sig"][1:]
    return json.dumps(value).encode()


@pytest.mark.parametrize("wrong", [altered, lambda content: b"{}", lambda content: content[:-3]])
def test_a_certificate_that_proves_nothing_is_named_and_the_code_is_1(folder, tmp_path, wrong):
    bench = Bench(model=CONJUGATE)
    good = bench.erase("b", "one")
    place = folder(bench, good, wrong(good))
    report = report_of(place)
    assert (report.verdict.level, report.verdict.headline) == (
        "bad",
        "1 certificate failed the check",
    )
    assert told(report)[0].startswith("The file certificate-2.json proves nothing: ")
    assert [c.holds for c in report.checks] == [False, True, True, True, None]
    assert plain(report.checks[0].what).startswith("1 certificate of 2 failed the check.")
    assert told(report)[1] == "What follows is about the certified erasures alone."
    out = tmp_path / "report.html"
    done = run_command("report", place, "--out", out)
    assert done.code == 1
    assert "failed the check" in done.out
    page = Page(out.read_bytes())
    assert list(page.files) == ["certificate-1.json"]  # only what is valid is offered
    assert "certificate-2.json proves nothing" in page.flat


def test_a_certificate_of_another_network_proves_nothing_here(folder):
    bench, other = Bench(model=CONJUGATE), Bench(model=CONJUGATE, seed=5)
    report = report_of(folder(bench, other.erase("b", "one")))
    assert report.verdict.level == "bad"
    assert report.erasures == ()


def test_without_certificates(folder):
    place = folder(Bench(model=CONJUGATE))
    report = report_of(place)
    assert report.verdict.headline == "Nothing was erased"
    assert report.checks == report.commands == ()
    assert {a.state for a in report.agents} == {"unknown"}
    assert "a, b, c, d have agreed to learn together the model" in Page(html_of(place)).flat
    assert "There is no certificate here to verify." in Page(html_of(place)).flat


def test_json_has_the_same_facts(folder, tmp_path):
    bench = Bench(model=CONJUGATE)
    content = bench.erase("b", "one")
    place = folder(bench, content)
    done = run_command("report", place, "--json")
    assert done.code == 0
    facts, report = done.json, report_of(place)
    assert facts["unweave"] == "report"
    assert facts["file"] is None
    assert facts["verdict"]["sentences"] == told(report)
    assert facts["certificates"][0]["content"].encode() == content
    assert facts["certificates"][0]["sha256"] == report.certificates[0].sha256
    assert facts["limits"] == [plain(one) for one in report.limits]
    out = tmp_path / "r.html"
    done = run_command("report", place, "--json", "--out", out)
    assert done.json["file"] == str(out)
    assert out.stat().st_mode & 0o777 == 0o600


def test_what_is_refused(folder, tmp_path):
    done = run_command("report", tmp_path / "nothing")
    assert done.code == 2
    assert "no such folder" in done.err
    done = run_command("report", folder(Bench(model=CONJUGATE)), "--out", tmp_path / "network.toml")
    assert done.code == 2
    assert "Fix: name it .html" in done.err
