"""A neighbour that makes an agent write: whatever it sends, and as often as it likes, the log stays
short, the counters count everything, and every line is a line of ours.

a1 – a2 – a3: a2 is attacked and runs as a process of its own. a1 is in this process, with its true
key; a3 runs as well, so that a2 is not alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from tests.support.commands import run_command
from tests.support.flood import MESSAGES, Attacker, chunk
from tests.support.processes import Processes, erase

from unweave.errors import TransportError
from unweave.node.config import AgentFolder
from unweave.node.log import Log
from unweave.node.log_limiter import ALL_PEERS, BURST
from unweave.node.transport.client import DELIVER, SERVICE
from unweave.node.transport.framing import split
from unweave.node.transport.server import GrpcTransport
from unweave.persistent import NOBODY, Vector
from unweave.protocol.messages import Ack, Digests, Gossip, ParkNotice, Share
from unweave.protocol.token import NEVER, OUT, Stamp

ATTACKER, VICTIM = range(2)
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (debug|info|warning|error) +a2  \S")


class Neighbour(Attacker):
    """a1, which also answers, and knows the port of a2's metrics."""

    def __init__(self, net: Processes) -> None:
        super().__init__(AgentFolder.read(net.folder("a1")), VICTIM)
        self.metrics = net.metrics[VICTIM]
        self.answers: list[bytes] = []


async def bad_answers(who: Neighbour, count: int) -> None:
    """a2 calls a1, and a1 answers with messages that nobody can read."""
    who.answers = [b"\xff"] * (10 * count)
    hello = asyncio.ensure_future(asyncio.sleep(4.0))
    while not hello.done():
        await who.calls(8, chunk(who.signed(Ack(NEVER, NEVER))))
        await asyncio.sleep(0.05)
    who.answers = [b"\xff"] * 50
    await asyncio.sleep(4.0)


async def strangers(who: Neighbour, count: int) -> None:
    host, _, port = who.address.rpartition(":")
    for k in range(count // 3):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write((b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" * 99, b"")[k % 3])
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def bad_requests(who: Neighbour, count: int) -> None:
    """To the port of the metrics."""
    for k in range(count // 3):
        reader, writer = await asyncio.open_connection("127.0.0.1", who.metrics)
        asked = (b"\x1b[2J\r\n\r\n", b"GET /\x1b HTTP/1.1\r\n\r\n", b"GET /metrics HTTP/9\r\n\r\n")
        writer.write(asked[k % 3])
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()


WAYS: tuple[Callable[[Neighbour, int], Awaitable[None]], ...] = (
    *MESSAGES,
    bad_answers,
    strangers,
    bad_requests,
)


async def attack(net: Processes, count: int) -> dict[str, list[str]]:
    """Every way in turn; the lines that a2 wrote meanwhile."""
    who = Neighbour(net)
    log = Log("a1", stream=io.StringIO())
    transport = GrpcTransport(who.folder.manifest, ATTACKER, who.identity, log=log)

    async def deliver(sender: int, data: bytes) -> list[bytes]:
        return who.answers

    await transport.start(deliver)
    found, seen = {}, len(text(net))
    try:
        with contextlib.suppress(TransportError):
            await transport.send(VICTIM, b"hello")
        for way in WAYS:
            await way(who, count)
            found[way.__name__] = text(net)[seen:].splitlines()
            seen += len(text(net)[seen:])
    finally:
        await transport.stop()
    return found


def text(net: Processes) -> str:
    home = net.folder("a2")
    return "".join(
        (home / name).read_text() for name in ("agent.log.1", "agent.log") if (home / name).exists()
    )


def flood(tmp_path: Any, count: int, level: str) -> None:
    with Processes(tmp_path / "net", agents=3, graph="path", metrics=True) as net:
        settings = net.folder("a2") / "agent.toml"
        settings.write_text(f'log_level = "{level}"\nlog_bytes = 0\n' + settings.read_text())
        net.start("a2", "a3")
        lines = asyncio.run(attack(net, count))
        status = net.ask("a2", "status")["status"]
        net.stop("a2")
        whole = text(net)

    # A way may have several kinds of lines; no kind has more than a burst and some for the time.
    for way, told in lines.items():
        assert len(told) < 8 * BURST, (way, len(told), told[:3], told[-3:])
    assert len(whole) < 600 * sum(map(len, lines.values())) + 20_000
    for line in whole.splitlines():
        assert LINE.match(line), line[:300]
        assert line.isprintable()
        assert len(line) < 3000
    for never in ("never retrieved", "Traceback", "certified", "unexpected", "event loop"):
        assert never not in whole, [line for line in whole.splitlines() if never in line][:3]
    assert "more suppressed  of=refused: message  sender=a1" in whole

    # What is not in the log is in the counters.
    refused, counts = status["refused"], status["counts"]
    assert refused["a1: message"] >= 3 * count
    assert refused["a1: malformed"] >= count // 8 * 8
    assert counts["log lines suppressed"] > 2 * count
    assert counts["log lines suppressed"] + len(whole.splitlines()) > sum(refused.values())
    told = whole.count("  refused  sender=a1  reason=message")
    assert BURST <= told < ALL_PEERS * BURST


def test_a_neighbour_cannot_fill_the_log(tmp_path):
    flood(tmp_path, 240, "debug")


@pytest.mark.slow
def test_a_neighbour_cannot_fill_the_log_however_long_it_tries(tmp_path):
    flood(tmp_path, 4_000, "info")


# ---------------------------------------------------------------------------- processor time


def costly(who: Attacker, size: int) -> bytes:
    """A message that is refused only after its certificate, half a megabyte, has been parsed."""
    certificate = json.dumps({"attestation": [{"a": k} for k in range(size)]}).encode()
    nowhere = Vector((OUT,) * who.terms.size)
    notice = ParkNotice(Stamp(1, 0, 1, 1, 1), who.me, nowhere, NOBODY, {}, certificate)
    digests = Digests(*(bytes(32) for _ in Digests._fields))
    return who.signed(Share(NEVER, Gossip(digests, parked=notice)))


async def take_the_processor(who: Attacker, done: threading.Event) -> None:
    """Costly messages, eight at a time, until `done`."""
    pieces = list(split(costly(who, 50_000)))
    async with who.channel() as channel:

        async def some() -> None:
            while not done.is_set():
                with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    await channel.stream_unary(f"/{SERVICE}/{DELIVER}")(iter(pieces), timeout=30)

        await asyncio.gather(*(some() for _ in range(8)))


def test_a_neighbour_cannot_take_the_processor(tmp_path):
    """a1 makes a2 work without an end. Meanwhile the others vote a1 out, and an erasure of a2 is
    carried out and certified."""
    with Processes(tmp_path / "net", agents=4, graph="complete") as net:
        net.start("a2", "a3", "a4")
        who = Attacker(AgentFolder.read(net.folder("a1")), VICTIM)
        done = threading.Event()
        attacking = threading.Thread(target=asyncio.run, args=(take_the_processor(who, done),))
        attacking.start()
        try:

            def refused(reason: str) -> int:
                found: int = net.ask("a2", "status")["status"]["refused"].get(f"a1: {reason}", 0)
                return found

            net.wait("to refuse a1", lambda: [] if refused("too much work") > 20 else ["a2"])
            for name in ("a2", "a3", "a4"):
                assert run_command("vote", net.folder(name), "a1", "--lying").code == 0
            net.out.add("a1")
            net.rest("a2", "a3", "a4")
            key = next(iter(net.rows["a2"]))
            erase(net, "a2", [key])
            assert set(net.rest("a2", "a3", "a4").values()) == {net.expected({"a2": [key]})}
        finally:
            done.set()
            attacking.join()
