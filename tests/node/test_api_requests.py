"""What an operator's questions cost an agent, and what they may ask of it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest
from tests.support.nodes import QUICK, nodes, until
from tests.support.processes import Processes

from unweave.errors import DataError, UnweaveError
from unweave.models import DirichletCategorical
from unweave.node.agent import open_data
from unweave.node.api import report, server
from unweave.node.api.server import Api
from unweave.node.data.commitments import KEY_FILE


def at_rest(agents: dict[str, Any]) -> bool:
    """Everybody knows the same rest, and has attested it."""
    states = [node.state for node in agents.values()]
    if not all(s is not None and s.token.parked is not None for s in states):
        return False
    attested = all(
        s.token.parked.attested == s.terms.everybody and s.token.wake < s.token.parked.stamp
        for s in states
    )
    return attested and len({s.token.parked.stamp for s in states}) == 1


def test_a_posterior_keeps_nobody_waiting(tmp_path, monkeypatch):
    """The marginals of many components take seconds: meanwhile the token must go on."""
    begun, go = threading.Event(), threading.Event()
    told = report.posterior_report

    def slowly(*args, **more):
        begun.set()
        assert go.wait(60.0)
        return told(*args, **more)

    monkeypatch.setattr(server, "posterior_report", slowly)

    async def play():
        net = Processes(tmp_path / "net", agents=2, graph="path", timeouts=QUICK)
        async with nodes(net) as agents:
            await until(lambda: at_rest(agents))
            api: Any = Api(agents["a1"], None, None)
            asked = asyncio.ensure_future(api.call("posterior", {}))
            try:
                await until(begun.is_set)
                async with asyncio.timeout(60.0):
                    status = await api.call("status", {})
                assert status["status"]["name"] == "a1"
                assert not asked.done()
            finally:
                go.set()
            assert (await asked)["posterior"]["state"] == "complete"

    asyncio.run(play())


@pytest.mark.parametrize("everything", [False, True])
def test_a_large_posterior_is_told_in_part(tmp_path, monkeypatch, everything):
    monkeypatch.setattr(report, "_SHOWN", 4)

    async def play():
        net = Processes(
            tmp_path / "net",
            agents=2,
            graph="path",
            model=DirichletCategorical(classes=6),
            timeouts=QUICK,
        )
        async with nodes(net) as agents:
            await until(lambda: at_rest(agents))
            api: Any = Api(agents["a1"], None, None)
            answer = await api.call("posterior", {"everything": everything})
        found = answer["posterior"]
        assert (found["marginals_total"], found["units_total"]) == (6, 6)
        assert len(found["marginals"]) == (6 if everything else 4)
        assert found["settings"]["bits"] == 24
        if not everything:
            assert "units" not in found, "half of them would be another posterior"
            return
        eta = net.model.grid.units(found["units"])
        assert net.model.posterior(np.array(eta)).digest == found["digest"]

    asyncio.run(play())


def test_the_marginals_of_a_sum_are_computed_once(tmp_path, monkeypatch):
    async def play():
        net = Processes(tmp_path / "net", agents=2, graph="path", timeouts=QUICK)
        async with nodes(net) as agents:
            await until(lambda: at_rest(agents))
            node = agents["a1"]
            data = open_data(node.folder, node.identity)
            api: Any = Api(node, data, None)
            computed: list[object] = []
            kind, marginals = type(node.model), type(node.model).marginals
            monkeypatch.setattr(
                kind, "marginals", lambda self, eta: computed.append(eta) or marginals(self, eta)
            )
            first = (await api.call("posterior", {}))["posterior"]
            assert (await api.call("posterior", {}))["posterior"] == first
            assert len(computed) == 1
            await api.call("erase", {"keys": ["a1-0"]})
            await until(lambda: len(node.state.own.dropped) == 1 and at_rest(agents))
            second = (await api.call("posterior", {}))["posterior"]
            assert second["digest"] != first["digest"]
            assert second["marginals"] != first["marginals"]
            monkeypatch.setattr(server, "_KEPT", 0.0)
            await api.call("posterior", {})
            await until(lambda: api._cached is None)  # nothing is kept of what is erased later

    asyncio.run(play())


def test_records_that_were_deleted_are_erased_for_good(tmp_path):
    async def play():
        net = Processes(tmp_path / "net", agents=2, graph="path", timeouts=QUICK)
        gone = net.rows["a1"].pop("a1-0")
        async with nodes(net) as agents:
            net.append("a1", [])
            await until(lambda: at_rest(agents))
            node = agents["a1"]
            data = open_data(node.folder, node.identity)
            api: Any = Api(node, data, None)
            ask = {"keys": ["a1-0", "a1-1"]}
            # A preview says the same, and leaves nothing behind.
            with pytest.raises(DataError, match="1 of 2 keys are not in the data of a1"):
                await api.call("preview", ask)
            found = await api.call("preview", ask | {"missing_ok": True})
            assert found == {"records": 2, "before": 0, "absent": 1}
            assert not (node.folder.path / KEY_FILE).exists()
            assert not node.state.own.dropped
            with pytest.raises(DataError, match="1 of 2 keys are not in the data of a1"):
                await api.call("erase", ask)
            await api.call("erase", ask | {"missing_ok": True})
            await until(lambda: len(node.state.own.dropped) == 2 and at_rest(agents))
            found = await api.call("preview", ask | {"missing_ok": True})
            assert found == {"records": 2, "before": 2, "absent": 1}
            # A backup of the file brings it back, and it does not count.
            net.rows["a1"]["a1-0"] = gone
            net.append("a1", [])
            without = net.expected({"a1": ["a1-0", "a1-1"]})
            again = await api.call("erase", ask | {"missing_ok": True})
            assert again["before"] == 2
            assert data.count(node.state.own.dropped) == len(net.rows["a1"]) - 2
            assert report.posterior_report(node)["digest"] == without
            # After everything nothing is left to erase: what the request would be told, too.
            await api.call("erase", {"whole": True})
            await until(lambda: node.state.tomb.whole)
            for name in ("preview", "erase"):
                with pytest.raises(UnweaveError, match="it has erased itself already"):
                    await api.call(name, {"keys": ["a1-2"]})

    asyncio.run(play())
