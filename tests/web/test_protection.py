"""Who may ask the page, and what every answer says to browsers."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from tests.support.dashboard import Client, StillSource, page_files
from unweave.address import Address
from unweave.errors import ConfigError
from unweave.web import feed as feed_module
from unweave.web import protection as protection_module
from unweave.web import server as server_module
from unweave.web.protection import HEADERS, Access, Place, RequestRefused, _cookie, new_code
from unweave.web.server import PageServer

CODE = "abcde-fghjk-mnpqr-stuvw"
ANY = Address("127.0.0.1", 0)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    static = page_files(tmp_path_factory.mktemp("page") / "static")
    with PageServer(StillSource(), ANY, code=CODE, static=static) as server:
        yield Client(server)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    static = page_files(tmp_path_factory.mktemp("locked") / "static")
    with PageServer(StillSource(), ANY, code=CODE, lock=True, static=static) as server:
        yield Client(server)


def test_the_page_and_its_files_are_served(page: Client) -> None:
    assert b"<title>page</title>" in page.get("/").body
    script = page.get("/static/page.js")
    assert script.status == 200
    assert script.headers["content-type"].startswith("text/javascript")
    assert script.headers["cache-control"] == "no-cache"


REQUESTS = [
    ("GET", "/", 200),
    ("GET", "/static/page.js", 200),
    ("GET", "/static/missing.js", 404),
    ("GET", "/static/../app.py", 404),
    ("GET", "/static/%2e%2e/app.py", 404),
    ("GET", "/nowhere", 404),
    ("GET", "/agents/a1", 200),
    ("GET", "/agents/a9", 404),
    ("GET", "/curves?name=p", 200),
    ("GET", "/curves", 400),
    ("GET", "/moments/m", 200),
    ("GET", "/report", 500),
    ("GET", "/session", 200),
    ("GET", "/erasures", 405),
    ("POST", "/agents/a1", 405),
    ("POST", "/erasures", 401),
    ("OPTIONS", "/erasures", 405),
    ("HEAD", "/events", 405),
    ("TRACE", "/", 405),
]


@pytest.mark.parametrize(("method", "path", "status"), REQUESTS)
def test_every_answer_has_the_headers(page: Client, method: str, path: str, status: int) -> None:
    kind = {"content-type": "application/json"} if method == "POST" else {}
    answer = page.ask(method, path, b"{}" if method == "POST" else None, headers=kind)
    assert answer.status == status
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    assert answer.headers["cache-control"] in ("no-store", "no-cache")
    assert not any(name.startswith("access-control") for name in answer.headers)
    assert "server" not in answer.headers
    if status >= 400 and method != "HEAD":
        assert set(answer.json["error"]) >= {"kind", "message", "fix"}


def test_the_policy_allows_nothing_but_own_files() -> None:
    policy = dict(
        part.partition(" ")[::2] for part in HEADERS["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert policy["trusted-types"] == "'none'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    sources = {policy[name] for name in policy if name.endswith("-src") and name != "default-src"}
    assert sources == {"'self'"}


def test_an_error_in_the_server_quotes_nothing(page: Client) -> None:
    answer = page.get("/report")
    assert answer.status == 500
    assert b"17" not in re.sub(rb":\d+", b"", answer.body)


@pytest.mark.parametrize(
    "host", ["", "evil.example", "evil.example:8760", "127.0.0.1.evil.example", "10.0.0.1", "x y"]
)
@pytest.mark.parametrize("path", ["/", "/events", "/static/page.js", "/agents/a1"])
def test_a_foreign_host_name_is_refused(page: Client, host: str, path: str) -> None:
    """A page whose name resolves to this machine gets nothing."""
    answer = page.get(path, host=host)
    assert answer.status in (400, 421)
    assert answer.status == 421 or not host  # HTTP itself wants the header
    if answer.status == 421:
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS


@pytest.mark.parametrize("host", ["localhost", "localhost:9000", "127.0.0.1", "[::1]:8760"])
def test_names_of_this_machine_are_accepted(page: Client, host: str) -> None:
    assert page.get("/session", host=host).status == 200


FOREIGN = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://localhost:1"},
    {"sec_fetch_site": "cross-site"},
    {"sec_fetch_site": "same-site"},
]


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize("path", ["/events", "/agents/a1", "/curves?name=p", "/report", "/"])
def test_another_page_may_not_read(page: Client, headers: dict[str, str], path: str) -> None:
    assert page.get(path, **headers).status == 403


@pytest.mark.parametrize("headers", [*FOREIGN, {"sec_fetch_site": "none"}])
@pytest.mark.parametrize(
    "path", ["/erasures", "/erasures/preview", "/verify", "/controls", "/session"]
)
def test_another_page_may_not_ask(page: Client, headers: dict[str, str], path: str) -> None:
    cookie = page.enter(CODE)
    assert page.post(path, {"agent": "a1"}, cookie=cookie, **headers).status == 403


def test_a_person_may_follow_a_link_to_the_page(page: Client) -> None:
    link = {
        "sec_fetch_site": "cross-site",
        "sec_fetch_mode": "navigate",
        "sec_fetch_dest": "document",
    }
    assert page.get("/", **link).status == 200
    assert page.get("/report", **link).status == 403
    assert page.get("/", **link | {"sec_fetch_dest": "iframe"}).status == 403


def test_the_page_itself_may_ask(page: Client) -> None:
    own = {"origin": f"http://{page.host}", "sec_fetch_site": "same-origin"}
    cookie = page.enter(CODE)
    answer = page.post("/erasures", {"agent": "a1"}, cookie=cookie, **own)
    assert answer.status == 200
    assert answer.json == {"request": "00" * 16}


@pytest.mark.parametrize(
    "kind",
    ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"],
)
@pytest.mark.parametrize("path", ["/erasures", "/session", "/verify"])
def test_a_form_is_refused(page: Client, kind: str, path: str) -> None:
    """Browsers send these kinds for any page, without asking first."""
    cookie = page.enter(CODE)
    headers = {"content-type": kind, "cookie": cookie}
    assert page.ask("POST", path, {"agent": "a1"}, headers=headers).status == 415


def test_only_a_certificate_may_be_plain_bytes(page: Client) -> None:
    headers = {"content-type": "application/octet-stream"}
    assert page.ask("POST", "/verify", b"abc", headers=headers).json["text"] == "3 bytes"
    assert page.ask("POST", "/session", {"code": CODE}, headers=headers).status == 415


@pytest.mark.parametrize("path", ["/erasures", "/controls"])
def test_changes_need_the_code(page: Client, path: str) -> None:
    body = {"agent": "a1"} if path == "/erasures" else {"do": "pause"}
    assert page.post(path, body).status == 401
    other = page.post(path, body, cookie=f"unweave-{page.page.place.address.port}=AAAA")
    assert other.status == 401
    assert page.post(path, body, cookie=page.enter(CODE)).status == 200


def test_the_cookie_is_out_of_reach_for_scripts_and_other_sites(page: Client) -> None:
    answer = page.post("/session", {"code": CODE})
    _, *attributes = answer.headers["set-cookie"].lower().split("; ")
    assert {"httponly", "samesite=strict", "path=/"} <= set(attributes)
    assert CODE not in answer.headers["set-cookie"]


def test_the_cookie_alone_is_no_session(page: Client, locked: Client) -> None:
    """A browser sends it to all ports of this machine, so to pages of other accounts, too."""
    cookie = page.enter(CODE)
    for proof in ("", "guess", cookie.partition("=")[2]):
        headers = {"cookie": cookie, "x-unweave-proof": proof}
        assert page.post("/erasures", {"agent": "a1"}, **headers).status == 401
    assert page.post("/erasures", {"agent": "a1"}, x_unweave_proof=page.proof).status == 401
    assert page.post("/erasures", {"agent": "a1"}, cookie=cookie).status == 200

    cookie = locked.enter(CODE)
    proof, locked.proof = locked.proof, ""
    for path in ("/events", "/report", f"/report?proof={proof}"):
        assert locked.get(path, cookie=cookie).status == 401
    how = {"cookie": cookie}
    with locked.open("GET", f"/events?proof={proof}", headers=how) as events:
        assert events.status == 200


def test_a_page_says_whether_its_browser_is_the_operators(page: Client) -> None:
    assert page.get("/session").json == {"operator": False}
    assert page.get("/session", cookie=page.enter(CODE)).json == {"operator": True}
    assert page.get("/session", cookie='a="; unweave=\x01').json == {"operator": False}


def test_errors_of_the_network_pass_through(page: Client) -> None:
    answer = page.post("/erasures", {"agent": "a2"}, cookie=page.enter(CODE))
    assert answer.status == 409
    assert answer.json["error"]["fix"] == "ask its owner"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[",
        b"[]",
        b'{"agent": 1}',
        b'{"agent": "a1", "more": 1}',
        b'{"agent": "a1", "keys": []}',
        b'{"agent": "a1", "keys": [1]}',
        b"[" * 100_000,
        b'{"agent": "' + b"a" * 201 + b'"}',
    ],
)
def test_a_malformed_request_is_refused(page: Client, body: bytes) -> None:
    answer = page.post("/erasures", body, cookie=page.enter(CODE))
    assert answer.status == 400
    assert "Fix: " in answer.json["error"]["message"]


def test_a_long_request_is_refused(page: Client) -> None:
    assert page.post("/session", b'"' + b"x" * (1 << 17)).status == 413


def test_a_download_is_never_a_page(page: Client) -> None:
    answer = page.get("/certificates/ab")
    assert answer.headers["content-disposition"] == 'attachment; filename="certificate-ab-.json"'


# ------------------------------------------------------------------------------ the access code


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_wrong_codes_do_not_lock_out_the_operator() -> None:
    """Another user of the machine could send them for ever."""
    access = Access(CODE)
    for _ in range(100):
        with pytest.raises(RequestRefused, match="the access code is wrong"):
            access.open_session("guess \ud800")
    assert access.is_operator(access.open_session(CODE))


@pytest.mark.parametrize("foreign", ['prefs={"x":[1,2]}', "x y=1", "tok=a,b", "=", "e@x=1"])
def test_cookies_of_other_programs_do_not_hide_the_own(foreign: str) -> None:
    headers = Headers(raw=[(b"cookie", f"{foreign}; unweave-8760=SECRET".encode())])
    assert _cookie(headers, "unweave-8760") == "SECRET"


def test_a_session_ends() -> None:
    clock = Clock()
    access = Access(CODE, clock=clock)
    session = access.open_session(CODE.upper().replace("-", " "))
    assert access.is_operator(session)
    clock.now = 12 * 3600.0
    assert not access.is_operator(session)


def test_sessions_are_few() -> None:
    access = Access(CODE)
    first = access.open_session(CODE)
    sessions = [access.open_session(CODE) for _ in range(100)]
    assert not access.is_operator(first)
    assert access.is_operator(sessions[-1])
    assert len(access._sessions) == 100


def test_codes_are_long_and_different() -> None:
    codes = {new_code() for _ in range(100)}
    assert len(codes) == 100
    assert all(re.fullmatch("([a-z2-9]{5}-){3}[a-z2-9]{5}", code) for code in codes)


def test_a_locked_page_shows_nothing_without_the_code(locked: Client) -> None:
    paths = ("/events", "/agents/a1", "/curves?name=p", "/moments/m", "/report", "/certificates/a")
    for path in paths:
        assert locked.get(path).status == 401
    assert locked.post("/verify", {}).status == 401
    assert locked.post("/erasures/preview", {"agent": "a1"}).status == 401
    assert locked.get("/").status == locked.get("/static/page.js").status == 200
    cookie = locked.enter(CODE)
    assert locked.get("/agents/a1", cookie=cookie).status == 200


def test_events_of_a_locked_page_end_with_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tab that stays open for ever would show all that happens."""
    monkeypatch.setattr(protection_module, "_SESSION", 1.0)
    monkeypatch.setattr(feed_module, "_HEARTBEAT", 0.05)
    for lock in (True, False):
        with PageServer(StillSource(), ANY, code=CODE, lock=lock) as server:
            client = Client(server)
            cookie = client.enter(CODE)
            with client.open("GET", "/events", headers={"cookie": cookie}) as events:
                began, beats = time.monotonic(), 0
                while (line := events.readline()) and time.monotonic() < began + 2.0:
                    beats += line == b"event: heartbeat\n"
                assert beats
                assert (line == b"") == lock


def test_whether_a_record_exists_is_told_to_the_operator_alone(page: Client) -> None:
    """A key may be a patient's number, and every account of this machine can read the page."""
    wish = {"agent": "a1"}
    assert page.post("/erasures/preview", wish).status == 200
    assert page.post("/erasures/preview", wish | {"keys": ["17"]}).status == 401
    cookie = page.enter(CODE)
    assert page.post("/erasures/preview", wish | {"keys": ["17"]}, cookie=cookie).status == 200


def test_beyond_this_machine_code_and_tls_are_needed(tmp_path: Path) -> None:
    for code in (None, CODE):
        with pytest.raises(ConfigError, match="access code and TLS"):
            PageServer(StillSource(), Address("0.0.0.0", 0), code=code)


def test_a_place_beyond_this_machine_knows_addresses_and_its_name() -> None:
    place = Place(Address("page.example", 8760), tls=True)
    assert place.knows("page.example:8760")
    assert place.knows("192.0.2.1:8760")
    assert not place.knows("evil.example:8760")
    assert not place.knows(None)


def test_a_connection_without_a_request_is_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(server_module, "_SILENT", 0.05)
    with PageServer(StillSource(), ANY, code=None) as server:
        with socket.create_connection(server.place.address, 30.0) as silent:
            silent.sendall(b"GET / HTTP/1.1\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert silent.recv(1) == b""
        with socket.create_connection(server.place.address, 9.0) as half:
            host = f"Host: {server.place.address}"
            half.sendall(f"GET /session HTTP/1.1\r\n{host}\r\n\r\n".encode())
            assert half.recv(10_000).startswith(b"HTTP/1.1 200")
            half.sendall(b"GET / HTTP/1.1\r\n")
            with contextlib.suppress(ConnectionResetError):
                while half.recv(1000):  # what is left of the answer, and the end
                    pass
        events = Client(server).events()
        assert next(events)[1] == "snapshot"  # a viewer stays
        time.sleep(0.1)
        assert Client(server).get("/session").status == 200


def test_a_connection_that_takes_nothing_of_its_answer_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the answer would stay in memory, and one of the page's connections be used, for ever."""

    class Long(StillSource):
        async def report(self) -> bytes:
            return bytes(24 << 20)  # more than the buffers of two sockets

    def open_connections(server: PageServer) -> int:
        assert server._server is not None
        return len(server._server.server_state.connections)

    monkeypatch.setattr(server_module, "_UNTAKEN", 0.5)
    with PageServer(Long(), ANY, code=None) as server:
        ask = f"GET /report HTTP/1.1\r\nHost: {server.place.address}\r\n\r\n".encode()
        with (
            socket.create_connection(server.place.address, 9.0) as slow,
            socket.create_connection(server.place.address, 9.0) as still,
        ):
            slow.sendall(ask)
            still.sendall(ask)
            taken = 0
            while taken < 24 << 20:  # who takes little at a time gets all of it
                part = slow.recv(256 << 10)
                assert part
                taken += len(part)
                time.sleep(0.015)
            slow.close()
            end = time.monotonic() + 9.0
            while open_connections(server):
                assert time.monotonic() < end
                time.sleep(0.02)


# ----------------------------------------------------------------------------------- the events


def test_events_begin_with_the_view(page: Client) -> None:
    events = page.events()
    ident, kind, view = next(events)
    assert (kind, view["title"]) == ("snapshot", "still")
    assert next(page.events("0-0"))[:2] == (ident, "snapshot")


def test_a_page_on_all_addresses_is_told_under_a_name() -> None:
    """Nobody can open https://0.0.0.0."""
    page = PageServer(StillSource(), ANY, code=CODE)
    page._listener.close()
    for host in ("0.0.0.0", "::"):
        page.place = Place(Address(host, 8760), tls=True)
        assert page.url == f"https://{socket.gethostname()}:8760/"


def test_a_taken_port_is_named() -> None:
    with PageServer(StillSource(), ANY, code=None) as server:
        taken = server.place.address
        with pytest.raises(ConfigError, match=f"{taken}.*--port"):
            PageServer(StillSource(), taken, code=None)
