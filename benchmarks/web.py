"""The page: what fifty viewers cost the agents, and the server.

python -m benchmarks.web URL VIEWERS     viewers that read the events of a page until a line comes

In turns there is no page, and there is one with fifty viewers. Every turn has the same work at the
same rate: a busy network repeats audits without a pause, an idle one has an audit now and then. The
agents' CPU time is compared.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.support.processes import Processes

from benchmarks.harness import benchmark
from unweave.node.api.client import Operator

VIEWERS = 50
ROUNDS = 4  # turns of each kind


class Work(NamedTuple):
    """The work of one turn."""

    audits: int
    every: float  # seconds between the beginnings of two of them, at least


BUSY = Work(40, 0.0)
IDLE = Work(3, 12.0)


class Turn(NamedTuple):
    """CPU milliseconds of all agents in a turn; its seconds; the server's share of a core; what
    each viewer was sent per second."""

    agents: float
    seconds: float
    server: float
    messages: float


def cpu(pid: int) -> float:
    """Seconds that a process has used, with its threads: its CPU clock (Linux)."""
    return time.clock_gettime((~pid << 3) | 2)


async def _view(url: str, number: int) -> None:
    """Open viewers, wait for a line on standard input, print the messages that they got."""
    place, got = urlsplit(url), 0
    assert place.hostname is not None

    async def one() -> None:
        nonlocal got
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(f"GET /events HTTP/1.1\r\nhost: {place.netloc}\r\n\r\n".encode())
        while line := await reader.readline():
            got += line.startswith(b"event:")

    viewers = [asyncio.create_task(one()) for _ in range(number)]
    await asyncio.sleep(1.0)
    print("ready", flush=True)
    got = 0
    await asyncio.to_thread(sys.stdin.readline)
    print(got, flush=True)
    for viewer in viewers:
        viewer.cancel()


@contextmanager
def page(folder: Path) -> Iterator[tuple[int, str]]:
    """The page of a network, as its own process: its id and address."""
    command = [sys.executable, "-m", "unweave", "dashboard", str(folder), "--port", "0", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield server.pid, json.loads(server.stdout.readline())["url"]
    finally:
        server.terminate()
        server.wait(30)


def _audit(agent: Operator) -> None:
    before = agent.ask("wake")["before"]
    while True:
        agent.ask("wait", timeout=5.0)
        status = agent.ask("status")["status"]
        if status["parked"] is not None and status["parked_stamp"] > before:
            return


def _turn(net: Processes, work: Work, server: int = 0, url: str = "") -> Turn:
    look = None
    if url:
        command = [sys.executable, "-m", "benchmarks.web", url, str(VIEWERS)]
        look = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert look.stdout is not None
        look.stdout.readline()
    pids = [child.pid for child in net.children.values() if child.pid]
    with Operator(net.folder(net.names[0]), 60.0) as agent:
        _audit(agent)
        time.sleep(2.0)
        used, served = sum(map(cpu, pids)), cpu(server) if server else 0.0
        began = time.monotonic()
        for number in range(1, work.audits + 1):
            _audit(agent)
            time.sleep(max(0.0, began + number * work.every - time.monotonic()))
        seconds = time.monotonic() - began
        used = sum(map(cpu, pids)) - used
        served = cpu(server) - served if server else 0.0
    messages = int(look.communicate("\n")[0]) if look is not None else 0
    return Turn(1e3 * used, seconds, served / seconds, messages / seconds / VIEWERS)


def turns(work: Work, agents: int = 5, rounds: int = ROUNDS) -> tuple[list[Turn], list[Turn]]:
    """Turns without a page, and turns with viewers, one by one."""
    bare, viewed = [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        Processes(Path(folder) / "net", agents=agents, rows=20) as net,
    ):
        net.start()
        net.rest()
        _turn(net, Work(5, 0.0))  # to warm up
        for _ in range(rounds):
            bare.append(_turn(net, work))
            with page(net.root) as (server, url):
                time.sleep(3.0)
                viewed.append(_turn(net, work, server, url))
            print(f"no page {bare[-1]}\nviewers {viewed[-1]}")
    return bare, viewed


def _cost(work: Work) -> float:
    bare, viewed = turns(work)
    print(f"server: {100 * statistics.median(t.server for t in viewed):.1f}% of a core")
    print(f"messages per second and viewer: {statistics.median(t.messages for t in viewed):.1f}")
    return sum(t.agents for t in viewed) / sum(t.agents for t in bare)


@benchmark(
    f"the agents' CPU with {VIEWERS} viewers against without a page, audits without a pause",
    target=1.05,
    at_most=True,
)
def busy_cost() -> float:
    return _cost(BUSY)


@benchmark(
    f"the agents' CPU with {VIEWERS} viewers against without a page, an audit in "
    f"{IDLE.every:g} seconds",
    target=1.05,
    at_most=True,
)
def idle_cost() -> float:
    return _cost(IDLE)


if __name__ == "__main__":
    asyncio.run(_view(sys.argv[1], int(sys.argv[2])))
