"""One end of a transport in a process of its own, to be frozen, killed or measured.

    python -m tests.support.peer NETWORK_TOML AGENT_FOLDER

It answers each message with its length, says "ready" when it listens, and stops at the end of its
standard input, leaving its memory (bytes: when it was ready, and at the peak) as one JSON line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from unweave.manifest import load
from unweave.node.identity import Identity
from unweave.node.log import Log
from unweave.node.transport.framing import Limits
from unweave.node.transport.server import GrpcTransport
from unweave.testing.transport import LocalNetwork

__all__ = ["memory", "peak_memory", "peer"]


MESSAGE_LIMIT = 256 << 20


def memory() -> int:
    """Bytes of this process now."""
    return _status("VmRSS")


def peak_memory() -> int:
    """Bytes of this process, at most, so far. (getrusage would begin with its parent's peak.)"""
    return _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


@contextlib.contextmanager
def peer(network: LocalNetwork, agent: int, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """`agent` of the network as a process that listens; killed in the end, if it still runs."""
    folder.mkdir(exist_ok=True)
    network.manifest.write(folder / "network.toml")
    network.identities[agent].save(folder)
    command = [
        sys.executable,
        "-m",
        "tests.support.peer",
        str(folder / "network.toml"),
        str(folder),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


async def _serve(manifest_file: str, folder: str) -> None:
    manifest, identity = load(manifest_file), Identity.load(folder)
    me = manifest.topology.index(identity.name)
    limits = Limits.of(manifest.terms(), message=MESSAGE_LIMIT)
    transport = GrpcTransport(manifest, me, identity, log=Log(identity.name), limits=limits)

    async def deliver(sender: int, data: bytes) -> list[bytes]:
        return [b"%d" % len(data)]

    await transport.start(deliver)
    ready = memory()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await transport.stop()
    sys.stdout.write(json.dumps({"ready": ready, "peak": peak_memory()}) + "\n")


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:3]))
