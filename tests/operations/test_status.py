"""The agents that `unweave up` waits for, and the network in one line."""

from unweave.cli.up import _pids
from unweave.operations.status import Overview


def known(**changes):
    here = {
        "parked_stamp": [1],
        "parked": "a1",
        "complete": True,
        "attested": 2,
        "departed": ["a3"],
    }
    return here | changes


def seen(found, down=(), troubles=()):
    return Overview(found, list(down), ("a1", "a2", "a3"), dict(troubles))


def test_no_agent_waits_for_a_departed_one():
    found = {"a1": known(), "a2": known()}
    assert seen(found, ["a3"]).missing() == ""
    assert seen({**found, "a3": known(parked=None)}).missing() == ""
    assert seen({**found, "a2": known(parked=None)}, ["a3"]).missing() == "a2"
    assert seen({"a1": known(departed=[]), "a2": known(departed=[])}, ["a3"]).missing() == "a3"


def test_who_is_elsewhere_is_named_and_counts():
    """Its folder is not here; the others wait for it, and it must have attested, too."""
    out = {"missing": ["a3"], "complete": False, "departed": []}
    two = {name: known(**out) for name in ("a1", "a2")}
    assert seen(two).missing() == "a3"
    assert (
        seen(two)
        .why("a3")
        .startswith("waiting for a3, on another machine, not included or not heard. Fix: ask")
    )
    assert "on another machine, not included or not heard: a3" in seen(two).line()
    silent = {"others": {"a3": {"neighbour": True, "heard_seconds_ago": None}}, "departed": []}
    two = {name: known(**silent, parked=None) for name in ("a1", "a2")}
    assert seen(two).missing() == "a3"
    rested = {name: known(departed=[], attested=2) for name in ("a1", "a2")}
    assert seen(rested).missing() == "a1, a2"  # two of three have attested: that is no rest
    rested = {name: known(departed=[], attested=3) for name in ("a1", "a2")}
    assert seen(rested).missing() == ""


def test_why_one_is_down_is_told():
    found = {name: look() for name in ("a1", "a3")}
    told = seen(found, ["a2"], {"a2": "cannot start: row 3 is no number"})
    assert told.line().endswith("; down: a2; a2: cannot start: row 3 is no number")
    assert told.why("a2") == "a2: cannot start: row 3 is no number"


WHY = "component c leaves the grid"


def look(**changes):
    return (
        known(departed=[], attested=3, included=["a1", "a2", "a3"], commitment="d" * 64) | changes
    )


def test_a_line_says_what_is_the_case():
    three = {name: look() for name in ("a1", "a2", "a3")}
    assert seen(three).line() == "3 agents answer, 3 included, parked with dddddddddddd"
    for other in (None, "e" * 64):  # one of them has not attested in the last round
        mixed = three | {"a1": three["a1"] | {"commitment": other}}
        assert seen(mixed).line() == "3 agents answer, 3 included, parked"
    two = {name: three[name] for name in ("a1", "a2")}
    said = seen(two, ["a3"]).line()
    assert said == "2 agents answer, 3 included, parked with dddddddddddd; down: a3"
    assert seen({}, ["a1", "a2"]).line() == "no agent answers; down: a1, a2"
    gone = {name: look(departed=["a3"]) for name in ("a1", "a2")}
    assert seen(gone, ["a3"]).line().endswith("dddd; departed: a3")
    walking = three | {"a2": look(parked=None)}
    assert seen(walking).line() == "3 agents answer, 3 included, learning"


def test_who_stays_out_is_said_with_the_reason():
    out = look(complete=False, included=["a1"], stays_out=WHY)
    found = {"a1": look(complete=False, included=["a1"]), "a2": out, "a3": out}
    said = seen(found).line()
    assert said.startswith("3 agents answer, 1 included, parked with dddddddddddd, incomplete; ")
    assert said.endswith(f"a2, a3 stay out: {WHY}")
    assert seen(found).why("a2") == f"a2, a3 stay out: {WHY}"
    assert seen({"a1": look()}).why("a1").startswith("waiting for a1. Fix: read agent.log")


def test_whoever_started_agents_is_to_be_stopped():
    """It would start them again."""
    found = {"a1": {"pid": 11, "supervisor": 7}, "a2": {"pid": 12, "supervisor": 7}}
    assert _pids(found, {}) == "7"
    assert _pids(found | {"a3": {"pid": 13, "supervisor": None}}, {}) == "7 13"
    assert _pids({}, {"a1": 14, "a2": None}) == "14"
