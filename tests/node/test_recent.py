"""What is new at an agent: numbered, bounded, waited for."""

from __future__ import annotations

import asyncio
import threading

from tests.support.nodes import QUICK, nodes, until
from tests.support.processes import Processes

from unweave.node.api.report import short_report
from unweave.node.log import Log
from unweave.node.recent import Recent


def test_a_reader_gets_what_is_newer_and_all_after_a_restart():
    recent = Recent()
    recent.event("info", "joined", {"neighbours": "a2"})
    recent.visit(1, 4)
    first = recent.since("", 0)
    assert [one["what"] for one in first["events"]] == ["joined"]
    assert [visit[1:] for visit in first["visits"]] == [[1, 4]]
    recent.event("error", "the disk refuses", {"why": "x" * 1000})
    second = recent.since(first["run"], first["number"])
    assert [one["what"] for one in second["events"]] == ["the disk refuses"]
    assert second["visits"] == []
    assert len(second["events"][0]["facts"]["why"]) < 400
    assert recent.since("another process", 99)["events"] == recent.since("", 0)["events"]
    assert Recent().run != recent.run


def test_only_the_last_are_kept():
    recent = Recent()
    for hop in range(1000):
        recent.visit(1, hop)
        recent.event("info", "again", {})
    found = recent.since("", 0)
    assert (len(found["visits"]), len(found["events"])) == (64, 256)
    assert found["visits"][-1][2] == 999


def test_a_reader_waits_for_news_and_for_nothing_else():
    async def story():
        recent = Recent()
        recent.visit(1, 1)
        await recent.wait("", 0, 60.0)  # there is something
        await recent.wait(recent.run, 0, 60.0)
        waiting = asyncio.create_task(recent.wait(recent.run, recent.number, 60.0))
        await asyncio.sleep(0)
        assert not waiting.done()
        recent.event("info", "news", {})
        await waiting
        waiting = asyncio.create_task(recent.wait(recent.run, recent.number, 60.0))
        await asyncio.sleep(0)
        recent.end()
        await waiting
        await recent.wait(recent.run, recent.number, 60.0)  # an agent that stops lets nobody wait

    asyncio.run(asyncio.wait_for(story(), 30.0))


def test_an_activity_of_the_token_is_one_answer():
    """The answer comes some time after the first news, whatever comes meanwhile."""

    async def story():
        recent = Recent()
        waiting = asyncio.create_task(recent.wait(recent.run, 0, 60.0, collect=0.2))
        await asyncio.sleep(0)
        began = asyncio.get_running_loop().time()
        for hop in range(10):
            recent.visit(1, hop)
            await asyncio.sleep(0)
            assert not waiting.done()
        await waiting
        assert asyncio.get_running_loop().time() >= began + 0.2
        waiting = asyncio.create_task(recent.wait(recent.run, recent.number, 60.0, collect=60.0))
        await asyncio.sleep(0)
        recent.visit(1, 2)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        recent.end()
        await waiting

    asyncio.run(asyncio.wait_for(story(), 30.0))


def test_answers_keep_their_distance():
    async def story():
        recent = Recent()
        recent.visit(1, 1)
        waiting = asyncio.create_task(recent.wait(recent.run, 0, 0.0, every=60.0))
        for _ in range(10):
            recent.visit(1, 2)
            await asyncio.sleep(0)
        assert not waiting.done()
        recent.end()  # an agent that stops lets nobody wait
        await waiting

    asyncio.run(asyncio.wait_for(story(), 30.0))


def test_another_thread_may_log():
    async def story():
        log = Log("a1", level="error")
        waiting = asyncio.create_task(log.recent.wait(log.recent.run, 0, 0.2))
        await asyncio.sleep(0)
        thread = threading.Thread(target=log.info, args=("from elsewhere",))
        thread.start()
        thread.join()
        await waiting
        assert log.recent.since("", 0)["events"][0]["what"] == "from elsewhere"

    asyncio.run(story())


def test_agents_record_the_visits_of_the_token(tmp_path):
    """Every arrival is one visit; together they are the walk."""

    async def story():
        net = Processes(tmp_path / "net", agents=3, timeouts=QUICK)
        async with nodes(net) as agents:
            await until(
                lambda: all(
                    node.state
                    and node.state.token.parked
                    and len(node.state.token.parked.attested) == len(agents)
                    for node in agents.values()
                )
            )
            found = {name: node.log.recent.since("", 0) for name, node in agents.items()}
            assert all(one["visits"] for one in found.values())
            walk = sorted(tuple(visit) for one in found.values() for visit in one["visits"])
            last = max(epoch for _, epoch, _ in walk)  # a token of an earlier one may come late
            hops = [hop for _, epoch, hop in walk if epoch == last]
            assert hops == sorted(hops)
            assert len(walk) >= 2 * len(agents) - 1
            for name, node in agents.items():
                short = short_report(node)
                assert short["inside"]
                assert short["shown"] is not None
                assert short["parked"] in agents
                told = [one["what"] for one in found[name]["events"]]
                assert "added the factor" in told

    asyncio.run(story())
