"""Agents in one event loop: what is quicker to see there than between processes."""

import asyncio
import csv
import io
from types import SimpleNamespace

from tests.support.nodes import QUICK, nodes, until
from tests.support.processes import Processes
from tests.support.tally import tally_terms

from unweave.errors import StoreError
from unweave.graph import graphs
from unweave.models import NormalUnknown
from unweave.node import agent as serve
from unweave.node.api.report import status_report
from unweave.node.api.server import Api
from unweave.node.compute import DataWorker
from unweave.node.config import AgentFolder
from unweave.node.data import private as data
from unweave.node.data.duckdb_reader import open_duck
from unweave.node.driver import NotReady
from unweave.node.log import Log
from unweave.protocol.events import Solve
from unweave.protocol.machine import handle
from unweave.protocol.messages import Pass
from unweave.protocol.state import State
from unweave.solvers import default_solver


def at_rest(agents):
    """Everybody knows the same rest and has attested it: an earlier one may be pending."""
    states = [node.state for node in agents.values()]
    if not all(s is not None and s.token.parked is not None for s in states):
        return False
    attested = all(
        s.token.parked.attested == s.terms.everybody and s.token.wake < s.token.parked.stamp
        for s in states
    )
    return attested and len({s.token.parked.stamp for s in states}) == 1


def test_influence_is_published_when_somebody_asks(tmp_path):
    """At rest nobody says anything: the figures of all would travel to all."""

    async def play():
        net = Processes(tmp_path / "net", agents=3, graph="path", timeouts=QUICK)
        async with nodes(net) as agents:
            await until(lambda: at_rest(agents))
            assert not any(node.state.known.influences for node in agents.values())
            (first,) = (await ask(agents["a1"])).items()
            assert first[0] == "a1"
            assert first[1] > 0.0
            await until(lambda: 0 in agents["a3"].state.known.influences)
            both = await ask(agents["a3"])
            assert {*both} == {"a1", "a3"}
            assert both["a1"] == first[1]
            # Asked again, nothing has changed: nothing is said.
            figure = agents["a1"].state.known.influences[0]
            await ask(agents["a1"])
            assert agents["a1"].state.known.influences[0] is figure

    asyncio.run(play())


async def ask(node):
    return (await Api(node, None, None).call("influence", {}))["influence"]


def test_a_call_that_takes_too_long_is_not_broken_off(tmp_path):
    """Its answer may be half-way to the disk."""

    async def play():
        net = Processes(tmp_path / "net", agents=2, graph="path", timeouts=QUICK)
        async with nodes(net) as agents:
            await until(lambda: at_rest(agents))
            a1, go, ended = agents["a1"], asyncio.Event(), []
            send = a1.transport.send

            async def slowly(to, data):
                try:
                    await go.wait()
                    return await send(to, data)
                finally:
                    ended.append(go.is_set())

            a1.transport.send = slowly
            await a1.probe(1)
            assert not ended
            go.set()
            await until(lambda: ended)
            assert all(ended)

    asyncio.run(play())


def test_a_disk_that_fails_does_not_end_the_automatic_votes():
    said = io.StringIO()
    told = []
    errors = [StoreError("no space left"), NotReady("starting")]
    proved = State(tally_terms(graphs.ring(3), seed=1), 0)
    proved.peers.synced = True
    proved.known.proofs = {1: Pass(None)}

    class Node:
        folder = SimpleNamespace(config=SimpleNamespace(auto_vote=True))
        state = proved
        log = Log("a1", stream=said)

        async def changed(self, timeout):
            await asyncio.sleep(0)

        async def tell(self, event):
            if errors:
                raise errors.pop(0)
            told.append(event)
            self.state, _ = handle(self.state, event)

    async def play():
        node = Node()
        keeping = asyncio.ensure_future(serve.keep_votes(node))
        await until(lambda: told or keeping.done())
        keeping.cancel()

    asyncio.run(play())
    assert [(event.target, event.lying) for event in told][:1] == [(1, True)]
    assert "no space left" in said.getvalue()


def test_the_data_are_opened_once_at_the_start(tmp_path, monkeypatch):
    net = Processes(tmp_path / "net", agents=1)
    opened = []
    monkeypatch.setattr(data, "open_duck", lambda *args: opened.append(args) or open_duck(*args))
    folder = AgentFolder.read(net.folder("a1"))
    identity = serve.open_identity(folder)
    records = serve.open_data(folder, identity)
    worker = DataWorker(net.model, default_solver(net.model), records, folder.terms)
    serve._check_data(folder, records, identity, replaced=False)
    work = Solve(("s",), 1, 1, None, None, frozenset())
    first = worker.solve(work)
    assert len(opened) == 1
    assert (first.units == worker.solve(work).units).all()  # and read anew from then on
    assert len(opened) == 2
    serve._check_data(folder, records, identity, replaced=False)
    with (net.folder("a1") / "data.csv").open("a", newline="") as file:
        csv.writer(file).writerow(("new", 1))
    assert (first.units != worker.solve(work).units).any()


def test_a_factor_that_does_not_fit_is_told(tmp_path):
    """Everybody's own sum fits the grid, and the sum of all does not."""

    async def play():
        net = Processes(
            tmp_path / "net",
            agents=3,
            graph="path",
            model=NormalUnknown(),
            draw=lambda rng, rows: rng.normal(9e3, 1.0, rows),
            timeouts=QUICK,
        )
        async with nodes(net) as agents:
            await until(lambda: at_rest(agents))
            told = {name: status_report(node) for name, node in agents.items()}
            (alone,) = told["a1"]["included"]
            assert sorted(told["a1"]["missing"]) == sorted({"a1", "a2", "a3"} - {alone})
            for name, status in told.items():
                out = status["stays_out"]
                assert out is None if name == alone else "leaves the grid" in out
            for name, node in agents.items():
                log = node.log.stream.getvalue()
                assert log.count("stays out") == (name != alone)

    asyncio.run(play())
