"""The page: what fifty viewers cost the agents, and the server.

python -m benchmarks.web URL VIEWERS     viewers that read the events of a page until a line comes

In turns there is no page, and there is one with fifty viewers. Every turn has the same work at the
same rate: a busy network repeats audits without a pause, an idle one has an audit now and then.

The CPU times of two equal turns differ by more than the page costs if other processes run beside
them. So the page's cost is counted: what it asked the agents, times the CPU time of a request that
comes after a pause. The direct comparison is printed beside it.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock
from urllib.parse import urlsplit

from tests.support.processes import Processes

from benchmarks.harness import benchmark
from unweave.address import Address
from unweave.node.api.client import Operator
from unweave.operations.cluster import Cluster
from unweave.web.live.link import AgentLink
from unweave.web.live.network import NetworkSource
from unweave.web.server import PageServer

VIEWERS = 50
ROUNDS = 4  # turns of each kind
PROBES = 40  # requests that are timed


class Work(NamedTuple):
    """The work of one turn."""

    audits: int
    every: float  # seconds between the beginnings of two of them, at least


BUSY = Work(40, 0.0)
IDLE = Work(3, 12.0)


class Turn(NamedTuple):
    """CPU milliseconds of all agents in a turn; its seconds; what the page asked the agents; what
    each viewer was sent per second."""

    agents: float
    seconds: float
    requests: int
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
def page(folder: Path) -> Iterator[tuple[str, Counter[str]]]:
    """The page of a network: its address, and what it has asked the agents so far."""
    asked: Counter[str] = Counter()
    changes, again = AgentLink.changes, Cluster.again

    async def counted_changes(link: AgentLink, *given: Any) -> Any:
        asked["changes"] += 1
        return await changes(link, *given)

    def counted_again(agents: Cluster, name: str, do: str, **given: Any) -> Any:
        asked[do] += 1
        return again(agents, name, do, **given)

    with (
        mock.patch.object(AgentLink, "changes", counted_changes),
        mock.patch.object(Cluster, "again", counted_again),
        PageServer(NetworkSource(folder), Address("127.0.0.1", 0), code=None) as server,
    ):
        yield server.url, asked


def _audit(agent: Operator) -> None:
    before = agent.ask("wake")["before"]
    while True:
        agent.ask("wait", timeout=5.0)
        status = agent.ask("status")["status"]
        if status["parked"] is not None and status["parked_stamp"] > before:
            return


def _turn(net: Processes, work: Work, url: str = "", asked: Counter[str] | None = None) -> Turn:
    look = None
    if url:
        command = [sys.executable, "-m", "benchmarks.web", url, str(VIEWERS)]
        look = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert look.stdout is not None
        look.stdout.readline()
    pids = [child.pid for child in net.children.values() if child.pid]
    asked = Counter() if asked is None else asked
    with Operator(net.folder(net.names[0]), 60.0) as agent:
        _audit(agent)
        time.sleep(2.0)
        used, requests, began = sum(map(cpu, pids)), asked.total(), time.monotonic()
        for number in range(1, work.audits + 1):
            _audit(agent)
            time.sleep(max(0.0, began + number * work.every - time.monotonic()))
        seconds = time.monotonic() - began
        used, requests = sum(map(cpu, pids)) - used, asked.total() - requests
    messages = int(look.communicate("\n")[0]) if look is not None else 0
    return Turn(1e3 * used, seconds, requests, messages / seconds / VIEWERS)


def _request(net: Processes) -> float:
    """CPU milliseconds of the dearest request of a page, after a pause as between two of them, and
    without what the agent uses in that pause."""
    found: dict[str, list[float]] = {"changes": [], "status": [], "": []}
    with Operator(net.folder(net.names[0]), 60.0) as agent:
        assert agent.pid is not None
        for _ in range(PROBES):
            for do, used in found.items():
                before = cpu(agent.pid)
                time.sleep(0.2)
                if do:
                    agent.ask(do, **({"timeout": 0.0} if do == "changes" else {}))
                used.append(1e3 * (cpu(agent.pid) - before))
    *asked, idle = map(statistics.mean, found.values())
    return max(asked) - idle


def _cost(work: Work, agents: int = 5, rounds: int = ROUNDS) -> float:
    """Turns without a page and with viewers, one by one; the page's cost, as a factor."""
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
            with page(net.root) as (url, asked):
                time.sleep(5.0)
                viewed.append(_turn(net, work, url, asked))
            print(f"no page {bare[-1]}\nviewers {viewed[-1]}")
        each = _request(net)
    direct = statistics.median(v.agents / b.agents for v, b in zip(viewed, bare, strict=True))
    requests = statistics.mean(t.requests for t in viewed)
    print(f"compared directly: {direct:.3f}; {requests:.0f} requests of at most {each:.2f} ms")
    print(f"messages per second and viewer: {statistics.median(t.messages for t in viewed):.1f}")
    return 1.0 + requests * each / statistics.mean(t.agents for t in bare)


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
