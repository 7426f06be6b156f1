"""What a token of 50 MB costs in memory: encoded, signed and sent; received, checked and decoded.

python -m benchmarks.token              both ends: bytes at the peak beyond those when it was ready
python -m benchmarks.token FOLDER       the receiving end, which says "ready"

The token itself is counted on both sides.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
from tests.support.peer import memory, peak_memory

from unweave.grid import Grid
from unweave.manifest import load
from unweave.node.config import AgentConfig, AgentFolder
from unweave.node.data.source import DataSource
from unweave.node.identity import Identity
from unweave.node.log import Log
from unweave.node.transport.framing import Limits
from unweave.node.transport.server import GrpcTransport
from unweave.node.wire.channel import SecureChannel
from unweave.protocol.messages import Ack, Pass
from unweave.protocol.token import NO_ROUND, Token
from unweave.testing.transport import LocalNetwork
from unweave.testing.values import small_terms, token

DIM = 6_250_000  # 50 MB


class End:
    """One agent that takes and sends tokens, and has no state."""

    def __init__(self, folder: Path) -> None:
        manifest, identity, config = load(folder / "network.toml"), *_own(folder)
        grid = Grid((8,) * DIM, ("x",) * DIM)
        terms = replace(manifest.terms(), grid=grid, eta0=np.zeros(DIM, dtype=np.int64))
        log = Log(config.name, level="error")
        self.folder = AgentFolder(folder, config, manifest, terms)
        self.transport = GrpcTransport(
            manifest, self.folder.me, identity, log=log, limits=Limits.of(terms)
        )
        self.channel = SecureChannel(self.folder, identity, self.transport, log)

    async def deliver(self, sender: int, data: bytes) -> list[bytes]:
        parcel = [data]
        del data
        event, seconds = await self.channel.receive(sender, parcel, None)
        self.transport.charge(sender, -seconds)  # every token is accepted
        message = event.message
        assert isinstance(message, Pass)
        return [self.channel.signed(Ack(message.token.stamp, message.token.stamp))]

    def token(self, dim: int) -> Token:
        small = token(Random(1), small_terms(self.folder.terms.size))
        units = np.arange(dim, dtype=np.int64)
        return small._replace(network_id=self.folder.terms.network_id, eta=units, round=NO_ROUND)


def _own(folder: Path) -> tuple[Identity, AgentConfig]:
    identity = Identity.load(folder)
    return identity, AgentConfig(name=identity.name, data=DataSource(path="none.csv"))


async def _receive(folder: Path) -> None:
    end = End(folder)
    await end.transport.start(end.deliver)
    ready = memory()
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await end.transport.stop()
    print(peak_memory() - ready)


async def _send(folder: Path) -> int:
    end = End(folder)
    await end.transport.start(end.deliver)
    ready = memory()
    answers = await end.channel.send(1, Pass(end.token(DIM)), None)
    await end.transport.stop()
    assert isinstance(answers[0].message, Ack)
    return peak_memory() - ready


def _both() -> list[int]:
    network = LocalNetwork(2)
    with tempfile.TemporaryDirectory() as root:
        folders = [Path(root) / identity.name for identity in network.identities]
        for folder, identity in zip(folders, network.identities, strict=True):
            folder.mkdir()
            identity.save(folder)
            network.manifest.write(folder / "network.toml")
        command = [sys.executable, "-m", "benchmarks.token", str(folders[1])]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as receiver:
            assert receiver.stdout is not None
            assert receiver.stdout.readline() == "ready\n"
            sender = asyncio.run(_send(folders[0]))
            return [sender, int(receiver.communicate()[0])]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(_receive(Path(sys.argv[1])))
    else:
        print(json.dumps(_both()))
