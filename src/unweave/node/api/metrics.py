"""`/metrics` (Prometheus text) and `/healthz`, on loopback unless the operator says otherwise."""

from __future__ import annotations

import asyncio
import contextlib

from unweave.errors import ConfigError
from unweave.node.api.report import status_report
from unweave.node.driver import Node

__all__ = ["Metrics"]


class Metrics:
    """A very small HTTP server: two paths, GET only, one request per connection."""

    def __init__(self, node: Node, where: str) -> None:
        self.node = node
        host, _, port = where.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise ConfigError(
                f'metrics = "{where}": expected "host:port" with a port up to 65535, or "" to turn '
                "it off: mend it in agent.toml"
            )
        self.host, self.port = host.removeprefix("[").removesuffix("]"), int(port)
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        try:
            self._server = await asyncio.start_server(self._serve, self.host, self.port, limit=8192)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigError(
                f"metrics: cannot listen on {self.host}:{self.port} ({why}): choose another "
                "address in agent.toml"
            ) from None
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(
            ConnectionError, TimeoutError, ValueError, asyncio.LimitOverrunError
        ):
            async with asyncio.timeout(5.0):
                line = await reader.readline()
            parts = line.split()
            status, body = self._answer(parts[1].decode() if len(parts) > 1 else "")
            if parts[:1] != [b"GET"]:
                status, body = "405 Method Not Allowed", "GET only\n"
            data = body.encode()
            head = (
                f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n"
                f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
            )
            writer.write(head.encode() + data)
            await writer.drain()
        writer.close()

    def _answer(self, path: str) -> tuple[str, str]:
        if path == "/healthz":
            healthy = self.node.phase not in ("starting", "halted")
            return ("200 OK" if healthy else "503 Service Unavailable", self.node.phase + "\n")
        if path == "/metrics":
            return "200 OK", exposition(self.node)
        return "404 Not Found", "the paths are /metrics and /healthz\n"


def exposition(node: Node) -> str:
    """The counters and gauges in Prometheus' text format."""
    status = status_report(node)
    me = _label(status["name"])
    label = f'{{agent="{me}"}}'
    lines = []
    for name, count in sorted(node.counts.items()):
        metric = f"unweave_{name.replace(' ', '_')}_total"
        lines += [f"# TYPE {metric} counter", f"{metric}{label} {count}"]
    if node.transport.refusals:
        lines.append("# TYPE unweave_refused_total counter")
    for (who, why), count in sorted(node.transport.refusals.items()):
        where = f'{{agent="{me}",sender="{_label(who)}",reason="{_label(why)}"}}'
        lines.append(f"unweave_refused_total{where} {count}")
    gauges = {
        "epoch": status.get("epoch", 0),
        "hop": status.get("hop", 0),
        "included_agents": len(status.get("included", [])),
        "erasures": status.get("erasures", 0),
        "mismatches": len(status.get("mismatches", [])),
        "complete": int(status.get("complete", False)),
        "confirmed": int(status.get("confirmed", False)),
        "up_seconds": status["up_seconds"],
    }
    for name, value in gauges.items():
        lines += [f"# TYPE unweave_{name} gauge", f"unweave_{name}{label} {value}"]
    lines += [
        "# TYPE unweave_phase gauge",
        f'unweave_phase{{agent="{me}",phase="{status["phase"]}"}} 1',
    ]
    return "\n".join(lines) + "\n"


def _label(value: str) -> str:
    """A label's value as Prometheus reads it back."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
