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
from functools import partial
from typing import Any, NamedTuple

from unweave.errors import MissingExtra, TransportError, WireError
from unweave.manifest import Manifest
from unweave.node.identity import Identity
from unweave.node.log import Log
from unweave.node.transport.client import DELIVER, SERVICE, NeighbourClient, WrongKey, grpc
from unweave.node.transport.framing import CHUNK, Assembly, Limits, Oversize
from unweave.node.transport.gate import Gate, listen
from unweave.node.transport.pinning import Pins
from unweave.node.wire.primitives import parsed, pb
from unweave.protocol.admission import WorkBudget

__all__ = ["GrpcTransport"]


try:
    from grpc_health.v1 import health_pb2, health_pb2_grpc
except ImportError:
    raise MissingExtra("grpcio-health-checking", "node", "talking to neighbours") from None


_ANSWERS = 64  # to one message; an agent sends fewer than ten
_CALL = 0.001  # seconds of processor time that a refused call costs
_TOO_MUCH_WORK = "too much work"
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
        self._budget = WorkBudget(self.limits.work, self.limits.work_burst)
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
            self._pins,
            self.limits,
            self.refusals,
            self._log,
            deliver,
            self._admitted,
            gate,
            self._budget,
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
        if self._budget.exhausted(to, time.monotonic()):
            self.refusals.add(client.pin.name, _TOO_MUCH_WORK, "its answers are not read")
            raise TransportError(
                f"{client.pin.name} has cost too much work; its answer is not read"
            )
        try:
            envelopes = list(parsed(pb.Answers(), answer, "answer").envelopes)
            if len(envelopes) > _ANSWERS:
                raise WireError(f"{len(envelopes)} messages in one answer: at most {_ANSWERS}")
            return envelopes
        except WireError as error:
            self.refusals.add(client.pin.name, "answer", str(error))
            raise TransportError(f"the answer of {client.pin.name}: {error}") from None

    def charge(self, neighbour: int, seconds: float) -> None:
        self._budget.charge(neighbour, seconds, time.monotonic())

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


class _Failed(NamedTuple):
    """How a call ends that has no answers."""

    code: Any
    why: str


Result = list[bytes] | _Failed
Refuse = Callable[[_Refusal], _Failed]


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
        budget: WorkBudget,
    ) -> None:
        self._pins = pins
        self._limits = limits
        self._refusals = refusals
        self._log = log
        self._deliver = deliver
        self._admitted = admitted
        self._gate = gate
        self._budget = budget
        self._messages: Counter[int] = Counter()  # under way, by neighbour
        self._bytes: Counter[int] = Counter()  # announced and under way, by neighbour
        self._tasks: set[asyncio.Task[Result]] = set()

    async def receive(self, _: Any, context: Any) -> bytes:
        """One call: one message in chunks, and the answers to it."""
        sender, peer = self._pins.owner(context.auth_context()), context.peer()
        name = UNKNOWN if sender is None else self._pins.neighbours[sender].name
        refuse = partial(self._refuse, name, self._gate.address(peer))
        try:
            if sender is None:
                raise _Refusal(Code.PERMISSION_DENIED, "not a neighbour", "not a neighbour")
            self._gate.admit(peer, sender)
            await self._admitted(sender)
            await self._check_budget(sender)
            task = await self._message(sender, context, refuse)
        except _Refusal as refusal:
            if sender is not None and refusal.reason != _TOO_MUCH_WORK:
                self._budget.charge(sender, _CALL, time.monotonic())
            result: Result = refuse(refusal)
        else:
            await asyncio.wait({task}, timeout=self._limits.reply)
            result = _result(task)
        if isinstance(result, _Failed):
            await context.abort(result.code, result.why)
            return b""  # not reached: abort raises
        encoded: bytes = pb.Answers(envelopes=result).SerializeToString()
        return encoded

    async def _check_budget(self, sender: int) -> None:
        """Refuse before reading. The call is held for a moment: a neighbour has a limited number of
        calls at a time, so it cannot replace costly messages by many cheap calls."""
        if self._budget.exhausted(sender, time.monotonic()):
            await asyncio.sleep(self._limits.pause)
            why = "the messages of this neighbour have cost too much work. Fix: send fewer"
            raise _Refusal(Code.RESOURCE_EXHAUSTED, _TOO_MUCH_WORK, why)

    def _refuse(self, name: str, address: str, refusal: _Refusal) -> _Failed:
        self._refusals.add(name, refusal.reason, refusal.why, address=address)
        return _Failed(refusal.code, refusal.why[:200])

    async def drain(self, grace: float) -> None:
        """Wait for messages that are being handled; cancel them after `grace` seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _message(self, sender: int, context: Any, refuse: Refuse) -> asyncio.Task[Result]:
        """Read one message; the task handles it."""
        if self._messages[sender] >= self._limits.incoming:
            why = f"{self._limits.incoming} messages from this neighbour are under way"
            raise _Refusal(Code.RESOURCE_EXHAUSTED, "too many", why)
        self._messages[sender] += 1
        assembly = Assembly(self._limits.message)
        task: asyncio.Task[Result] | None = None

        def release(_: object) -> None:
            self._messages[sender] -= 1
            self._bytes[sender] -= assembly.total

        try:
            await self._read(sender, assembly, context)
            # In its own task: a caller that ends the call does not interrupt the commit.
            task = asyncio.ensure_future(self._handle(sender, [assembly.take()], refuse))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(release)
        finally:
            if task is None:
                release(None)
        return task

    async def _handle(self, sender: int, parcel: list[bytes], refuse: Refuse) -> Result:
        """The answers to a message. Never an exception: after the end of the call nobody would
        retrieve it."""
        try:
            return await self._deliver(sender, parcel.pop())
        except WireError as error:
            return refuse(_Refusal(Code.INVALID_ARGUMENT, "message", str(error)))
        except Exception as error:
            name = self._pins.neighbours[sender].name
            self._log.failure("a message was not handled", error, sender=name)
            return _Failed(Code.UNAVAILABLE, "messages cannot be handled now")

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


def _result(task: asyncio.Task[Result]) -> Result:
    if not task.done():
        why = "the message is being handled; there was no time to answer"
    elif task.cancelled():
        why = "the agent is stopping"
    else:
        return task.result()
    return _Failed(Code.UNAVAILABLE, why)


class Refusals(Counter[tuple[str, str]]):
    """Counts by (neighbour or "unknown", reason), and a log line for each."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def add(self, sender: str, reason: str, why: str, **facts: Any) -> None:
        self[sender, reason] += 1
        self._log.warning("refused", sender=sender, reason=reason, why=why, **facts)
