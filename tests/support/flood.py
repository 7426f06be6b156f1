"""What a neighbour with a valid key can send to fill a log: messages that an agent must refuse.

who = Attacker(folder, victim=1)       # an agent's folder: its key, its port
await bad_signatures(who, 240)         # about so many calls
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from unweave.keys import tls_name
from unweave.node.agent import open_identity
from unweave.node.config import AgentFolder
from unweave.node.transport.client import DELIVER, SERVICE
from unweave.node.transport.framing import split
from unweave.node.wire.codec import encode
from unweave.node.wire.envelope import sign_message
from unweave.node.wire.primitives import pb
from unweave.protocol.messages import Ack, Digests, Erasures, Gossip, News, Share
from unweave.protocol.statements import Intent
from unweave.protocol.token import NEVER, Tomb, request_id

__all__ = ["MESSAGES", "Attacker", "Way", "chunk", "gossip", "intents"]


class Attacker:
    """The agent of a folder, with its key and its port, and without our rules."""

    def __init__(self, folder: AgentFolder, victim: int) -> None:
        self.folder = folder
        self.me = folder.me
        self.victim = victim
        self.terms = folder.terms
        self.identity = open_identity(folder)
        self.address = folder.manifest.entries[victim].address

    def channel(self) -> Any:
        manifest = self.folder.manifest
        key = self.identity.key_pem, self.identity.certificate_pem.encode()
        return grpc.aio.secure_channel(
            self.address,
            grpc.ssl_channel_credentials(manifest.pems()[self.victim].encode(), *key),
            [("grpc.ssl_target_name_override", tls_name(manifest.keyids()[self.victim]))],
        )

    def signed(self, message: Any) -> bytes:
        return sign_message(encode(message, self.terms), self.me, self.identity.sign)

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
    await who.calls(count, chunk(sign_message(payload, who.me, lambda _: b"x" * 64)))


async def unreadable_envelopes(who: Attacker, count: int) -> None:
    await who.calls(count, chunk(b"\xff" * 300))


async def unreadable_messages(who: Attacker, count: int) -> None:
    await who.calls(count, chunk(sign_message(b"\xff" * 99, who.me, who.identity.sign)))


async def malformed_chunks(who: Attacker, count: int) -> None:
    await who.calls(count, b"\xff" * 40)


async def oversized(who: Attacker, count: int) -> None:
    await who.calls(count, pb.Chunk(total=2**63, data=b"x").SerializeToString())


async def unsupported_claims(who: Attacker, count: int) -> None:
    """Signed and well-formed, and refused for what it says."""
    other = next(k for k in range(who.terms.size) if k not in (who.me, who.victim))
    tombs = {other: Tomb(frozenset({request_id(other, b"x" * 12)}), True)}
    claim = gossip([])
    erasures = Erasures(tombs, frozenset(), {}, {})
    claim = claim._replace(gossip=claim.gossip._replace(erasures=erasures))
    await who.calls(count, chunk(who.signed(claim)))


async def long_texts(who: Attacker, count: int) -> None:
    """A statement whose error would quote a text of 20 kB, with a line of its own."""
    forged = "\n2026-01-01 00:00:00 info    a2  certified" + 5000 * "[31m"
    author, sign = who.me, who.identity.sign
    intent = Intent.write(author, sign, network_id=who.terms.network_id.hex(), request=forged)
    await who.calls(count // 3, chunk(who.signed(gossip([intent]))))


async def many_intents(who: Attacker, count: int) -> None:
    """Each would be a line."""
    signed = intents(who, count)
    for start in range(0, count, 20):
        await who.calls(8, chunk(who.signed(gossip(signed[start : start + 20]))))


def intents(who: Attacker, count: int) -> list[Intent]:
    """Requests to erase records that do not exist."""
    return [
        Intent.write(
            who.me,
            who.identity.sign,
            network_id=who.terms.network_id.hex(),
            request=request_id(who.me, b"%012d" % k).hex(),
            agent=who.me,
            whole=False,
            rows=[f"{k:032x}"],
            remembered=0,
        )
        for k in range(count)
    ]


def gossip(signed: list[Intent]) -> Share:
    requests = {n.to_bytes(16, "big"): intent for n, intent in enumerate(signed)}
    with contextlib.suppress(ValueError):
        requests = {intent.request: intent for intent in signed}
    digests = Digests(*(bytes(32) for _ in Digests._fields))
    return Share(NEVER, Gossip(digests, news=News(requests, frozenset(), {}, NEVER)))


async def calls_without_end(who: Attacker, count: int) -> None:
    """The caller leaves while its message, a large and unreadable one, is being handled."""
    async with who.channel() as channel:
        stream = channel.stream_unary(f"/{SERVICE}/{DELIVER}")
        large = sign_message(b"\xff" * (5 << 18), who.me, lambda _: b"x" * 64)
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


Way = Callable[[Attacker, int], Awaitable[None]]
MESSAGES: tuple[Way, ...] = (
    bad_signatures, unreadable_envelopes, unreadable_messages, malformed_chunks, oversized,
    unsupported_claims, long_texts, many_intents, calls_without_end, broken_streams, other_methods,
)  # fmt: skip
