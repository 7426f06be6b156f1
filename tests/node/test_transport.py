"""gRPC between neighbours keeps the transport's laws, and its waits are bounded."""

import asyncio
import io
import json
import signal
import socket

import pytest
from tests.support.peer import MESSAGE_LIMIT, peer

from unweave.errors import ConfigError, TransportError
from unweave.node.log import Log
from unweave.node.transport.framing import Limits
from unweave.node.transport.server import GrpcTransport
from unweave.protocol.ports import MemoryTransport
from unweave.testing.transport import LAWS, LocalNetwork, eventually, running


def maker(network, **limits):
    settings = {"idle": 3.0, "reply": 2.0, "grace": 0.5, **limits}
    terms = network.manifest.terms()

    def make(agent):
        log = Log(network.identities[agent].name, stream=io.StringIO())
        return GrpcTransport(
            network.manifest,
            agent,
            network.identities[agent],
            log=log,
            limits=Limits.of(terms, **settings),
        )

    return make


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law(law):
    asyncio.run(law(maker(LocalNetwork())))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law_in_memory(law):
    network, row = {}, ({1}, {0, 2}, {1})
    asyncio.run(law(lambda agent: MemoryTransport(agent, row[agent], network, timeout=1.0)))


async def fails_in_time(send, says=None):
    """Far above the limits that are set here, and far below what gRPC would take by itself."""
    async with asyncio.timeout(30):
        with pytest.raises(TransportError, match=says):
            await send


def test_a_frozen_neighbour_is_given_up_and_found_again(tmp_path):
    """It still has its connections, and its kernel takes bytes for it."""
    network = LocalNetwork(2)
    make = maker(network, idle=1.0, reply=1.0, message=MESSAGE_LIMIT)
    large = b"x" * (8 << 20)

    async def main(process):
        async with running(make(0)) as sender:
            assert await sender.send(1, b"hello") == [b"5"]
            process.send_signal(signal.SIGSTOP)
            await fails_in_time(sender.send(1, b"hello"), "frozen")
            await fails_in_time(sender.send(1, large), "frozen")
            together = [sender.send(1, large if k < 2 else b"small") for k in range(6)]
            results = await asyncio.gather(*together, return_exceptions=True)
            assert all(isinstance(result, TransportError) for result in results)
            process.send_signal(signal.SIGCONT)
            assert await eventually(lambda: sender.send(1, b"hello")) == [b"5"]
            assert await eventually(lambda: sender.send(1, large)) == [b"%d" % len(large)]

    with peer(network, 1, tmp_path / "a2") as process:
        asyncio.run(main(process))


def test_one_frozen_neighbour_does_not_hold_up_another(tmp_path):
    network = LocalNetwork(3)
    make = maker(network, idle=1.0, reply=1.0, message=MESSAGE_LIMIT)

    async def main(process):
        async with running(make(1)) as sender, running(make(0)):
            assert await sender.send(2, b"hello") == [b"5"]
            process.send_signal(signal.SIGSTOP)
            stuck = asyncio.ensure_future(fails_in_time(sender.send(2, b"x" * (8 << 20))))
            served = 0
            while not stuck.done():
                assert await sender.send(0, b"x") == [b"from 1", b"x"]
                served += 1
            await stuck
            assert served > 3

    with peer(network, 2, tmp_path / "a3") as process:
        asyncio.run(main(process))


def test_a_neighbour_that_accepts_and_never_reads():
    """Nothing behind the port ever answers the handshake."""
    network = LocalNetwork(2)
    host, _, port = network.address(1).rpartition(":")

    async def main():
        async with running(maker(network, connect=1.0)(0)) as sender:
            await fails_in_time(sender.send(1, b"hello"))
            await fails_in_time(sender.send(1, b"x" * (3 << 20)))

    with socket.create_server((host, int(port))):
        asyncio.run(main())


@pytest.mark.parametrize(
    "megabytes", [8, pytest.param(50, marks=pytest.mark.slow)], ids=lambda n: f"{n} MB"
)
def test_a_large_message_needs_little_memory_at_its_receiver(tmp_path, megabytes):
    network = LocalNetwork(2)
    data = b"x" * (megabytes << 20)

    async def main(process):
        async with running(maker(network, message=MESSAGE_LIMIT, reply=30.0)(0)) as sender:
            assert await sender.send(1, data) == [b"%d" % len(data)]
        out, _ = process.communicate(timeout=60)
        return json.loads(out)

    with peer(network, 1, tmp_path / "a2") as process:
        memory = asyncio.run(main(process))
    allowance = 24 << 20  # gRPC's threads and buffers, whatever the size of the message
    assert memory["peak"] - memory["ready"] < 2.5 * len(data) + allowance


def test_large_messages_do_not_queue_up():
    """The protocol repeats a token that is not acknowledged; one copy under way is enough."""
    network, large = LocalNetwork(2), b"x" * (2 << 20)

    async def main():
        begun, go = asyncio.Event(), asyncio.Event()

        async def slow(sender, data):
            if len(data) == len(large):
                begun.set()
                await go.wait()
            return [b"taken"]

        make = maker(network, reply=30.0)
        async with running(make(0)) as sender, running(make(1), slow):
            first = asyncio.ensure_future(sender.send(1, large))
            await begun.wait()
            await fails_in_time(sender.send(1, large), "is under way")
            assert await sender.send(1, b"small") == [b"taken"]
            go.set()
            assert await first == [b"taken"]
            assert await sender.send(1, large) == [b"taken"]

    asyncio.run(main())


def test_a_message_beyond_the_limit_does_not_leave():
    network = LocalNetwork(2)

    async def main():
        async with running(maker(network, message=1000)(0)) as sender:
            await fails_in_time(sender.send(1, b"x" * 1001), "the limit, 1000")

    asyncio.run(main())


def test_the_limit_holds_the_largest_token():
    terms = LocalNetwork(2).manifest.terms()
    assert Limits.of(terms).message >= 4 << 20
    assert Limits.of(terms).message >= 3 * 8 * terms.grid.dim + terms.size * (16 + 80)


def test_a_neighbour_without_certificate_or_address_is_named():
    network = LocalNetwork(2)
    entries = [entry.model_dump(exclude_none=True) for entry in network.manifest.entries]
    for missing in ("certificate", "address"):
        changed = [dict(entry) for entry in entries]
        del changed[1][missing]
        if missing == "certificate":
            changed[1]["public_key"] = network.identities[1].public_pem
        network.manifest = network.manifest.make(
            name="n", graph="path", model={"name": "beta-bernoulli"}, agents=changed
        )
        with pytest.raises(ConfigError, match=f'agent "a2" has no {missing}'):
            maker(network)(0)


def test_an_agent_on_its_own_opens_no_port():
    network = LocalNetwork(1)

    async def main():
        async with running(maker(network)(0)) as alone:
            assert alone.port == 0

    asyncio.run(main())
