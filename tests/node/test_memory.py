"""After an erasure no process holds an erased value: the memory of a whole network is searched."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.support.memory import integers, processes_below, reals, scan, unreadable
from tests.support.processes import Processes, erase

from unweave.models import NormalUnknown
from unweave.node.api.client import Operator

needs_root = pytest.mark.skipif(bool(unreadable()), reason=unreadable() or "-")

# A small scale makes long integers, so that no sum occurs by chance.
MODEL = NormalUnknown(center={"x": 1.0}, scale={"x": 1e-3})
INTERVAL = 2.0


def network(root: Path, agents: int = 3, interval: float = INTERVAL, **more) -> Processes:
    return Processes(
        root,
        agents,
        model=MODEL,
        draw=lambda rng, n: rng.normal(1.0, 2.0, n),
        key_suffix="-of-a-person",
        restart_interval=interval,
        **more,
    )


def erased_values(net: Processes, owner: str, keys: list[str] | None = None):
    """Patterns of everything that an erasure must remove: the owner's factor, each sum with it, and
    the values and keys of the erased records."""
    factors = {
        name: MODEL.factor(MODEL.shard(np.array(list(rows.values())), name))
        for name, rows in net.rows.items()
    }
    others = [factors[name] for name in net.names if name != owner]
    sums = [
        sum(chosen, MODEL.eta0 + factors[owner])
        for count in range(len(others) + 1)
        for chosen in itertools.combinations(others, count)
    ]
    rows = net.rows[owner]
    gone = list(rows) if keys is None else keys
    return {
        "factor": integers(map(int, factors[owner])),
        "sum": integers(int(value) for eta in sums for value in eta),
        "value": [*reals(rows[k] for k in gone), *(repr(rows[k]).encode() for k in gone)],
        "key": [key.encode() for key in gone],
    }


def in_memory(net: Processes, patterns) -> dict[str, dict[str, int]]:
    """What is found in the agents' processes, in the fork server, and in all others below this
    process."""
    agents = {net.process(name).pid: name for name in net.running()}
    found = {agents.get(p, str(p)): scan(p, patterns) for p in processes_below(os.getpid())}
    return {name: hits for name, hits in found.items() if hits}


@needs_root
def test_a_process_ends_when_it_may_hold_erased_values(tmp_path):
    with network(tmp_path / "net") as net:
        net.start()
        net.rest()
        patterns = erased_values(net, "a2")
        before = in_memory(net, patterns)
        assert before.keys() == set(net.names), "the patterns are what the processes hold"
        assert {"factor", "sum"} <= before["a2"].keys()
        pids = {name: net.process(name).pid for name in net.names}
        erase(net, "a2")
        net.clean()
        assert in_memory(net, patterns) == {}
        assert set(net.rest().values()) == {net.expected()}
        assert all(net.process(name).pid != pid for name, pid in pids.items())
        assert all("restarts, to remove erased values" in net.log(name) for name in net.names)
        assert all(net.children[name].restarts == 0 for name in net.names), "no crash"


@needs_root
@pytest.mark.slow
def test_nothing_of_erased_records_stays_with_any_agent(tmp_path):
    """The owner's file still holds the records. a4 sleeps through the erasure, a5 is frozen and
    then tells its old token."""
    with network(tmp_path / "net", agents=5, rows=15, graph="complete") as net:
        net.start()
        net.rest()
        gone = {"a2": list(net.rows["a2"])[3:9]}
        patterns = erased_values(net, "a2", gone["a2"])
        assert in_memory(net, patterns).keys() == set(net.names)
        net.stop("a4")
        net.freeze("a5")
        erasing = net.ask("a2", "erase", keys=gone["a2"])["request"]
        net.wait(
            "to take the records out",
            lambda: (
                []
                if net.ask("a2", "erasure", request=erasing)["erasure"]["state"] == "removed"
                else ["a2"]
            ),
        )
        net.thaw("a5")
        net.clean("a1", "a2", "a3", "a5")  # without a certificate, which needs a4
        found = in_memory(net, patterns)
        net.start("a4")
        assert set(net.rest().values()) == {net.expected(gone)}
        net.clean()
        assert found == {}
        assert in_memory(net, patterns) == {}
        assert net.ask("a2", "erasure", request=erasing)["erasure"]["state"] == "certified"

        # While the file holds the erased records, reading brings them back into memory.
        net.append("a2", [0.5])
        assert net.ask("a2", "learn") == {"changed": True}
        assert set(net.rest().values()) == {net.expected(gone)}
        assert net.ask("a2", "status")["status"]["memory_holds_erased"] is None
        restarts = net.children["a2"].replacements
        assert restarts <= 2

        # When they are deleted there, the process is replaced once more, without `learn`.
        for key in gone["a2"]:
            del net.rows["a2"][key]
        net.append("a2", [])
        net.wait("to restart", lambda: [] if net.children["a2"].replacements > restarts else ["a2"])
        net.clean("a2")
        assert in_memory(net, patterns) == {}
        assert net.ask("a2", "learn") == {"changed": True}
        assert set(net.rest().values()) == {net.expected()}


@pytest.mark.slow
def test_erased_records_that_stay_in_the_file_do_not_restart_an_agent_for_ever(tmp_path):
    with network(tmp_path / "net", rows=12) as net:
        net.start()
        net.rest()
        gone = {"a2": list(net.rows["a2"])}
        erase(net, "a2", gone["a2"])
        net.clean()
        time.sleep(8 * INTERVAL)
        net.clean()
        assert all(net.children[name].replacements <= 2 for name in net.names)


@pytest.mark.slow
def test_twenty_erasures_in_a_row_cause_few_restarts(tmp_path):
    interval = 10.0
    with network(tmp_path / "net", agents=5, interval=interval, rows=30) as net:
        net.start()
        net.rest()
        began = time.monotonic()
        gone: dict[str, list[str]] = {name: [] for name in net.names}
        for number in range(20):
            owner = net.names[number % 5]
            key = list(net.rows[owner])[number]
            erase(net, owner, [key])
            gone[owner].append(key)
        took = time.monotonic() - began
        net.clean()
        assert set(net.rest().values()) == {net.expected(gone)}
        most = 2 + (time.monotonic() - began) / interval
        restarts = {name: net.children[name].replacements for name in net.names}
        print(f"20 erasures took {took:.1f} s, with {restarts} restarts")  # noqa: T201
        assert all(1 <= count <= most for count in restarts.values())


@needs_root
@pytest.mark.slow
def test_a_lone_agent_replaces_its_process_and_keeps_its_id(tmp_path):
    """As under systemd: `unweave agent`, whose process id and log stay the same. Requests that meet
    the restart are answered."""
    with network(tmp_path / "net") as net, (tmp_path / "log").open("wb") as log:
        net.start("a1", "a2")
        command = [sys.executable, "-m", "unweave", "agent", str(net.folder("a3"))]
        lone = subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL)
        try:
            net.wait("to start", lambda: [] if "a3" in net.statuses() else ["a3"])
            net.rest(*net.names)
            patterns = erased_values(net, "a2")
            assert scan(lone.pid, patterns)
            open_files = len(os.listdir(f"/proc/{lone.pid}/fd"))
            with Operator(net.folder("a3"), 30.0) as operator:
                erase(net, "a2")
                answers = []
                while not answers or not answers[-1]["replaced"]:
                    answers.append(operator.ask("status")["status"])
                    net.running()
                    assert len(answers) < 100_000
            net.clean()
            assert {answer["pid"] for answer in answers} == {lone.pid}
            assert scan(lone.pid, patterns) == {}
            assert set(net.rest(*net.names).values()) == {net.expected()}
            text = (tmp_path / "log").read_text()
            assert text.count("restarts, to remove erased values") == 1
            assert text.count("  started  ") == 2
            assert len(os.listdir(f"/proc/{lone.pid}/fd")) <= open_files + 1
            limits = Path(f"/proc/{lone.pid}/limits").read_text()
            assert any(
                line.split()[4:6] == ["0", "0"]
                for line in limits.splitlines()
                if line.startswith("Max core")
            )
            lone.terminate()
            assert lone.wait(60) == 0
        finally:
            lone.kill()
            lone.wait()
