"""Where an agent cannot listen, the true cause is said, and the fix."""

import asyncio
import errno
import io
import socket

import pytest

from unweave.errors import ConfigError, TransportError
from unweave.node.api.server import Monitoring
from unweave.node.log import Log
from unweave.node.transport.gate import listen
from unweave.node.transport.server import GrpcTransport
from unweave.testing.transport import LocalNetwork, running


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nowhere", "correct listen in agent.toml"),
        ("127.0.0.1:99999", "port from 1 to 65535"),
        ("127.0.0.1:x", "port from 1 to 65535"),
        ("no.such.host.invalid:7400", "does not know the host no.such.host.invalid"),
        ("192.0.2.1:7400", "192.0.2.1 is no address of this machine. Fix: set listen"),
    ],
)
def test_an_address_that_cannot_be(address, said):
    network = LocalNetwork()
    log = Log("a1", stream=io.StringIO())
    transport = GrpcTransport(network.manifest, 0, network.identities[0], log=log, listen=address)

    async def start():
        async with running(transport):
            pass

    with pytest.raises(TransportError, match="cannot listen on") as caught:
        asyncio.run(start())
    assert said in str(caught.value)
    assert "taken" not in str(caught.value)


def test_a_port_that_is_taken():
    says = r"the port is taken\. Fix: stop the process"
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(TransportError, match=says),
    ):
        listen(f"127.0.0.1:{taken.getsockname()[1]}")


def test_a_port_that_is_not_for_us(monkeypatch):
    def refuse(*_):
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(TransportError, match="from 1024 on"):
        listen("127.0.0.1:80")


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_every_address_of_the_machine(host):
    """Of both kinds, as far as there are."""
    (one,) = listen(f"{host}:0")
    with one, socket.create_connection(("127.0.0.1", one.getsockname()[1]), timeout=10):
        one.accept()[0].close()


def test_a_name_with_several_addresses(monkeypatch):
    """An address that this machine has not does not count, unless it is the only one."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, 0)) for host in
             ("192.0.2.1", "127.0.0.1", "127.0.0.1")]  # fmt: skip
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    (one,) = listen("both.example:0")
    one.close()
    del found[1:]
    with pytest.raises(TransportError, match=r"both\.example is no address of this machine"):
        listen("both.example:0")


@pytest.mark.parametrize("where", ["0.0.0.0:99999", "0.0.0.0:", ":80", "80", "host:-1", "host:²"])
def test_metrics_need_a_port(where):
    with pytest.raises(ConfigError, match=r"port up to 65535.*correct it in agent\.toml"):
        Monitoring(None, where)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "x" * 70, "192.0.2.1"])
def test_metrics_need_a_host(host):
    with pytest.raises(ConfigError, match=r"choose another address in agent\.toml"):
        asyncio.run(Monitoring(None, f"{host}:0").start())
