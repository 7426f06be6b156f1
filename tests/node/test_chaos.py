"""Kill −9 at random moments, again and again, while the network learns, grows and forgets."""

from __future__ import annotations

import contextlib
import json
import random
import time

import pytest

from unweave.errors import UnweaveError
from unweave.manifest import load
from unweave.node.client import AgentDown
from unweave.node.identity import verifier
from unweave.protocol.verify import verify
from unweave.testing.processes import Processes, erase


def chaos(net: Processes, restarts: int, seed: int) -> None:
    """Kills one or two agents at a time, starts them again, and gives the token work meanwhile."""
    rng = random.Random(seed)
    gone: dict[str, list[str]] = {name: [] for name in net.names}
    net.start()
    killed = 0
    while killed < restarts:
        busy = rng.choice(net.names)
        with contextlib.suppress(AgentDown):
            net.ask(busy, "rouse")
            if rng.random() < 0.4:
                net.append(busy, [float(rng.random() < 0.5)])
                net.ask(busy, "learn")
        time.sleep(rng.random() * 0.4)
        victims = rng.sample(net.names, min(rng.choice((1, 1, 2)), restarts - killed))
        net.kill(*victims)
        killed += len(victims)
        if rng.random() < 0.5:
            time.sleep(rng.random())
        for name in victims:
            net.children[name].start()
        if rng.random() < 0.7:
            net.ready(*victims)
    net.ready(*net.names)
    for name in net.names[:2]:
        # A learn that was killed before its answer left no trace, or a complete one.
        keys = list(net.rows[name])[2:5]
        erase(net, name, keys)
        gone[name] = keys
    certificate = erase(net, net.names[-1])
    for name in net.names:
        with contextlib.suppress(UnweaveError):
            net.ask(name, "learn")
    assert net.settled() == {net.expected(gone)}

    manifest = load(net.root / "network.toml")
    account = verify(json.dumps(certificate).encode(), manifest.terms(), verifier(manifest.pems()))
    assert {(e.agent, e.scope) for e in account.erasures} == {
        (net.names[0], "records"),
        (net.names[1], "records"),
        (net.names[-1], "agent"),
    }
    assert set(account.included) == set(net.names) - {net.names[-1]}


def test_killed_twenty_times(tmp_path):
    with Processes(tmp_path / "net", agents=4) as net:
        chaos(net, 20, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["ring", "star", "complete", "path"])
def test_killed_two_hundred_times(tmp_path, graph):
    with Processes(tmp_path / "net", agents=5, graph=graph) as net:
        chaos(net, 60, seed=len(graph))


@pytest.mark.slow
def test_killed_on_a_random_walk(tmp_path):
    with Processes(tmp_path / "net", agents=5, schedule="metropolis") as net:
        chaos(net, 40, seed=3)
