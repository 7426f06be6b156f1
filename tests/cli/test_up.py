"""`unweave up` and its output: a live view in a terminal, lines in a pipe; no wait for readers."""

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest
from tests.support.processes import Processes

from unweave.cli.output import DroppingOutput

ASK = """
import contextlib
import fcntl, os, signal, sys, termios
from unweave.cli.up import _in_front
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
print("in front", _in_front(), flush=True)
if os.fork() == 0:
    os.setpgid(0, 0)
    print("behind", _in_front(), flush=True)
    os._exit(0)
os.wait()
print("done", flush=True)
"""


def read(terminal: int, last: str, limit: float = 60.0) -> str:
    text, end = "", time.monotonic() + limit
    while last not in text and time.monotonic() < end:
        if select.select([terminal], [], [], 0.5)[0]:
            text += os.read(terminal, 4096).decode()
    return text


def test_the_background_has_no_live_view():
    terminal, other = pty.openpty()
    try:
        with subprocess.Popen([sys.executable, "-c", ASK], stdin=other, stdout=other, stderr=other,
                              start_new_session=True) as asked:  # fmt: skip
            text = read(terminal, "done")
            assert asked.wait(60.0) == 0, text
    finally:
        os.close(terminal)
        os.close(other)
    assert "in front True" in text
    assert "behind False" in text
    piped = subprocess.run(
        [
            sys.executable,
            "-c",
            "from unweave.cli.up import _in_front; raise SystemExit(_in_front())",
        ],
        stdout=subprocess.PIPE,
        timeout=60,
    )
    assert piped.returncode == 0


@pytest.fixture
def signals():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("signals")
def test_until_ready_says_that_the_agents_are_stopped(unweave, tmp_path):
    table, net = tmp_path / "v.csv", tmp_path / "net"
    table.write_text("id,x\n" + "".join(f"p{k},{k % 2}\n" for k in range(24)))
    made = unweave("init", net, "--agents", "2", "--graph", "path", "--data", table)
    assert made.code == 0, made.err
    for until, said in (("ready", "All agents answered"), ("parked", "The token is parked")):
        done = unweave("up", net, "--until", until)
        assert done.code == 0, done.err
        text = f"{said}. Stopped 2 agents; without --until {until} they continue to run.\n"
        assert text in done.out
    done = unweave("up", net, "--until", "ready", "--json")
    assert done.json == {"ready": ["a1", "a2"], "stopped": True}


@pytest.fixture
def unread():
    """A pipe that is full, and whose reader takes nothing."""
    source, sink = os.pipe()
    fcntl.fcntl(sink, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(sink, False)
    os.write(sink, b"x" * 4095 + b"\n")
    os.set_blocking(sink, True)
    yield source, sink
    for end in (source, sink):
        with contextlib.suppress(OSError):
            os.close(end)


@pytest.mark.parametrize("how", [["--json"], []])
def test_agents_are_restarted_while_nobody_reads_the_output(tmp_path, unread, how):
    net = Processes(tmp_path / "net", agents=1)
    command = [sys.executable, "-m", "unweave", "up", str(net.root), *how]

    def pid(other_than: int | None = None) -> int:
        end = time.monotonic() + 60.0
        while time.monotonic() < end:
            with contextlib.suppress(KeyError):
                if (found := net.statuses("a1")["a1"]["pid"]) != other_than:
                    return found
            time.sleep(0.1)
        raise AssertionError("no agent was restarted")

    with subprocess.Popen(command, stdout=unread[1], stderr=subprocess.PIPE) as up:
        try:
            first = pid()
            time.sleep(2.0)  # some updates: the first of them finds no room
            os.kill(first, signal.SIGKILL)
            second = pid(other_than=first)
            up.send_signal(signal.SIGTERM)
            assert up.wait(60.0) == 0
        finally:
            up.kill()
        assert up.stderr.read() == b""
    assert not os.path.exists(f"/proc/{second}")


def test_what_the_reader_does_not_take_is_left_out_whole_and_counted(unread):
    source, sink = unread
    output = DroppingOutput(os.fdopen(sink, "w", closefd=False))
    for k in range(100):
        output.write(json.dumps({"update": k}) + "\n")
    assert 80 <= output.dropped < 100
    reader = os.fdopen(source, closefd=False)
    assert reader.readline() == "x" * 4095 + "\n"
    kept = [json.loads(reader.readline())["update"] for _ in range(100 - output.dropped)]
    assert kept == sorted(set(kept))
    assert kept[:16] == list(range(16))
    output.write("whole\n")
    assert reader.readline() == "whole\n"
    assert output.finish()


def test_a_reader_that_has_gone_is_noticed(unread):
    source, sink = unread
    output = DroppingOutput(os.fdopen(sink, "w", closefd=False))
    output.write("one\n")
    os.close(source)
    assert output.finish()
    with pytest.raises(BrokenPipeError):
        output.write("two\n")
