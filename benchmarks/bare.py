"""gRPC alone, over the same mutual TLS: what a transport is measured against.

python -m benchmarks.bare FOLDER        one end that takes streams and says "ready PORT"
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from unweave.keys import tls_name
from unweave.node.identity import Identity

CHUNK = 1 << 20
METHOD = "/bare.Bare/Take"


def channel(me: Identity, other: Identity, port: int) -> Any:
    credentials = grpc.ssl_channel_credentials(
        other.certificate_pem.encode(), me.key_pem, me.certificate_pem.encode()
    )
    options = [("grpc.ssl_target_name_override", tls_name(other.keyid)), ("grpc.enable_retries", 0)]
    return grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options)


async def send(call: Any, data: bytes) -> None:
    """One message as a stream of chunks, and the empty answer."""
    pieces = (data[start : start + CHUNK] for start in range(0, len(data), CHUNK))
    await call(pieces, timeout=120)


@contextmanager
def server(me: Identity, client: Identity, folder: Path) -> Iterator[int]:
    """The other end in a process of its own; gives its port."""
    folder.mkdir(exist_ok=True)
    me.save(folder)
    (folder / "client.pem").write_text(client.certificate_pem)
    command = [sys.executable, "-m", "benchmarks.bare", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline().split()[1])
        finally:
            process.kill()


async def _serve(folder: Path) -> None:
    me = Identity.load(folder)
    credentials = grpc.ssl_server_credentials(
        [(me.key_pem, me.certificate_pem.encode())],
        (folder / "client.pem").read_bytes(),
        require_client_auth=True,
    )

    async def take(_: Any, context: Any) -> bytes:
        while await context.read() is not grpc.aio.EOF:
            pass
        return b""

    bare = grpc.aio.server()
    handler = grpc.stream_unary_rpc_method_handler(take)
    bare.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("bare.Bare", {"Take": handler}),)
    )
    port = bare.add_secure_port("127.0.0.1:0", credentials)
    await bare.start()
    print("ready", port, flush=True)
    await bare.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
