"""Whom `up` waits for."""

from unweave.cli.up import _line, _missing, _pids, _why


def known(**changes):
    here = {"rest": [1], "resting": "a1", "complete": True, "attested": 2, "left": ["a3"]}
    return here | changes


def test_nobody_waits_for_one_who_is_gone():
    found = {"a1": known(), "a2": known()}
    assert _missing(found, ["a3"]) == ""
    assert _missing({**found, "a3": known(resting=None)}, []) == ""
    assert _missing({**found, "a2": known(resting=None)}, ["a3"]) == "a2"
    assert _missing({"a1": known(left=[]), "a2": known(left=[])}, ["a3"]) == "a3"


WHY = "component c leaves the grid"


def look(**changes):
    return known(left=[], attested=3, included=["a1", "a2", "a3"], digest="d" * 64) | changes


def test_a_line_says_what_is_the_case():
    three = {name: look() for name in ("a1", "a2", "a3")}
    assert _line(three, []) == "3 agents answer, 3 included, at rest with dddddddddddd"
    two = {name: three[name] for name in ("a1", "a2")}
    said = _line(two, ["a3"])
    assert said == "2 agents answer, 3 included, at rest with dddddddddddd; down: a3"
    assert _line({}, ["a1", "a2"]) == "nobody answers; down: a1, a2"
    gone = {name: look(left=["a3"]) for name in ("a1", "a2")}
    assert _line(gone, ["a3"]).endswith("dddd; gone: a3")
    walking = three | {"a2": look(resting=None)}
    assert _line(walking, []) == "3 agents answer, 3 included, learning"


def test_who_stays_out_is_said_with_the_reason():
    out = look(complete=False, included=["a1"], stays_out=WHY)
    found = {"a1": look(complete=False, included=["a1"]), "a2": out, "a3": out}
    said = _line(found, [])
    assert said.startswith("3 agents answer, 1 included, at rest with dddddddddddd, incomplete; ")
    assert said.endswith(f"a2, a3 stay out: {WHY}")
    assert _why(found, "a2") == f"a2, a3 stay out: {WHY}"
    assert _why({"a1": look()}, "a1").startswith("waiting for a1; look at agent.log")


def test_whoever_started_agents_is_to_be_stopped():
    """It would start them again."""
    found = {"a1": {"pid": 11, "supervisor": 7}, "a2": {"pid": 12, "supervisor": 7}}
    assert _pids(found) == "7"
    assert _pids(found | {"a3": {"pid": 13, "supervisor": None}}) == "7 13"
