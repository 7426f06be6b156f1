"""Sends to one neighbour, through a channel that is opened on demand and again when it is stuck.

A frozen neighbour accepts bytes and never answers. Neither gRPC's deadline on a large message nor
its keepalive notices that, so every wait here has its own limit.
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

__all__ = ["DELIVER", "SERVICE", "NeighbourClient", "WrongKey", "grpc"]


# gRPC writes every failed handshake to stderr: unknown peers could fill the disk.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
try:
    import grpc
except ImportError:
    raise MissingExtra("grpcio", "node", "talking to neighbours") from None


_WAITING = grpc.ChannelConnectivity.TRANSIENT_FAILURE
SERVICE, DELIVER = "unweave.v1.Neighbour", "Deliver"


class WrongKey(TransportError):
    """The process at the neighbour's address does not have the neighbour's key."""


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
        self._failing = False  # the last connection failed
        self._reset = 0.0  # when `heard` last dropped the channel
        self._closed = False

    async def send(self, data: bytes) -> bytes:
        """The encoded answers to one envelope."""
        if len(data) > self._limits.message:
            raise TransportError(
                f"a message of {len(data)} bytes to {self.pin.name} exceeds the limit, "
                f"{self._limits.message}"
            )
        large = len(data) > CHUNK
        if large and self._large:
            # The protocol sends again; queued tokens for a stuck neighbour would fill the memory.
            raise TransportError(f"another large message to {self.pin.name} is under way")
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
            # The call was cancelled, not this task: the channel was closed.
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
            call.cancel()  # no effect on a call that is done
        return answer

    async def _write(self, call: Any, data: bytes) -> None:
        # A write fails if the call has failed; `await call` raises the error.
        with contextlib.suppress(asyncio.InvalidStateError):
            for chunk in split(data):
                async with asyncio.timeout(self._limits.idle):
                    await call.write(chunk)
            await call.done_writing()

    async def heard(self) -> None:
        """The neighbour has just called: if its channel waits in a backoff, connect at once."""
        now = time.monotonic()
        if self._failing and not self._calls and now - self._reset > self._limits.backoff[0]:
            self._reset = now
            # A handshake under way may succeed sooner than a new one.
            if self._channel is not None and self._channel.get_state() is _WAITING:
                await self._drop()

    async def close(self) -> None:
        self._closed = True
        await self._drop()

    def _open(self) -> None:
        if self._closed:
            raise TransportError(f"the agent is stopping: nothing is sent to {self.pin.name}")
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
                ("grpc.enable_retries", 0),  # the protocol sends again
                ("grpc.enable_http_proxy", 0),
                ("grpc.service_config_disable_resolution", 1),
            ]
            self._channel = grpc.aio.secure_channel(self.pin.address, credentials, options)
            # The same bytes on the wire; a unary call costs gRPC a third of a stream of one chunk.
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
                return WrongKey(
                    f"the process at {self.pin.address} does not have the key of {name}"
                )
            return TransportError(f"{name} cannot be reached at {self.pin.address}: {why}")
        return TransportError(f"{name} refuses: {code.name}: {why}")
