"""The operator's API of one agent: HTTP and JSON on a Unix socket (mode 0600) in its folder.

    curl --unix-socket clinics/agents/north/agent.sock http://agent/status

The peer port never serves operators, and this socket never serves peers.

    Api          the requests of `routes.ROUTES`, on the socket
    Monitoring   /metrics and /healthz, on a TCP port
    HttpServer   uvicorn inside the agent's event loop, for both
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import secrets
import socket
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator
from typing import Any

from pydantic import ValidationError

from unweave.address import Address
from unweave.bounded import load_json
from unweave.errors import ConfigError, DataError, MissingExtra, UnweaveError
from unweave.json_form import as_json, error_report
from unweave.node.api.metrics import Metrics
from unweave.node.api.report import (
    brief_report,
    erasure_report,
    forgotten_report,
    posterior_report,
    receipts_report,
    short_report,
    status_report,
)
from unweave.node.api.routes import (
    ROUTES,
    ChangesQuery,
    EraseRequest,
    ErasureQuery,
    InfluenceRequest,
    Nothing,
    PosteriorQuery,
    PreviewRequest,
    VoteRequest,
    WaitQuery,
    openapi,
)
from unweave.node.api.sockets import short
from unweave.node.data.private import PrivateData
from unweave.node.data.watch import DataWatch
from unweave.node.driver import AgentDriver, NotReady, measure_influence
from unweave.node.erasures import asked_before, erased_before
from unweave.node.process import RESTART_FILE
from unweave.protocol.events import EraseRequested, Refused, VoteCast, WakeRequested
from unweave.protocol.requests import ERASED_ITSELF
from unweave.protocol.token import request_id, requested_of
from unweave.text import clip, listed

__all__ = ["Api", "HttpServer", "Monitoring"]


try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError:
    raise MissingExtra("uvicorn and starlette", "node", "the operator's API") from None


_BODY = 16 << 20  # bytes of the longest request: a list of keys to erase
_KEPT = 5.0  # seconds that a posterior is cached
_ROWS = 100_000  # records in one erasure; they travel as one message
_IDLE = 24 * 3600  # seconds that a command may keep its connection without a request
_LIFETIME = 10.0  # seconds of a connection to the TCP port
_GRACE = 1  # seconds for answers under way when the agent stops


# ------------------------------------------------------------------------------- serving HTTP


class _Server(uvicorn.Server):
    """uvicorn inside an agent's event loop. The agent handles the signals. The loop is idle between
    requests: uvicorn's own main loop wakes ten times a second for a Date header."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ended = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def main_loop(self) -> None:
        self.server_state.default_headers = self.config.encoded_headers
        await self.ended.wait()


class _ShortConnection(H11Protocol):
    """A connection that ends after some seconds, whatever the other side sends. Connections without
    a limit could take all file descriptors, which the store needs, too."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        asyncio.get_running_loop().call_later(_LIFETIME, transport.abort)


class HttpServer:
    """Serves one app on one listening socket."""

    def __init__(self, app: ASGIApp, *, untrusted: bool) -> None:
        """`untrusted`: one request per connection, bounded in time."""
        self._config = uvicorn.Config(
            app,
            http=_ShortConnection if untrusted else H11Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",  # the app answers and logs every error itself
            access_log=False,
            server_header=False,
            date_header=False,
            headers=[("connection", "close")] if untrusted else [],
            timeout_keep_alive=_IDLE,
            timeout_graceful_shutdown=_GRACE,
        )
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, listener: socket.socket) -> None:
        self._server = _Server(self._config)
        self._task = asyncio.create_task(self._server.serve([listener]))
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0)
        if self._task.done():
            self._task.result()

    async def stop(self) -> None:
        if self._server is not None and self._task is not None:
            self._server.ended.set()
            await asyncio.wait({self._task})  # a cancelled caller does not cancel the server's end
            self._task.result()


class Api:
    """Serves the operator of one agent."""

    def __init__(self, node: AgentDriver, data: PrivateData, freshness: DataWatch) -> None:
        self.node = node
        self.data = data
        self.freshness = freshness
        self.metrics = Metrics(node)
        self._inode = 0
        self._cached: dict[str, Any] | None = None  # the last report of the posterior
        self._under_way = 0  # requests that are answered now
        self._commands: dict[str, Callable[[Any], Awaitable[dict[str, Any]]]] = {
            "status": self._status,
            "posterior": self._posterior,
            "forgotten": self._forgotten,
            "influence": self._influence,
            "erase": self._erase,
            "preview": self._preview,
            "erasure": self._erasure,
            "vote": self._vote,
            "wake": self._wake,
            "learn": self._learn,
            "backup": self._backup,
            "wait": self._wait,
            "changes": self._changes,
            "receipts": self._receipts,
            "stop": self._stop,
        }
        routes = [
            Route(r.path, self._endpoint(r.name), methods=[r.method]) for r in ROUTES.values()
        ]
        document = Route("/openapi.json", _openapi, methods=["GET"])
        self.app = Starlette(routes=[*routes, document, *_monitoring(self.metrics)])
        self._server = HttpServer(self.app, untrusted=False)

    async def start(self) -> None:
        path = self.node.folder.socket
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        previous = os.umask(0o177)
        try:
            # The store is locked, so no other process serves this folder.
            path.unlink(missing_ok=True)
            with short(path) as where:
                listener.bind(where)
            self._inode = path.stat().st_ino
        except OSError as error:
            listener.close()
            raise ConfigError(
                f"{path}: the control socket cannot be made ({error.strerror}). Fix: use a "
                "writable folder on a local disk, and remove any other file of this name"
            ) from None
        finally:
            os.umask(previous)
        await self._server.start(listener)
        (path.parent / RESTART_FILE).unlink(missing_ok=True)

    async def stop(self) -> None:
        self.node.log.recent.end()
        await self._server.stop()
        path = self.node.folder.socket
        with contextlib.suppress(FileNotFoundError):
            if self._inode and path.stat().st_ino == self._inode:  # else a later process made it
                path.unlink()

    async def call(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        """Validate the parameters of one request and answer it."""
        return await self._answer(name, _validated(name, given))

    async def _answer(self, name: str, asked: Nothing) -> dict[str, Any]:
        waits = name in ("wait", "changes")
        self._under_way += not waits
        try:
            return await self._commands[name](asked)
        finally:
            self._under_way -= not waits

    @property
    def busy(self) -> bool:
        """Whether a request is being answered, other than one that waits for news."""
        return self._under_way > 0

    def _endpoint(self, name: str) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            try:
                given = {**request.query_params, **request.path_params}
                if request.method == "POST":
                    given |= await _body(request)
                asked = _validated(name, given)
                if isinstance(asked, ChangesQuery) and asked.follow:
                    return StreamingResponse(self._follow(asked), media_type="application/x-ndjson")
                return _json(await self._answer(name, asked))
            except _TooLong as error:
                return _failure(413, error)
            except UnweaveError as error:
                return _failure(400 if error.exit_code == 2 else 409, error)
            except Exception as error:
                self.node.log.failure("a request of the operator failed", error, request=name)
                return _failure(
                    500, UnweaveError(f"{name}: an error in the agent. Fix: read its log")
                )

        return respond

    # --------------------------------------------------------------------------------- requests

    async def _status(self, asked: Nothing) -> dict[str, Any]:
        await self.node.awake()
        return {"status": status_report(self.node)}

    async def _posterior(self, asked: PosteriorQuery) -> dict[str, Any]:
        await self.node.awake()
        everything = asked.everything
        before = None if everything else self._cached
        more = {"erasures": asked.erasures, "secret": asked.secret, "marginals": asked.marginals}
        report = await asyncio.to_thread(posterior_report, self.node, everything, before, **more)
        if not asked.units:
            report.pop("units", None)
        elif not everything and not asked.secret and asked.marginals:
            self._cached = report
            asyncio.get_running_loop().call_later(_KEPT, self._drop, report)
        return {"posterior": brief_report(report) if asked.brief else report}

    def _drop(self, report: dict[str, Any]) -> None:
        """An old report may include records that have been erased since."""
        if self._cached is report:
            self._cached = None

    async def _forgotten(self, asked: Nothing) -> dict[str, Any]:
        await self.node.awake()
        state = self.node.state
        if state is None:
            raise NotReady(
                f"{self.node.folder.config.name}: the store is not open yet. Fix: try again"
            )
        return {"forgotten": forgotten_report(state)}

    async def _influence(self, asked: InfluenceRequest) -> dict[str, Any]:
        if self.node.terms.masked or not asked.publish:
            return {"influence": await self._own_influence()}
        await self.node.publish()
        state = self.node.state
        known = {} if state is None else state.known.influences
        name = self.node.terms.name
        return {"influence": {name(k): f.influence for k, f in sorted(known.items())}}

    async def _own_influence(self) -> dict[str, float | None]:
        """In a network with private rounds no agent publishes its influence; elsewhere its operator
        may ask for it alone."""
        state, node = self.node.state, self.node
        found = (
            None if state is None else await asyncio.to_thread(measure_influence, node.model, state)
        )
        return {} if found is None else {node.folder.config.name: found.influence}

    async def _erase(self, asked: EraseRequest) -> dict[str, Any]:
        whole = asked.whole
        rows = absent = frozenset[bytes]()
        if asked.keys is not None:
            rows, absent = await self._rows_of(asked.keys, asked.missing_ok, write=True)
        state, before = self.node.state, 0
        if state is not None and asked.request is None:
            earlier, fresh = asked_before(state, rows)
            known = erased_before(state) if whole else (None if fresh else earlier)
            if known is not None:  # the certificate of that request proves this one
                if asked.at_once and known in state.own.waiting.requests:
                    again = EraseRequested(known, False, rows, time.monotonic(), at_once=True)
                    self._raise_refusal(await self.node.tell(again))
                return {"request": known.hex(), "before": len(rows)}
            before, rows = len(rows) - len(fresh), fresh
        if len(rows) > _ROWS:
            raise ConfigError(
                f"{len(rows)} records in one request. Fix: ask for at most {_ROWS} at a time "
                "(every agent keeps the commitments of erased records)"
            )
        ident = self._ident(asked.request, self.node.me)
        now, absent_rows = time.monotonic(), len(rows & absent)
        event = EraseRequested(ident, whole, rows, now, absent_rows, time.time(), asked.at_once)
        self._raise_refusal(await self.node.tell(event))
        return {"request": ident.hex(), "before": before}

    async def _preview(self, asked: PreviewRequest) -> dict[str, Any]:
        await self.node.awake()
        rows, absent = await self._rows_of(asked.keys, asked.missing_ok, write=False)
        state = self.node.state
        fresh = rows if state is None else asked_before(state, rows)[1]
        if fresh and state is not None and state.tomb.whole:
            raise UnweaveError(ERASED_ITSELF)
        return {"records": len(rows), "before": len(rows) - len(fresh), "absent": len(absent)}

    async def _rows_of(
        self, keys: list[str | int], missing_ok: bool, *, write: bool
    ) -> tuple[frozenset[bytes], frozenset[bytes]]:
        """The commitments of the records with these keys, and of those that are not in the data."""
        found, unknown = await asyncio.to_thread(self.data.commit_keys, keys, write=write)
        absent = frozenset[bytes]()
        if missing_ok:
            absent, unknown = self.data.commit_absent(unknown, write=write)
        if unknown:
            missing = set(unknown)
            lines = [n for n, key in enumerate(keys, 1) if key in missing]
            raise DataError(
                f"{len(unknown)} of {len(keys)} keys are not in the data of "
                f"{self.node.folder.config.name} (key number {listed(lines, 5)}). Fix: check the "
                "keys file (one key per line); for keys that the data do not hold any more, use "
                "--missing-ok"
            )
        return found | absent, absent

    async def _erasure(self, asked: ErasureQuery) -> dict[str, Any]:
        return {"erasure": erasure_report(self.node, bytes.fromhex(asked.request))}

    async def _vote(self, asked: VoteRequest) -> dict[str, Any]:
        target = self.node.terms.topology.index(asked.agent)
        ident = self._ident(asked.request, target)
        if not asked.lying:
            await self.node.probe(target)
        vote = VoteCast(target, ident, time.monotonic(), asked.lying)
        self._raise_refusal(await self.node.tell(vote))
        state = self.node.state
        votes = 0 if state is None else sum(1 for t, _ in state.known.votes if t == target)
        return {"request": ident.hex(), "votes": votes, "quorum": self.node.terms.quorum}

    def _ident(self, given: str | None, agent: int) -> bytes:
        """A new request id about `agent`, or the given one if it is about `agent`."""
        if given is None:
            return request_id(agent, secrets.token_bytes(12))
        ident = bytes.fromhex(given)
        if requested_of(ident) != agent:
            name = self.node.terms.name(agent)
            raise ConfigError(
                f"request {given}: not an id of a request about {name}. Fix: leave it out"
            )
        return ident

    async def _wake(self, asked: Nothing) -> dict[str, Any]:
        state = self.node.state
        before = (
            None if state is None or state.token.parked is None else list(state.token.parked.stamp)
        )
        await self.node.tell(WakeRequested(time.monotonic()))
        return {"before": before}

    async def _learn(self, asked: Nothing) -> dict[str, Any]:
        """Read the data; changed data become a new revision."""
        changed, state = await self.freshness.look(), self.node.state
        waits = changed and state is not None and state.own.waiting.data
        return {"changed": changed} | ({"by": state.own.waiting.due} if waits and state else {})

    async def _backup(self, asked: Nothing) -> dict[str, Any]:
        """The socket has the same permissions as the store's file."""
        return {"store": b64encode(await self.node.image()).decode()}

    async def _wait(self, asked: WaitQuery) -> dict[str, Any]:
        return {"news": await self.node.changed(asked.timeout)}

    async def _changes(self, asked: ChangesQuery) -> dict[str, Any]:
        await self.node.awake()
        recent = self.node.log.recent
        await recent.wait(asked.run, asked.after, asked.timeout, asked.collect)
        return {"changes": recent.since(asked.run, asked.after) | short_report(self.node)}

    async def _follow(self, asked: ChangesQuery) -> AsyncGenerator[str]:
        """One answer a line. A request for each of them would cost the agent several times as much:
        its process would wake up twice, after pauses in which others have used the caches."""
        recent, run, after = self.node.log.recent, asked.run, asked.after
        try:
            while not recent.ended:
                await recent.wait(run, after, asked.timeout, asked.collect, asked.every)
                await asyncio.sleep(0)  # what the protocol sends now goes first
                await self.node.awake()
                found = recent.since(run, after)
                run, after = found["run"], found["number"]
                yield as_json({"changes": found | short_report(self.node)}) + "\n"
        except UnweaveError:
            return  # the reader asks again, and is told why
        except Exception as error:
            self.node.log.failure("a request of the operator failed", error, request="changes")

    async def _receipts(self, asked: Nothing) -> dict[str, Any]:
        return {"receipts": receipts_report(self.node)}

    async def _stop(self, asked: Nothing) -> dict[str, Any]:
        self.node.stop()
        return {}

    @staticmethod
    def _raise_refusal(effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Refused):
                raise UnweaveError(effect.why)


class Monitoring:
    """Serves `/metrics` and `/healthz`, and nothing else, on the TCP address in agent.toml.

    A web page can let its own name resolve to this address, and a browser here would show it the
    answers. So requests under a name are refused unless agent.toml names it (`hosts`).
    """

    def __init__(self, node: AgentDriver, where: str, hosts: Collection[str] = ()) -> None:
        address = Address.parse(where)
        if address is None:
            raise ConfigError(
                f'metrics = "{where}": expected "host:port" with a port up to 65535, or "" for '
                "none. Fix: correct it in agent.toml"
            )
        self.host, self.port = address
        app = Starlette(routes=_monitoring(Metrics(node)))
        known = _KnownHosts(app, ("localhost", self.host, *hosts))
        self._server = HttpServer(known, untrusted=True)

    async def start(self) -> None:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            listener = socket.create_server(found[0][4][:2], family=found[0][0])
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            where = Address(self.host, self.port)
            raise ConfigError(
                f"metrics: cannot listen on {where} ({why}). Fix: choose another address in "
                "agent.toml"
            ) from None
        self.port = listener.getsockname()[1]
        await self._server.start(listener)

    async def stop(self) -> None:
        await self._server.stop()


def _validated(name: str, given: dict[str, Any]) -> Nothing:
    try:
        return ROUTES[name].takes.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = clip(".".join(map(str, first["loc"])) or name, 80)
        why = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{place}: {why[0].lower()}{why[1:]}. Fix: see /openapi.json") from None


class _TooLong(UnweaveError):
    """The body of a request exceeds the limit."""


async def _body(request: Request) -> dict[str, Any]:
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > _BODY:
            raise _TooLong(f"the request is longer than {_BODY} bytes. Fix: ask for fewer keys")
    try:
        given = load_json(bytes(raw) or b"{}")
    except ValueError as error:
        raise ConfigError(f"the request is not JSON ({error}). Fix: see /openapi.json") from None
    if not isinstance(given, dict):
        raise ConfigError("the request is not a JSON object. Fix: see /openapi.json")
    return given


def _json(value: dict[str, Any], code: int = 200) -> Response:
    return Response(as_json(value), code, media_type="application/json")


def _failure(code: int, error: UnweaveError) -> Response:
    return _json(error_report(error), code)


async def _openapi(request: Request) -> Response:
    return _json(openapi())


class _KnownHosts:
    """Refuses requests under a name that is not one of `names`."""

    refusal = Response(
        "unknown host name. Fix: ask by IP address, or add the name to metrics_hosts in "
        "agent.toml\n",
        421,
        media_type="text/plain",
    )

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        known = scope["type"] != "http" or self._known(Headers(scope=scope).get("host"))
        await (self._app if known else self.refusal)(scope, receive, send)

    def _known(self, host: str | None) -> bool:
        """No page can take an IP address for its own name. Browsers always send the header; probes
        that send none are served."""
        if host is None:
            return True
        where = Address.parse(host) or Address.parse(f"{host}:0")
        if where is None:
            return False
        try:
            return bool(ipaddress.ip_address(where.host))
        except ValueError:
            return where.host.lower() in self._names


def _monitoring(metrics: Metrics) -> list[Route]:
    async def expose(request: Request) -> Response:
        await metrics.node.awake()
        return Response(metrics.text(), headers={"content-type": metrics.content_type})

    async def health(request: Request) -> Response:
        return Response(
            metrics.node.phase + "\n", 200 if metrics.healthy else 503, media_type="text/plain"
        )

    return [
        Route("/metrics", expose, methods=["GET"]),
        Route("/healthz", health, methods=["GET"]),
    ]
