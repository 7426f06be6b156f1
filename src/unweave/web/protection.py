"""What stands between the page and everybody else who can reach its port.

Any web page in the operator's browser can send requests to this machine, and can let a name of its
own resolve to it. So every request must come under a known host name, and from the page itself;
only a person who follows a link may come from elsewhere, and gets the page. What changes anything
needs the operator's access code, which a browser exchanges once for a cookie and a proof. Cookies
do not know ports: a browser sends them to pages of every other account of this machine, too. The
proof is kept by the page's scripts, which those of another port cannot read.

    Access           the access code, and the sessions that it opened
    BrowserSession   what a browser shows of one
    Place            the host names under which the page is served
    Protection       the checks before a request, and the headers of every answer
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unweave.address import Address
from unweave.errors import UnweaveError
from unweave.json_form import as_json, error_report

__all__ = [
    "Access",
    "BrowserSession",
    "Place",
    "Protection",
    "RequestRefused",
    "failure",
    "is_loopback",
    "new_code",
]

_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"  # without characters that look alike
_GROUPS, _LETTERS = 4, 5  # 20 letters: 99 bits
_SESSION = 12 * 3600.0  # seconds
_SESSIONS = 100
_PROOF = "x-unweave-proof"  # a header
_LONGEST_CODE = 200

# The page needs nothing but its own files and requests. Scripts cannot write HTML at all.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


class RequestRefused(UnweaveError):
    """A request that is refused, with its HTTP status."""

    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status, self.headers = status, headers


def failure(error: UnweaveError, status: int | None = None) -> Response:
    """An error as JSON: what, where, and what to do."""
    headers = {}
    if isinstance(error, RequestRefused):
        status, headers = error.status, error.headers
    if status is None:
        status = 400 if error.exit_code == 2 else 409
    return Response(as_json(error_report(error)), status, headers, "application/json")


def new_code() -> str:
    """An access code that a person can type: 20 random letters and digits."""
    letters = (secrets.choice(_ALPHABET) for _ in range(_GROUPS * _LETTERS))
    text = "".join(letters)
    return "-".join(text[i : i + _LETTERS] for i in range(0, len(text), _LETTERS))


class BrowserSession(NamedTuple):
    """The cookie, and the proof that the request comes from this page."""

    cookie: str
    proof: str


class Access:
    """Decides who is the operator. Without a code everybody is. `lock`: the code is needed for
    reading, too."""

    def __init__(
        self,
        code: str | None,
        *,
        lock: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.code, self.lock = code, lock and code is not None
        self._clock = clock
        self._sessions: dict[bytes, float] = {}  # digest → when it ends

    def open_session(self, given: str) -> BrowserSession:
        """A session for the right code; raises `RequestRefused` for a wrong one. Wrong codes lock
        nobody out: 99 bits cannot be guessed, and another user of this machine could lock out the
        operator."""
        now = self._clock()
        if self.code is not None and not _same(given, self.code):
            raise RequestRefused(
                401,
                "session: the access code is wrong. Fix: copy it from the terminal where the page "
                "was started",
            )
        while len(self._sessions) >= _SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        session = BrowserSession(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        self._sessions[_digest(session)] = now + _SESSION
        return session

    def is_operator(self, shown: BrowserSession) -> bool:
        if self.code is None:
            return True
        return self._sessions.get(_digest(shown), 0.0) > self._clock()


def _same(given: str, code: str) -> bool:
    """Compared in constant time; capitals, hyphens and spaces do not matter."""
    plain = [one[:_LONGEST_CODE].replace("-", "").replace(" ", "").lower() for one in (given, code)]
    return hmac.compare_digest(plain[0].strip().encode(errors="replace"), plain[1].encode())


def _digest(session: BrowserSession) -> bytes:
    return hashlib.sha256("\n".join(session).encode()).digest()


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Place:
    """Where the page is served."""

    address: Address
    tls: bool = False

    @property
    def loopback(self) -> bool:
        return is_loopback(self.address.host)

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.address}"

    @property
    def scheme(self) -> str:
        return "https" if self.tls else "http"

    def knows(self, host: str | None) -> bool:
        """Whether a Host header names this server. The port may be that of a tunnel. A page cannot
        take an IP address for its own name, so on other addresses than loopback any will do."""
        where = None if host is None else Address.parse(host) or Address.parse(f"{host}:0")
        if where is None:
            return False
        if self.loopback:
            return is_loopback(where.host)
        try:
            return bool(ipaddress.ip_address(where.host))
        except ValueError:
            names = {self.address.host, socket.gethostname(), socket.getfqdn()}
            return where.host.lower() in {name.lower() for name in names}


class Protection:
    """Checks every request before `app` sees it, and adds headers to every answer."""

    def __init__(self, app: ASGIApp, place: Place, access: Access) -> None:
        self._app, self._place, self._access = app, place, access
        # Cookies do not know ports: two pages on one machine must not share a name.
        self.cookie = f"unweave-{place.address.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        try:
            scope["operator"] = self._check(scope, Headers(scope=scope))
        except RequestRefused as refused:
            await failure(refused)(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)

    def set_cookie(self, response: Response, session: BrowserSession) -> None:
        response.set_cookie(
            self.cookie,
            session.cookie,
            max_age=int(_SESSION),
            path="/",
            secure=self._place.tls,
            httponly=True,
            samesite="strict",
        )

    def _check(self, scope: Scope, headers: Headers) -> bool:
        """Whether the request is the operator's; raises `RequestRefused`. `may_read` in the scope
        tells whether an answer that takes long may go on."""
        method, path, host = scope["method"], scope["path"], headers.get("host")
        if not self._place.knows(host):
            raise RequestRefused(
                421,
                "the request names an unknown host. Fix: open the address that the terminal shows",
            )
        if method not in ("GET", "POST"):
            raise RequestRefused(
                405, "only GET and POST are served. Fix: use one of them", allow="GET, POST"
            )
        if self._is_foreign(headers, str(host), method) and not _follows_link(scope, headers):
            raise RequestRefused(
                403,
                "the request comes from another page. Fix: open the address that the terminal "
                "shows",
            )
        if method == "POST":
            # Another page could send a form or plain text without asking first; these it cannot.
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            file = path == "/verify" and kind == "application/octet-stream"
            if kind != "application/json" and not file:
                raise RequestRefused(
                    415, f"{path}: not JSON. Fix: send Content-Type: application/json"
                )
        shown = BrowserSession(_cookie(headers, self.cookie) or "", _proof(scope, headers))
        operator = self._access.is_operator(shown)
        scope["may_read"] = lambda: not self._access.lock or self._access.is_operator(shown)
        public = path in ("/", "/session") or path.startswith("/static/")
        if self._access.lock and not operator and not public:
            raise RequestRefused(
                401, "the page is locked. Fix: enter the access code that the terminal shows"
            )
        return operator

    def _is_foreign(self, headers: Headers, host: str, method: str) -> bool:
        """Browsers say where a request comes from; programs without these headers carry no cookie
        of the operator's browser."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is not None and origin.lower() != f"{self._place.scheme}://{host}".lower():
            return True
        typed = "none" if method != "POST" else None  # an address that a person typed
        return site not in (None, "same-origin", typed)


def _follows_link(scope: Scope, headers: Headers) -> bool:
    """A person may come to the page from anywhere; frames, scripts and images may not."""
    return (
        scope["method"] == "GET"
        and scope["path"] == "/"
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
        and "origin" not in headers
    )


def _proof(scope: Scope, headers: Headers) -> str:
    """Of `EventSource`, which sends no headers of a page's choice, in the address."""
    query = scope["query_string"] if scope["path"] == "/events" else b""
    return headers.get(_PROOF) or QueryParams(query).get("proof", "")


def _cookie(headers: Headers, name: str) -> str | None:
    """As browsers write it: cookies of other programs on this machine may have any form."""
    return cookie_parser(headers.get("cookie", "")).get(name)
