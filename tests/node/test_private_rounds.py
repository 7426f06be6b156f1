"""Agents in private rounds, in one event loop: the driver's keyring, and what is served."""

import asyncio
import base64
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from tests.support.nodes import QUICK, nodes, until
from tests.support.processes import Processes

from unweave import keyring as keyring_module
from unweave.keyring import Keyring
from unweave.manifest import Manifest
from unweave.models import BetaBernoulli
from unweave.node import effects as effects_module
from unweave.node.api.report import posterior_report, served, status_report
from unweave.node.api.server import Api
from unweave.operations.status import private_rounds
from unweave.protocol.events import DataChanged, EraseRequested
from unweave.protocol.token import dead, lacking, request_id
from unweave.simulator.faults import RandomFaults, profile
from unweave.simulator.invariants import Checker
from unweave.simulator.run import draw_shards
from unweave.simulator.workload import run_workload
from unweave.simulator.world import World
from unweave.solvers import default_solver
from unweave.solvers.worker import ModelWorker, influence, record_key


def network(tmp_path, agents=4, **settings):
    return Processes(tmp_path / "net", agents=agents, timeouts=QUICK, privacy="masked", **settings)


def all_serve(agents, digest, but=()):
    reports = [posterior_report(node) for name, node in agents.items() if name not in but]
    return all(report.get("digest") == digest for report in reports)


def has_new_value(agents, name):
    """Whether all serve a sum with the value that this agent has given for its second data."""
    states = [node.state for node in agents.values()]
    if any(s is None or s.token.published is None for s in states):
        return False
    me, current = agents[name].me, agents[name].state.own.current
    shown = {s.token.published.included[me] for s in states}
    return current.data == 1 and shown == {current.revision}


async def erase(agents, name, keys=None, number=1):
    """Ask the agent to forget these rows, or everything."""
    node = agents[name]
    request = request_id(node.me, bytes([number]) * 12)
    rows = frozenset()
    if keys is not None:
        rows, _ = node._queue._worker.data.commit_keys(keys)
    await node.tell(EraseRequested(request, keys is None, rows, asyncio.get_running_loop().time()))
    return request


# ---------------------------------------------------------------------------------- the keyring


def test_no_private_key_is_ever_in_a_file(tmp_path, monkeypatch):
    """Not while the agents learn, erase and restart, and not afterwards."""
    made = []

    def recorded(size):
        made.append(keyring_module.os.urandom(size))
        return made[-1]

    monkeypatch.setattr(Keyring.__init__, "__defaults__", (recorded, None, 0))

    def found(secrets):
        forms = [f for key in secrets for f in (key, key.hex().encode(), base64.b64encode(key))]
        files = [file for file in net.root.rglob("*") if file.is_file()]
        contents = [file.read_bytes() for file in files]
        return sum(form in content for form in forms for content in contents)

    async def play():
        async with nodes(net) as agents:
            await until(lambda: all_serve(agents, net.expected()))
            assert not found(made)
            await erase(agents, "a2", ["a2-3"])
            await until(lambda: all_serve(agents, net.expected({"a2": ["a2-3"]})))
            assert not found(made)
            # The public halves are in the stores: the search would find a key.
            public = [one.key for one in agents["a1"].state.token.published.masked.keys.values()]
            assert found(public) >= 4
        assert not found(made)
        async with nodes(net) as agents:
            before = len(made)
            await until(lambda: agents["a3"].state is not None)
            await agents["a3"].tell(DataChanged(0.0))
            await until(lambda: has_new_value(agents, "a3"))
            assert all_serve(agents, net.expected({"a2": ["a2-3"]}))
            assert len(made) >= before + 4  # each process has made keys of its own
            assert not found(made)

    net = network(tmp_path)
    asyncio.run(play())
    assert len({*made}) == len(made) >= 12
    assert all(len(key) == 32 for key in made)
    assert not found(made)


def test_a_new_incarnation_has_a_new_keyring(tmp_path):
    """Also one that follows a failed commit in the same process."""

    async def play():
        net = network(tmp_path)
        async with nodes(net) as agents:
            await until(lambda: all_serve(agents, net.expected()))
            node = agents["a2"]
            first, incarnation = node._effects.keyring, node.state.incarnation
            assert first is not None
            assert first._keys  # the spare one
            node._commits.why = "no space left"
            node._commits.state = None
            node._commits.broken.set()
            await until(lambda: node.state is not None and node.state.incarnation != incarnation)
            assert node._effects.keyring is not first
            assert not node._effects.keyring._keys
            await node.tell(DataChanged(0.0))
            await until(lambda: has_new_value(agents, "a2"))
            assert all_serve(agents, net.expected())
        assert all(node._effects.keyring is None for node in agents.values())

    asyncio.run(play())


def test_a_plain_network_has_no_keyring(tmp_path):
    async def play():
        net = Processes(tmp_path / "net", agents=2, graph="path", timeouts=QUICK)
        async with nodes(net) as agents:
            await until(lambda: all_serve(agents, net.expected()))
            assert agents["a1"]._effects.keyring is None

    asyncio.run(play())


@pytest.mark.parametrize("fails", ["mask", "enrol"])
def test_a_keyring_that_fails_once_costs_no_more_than_a_round(tmp_path, monkeypatch, fails):
    left, good = [2], getattr(Keyring, fails)

    def breaks(self, *args):
        if left[0]:
            left[0] -= 1
            if args:
                self._keys.clear()  # as the real one: the key is gone before anything can fail
            raise RuntimeError("a record of Alice")
        return good(self, *args)

    monkeypatch.setattr(Keyring, fails, breaks)

    async def play():
        net = network(tmp_path)
        async with nodes(net) as agents:
            await until(lambda: all_serve(agents, net.expected()))
            assert sum(node.counts["masks failed"] for node in agents.values()) == 2
            logged = "".join(node.log.stream.getvalue() for node in agents.values())
            assert "cannot use a one-time key" in logged
            assert "Alice" not in logged

    asyncio.run(play())


def test_an_agent_that_can_make_no_key_stays_out_and_harms_nobody(tmp_path, monkeypatch):
    good = Keyring.enrol

    def enrol(self, *counts):
        if self is agents_by_name["a2"]._effects.keyring:
            raise OSError("no entropy")
        return good(self, *counts)

    monkeypatch.setattr(Keyring, "enrol", enrol)
    agents_by_name = {}

    async def play():
        net = network(tmp_path)
        async with nodes(net) as agents:
            agents_by_name.update(agents)
            await until(lambda: status_report(agents["a2"]).get("stays_out"))
            await until(lambda: agents["a1"].state.token.parked is not None)
            told = status_report(agents["a1"])
            assert told["private_round"]["not_enrolled"] == ["a2"]
            assert agents["a2"].counts["masks failed"] >= 3

    asyncio.run(play())


def test_a_late_mask_of_erased_rows_is_not_taken_for_the_new_value(tmp_path, monkeypatch):
    """A large value is masked on a thread. Meanwhile rows are erased, and the value without them is
    to be masked for the same round: the first answer must not be used for it."""
    monkeypatch.setattr(effects_module, "_LARGE", 0)
    begun = [threading.Event(), threading.Event()]
    go = [threading.Event(), threading.Event()]
    calls, givers, good = [], [], Keyring.mask

    def slowly(self, me, name, keys, units):
        value = good(self, me, name, keys, units)
        givers.append(me)
        # Not the first to give, which enrolled in the same visit and would enrol once more.
        if me != givers[0] and me == next(k for k in givers if k != givers[0]) and len(calls) < 2:
            calls.append(name)
            begun[len(calls) - 1].set()
            go[len(calls) - 1].wait(30.0)
        return value

    monkeypatch.setattr(Keyring, "mask", slowly)

    async def play():
        net = network(tmp_path)
        async with nodes(net) as agents:
            await until(begun[0].is_set)
            name = net.names[givers[-1]]
            gone = [f"{name}-{row}" for row in range(3)]
            await erase(agents, name, gone)
            await until(begun[1].is_set)
            assert calls[0] == calls[1]
            go[0].set()  # the late answer comes first
            await asyncio.sleep(0.2)
            go[1].set()
            await until(lambda: all_serve(agents, net.expected({name: gone})))

    try:
        asyncio.run(play())
    finally:
        for event in go:
            event.set()


# --------------------------------------------------------------------------------- what is served


class OnlyCompleteSums:
    """After every event: what an agent would show is a sum of whole factors of the whole roster,
    and nothing that it knows to be forbidden."""

    def __init__(self, terms, model):
        self.terms, self.model = terms, model
        self.units = {}
        self.shown = self.withheld = 0

    def after(self, agent, before, after, effects):
        self.units |= {(agent, f.revision): f.units for f in after.own.factors}
        token = served(after)
        report = posterior_report(
            SimpleNamespace(state=after, terms=self.terms, model=self.model, mechanism=None)
        )
        if token is None:
            assert "units" not in report
            assert "digest" not in report
            self.withheld += after.token.copy is not None
            return
        self.shown += 1
        assert not lacking(token)
        assert not dead(token, after.known.tombs, after.known.retrain_epoch)
        parts = [self.units[k, token.included[k]] for k in token.inside]
        assert len(parts) >= self.terms.min_roster
        assert np.array_equal(token.eta, self.terms.eta0 + sum(parts))
        assert report["units"] == token.eta.tolist()


def draw_erasure(rng, agent):
    whole = rng.random() < 0.15
    return whole, frozenset() if whole else frozenset({record_key(agent, rng.randrange(5))})


@pytest.mark.parametrize("seed", range(4))
def test_only_complete_sums_are_served_through_all_faults(seed):
    model = BetaBernoulli()
    terms = Manifest.make(
        name="n", model=model, agents=5, graph="ring", privacy="masked", seed=seed
    ).terms()
    shards = draw_shards(model, terms.topology.agents, seed)
    workers = [ModelWorker(model, default_solver(model), shard, terms.seed) for shard in shards]
    faults, checker = (
        RandomFaults(profile(("severe", "departed", "disks", "crashes")[seed]), 5, seed),
        Checker(terms),
    )
    watch = OnlyCompleteSums(terms, model)
    world = World(terms, workers, seed=seed, faults=faults, observers=[checker, watch])
    run_workload(world, faults, checker, draw_erasure, lambda k, version: None, events=300)
    assert watch.shown > 10
    assert watch.withheld > 50


class Stuck:
    """A worker that does not solve before it is told to."""

    def __init__(self, worker, go):
        self._worker, self._go = worker, go

    def solve(self, work):
        self._go.wait(30.0)
        return self._worker.solve(work)

    def __getattr__(self, name):
        return getattr(self._worker, name)


def test_a_round_that_is_not_complete_shows_nothing_and_names_who_is_missing(tmp_path):
    go = threading.Event()

    async def play():
        net = network(tmp_path)
        async with nodes(net, {"a3": lambda worker: Stuck(worker, go)}) as agents:
            a3 = agents["a3"]
            await until(
                lambda: a3.state is not None and (a3.state.token.pending or " ")[0] == "solve"
            )
            for node in agents.values():
                assert posterior_report(node)["state"] == "unknown"
                assert status_report(node)["commitment"] is None
                assert status_report(node)["included"] == []
            told = status_report(agents["a3"])["private_round"]
            assert not told["published"]
            assert "a3" in told["not_given"]
            go.set()
            await until(lambda: all_serve(agents, net.expected()))
            # The sum is served before all have attested it.
            await until(lambda: not status_report(agents["a1"])["private_round"]["not_attested"])
            told = status_report(agents["a1"])
            assert told["complete"]
            assert told["private_round"] == {
                "agents": 4,
                "least": 3,
                "published": True,
                "not_enrolled": [],
                "not_given": [],
                "not_attested": [],
            }

    try:
        asyncio.run(play())
    finally:
        go.set()


def test_each_agent_sees_its_own_influence_and_publishes_none(tmp_path):
    async def play():
        net = network(tmp_path)
        async with nodes(net) as agents:
            await until(lambda: all_serve(agents, net.expected()))
            for name, node in agents.items():
                answer = (await Api(node, None, None).call("influence", {}))["influence"]
                state = node.state
                mine = influence(net.model, state.token.published.eta, state.own.current.units)
                assert answer == {name: mine}
            await agents["a1"].publish()
            assert not any(node.state.known.influences for node in agents.values())

    asyncio.run(play())


def status(epoch=1, hop=1, published=False, notice=None, **waits):
    told = {"not_enrolled": [], "not_given": [], "not_attested": []} | waits
    told |= {"agents": 4, "least": 3, "published": published}
    return {"private_round": told, "epoch": epoch, "hop": hop, "notice": notice}


def test_the_operator_reads_who_is_missing_and_the_remedy():
    old, new = status(hop=3, not_enrolled=["a3", "a4"]), status(hop=5, not_given=["a4"])
    (line,) = private_rounds({"a1": old, "a2": new})
    assert line.startswith("no posterior is served yet: the private round waits for a4, not given")
    assert "Fix: start every agent that does not run, or vote it out" in line
    (line,) = private_rounds({"a1": status(published=True, not_attested=["a2"])})
    assert line.startswith("the private round waits for a2, not attested yet")
    (line,) = private_rounds({"a1": old | {"hop": 6}, "a3": new, "a4": new})
    assert line.endswith("waits for a3, a4, not enrolled yet. All of them run: the round goes on")
    assert private_rounds({"a1": status(published=True)}) == []
    assert private_rounds({"a1": status(not_given=["a4"], notice="two agents remain")}) == []
    assert private_rounds({"a1": {"private_round": None}, "a2": {}}) == []


def test_with_noise_the_silent_neighbour_is_named_beside_the_agent_that_waits_for_it():
    def noisy(**heard):
        others = {
            name: {"neighbour": name != "a5", "heard_seconds_ago": ago, "departed": name == "a6"}
            for name, ago in heard.items()
        }
        waits = status(not_enrolled=["a1", "a3"])
        return waits | {"privacy_budget": {"left": 2}, "others": others}

    away = noisy(a2=0.3, a4=None, a5=None, a6=None)  # a5 is no neighbour, a6 has departed
    (line,) = private_rounds({"a1": away, "a2": noisy(), "a3": away})
    assert "waits for a1, a3, not enrolled yet. " in line
    assert "a1, a3 need the answer of the neighbour a4 first" in line
    assert line.endswith("`unweave vote AGENT_DIR a4`)")
    assert "a5" not in line
    assert "a6" not in line
    heard = noisy(a2=0.3, a4=1.0)
    (line,) = private_rounds({"a1": heard, "a2": noisy(), "a3": heard})
    assert line.endswith("not enrolled yet. All of them run: the round goes on")
    plain = away | {"privacy_budget": None}  # no noise: nobody has to remember
    (line,) = private_rounds({"a1": plain, "a3": plain})
    assert "a4" not in line
