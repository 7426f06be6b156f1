"""Serving a page beyond this machine, and the command's options."""

from __future__ import annotations

import gc
import html
import http.client
import json
import re
import socket
import ssl
from pathlib import Path

import pytest

from tests.support.dashboard import StillSource, page_files
from tests.support.scenes import SceneSource, scene
from unweave.address import Address
from unweave.cli.dashboard import PageOptions, serving
from unweave.errors import ConfigError
from unweave.web import protection, server, tls
from unweave.web.app import STATIC
from unweave.web.server import PageServer

CODE = "abcde-fghjk-mnpqr-stuvw"


def test_a_page_with_tls_has_the_fingerprint_that_it_tells(tmp_path: Path) -> None:
    files = tls.self_signed(tmp_path / "dashboard", "127.0.0.1")
    assert files.key.stat().st_mode & 0o077 == 0
    assert tls.self_signed(tmp_path / "dashboard", "127.0.0.1") == files
    static = page_files(tmp_path / "static")
    where = Address("127.0.0.1", 0)
    with PageServer(StillSource(), where, code=CODE, tls=files, static=static) as page:
        assert page.link.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(files.certificate))
        with (
            socket.create_connection(page.place.address, 10) as plain,
            trusted.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
        ):
            shown = secure.getpeercert(binary_form=True)
            host = str(page.place.address)
            body = json.dumps({"code": CODE})
            secure.sendall(
                f"POST /session HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
            )
            answer = b"".join(iter(lambda: secure.recv(4096), b"")).lower()
    assert shown is not None
    pem = ssl.DER_cert_to_PEM_cert(shown)
    assert pem.strip() == files.certificate.read_text().strip()
    assert len(tls.fingerprint(files).split(":")) == 32
    assert b"; secure" in answer


def test_no_wait_is_long_because_a_signal_may_come_just_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python calls the handler of a signal that comes just before a thread blocks after the block:
    under load, SIGTERM right after the start of a page was lost."""
    where, static = Address("127.0.0.1", 0), page_files(tmp_path / "static")
    page = PageServer(StillSource(), where, code=None, static=static)
    joined = []

    class Running:
        def is_alive(self) -> bool:
            return len(joined) < 3

        def join(self, timeout: float | None = None) -> None:
            joined.append(timeout)

    monkeypatch.setattr(page, "_thread", Running())
    page.wait()
    assert joined == [server._LOOK] * 3
    page.stop()


def test_a_certificate_for_another_host_is_replaced(tmp_path: Path) -> None:
    before = tls.fingerprint(tls.self_signed(tmp_path, "192.0.2.1"))
    assert tls.fingerprint(tls.self_signed(tmp_path, "192.0.2.2")) != before


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    one = tls.self_signed(tmp_path / "one", "192.0.2.1")
    two = tls.self_signed(tmp_path / "two", "192.0.2.1")
    for certificate, key in ((one.certificate, two.key), (one.certificate, tmp_path / "none")):
        with pytest.raises(ConfigError, match="cannot be used"):
            tls.given(certificate, key)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"port": 1, "listen": "a:1"}, "both given"),
        ({"port": 70000}, "no port"),
        ({"listen": "::1:8760"}, "not HOST:PORT"),
        ({"tls_cert": Path("c")}, "one is missing"),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        PageOptions(**options)  # type: ignore[arg-type]


def test_the_command_tells_address_code_and_fingerprint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (protection, server):  # so that no test listens on a real address
        monkeypatch.setattr(module, "is_loopback", lambda host: host == "127.0.0.1")
    options = PageOptions(listen="127.0.0.2:0", json=True)
    with serving(StillSource(), tmp_path, options) as page:
        told = json.loads(capsys.readouterr().out)
        trusted = ssl.create_default_context()
        trusted.check_hostname, trusted.verify_mode = False, ssl.CERT_NONE
        for path, status in (("/session", 200), ("/events", 401), ("/agents/a1", 401)):
            asked = http.client.HTTPSConnection(*page.place.address, timeout=30, context=trusted)
            asked.request("GET", path)
            assert asked.getresponse().status == status
            asked.close()
    assert told["url"] == page.url
    assert page.url.startswith("https://")
    assert told["link"] == f"{page.url}#code={told['code']}"
    assert len(told["fingerprint"].split(":")) == 32
    with serving(StillSource(), tmp_path, PageOptions(0, json=True), locked=False):
        assert set(json.loads(capsys.readouterr().out)) == {"url", "link"}


def test_the_words_of_the_page_are_those_of_the_glossary() -> None:
    root = Path(__file__).parents[2]
    glossary = " ".join((root / "docs/reference/glossary.md").read_text("utf-8").split())
    page = (STATIC / "index.html").read_text("utf-8")
    words = page[page.index('id="words"') : page.index("</details>", page.index('id="words"'))]
    found = re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", words)
    assert {"Attestation", "Epoch", "Factor", "Hop", "Revision"} <= {word for word, _ in found}
    for word, meaning in found:
        text = html.unescape(re.sub("</?code>", "`", meaning)).removesuffix(".")
        assert f"**{word}.** {text}" in glossary


def test_the_end_closes_a_viewer_that_takes_nothing(recwarn: pytest.WarningsRecorder) -> None:
    """Its socket would stay open after the loop that serves it."""
    names = [f"clinic-{k:05}" for k in range(20_000)]  # more than the buffers of a connection hold
    source = SceneSource(scene("rest", names))
    with PageServer(source, Address("127.0.0.1", 0), code=None) as server:
        host, port = server.place.address
        viewer = socket.create_connection((host, port))
        viewer.sendall(f"GET /events HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n".encode())
        assert viewer.recv(16)  # the answer has begun
    viewer.close()
    gc.collect()
    assert not [one for one in recwarn if "unclosed" in str(one.message)]
