"""Neighbours talk gRPC over mutual TLS, and to nobody else.

Each side shows its own certificate and trusts its neighbours' alone: a stranger fails in the
handshake, and the receiver knows from the connection itself who speaks. There is no plaintext port
and no way around the identity. One message is one call: `stream Chunk` there, `Answers` back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unweave.errors import MissingExtra, TransportError, WireError
from unweave.manifest import Manifest
from unweave.node.arrivals import Arrivals
from unweave.node.identity import Identity
from unweave.node.inbox import Deliver, Inbox
from unweave.node.limits import CHUNK, Limits
from unweave.node.link import DELIVER, SERVICE, Imposter, Link, grpc
from unweave.node.listening import too_high, why_not
from unweave.node.log import Log
from unweave.node.parts import parsed, pb
from unweave.node.pins import Pins
from unweave.node.refusals import UNKNOWN, Refusals

try:
    from grpc_health.v1 import health_pb2, health_pb2_grpc
except ImportError:
    raise MissingExtra("grpcio-health-checking", "node", "talking to neighbours") from None

__all__ = ["GrpcTransport"]


class GrpcTransport:
    """Carries sealed messages between `me` and its neighbours in the manifest."""

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
        self.port = 0  # where it listens, once it does
        self._log = log
        self._identity = identity
        self._pins = Pins(manifest, me, identity)
        self._listen = self._pins.me.address if listen is None else listen
        self._arrivals = Arrivals(self._stranger)
        self._links: dict[int, Link] = {}
        self._inbox: Inbox | None = None
        self._server: Any = None

    # ------------------------------------------------------------------------------------- life

    async def start(self, deliver: Deliver) -> None:
        """Listen. `deliver(sender, data)` gets every complete message of a neighbour."""
        if self._inbox is not None:
            raise TransportError("a transport starts once: make a new one")
        self._inbox = Inbox(
            self._pins, self.limits, self.refusals, self._log, deliver, self._admitted
        )
        if not self._pins.neighbours:
            return  # an agent on its own has nobody to open a port for
        self._links = {
            index: Link(pin, self._identity, self.limits)
            for index, pin in self._pins.neighbours.items()
        }
        server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),  # else a second agent could share the port unnoticed
                ("grpc.max_allowed_incoming_connections", self._connections()),
                ("grpc.max_receive_message_length", CHUNK + 64),
                ("grpc.per_message_decompression", 0),  # nothing unpacks to more than it was
                ("grpc.max_concurrent_streams", 2 * self.limits.incoming),
                ("grpc.server_handshake_timeout_ms", int(1000 * self.limits.handshake)),
            ]
        )
        receive = grpc.stream_unary_rpc_method_handler(self._inbox.receive)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {DELIVER: receive}),)
        )
        health_pb2_grpc.add_HealthServicer_to_server(_Health(self._arrivals.admit), server)
        try:
            if too_high(self._listen):  # gRPC would listen on another port, without a word
                raise RuntimeError
            self.port = server.add_secure_port(self._listen, self._credentials())
        except RuntimeError:
            raise TransportError(
                f"cannot listen on {self._listen}: {why_not(self._listen)}"
            ) from None
        self._arrivals.start(self.port)
        self._server = server
        await server.start()

    async def stop(self) -> None:
        """Let messages under way finish, for a moment; then close everything."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(self.limits.grace)
        self._arrivals.stop()
        if self._inbox is not None:
            await self._inbox.drain(self.limits.grace)
        for link in self._links.values():
            await link.close()

    def _connections(self) -> int:
        """Two for each neighbour, as a broken one may linger, and some to be refused. Without an
        end they would take all descriptors, and with them the store's."""
        return 2 * len(self._pins.neighbours) + self.limits.strangers

    def _credentials(self) -> Any:
        pair = (self._identity.key_pem, self._identity.certificate_pem.encode())
        return grpc.dynamic_ssl_server_credentials(
            grpc.ssl_server_certificate_configuration([pair], self._pins.roots),
            self._arrivals.knock,
            require_client_authentication=True,
        )

    # ---------------------------------------------------------------------------------- sending

    async def send(self, to: int, data: bytes) -> list[bytes]:
        """One attempt, bounded in time: the neighbour's answers, or a TransportError."""
        link = self._links.get(to)
        if link is None:
            raise TransportError(f"agent number {to} is no neighbour of {self._pins.me.name}")
        try:
            answer = await link.send(data)
        except Imposter as error:
            self.refusals.note(link.pin.name, "imposter", str(error))
            raise
        try:
            return list(parsed(pb.Answers(), answer, "answer").envelopes)
        except WireError as error:
            self.refusals.note(link.pin.name, "answer", str(error))
            raise TransportError(f"{link.pin.name} answered {error}") from None

    # -------------------------------------------------------------------------------- receiving

    async def _admitted(self, peer: str, sender: int) -> None:
        self._arrivals.admit(peer)
        await self._links[sender].heard()

    def _stranger(self, address: str) -> None:
        self.refusals.note(
            UNKNOWN,
            "handshake",
            "no TLS, no certificate, or none that the manifest pins for a neighbour",
            address=address,
        )


class _Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """grpc.health.v1 for neighbours. Watching is not offered: it would hold calls open."""

    def __init__(self, admit: Callable[[str], None]) -> None:
        self._admit = admit

    async def Check(self, request: Any, context: Any) -> Any:
        self._admit(context.peer())
        if request.service not in ("", SERVICE):
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)

    async def Watch(self, request: Any, context: Any) -> Any:
        self._admit(context.peer())
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "ask with Check")
