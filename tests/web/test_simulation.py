"""A simulation on the page: the same run as without a page, every button, thousands of agents.

Every view, and the view after every patch, is checked against the contract (`CheckedFeed`).
"""

import asyncio
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.seeded import read_bug, seeded
from tests.support.viewing import CheckedFeed, check, played, until
from unweave.cli.simulate import shards_of
from unweave.errors import ConfigError
from unweave.manifest import Manifest
from unweave.simulator.invariants import Violation, parked_token
from unweave.simulator.run import run_with_faults, without_faults
from unweave.simulator.session import Session
from unweave.web.simulated import simulation, sums
from unweave.web.simulated.simulation import SimulationSource
from unweave.web.simulated.specification import SIGNED, Simulated
from unweave.web.source import NotFound

MUTANTS = Path(__file__).parents[1] / "faults" / "mutants"
BUG = "dedup-by-equality.toml"
BERNOULLI = {"name": "beta-bernoulli"}


def simulated(faults=None, seed=3, hops=None, agents=5, graph="ring", model=BERNOULLI, **more):
    more = {"privacy": {"mode": "plain"}} | more
    manifest = Manifest.make(
        name="clinics", agents=agents, graph=graph, seed=7, model=model, **more
    )
    built = manifest.build_model()
    shards, data, forgotten = shards_of(manifest, built, seed)
    return Simulated(
        manifest, built, shards, data, forgotten, faults, seed, hops, lambda s: f"repeat {s}"
    )


def source_of(*args, **kwargs):
    return SimulationSource(simulated(*args, **kwargs), speed=1000.0)


def at_rest(source, feed):
    return (
        feed.view["summary"]["state"] == "rest"
        and not source.asked.down_until
        and source.session.world.now >= source.asked.faults.apart_until
        and source.asked.at_rest()
    )


async def rests(source, feed):
    """Wait until the network is at rest, and the page shows it."""
    await until(lambda: at_rest(source, feed))
    seen = round(source.session.world.now, 3)
    await until(lambda: feed.view["clock"] >= seen)


@pytest.mark.parametrize("privacy", ["plain", "masked"])
@pytest.mark.parametrize("faults", [None, "severe", "insider"])
def test_the_run_is_that_of_unweave_simulate(faults, privacy):
    """The same events and the same sum, whatever the page asks meanwhile."""
    what = simulated(faults, hops=60, privacy={"mode": privacy})
    source = SimulationSource(what, speed=1000.0)
    ended = []

    async def script(feed: CheckedFeed) -> None:
        for _ in range(3):
            await source.control({"do": "step"})
        await source.control({"do": "play"})
        while source.session.running:
            await asyncio.sleep(0.001)
            await source.agent("a1")
            if not source.session.running:
                ended.append(source.session.world.events)

    original = simulation.SLICE
    feed = played(source, script)
    assert original == simulation.SLICE
    solver, tol = what.manifest.build_solver(what.model), what.manifest.solver.tol
    terms = what.manifest.terms()
    alone = run_with_faults(
        Session(what.model, terms, what.shards, faults, 3, 60, solver=solver, tol=tol)
    )
    session = source.session
    assert np.array_equal(parked_token(session.world).eta, alone.units)
    assert session.checker.opened == alone.checker.opened
    assert session.owners.asked == alone.owners.asked
    assert session.checker.certified == alone.checker.certified
    assert session.faults.crashes == alone.faults.crashes
    assert session.workload.counts == alone.workload.counts
    assert not source._violation
    assert feed.view["timeline"]


def test_a_run_ends_at_rest_and_says_that_the_sum_is_exact():
    source = source_of()

    async def script(feed: CheckedFeed) -> None:
        await rests(source, feed)
        await until(lambda: feed.view["posterior"]["state"] == "complete")
        found = await source.curves(["theta"], [])
        assert [one["label"] for one in found["curves"]["theta"]] == ["posterior", "prior"]
        with pytest.raises(NotFound):
            await source.curves(["nothing"], [])
        with pytest.raises(ConfigError, match="at rest"):
            await source.control({"do": "step"})
        assert b"<html" in await source.report()

    feed = played(source, script)
    texts = [entry["text"] for entry in feed.view["timeline"].values()]
    assert any("equals, bit for bit, that of all remaining records" in text for text in texts)
    assert feed.view["summary"]["hops"] == feed.view["token"]["hop"] - 1  # the first one is no hop
    assert feed.view["series"]["progress"]["points"][-1][1] == 0.0
    assert feed.view["series"]["progress"]["points"][0][1] > 0.0
    assert set(feed.view["summary"]["agents"]) == {"in"}
    assert feed.view["token"]["state"] == "parked"
    total = without_faults(source.session, source.simulated.shards)
    table = source.simulated.model.posterior(total).table()
    shown = feed.view["posterior"]["parameters"]
    assert [one["mean"] for one in shown] == [row.mean for row in table]


def test_another_seed_draws_other_records():
    """As the command that the page shows does."""
    source = source_of()

    async def script(feed: CheckedFeed) -> None:
        await source.control({"do": "restart", "value": "11"})

    played(source, script)
    again = simulated(seed=11)
    for mine, theirs in zip(source.session.shards, again.shards, strict=True):
        np.testing.assert_array_equal(mine.rows, theirs.rows)


def test_a_run_with_wishes_of_the_page_is_not_said_to_be_repeatable():
    source = source_of()

    async def script(feed: CheckedFeed) -> None:
        await rests(source, feed)
        assert "The run can be repeated:" in (await source.report()).decode()
        with pytest.raises(ConfigError, match="departed"):
            await source.erase({"agent": "a2", "departed": True})
        await source.erase({"agent": "a2"})
        await rests(source, feed)
        report = (await source.report()).decode()
        assert "The run can be repeated:" not in report
        assert "No command repeats the run: asked for on its page were erase a2" in report
        assert "# without what was asked for" in feed.view["controls"]["repeat"]

    played(source, script)


def test_the_second_simulation_ends_with_the_page():
    stop = sums._UntilStopped()
    source = source_of(model={"name": "weibull"})
    stop.stopped = True
    with pytest.raises(sums._Stopped):
        without_faults(source.session, source.simulated.shards, [stop])
    source.sums.stop()
    assert source.sums._until_stopped.stopped


def test_a_step_is_one_hop():
    source = source_of()

    async def script(feed: CheckedFeed) -> None:
        await source.control({"do": "pause"})
        await source.control({"do": "restart"})
        for hop in (1, 2, 3):
            await source.control({"do": "step"})
            assert feed.view["summary"]["hops"] == hop
            assert len(feed.view["token"]["visits"]) == hop
        before = source.session.world.events
        await asyncio.sleep(0.1)
        assert source.session.world.events == before  # it is paused
        await source.control({"do": "restart", "value": "11"})
        assert feed.view["summary"]["hops"] == 0
        assert feed.view["settings"]["seed"] == "11"
        assert feed.view["timeline"] == feed.view["erasures"] == {}
        assert all(not one["points"] for one in feed.view["series"].values())

    played(source, script)


# what is pressed → the state that the agent has then, and a word of the sentence
STRIKES = {
    "crash": ("down", "crashed"),
    "freeze": ("down", "was stopped"),
    "disk": ("down", "lost its disk"),
    "restore": ("down", "replaced by a backup"),
    "depart": ("down", "stopped for good"),
    "data": ("pending", "new records"),
}


@pytest.mark.parametrize("name", STRIKES)
def test_a_fault_strikes_one_agent_and_the_network_recovers(name):
    source = source_of()

    async def script(feed: CheckedFeed) -> None:
        await rests(source, feed)
        await source.control({"do": "pause"})
        control = {"do": "fault", "value": name, "agent": "a3"}
        assert name in feed.view["controls"]["of_agent"]
        await source.control(control)
        state, word = STRIKES[name]
        assert feed.view["agents"]["a3"]["state"] == state
        assert feed.view["agents"]["a3"]["why"]
        assert any(word in one["text"] for one in feed.view["timeline"].values())
        if state == "down":
            assert feed.view["waits"]["down"]["agents"] == ["a3"]
            with pytest.raises(ConfigError):
                await source.control(control)
        await source.control({"do": "play"})
        await asyncio.sleep(0)
        await rests(source, feed)
        if name == "depart":
            await until(lambda: feed.view["agents"]["a3"]["state"] == "departed")
            await rests(source, feed)
        await until(lambda: feed.view["series"]["progress"]["points"][-1][1] == 0.0)

    feed = played(source, script)
    gone = name == "depart"
    assert feed.view["agents"]["a3"]["state"] == ("departed" if gone else "in")
    left = [source.asked.remaining(k) for k in range(5)]
    assert [shard.n for shard in left] == [
        100,
        100,
        0 if gone else 110 if name == "data" else 100,
        100,
        100,
    ]
    token = parked_token(source.session.world)
    assert np.array_equal(token.eta, without_faults(source.session, left))
    assert feed.view["waits"] == {}


def test_agents_that_stop_for_different_reasons_wait_for_different_things():
    source = source_of(agents=7)

    async def script(feed: CheckedFeed) -> None:
        await rests(source, feed)
        await source.control({"do": "pause"})
        for name, agent in (("crash", "a2"), ("freeze", "a4"), ("depart", "a6")):
            await source.control({"do": "fault", "value": name, "agent": agent})
        waits = feed.view["waits"]
        assert waits["down"]["agents"] == ["a2", "a4"]
        assert waits["down"]["why"].startswith("Their processes do not run. They go on ")
        assert waits["down gone"]["agents"] == ["a6"]
        assert "vote it out" in waits["down gone"]["why"]

    played(source, script)


def test_agents_that_are_not_named_are_counted():
    source = source_of(agents=30)

    async def script(feed: CheckedFeed) -> None:
        await rests(source, feed)
        await source.control({"do": "pause"})
        await source.control({"do": "fault", "value": "power"})
        wait = feed.view["waits"]["down"]
        assert (len(wait["agents"]), wait["more"]) == (20, 10)

    played(source, script)


def test_an_agent_without_records_is_not_waited_for():
    """The simulation of a network that has forgotten an agent."""
    spec = simulated()
    empty = spec.shards[2].drop(np.arange(spec.shards[2].n))
    source = SimulationSource(
        replace(spec, shards=[*spec.shards[:2], empty, *spec.shards[3:]], data="agents"),
        speed=1000.0,
    )

    async def script(feed: CheckedFeed) -> None:
        await rests(source, feed)
        assert "has no records" in feed.view["agents"]["a3"]["why"]
        assert feed.view["posterior"]["state"] == "complete"
        assert "why" not in feed.view["posterior"]

    played(source, script)


@pytest.mark.parametrize(("name", "word"), [("partition", "cut"), ("loss", "lost")])
def test_the_network_is_disturbed_for_some_seconds(name, word):
    source = source_of()

    async def script(feed: CheckedFeed) -> None:
        await source.control({"do": "fault", "value": name})
        assert any(word in wait["what"] for wait in feed.view["waits"].values())
        lost = source.session.faults.lost
        await rests(source, feed)
        assert source.session.faults.lost > lost
        ends = {"partition": "The network is whole again.", "loss": "Messages arrive again."}
        await until(lambda: ends[name] in [one["text"] for one in feed.view["timeline"].values()])

    played(source, script)


def test_after_a_power_cut_everybody_starts_again():
    source = source_of()

    async def script(feed: CheckedFeed) -> None:
        await rests(source, feed)
        await source.control({"do": "pause"})
        await source.control({"do": "fault", "value": "power"})
        assert feed.view["summary"]["agents"] == {"down": 5}
        await source.control({"do": "play"})
        await until(lambda: feed.view["summary"]["agents"] == {"in": 5})
        await rests(source, feed)

    played(source, script)


def test_what_the_protocol_does_not_survive_is_refused():
    source = source_of()

    async def script(feed: CheckedFeed) -> None:
        await rests(source, feed)
        await source.control({"do": "pause"})
        await source.control({"do": "fault", "value": "disk", "agent": "a1"})
        for control in (
            {"do": "fault", "value": "disk", "agent": "a2"},  # a second disk
            {"do": "fault", "value": "crash"},  # nobody is named
            {"do": "fault", "value": "flood"},
            {"do": "speed", "value": "nan"},
            {"do": "chapter", "value": "fig3"},
        ):
            with pytest.raises(ConfigError):
                await source.control(control)
        with pytest.raises(NotFound):
            await source.control({"do": "fault", "value": "crash", "agent": "a9"})
        await source.control({"do": "fault", "value": "depart", "agent": "a2"})
        with pytest.raises(ConfigError, match="falls apart"):
            await source.control({"do": "fault", "value": "depart", "agent": "a4"})

    played(source, script)


@pytest.mark.parametrize("privacy", ["plain", "masked"])
@pytest.mark.parametrize("keys", [None, ["0", "7"]])
def test_an_erasure_ends_with_a_certificate_that_verifies(keys, privacy):
    source = source_of(privacy={"mode": privacy})
    wish = {"agent": "a2"} | ({} if keys is None else {"keys": keys})

    async def script(feed: CheckedFeed) -> None:
        await rests(source, feed)
        assert (await source.preview(wish))["steps"]
        request = await source.erase(wish)
        assert request in feed.view["erasures"]
        with pytest.raises(NotFound):
            await source.certificate("00")
        await until(lambda: feed.view["erasures"][request]["state"] == "certified")
        await rests(source, feed)
        erasure = feed.view["erasures"][request]
        assert erasure["certificate"]
        assert erasure["kind"] == "exact"
        assert erasure["change"][0][0] == "theta"
        name, certificate = await source.certificate(request)
        assert name.startswith("simulated-a2-")
        found = await source.verify(certificate)
        assert found["valid"]
        assert found["erasures"][0]["agent"] == "a2"
        assert SIGNED in found["does_not_prove"]
        first, *_, last = re.findall(rb'"sig":"([^"]+)"', certificate)
        altered = certificate.replace(first, last, 1)  # the signature of another agent
        assert altered != certificate
        for broken in (certificate[:-9], altered, b"{}"):
            assert not (await source.verify(broken))["valid"]
        moments = [one["id"] for one in feed.view["posterior"]["moments"]]
        before = next(one for one in moments if one.startswith("before-"))
        labels = [
            one["label"] for one in (await source.curves(["theta"], [before]))["curves"]["theta"]
        ]
        assert (
            labels[-1] == f"before {'a2 was' if keys is None else '2 records of a2 were'} forgotten"
        )
        earlier = await source.moment(before)
        assert earlier["label"] == labels[-1]
        assert earlier["parameters"] != feed.view["posterior"]["parameters"]
        (theta,) = (one for one in earlier["parameters"] if one["name"] == "theta")
        assert 0.0 < theta["low"] < theta["mean"] < theta["high"] < 1.0
        with pytest.raises(NotFound):
            await source.moment("hop-0")
        for row in ("100", "x"):
            for ask in (source.preview, source.erase):
                with pytest.raises(ConfigError):
                    await ask({"agent": "a1", "keys": [row]})

    feed = played(source, script)
    assert feed.view["agents"]["a2"]["state"] == ("erased" if keys is None else "in")
    left = [source.asked.remaining(k) for k in range(5)]
    assert left[1].n == (0 if keys is None else 98)
    assert np.array_equal(
        parked_token(source.session.world).eta, without_faults(source.session, left)
    )


def test_a_masked_network_shows_no_single_agent():
    source = source_of(privacy={"mode": "masked"})

    async def script(feed: CheckedFeed) -> None:
        await rests(source, feed)
        details = await source.agent("a1")
        assert "influence" not in details
        assert details["receipts"] == []

    feed = played(source, script)
    assert all("revision" not in agent for agent in feed.view["agents"].values())
    for patch in feed.patches:
        posterior = patch.get("posterior", {})
        assert posterior.get("state") != "incomplete"
    assert len(feed.view["series"]["progress"]["points"]) == 1  # the published sum


def test_noisy_sums_are_read_with_their_noise():
    noise = {"mode": "masked", "epsilon": 1.0, "delta": 1e-6}
    source = source_of(privacy=noise)

    async def script(feed: CheckedFeed) -> None:
        await rests(source, feed)
        request = await source.erase({"agent": "a2", "keys": ["3"]})
        await until(lambda: feed.view["erasures"][request]["state"] == "certified")
        await rests(source, feed)
        assert feed.view["erasures"][request]["kind"] == "exact_before_noise"
        assert (await source.curves(["theta"], []))["curves"]["theta"]

    feed = played(source, script)
    points = feed.view["series"]["progress"]["points"]
    assert {kl for _, kl in points} == {0.0}  # without the noise
    token = parked_token(source.session.world)
    wide = source.session.mechanism.posterior(token.eta, len(token.inside)).table()[0]
    shown = feed.view["posterior"]["parameters"][0]
    assert (shown["mean"], shown["sd"]) == (wide.mean, wide.sd)
    assert feed.view["series"]["residual"]["points"] == []


def test_plain_details_have_receipts_and_an_influence():
    source = source_of()

    async def script(feed: CheckedFeed) -> None:
        await rests(source, feed)
        details = await source.agent("a1")
        assert details["influence"] > 0.0
        assert "revision 1" in details["receipts"][0]["text"]
        with pytest.raises(NotFound):
            await source.agent("a9")

    played(source, script)


def test_the_optimum_of_another_model_is_found_by_a_second_run():
    source = source_of(model={"name": "beta-exponential", "a": 3.0, "b": 3.0})

    async def script(feed: CheckedFeed) -> None:
        await until(lambda: source.sums.optimum is not None)
        await source.control({"do": "restart"})
        await source.control({"do": "pause"})
        await until(lambda: source.sums.optimum is not None)
        await source.control({"do": "play"})
        await rests(source, feed)
        await until(lambda: feed.view["series"]["progress"]["points"])

    feed = played(source, script)
    points = feed.view["series"]["progress"]["points"]
    assert points[-1][1] < 1e-4 < points[0][1]


def test_sums_from_before_the_optimum_is_known_are_compared_with_it(monkeypatch):
    source = source_of(model={"name": "beta-exponential", "a": 3.0, "b": 3.0})
    at_rest, search = threading.Event(), sums.without_faults

    def late(*of: Any) -> Any:
        at_rest.wait(60.0)
        return search(*of)

    monkeypatch.setattr(sums, "without_faults", late)

    async def script(feed: CheckedFeed) -> None:
        await rests(source, feed)
        assert not feed.view["series"]["progress"]["points"]
        at_rest.set()
        await until(lambda: feed.view["series"]["progress"]["points"])

    points = played(source, script).view["series"]["progress"]["points"]
    assert points[-1][1] < 1e-4 < points[0][1]


def test_a_violated_invariant_stops_the_simulation():
    """A seeded bug: a repeated token is not recognised."""
    with seeded(read_bug(MUTANTS / BUG)):
        source = source_of("lossy", hops=400)

        async def script(feed: CheckedFeed) -> None:
            await until(lambda: feed.view["summary"]["state"] == "failed")
            events = source.session.world.events
            for do in ("play", "step"):
                with pytest.raises(ConfigError, match="stopped"):
                    await source.control({"do": do})
            assert source.session.world.events == events
            assert "violated" in feed.view["controls"]["finished"]
            assert feed.view["controls"]["repeat"] == "repeat 3"
            assert feed.view["timeline"][max(feed.view["timeline"], key=int)]["level"] == "failure"
            await source.control({"do": "restart"})
            assert "finished" not in feed.view["controls"]
            assert feed.view["summary"]["state"] == "starting"

        played(source, script)


def test_a_press_of_a_button_is_checked_as_well(monkeypatch):
    source = source_of()

    def broken(*_):
        raise Violation("I1 at a1: an invented violation")

    async def script(feed: CheckedFeed) -> None:
        await rests(source, feed)
        monkeypatch.setattr(source.session.checker, "_agent", broken)
        with pytest.raises(ConfigError, match="violated"):
            await source.control({"do": "fault", "value": "data", "agent": "a1"})
        await until(lambda: feed.view["summary"]["state"] == "failed")

    played(source, script)


def test_slices_are_bounded_and_patches_hold_what_has_changed():
    """2,000 agents: no call of the world is long, and a patch is not a list of all agents."""
    source = SimulationSource(simulated(agents=2000, graph="watts-strogatz"), speed=10_000.0)
    check(source.view())
    steps, slices = 0, []
    step, cut = source.session.step, source._slice

    def counted():
        nonlocal steps
        steps += 1
        return step()

    def measured(*args):
        nonlocal steps
        steps = 0
        done = cut(*args)
        slices.append((steps, done))
        return done

    source.session.step, source._slice = counted, measured
    sizes = []

    class Feed:
        viewers = 1

        def change(self, patch):
            sizes.append(len(patch.get("agents", ())))

        def points(self, new):
            pass

    async def main() -> None:
        run = asyncio.create_task(source.run(Feed()))
        await until(lambda: source.watch.hops > 40, 120.0)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)

    asyncio.run(main())
    check(source.view())
    short = [number for number, done in slices if not done]
    assert len(short) > 5
    assert max(short) < source.session.world.events / 3  # never in one go
    # After the start, a patch names the visited agents and no others.
    assert sorted(sizes)[len(sizes) // 2] < 200
    told = [entry["text"] for entry in source.view()["timeline"].values()]
    assert any("joined the network" in text and "in all)" in text for text in told)
    assert len(told) < 60


def test_an_event_costs_the_watch_the_same_in_any_network(monkeypatch):
    """No event looks at all agents: the views that are made are those of changed agents."""
    made = []
    for agents in (50, 800):
        source = SimulationSource(simulated(agents=agents, graph="ring"), speed=1.0)
        source.watch.take_agents()
        original = source.watch._agent
        count = 0

        def counted(k, original=original):
            nonlocal count
            count += 1
            return original(k)

        monkeypatch.setattr(source.watch, "_agent", counted)
        while source.watch.hops < 5:
            source.session.step()
        source.watch.take_agents()
        count = 0
        while source.watch.hops < 25:
            source.session.step()
            source.watch.take_agents()
        made.append(count)
    assert made[1] < 3 * made[0]
