"""The agent's port: accepts connections, bounds those of unknown peers, and copies their bytes to
gRPC.

gRPC accepts a number of connections and closes every further one. Unknown peers that take all of
them would keep a neighbour out that has to connect again. The gate accepts each connection and
closes another one: of the connections that no neighbour has called on, the oldest one of the
address that has most of them. So a neighbour gets in while unknown peers hold everything they can.

TLS is between the neighbour and gRPC: the gate has no key and reads nothing. gRPC listens on a Unix
socket in a private folder, so every connection comes through the gate. The gate gives its end of
the Unix connection a number as its name; gRPC shows the name with each call.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import itertools
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path

from unweave.address import Address
from unweave.errors import TransportError

__all__ = ["Gate", "listen"]


_PREFIX, _SOCKET = "unweave-gate-", "grpc"
_YOUNG = 60.0  # seconds in which a socket may not be listening yet
_PER_NEIGHBOUR = 2  # a broken connection may stay open beside the new one


class Gate:
    """Copies bytes between the listening sockets and gRPC's Unix socket, `inner`."""

    def __init__(self, unknown_peers: int) -> None:
        self._most = unknown_peers
        _remove_left_behind()
        self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX)  # mode 0700
        self._numbers = itertools.count(1)
        self._open: dict[str, _Outer] = {}  # by number, the oldest first
        self._servers: list[asyncio.Server] = []

    @property
    def inner(self) -> str:
        return str(Path(self._folder.name) / _SOCKET)

    async def start(self, sockets: list[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        for one in sockets:
            self._servers.append(await loop.create_server(lambda: _Outer(self), sock=one))

    def stop_listening(self) -> None:
        for server in self._servers:
            server.close()

    def close(self) -> None:
        self.stop_listening()
        for connection in list(self._open.values()):
            connection.abort()
        self._folder.cleanup()

    def address(self, peer: str) -> str:
        """The address of a call's sender, given gRPC's name for it."""
        connection = self._open.get(_number(peer))
        return "closed" if connection is None else connection.address

    def admit(self, peer: str, neighbour: int) -> None:
        """This connection is a neighbour's. Its oldest ones are closed if it has too many."""
        connection = self._open.get(_number(peer))
        if connection is None or connection.neighbour == neighbour:
            return
        connection.neighbour = neighbour
        theirs = [one for one in self._open.values() if one.neighbour == neighbour]
        for one in theirs[:-_PER_NEIGHBOUR]:
            one.abort()

    def opened(self, connection: _Outer) -> Path:
        """Count a new connection, close another one if there are too many; the name of its end."""
        number = str(next(self._numbers))
        self._open[number] = connection
        unknown: dict[str, list[_Outer]] = {}
        for one in self._open.values():
            if one.neighbour is None:
                unknown.setdefault(one.source, []).append(one)
        if sum(map(len, unknown.values())) > self._most:
            max(unknown.values(), key=len)[0].abort()
        return Path(self._folder.name) / number

    def closed(self, name: Path) -> None:
        self._open.pop(name.name, None)


def _remove_left_behind() -> None:
    """Remove the folders of processes that were killed: their sockets refuse connections."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as trial:
            found = folder.lstat()
            if found.st_uid != os.getuid() or time.time() - found.st_mtime < _YOUNG:
                continue
            try:
                trial.setblocking(False)
                trial.connect(str(folder / _SOCKET))
            except ConnectionRefusedError:
                shutil.rmtree(folder, ignore_errors=True)


class _Side(asyncio.Protocol):
    """One side of a connection. What it receives goes to the other side, no faster than that side
    takes it."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()  # after the bytes that are still to be written

    def abort(self) -> None:
        for side in (self, self.other):
            if side is not None and side.transport is not None:
                side.transport.abort()


class _Outer(_Side):
    """The side towards the peer."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate
        self._name = Path()
        self._joining: asyncio.Task[None] | None = None
        self.neighbour: int | None = None  # known from its first call on
        self.address = self.source = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        host, port, *_ = transport.get_extra_info("peername") or ("", 0)
        self.address, self.source = str(Address(host, port)), _source(host)
        self._name = self._gate.opened(self)
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()
            self._joining = asyncio.ensure_future(self._join())

    async def _join(self) -> None:
        """Connect to gRPC, under the name by which the gate knows this connection."""
        loop = asyncio.get_running_loop()
        inner = socket.socket(socket.AF_UNIX)
        try:
            inner.setblocking(False)
            inner.bind(str(self._name))
            os.unlink(self._name)  # the connection keeps its name
            await loop.sock_connect(inner, self._gate.inner)
            side = _Side()
            side.other = self
            await loop.create_unix_connection(lambda: side, sock=inner)
        except OSError:  # the agent is stopping, or has no descriptor left
            inner.close()
            self.abort()
            return
        self.other = side
        if self.transport is None:
            self.abort()
        else:
            self.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._gate.closed(self._name)


def _number(peer: str) -> str:
    """The number in gRPC's name of a peer: unix:/tmp/unweave-gate-x/17"""
    return peer.rpartition("/")[2]


def _source(host: str) -> str:
    """Whose connections are counted together: an IPv4 address, or an IPv6 network of one site."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


# --------------------------------------------------------------------------------------- listening

_LISTEN = 'set listen = "0.0.0.0:PORT" in agent.toml'
_ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def listen(address: str) -> list[socket.socket]:
    """Sockets that listen on `host:port`, on every address of the host; TransportError with the
    cause and the fix."""
    where = Address.parse(address)
    if where is None:
        raise _cannot(
            address,
            'not "host:port" with a port from 1 to 65535. Fix: correct listen in agent.toml',
        )
    if where.host in ("0.0.0.0", "::") and socket.has_dualstack_ipv6():
        places = [(socket.AF_INET6, "")]
    else:
        try:
            found = socket.getaddrinfo(*where, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except (OSError, UnicodeError):
            why = f"this machine does not know the host {where.host}. Fix: check the name, or "
            raise _cannot(address, why + _LISTEN) from None
        places = list(dict.fromkeys((family, str(place[0])) for family, *_, place in found))
    sockets: list[socket.socket] = []
    with contextlib.ExitStack() as opened:
        absent: OSError | None = None
        for family, host in places:
            try:
                one = socket.create_server(
                    (host, where.port), family=family, dualstack_ipv6=not host
                )
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise _cannot(address, _bind_problem(error, where.host)) from None
                absent = error  # localhost, say, on a host without IPv6
            else:
                opened.callback(one.close)
                sockets.append(one)
        if absent is not None and not sockets:
            raise _cannot(address, _bind_problem(absent, where.host))
        opened.pop_all()
    return sockets


def _cannot(address: str, why: str) -> TransportError:
    return TransportError(f"cannot listen on {address}: {why}")


def _bind_problem(error: OSError, host: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is taken. Fix: stop the process that uses it, or choose another port"
    if error.errno in _ABSENT:
        return f"{host} is no address of this machine. Fix: {_LISTEN}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "this user may not open that port. Fix: choose a port from 1024 on"
    return error.strerror or str(error)
