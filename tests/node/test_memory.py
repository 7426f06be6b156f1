"""After an erasure no process holds an erased value: the memory of a whole network is searched."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.memory import integers, processes_below, read_pages, reals, scan, unreadable
from tests.support.processes import Processes, erase, is_clean

from unweave.graph import Topology
from unweave.models import NormalUnknown
from unweave.node.api.client import Operator
from unweave.node.memory import ErasedInMemory, place_in_turn
from unweave.node.process import RESTART_FILE
from unweave.persistent import NOBODY
from unweave.protocol.messages import ParkNotice, Pass
from unweave.protocol.recovery import empty_token
from unweave.protocol.state import Hold, Out, Parked, State
from unweave.protocol.token import NEVER, Tomb
from unweave.testing.values import small_terms

PAGE = os.sysconf("SC_PAGE_SIZE")
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


class WithHole(io.BytesIO):
    """Three pages, the middle one of which the process has given back."""

    def read(self, size: int | None = -1) -> bytes:
        start = self.tell()
        if start < 2 * PAGE and start + (size or 0) > PAGE:
            raise OSError(errno.EIO, "Input/output error")
        return super().read(size)


def test_the_scan_leaves_out_pages_that_were_given_back_meanwhile():
    pages = WithHole(b"a" * PAGE + b"b" * PAGE + b"c" * PAGE)
    assert read_pages(pages, 5, 3 * PAGE) == b"a" * (PAGE - 5) + b"c" * PAGE


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


@needs_root
@pytest.mark.slow
def test_the_supervisor_never_holds_a_sum_and_starts_new_processes(tmp_path):
    """`unweave up` in a terminal, where its live view shows the posterior."""
    net = network(tmp_path / "net")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "unweave", "up", str(net.root)])
    screen = bytearray()

    def look() -> None:
        while select.select([terminal], [], [], 0.1)[0]:
            screen.extend(os.read(terminal, 1 << 16))

    def agents(condition) -> None:
        end = time.monotonic() + 180.0
        while not (len(found := net.statuses()) == 3 and all(map(condition, found.values()))):
            look()
            assert time.monotonic() < end, (found, bytes(screen[-2000:]))

    try:
        agents(lambda s: s.get("parked") and s["attested"] == 3)
        patterns = erased_values(net, "a2")
        before = {
            status["pid"]: scan(status["pid"], patterns) for status in net.statuses().values()
        }
        assert all(before.values())
        while b"theta" not in screen:
            look()
        with Operator(net.folder("a2")) as operator:
            operator.ask("erase", whole=True)
        agents(lambda s: is_clean(s) and s["erased"] == ["a2"])
        assert not before.keys() & {status["pid"] for status in net.statuses().values()}
        below = processes_below(pid)
        assert len(below) >= 4, "the agents and their fork server"
        found = {p: scan(p, patterns) for p in (pid, *below)}
        assert not any(found.values()), found
    finally:
        os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + 60.0
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            look_safely(terminal)
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
        os.close(terminal)


def look_safely(terminal: int) -> None:
    """Read on, so that the last output does not block; a closed terminal is an error in Linux."""
    with contextlib.suppress(OSError):
        if select.select([terminal], [], [], 0.1)[0]:
            os.read(terminal, 1 << 16)


@given(st.integers(1, 40), st.floats(0.0, 1.0), st.integers(0, 2**32))
def test_neighbours_restart_at_different_moments(count, p, seed):
    edges = [(k - 1, k) for k in range(1, count)]
    rng = np.random.default_rng(seed)
    edges += [e for e in itertools.combinations(range(count), 2) if rng.random() < p]
    topology = Topology([f"a{k}" for k in range(count)], edges)
    places = [place_in_turn(topology, k) for k in range(len(topology.agents))]
    memory = ErasedInMemory(60.0)
    for k, neighbours in enumerate(topology.adjacency):
        assert all(places[k] != places[n] for n in neighbours)
        assert 0.0 < memory.delay(topology, k) <= 10.0


def state_with(*tombs: Tomb, **token: object) -> State:
    state = State(small_terms(), 0)
    state.peers.synced = True
    state.known.tombs = dict(enumerate(tombs))
    for name, value in token.items():
        setattr(state.token, name, value)
    return state


def test_what_makes_a_process_end():
    one, two = Tomb(ids=frozenset({bytes(16)})), Tomb(ids=frozenset({bytes(16), bytes(15) + b"1"}))

    def after(*states: State, interval: float = 60.0) -> str:
        memory = ErasedInMemory(interval)
        for state in states:
            memory.watch_state(state)
        return memory.why

    assert not after(state_with(), state_with())
    assert not after(state_with(one), state_with(one)), "erased before this process began"
    assert after(state_with(), state_with(one)) == "an erasure"
    assert after(state_with(one), state_with(two)) == "an erasure"
    assert after(state_with(one), state_with(one._replace(departed=True))) == "an erasure"
    assert not after(state_with(one), state_with(one._replace(compacted=one.ids)))
    assert not after(state_with(), state_with(one), interval=0.0)

    # Dead state in the store, and a dead token of a neighbour.
    old = empty_token(state_with(), NEVER)._replace(inside=NOBODY | {0})
    assert "store" in after(state_with(one, copy=old))
    memory = ErasedInMemory(60.0)
    memory.watch_message(state_with(), Pass(old))
    assert not memory.why
    memory.watch_message(state_with(one), Pass(old))
    assert "neighbour" in memory.why

    # Erased records that the source has lost.
    memory = ErasedInMemory(60.0)
    memory.watch_reading("1", frozenset({"k1", "k2"}))
    memory.watch_reading("2", frozenset({"k1", "k2"}))
    memory.watch_source(lambda: "2")
    assert not memory.why
    memory.watch_reading("3", frozenset({"k2"}))
    assert "deleted" in memory.why
    memory = ErasedInMemory(60.0)
    memory.watch_reading("1", frozenset({"k1"}))
    memory.watch_source(lambda: "2")
    assert "changed" in memory.why


def test_when_a_process_ends():
    def due(state: State | None, age: float, since: float = 0.0) -> bool:
        memory = ErasedInMemory(60.0)
        now = time.monotonic()
        memory.watch_state(state_with())
        memory.watch_state(state_with(Tomb(ids=frozenset({bytes(16)}))))
        memory._started, memory._since = now - age, now - since
        return memory.due(state, now)

    token = empty_token(state_with(), NEVER)
    notice = ParkNotice(NEVER._replace(epoch=1), 1, token.included, NOBODY, {})
    parked = state_with(parked=notice)
    assert due(parked, 61.0)
    assert not due(parked, 59.0), "not more often than the interval"
    assert not due(None, 61.0)
    assert not due(state_with(), 61.0), "the token is not parked: wait"
    assert due(state_with(), 61.0, since=61.0), "but not for ever"
    for role in (Hold(token), Out(token, 1)):
        assert not due(state_with(role=role), 1e6, since=1e6), "a token is under way"
    assert due(state_with(role=Parked(token), parked=notice), 61.0)


def test_a_stopped_agent_does_not_restart(tmp_path):
    """SIGTERM counts also while a process is being replaced."""
    with network(tmp_path / "net", agents=2, interval=1.0) as net:
        net.children["a1"].prefix = ("env",)  # a new interpreter, which executes itself
        net.start()
        net.rest()
        erase(net, "a2")
        end = time.monotonic() + 60.0
        while not (net.folder("a1") / RESTART_FILE).exists():
            assert time.monotonic() < end
            time.sleep(0.001)
        net.process("a1").terminate()
        assert net.process("a1").wait(60) in (0, -signal.SIGTERM)


def test_an_agent_writes_no_core_and_cannot_be_traced():
    """In a process of its own: both settings last."""
    script = """
import ctypes, resource
from unweave.node.process import protect_memory
protect_memory()
print(resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split() == ["(0,", "0)", "0"], done.stderr


def test_a_command_waits_for_an_agent_that_replaces_its_process(tmp_path):
    """The requests of one connection are all answered, by the old process and by the new one."""
    with network(tmp_path / "net", agents=2, interval=1.0) as net:
        net.children["a1"].prefix = ("env",)  # a new interpreter, which executes itself
        net.start()
        net.rest()
        seen = []
        with Operator(net.folder("a1"), 60.0) as operator:
            erase(net, "a2")
            while not seen or not seen[-1]["replaced"]:
                operator.ask("wake")  # refused without a state
                seen.append(operator.ask("status")["status"])
                net.running()
        assert len({status["pid"] for status in seen}) == 1
        assert not (net.folder("a1") / RESTART_FILE).exists()
        assert net.children["a1"].replacements == 0, "the supervisor has nothing to do"
