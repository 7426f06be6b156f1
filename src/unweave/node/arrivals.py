"""Who knocks at the port and is not let in.

gRPC ends a failed handshake in silence: no callback, no address. But it asks for our certificate
before every handshake, and at that moment the new connection is among this process's descriptors. A
connection that closes before it has called anything was not a neighbour's.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import time
from collections.abc import Callable
from urllib.parse import unquote

__all__ = ["Arrivals"]

Peer = tuple[str, int]

_INTERNET = (socket.AF_INET, socket.AF_INET6)
_LOOK = 0.25  # seconds between looks at connections that have not proved anything yet
_REMEMBER = 10.0  # seconds; a look by another thread is told much earlier


class Arrivals:
    """Reports each connection to the port that ends without `admit`, by its address."""

    def __init__(self, refused: Callable[[str], None]) -> None:
        self._port = 0
        self._refused = refused
        self._strangers: set[Peer] = set()
        self._admitted: set[Peer] = set()
        self._gone: dict[Peer, float] = {}  # when their end was seen
        self._loop: asyncio.AbstractEventLoop | None = None
        self._look: asyncio.TimerHandle | None = None

    def start(self, port: int) -> None:
        self._port = port
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        self._loop = None
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def knock(self) -> None:
        """A handshake begins. Called by gRPC in a thread of its own; returns None: no change."""
        loop, seen = self._loop, time.monotonic()
        if loop is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop has just been closed
            loop.call_soon_threadsafe(self._note, seen, _connected(self._port))

    def admit(self, peer: str) -> None:
        """A neighbour calls over this connection (as gRPC names it)."""
        found = _parse(peer)
        if found is not None and found not in self._admitted:
            self._strangers.discard(found)
            self._admitted.add(found)

    def _note(self, seen: float, found: set[Peer]) -> None:
        for peer in found - self._admitted:
            if self._gone.get(peer, 0.0) < seen:  # else this look is older than its end
                self._strangers.add(peer)
        if self._look is None and self._loop is not None:
            self._look = self._loop.call_later(_LOOK, self._check)

    def _check(self) -> None:
        self._look = None
        if self._loop is None:
            return
        there = _connected(self._port)
        now = time.monotonic()
        gone = self._strangers - there
        self._gone = {peer: end for peer, end in self._gone.items() if end > now - _REMEMBER}
        self._gone.update(dict.fromkeys(gone | (self._admitted - there), now))
        self._strangers -= gone
        self._admitted &= there  # a port number may come back with somebody else
        for host, port in gone:
            self._refused(f"{host}:{port}")
        if self._strangers:
            self._look = self._loop.call_later(_LOOK, self._check)


def _connected(port: int) -> set[Peer]:
    """The far ends of this process's connections to `port`."""
    peers: set[Peer] = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            connection = socket.socket(fileno=int(name))
        except OSError:
            continue  # no socket, or closed meanwhile
        try:
            if connection.family in _INTERNET and connection.getsockname()[1] == port:
                host, far = connection.getpeername()[:2]
                peers.add((_plain(host), far))
        except OSError:
            continue  # it listens, or the far end has gone
        finally:
            connection.detach()  # the descriptor is gRPC's: only looked at, not even copied
    return peers


def _plain(host: str) -> str:
    """IPv4 in IPv6's clothes is IPv4."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _parse(peer: str) -> Peer | None:
    """`ipv4:127.0.0.1:5000` or `ipv6:%5B::1%5D:5000`."""
    family, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    if family not in ("ipv4", "ipv6") or not port.isdigit():
        return None
    return _plain(host.strip("[]")), int(port)
