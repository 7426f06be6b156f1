"""Agents as processes: a hop between two of them, and fifty of them on one machine.

python -m benchmarks.node AGENT_DIR HOPS     an agent whose token never rests: seconds per hop

Processes are measured by the clock, all in the same run; the median counts.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.support.processes import Processes

from benchmarks import bare
from benchmarks.harness import benchmark
from unweave.models import BetaBernoulli
from unweave.node.agent import open_data, open_identity
from unweave.node.compute import DataWorker
from unweave.node.config import AgentFolder
from unweave.node.driver import AgentDriver
from unweave.node.identity import Identity
from unweave.node.log import Log
from unweave.node.storage.file import connect
from unweave.node.transport.server import GrpcTransport
from unweave.operations.supervisor import Supervisor
from unweave.solvers import default_solver

HOPS = 600
BYTES = 1_500  # of a token of this model between two agents, with its envelope
MANY = 50


# ------------------------------------------------------------------------------------------ a hop


async def _walk(path: str, hops: int) -> float:
    """Run the agent in this folder, with a token that never rests; seconds per hop.

    A hop is a token that arrives: stored, visited, stored, signed, sent and acknowledged. Between
    two agents every second one arrives here. (The token's own counter also counts turns without a
    journey, at the end of a pass.)
    """
    folder = AgentFolder.read(path)
    folder = replace(folder, terms=replace(folder.terms, parks=False))
    identity, model = open_identity(folder), folder.manifest.build_model()
    log = Log(folder.config.name, level="error")
    node = AgentDriver(
        folder,
        identity,
        GrpcTransport(folder.manifest, folder.me, identity, log=log),
        DataWorker(model, default_solver(model), open_data(folder, identity), folder.terms),
        model,
        log,
    )
    running = asyncio.create_task(node.run())

    def hop() -> int:
        return 2 * node.counts["tokens received"]

    async def reach(target: int) -> float:
        while hop() < target:
            await asyncio.sleep(0.005)
        return time.perf_counter()

    begun, first = await reach(100), hop()
    ended = await reach(first + hops)
    seconds = (ended - begun) / (hop() - first)
    await asyncio.sleep(1.0)  # the other one may still be counting
    node.stop()
    await running
    return seconds


def _hop(root: Path) -> float:
    net = Processes(root, agents=2, graph="path", rows=10)
    walkers = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.node", str(net.folder(name)), str(HOPS)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in net.names
    ]
    return statistics.mean(float(walker.communicate()[0]) for walker in walkers)


def _round_trip(root: Path, calls: int = 300) -> float:
    me, other = Identity.create("a1"), Identity.create("a2")
    data = os.urandom(BYTES)

    async def measure(port: int) -> float:
        async with bare.channel(me, other, port) as channel:
            call = channel.stream_unary(bare.METHOD)
            for _ in range(20):
                await bare.send(call, data)
            begun = time.perf_counter()
            for _ in range(calls):
                await bare.send(call, data)
            return (time.perf_counter() - begun) / calls

    with bare.server(other, me, root) as port:
        return asyncio.run(measure(port))


def _commit(root: Path, commits: int = 300) -> float:
    """One durable transaction that writes as many bytes as a token has."""
    root.mkdir()
    sqlite3.connect(root / "bare.db").close()
    with closing(connect(root / "bare.db")) as db:
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB)")
        begun = time.perf_counter()
        for _ in range(commits):
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT OR REPLACE INTO t VALUES (1, ?)", (os.urandom(BYTES),))
            db.execute("COMMIT")
        return (time.perf_counter() - begun) / commits


def hop_ratios(rounds: int = 3) -> list[tuple[float, float, float]]:
    """Seconds of a hop, of a bare round trip and of a bare commit, per round."""
    found = []
    for k in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            found.append((_hop(root / "net"), _round_trip(root / "bare"), _commit(root / "db")))
        print(
            f"round {k + 1}: hop, round trip, commit =", *(f"{1e3 * s:.2f} ms" for s in found[-1])
        )
    return found


@benchmark(
    "a durable, signed, authenticated hop against a bare gRPC mTLS round trip + a bare commit",
    target=3.0,
    at_most=True,
)
def hop() -> float:
    return statistics.median(h / (call + commit) for h, call, commit in hop_ratios())


# ------------------------------------------------------------------------------------ fifty agents


def memory(pid: int) -> dict[str, float]:
    """Megabytes: resident, and the proportional share."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, *value = line.split()
        if name in ("Rss:", "Pss:"):
            found[name[:-1]] = int(value[0]) / 1024
    return found


@benchmark(
    f"{MANY} agents as processes: all ready (wall time)", target=30.0, at_most=True, unit="s"
)
def fifty() -> float:
    with tempfile.TemporaryDirectory() as folder:
        net = Processes(Path(folder) / "net", MANY, graph="ring", model=BetaBernoulli(), rows=10)
        begun = time.perf_counter()
        with Supervisor([net.folder(name) for name in net.names]) as agents:
            agents.ready(600.0)
            ready = time.perf_counter() - begun
            uses = [memory(child.pid) for child in agents.children.values() if child.pid]
            net.children = agents.children
            net.rest(timeout=600.0)
            rested = time.perf_counter() - begun
    for name in ("Rss", "Pss"):
        print(f"{name} per agent: {statistics.median(use[name] for use in uses):.0f} MB")
    print(f"ready after {ready:.1f} s, at rest after {rested:.1f} s")
    return ready


if __name__ == "__main__":
    print(asyncio.run(_walk(sys.argv[1], int(sys.argv[2]))))
