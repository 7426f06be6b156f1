"""The HTTP application: the page, its events, and its requests (the table is in `view`).

It answers from one source. What a source refuses is answered as JSON, with the fix.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from unweave.bounded import load_json
from unweave.errors import ConfigError, UnweaveError
from unweave.json_form import as_json
from unweave.text import clip, crash
from unweave.web.feed import ViewFeed
from unweave.web.protection import (
    Access,
    BrowserSession,
    Place,
    Protection,
    RequestRefused,
    failure,
)
from unweave.web.source import NotFound, ViewSource
from unweave.web.view import Control, ErasureWish, SessionWish

__all__ = ["STATIC", "build_app"]

STATIC = Path(__file__).parent / "static"

_GUESS = 0.5  # seconds that a wrong access code takes
_SMALL = 64 << 10  # bytes of a small request
_LARGE = 16 << 20  # of a list of keys, or a certificate
_VIEWERS = 300
_CURVES = 12  # parameters of one request
_MOMENTS = 4
_STUCK = (
    30.0  # seconds for a request's body; and after which a viewer is dropped that takes nothing
)

_session = TypeAdapter(SessionWish)
_wish = TypeAdapter(ErasureWish)
_control = TypeAdapter(Control)

Answer = Callable[[Request], Awaitable[Response]]


def build_app(
    source: ViewSource, feed: ViewFeed, place: Place, access: Access, static: Path = STATIC
) -> ASGIApp:
    """The application. While it runs, the source writes to `feed`."""
    page = _Page(source, feed, access)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        running = asyncio.create_task(page.run())
        try:
            yield
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    async def index(request: Request) -> Response:
        return FileResponse(static / "index.html", headers={"cache-control": "no-cache"})

    def get(path: str, answer: Answer) -> Route:
        return Route(path, _answering(answer), methods=["GET"])

    def post(path: str, answer: Answer) -> Route:
        return Route(path, _answering(answer), methods=["POST"])

    app = Starlette(
        routes=[
            get("/", index),
            get("/events", page.events),
            get("/curves", page.curves),
            get("/moments/{id:path}", page.moment),
            get("/agents/{name:path}", page.agent),
            get("/certificates/{request}", page.certificate),
            get("/report", page.report),
            get("/session", page.session),
            post("/session", page.open_session),
            post("/verify", page.verify),
            post("/erasures/preview", page.preview),
            post("/erasures", page.erase),
            post("/controls", page.control),
            Mount("/static", _Static(directory=static, check_dir=False)),
        ],
        lifespan=lifespan,
        exception_handlers={HTTPException: _no_such_page},
    )
    protection = Protection(app, place, access)
    page.set_cookie = protection.set_cookie
    return protection


class _Static(StaticFiles):
    """Files of the page. A browser asks whether they have changed: a new version takes effect."""

    def file_response(self, *args: Any, **how: Any) -> Response:
        response = super().file_response(*args, **how)
        response.headers["cache-control"] = "no-cache"
        return response


class _Page:
    """Answers the requests of `view`'s table."""

    def __init__(self, source: ViewSource, feed: ViewFeed, access: Access) -> None:
        self._source, self._feed, self._access = source, feed, access
        self.set_cookie: Callable[[Response, BrowserSession], None]

    async def run(self) -> None:
        """Run the source. If it fails, the page says so."""
        try:
            await self._source.run(self._feed)
        except UnweaveError as error:
            self._feed.change({"summary": {"state": "failed", "text": str(error)}})
        except Exception as error:
            self._feed.change({"summary": {"state": "failed", "text": crash(error)}})

    async def events(self, request: Request) -> Response:
        if self._feed.viewers >= _VIEWERS:
            raise RequestRefused(503, f"{_VIEWERS} pages are open. Fix: close some of them")
        last = request.headers.get("last-event-id")
        return _EventStream(self._feed, last, request.scope["may_read"])

    async def curves(self, request: Request) -> Response:
        names, moments = (request.query_params.getlist(key) for key in ("name", "moment"))
        if not 1 <= len(names) <= _CURVES or len(moments) > _MOMENTS:
            raise ConfigError(
                f"curves: {len(names)} parameters and {len(moments)} moments. Fix: ask for 1 to "
                f"{_CURVES} parameters and at most {_MOMENTS} moments"
            )
        return _json(await self._source.curves(names, moments))

    async def moment(self, request: Request) -> Response:
        return _json(await self._source.moment(request.path_params["id"]))

    async def agent(self, request: Request) -> Response:
        return _json(await self._source.agent(request.path_params["name"]))

    async def certificate(self, request: Request) -> Response:
        name, content = await self._source.certificate(request.path_params["request"])
        return _file(name, content, "application/json")

    async def report(self, request: Request) -> Response:
        return _file("report.html", await self._source.report(), "text/html")

    async def session(self, request: Request) -> Response:
        return _json({"operator": request.scope["operator"]})

    async def open_session(self, request: Request) -> Response:
        wish = _read(_session, await _body(request, _SMALL), "session")
        try:
            session = self._access.open_session(wish["code"])
        except RequestRefused:
            await asyncio.sleep(_GUESS)
            raise
        response = _json({"operator": True, "proof": session.proof})
        self.set_cookie(response, session)
        return response

    async def verify(self, request: Request) -> Response:
        return _json(await self._source.verify(await _body(request, _LARGE)))

    async def preview(self, request: Request) -> Response:
        wish = _read(_wish, await _body(request, _LARGE), "erasure")
        if "keys" in wish:  # other readers of the page must not learn whose records there are
            _demand_operator(request)
        return _json(await self._source.preview(wish))

    async def erase(self, request: Request) -> Response:
        _demand_operator(request)
        wish = _read(_wish, await _body(request, _LARGE), "erasure")
        return _json({"request": await self._source.erase(wish)})

    async def control(self, request: Request) -> Response:
        _demand_operator(request)
        await self._source.control(_read(_control, await _body(request, _SMALL), "control"))
        return _json({})


def _demand_operator(request: Request) -> None:
    if not request.scope["operator"]:
        raise RequestRefused(
            401,
            "only the operator may do this. Fix: enter the access code that the terminal shows",
        )


def _answering(answer: Answer) -> Answer:
    """Errors become JSON. The text of an unexpected one may quote a record, so it is not shown."""

    async def respond(request: Request) -> Response:
        try:
            return await answer(request)
        except NotFound as error:
            return failure(error, 404)
        except UnweaveError as error:
            return failure(error)
        except Exception as error:
            return failure(UnweaveError(crash(error)), 500)

    return respond


async def _no_such_page(request: Request, error: Exception) -> Response:
    status = cast("HTTPException", error).status_code
    what = clip(request.url.path, 80)
    if status == 405:
        return failure(UnweaveError(f"{what}: not with {request.method}. Fix: see the docs"), 405)
    return failure(UnweaveError(f"{what}: nothing is here. Fix: open the page at /"), status)


async def _body(request: Request, most: int) -> bytes:
    """The body of a request, at most `most` bytes of it."""
    raw = bytearray()
    try:
        async with asyncio.timeout(_STUCK):
            async for chunk in request.stream():
                raw += chunk
                if len(raw) > most:
                    why = f"{request.url.path}: longer than {most} bytes. Fix: send less"
                    raise RequestRefused(413, why)
    except TimeoutError:
        raise RequestRefused(
            408, f"{request.url.path}: sent too slowly. Fix: send it again"
        ) from None
    return bytes(raw)


def _read(form: TypeAdapter[Any], raw: bytes, what: str) -> Any:
    try:
        return form.validate_python(load_json(raw))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = clip(".".join(map(str, first["loc"])) or what, 80)
        why = first["msg"]
        raise ConfigError(f"{what}, {place}: {why[0].lower()}{why[1:]}. Fix: correct it") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{what}: not JSON. Fix: send one JSON object") from None


def _json(value: object) -> Response:
    return Response(as_json(value), media_type="application/json")


def _file(name: str, content: bytes, kind: str) -> Response:
    """A download: never shown as a page of this origin."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in name)
    headers = {"content-disposition": f'attachment; filename="{safe}"'}
    return Response(content, headers=headers, media_type=kind)


class _EventStream(Response):
    """Server-sent events for one viewer, until it leaves, takes nothing for a while, or may not
    read any more: its session has ended."""

    def __init__(self, feed: ViewFeed, last: str | None, may_read: Callable[[], bool]) -> None:
        super().__init__(media_type="text/event-stream")
        del self.headers["content-length"]
        self._feed, self._last, self._may_read = feed, last, may_read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        async with aclosing(self._feed.events(self._last)) as events:
            async for chunk in events:
                more = self._may_read()
                body = chunk if more else b""
                async with asyncio.timeout(_STUCK):
                    await send({"type": "http.response.body", "body": body, "more_body": more})
                if not more:
                    return


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
