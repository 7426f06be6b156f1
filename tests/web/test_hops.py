"""Hops are dated with the agents' times, however late the page hears of them."""

from __future__ import annotations

from pathlib import Path

from tests.support.processes import Processes
from unweave.web.live.hops import Hops
from unweave.web.live.network import NetworkSource
from unweave.web.live.states import agent_views


def test_hops_that_are_told_late_have_their_own_times() -> None:
    hops = Hops()
    hops.take([(1000.0 + k / 4, 1, k) for k in range(1, 42)])  # four per second, told at once
    points = hops.points(still_at=5000.0)
    assert points[0][0] >= 1002.0
    assert points[-1] == (1010.4, 0.0)  # then it stood still
    assert {rate for _, rate in points[:-1]} == {4.0}
    assert hops.points(still_at=6000.0) == []
    hops.take([(5000.0, 1, 42)])
    assert hops.points(still_at=5000.0) == [(1010.4, 0.0), (4999.9, 0.0)]


def test_between_two_known_visits_the_rate_is_the_mean() -> None:
    """An agent keeps its last visits only, but every visit has the number of its hop."""
    hops = Hops()
    hops.take([(1000.0, 1, 10), (1100.0, 1, 511)])
    assert hops.points(still_at=0.0) == [(1000.1, 5.0), (1099.9, 5.0)]


def test_what_another_agent_tells_later_is_counted_once() -> None:
    hops = Hops()
    hops.take([(1000.0, 1, 1), (1004.0, 1, 9)])
    assert hops.points(still_at=0.0) == [(1004.0, 2.0)]
    hops.take([(1001.0, 1, 3), (1008.0, 1, 17)])
    assert hops.points(still_at=0.0) == [(1008.0, 2.0)]


def test_a_new_epoch_counts_from_one() -> None:
    hops = Hops()
    hops.take([(1000.0, 1, 90), (1004.0, 2, 9)])
    assert hops.points(still_at=0.0) == [(1004.0, 2.0)]


def test_a_sum_is_dated_with_the_visit_that_made_it() -> None:
    hops = Hops()
    hops.take([(1000.0, 1, 4), (1001.0, 1, 5)])
    assert hops.when([1, 0, 0, 4, 0]) == 1000.0
    assert hops.when([1, 0, 0, 6, 0]) == 1001.0  # it was not sent on
    assert hops.when([1, 0, 0, 9, 0]) is None
    assert hops.when(None) is None


def test_the_page_does_not_date_a_sum_with_the_time_of_its_question(tmp_path: Path) -> None:
    source = NetworkSource(Processes(tmp_path / "net", agents=3).root)
    answer = {"run": "r", "number": 1, "events": [], "sent": 1, "phase": "idle", "facts": "f"}
    answer |= {"visits": [(1000.0, 1, 4)], "shown": [1, 0, 0, 4, 0]}
    source._take("a1", answer)
    source._take("a2", answer | {"visits": [], "shown": [1, 0, 0, 90, 0]})
    views = agent_views(source._known)
    assert views["a1"]["posterior_at"] == 1000.0
    assert "posterior_at" not in views["a2"]
