"""The operator's API: HTTP and JSON on the agent's socket, as the OpenAPI document says."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import socket
import stat
from collections import Counter
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import TypeAdapter
from starlette.responses import Response
from tests.support.nodes import QUICK, nodes, until
from tests.support.processes import Processes

from unweave.errors import UnweaveError
from unweave.node.agent import open_data
from unweave.node.api import metrics, server
from unweave.node.api.client import Operator
from unweave.node.api.metrics import Metrics
from unweave.node.api.routes import ROUTES, SAFE, openapi
from unweave.node.api.server import Api, Monitoring
from unweave.node.data.watch import DataWatch


@asynccontextmanager
async def served(tmp_path):
    """An agent that is alone, with its API on its socket."""
    net = Processes(tmp_path / "net", agents=1, timeouts=QUICK)
    async with nodes(net) as agents:
        node = agents["a1"]
        await until(lambda: node.phase == "parked")
        data = open_data(node.folder, node.identity)
        api = Api(node, data, DataWatch(node, data))
        await api.start()
        try:
            yield node, api
        finally:
            await api.stop()
            assert not node.folder.socket.exists()


def call(node, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """As curl would."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as connected:
        connected.settimeout(60.0)
        connected.connect(str(node.folder.socket))
        connection = http.client.HTTPConnection("agent")
        connection.sock = connected
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()


def play(tmp_path, story) -> None:
    async def main():
        async with served(tmp_path) as (node, api):
            await story(node, api)

    asyncio.run(main())


def test_every_request_is_answered_as_the_table_says(tmp_path):
    """The client checks each answer against the types that the OpenAPI document is made of."""

    async def story(node, api):
        assert stat.S_IMODE(node.folder.socket.stat().st_mode) == 0o600

        def ask() -> dict[str, Any]:
            found = {}
            with Operator(node.folder.path, 60.0) as operator:
                for name in ("status", "posterior", "forgotten", "influence", "learn", "wake"):
                    found[name] = operator.ask(name)
                found["preview"] = operator.ask("preview", keys=["a1-0"])
                found["erase"] = operator.ask("erase", keys=["a1-0"])
                request = found["erase"]["request"]
                while True:
                    found["erasure"] = operator.ask("erasure", request=request)
                    if found["erasure"]["erasure"]["state"] == "certified":
                        break
                    operator.ask("wait", timeout=1.0)
                found["wait"] = operator.ask("wait", timeout=0.0)
                with pytest.raises(UnweaveError, match=r"a1: .*vote on itself"):
                    operator.ask("vote", agent="a1")
                found["backup"] = operator.ask("backup")
                found["changes"] = operator.ask("changes", timeout=0.0)
                found["receipts"] = operator.ask("receipts")
                found["stop"] = operator.ask("stop")
            return found

        found = await asyncio.to_thread(ask)
        assert {*found, "vote"} == {*ROUTES}
        assert "digest" not in found["status"]["status"]
        assert len(found["status"]["status"]["commitment"]) == 64
        assert found["stop"] == {}
        assert "attestation" in found["erasure"]["erasure"]["certificate"]

    play(tmp_path, story)


def test_the_document_describes_what_is_served(tmp_path):
    async def story(node, api):
        code, text = await asyncio.to_thread(call, node, "GET", "/openapi.json")
        document = json.loads(text)
        assert (code, document) == (200, openapi())
        served = {
            (path, method.lower())
            for route in api.app.routes
            for path, method in ((route.path, m) for m in route.methods)
            if method != "HEAD"
        }
        written = {(path, m) for path, methods in document["paths"].items() for m in methods}
        assert written == served
        schemas = document["components"]["schemas"]
        assert {*re.findall(r"#/components/schemas/(\w+)", json.dumps(document))} == {*schemas}

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "said"),
    [
        ("GET", "/nothing", None, 404, None),
        ("POST", "/status", b"{}", 405, None),
        ("GET", "/stop", None, 405, None),
        ("POST", "/erasures", b"no json", 400, "the request is not JSON"),
        ("POST", "/erasures", b"[]", 400, "not a JSON object"),
        ("POST", "/erasures", b'{"keys": ' + b"[" * 100 + b"]" * 100 + b"}", 400, "nested deeper"),
        ("POST", "/erasures", b'{"keys": [1' + b"0" * 100 + b"]}", 400, "more than 64 digits"),
        ("POST", "/erasures", b'{"keys": [1e999]}', 400, "too large"),
        ("POST", "/erasures", b'{"keys": ["\\ud800"]}', 400, "surrogate"),
        ("POST", "/erasures", b'{"keys": ["a"], "keys": []}', 400, "twice"),
        ("GET", "/wait?timeout=1e999", None, 400, "timeout: input should be"),
        ("POST", "/erasures", b"{}", 400, 'give either "whole": true or "keys"'),
        ("POST", "/erasures", b'{"whole": true, "keys": []}', 400, "give either"),
        ("POST", "/erasures", b'{"keys": []}', 400, "names no record. Fix: give at least one key"),
        ("POST", "/erasures", b'{"keys": [], "missing_ok": true}', 400, "names no record"),
        ("POST", "/erasures", b'{"whole": true, "often": 1}', 400, "often: extra inputs"),
        ("POST", "/erasures", b'{"keys": ["zz"]}', 400, "1 of 1 keys are not in the data"),
        ("POST", "/erasures", b'{"keys": ["' + b"x" * 500 + b'"]}', 413, "longer than 400 bytes"),
        ("POST", "/erasures", b'{"whole": true, "request": "00"}', 400, "request: string should"),
        ("POST", "/votes", b'{"agent": "nobody"}', 400, "no agent is named"),
        ("POST", "/votes", b'{"agent": "a1"}', 409, "cannot vote on itself"),
        ("GET", "/erasures/xyz", None, 400, "request: string should"),
        ("GET", "/erasures/" + 32 * "0", None, 200, None),
        ("GET", "/wait?timeout=31", None, 400, "timeout: input should be less"),
        ("GET", "/posterior?everything=true", None, 200, None),
        ("GET", "/healthz", None, 200, None),
        ("GET", "/metrics", None, 200, None),
    ],
)
def test_what_curl_gets(tmp_path, monkeypatch, method, path, body, code, said):
    monkeypatch.setattr(server, "_BODY", 400)

    async def story(node, api):
        found, text = await asyncio.to_thread(call, node, method, path, body)
        assert found == code, text
        if said is not None:
            error = json.loads(text)["error"]
            assert said in error["message"]
            assert error["exit_code"] == (1 if code in (409, 413) else 2)
            assert "zz" not in error["message"]  # keys are data

    play(tmp_path, story)


def test_a_fault_is_logged_and_told_without_details(tmp_path, monkeypatch):
    def fails(*_):
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(server, "status_report", fails)

    async def story(node, api):
        code, text = await asyncio.to_thread(call, node, "GET", "/status")
        assert code == 500
        assert b"inside" not in text
        told = node.log.stream.getvalue()
        assert "error=ZeroDivisionError < test_api.py:" in told
        assert "inside" not in told

    play(tmp_path, story)


def follow(node):
    """The lines of a reader that follows, and its connection."""
    answers = TypeAdapter(ROUTES["changes"].answers)

    async def lines():
        reader, writer = await asyncio.open_unix_connection(str(node.folder.socket))
        writer.write(b"GET /changes?follow=true&timeout=300 HTTP/1.0\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head
        assert b"application/x-ndjson" in head
        try:
            while line := await reader.readline():
                yield answers.validate_json(line)["changes"]
        finally:
            writer.close()

    return lines()


def test_who_follows_gets_a_line_for_what_is_new(tmp_path):
    async def story(node, api):
        lines = follow(node)
        first = await anext(lines)
        assert {"started", "the token is parked"} <= {one["what"] for one in first["events"]}
        node.log.info("news", about="a1")
        second = await anext(lines)
        assert [one["what"] for one in second["events"]] == ["news"]
        assert second["number"] == first["number"] + 1
        assert not api.busy  # an agent may replace its process while somebody follows
        node.log.recent.end()
        assert (await anext(lines))["events"] == []
        assert [line async for line in lines] == []

    play(tmp_path, story)


def test_a_reader_that_goes_away_leaves_nothing(tmp_path, monkeypatch):
    async def story(node, api):
        waited, recent = asyncio.Event(), node.log.recent
        wait = recent.wait

        async def watched(*given):
            try:
                await wait(*given)
            except asyncio.CancelledError:
                waited.set()
                raise

        monkeypatch.setattr(recent, "wait", watched)
        lines = follow(node)
        await anext(lines)
        assert not waited.is_set()
        await lines.aclose()
        await asyncio.wait_for(waited.wait(), 60.0)

    play(tmp_path, story)


def test_a_fault_ends_the_lines_and_is_logged(tmp_path, monkeypatch):
    def fails(*_):
        raise ZeroDivisionError("inside")

    async def story(node, api):
        lines = follow(node)
        await anext(lines)
        monkeypatch.setattr(server, "short_report", fails)
        node.log.info("news")
        assert [line async for line in lines] == []
        assert "request=changes  error=ZeroDivisionError" in node.log.stream.getvalue()

    play(tmp_path, story)


def test_large_integers_are_strings_on_the_way(tmp_path, monkeypatch):
    """A reader that keeps numbers as doubles would round them; our client has them back."""
    units = [SAFE, SAFE + 1, -SAFE, -SAFE - 1, 2**63 - 1, -(2**63)]
    told = {"state": "incomplete", "units": units, "stamp": [1, 0, 2**62 + 1, 7, 2**60]}
    monkeypatch.setattr(server, "posterior_report", lambda *_, **__: told)

    async def story(node, api):
        _, text = await asyncio.to_thread(call, node, "GET", "/posterior")
        sent = json.loads(text)["posterior"]["units"]
        assert sent == [SAFE, str(SAFE + 1), -SAFE, str(-SAFE - 1), str(2**63 - 1), str(-(2**63))]
        with Operator(node.folder.path, 60.0) as operator:
            found = await asyncio.to_thread(operator.ask, "posterior")
        assert found == {"posterior": told}

    play(tmp_path, story)


@pytest.mark.parametrize("code", [200, 404])
def test_an_agent_of_another_version(tmp_path, monkeypatch, code):
    """An answer that the table does not describe is an error in words."""
    monkeypatch.setattr(server, "_json", lambda *_: Response("something", code))

    async def story(node, api):
        with (
            Operator(node.folder.path, 60.0) as operator,
            pytest.raises(UnweaveError, match=rf"a1: the answer to status \(HTTP {code}\)"),
        ):
            await asyncio.to_thread(operator.ask, "status")

    play(tmp_path, story)


# ------------------------------------------------------------------------------------- monitoring


def test_a_visit_at_the_tcp_port_has_an_end(monkeypatch):
    """Whoever connects and says nothing, or half a request, would keep a descriptor for ever."""
    monkeypatch.setattr(server, "_LIFETIME", 0.2)
    node: Any = SimpleNamespace(phase="parked")

    async def main():
        monitoring = Monitoring(node, "127.0.0.1:0")
        await monitoring.start()
        try:
            for half in (b"", b"GET /healthz HTTP/1.1\r\n"):
                reader, writer = await asyncio.open_connection("127.0.0.1", monitoring.port)
                writer.write(half)
                async with asyncio.timeout(60.0):
                    with contextlib.suppress(ConnectionError):
                        assert await reader.read() == b""
                writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", monitoring.port)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(60.0):
                assert (await reader.read()).endswith(b"\r\n\r\nparked\n")
            writer.close()
        finally:
            await monitoring.stop()

    asyncio.run(main())


async def _get(port: int, host: str | None, path: str = "/healthz") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "HTTP/1.0" if host is None else f"HTTP/1.1\r\nHost: {host}"
    writer.write(f"GET {path} {head}\r\n\r\n".encode())
    try:
        async with asyncio.timeout(60.0):
            return await reader.read()
    finally:
        writer.close()


def test_metrics_are_not_shown_to_the_pages_of_others():
    """A page whose name was made to resolve to this address asks under its own name."""
    node: Any = SimpleNamespace(phase="parked")

    async def main():
        monitoring = Monitoring(node, "127.0.0.1:0", ["Monitor.example"])
        await monitoring.start()
        port = monitoring.port
        try:
            served = (
                *("127.0.0.1", f"127.0.0.1:{port}", "localhost", f"LOCALHOST:{port}", "[::1]:80"),
                *("10.0.0.7:9400", "monitor.example", "monitor.example:9400", None),
            )
            for host in served:
                answer = await _get(port, host)
                assert answer.split(b" ", 2)[1] == b"200", host
                assert answer.endswith(b"parked\n")
            refused = (
                *(
                    "evil.example",
                    f"evil.example:{port}",
                    "127.0.0.1.evil.example",
                    "localhost.evil",
                ),
                *(
                    "evil.example, localhost",
                    "localhost/",
                    "[::1",
                    "xmonitor.example",
                    "0x7f.1",
                    "a b",
                ),
            )
            for host in refused:
                for path in ("/healthz", "/metrics", "/else"):
                    answer = await _get(port, host, path)
                    assert answer.split(b" ", 2)[1] in (b"421", b"400"), (host, answer)
                    assert b"parked" not in answer
            assert b"metrics_hosts in agent.toml" in await _get(port, "evil.example")
        finally:
            await monitoring.stop()

    asyncio.run(main())


def test_labels_are_read_back_as_they_were(monkeypatch):
    name = 'a\\b"c d'
    node: Any = SimpleNamespace(
        counts=Counter({"tokens received": 3}),
        transport=SimpleNamespace(refusals=Counter({(name, "too large"): 2})),
    )
    status = {"name": name, "phase": "parked", "up_seconds": 1.5, "included": ["a", "b"]}
    monkeypatch.setattr(metrics, "status_report", lambda _: status)
    families = text_string_to_metric_families(Metrics(node).text().decode())
    found = {one.name: (one.labels, one.value) for f in families for one in f.samples}
    assert found["unweave_tokens_received_total"] == ({"agent": name}, 3)
    labels = {"agent": name, "sender": name, "reason": "too large"}
    assert found["unweave_refused_total"] == (labels, 2)
    assert found["unweave_included_agents"] == ({"agent": name}, 2)
    assert found["unweave_phase"] == ({"agent": name, "phase": "parked"}, 1)
