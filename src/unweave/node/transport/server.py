"""gRPC over mutual TLS between neighbours.

Each side shows its own certificate and trusts its neighbours' certificates alone: an unknown peer
fails in the handshake, and the connection tells the receiver which neighbour sends. There is no
plaintext port. One message is one call: `stream Chunk` to the neighbour, `Answers` back.

    GrpcTransport   listens (`gate`), and sends through one `NeighbourClient` per neighbour
    Inbox           receives messages, bounded in size, number and time
    Refusals        counts and logs the calls that were refused
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from unweave.errors import MissingExtra, TransportError, WireError
from unweave.manifest import Manifest
from unweave.node.identity import Identity
from unweave.node.log import Log
from unweave.node.transport.client import DELIVER, SERVICE, NeighbourClient, WrongKey, grpc
from unweave.node.transport.framing import CHUNK, Assembly, Limits, Oversize
from unweave.node.transport.gate import Gate, listen
from unweave.node.transport.pinning import Pins
from unweave.node.wire.primitives import parsed, pb

__all__ = ["GrpcTransport"]


try:
    from grpc_health.v1 import health_pb2, health_pb2_grpc
except ImportError:
    raise MissingExtra("grpcio-health-checking", "node", "talking to neighbours") from None


UNKNOWN = "unknown"  # the sender of a refused call that is no neighbour's

Code = grpc.StatusCode
Deliver = Callable[[int, bytes], Awaitable[list[bytes]]]


class GrpcTransport:
    """Carries signed messages between `me` and its neighbours in the manifest."""

    def __init__(
        self,
        manifest: Manifest,
        me: int,
        identity: Identity,
        *,
        log: Log,
        listen: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.limits = Limits.of(manifest.terms()) if limits is None else limits
        self.refusals = Refusals(log)  # by (neighbour or "unknown", reason)
        self.port = 0  # set by `start`
        self._started = False
        self._log = log
        self._identity = identity
        self._pins = Pins(manifest, me, identity)
        self._listen = self._pins.me.address if listen is None else listen
        self._clients: dict[int, NeighbourClient] = {}
        self._inbox: Inbox | None = None
        self._gate: Gate | None = None
        self._server: Any = None

    async def start(self, deliver: Deliver) -> None:
        """Listen. `deliver(sender, data)` gets every complete message of a neighbour."""
        if self._started:
            raise TransportError("this transport has been started before. Fix: make a new one")
        self._started = True
        if not self._pins.neighbours:
            return  # a network of one agent needs no port
        self._clients = {
            index: NeighbourClient(pin, self._identity, self.limits)
            for index, pin in self._pins.neighbours.items()
        }
        sockets = listen(self._listen)
        self.port = sockets[0].getsockname()[1]
        self._gate = gate = Gate(self.limits.unknown_peers)
        self._inbox = Inbox(
            self._pins, self.limits, self.refusals, self._log, deliver, self._admitted, gate
        )
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", CHUNK + 64),
                (
                    "grpc.per_message_decompression",
                    0,
                ),  # else a small message could become a large one
                ("grpc.max_concurrent_streams", 2 * self.limits.incoming),
                ("grpc.server_handshake_timeout_ms", int(1000 * self.limits.handshake)),
            ]
        )
        receive = grpc.stream_unary_rpc_method_handler(self._inbox.receive)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {DELIVER: receive}),)
        )
        health_pb2_grpc.add_HealthServicer_to_server(_Health(), server)
        server.add_secure_port(f"unix:{gate.inner}", self._credentials())
        self._server = server
        await server.start()
        await gate.start(sockets)

    async def stop(self) -> None:
        """Wait `grace` seconds for messages under way; then close everything."""
        server, self._server = self._server, None
        if server is not None and self._gate is not None:
            self._gate.stop_listening()
            await server.stop(self.limits.grace)
        if self._inbox is not None:
            await self._inbox.drain(self.limits.grace)
        for client in self._clients.values():
            await client.close()
        if self._gate is not None:
            self._gate.close()

    def _credentials(self) -> Any:
        pair = (self._identity.key_pem, self._identity.certificate_pem.encode())
        return grpc.ssl_server_credentials([pair], self._pins.roots, require_client_auth=True)

    async def send(self, to: int, data: bytes) -> list[bytes]:
        """One attempt, bounded in time: the neighbour's answers, or a TransportError."""
        client = self._clients.get(to)
        if client is None:
            raise TransportError(f"agent number {to} is no neighbour of {self._pins.me.name}")
        try:
            answer = await client.send(data)
        except WrongKey as error:
            self.refusals.add(client.pin.name, "imposter", str(error))
            raise
        try:
            return list(parsed(pb.Answers(), answer, "answer").envelopes)
        except WireError as error:
            self.refusals.add(client.pin.name, "answer", str(error))
            raise TransportError(f"the answer of {client.pin.name}: {error}") from None

    async def _admitted(self, sender: int) -> None:
        await self._clients[sender].heard()


class _Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """grpc.health.v1 for neighbours, without Watch, which would hold calls open."""

    async def Check(self, request: Any, context: Any) -> Any:
        if request.service not in ("", SERVICE):
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)

    async def Watch(self, request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "ask with Check")


class _Refusal(Exception):
    """A fault of the caller: `reason` is counted, `why` is logged and sent to the caller."""

    def __init__(self, code: Any, reason: str, why: str) -> None:
        super().__init__(why)
        self.code, self.reason, self.why = code, reason, why


class _Unable(Exception):
    """A fault of this agent: the caller gets no details."""


class Inbox:
    """The receiving side of `Neighbour.Deliver`."""

    def __init__(
        self,
        pins: Pins,
        limits: Limits,
        refusals: Refusals,
        log: Log,
        deliver: Deliver,
        admitted: Callable[[int], Awaitable[None]],
        gate: Gate,
    ) -> None:
        self._pins = pins
        self._limits = limits
        self._refusals = refusals
        self._log = log
        self._deliver = deliver
        self._admitted = admitted
        self._gate = gate
        self._messages: Counter[int] = Counter()  # under way, by neighbour
        self._bytes: Counter[int] = Counter()  # announced and under way, by neighbour
        self._tasks: set[asyncio.Task[list[bytes]]] = set()

    async def receive(self, _: Any, context: Any) -> bytes:
        """One call: one message in chunks, and the answers to it."""
        sender, peer = self._pins.owner(context.auth_context()), context.peer()
        name = UNKNOWN if sender is None else self._pins.neighbours[sender].name
        try:
            if sender is None:
                raise _Refusal(Code.PERMISSION_DENIED, "not a neighbour", "not a neighbour")
            self._gate.admit(peer, sender)
            await self._admitted(sender)
            answers = await self._message(sender, context)
            encoded: bytes = pb.Answers(envelopes=answers).SerializeToString()
            return encoded
        except _Refusal as refusal:
            address = self._gate.address(peer)
            self._refusals.add(name, refusal.reason, refusal.why, address=address)
            code, why = refusal.code, refusal.why[:200]
        except _Unable as unable:
            code, why = Code.UNAVAILABLE, str(unable)
        await context.abort(code, why)
        return b""  # not reached: abort raises

    async def drain(self, grace: float) -> None:
        """Wait for messages that are being handled; cancel them after `grace` seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _message(self, sender: int, context: Any) -> list[bytes]:
        if self._messages[sender] >= self._limits.incoming:
            why = f"{self._limits.incoming} messages from this neighbour are under way"
            raise _Refusal(Code.RESOURCE_EXHAUSTED, "too many", why)
        self._messages[sender] += 1
        assembly = Assembly(self._limits.message)
        task: asyncio.Task[list[bytes]] | None = None

        def release(_: object) -> None:
            self._messages[sender] -= 1
            self._bytes[sender] -= assembly.total

        try:
            await self._read(sender, assembly, context)
            # In its own task: a caller that ends the call does not interrupt the commit.
            task = asyncio.ensure_future(self._deliver(sender, assembly.take()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(release)
        finally:
            if task is None:
                release(None)
        await asyncio.wait({task}, timeout=self._limits.reply)
        return self._result(task)

    async def _read(self, sender: int, assembly: Assembly, context: Any) -> None:
        """Read chunks until the end of the message. Two limits end a slow call: the time between
        two chunks, and the time for a message of the announced size."""
        clock, limits = asyncio.get_running_loop().time, self._limits
        begun = clock()
        try:
            async with asyncio.timeout_at(begun + limits.idle) as limit:
                while (raw := await context.read()) is not grpc.aio.EOF:
                    announced = assembly.total > 0
                    try:
                        assembly.add(raw)
                    finally:
                        self._bytes[sender] += 0 if announced else assembly.total
                    if not announced:
                        self._check_room(sender)
                    whole = begun + limits.deadline(assembly.total)
                    limit.reschedule(min(whole, clock() + limits.idle))
        except TimeoutError:
            why = f"no further chunk in time after {assembly.size} of {assembly.total} bytes"
            raise _Refusal(Code.DEADLINE_EXCEEDED, "slow", why) from None
        except Oversize as error:
            raise _Refusal(Code.RESOURCE_EXHAUSTED, "too large", str(error)) from None
        except WireError as error:
            raise _Refusal(Code.INVALID_ARGUMENT, "malformed", str(error)) from None
        if not assembly.complete:
            why = f"the call ended after {assembly.size} of {assembly.total} bytes"
            raise _Refusal(Code.INVALID_ARGUMENT, "incomplete", why)

    def _check_room(self, sender: int) -> None:
        """Allow two of the largest messages: one, and its repetition after a lost connection."""
        if self._bytes[sender] > 2 * self._limits.message:
            why = f"{self._bytes[sender]} bytes from this neighbour are under way"
            raise _Refusal(Code.RESOURCE_EXHAUSTED, "too many", why)

    def _result(self, task: asyncio.Task[list[bytes]]) -> list[bytes]:
        if not task.done():
            raise _Unable("the message is being handled; there was no time to answer")
        if task.cancelled():
            raise _Unable("the agent is stopping")
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, WireError):
            raise _Refusal(Code.INVALID_ARGUMENT, "message", str(error))
        self._log.error("a message was not handled", error=f"{type(error).__name__}: {error}")
        raise _Unable("messages cannot be handled now")


class Refusals(Counter[tuple[str, str]]):
    """Counts by (neighbour or "unknown", reason), and a log line for each.

    So that endless calls do not fill the log, at most `lines` refusals per minute and kind are
    logged; the next line says how many were not.
    """

    def __init__(self, log: Log, lines: int = 30) -> None:
        super().__init__()
        self._log = log
        self._lines = lines
        self._logged: Counter[tuple[str, str]] = Counter()
        self._unlogged: Counter[tuple[str, str]] = Counter()
        self._minute = 0

    def add(self, sender: str, reason: str, why: str, **facts: Any) -> None:
        key = (sender, reason)
        self[key] += 1
        minute = int(time.monotonic() / 60.0)
        if minute != self._minute:
            self._minute = minute
            self._logged.clear()
        self._logged[key] += 1
        if self._logged[key] > self._lines:
            self._unlogged[key] += 1
            return
        if unlogged := self._unlogged.pop(key, 0):
            facts["unlogged"] = unlogged
        self._log.warning("refused", sender=sender, reason=reason, why=why, **facts)
