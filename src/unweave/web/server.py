"""Serves a page in a thread of its own, until it is stopped.

    with PageServer(source, code=new_code()) as page:
        print(page.link)
        page.wait()

The page listens on loopback. Any other address needs an access code and TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import math
import socket
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple, Self

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from unweave.address import Address
from unweave.errors import ConfigError
from unweave.web.app import STATIC, build_app
from unweave.web.feed import ViewFeed
from unweave.web.protection import Access, Place, is_loopback
from unweave.web.source import ViewSource

__all__ = ["PORT", "PageServer", "TlsFiles"]

PORT = 8760
_NEARBY = 20  # ports that are tried in turn if none was asked for
_CONNECTIONS = 1000
_SILENT = 15.0  # seconds until a connection has sent a whole request
_UNTAKEN = 30.0  # seconds until a connection has taken some more of an answer
_GRACE = 1  # seconds for answers under way at the end
_LOOK = 0.5  # seconds, the longest block of the thread that handles signals


class TlsFiles(NamedTuple):
    """A certificate and its private key, as PEM files."""

    certificate: Path
    key: Path


class _Server(uvicorn.Server):
    """uvicorn in a thread: the program handles its signals itself."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Connections that have not ended in time are closed, too, while their loop still runs."""
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        for _ in range(2):  # the turns of the loop in which that is done
            await asyncio.sleep(0)


class _Connection(H11Protocol):
    """A connection with no request, or with half of one, is closed after a while: else it would
    stay for ever. So is one that takes nothing of its answer, which is kept in memory until then.
    uvicorn closes those that wait for the next request."""

    _closing: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        before = self._cycle
        super().data_received(data)
        self._watch()
        if self._cycle is not before:  # its answer makes the buffer grow
            self._expect_taking()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.trailing_data[0]:
            self._watch()
        self._expect_taking()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_taking()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._expect_taking()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unwatch()
        if self._taking is not None:
            self._taking.cancel()

    @property
    def _cycle(self) -> RequestResponseCycle | None:
        """The request that is answered, or was answered last."""
        return getattr(self, "cycle", None)

    def _expect_taking(self) -> None:
        """While nothing is added to the buffer, it must become smaller."""
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None
        left, cycle = self.transport.get_write_buffer_size(), self._cycle
        if left and (self.flow.write_paused or cycle is None or cycle.response_complete):
            loop = asyncio.get_running_loop()
            self._taking = loop.call_later(_UNTAKEN, self._check_taking, left)

    def _check_taking(self, before: int) -> None:
        if self.transport.get_write_buffer_size() >= before:
            self.transport.abort()
        else:
            self._expect_taking()

    def _watch(self) -> None:
        """The time runs from the first byte on; more bytes do not give more of it."""
        cycle = self._cycle
        answering = cycle is not None and not cycle.response_complete
        if answering and self.conn.their_state is not h11.SEND_BODY:
            self._unwatch()
        elif self._closing is None:
            loop = asyncio.get_running_loop()
            self._closing = loop.call_later(_SILENT, self.transport.abort)

    def _unwatch(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None


class PageServer:
    """One source on one address. `address` None: loopback, on port 8760 or the next free one.

    `code`: the operator's access code; None: whoever can open the page is the operator, on
    loopback only. `lock`: the code is needed for reading, too; always so beyond loopback.
    """

    def __init__(
        self,
        source: ViewSource,
        address: Address | None = None,
        *,
        code: str | None,
        lock: bool = False,
        tls: TlsFiles | None = None,
        static: Path = STATIC,
    ) -> None:
        beyond = address is not None and not is_loopback(address.host)
        if beyond and (code is None or tls is None):
            raise ConfigError(
                f"{address}: a page beyond this machine needs an access code and TLS. Fix: leave "
                "--listen out, or serve it with both"
            )
        self._source, self._code, self._tls, self._static = source, code, tls, static
        self._lock = lock or beyond
        self._listener = _listen(address)
        host = "127.0.0.1" if address is None else address.host
        self.place = Place(Address(host, self._listener.getsockname()[1]), tls is not None)
        self._server: _Server | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)

    @property
    def url(self) -> str:
        """With a name of this machine, if the page listens on all its addresses."""
        host, port = self.place.address
        with contextlib.suppress(ValueError):
            if ipaddress.ip_address(host).is_unspecified:
                host = socket.gethostname()
        return f"{self.place.scheme}://{Address(host, port)}/"

    @property
    def link(self) -> str:
        """The address with the access code. Browsers do not send what follows the #."""
        return self.url if self._code is None else f"{self.url}#code={self._code}"

    def start(self) -> None:
        self._thread.start()
        while (self._server is None or not self._server.started) and self._thread.is_alive():
            time.sleep(0.01)
        self._raise()

    def wait(self, seconds: float | None = None) -> None:
        """Until the server ends, or `seconds` have passed. Ctrl-C ends the wait."""
        end = math.inf if seconds is None else time.monotonic() + seconds
        # Python calls the handler of a signal between two instructions. A signal that comes while
        # this thread is about to block would be handled after the block: so no block is long.
        while self._thread.is_alive() and (left := end - time.monotonic()) > 0.0:
            self._thread.join(min(left, _LOOK))
        self._raise()

    def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._listener.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error

    async def _serve(self) -> None:
        first = self._source.view()
        feed = ViewFeed(first, time.time if first["kind"] == "network" else None)
        access = Access(self._code, lock=self._lock)
        app = build_app(self._source, feed, self.place, access, self._static)
        config = uvicorn.Config(
            app,
            http=_Connection,
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="critical",  # the app answers every error itself
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=_GRACE,
            ssl_certfile=None if self._tls is None else self._tls.certificate,
            ssl_keyfile=None if self._tls is None else self._tls.key,
        )
        self._server = _Server(config)
        await self._server.serve([self._listener])


def _listen(address: Address | None) -> socket.socket:
    tried = (
        [address]
        if address is not None
        else [Address("127.0.0.1", port) for port in (*range(PORT, PORT + _NEARBY), 0)]
    )
    why: object = ""
    for place in tried:
        try:
            found = socket.getaddrinfo(*place, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            return socket.create_server(found[0][4][:2], family=found[0][0])
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
    raise ConfigError(
        f"the page cannot listen on {tried[0]} ({why}). Fix: choose another port with --port, or "
        "another address with --listen"
    )
