"""The list of erasures of a live network: what each of them shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from unweave.manifest import Manifest
from unweave.operations.cluster import Cluster
from unweave.report.timeline import of_votes
from unweave.web.live import erasures
from unweave.web.live.erasures import LiveErasures
from unweave.web.live.posterior import LiveReading

CHANGE = [("theta", 0.01, -0.002)]


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveErasures:
    """A list whose agents say that every request is out of the sum."""

    def removed(agents: Cluster, requests: list[str]) -> dict[str, dict[str, Any]]:
        return {r: {"state": "removed", "waiting_for": []} for r in requests}

    monkeypatch.setattr(erasures, "ask_erasures", removed)
    return LiveErasures(tmp_path, cast("Manifest", None))


def look(
    found: LiveErasures, ids: Mapping[str, str], departed: Mapping[str, str] | None = None
) -> None:
    known: dict[str, Any] = {name: {"ids": [], "out": False} for name in ids.values()}
    for request, name in ids.items():
        known[name]["ids"].append(request)
    reading = LiveReading({"a9": {"erasures": {"known": known}}}, {}, None)
    statuses = {"a9": {"departed_requests": departed or {}}}
    found.look(cast("Cluster", None), reading, statuses, {})


def test_the_change_by_two_erasures_is_told_once(found: LiveErasures) -> None:
    """Nobody knows which part of it is that of one."""
    look(found, {"r0": "a0"})
    look(found, {"r0": "a0", "r1": "a1", "r2": "a2"})
    found.changed({"r1", "r2"}, CHANGE)
    for _ in range(2):  # the sentences stay when agents tell more
        first, second = found.views["r1"], found.views["r2"]
        assert "change" not in found.views["r0"]
        assert "change" not in first
        assert first["text"].count("shown together with that of records of a2.") == 1
        assert second["change"] == CHANGE
        assert second["text"].count("of this erasure together with records of a1.") == 1
        look(found, {"r0": "a0", "r1": "a1", "r2": "a2"})


def test_the_change_by_one_erasure_is_its_own(found: LiveErasures) -> None:
    look(found, {"r1": "a1"}, {"a4": "r4"})
    found.changed({"a4"}, CHANGE)  # by votes: the sum tells the agent alone
    assert found.views["r4"]["change"] == CHANGE
    assert "together" not in found.views["r4"]["text"]
    assert "change" not in found.views["r1"]


@pytest.mark.parametrize(
    ("report", "down", "text"),
    [
        (
            {"state": "removed", "waiting_for": ["a1", "a2", "a3"]},
            {"a2": "start it"},
            "Taken out of the sum; to attest: a1, a2, a3; a2 does not answer: start it.",
        ),
        (
            {"state": "removed", "waiting_for": ["a3"]},
            {},
            "Taken out of the sum; to attest: a3, when the token comes: nothing to do.",
        ),
        (
            {"state": "asked"},
            {"a1": "start it", "a4": "start it, too"},
            "Requested; the token goes to a1; a1 does not answer: start it.",
        ),
        (
            {"state": "voting", "votes": 1, "quorum": 3},
            {"a1": "start it"},
            "1 of 3 votes that it has departed; others vote with `unweave vote AGENT_DIR a1`.",
        ),
    ],
)
def test_an_erasure_that_waits_names_who_is_missing_and_the_remedy(
    found: LiveErasures, report: dict[str, Any], down: dict[str, str], text: str
) -> None:
    look(found, {"r1": "a1"})
    found._progress("r1", report, down)
    assert found.views["r1"]["text"] == text


def test_a_request_that_waits_for_a_batch_says_until_when_and_what_else(
    found: LiveErasures,
) -> None:
    look(found, {"r1": "a1"})
    found._progress("r1", {"state": "waiting", "by": 1e9}, {})
    text = found.views["r1"]["text"]
    assert "at the latest: nothing to do until then" in text
    assert "--now" in text
    assert "difference of two sums shows them" in text


def test_errors_of_a_terminal_name_the_boxes_of_the_page() -> None:
    page = (Path(erasures.__file__).parents[1] / "static" / "index.html").read_text()
    for option in ("use --missing-ok", "use --departed if it will never run again"):
        told = erasures._on_page(f"Fix: {option}")
        assert "--" not in told
        assert told.partition("“")[2].rstrip("”") in page


def test_erasures_beyond_the_shown_ones_do_not_come_back(
    found: LiveErasures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasures, "_SHOWN", 3)
    ids = {f"r{k}": "a1" for k in range(5)}
    look(found, ids)
    assert len(found.views) == 5  # none is finished
    for view in found.views.values():
        view["certificate"] = True
    look(found, ids)
    look(found, ids)
    found.note("r0", "a1", "everything", 1.0)
    assert list(found.views) == ["r2", "r3", "r4"]
    assert all(view["certificate"] for view in found.views.values())


def test_a_request_that_was_found_before_its_event_is_dated_by_the_event(
    found: LiveErasures,
) -> None:
    look(found, {"r1": "a1"})
    assert "asked_at" not in found.views["r1"]
    found.note("r1", "a1", "everything", 12.34)
    assert found.views["r1"]["asked_at"] == 12.3
    found.note("r1", "a1", "everything", 99.0)  # told again by another agent
    assert found.views["r1"]["asked_at"] == 12.3


def test_a_request_for_what_an_earlier_one_names_shows_the_earlier_one(
    found: LiveErasures,
) -> None:
    """The agent answers with the earlier request."""
    found.note("r1", "a1", "3 records", 12.3)
    found.register("r1", None, {"agent": "a1", "keys": ["17"]})
    assert (found.views["r1"]["scope"], found.views["r1"]["asked_at"]) == ("3 records", 12.3)
    found.register("r2", None, {"agent": "a1", "keys": ["17", "18"]})
    assert found.views["r2"]["scope"] == "2 records"


@pytest.mark.parametrize("by", ["owner", "quorum"])
def test_a_certificate_has_the_date_of_the_agents_logs(
    found: LiveErasures, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Agents tell their last events only, and a certificate by votes names no request there."""
    erased = SimpleNamespace(
        agent="a1", scope="agent", found=None, remembered=0, kind="exact", by=by, request="r1"
    )
    key = "r1" if by == "owner" else of_votes("a1")
    monkeypatch.setattr(
        erasures, "dates", lambda homes: {key: {"requested": 3.0, "certified": 5.0}}
    )
    monkeypatch.setattr(
        erasures, "certificate_facts", lambda files, manifest: ((), {"r1": (erased, "c.json")})
    )
    told = {"r1": {"state": "certified", "certificate": b"{}"}}
    monkeypatch.setattr(erasures, "ask_erasures", lambda agents, requests: told)
    look(found, {"r1": "a1"})
    view = found.views["r1"]
    assert (view["state"], view["asked_at"], view["done_at"]) == ("certified", 3.0, 5.0)
