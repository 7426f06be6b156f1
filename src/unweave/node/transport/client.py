"""The way to one neighbour: a channel that is opened when it is needed, and anew when it is stuck.

A frozen neighbour accepts bytes and never answers, and neither gRPC's deadline on a large message
nor its keepalive notices; so every wait here has its own limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import Any

from unweave.errors import MissingExtra, TransportError
from unweave.node.identity import Identity
from unweave.node.transport.framing import CHUNK, Limits, split
from unweave.node.transport.pinning import Pin

__all__ = ["DELIVER", "SERVICE", "Imposter", "NeighbourClient", "grpc"]


# gRPC writes every failed handshake to stderr: strangers could fill the disk.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
try:
    import grpc
except ImportError:
    raise MissingExtra("grpcio", "node", "talking to neighbours") from None


_WAITING = grpc.ChannelConnectivity.TRANSIENT_FAILURE
SERVICE, DELIVER = "unweave.v1.Neighbour", "Deliver"


class Imposter(TransportError):
    """Somebody without the neighbour's key answers at its address."""


class NeighbourClient:
    """Sends to one neighbour. One attempt per message, and at most one large message at a time."""

    def __init__(self, pin: Pin, identity: Identity, limits: Limits) -> None:
        self.pin = pin
        self._limits = limits
        self._key = identity.key_pem, identity.certificate_pem.encode()
        self._slots = asyncio.Semaphore(limits.outgoing)
        self._large = False
        self._channel: Any = None
        self._whole: Any = None
        self._stream: Any = None
        self._calls = 0  # under way
        self._failing = False
        self._renewed = 0.0  # when it was last opened anew because the neighbour called
        self._closed = False

    async def send(self, data: bytes) -> bytes:
        """The encoded answers to one envelope."""
        if len(data) > self._limits.message:
            raise TransportError(
                f"a message of {len(data)} bytes to {self.pin.name}: in this network the limit is "
                f"{self._limits.message}"
            )
        large = len(data) > CHUNK
        if large and self._large:
            # It will be repeated; a queue of tokens for a stuck neighbour would fill the memory.
            raise TransportError(f"another large message to {self.pin.name} is still on its way")
        self._large |= large
        try:
            async with asyncio.timeout(self._limits.deadline(len(data))), self._slots:
                answer = await self._attempt(data)
        except TimeoutError:
            await self._drop()
            raise TransportError(f"{self.pin.name} does not answer: it may be frozen") from None
        except grpc.aio.AioRpcError as error:
            raise self._failure(error) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Not this task but the call was cancelled: its channel was closed.
            raise TransportError(f"the connection to {self.pin.name} was closed") from None
        finally:
            if large:
                self._large = False
        self._failing = False
        return answer

    async def _attempt(self, data: bytes) -> bytes:
        self._open()
        if len(data) <= CHUNK:
            (chunk,) = split(data)
            call = self._whole(chunk, timeout=self._limits.deadline(len(data)))
        else:
            call = self._stream(timeout=self._limits.deadline(len(data)))
        self._calls += 1
        try:
            if len(data) > CHUNK:
                await self._write(call, data)
            answer: bytes = await call
        finally:
            self._calls -= 1
            call.cancel()  # does nothing to a call that is done
        return answer

    async def _write(self, call: Any, data: bytes) -> None:
        # An error of the call ends the writing, and is told by the call itself.
        with contextlib.suppress(asyncio.InvalidStateError):
            for chunk in split(data):
                async with asyncio.timeout(self._limits.idle):
                    await call.write(chunk)
            await call.done_writing()

    async def heard(self) -> None:
        """The neighbour has just called: if it was out of reach, do not wait for the backoff."""
        now = time.monotonic()
        if self._failing and not self._calls and now - self._renewed > self._limits.backoff[0]:
            self._renewed = now
            # A handshake under way is left alone: it may succeed sooner than a new one.
            if self._channel is not None and self._channel.get_state() is _WAITING:
                await self._drop()

    async def close(self) -> None:
        self._closed = True
        await self._drop()

    # ----------------------------------------------------------------------------------- inside

    def _open(self) -> None:
        if self._closed:
            raise TransportError(f"stopped: nothing is sent to {self.pin.name} any more")
        if self._channel is None:
            credentials = grpc.ssl_channel_credentials(self.pin.pem, *self._key)
            first, longest = (int(1000 * seconds) for seconds in self._limits.backoff)
            options = [
                ("grpc.ssl_target_name_override", self.pin.tls_name),
                ("grpc.initial_reconnect_backoff_ms", first),  # gRPC adds jitter of ±20%
                ("grpc.min_reconnect_backoff_ms", int(1000 * self._limits.connect)),
                ("grpc.max_reconnect_backoff_ms", longest),
                ("grpc.max_receive_message_length", self._limits.message + CHUNK),
                ("grpc.use_local_subchannel_pool", 1),  # a new channel is a new connection
                ("grpc.enable_retries", 0),  # the protocol repeats what matters
                ("grpc.enable_http_proxy", 0),
                ("grpc.service_config_disable_resolution", 1),
            ]
            self._channel = grpc.aio.secure_channel(self.pin.address, credentials, options)
            # The same call on the wire; but one chunk with its end costs gRPC a third of the steps.
            self._whole = self._channel.unary_unary(f"/{SERVICE}/{DELIVER}")
            self._stream = self._channel.stream_unary(f"/{SERVICE}/{DELIVER}")

    async def _drop(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    def _failure(self, error: Any) -> TransportError:
        name, code, why = self.pin.name, error.code(), (error.details() or "")[:300]
        if code is grpc.StatusCode.UNAVAILABLE:
            self._failing = True
            if "handshake failed" in why.lower() or "CERTIFICATE_VERIFY_FAILED" in why:
                return Imposter(f"{self.pin.address} does not have the key of {name}")
            return TransportError(f"{name} cannot be reached at {self.pin.address}: {why}")
        return TransportError(f"{name} refuses: {code.name}: {why}")
