"""What the page says about agents, token and waits, from what agents tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from unweave import graphs
from unweave.operations.cluster import Cluster
from unweave.web.live import states
from unweave.web.live.details import _facts, agent_details
from unweave.web.live.states import Known, agent_views, summary, token_view, waits
from unweave.web.view import Entry

NAMES = ("a1", "a2", "a3", "a4")


def short(**changes: Any) -> dict[str, Any]:
    return {
        "phase": "idle",
        "sent": 3,
        "epoch": 1,
        "hop": 9,
        "revision": 1,
        "shown": [1, 0, 7, 9, 7],
        "facts": "f",
        "inside": True,
        "parked": "a1",
        "attested": 4,
    } | changes


def status(name: str, **changes: Any) -> dict[str, Any]:
    other = {"attested": True, "suspect": False, "neighbour": True, "heard_seconds_ago": 1.0}
    return {
        "name": name,
        "phase": "idle",
        "epoch": 1,
        "hop": 9,
        "included": list(NAMES),
        "missing": [],
        "attested": 4,
        "parked": "a1",
        "parked_stamp": [1],
        "facts": "f",
        "departed": [],
        "erased": [],
        "suspects": [],
        "others": {one: dict(other) for one in NAMES if one != name},
    } | changes


def known(
    shorts: dict[str, Any] | None = None,
    statuses: dict[str, Any] | None = None,
    *,
    here: tuple[str, ...] = NAMES,
    masked: bool = False,
    reasons: dict[str, str] | None = None,
) -> Known:
    found = {name: short() for name in here} | (shorts or {})
    told = {name: status(name) for name, one in found.items() if one is not None}
    return Known(
        graphs.ring(NAMES),
        masked,
        {name: Path("net") / name for name in here},
        found,
        told | (statuses or {}),
        reasons or {},
        lambda stamp: 5.0,
    )


def told(state: Known, *, moved: bool = False) -> tuple[str, str]:
    views = agent_views(state)
    found = summary(state, views, token_view(state, []), waits(state), 10, moved)
    return found["state"], found["text"]


def test_a_status_that_still_holds_gets_the_newest_stamp() -> None:
    """Else the status of an agent that was asked later would count as newer knowledge."""
    late = {"a1": short(hop=30), "a2": short(hop=20, facts="other")}
    state = known(late, {"a2": status("a2", hop=10, included=["a2"])}).current()
    assert state.newest["name"] == "a1"
    assert {name: one["hop"] for name, one in state.statuses.items()} == {
        "a1": 30,
        "a2": 10,
        "a3": 9,
        "a4": 9,
    }


def test_an_agent_that_computes_its_factor_again_is_in_the_sum() -> None:
    again = {"a1": short(phase="solving", parked=None), "a2": short(parked=None)}
    first = again | {"a1": short(phase="solving", parked=None, inside=False)}
    for shorts, inside in ((again, 4), (first, 3)):
        state = known(shorts)
        views = agent_views(state)
        found = summary(state, views, token_view(state, []), {}, 9, True)
        assert found["inside"] == inside
        assert found["text"] == f"Learning: the sum holds {inside} of 4 agents."


def test_a_network_at_rest() -> None:
    state = known()
    assert told(state)[0] == "rest"
    assert waits(state) == {}
    assert token_view(state, [(1.0, 2), (2.0, 0)]) == {
        "state": "parked",
        "epoch": 1,
        "hop": 9,
        "at": 0,
        "visits": [(2, 1.0), (0, 2.0)],
    }


def test_an_agent_of_this_machine_is_never_said_to_be_on_another_one() -> None:
    """It stands still: its last short report is here, and a look has got no status of it."""
    state = known()
    told = {n: status(n, missing=["a3"]) for n in ("a1", "a2", "a4")}
    assert "away" not in waits(state._replace(statuses=told))


def test_a_departed_agent_is_not_asked_where_the_token_is_parked() -> None:
    """Its process may stand still, and the page has its last words."""
    gone = [status(name, departed=["a4"]) for name in ("a1", "a2", "a3")]
    state = known({"a4": short(parked="a3")}, {one["name"]: one for one in gone})
    assert token_view(state, [])["state"] == "parked"
    assert told(state)[0] == "rest"


def test_an_agent_that_is_down_has_a_reason_and_a_remedy() -> None:
    state = known({"a2": None})
    view = agent_views(state)["a2"]
    assert view["state"] == "down"
    assert view["why"] == "It does not run. Fix: start it with `unweave agent net/a2`."
    assert waits(state)["down a2"]["fix"] == "Start it with `unweave agent net/a2`."
    assert told(state) == ("waiting", "The token is parked; 1 agent does not answer.")
    frozen = known({"a2": None}, reasons={"a2": "its process is stopped: `kill -CONT 7` wakes it"})
    assert waits(frozen)["down a2"]["why"] == "Its process is stopped: `kill -CONT 7` wakes it."
    assert agent_views(frozen)["a2"]["why"] == waits(frozen)["down a2"]["why"]


def test_nobody_is_told_to_remove_an_agent_that_restarts_by_itself() -> None:
    remove = "a2 (start it, or `unweave forget net a2 --departed`)"
    resting = known({"a2": None})._replace(restarting=frozenset({"a2"}), stall=remove)
    assert agent_views(resting)["a2"] == {
        "index": 1,
        "state": "pending",
        "attested": True,
        "why": "It restarts by itself, to remove erased values from its memory: nothing to do.",
    }
    assert list(waits(resting)) == ["restarting"]
    assert waits(resting)["restarting"]["why"] == (
        "a2 restarts now, to remove erased values from memory: nothing to do."
    )
    why = {"memory_holds_erased": "an erasure"}
    due = known({"a2": None}, {one: status(one, **why) for one in ("a2", "a4")})
    found = waits(due._replace(restarting=frozenset({"a2"})))
    assert sorted(found) == ["restarting", "restarts 0"]
    assert found["restarts 0"]["why"].startswith("a4 restarts soon, ")  # a2 does it now
    starting = known({"a2": short(phase="starting", parked=None)})._replace(stall=remove)
    assert "stall" not in waits(starting)
    moving = known({"a2": short(parked=None)})._replace(stall=remove)
    assert "--departed" in waits(moving)["stall"]["why"]


def test_many_agents_that_are_down_are_few_lines() -> None:
    state = known(dict.fromkeys(NAMES))
    assert len(waits(state)) == 4
    assert told(state)[0] == "down"


def test_departed_and_erased_agents_are_not_missed() -> None:
    gone = {"departed": ["a2"], "erased": ["a3"], "included": ["a1", "a4"]}
    statuses = {name: status(name, **gone) for name in ("a1", "a3", "a4")}
    shorts = {"a2": None, "a3": short(inside=False)}
    state = known(shorts, statuses)
    views = agent_views(state)
    assert (views["a2"]["state"], views["a3"]["state"]) == ("departed", "erased")
    assert waits(state) == {}
    assert told(state)[0] == "rest"


def test_an_agent_that_stays_out_says_why() -> None:
    why = "the sum leaves the grid. Fix: scale the column"
    state = known(
        {"a3": short(inside=False)}, {"a3": status("a3", stays_out=why), "a1": status("a1")}
    )
    view = agent_views(state)["a3"]
    assert (view["state"], view["why"]) == ("pending", f"T{why[1:]}.")
    assert waits(state)["out 0"]["fix"] == "Scale the column."


def test_agents_that_solve_hold_the_token() -> None:
    state = known({"a4": short(phase="solving", parked=None)})
    assert agent_views(state)["a4"]["state"] == "solving"
    assert token_view(state, [])["state"] == "solving"
    assert token_view(state, [])["at"] == 3
    assert told(state, moved=True)[0] == "learning"


def test_agents_on_other_machines_are_known_from_those_here() -> None:
    state = known(here=("a1",))
    assert all(agent_views(state)[name].get("remote") for name in ("a2", "a3", "a4"))
    assert agent_views(state)["a2"]["state"] == "in"
    others = status("a1")["others"]
    others["a2"]["suspect"] = True
    lost = known(None, {"a1": status("a1", others=others, suspects=["a2"])}, here=("a1",))
    assert agent_views(lost)["a2"]["state"] == "down"
    assert "ask its operator" in agent_views(lost)["a2"]["why"]
    assert waits(lost)["away"]["agents"] == ["a2"]


def test_a_private_round_names_what_it_waits_for() -> None:
    waiting = {
        "agents": 4,
        "least": 3,
        "published": False,
        "not_enrolled": ["a3"],
        "not_given": [],
        "not_attested": [],
    }
    shorts = {name: short(inside=False, shown=None) for name in NAMES}
    statuses = {name: status(name, private_round=waiting, included=[]) for name in NAMES}
    state = known(shorts, statuses, masked=True)
    views = agent_views(state)
    assert views["a3"]["why"] == "The private round waits for its enrolment."
    assert not any("revision" in view for view in views.values())
    assert waits(state)["rounds 0"]["why"].endswith("All of them run: the round goes on.")
    del statuses["a3"]
    gone = known(shorts, masked=True)._replace(statuses=statuses)
    assert "Start every agent" in waits(gone)["rounds 0"]["fix"]


def test_what_passes_by_itself_says_so() -> None:
    held = {name: status(name, memory_holds_erased="a1 was erased") for name in ("a1", "a2")}
    soon = waits(known(None, held))["restarts 0"]
    assert soon["why"].startswith("a1, a2 restart soon")
    assert soon["why"].endswith("by themselves, nothing to do.")
    batch = {"requests": 1, "data": False, "records": 2, "by": 1e9}
    state = known(None, {"a1": status("a1", waiting=batch)})
    assert "nothing to do until then" in waits(state)["batches 0"]["why"]
    assert "--now" in waits(state)["batches 0"]["why"]
    assert told(state)[1].endswith("attested it. Changes wait for others.")


def test_after_the_last_value_one_entry_says_what_is_true() -> None:
    spent = "the privacy budget of a1 is spent: no posterior is served any more. Fix: a new network"
    budget = {"epsilon": 1.0, "delta": 1e-6, "left": 0, "given": 2, "clipped_records": 0}
    shorts = {name: short(inside=False, shown=None) for name in NAMES}
    over = {name: status(name, notice=spent, privacy_budget=budget, included=[]) for name in NAMES}
    state = known(shorts, over, masked=True)
    assert list(waits(state)) == ["notices 0"]
    assert agent_views(state)["a1"]["why"].startswith("It has no value left to give: ")
    assert "no value is left to give" in told(state)[1]
    last = {name: status(name, privacy_budget=budget) for name in NAMES}
    assert list(waits(known(None, last, masked=True))) == ["spent 0"]


def test_a_failed_audit_is_told() -> None:
    shorts = {name: short(phase="audit_failed") for name in NAMES}
    assert told(known(shorts))[0] == "failed"


def test_before_the_first_token() -> None:
    shorts = {name: {"phase": "quarantine", "sent": 0} for name in NAMES}
    state = known(shorts, {name: status(name, included=[], attested=0) for name in NAMES})
    assert told(state)[0] == "starting"
    assert "answers of its neighbours" in agent_views(state)["a1"]["why"]


def test_what_all_agents_share_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 2,000 folders the views would block the page for a second."""
    asked: list[object] = []
    found = states.departed_agents
    monkeypatch.setattr(states, "departed_agents", lambda s: (asked.append(s), found(s))[1])
    agent_views(known())
    assert len(asked) == 1


def test_private_rounds_show_no_numbers_of_records() -> None:
    told = {
        **status("a1", erased_records=4, waiting={"records": 5, "by": 2e9}),
        "up_seconds": 5.0,
        "pid": 1,
        "phase": "idle",
        "privacy_budget": {
            "epsilon": 1.0, "delta": 0.1, "given": 1, "left": 2, "clipped_records": 7,
        },
    }  # fmt: skip
    for masked in (True, False):
        state = known(None, {"a1": told}, masked=masked)
        facts = _facts(state, agent_views(state)["a1"], told)
        assert ("Erased records" in facts) != masked
        assert ("Records at a bound" in facts) != masked
        assert ("Changes that wait" in facts) != masked
        assert "Differential privacy" in facts
        (wait,) = [one for kind, one in waits(state).items() if kind.startswith("batches ")]
        assert wait["why"].startswith("a1: changes of its records wait for others, until ")


class _Answering:
    """One agent that keeps two receipts, the newest first."""

    agents = ("a1",)

    def again(self, name: str, do: str, **how: Any) -> dict[str, Any]:
        body = {"epoch": 1, "request": None, "before": 0, "after": 1}
        answers: dict[str, dict[str, Any]] = {
            "receipts": {"receipts": [body | {"hop": 7}, body | {"hop": 3}]}
        }
        return answers.get(do, {})


def test_events_and_receipts_of_an_agent_have_the_newest_first() -> None:
    state = known()
    recent: list[Entry] = [
        {"at": at, "text": f"Event {at:.0f}.", "level": "info"} for at in (1.0, 2.0)
    ]
    agents = cast("Cluster", _Answering())
    found = agent_details(agents, "a1", state, agent_views(state)["a1"], recent)
    assert [one["text"].partition(":")[0] for one in found["receipts"]] == [
        *("Event 2.", "Event 1."),
        *("Epoch 1, hop 7", "Epoch 1, hop 3"),
    ]
