"""A neighbour that turns bad, at agents that run as processes: refused, told and counted, while the
walk goes on. The neighbour is in this process, with its true key and a record of what it sent."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.support.processes import Processes, erase

from unweave.errors import TransportError
from unweave.keys import verifier
from unweave.manifest import load
from unweave.node.agent import open_data, open_identity
from unweave.node.compute import DataWorker
from unweave.node.config import AgentFolder
from unweave.node.driver import AgentDriver
from unweave.node.identity import Identity
from unweave.node.log import Log
from unweave.node.transport.server import GrpcTransport
from unweave.node.wire.codec import decode, encode
from unweave.node.wire.envelope import open_message, sign_message
from unweave.protocol.messages import Ack, Pass
from unweave.protocol.state import Parked
from unweave.solvers import default_solver


class Recorder(GrpcTransport):
    """Keeps what it has sent."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.sent: list[tuple[int, bytes]] = []

    async def send(self, to: int, data: bytes) -> list[bytes]:
        self.sent.append((to, data))
        return await super().send(to, data)


@asynccontextmanager
async def inside(net: Processes, name: str) -> AsyncIterator[tuple[AgentDriver, Recorder]]:
    """An agent of the network in this process."""
    folder = AgentFolder.read(net.folder(name))
    identity = open_identity(folder)
    log = Log(name, stream=sys.stderr)
    transport = Recorder(folder.manifest, folder.me, identity, log=log)
    worker = DataWorker(
        net.model, default_solver(net.model), open_data(folder, identity), folder.terms
    )
    node = AgentDriver(folder, identity, transport, worker, net.model, log)
    running = asyncio.create_task(node.run())
    try:
        yield node, transport
    finally:
        node.stop()
        await running


async def until(condition) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.05)


def test_a_neighbour_that_lies(tmp_path):
    with Processes(tmp_path / "net", agents=3, graph="complete") as net:
        net.children["a1"].start()
        net.children["a3"].start()
        net.ready("a1", "a3")
        asyncio.run(_lies(net))
        net.start("a2")
        assert net.settled() == {net.expected()}


async def _lies(net: Processes) -> None:
    def rested() -> bool:
        s = node.state
        return (
            s is not None
            and s.token.parked is not None
            and s.token.parked.attested == node.terms.everybody
        )

    async with inside(net, "a2") as (node, transport):
        terms, check = node.terms, verifier(node.folder.manifest.pems())
        await until(rested)
        digests = await asyncio.to_thread(net.rest, "a1", "a3")
        assert set(digests.values()) == {net.expected()}

        def is_token(data: bytes) -> bool:
            return isinstance(decode(open_message(data, terms, check)[1], terms), Pass)

        to, token = next((to, data) for to, data in transport.sent if is_token(data))
        victim = terms.name(to)
        other = next(k for k in range(3) if k not in (to, node.me))
        payload = open_message(token, terms, check)[1]
        before = await asyncio.to_thread(net.ask, victim, "status")

        # Replayed: acknowledged once more, as after a lost answer, and nothing changes.
        for _ in range(3):
            (answer,) = await transport.send(to, token)
            assert isinstance(decode(open_message(answer, terms, check)[1], terms), Ack)
        after = await asyncio.to_thread(net.ask, victim, "status")
        for field in (
            "epoch",
            "hop",
            "commitment",
            "parked_stamp",
            "phase",
            "included",
            "revision",
        ):
            assert before["status"][field] == after["status"][field], field

        # Altered, in every part of the envelope.
        for at in (1, len(token) // 3, len(token) // 2, len(token) - 2):
            altered = bytearray(token)
            altered[at] ^= 0x40
            with pytest.raises(TransportError, match="refuse"):
                await transport.send(to, bytes(altered))

        # X claims to be Y: without Y's key, and with it.
        with pytest.raises(TransportError, match="signature is not"):
            await transport.send(to, sign_message(payload, other, node.identity.sign))
        stolen = Identity.load(net.folder(terms.name(other)))
        with pytest.raises(TransportError, match=f"signed by {stolen.name} came from a2"):
            await transport.send(to, sign_message(payload, other, stolen.sign))

        # Another network, with the same keys.
        strange = replace(terms, network_id=b"\x07" * 32)
        message = decode(payload, terms)
        assert isinstance(message, Pass)
        foreign = Pass(message.token._replace(network_id=strange.network_id), message.gossip)
        with pytest.raises(TransportError, match="a message of network"):
            await transport.send(
                to, sign_message(encode(foreign, strange), node.me, node.identity.sign)
            )

        # Told, and counted.
        told = [line for line in net.log(victim).splitlines() if "sender=a2" in line]
        assert len(told) == 7
        assert any("signed by" in line for line in told)
        assert any("a message of network" in line for line in told)
        seen = await asyncio.to_thread(net.ask, victim, "status")
        assert seen["status"]["refused"]["a2: message"] == 7

        # The walk goes on, through all three.
        net.append("a3", [1.0, 0.0, 1.0])
        await asyncio.to_thread(net.ask, "a3", "learn")
        found = await asyncio.to_thread(net.rest, "a1", "a3")
        assert set(found.values()) == {net.expected()}
        await until(rested)
        assert node.state is not None
        assert node.state.token.parked is not None
        holder = terms.name(node.state.token.parked.holder)
        phases = {n: s["phase"] for n, s in net.statuses("a1", "a3").items()}
        assert isinstance(node.state.token.role, Parked) or phases[holder] == "parked"


HOLD = """
import asyncio, contextlib, sys

async def hold(port):
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(writer):
                await reader.read()

async def main():
    async with asyncio.timeout(300):
        await asyncio.gather(*(hold(int(sys.argv[1])) for _ in range(300)))

asyncio.run(main())
"""


def test_a_neighbour_restarts_while_unknown_peers_hold_all_connections(tmp_path):
    """It needs the answer of an agent whose every free connection is taken."""
    with Processes(tmp_path / "net", agents=2) as net:
        net.start()
        assert net.settled() == {net.expected()}
        address = load(net.root / "network.toml").agent("a1").address
        port = address.rpartition(":")[2]
        strangers = subprocess.Popen([sys.executable, "-c", HOLD, port])
        try:
            net.stop("a2")
            net.start("a2")
            net.wait(
                "to be confirmed",
                lambda: [] if net.ask("a2", "status")["status"]["confirmed"] else ["a2"],
                timeout=60.0,
            )
            net.append("a2", [1.0, 0.0])
            net.ask("a2", "learn")
            assert net.settled() == {net.expected()}
            assert strangers.poll() is None
        finally:
            strangers.kill()
            strangers.wait()


def test_another_manifest_and_forged_evidence(tmp_path):
    with Processes(tmp_path / "net", agents=3) as net:
        net.start()
        certificate = erase(net, "a3")
        assert net.settled() == {net.expected()}
        net.stop("a2")

        # The agent's own store does not fit another manifest.
        folder = net.folder("a2")
        manifest = (folder / "network.toml").read_text()
        (folder / "network.toml").write_text(manifest.replace("seed = 0", "seed = 7"))
        net.children["a2"].start()
        assert net.process("a2").wait(120) == 1
        assert "belongs to the network" in net.log("a2")

        # Without a store it starts, but nobody talks to it.
        net.lose("a2")
        net.start("a2")
        net.wait(
            "to refuse the foreign manifest",
            lambda: [n for n in ("a1", "a3") if "a message of network" not in net.log(n)],
        )
        assert net.ask("a2", "status")["status"]["phase"] == "quarantine"
        net.kill("a2")
        net.lose("a2")
        (folder / "network.toml").write_text(manifest)
        net.start("a2")
        assert net.settled() == {net.expected()}

        # A certificate with one changed letter, anywhere, is refused.
        path, network = tmp_path / "certificate.json", net.root / "network.toml"
        raw = json.dumps(certificate)
        path.write_text(raw)
        command = [sys.executable, "-m", "unweave", "verify", str(path), "--network", str(network)]
        assert subprocess.run(command, capture_output=True).returncode == 0
        at = raw.index('"payload"') + 40
        path.write_text(raw[:at] + ("A" if raw[at] != "A" else "B") + raw[at + 1 :])
        tampered = subprocess.run(command, capture_output=True, text=True)
        assert tampered.returncode in (1, 2)
        assert "Traceback" not in tampered.stderr
        assert load(network).digest == load(folder / "network.toml").digest
