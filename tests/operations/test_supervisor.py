"""A supervisor starts again what has died, gives up on what cannot, and leaves nobody behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.processes import Processes

from unweave.errors import UnweaveError
from unweave.operations.supervisor import Supervisor


def watch(agents: Supervisor, done, limit: float = 60.0) -> None:
    end = time.monotonic() + limit
    while not done():
        assert time.monotonic() < end, "not in time"
        agents.look()
        time.sleep(0.05)


def parent(pid: int | None) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def test_the_dead_are_started_again(tmp_path):
    net = Processes(tmp_path / "net", agents=2, graph="path")
    folders = [net.folder(name) for name in net.names]
    with Supervisor(folders) as agents:
        agents.ready(60.0)
        net.children = agents.children
        first = {name: child.pid for name, child in agents.children.items()}
        assert len(set(first.values()) | {os.getpid()}) == 3
        for name, pid in first.items():  # `ps` tells them apart
            assert Path(f"/proc/{pid}/comm").read_text() == f"unweave {name}\n"
            command = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()
            assert command == f"unweave agent {net.folder(name)}"
            assert net.statuses(name)[name]["supervisor"] == os.getpid()
            assert b"PATH=" in Path(f"/proc/{pid}/environ").read_bytes()
        os.kill(first["a1"], signal.SIGKILL)
        watch(agents, lambda: agents.children["a1"].pid != first["a1"])
        assert net.settled() == {net.expected()}
        assert agents.children["a2"].pid == first["a2"]

        # The process that forks them dies: they live on, and a new one forks those that do not.
        before = {name: child.pid for name, child in agents.children.items()}
        fork_server = parent(before["a1"])
        assert fork_server == parent(before["a2"]) != os.getpid()
        os.kill(fork_server, signal.SIGKILL)
        watch(agents, lambda: parent(before["a1"]) != fork_server)
        agents.look()
        assert {name: child.pid for name, child in agents.children.items()} == before
        os.kill(before["a2"] or 0, signal.SIGKILL)
        watch(agents, lambda: agents.children["a2"].pid != before["a2"])
        agents.ready(60.0)
        assert agents.children["a1"].pid == before["a1"]
        assert net.settled() == {net.expected()}

        # One that an operator has stopped stays down.
        child = agents.children["a2"]
        net.ask("a2", "stop")
        assert child.process is not None
        assert child.process.wait(60.0) == 0
        stopped = child.pid
        agents.look()
        assert child.pid == stopped
        left = [c.pid for c in agents.children.values()]
    for pid in left:  # gone, or waiting for this machine's first process to notice
        stat = Path(f"/proc/{pid}/stat")
        assert not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"
    assert not list(net.root.glob("agents/*/agent.sock"))


def test_one_that_cannot_come_back_does_not_stop_the_others(tmp_path):
    """Its folder went wrong while it ran: that shows when it starts again."""
    net = Processes(tmp_path / "net", agents=3, graph="ring")
    with Supervisor([net.folder(name) for name in net.names]) as agents:
        agents.ready(60.0)
        net.children = agents.children
        assert net.settled() == {net.expected()}
        others = {name: agents.children[name].pid for name in ("a1", "a3")}
        key = net.folder("a2") / "key.pem"
        key.chmod(0o644)
        os.kill(agents.children["a2"].pid or 0, signal.SIGKILL)
        watch(agents, lambda: "chmod 600" in agents.children["a2"].trouble)
        why = agents.troubles(["a2"])["a2"]
        assert why.startswith("cannot start: ")
        assert "unweave check" in why
        assert agents.troubles([]) == {}
        tries = agents.children["a2"].restarts
        watch(agents, lambda: agents.children["a2"].restarts > tries)  # it is tried again
        assert {name: agents.children[name].pid for name in others} == others
        key.chmod(0o600)
        agents.children["a2"].not_before = 0.0
        watch(agents, lambda: "a2" in net.statuses("a2"))
        assert net.settled() == {net.expected()}


def test_what_cannot_start_is_given_up(tmp_path):
    net = Processes(tmp_path / "net", agents=2, graph="path")
    (net.folder("a2") / "key.pem").chmod(0o644)
    with (
        pytest.raises(
            UnweaveError, match=r"a2 cannot start: [^:]*key.pem.*chmod 600.*unweave check"
        ),
        Supervisor([net.folder(name) for name in net.names]) as agents,
    ):
        agents.ready(60.0)
    assert agents.children["a1"].poll() is not None


MAIN = """
import sys
from pathlib import Path
from unweave.operations.supervisor import Supervisor
with Path(sys.argv[2]).open("a") as file:
    file.write("once ")
if __name__ == "__main__":
    with Supervisor([Path(sys.argv[1])]) as agents:
        agents.ready(60.0)
"""


def test_agents_do_not_run_the_program_that_supervises_them(tmp_path):
    """multiprocessing would import the file that was started again in each of its processes."""
    net = Processes(tmp_path / "net", agents=1)
    program, ran = tmp_path / "program.py", tmp_path / "ran"
    program.write_text(MAIN)
    words = [sys.executable, str(program), str(net.folder("a1")), str(ran)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert ran.read_text() == "once "
    assert "stopped" in net.log("a1")
