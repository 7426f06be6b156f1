"""Agents in one event loop, with real disks and a wire that is a function call.

    async with nodes(Processes(tmp_path / "net", agents=3, timeouts=QUICK)) as agents:
        await until(lambda: agents["a1"].phase == "parked")

Nothing is started in the `Processes`: it only makes the folders.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from tests.support.processes import Processes
from unweave.node.agent import open_data, open_identity
from unweave.node.compute import DataWorker
from unweave.node.config import AgentFolder
from unweave.node.driver import AgentDriver
from unweave.node.log import Log
from unweave.protocol.ports import MemoryTransport, Worker
from unweave.solvers import default_solver

__all__ = ["QUICK", "nodes", "until"]


QUICK = {"welcome": 0.2, "resend": 0.2, "ack": 0.05, "alive": 0.2, "loss": 5.0}
_LIMIT = 60.0  # seconds; nothing here takes as long, on any machine


@asynccontextmanager
async def nodes(
    net: Processes, change: Mapping[str, Callable[[Worker], Worker]] | None = None
) -> AsyncIterator[dict[str, AgentDriver]]:
    """Run every agent of the network here; `change` puts another worker in an agent's place. What
    an agent logs is in `node.log.stream`."""
    wire: dict[int, MemoryTransport] = {}
    agents = {}
    for name in net.names:
        folder = AgentFolder.read(net.folder(name))
        identity = open_identity(folder)
        data = open_data(folder, identity)
        worker: Worker = DataWorker(net.model, default_solver(net.model), data, folder.terms)
        if change is not None and name in change:
            worker = change[name](worker)
        log = Log(name, level="debug", stream=io.StringIO())
        neighbours = folder.terms.topology.adjacency[folder.me]
        transport = MemoryTransport(folder.me, neighbours, wire, timeout=_LIMIT)
        agents[name] = AgentDriver(folder, identity, transport, worker, net.model, log)
    running = [asyncio.create_task(node.run()) for node in agents.values()]
    try:
        yield agents
    finally:
        for node in agents.values():
            node.stop()
        await asyncio.gather(*running)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(_LIMIT):
        while not condition():
            await asyncio.sleep(0.01)
