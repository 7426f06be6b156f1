"""The transport between two processes against gRPC alone, on the same machine in the same run.

Two processes at work are measured by the clock, in turns; the median of the ratios counts.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.support.peer import MESSAGE_LIMIT, peer

from benchmarks import bare
from benchmarks.harness import benchmark
from unweave.node.log import Log
from unweave.node.transport.framing import Limits
from unweave.node.transport.server import GrpcTransport
from unweave.testing.transport import LocalNetwork

LARGE = b"\x5a" * 50_000_000
SMALL = b"\x5a" * 1_000


async def _timed(work: Callable[[], Awaitable[object]], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        await work()
    return time.perf_counter() - start


def _transport(network: LocalNetwork) -> GrpcTransport:
    limits = Limits.of(network.manifest.terms(), message=MESSAGE_LIMIT)
    return GrpcTransport(network.manifest, 0, network.identities[0], log=Log("a1"), limits=limits)


def message_ratio(data: bytes, repeats: int, rounds: int) -> float:
    """time(transport) / time(bare gRPC) for the same bytes: the median of the rounds."""
    network = LocalNetwork(2)
    me, other = network.identities

    async def measure(port: int) -> list[float]:
        transport = _transport(network)
        await transport.start(_ignore)
        ratios = []
        async with bare.channel(me, other, port) as channel:
            call = channel.stream_unary(bare.METHOD)

            async def ours() -> None:
                assert await transport.send(1, data) == [b"%d" % len(data)]

            async def reference() -> None:
                await bare.send(call, data)

            await _timed(ours, 2)
            await _timed(reference, 2)
            for _ in range(rounds):
                ratios.append(await _timed(ours, repeats) / await _timed(reference, repeats))
        await transport.stop()
        return ratios

    with (
        tempfile.TemporaryDirectory() as folder,
        peer(network, 1, Path(folder) / "ours"),
        bare.server(other, me, Path(folder) / "bare") as port,
    ):
        return statistics.median(asyncio.run(measure(port)))


async def _ignore(sender: int, data: bytes) -> list[bytes]:
    return []


@benchmark(
    "a message of 1 kB and its answer against bare gRPC with mutual TLS", target=2.0, at_most=True
)
def small_message() -> float:
    return message_ratio(SMALL, repeats=100, rounds=9)


@benchmark("a message of 50 MB: throughput as a share of bare gRPC streaming", target=0.5)
def large_message() -> float:
    return 1.0 / message_ratio(LARGE, repeats=1, rounds=15)


@benchmark(
    "a token of 50 MB: peak memory of sender or receiver, from the message to its bytes and back",
    target=4.0,
    at_most=True,
    unit="× the token",
)
def peak() -> float:
    """Each in a process of its own, so that nothing else has raised its peak."""
    command = [sys.executable, "-m", "benchmarks.token"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    peaks: list[int] = json.loads(done.stdout)
    return max(peaks) / len(LARGE)
