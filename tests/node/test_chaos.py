"""Kill −9 at random moments, again and again, while the network learns, grows and forgets.

Erasures of records and of a whole agent are asked for between the kills, so processes die with
requests that are pending, carried out and not certified, certified and not put away, put away:
whoever was killed leaves a disk, and what lay on it is counted.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.support.erasing import Owners
from tests.support.processes import Processes

from unweave.errors import UnweaveError
from unweave.node.config import AgentFolder
from unweave.node.identity import Identity
from unweave.node.storage.sqlite import SqliteStore
from unweave.protocol.state import State

STAGES = ("pending", "removed", "certified", "put away")


class Chaos(Owners):
    """Kills one or two agents at a time, starts them again, and gives the token work meanwhile."""

    def __init__(self, net: Processes, seed: int) -> None:
        super().__init__(net, seed)
        self.killed = 0
        self.stages: Counter[str] = Counter()  # how many processes died with a request there

    @property
    def leaver(self) -> str:
        """Who erases itself, halfway."""
        return self.net.names[-1]

    def storm(self, restarts: int) -> None:
        """At least so many kills, and until processes have died at every stage of an erasure."""
        net, rng = self.net, self.rng
        while self.killed < restarts or set(self.stages) < set(STAGES):
            assert self.killed < 3 * restarts, f"nobody died at some stage: {self.stages}"
            if 2 * self.killed >= restarts and self.leaver not in net.out:
                self.ask(self.leaver)
                net.out.add(self.leaver)
            self.work()
            time.sleep(rng.random() * rng.choice((0.05, 0.4, 0.8)))
            victims = rng.sample(net.names, rng.choice((1, 1, 2)))
            net.kill(*victims)
            self.killed += len(victims)
            for name in victims:
                self.stages.update(stages(on_disk(net.folder(name), net.root / "autopsy")))
            if rng.random() < 0.3:
                self.work()  # for those who are left
            if rng.random() < 0.5:
                time.sleep(rng.random())
            for name in victims:
                net.children[name].start()
            if rng.random() < 0.7:
                net.ready(*victims)
        net.ready(*net.names)

    def work(self) -> None:
        """Something to do: a walk, new rows, erasures."""
        net, rng = self.net, self.rng
        busy = rng.choice(net.names)
        with contextlib.suppress(UnweaveError):
            net.ask(busy, "wake")
            if rng.random() < 0.4:
                # A learn that was killed before its answer left no trace, or a complete one.
                net.append(busy, [float(rng.random() < 0.5)])
                net.ask(busy, "learn")
        for name in rng.sample(net.names, rng.choice((2, 3, 4))):
            left = self.remaining(name)
            if len(left) > 4:
                self.ask(name, *rng.sample(left, rng.choice((1, 1, 1, 2))))


def on_disk(folder: Path, aside: Path) -> State | None:
    """What a killed agent left, read from a copy: its own next start is to find it untouched."""
    aside.mkdir(exist_ok=True)
    for old in aside.iterdir():
        old.unlink()
    for file in folder.glob("store.db*"):
        shutil.copy2(file, aside / file.name)
    if not (aside / "store.db").exists():
        return None
    agent, secret = AgentFolder.read(folder), Identity.load(folder).store_secret
    with SqliteStore.open(aside / "store.db", agent.terms, agent.me, secret) as store:
        return store.load(agent.terms, agent.me)


def stages(s: State | None) -> set[str]:
    """How far this agent's own erasures had come."""
    if s is None:
        return set()
    unproved = s.tomb.open - s.known.proved
    found = (s.own_intents(), unproved, s.tomb.open & s.known.proved, s.tomb.compacted)
    return {stage for stage, some in zip(STAGES, found, strict=True) if some}


def survive(net: Processes, restarts: int, seed: int) -> None:
    chaos = Chaos(net, seed)
    net.start()
    chaos.storm(restarts)
    assert sum(child.restarts for child in net.children.values()) >= restarts
    certificates = chaos.certified()
    for name in net.names:
        with contextlib.suppress(UnweaveError):
            net.ask(name, "learn")
    assert net.settled() == {net.expected(chaos.gone)}

    chaos.verify(certificates)


def test_killed_twenty_times(tmp_path):
    with Processes(tmp_path / "net", agents=4) as net:
        survive(net, 20, seed=1)


@pytest.mark.slow
def test_killed_two_hundred_times(tmp_path):
    with Processes(tmp_path / "net", agents=5, rows=80) as net:
        survive(net, 200, seed=4)


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["star", "complete", "path"])
def test_killed_on_other_graphs(tmp_path, graph):
    with Processes(tmp_path / "net", agents=5, graph=graph) as net:
        survive(net, 60, seed=len(graph))


@pytest.mark.slow
def test_killed_on_a_random_walk(tmp_path):
    with Processes(tmp_path / "net", agents=5, schedule="metropolis") as net:
        survive(net, 40, seed=3)
