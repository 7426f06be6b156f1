"""A page without a network, and a client of a page that can lie about where it comes from."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unweave.errors import UnweaveError
from unweave.web.server import PageServer
from unweave.web.source import Feed, NotFound
from unweave.web.view import (
    AgentDetails,
    Control,
    CurvesAnswer,
    ErasurePreview,
    ErasureWish,
    MomentAnswer,
    Verification,
    View,
)

__all__ = ["Answer", "Client", "StillSource", "page_files", "still_view"]


def still_view(**more: Any) -> View:
    """A view in which nothing happens."""
    view: Any = {
        "title": "still",
        "kind": "simulation",
        "clock": 0.0,
        "model": "beta_bernoulli",
        "settings": {},
        "privacy": "plain",
        "seen": "Neighbours see factors.",
        "may_erase": ["a1"],
        "summary": {"state": "rest", "text": "At rest.", "agents": {"in": 1}, "hops": 0},
        "graph": {"names": ["a1"], "edges": [], "places": [(0.5, 0.5)]},
        "agents": {"a1": {"index": 0, "state": "in", "attested": True}},
        "token": {"state": "parked", "at": 0},
        "waits": {},
        "posterior": {"state": "none", "why": "No posterior."},
        "series": {},
        "erasures": {},
        "timeline": {},
    }
    view |= more
    found: View = view
    return found


@dataclass
class StillSource:
    """Answers every request with what it was asked."""

    first: View = field(default_factory=still_view)
    asked: list[Any] = field(default_factory=list)

    def view(self) -> View:
        return self.first

    async def run(self, feed: Feed) -> None:
        return

    async def curves(self, names: Sequence[str], moments: Sequence[str]) -> CurvesAnswer:
        return {"version": "1", "curves": {name: [] for name in names}}

    async def moment(self, moment: str) -> MomentAnswer:
        return {"label": moment, "parameters": []}

    async def agent(self, name: str) -> AgentDetails:
        if name != "a1":
            raise NotFound(f"agent {name}: unknown. Fix: choose a1")
        return {"name": name, "facts": {}, "receipts": [], "influence_text": "none"}

    async def certificate(self, request: str) -> tuple[str, bytes]:
        return f'certificate-{request}".json', b"{}"

    async def report(self) -> bytes:
        raise RuntimeError("a record: 17")

    async def verify(self, certificate: bytes) -> Verification:
        return {
            "valid": False,
            "text": f"{len(certificate)} bytes",
            "erasures": [],
            "proves": [],
            "does_not_prove": [],
        }

    async def preview(self, wish: ErasureWish) -> ErasurePreview:
        return {"what": wish["agent"], "steps": [], "shown": [], "irreversible": "yes"}

    async def erase(self, wish: ErasureWish) -> str:
        if wish["agent"] != "a1":
            raise UnweaveError("the network refuses. Fix: ask its owner")
        self.asked.append(wish)
        return "00" * 16

    async def control(self, control: Control) -> None:
        self.asked.append(control)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Sends requests with exactly these headers, to the address of `page`."""

    def __init__(self, page: PageServer) -> None:
        self.page = page
        self.host = str(page.place.address)
        self.proof = ""

    def ask(
        self, method: str, path: str, body: object = None, *, headers: dict[str, str] | None = None
    ) -> Answer:
        with self.open(method, path, body, headers=headers) as response:
            return Answer(response.status, _headers(response), response.read())

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=_named(headers))

    def post(self, path: str, body: object = None, **headers: str) -> Answer:
        kind = {"content-type": "application/json"}
        return self.ask("POST", path, body, headers=kind | _named(headers))

    @contextmanager
    def open(
        self, method: str, path: str, body: object = None, *, headers: dict[str, str] | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection(*self.page.place.address, timeout=30)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            given = {"host": self.host, "x-unweave-proof": self.proof} | (headers or {})
            if raw is not None:
                given.setdefault("content-length", str(len(raw)))
            for name, value in given.items():
                if value:
                    connection.putheader(name, value)
            connection.endheaders(raw)
            yield connection.getresponse()
        finally:
            connection.close()

    def events(self, last: str | None = None) -> Iterator[tuple[str, str, Any]]:
        """(id, event, data) of each message."""
        headers = {} if last is None else {"last-event-id": last}
        with self.open("GET", "/events", headers=headers) as response:
            assert response.status == 200
            message: dict[str, str] = {}
            for line in response:
                key, sign, value = line.decode().rstrip("\n").partition(": ")
                if sign and key:
                    message[key] = value
                elif not key and message:
                    yield message["id"], message["event"], json.loads(message["data"])
                    message = {}

    def enter(self, code: str) -> str:
        """The cookie for an access code. The proof is sent from now on."""
        answer = self.post("/session", {"code": code})
        assert answer.status == 200, answer.body
        self.proof = answer.json["proof"]
        return answer.headers["set-cookie"].partition(";")[0]


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def page_files(folder: Path) -> Path:
    """A folder with a page, for tests that do not look at it."""
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html><title>page</title>")
    (folder / "page.js").write_text("export {};")
    return folder
