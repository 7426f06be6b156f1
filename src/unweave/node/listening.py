"""Why an agent cannot listen where it should: gRPC does not say, so the address is tried again."""

from __future__ import annotations

import errno
import socket

__all__ = ["too_high", "why_not"]

_LISTEN = 'listen = "0.0.0.0:PORT" in agent.toml, beside the address in network.toml'


def too_high(address: str) -> bool:
    """Whether its port is none."""
    port = address.rpartition(":")[2]
    return port.isascii() and port.isdigit() and int(port) > 65535


def why_not(address: str) -> str:
    """The cause and the fix."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) <= 65535:
        return 'it is not "host:port" with a port from 1 to 65535: mend listen in agent.toml'
    try:
        places = socket.getaddrinfo(
            host.removeprefix("[").removesuffix("]"),
            int(port),
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )
    except (OSError, UnicodeError):
        return f"this machine does not know the host {host}: check the name, or set {_LISTEN}"
    for family, kind, protocol, _, place in places:
        try:
            with socket.socket(family, kind, protocol) as trial:
                trial.bind(place)
        except OSError as error:
            return _told(error, host)
    return "gRPC refuses it, although the port is free now: start the agent again"


def _told(error: OSError, host: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is taken: is the agent running already? If not, choose another port"
    if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        return f"{host} is no address of this machine: set {_LISTEN}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "this user may not open that port: choose one from 1024 on"
    return error.strerror or str(error)
