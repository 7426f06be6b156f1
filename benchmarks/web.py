"""The page: what fifty viewers cost the agents, and the server.

python -m benchmarks.web URL VIEWERS     viewers that read the events of a page until a line comes

The agents repeat audits without a pause. In turns nobody looks at the page, and fifty viewers do;
the agents' CPU time per audit is compared within the run.
"""

from __future__ import annotations

import asyncio
import json
import os
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
SECONDS = 15.0  # of one turn
TURNS = 5


class Turn(NamedTuple):
    """CPU milliseconds of all agents per audit, the server's share of a core, and what each viewer
    was sent per second."""

    agents: float
    server: float
    messages: float
    audits: int


def cpu(pid: int) -> float:
    """Seconds that a process has used, with its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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


def _turn(net: Processes, server: int, url: str, viewers: int) -> Turn:
    look = None
    if viewers:
        command = [sys.executable, "-m", "benchmarks.web", url, str(viewers)]
        look = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert look.stdout is not None
        look.stdout.readline()
    else:
        time.sleep(1.0)
    pids = [child.pid for child in net.children.values() if child.pid]
    with Operator(net.folder(net.names[0]), 60.0) as agent:
        _audit(agent)
        used, served = sum(map(cpu, pids)), cpu(server) if server else 0.0
        began, audits = time.monotonic(), 0
        while time.monotonic() - began < SECONDS:
            _audit(agent)
            audits += 1
        seconds = time.monotonic() - began
        used = sum(map(cpu, pids)) - used
        served = cpu(server) - served if server else 0.0
    messages = int(look.communicate("\n")[0]) if look is not None else 0
    return Turn(1e3 * used / audits, served / seconds, messages / seconds / max(1, viewers), audits)


def turns(agents: int = 5, rounds: int = TURNS) -> dict[str, list[Turn]]:
    """Turns without a page, with a page that nobody looks at, and with viewers, one by one."""
    found: dict[str, list[Turn]] = {"no page": [], "nobody": [], "viewers": []}
    with (
        tempfile.TemporaryDirectory() as folder,
        Processes(Path(folder) / "net", agents=agents, rows=20) as net,
    ):
        net.start()
        net.rest()
        _turn(net, 0, "", 0)  # to warm up
        for _ in range(rounds):
            found["no page"].append(_turn(net, 0, "", 0))
            with page(net.root) as (server, url):
                time.sleep(3.0)
                found["nobody"].append(_turn(net, server, url, 0))
                found["viewers"].append(_turn(net, server, url, VIEWERS))
            for name, measured in found.items():
                print(name, measured[-1])
    return found


@benchmark(
    f"the agents' CPU per audit with {VIEWERS} viewers of the page against without any",
    target=1.05,
    at_most=True,
)
def viewers_cost() -> float:
    found = turns()
    pairs = zip(found["viewers"], found["nobody"], found["no page"], strict=True)
    ratios = [(some.agents / none.agents, some.agents / bare.agents) for some, none, bare in pairs]
    print(f"against no page at all: {statistics.median(bare for _, bare in ratios):.3f}")
    print(f"server: {100 * statistics.median(t.server for t in found['viewers']):.1f}% of a core")
    messages = statistics.median(t.messages for t in found["viewers"])
    print(f"messages per second and viewer: {messages:.1f}")
    return statistics.median(none for none, _ in ratios)


if __name__ == "__main__":
    asyncio.run(_view(sys.argv[1], int(sys.argv[2])))
