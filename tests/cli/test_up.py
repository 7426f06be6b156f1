"""`unweave up` and the terminal: a live view for whoever looks, lines for everybody else."""

import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

ASK = """
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
