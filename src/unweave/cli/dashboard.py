"""`unweave dashboard`: a running network in a browser."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unweave.address import Address
from unweave.cli.common import open_page, say, stop_on_sigterm
from unweave.errors import ConfigError
from unweave.json_form import as_json

if TYPE_CHECKING:
    from unweave.web.server import PageServer
    from unweave.web.source import ViewSource

__all__ = [
    "OpenBrowser",
    "PageOptions",
    "PagePort",
    "dashboard",
    "serving",
    "show_page",
    "until_stopped",
]

# Options of every command that shows a page.
PagePort = Annotated[
    int | None,
    typer.Option("--port", help="The port on loopback; default: 8760, or the next free one."),
]
OpenBrowser = Annotated[
    bool, typer.Option("--browser/--no-browser", help="Open the page, if there is a browser.")
]


def dashboard(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A network's folder, or one agent's.")
    ],
    port: PagePort = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Another address than loopback: TLS, and the access code for everything.",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            "--tls-cert", metavar="FILE", help="With --listen: a PEM certificate; default: made."
        ),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key, PEM.")
    ] = None,
    lock: Annotated[
        bool, typer.Option("--lock", help="Ask for the access code for reading, too.")
    ] = False,
    browser: OpenBrowser = True,
    json: Annotated[
        bool, typer.Option("--json", help="Print address and access code as one JSON line.")
    ] = False,
) -> None:
    """Show a running network in a browser: graph, token, posterior, erasures, timeline. Ctrl-C ends
    it.

    The page asks the agents whose folders are in DIR. They never wait for it, and it may be started
    and stopped at any time. The timeline is kept in DIR/dashboard, as sentences.

    Whoever has an account on this machine can read the page (not with --lock). An erasure needs the
    access code, which is new at every start and is printed once. On other addresses (--listen)
    everything needs the code, and the connection is encrypted: with your certificate, or with one
    that is made in DIR/dashboard; compare its fingerprint in the browser.

    Examples:

        unweave dashboard clinics

        unweave dashboard clinics --port 9000 --no-browser

        unweave dashboard clinics --listen 192.0.2.7:8760
    """
    from unweave.web.live.network import NetworkSource

    options = PageOptions(port, listen, tls_cert, tls_key, lock, browser, json)
    source = NetworkSource(folder)
    with until_stopped(), serving(source, folder, options) as page:
        page.wait()


class PageOptions:
    """How a page is served, and told."""

    def __init__(
        self,
        port: int | None = None,
        listen: str | None = None,
        tls_cert: Path | None = None,
        tls_key: Path | None = None,
        lock: bool = False,
        browser: bool = True,
        json: bool = False,
    ) -> None:
        if port is not None and listen is not None:
            raise ConfigError("--port and --listen: both given. Fix: put the port into --listen")
        if port is not None and not 0 <= port <= 65535:
            raise ConfigError(f"--port {port}: no port. Fix: give a number from 0 to 65535")
        if (tls_cert is None) != (tls_key is None):
            raise ConfigError("--tls-cert and --tls-key: one is missing. Fix: give both, or none")
        self.address = None if port is None else Address("127.0.0.1", port)
        if listen is not None:
            self.address = Address.parse(listen)
            if self.address is None:
                raise ConfigError(
                    f"--listen {listen}: not HOST:PORT. Fix: write it like [::1]:8760"
                )
        self.tls_cert, self.tls_key = tls_cert, tls_key
        self.lock, self.browser, self.json = lock, browser, json


@contextmanager
def serving(
    source: ViewSource, folder: Path, options: PageOptions, *, locked: bool = True
) -> Iterator[PageServer]:
    """Serve a page, and tell its address. `locked`: requests need an access code."""
    from unweave.web.protection import is_loopback, new_code
    from unweave.web.server import PageServer, TlsFiles
    from unweave.web.tls import fingerprint, given, self_signed

    home = folder / "dashboard"
    address, tls = options.address, None
    beyond = address is not None and not is_loopback(address.host)
    if options.tls_cert is not None and options.tls_key is not None:
        tls = given(options.tls_cert, options.tls_key)
    elif beyond and address is not None:
        tls = self_signed(home, address.host)
    code = new_code() if locked or beyond or options.lock else None
    with PageServer(source, address, code=code, lock=options.lock, tls=tls) as page:
        made = isinstance(tls, TlsFiles) and options.tls_cert is None
        _tell(page, code, fingerprint(tls) if made and tls is not None else "", options.json)
        opened = _open(page.link, home) if options.browser and not options.json else None
        try:
            yield page
        finally:
            if opened is not None:
                opened.unlink(missing_ok=True)


def _tell(page: PageServer, code: str | None, print_: str, json: bool) -> None:
    if json:
        report: dict[str, Any] = {"url": page.url, "link": page.link}
        report |= {} if code is None else {"code": code}
        report |= {"fingerprint": print_} if print_ else {}
        sys.stdout.write(as_json(report) + "\n")
        sys.stdout.flush()
        return
    say(f"The page is at {page.link}")
    if code is not None:
        say(f"Access code: {code}")
    if print_:
        say(f"SHA-256 fingerprint of its certificate: {print_}")


def _open(link: str, home: Path) -> Path | None:
    """Open a browser through a private file: the arguments of a process can be read by others."""
    from unweave.node.storage.atomic import write_atomic

    file = home / "open.html"
    text = f'<!doctype html><meta http-equiv="refresh" content="0;url={link}">'
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        write_atomic(file, text.encode())
    except OSError:
        return None
    if not open_page(file):
        file.unlink(missing_ok=True)
        return None
    return file


def show_page(source: ViewSource, *, port: int | None, browser: bool, json: bool) -> None:
    """Serve a simulation on loopback until Ctrl-C. It has nothing that a code would protect."""
    options = PageOptions(port, browser=browser, json=json)
    with (
        until_stopped(),
        TemporaryDirectory(prefix="unweave-") as folder,
        serving(source, Path(folder), options, locked=False) as page,
    ):
        page.wait()


@contextmanager
def until_stopped() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the block without an error, from before its address is told on."""
    stop_on_sigterm()
    with suppress(KeyboardInterrupt):
        yield
