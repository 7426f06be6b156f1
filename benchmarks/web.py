"""The page: what fifty viewers cost the agents.

python -m benchmarks.web busy|idle|still [VIEWERS [BLOCKS]]   compare, with other numbers
python -m benchmarks.web view URL VIEWERS                     viewers of a page, until a line comes

Two equal networks run side by side, with the same audits at the same rate. In one turn the first
has a page with viewers, in the next turn the second: a block. CPU times of equal work differ by a
third from one ten seconds to the next, for all processes alike (of machines, not of agents: caches
and clock rates are shared with others); the ratio of two networks at the same time does not. Its
geometric mean over the two turns of a block cancels what differs between the networks, and between
the first audit of a turn and the second: without any page the first network costs 3% more in an
idle turn, because more of what follows an audit is in it. What the page and its viewers cost by
their load alone, as processes on the same machine, they cost both.

Audits are only begun, not waited for: requests that wait would cost the agents more than the page
does. An audit that is late runs into the next one, so CPU times are divided by the token's hops.
The clocks are those of the agents' processes. The value is the median of the blocks.
"""

from __future__ import annotations

import asyncio
import math
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
from unweave.operations.cluster import Cluster
from unweave.web.live.network import NetworkSource
from unweave.web.server import PageServer

VIEWERS = 50
AGENTS = 5
SETTLE = 4.0  # seconds for the first questions of a page
RESAMPLES = 4000


class Work(NamedTuple):
    """The work of a turn, and how many blocks of two turns are compared."""

    audits: int
    every: float  # seconds between the beginnings of two of them
    seconds: float
    blocks: int


BUSY = Work(50, 0.2, 10.0, 10)
IDLE = Work(4, 6.0, 24.0, 10)
STILL = Work(0, 0.0, 245.0, 3)  # in which each agent tells once that it is there


class Turn(NamedTuple):
    """CPU milliseconds of all agents of a network, and hops of its token."""

    used: float
    hops: int

    @property
    def each(self) -> float:
        return self.used / max(self.hops, 1)


class Compared(NamedTuple):
    """The ratio with a page to without one, and its interval."""

    ratio: float
    low: float
    high: float


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

    def asked(self) -> Counter[str]:
        return Counter(self._asked)

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

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.net = stack.enter_context(Processes(root, agents=AGENTS, rows=20))
        self.net.start()
        self.net.rest()
        open_ = (Operator(self.net.folder(name), 60.0) for name in self.net.names)
        self._agents = [stack.enter_context(agent) for agent in open_]

    def wake(self) -> None:
        self._agents[0].ask("wake")

    def cpu(self) -> float:
        return 1e3 * sum(cpu(agent.pid) for agent in self._agents if agent.pid)

    def hops(self) -> int:
        """The tokens that all agents have sent. The question costs them CPU time, too."""
        found = (agent.ask("status")["status"]["counts"] for agent in self._agents)
        return sum(counts.get("tokens sent", 0) for counts in found)


def _turn(networks: Sequence[_Agents], work: Work) -> list[Turn]:
    """The same work in all networks, in turn."""
    hops = [one.hops() for one in networks]
    time.sleep(0.5)
    used, began = [one.cpu() for one in networks], time.monotonic()
    for number in range(work.audits):
        for k, one in enumerate(networks):
            at = began + (number + k / len(networks)) * work.every
            time.sleep(max(0.0, at - time.monotonic()))
            one.wake()
    time.sleep(max(0.0, began + work.seconds - time.monotonic()))
    used = [one.cpu() - before for one, before in zip(networks, used, strict=True)]
    time.sleep(0.5)  # the last audit ends
    hops = [one.hops() - before for one, before in zip(networks, hops, strict=True)]
    return [Turn(*one) for one in zip(used, hops, strict=True)]


def _interval(ratios: Sequence[float]) -> tuple[float, float]:
    """95 % of the medians of samples from these ratios, drawn with replacement."""
    drawn = np.random.default_rng(1).choice(ratios, (RESAMPLES, len(ratios)))
    low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return float(low), float(high)


def compare(work: Work, viewers: int = VIEWERS) -> Compared:
    ratios: list[float] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        networks = [_Agents(folder / name, stack) for name in ("first", "second")]
        _turn(networks, Work(20, 0.2, 4.0, 0))  # to warm up
        for number in range(1, work.blocks + 1):
            found = []
            for k, one in enumerate(networks):
                with _page(one.net.root, viewers) as page:
                    asked, got, began = page.asked(), page.messages(), time.monotonic()
                    turns = _turn(networks, work)
                    viewed, bare = turns[k], turns[1 - k]
                    told = ", ".join(f"{n} × {what}" for what, n in (page.asked() - asked).items())
                    rate = (page.messages() - got) / (time.monotonic() - began)
                found.append(viewed.each / bare.each)
                print(
                    f"{number}: {viewed.each:.2f} ms × {viewed.hops} hops with a page, "
                    f"{bare.each:.2f} ms × {bare.hops} without; {told or 'nothing'}; "
                    f"{rate:.1f} messages per second and viewer",
                    flush=True,
                )
            ratios.append(math.sqrt(math.prod(found)))
    ratio, (low, high) = statistics.median(ratios), _interval(ratios)
    print(
        f"{viewers} viewers: {ratio:.3f} (95 % between {low:.3f} and {high:.3f}, {len(ratios)} "
        f"blocks: {', '.join(f'{one:.3f}' for one in sorted(ratios))})",
        flush=True,
    )
    return Compared(ratio, low, high)


@benchmark(
    f"the agents' CPU with {VIEWERS} viewers against without a page, "
    f"{1.0 / BUSY.every:g} audits per second",
    target=1.05,
    at_most=True,
)
def busy_cost() -> float:
    return compare(BUSY).ratio


@benchmark(
    f"the agents' CPU with {VIEWERS} viewers against without a page, an audit in "
    f"{IDLE.every:g} seconds",
    target=1.05,
    at_most=True,
)
def idle_cost() -> float:
    return compare(IDLE).ratio


@benchmark(
    f"the agents' CPU with {VIEWERS} viewers against without a page, nothing happens",
    target=1.05,
    at_most=True,
)
def still_cost() -> float:
    return compare(STILL).ratio


def _main(what: str, *given: str) -> None:
    if what == "view":
        asyncio.run(_view(given[0], int(given[1])))
        return
    work, numbers = {"busy": BUSY, "idle": IDLE, "still": STILL}[what], [int(one) for one in given]
    blocks = numbers[1] if len(numbers) > 1 else work.blocks
    compare(work._replace(blocks=blocks), numbers[0] if numbers else VIEWERS)


if __name__ == "__main__":
    _main(*sys.argv[1:])
