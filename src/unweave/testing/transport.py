"""Laws for every transport, between three agents in a row: 0 – 1 – 2.

A law takes `make(agent)`, which gives a new transport at that agent's address, and raises
AssertionError. Waits are bounded; the transport chooses its own timeouts.

    @pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
    def test_transport(law): asyncio.run(law(make))
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from unweave.errors import TransportError, WireError
from unweave.manifest import Manifest
from unweave.node.identity import Identity

if TYPE_CHECKING:
    from unweave.protocol.ports import Transport

__all__ = ["LAWS", "Law", "LocalNetwork", "Make", "eventually", "running"]

Deliver = Callable[[int, bytes], Awaitable[list[bytes]]]
Make = Callable[[int], "Transport"]
Law = Callable[[Make], Awaitable[None]]

_TIMEOUT = 60.0  # seconds; far above the duration of any law


class LocalNetwork:
    """A manifest of agents in a row on this machine, with their identities and free ports."""

    def __init__(self, agents: int = 3, **manifest: Any) -> None:
        names = [f"a{k + 1}" for k in range(agents)]
        self.identities = [Identity.create(name) for name in names]
        entries = [
            {"name": i.name, "address": f"127.0.0.1:{port}", "certificate": i.certificate_pem}
            for i, port in zip(self.identities, free_ports(agents), strict=True)
        ]
        values = {
            "name": "local",
            "edges": [list(pair) for pair in pairwise(names)],
            "model": {"name": "beta-bernoulli"},
            "agents": entries,
        }
        self.manifest = Manifest.make(**{**values, **manifest})

    def address(self, agent: int) -> str:
        address = self.manifest.entries[agent].address
        assert address is not None
        return address


def free_ports(count: int) -> list[int]:
    """Free ports, all different."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


async def echo(sender: int, data: bytes) -> list[bytes]:
    return [b"from %d" % sender, data]


@asynccontextmanager
async def running(transport: Transport, deliver: Deliver = echo) -> AsyncIterator[Transport]:
    await transport.start(deliver)
    try:
        yield transport
    finally:
        async with asyncio.timeout(_TIMEOUT):
            await transport.stop()


async def eventually(send: Callable[[], Awaitable[list[bytes]]]) -> list[bytes]:
    """The answers, as soon as the neighbour can be reached."""
    async with asyncio.timeout(_TIMEOUT):
        while True:
            with contextlib.suppress(TransportError):
                return await send()
            await asyncio.sleep(0.05)


async def _fails(send: Awaitable[list[bytes]]) -> str:
    async with asyncio.timeout(_TIMEOUT):
        try:
            answers = await send
        except TransportError as error:
            return str(error)
    raise AssertionError(f"it was delivered, and answered with {answers!r:.80}")


# ----------------------------------------------------------------------------------------- laws


async def a_message_arrives_once_with_its_sender_and_answers_go_back(make: Make) -> None:
    heard: list[tuple[int, bytes]] = []

    async def listen(sender: int, data: bytes) -> list[bytes]:
        heard.append((sender, data))
        return [] if data == b"quiet" else [data[::-1], b""]

    async with running(make(0)) as left, running(make(1), listen), running(make(2)) as right:
        assert await left.send(1, b"hello") == [b"olleh", b""]
        assert await right.send(1, b"quiet") == []
        assert heard == [(0, b"hello"), (2, b"quiet")]


async def messages_of_any_size_arrive_unchanged(make: Make) -> None:
    async with running(make(0)) as sender, running(make(1)):
        for size in (1, 2**20 - 1, 2**20, 2**20 + 1, 3 * 2**20):
            data = bytes(range(251)) * (size // 251 + 1)
            assert await sender.send(1, data[:size]) == [b"from 0", data[:size]], size


async def many_at_once_do_not_mix(make: Make) -> None:
    async with running(make(0)) as a, running(make(1)) as b, running(make(2)) as c:
        sends = [a.send(1, b"%d" % k * 1000) for k in range(20)]
        sends += [b.send(0 if k % 2 else 2, b"%d" % k * 1000) for k in range(20)]
        sends += [c.send(1, b"%d" % k * 1000) for k in range(20)]
        answers = await asyncio.gather(*sends)
        for group, sender in enumerate((0, 1, 2)):
            for k in range(20):
                assert answers[20 * group + k] == [b"from %d" % sender, b"%d" % k * 1000]


async def a_refused_message_fails_and_the_next_one_arrives(make: Make) -> None:
    async def strict(sender: int, data: bytes) -> list[bytes]:
        if data == b"bad":
            raise WireError("this is no message")
        return [data]

    async with running(make(0)) as sender, running(make(1), strict):
        assert "this is no message" in await _fails(sender.send(1, b"bad"))
        assert await sender.send(1, b"good") == [b"good"]


async def an_error_of_the_receiver_reaches_the_sender_without_details(make: Make) -> None:
    async def broken(sender: int, data: bytes) -> list[bytes]:
        if data == b"bad":
            raise RuntimeError("secret")
        return [data]

    async with running(make(0)) as sender, running(make(1), broken):
        assert "secret" not in await _fails(sender.send(1, b"bad"))
        assert await sender.send(1, b"good") == [b"good"]


async def an_agent_sends_to_its_neighbours_only(make: Make) -> None:
    async with running(make(0)) as sender, running(make(1)), running(make(2)):
        await _fails(sender.send(2, b"hello"))


async def a_neighbour_may_go_and_come_back(make: Make) -> None:
    async with running(make(0)) as sender:
        await _fails(sender.send(1, b"too early"))
        for _ in range(2):
            async with running(make(1)):
                assert await eventually(lambda: sender.send(1, b"x")) == [b"from 0", b"x"]
            await _fails(sender.send(1, b"gone"))


async def a_neighbour_that_calls_is_reached_at_once(make: Make) -> None:
    """A neighbour that was out of reach for long gets its answer at once when it connects."""
    async with running(make(0)) as sender:
        for _ in range(20):
            await _fails(sender.send(1, b"too early"))
            await asyncio.sleep(0.05)
        async with running(make(1)) as late:
            assert await late.send(0, b"here I am") == [b"from 1", b"here I am"]
            assert await sender.send(1, b"welcome") == [b"from 0", b"welcome"]


async def a_slow_receiver_is_given_up_but_not_interrupted(make: Make) -> None:
    done, go = asyncio.Event(), asyncio.Event()

    async def slow(sender: int, data: bytes) -> list[bytes]:
        if data == b"slow":
            await go.wait()
            done.set()
        return [data]

    async with running(make(0)) as sender, running(make(1), slow):
        await _fails(sender.send(1, b"slow"))
        assert not done.is_set()
        go.set()
        async with asyncio.timeout(_TIMEOUT):
            await done.wait()
        assert await eventually(lambda: sender.send(1, b"fast")) == [b"fast"]


async def a_cancelled_call_does_not_interrupt_the_receiver(make: Make) -> None:
    begun, go, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(sender: int, data: bytes) -> list[bytes]:
        if data == b"slow":
            begun.set()
            await go.wait()
            done.set()
        return [data]

    async with running(make(0)) as sender, running(make(1), slow):
        call = asyncio.ensure_future(sender.send(1, b"slow"))
        async with asyncio.timeout(_TIMEOUT):
            await begun.wait()
            call.cancel()
            await asyncio.wait({call})
            assert call.cancelled()
            await asyncio.sleep(0.1)
            go.set()
            await done.wait()
        assert await eventually(lambda: sender.send(1, b"next")) == [b"next"]


async def stopping_ends_pending_calls(make: Make) -> None:
    begun = asyncio.Event()

    async def never(sender: int, data: bytes) -> list[bytes]:
        begun.set()
        await asyncio.Event().wait()
        return []

    for who in (0, 1):  # the sender stops; the receiver stops
        begun.clear()
        async with AsyncExitStack() as stack:
            ends = [
                await stack.enter_async_context(running(make(0))),
                await stack.enter_async_context(running(make(1), never)),
            ]
            call = asyncio.ensure_future(ends[0].send(1, b"x"))
            async with asyncio.timeout(_TIMEOUT):
                await begun.wait()
                await ends[who].stop()
            await _fails(call)
            await ends[who].stop()
            if who == 0:
                await _fails(ends[0].send(1, b"after the end"))


LAWS: tuple[Law, ...] = (
    a_message_arrives_once_with_its_sender_and_answers_go_back,
    messages_of_any_size_arrive_unchanged,
    many_at_once_do_not_mix,
    a_refused_message_fails_and_the_next_one_arrives,
    an_error_of_the_receiver_reaches_the_sender_without_details,
    an_agent_sends_to_its_neighbours_only,
    a_neighbour_may_go_and_come_back,
    a_neighbour_that_calls_is_reached_at_once,
    a_slow_receiver_is_given_up_but_not_interrupted,
    a_cancelled_call_does_not_interrupt_the_receiver,
    stopping_ends_pending_calls,
)
