"""The page: what fifty viewers cost the agents.

python -m benchmarks.web busy|idle [VIEWERS [BLOCKS]]   compare, with other numbers than the entries
python -m benchmarks.web view URL VIEWERS               viewers of a page, until a line comes

Turns are compared in blocks of four: without a page, twice with a page and its viewers, without
one. All turns have the same audits at the same rate. They are only begun, not waited for: requests
that wait would cost the agents more than the page does, and one that comes after the news would
wait in vain. An audit that is late on a busy machine runs into the next one, so CPU times are
divided by the token's hops. The clocks are those of the agents' processes.

The value is the median of the ratios of neighbouring turns. Beside it the page's cost is counted:
what the agents told it and what it asked, each times its CPU time after a pause. That leaves out
what the page and its viewers, as processes on the same machine, cost the agents by their load.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock
from urllib.parse import urlsplit

import numpy as np
from tests.support.processes import Processes

from benchmarks.harness import benchmark
from unweave.address import Address
from unweave.node.api.client import Operator
from unweave.node.api.sockets import short
from unweave.operations.cluster import Cluster
from unweave.web.live.network import NetworkSource
from unweave.web.server import PageServer

VIEWERS = 50
AGENTS = 5
PROBES = 40  # lines and requests that are timed
PAUSE = 0.2  # seconds before each of them
SETTLE = 4.0  # seconds for the first questions of a page
RESAMPLES = 4000


class Work(NamedTuple):
    """The work of a turn, and how many blocks of four turns are compared."""

    audits: int
    every: float  # seconds between the beginnings of two of them
    blocks: int


BUSY = Work(30, 0.2, 6)
IDLE = Work(2, 6.0, 5)


class Turn(NamedTuple):
    """CPU milliseconds of all agents, hops of the token, the lines that the agents sent to the page
    and what it asked them beside, and what each viewer was sent per second."""

    used: float
    hops: int
    lines: int = 0
    requests: int = 0
    messages: float = 0.0

    @property
    def each(self) -> float:
        return self.used / self.hops


class Compared(NamedTuple):
    """The ratio with a page to without one, its interval, and the counted ratio."""

    direct: float
    low: float
    high: float
    counted: float


def cpu(pid: int) -> float:
    """Seconds that a process has used, with its threads: its CPU clock (Linux)."""
    return time.clock_gettime((~pid << 3) | 2)


async def _view(url: str, number: int) -> None:
    """Open viewers; at every line on standard input print the messages that they got so far."""
    place, got = urlsplit(url), 0
    assert place.hostname is not None

    async def one() -> None:
        nonlocal got
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(f"GET /events HTTP/1.1\r\nhost: {place.netloc}\r\n\r\n".encode())
        while line := await reader.readline():
            got += line.startswith(b"event:")

    viewers = [asyncio.create_task(one()) for _ in range(number)]
    while await asyncio.to_thread(sys.stdin.readline):
        print(got, flush=True)
    for viewer in viewers:
        viewer.cancel()


class Page:
    """What the agents have told a page so far, what it has asked them, and what its viewers got."""

    def __init__(self, viewers: int, look: subprocess.Popen[str], asked: Counter[str]) -> None:
        self._viewers, self._look, self._asked = viewers, look, asked

    def lines(self) -> int:
        return self._asked["line"]

    def requests(self) -> int:
        return self._asked.total() - self.lines()

    def messages(self) -> float:
        """Per viewer."""
        assert self._look.stdin is not None
        assert self._look.stdout is not None
        self._look.stdin.write("\n")
        self._look.stdin.flush()
        return int(self._look.stdout.readline()) / self._viewers


@contextmanager
def _page(folder: Path, viewers: int) -> Iterator[Page]:
    """The page of a network, with viewers in a process of their own."""
    asked: Counter[str] = Counter()
    take, again = NetworkSource._take, Cluster.again

    def counted_take(source: NetworkSource, name: str, answer: Any) -> None:
        asked["line"] += answer is not None
        take(source, name, answer)

    def counted_again(agents: Cluster, name: str, do: str, **given: Any) -> Any:
        asked[do] += 1
        return again(agents, name, do, **given)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(NetworkSource, "_take", counted_take))
        stack.enter_context(mock.patch.object(Cluster, "again", counted_again))
        server = PageServer(NetworkSource(folder), Address("127.0.0.1", 0), code=None)
        stack.enter_context(server)
        command = [sys.executable, "-m", "benchmarks.web", "view", server.url, str(viewers)]
        look = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            page = Page(viewers, look, asked)
            page.messages()  # they have begun
            time.sleep(SETTLE)
            yield page
        finally:
            look.communicate()  # its standard input ends


class _Agents:
    """The processes of a network, and a connection to each."""

    def __init__(self, net: Processes, stack: ExitStack) -> None:
        open_ = (Operator(net.folder(name), 60.0) for name in net.names)
        self._agents = [stack.enter_context(agent) for agent in open_]

    def cpu(self) -> float:
        return 1e3 * sum(cpu(agent.pid) for agent in self._agents if agent.pid)

    def hops(self) -> int:
        """The tokens that all agents have sent. The question costs them CPU time, too."""
        found = (agent.ask("status")["status"]["counts"] for agent in self._agents)
        return sum(counts.get("tokens sent", 0) for counts in found)

    def turn(self, work: Work, page: Page | None = None) -> Turn:
        hops = self.hops()
        time.sleep(0.5)
        before = (0, 0, 0.0) if page is None else (page.lines(), page.requests(), page.messages())
        used, began = self.cpu(), time.monotonic()
        for number in range(1, work.audits + 1):
            self._agents[0].ask("wake")
            time.sleep(max(0.0, began + number * work.every - time.monotonic()))
        used, seconds = self.cpu() - used, time.monotonic() - began
        after = before if page is None else (page.lines(), page.requests(), page.messages())
        lines, requests, messages = (b - a for a, b in zip(before, after, strict=True))
        time.sleep(0.5)  # the last audit ends
        return Turn(used, self.hops() - hops, int(lines), int(requests), messages / seconds)

    def line(self) -> float:
        """CPU milliseconds of a line, with those that the agent uses in the pause before it."""
        agent = self._agents[0]
        assert agent.pid is not None
        with socket.socket(socket.AF_UNIX) as connected:
            with short(agent.folder / "agent.sock") as where:
                connected.connect(where)
            asked = f"/changes?follow=true&timeout={PAUSE}"
            connected.sendall(f"GET {asked} HTTP/1.0\r\n\r\n".encode())
            with connected.makefile("rb") as lines:
                while not lines.readline().startswith(b"{"):
                    pass
                before = cpu(agent.pid)
                for _ in range(PROBES):
                    lines.readline()
                return 1e3 * (cpu(agent.pid) - before) / PROBES

    def request(self) -> float:
        """The same for a request for the status."""
        agent = self._agents[0]
        assert agent.pid is not None
        before = cpu(agent.pid)
        for _ in range(PROBES):
            time.sleep(PAUSE)
            agent.ask("status")
        return 1e3 * (cpu(agent.pid) - before) / PROBES


def _interval(ratios: Sequence[float]) -> tuple[float, float]:
    """95 % of the medians of samples from these ratios, drawn with replacement."""
    drawn = np.random.default_rng(1).choice(ratios, (RESAMPLES, len(ratios)))
    low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return float(low), float(high)


def compare(work: Work, viewers: int = VIEWERS) -> Compared:
    bare: list[Turn] = []
    viewed: list[Turn] = []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        net = stack.enter_context(Processes(Path(folder) / "net", agents=AGENTS, rows=20))
        net.start()
        net.rest()
        agents = _Agents(net, stack)
        agents.turn(work._replace(audits=20, every=0.2))  # to warm up
        for number in range(1, work.blocks + 1):
            bare.append(agents.turn(work))
            with _page(net.root, viewers) as page:
                viewed += [agents.turn(work, page), agents.turn(work, page)]
            bare.append(agents.turn(work))
            for name, turns in (("no page", bare[-2:]), ("viewers", viewed[-2:])):
                told = (
                    f"{t.each:.2f} ms × {t.hops} hops, {t.lines} lines, {t.requests} asked"
                    for t in turns
                )
                print(f"{number} {name}: {'; '.join(told)}", flush=True)
        line, request = agents.line(), agents.request()
    ratios = [v.each / b.each for v, b in zip(viewed, bare, strict=True)]
    direct, (low, high) = statistics.median(ratios), _interval(ratios)
    hops, base = sum(t.hops for t in viewed), statistics.mean(t.each for t in bare)
    lines, requests = sum(t.lines for t in viewed) / hops, sum(t.requests for t in viewed) / hops
    counted = 1.0 + (lines * line + requests * request) / base
    print(
        f"{viewers} viewers: {direct:.3f} (95 % between {low:.3f} and {high:.3f}, {len(ratios)} "
        f"ratios)\ncounted: {counted:.3f} (per hop {lines:.2f} lines of {line:.2f} ms and "
        f"{requests:.2f} requests of {request:.2f} ms, beside {base:.2f} ms); each viewer got "
        f"{statistics.median(t.messages for t in viewed):.1f} messages per second",
        flush=True,
    )
    return Compared(direct, low, high, counted)


@benchmark(
    f"the agents' CPU with {VIEWERS} viewers against without a page, "
    f"{1.0 / BUSY.every:g} audits per second",
    target=1.05,
    at_most=True,
)
def busy_cost() -> float:
    return compare(BUSY).direct


@benchmark(
    f"the agents' CPU with {VIEWERS} viewers against without a page, an audit in "
    f"{IDLE.every:g} seconds",
    target=1.05,
    at_most=True,
)
def idle_cost() -> float:
    return compare(IDLE).direct


def _main(what: str, *given: str) -> None:
    if what == "view":
        asyncio.run(_view(given[0], int(given[1])))
        return
    work, numbers = {"busy": BUSY, "idle": IDLE}[what], [int(one) for one in given]
    blocks = numbers[1] if len(numbers) > 1 else work.blocks
    compare(work._replace(blocks=blocks), numbers[0] if numbers else VIEWERS)


if __name__ == "__main__":
    _main(*sys.argv[1:])
