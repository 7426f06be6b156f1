"""Viewers of a feed: what they are sent gives the view, whenever they come and however slow."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.dashboard import still_view
from unweave.web import feed as feed_module
from unweave.web.feed import ViewFeed
from unweave.web.patches import compose, difference, merge
from unweave.web.view import KEPT_POINTS

KEYS = st.sampled_from("abc")
LEAVES = st.integers(0, 3) | st.lists(st.integers(0, 2), max_size=2)
VALUES = st.recursive(LEAVES, lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=6)
PATCHES = st.dictionaries(
    KEYS,
    st.recursive(
        LEAVES | st.none(), lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
    ),
    max_size=3,
)
POINTS = st.dictionaries(
    st.sampled_from(["rate", "unknown"]),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=2),
    max_size=2,
)
SERIES = st.sampled_from(
    [
        {"series": {"rate": None}},
        {"series": {"rate": {"title": "hops", "points": []}}},
        {"series": {"rate": {"title": "more hops"}}},
    ]
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["change", "points", "flush"]), PATCHES | SERIES, POINTS),
    max_size=12,
)


class Viewer:
    """A page: applies what it is sent."""

    def __init__(self, events: AsyncGenerator[bytes]) -> None:
        self.events = events
        self.view: Any = None
        self.last = ""
        self.kinds: list[str] = []

    async def take(self) -> None:
        """The next chunk."""
        chunk = await anext(self.events)
        for message in chunk.decode().split("\n\n"):
            if not message or message.startswith(":"):
                continue
            head, kind, data = message.split("\n")
            self.last = head.removeprefix("id: ")
            self.kinds.append(kind.removeprefix("event: "))
            self.apply(self.kinds[-1], json.loads(data.removeprefix("data: ")))

    def apply(self, kind: str, body: Any) -> None:
        if kind == "snapshot":
            self.view = body
        elif kind == "change":
            merge(self.view, body)
        else:
            for name, points in body.items():
                series = self.view["series"][name]
                series["points"] = (series["points"] + points)[-KEPT_POINTS:]


def plain(view: Any) -> Any:
    return json.loads(json.dumps(view))


@given(VALUES, PATCHES)
def test_merge_is_the_algorithm_of_the_standard(target: Any, patch: dict[str, Any]) -> None:
    def standard(target: Any, patch: Any) -> Any:
        if not isinstance(patch, dict):
            return patch
        result = dict(target) if isinstance(target, dict) else {}
        for key, value in patch.items():
            if value is None:
                result.pop(key, None)
            else:
                result[key] = standard(result.get(key), value)
        return result

    assert merge(deepcopy(target), patch) == standard(target, patch)


@given(VALUES, PATCHES, PATCHES)
def test_a_composed_patch_does_what_both_do(
    target: Any, first: dict[str, Any], second: dict[str, Any]
) -> None:
    both = compose(first, second)
    if both is not None:
        apart = merge(merge(deepcopy(target), first), second)
        assert merge(deepcopy(target), both) == apart


@given(st.dictionaries(KEYS, VALUES), st.dictionaries(KEYS, VALUES))
def test_a_difference_leads_from_one_to_the_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    patch = difference(old, new)
    assert merge(deepcopy(old), patch) == new
    assert bool(patch) == (old != new)


def test_an_object_in_place_of_another_is_not_one_patch() -> None:
    assert compose({"a": None}, {"a": {"b": 1}}) is None
    assert compose({"a": {"b": None}}, {"a": {"b": 1, "c": {}}}) == {"a": {"b": 1, "c": {}}}


@given(STEPS, st.integers(0, 12))
def test_what_viewers_are_sent_gives_the_view(steps: list[Any], comes: int) -> None:
    async def run() -> None:
        series = {"rate": {"title": "hops", "x": "time", "empty": "", "points": [(0, 0)]}}
        feed = ViewFeed(still_view(series=series))
        viewers = [Viewer(feed.events())]
        await viewers[0].take()
        for number, (do, patch, points) in enumerate(steps):
            if number == comes:
                viewers.append(Viewer(feed.events()))
                await viewers[-1].take()
            if do == "change":
                feed.change(patch)
            elif do == "points":
                feed.points(points)
            else:
                feed._flush()
        feed.change({"title": "end"})
        for viewer in viewers:
            while viewer.view.get("title") != "end":
                await viewer.take()
            assert viewer.view == plain(feed.view)
            assert viewer.kinds.count("snapshot") == 1
            await viewer.events.aclose()
        assert feed.viewers == 0

    asyncio.run(run())


SERIES_OF_TESTS = {"rate": {"title": "hops", "x": "time", "empty": "", "points": []}}


def test_points_come_once_also_to_a_viewer_that_comes_with_them() -> None:
    async def run() -> None:
        feed = ViewFeed(still_view(series=SERIES_OF_TESTS))
        feed.points({"rate": [(1.0, 1.0)]})
        viewer = Viewer(feed.events())
        await viewer.take()
        feed.change({"title": "end"})
        while viewer.view["title"] != "end":
            await viewer.take()
        assert viewer.view == plain(feed.view)

    asyncio.run(run())


def test_a_number_that_json_does_not_have_reaches_nobody() -> None:
    async def run() -> None:
        series: Any = {"rate": {"title": "r", "x": "time", "empty": "e", "points": []}}
        feed = ViewFeed(still_view(series=series))
        viewer = feed.events()
        await anext(viewer)
        feed.points({"rate": [(1.0, math.inf), (2.0, 3.0)]})
        feed.change({"posterior": {"at": math.nan, "ends": [1.0, -math.inf]}})
        sent = (await asyncio.wait_for(anext(viewer), 5)).decode()
        assert "[2.0,3.0]" in sent.replace(" ", "")
        first = (await anext(feed.events())).decode()
        for word in ("NaN", "Infinity"):
            assert word not in sent + first

    asyncio.run(run())


def test_points_and_a_new_series_keep_their_order() -> None:
    async def run() -> None:
        feed = ViewFeed(still_view(series=SERIES_OF_TESTS))
        viewer = Viewer(feed.events())
        await viewer.take()
        feed.points({"rate": [(1.0, 1.0)]})
        feed.change({"series": {"rate": {"points": []}}})
        feed.points({"rate": [(2.0, 2.0)]})
        feed.change({"title": "end"})
        await viewer.take()
        assert viewer.view["series"]["rate"]["points"] == [[2.0, 2.0]]
        assert viewer.view == plain(feed.view)

    asyncio.run(run())


def test_a_viewer_that_comes_back_gets_what_it_missed() -> None:
    async def run() -> None:
        feed = ViewFeed(still_view())
        first = Viewer(feed.events())
        await first.take()
        feed.change({"title": "one"})
        await first.take()
        await first.events.aclose()
        feed.change({"title": "two"})
        feed._flush()
        feed.change({"model": "three"})
        feed._flush()
        again = Viewer(feed.events(first.last))
        again.view = first.view
        await again.take()
        assert again.kinds == ["change", "change"]
        assert again.view == plain(feed.view)

    asyncio.run(run())


@pytest.mark.parametrize("last", ["", "17", "00000000-0", "x-1", "{run}-99", "{run}-²"])
def test_an_id_of_another_process_gets_a_snapshot(last: str) -> None:
    async def run() -> None:
        feed = ViewFeed(still_view())
        feed.change({"title": "one"})
        viewer = Viewer(feed.events(last.replace("{run}", feed._run)))
        await viewer.take()
        assert viewer.kinds == ["snapshot"]
        assert viewer.view == plain(feed.view)

    asyncio.run(run())


def test_a_slow_viewer_gets_a_snapshot_and_delays_nobody() -> None:
    async def run() -> None:
        feed = ViewFeed(still_view())
        slow, quick = Viewer(feed.events()), Viewer(feed.events())
        await slow.take()
        await quick.take()
        for number in range(2 * feed_module._KEPT):
            feed.change({"title": str(number)})
            feed._flush()
            await quick.take()
        assert quick.kinds.count("snapshot") == 1
        assert len(feed._kept) == feed_module._KEPT
        await slow.take()
        assert slow.kinds == ["snapshot", "snapshot"]
        assert slow.view == quick.view == plain(feed.view)

    asyncio.run(run())


def test_a_forgetful_feed_sends_a_snapshot_to_those_who_come_back() -> None:
    async def run() -> None:
        feed = ViewFeed(still_view())
        first = Viewer(feed.events())
        await first.take()
        feed.change({"posterior": {"why": "the old numbers"}})
        feed._flush()
        await first.take()
        last = first.last
        await Viewer(feed.events()).take()  # a snapshot, which another viewer could get, too
        feed.change({"posterior": {"why": "the new numbers"}})
        feed.forget()
        assert not any(b"old numbers" in message for _, message in feed._kept)
        assert feed._encoded is None
        again = Viewer(feed.events(last))
        await again.take()
        assert again.kinds == ["snapshot"]
        await first.take()
        assert first.view == again.view == plain(feed.view)

    asyncio.run(run())


def test_kept_messages_are_bounded_in_bytes() -> None:
    async def run() -> None:
        feed = ViewFeed(still_view())
        for number in range(10):
            feed.change({"title": f"{number}" * (1 << 20)})
            feed._flush()
        assert feed._kept_bytes == sum(len(message) for _, message in feed._kept)
        assert feed._kept_bytes <= feed_module._KEPT_BYTES

    asyncio.run(run())


def test_many_changes_are_few_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand changes at one time are two messages: what changed, and the points."""

    async def run() -> None:
        series = {"rate": {"title": "hops", "x": "time", "empty": "", "points": []}}
        feed = ViewFeed(still_view(series=series))
        viewer = Viewer(feed.events())
        await viewer.take()
        for number in range(1000):
            feed.change({"agents": {f"a{number % 7}": {"index": number}}})
            feed.points({"rate": [(number, 1.0)]})
        await viewer.take()
        assert viewer.kinds == ["snapshot", "change", "points"]
        assert viewer.view == plain(feed.view)

    asyncio.run(run())


def test_the_clock_of_a_network_is_that_of_the_message() -> None:
    async def run() -> None:
        now = 5.0
        feed = ViewFeed(still_view(kind="network"), lambda: now)
        viewer = Viewer(feed.events())
        await viewer.take()
        assert viewer.view["clock"] == 5.0
        now = 7.0
        feed.change({"title": "later"})
        await viewer.take()
        assert viewer.view["clock"] == 7.0

    asyncio.run(run())


def test_a_source_that_changes_its_own_objects_changes_nothing_here() -> None:
    async def run() -> None:
        feed = ViewFeed(still_view())
        before = Viewer(feed.events())
        await before.take()
        mine: dict[str, Any] = {"waits": {"w": {"what": "a wait", "why": "why"}}}
        feed.change(mine)
        mine["waits"]["w"]["what"] = "another"
        assert feed.view["waits"]["w"]["what"] == "a wait"
        await before.take()
        after = Viewer(feed.events())
        await after.take()
        assert before.view == after.view == plain(feed.view)

    asyncio.run(run())


def test_a_viewer_that_waits_hears_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a message: a comment reaches no script, and the page could not tell silence from rest."""
    monkeypatch.setattr(feed_module, "_HEARTBEAT", 0.01)

    async def listen() -> list[bytes]:
        events = ViewFeed(still_view()).events()
        heard = [await anext(events), await anext(events)]
        await events.aclose()
        return heard

    first, beat = asyncio.run(listen())
    assert b"event: heartbeat\ndata: {}\n" in beat
    assert beat.splitlines()[0] == first.splitlines()[0]  # its id: nothing was missed


def test_a_viewer_that_comes_back_to_an_idle_network_hears_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it missed has the clock of then, by which all ages would be too small."""
    monkeypatch.setattr(feed_module, "_HEARTBEAT", 0.01)

    async def run() -> None:
        now = 5.0
        feed = ViewFeed(still_view(kind="network"), lambda: now)
        viewer = Viewer(feed.events())
        await viewer.take()
        feed.change({"title": "later"})
        feed._flush()
        now = 600.0
        again = feed.events(viewer.last)
        missed, beat = await anext(again), await anext(again)
        assert b'"clock": 5.0' in missed
        assert b'event: heartbeat\ndata: {"clock": 600.0}\n' in beat
        await again.aclose()

    asyncio.run(run())
