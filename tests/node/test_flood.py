"""A neighbour that makes an agent write: whatever it sends, and as often as it likes, the log stays
short, the counters count everything, and every line is a line of ours.

a1 – a2 – a3: a2 is attacked and runs as a process of its own. a1 is in this process, with its true
key; a3 runs as well, so that a2 is not alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.support.processes import Processes

from unweave.errors import TransportError
from unweave.keys import tls_name
from unweave.node.agent import open_identity
from unweave.node.config import AgentFolder
from unweave.node.log import Log
from unweave.node.log_limiter import ALL_PEERS, BURST
from unweave.node.transport.client import DELIVER, SERVICE
from unweave.node.transport.framing import split
from unweave.node.transport.server import GrpcTransport
from unweave.node.wire.codec import encode
from unweave.node.wire.envelope import sign_message
from unweave.node.wire.primitives import pb
from unweave.protocol.messages import Ack, Digests, Erasures, Gossip, News, Share
from unweave.protocol.statements import Intent
from unweave.protocol.token import NEVER, Tomb, request_id

ATTACKER, VICTIM, OTHER = range(3)
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (debug|info|warning|error) +a2  \S")


class Attacker:
    """a1, with its key and its port, and without our rules."""

    def __init__(self, net: Processes) -> None:
        self.net = net
        self.folder = AgentFolder.read(net.folder("a1"))
        self.terms = self.folder.terms
        self.identity = open_identity(self.folder)
        self.victim = open_identity(AgentFolder.read(net.folder("a2")))
        self.address = self.folder.manifest.entries[VICTIM].address
        self.answers: list[bytes] = []

    def channel(self) -> Any:
        key = self.identity.key_pem, self.identity.certificate_pem.encode()
        return grpc.aio.secure_channel(
            self.address,
            grpc.ssl_channel_credentials(self.victim.certificate_pem.encode(), *key),
            [("grpc.ssl_target_name_override", tls_name(self.victim.keyid))],
        )

    def signed(self, message: Any) -> bytes:
        return sign_message(encode(message, self.terms), ATTACKER, self.identity.sign)

    async def calls(self, count: int, data: bytes, *, end: float | None = None) -> None:
        """`count` calls, eight at a time; each is ended by the caller after `end` seconds."""
        async with self.channel() as channel:
            whole = channel.unary_unary(f"/{SERVICE}/{DELIVER}")

            async def some() -> None:
                for _ in range(count // 8):
                    call = whole(data, timeout=30)
                    if end is not None:
                        await asyncio.sleep(end)
                        call.cancel()
                    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
                        await call

            await asyncio.gather(*(some() for _ in range(8)))


def chunk(data: bytes) -> bytes:
    encoded: bytes = pb.Chunk(total=len(data), data=data).SerializeToString()
    return encoded


# ------------------------------------------------------------------------- ways to cause a line


async def bad_signatures(who: Attacker, count: int) -> None:
    payload = encode(Ack(NEVER, NEVER), who.terms)
    await who.calls(count, chunk(sign_message(payload, ATTACKER, lambda _: b"x" * 64)))


async def unreadable_envelopes(who: Attacker, count: int) -> None:
    await who.calls(count, chunk(b"\xff" * 300))


async def unreadable_messages(who: Attacker, count: int) -> None:
    await who.calls(count, chunk(sign_message(b"\xff" * 99, ATTACKER, who.identity.sign)))


async def malformed_chunks(who: Attacker, count: int) -> None:
    await who.calls(count, b"\xff" * 40)


async def oversized(who: Attacker, count: int) -> None:
    await who.calls(count, pb.Chunk(total=2**63, data=b"x").SerializeToString())


async def unsupported_claims(who: Attacker, count: int) -> None:
    """Signed and well-formed, and refused for what it says."""
    tombs = {OTHER: Tomb(frozenset({request_id(OTHER, b"x" * 12)}), True)}
    claim = gossip([])
    erasures = Erasures(tombs, frozenset(), {}, {})
    claim = claim._replace(gossip=claim.gossip._replace(erasures=erasures))
    await who.calls(count, chunk(who.signed(claim)))


async def long_texts(who: Attacker, count: int) -> None:
    """A statement whose error would quote a text of 20 kB, with a line of its own."""
    forged = "\n2026-01-01 00:00:00 info    a2  certified" + 5000 * "[31m"
    author, sign = ATTACKER, who.identity.sign
    intent = Intent.write(author, sign, network_id=who.terms.network_id.hex(), request=forged)
    await who.calls(count // 3, chunk(who.signed(gossip([intent]))))


async def many_intents(who: Attacker, count: int) -> None:
    """Each would be a line."""
    intents = [
        Intent.write(
            ATTACKER,
            who.identity.sign,
            network_id=who.terms.network_id.hex(),
            request=request_id(ATTACKER, b"%012d" % k).hex(),
            agent=ATTACKER,
            whole=False,
            rows=[f"{k:032x}"],
            remembered=0,
        )
        for k in range(count)
    ]
    for start in range(0, count, 20):
        await who.calls(8, chunk(who.signed(gossip(intents[start : start + 20]))))


def gossip(intents: list[Intent]) -> Share:
    requests = {n.to_bytes(16, "big"): intent for n, intent in enumerate(intents)}
    with contextlib.suppress(ValueError):
        requests = {intent.request: intent for intent in intents}
    digests = Digests(*(bytes(32),) * len(Digests._fields))
    return Share(NEVER, Gossip(digests, news=News(requests, frozenset(), {}, NEVER)))


async def calls_without_end(who: Attacker, count: int) -> None:
    """The caller leaves while its message, a large and unreadable one, is being handled."""
    async with who.channel() as channel:
        stream = channel.stream_unary(f"/{SERVICE}/{DELIVER}")
        large = sign_message(b"\xff" * (5 << 18), ATTACKER, lambda _: b"x" * 64)
        for k in range(min(count // 12, 200)):
            call = stream(timeout=10)
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                for piece in split(large):
                    await call.write(piece)
                await call.done_writing()
                await asyncio.sleep(0.002 * (k % 8))
            call.cancel()


async def broken_streams(who: Attacker, count: int) -> None:
    async with who.channel() as channel:
        stream = channel.stream_unary(f"/{SERVICE}/{DELIVER}")

        async def one() -> None:
            call = stream(timeout=10)
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
                async with asyncio.timeout(0.5):
                    await call.write(pb.Chunk(total=100, data=b"x").SerializeToString())
            call.cancel()

        for _ in range(count // 24):
            await asyncio.gather(*(one() for _ in range(8)))


async def other_methods(who: Attacker, count: int) -> None:
    async with who.channel() as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for k in range(count // 3):
            calls = [
                channel.unary_unary(f"/{SERVICE}/Nothing{k}")(b"x", timeout=10),
                channel.unary_unary("/grpc.health.v1.Health/Check")(b"\xff\xff", timeout=10),
                health.Check(health_pb2.HealthCheckRequest(service=f"\x1b{k}"), timeout=10),
            ]
            for call in calls:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await call


async def bad_answers(who: Attacker, count: int) -> None:
    """a2 calls a1, and a1 answers with messages that nobody can read."""
    who.answers = [b"\xff"] * (10 * count)
    hello = asyncio.ensure_future(asyncio.sleep(4.0))
    while not hello.done():
        await who.calls(8, chunk(who.signed(Ack(NEVER, NEVER))))
        await asyncio.sleep(0.05)
    who.answers = [b"\xff"] * 50
    await asyncio.sleep(4.0)


async def strangers(who: Attacker, count: int) -> None:
    host, _, port = who.address.rpartition(":")
    for k in range(count // 3):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write((b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" * 99, b"")[k % 3])
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def bad_requests(who: Attacker, count: int) -> None:
    """To the port of the metrics."""
    for k in range(count // 3):
        reader, writer = await asyncio.open_connection("127.0.0.1", who.net.metrics[VICTIM])
        asked = (b"\x1b[2J\r\n\r\n", b"GET /\x1b HTTP/1.1\r\n\r\n", b"GET /metrics HTTP/9\r\n\r\n")
        writer.write(asked[k % 3])
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()


Way = Callable[[Attacker, int], Awaitable[None]]
WAYS: tuple[Way, ...] = (
    bad_signatures, unreadable_envelopes, unreadable_messages, malformed_chunks, oversized,
    unsupported_claims, long_texts, many_intents, calls_without_end, broken_streams, other_methods,
    bad_answers, strangers, bad_requests,
)  # fmt: skip


async def attack(net: Processes, count: int) -> dict[str, list[str]]:
    """Every way in turn; the lines that a2 wrote meanwhile."""
    who = Attacker(net)
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
    flood(tmp_path, 20_000, "info")
