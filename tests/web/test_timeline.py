"""The timeline: sentences, folded, and kept in a file."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from unweave.node import activity
from unweave.web import sentences
from unweave.web.patches import merge
from unweave.web.timeline import KEPT, Timeline

REQUEST = "0" * 32


def texts(line: Timeline) -> list[str]:
    return [entry["text"] for entry in line.entries.values()]


def test_what_all_agents_tell_is_one_line() -> None:
    line = Timeline()
    facts = {"agent": "a3", "scope": "2 records", "request": REQUEST}
    for second in range(5):
        line.tell(f"a{second}", float(second), "an erasure was requested", facts)
    assert texts(line) == ["The erasure of 2 records of a3 was requested"]
    assert "times" not in line.entries["1"]
    line.tell("a0", 9.0, "an erasure was requested", facts | {"request": "1" * 32})
    assert len(line.entries) == 2


def test_what_agents_do_one_after_the_other_is_one_line() -> None:
    line = Timeline()
    for number in range(2000):
        line.tell(f"a{number}", number / 100, "added the factor", {"revision": 1})
        line.tell(f"a{number}", number / 100, "joined", {"neighbours": "…"})
    assert len(line.entries) == 2
    assert texts(line)[0].startswith("a0, a1, a2, a3, a4, a5, a6, a7, … (2000 in all) added their")


def test_what_happens_again_is_counted() -> None:
    line = Timeline()
    for number in range(3):
        for agent in ("a1", "a2"):
            what = "replaced the factor: the other factors have changed"
            line.tell(agent, float(number), what, {})
    entry = line.entries["1"]
    assert (entry["text"].partition(":")[0], entry["times"], entry["until"]) == (
        "a1, a2 fitted their factors again",
        3,
        2.0,
    )


def test_a_restart_of_one_agent_is_not_one_of_all() -> None:
    line = Timeline()
    for agent in ("a1", "a2", "a3"):
        line.tell(agent, 0.0, "started", {})
    line.tell("a2", 30.0, "started", {})
    line.tell("a2", 40.0, "started", {})
    line.tell("a3", 50.0, "started", {})  # not one of those that were counted
    line.tell("a1", 50.0, "started", {})
    assert texts(line) == ["a1, a2, a3 started", "a2 started", "a3, a1 started"]
    assert [entry.get("times") for entry in line.entries.values()] == [None, 2, None]


def test_who_joins_a_repetition_has_a_line() -> None:
    line = Timeline()
    what = "replaced the factor: the other factors have changed"
    for agent in ("a1", "a2", "a1", "a2", "a3"):
        line.tell(agent, 0.0, what, {})
    assert [text.partition(" f")[0] for text in texts(line)] == ["a1, a2", "a3"]


def test_a_line_is_as_old_as_the_last_agent_in_it() -> None:
    line = Timeline()
    line.tell("a1", 0.0, "started", {})
    line.tell("a2", 70.0, "started", {})
    assert line.entries["1"]["until"] == 70.0


def test_an_epoch_is_one_line_with_its_reason() -> None:
    facts, why = {"epoch": 2, "by": "a1"}, {"why": "the token included what a tombstone forbids"}
    told = [
        ("a1", "new epoch in place of the last one", facts),
        ("a2", "new epoch without a departed agent", facts),
        ("a1", "new epoch", why),
    ]
    for order in (told, told[::-1]):
        line = Timeline()
        for agent, what, each in order:
            line.tell(agent, 5.0, what, each)
        (text,) = texts(line)
        assert text.startswith("a1 opened epoch 2")
        assert text.endswith("(the last token held erased data)")
    line = Timeline()
    line.tell("a1", 0.0, "new epoch", {"why": "genesis"})
    assert texts(line) == ["a1 opened the first epoch"]


def test_later_news_are_a_new_line() -> None:
    line = Timeline()
    line.tell("a1", 0.0, "joined", {})
    line.tell("a2", 1000.0, "joined", {})
    assert texts(line) == ["a1 joined the network", "a2 joined the network"]


def test_failures_are_marked() -> None:
    line = Timeline()
    line.tell("a1", 0.0, "a neighbour does not answer", {"agent": "a2"}, "warning")
    line.tell("a1", 0.0, "something new", {"why": "of a later version"}, "error")
    assert [entry["level"] for entry in line.entries.values()] == ["failure", "failure"]


def test_controls_and_length_of_texts_are_bounded() -> None:
    line = Timeline()
    line.tell("a\x1b[31m\u202e", 0.0, "stays out", {"why": "x" * 5000}, "warning")
    (text,) = texts(line)
    assert text.isprintable()
    assert len(text) < 500


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["a1", "a2", "a3"]),
        st.integers(0, 400),
        st.sampled_from(["joined", "added the factor", "the token is parked", "stays out"]),
    ),
    max_size=40,
)


@given(STEPS)
def test_the_patches_give_the_entries(steps: list[Any]) -> None:
    line, seen = Timeline(), {}
    for agent, at, what in steps:
        merge(seen, line.tell(agent, float(at), what, {"why": "w"}))
    assert seen == line.entries


def test_old_lines_go() -> None:
    line, seen = Timeline(), {}
    for number in range(KEPT + 10):
        merge(seen, line.say(float(number), f"event {number}"))
    assert seen == line.entries
    assert len(seen) == KEPT
    assert next(iter(seen)) == "11"


def test_a_timeline_outlives_its_process(tmp_path: Path) -> None:
    file = tmp_path / "dashboard" / "timeline.json"
    first = Timeline(file)
    first.tell("a1", 1.0, "joined", {})
    first.told["a1"] = ("run", 7)
    first.save()
    assert file.stat().st_mode & 0o077 == 0
    again = Timeline(file)
    assert again.entries == first.entries
    assert again.told == {"a1": ("run", 7)}
    again.say(2.0, "later")
    assert list(again.entries) == ["1", "2"]


def test_another_network_in_the_same_folder_has_another_timeline(tmp_path: Path) -> None:
    first = Timeline(tmp_path / "timeline.json", "one")
    first.say(0.0, "of the first network")
    first.save()
    assert texts(Timeline(tmp_path / "timeline.json", "one")) == ["of the first network"]
    assert texts(Timeline(tmp_path / "timeline.json", "two")) == []


def test_a_broken_file_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "timeline.json"
    for content in (
        b"",
        b"{",
        b"[]",
        b'{"network": "", "entries": {"x": 1}, "told": {}}',
        b"\xff" * 9,
    ):
        file.write_bytes(content)
        line = Timeline(file)
        assert line.entries == {}
        line.say(0.0, "new")
        line.save()
        assert texts(Timeline(file)) == ["new"]


def test_every_activity_has_a_sentence() -> None:
    """A sentence of the log that is renamed must be renamed there, too."""
    tree = ast.parse(inspect.getsource(activity))
    told = {
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "ActivityEntry"
        and isinstance(node.args[0], ast.Constant)
    }
    told |= {
        node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.Return)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and ":" in node.value.value
    }
    assert len(told) > 15
    known = {*sentences._NETWORK, *sentences._OWN, *sentences._WITH_REASON, *sentences._SILENT}
    assert told <= known
