"""Texts from certificates, manifests, settings, peers and agents reach a terminal, a log or a
report only in a form that nobody can mistake for our own lines."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from tests.support.commands import run_command
from tests.support.hostile import HOSTILE, TEXTS, visible_line
from tests.support.nodes import nodes
from tests.support.processes import Processes

from unweave.cli import common
from unweave.errors import UnweaveError, WireError
from unweave.json_form import as_json, error_report
from unweave.node.api import metrics
from unweave.node.api.metrics import Metrics
from unweave.node.log import Log
from unweave.node.transport.client import NeighbourClient
from unweave.node.transport.server import Refusals
from unweave.node.wire.primitives import pb
from unweave.node.wire.statements import read_statement
from unweave.protocol.statements import Intent, Tombstone, Vote
from unweave.testing.transport import LocalNetwork
from unweave.text import crash, fault, visible

VECTORS = Path(__file__).parent.parent / "vectors"
CERTIFICATE = json.loads((VECTORS / "certificate.json").read_text())
MANIFEST = (VECTORS / "network.toml").read_text()


def visible_lines(text: str, most: int = 20_000) -> str:
    for line in text.split("\n"):
        visible_line(line)
    assert len(text) < most
    return text


def run(*words: object) -> str:
    """What a command prints, for people and for machines: visible, and never a success."""
    shown = ""
    for how in ((), ("--json",)):
        done = run_command(*words, *how)
        assert done.code in (1, 2), (words, done)
        shown += visible_lines(done.out + done.err)
        assert not any(line.startswith("The certificate is valid") for line in shown.split("\n"))
    return shown


# --------------------------------------------------------------------------- the two structures


@given(TEXTS)
def test_the_console_escapes_whatever_it_prints(text):
    file = io.StringIO()
    console = type(common.errors)(file=file, width=300, color_system=None)
    table = Table(title=Text(text), caption=text)
    table.add_column(Text(text), footer=text)
    table.add_row(Text(text))
    for what in (
        text,
        Text(text),
        table,
        Group(text, Text(text)),
        Panel(Text(text), title=Text(text)),
    ):
        console.print(what)
    with console.status(text) as bar:
        bar.update(text)
    visible_lines(file.getvalue(), 10**6)


@given(TEXTS)
def test_a_terminal_gets_no_escape_of_a_text(text):
    """With colours: what remains after our own escapes are taken out is visible."""
    file = io.StringIO()
    console = type(common.errors)(file=file, width=300, force_terminal=True, legacy_windows=False)
    console.print(Text(text, style="red"), text, common.styled((text, "bold")))
    printed = file.getvalue()
    for code in ("\x1b[31m", "\x1b[1m", "\x1b[0m"):
        printed = printed.replace(code, "")
    visible_lines(printed, 10**6)


@given(TEXTS)
@example("\x7f")
def test_one_function_for_errors_json_and_crashes(text):
    visible_line(visible(text))
    visible_line(as_json({text: text}))
    visible_line(as_json(error_report(UnweaveError(text))))
    told = crash(OSError(5, text)), fault(ValueError(text))
    assert told[1] == "ValueError"
    for line in told:
        visible_line(visible(line))


# ------------------------------------------------------------------ certificates and manifests


def altered(value: Any, path: tuple[Any, ...], text: str) -> Any:
    """A copy of a document with `text` at one place: as a value, or as another key."""
    if not path:
        return {text: value} if isinstance(value, dict) else text
    step, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[step] = altered(copy[step], tuple(rest), text)
    return copy


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = [path] if path else []
    if isinstance(value, dict | list):
        for key, one in inner:
            found += places(one, (*path, key)) if isinstance(one, dict | list) else [(*path, key)]
    return found


PAYLOADS = [("attestation",), ("closing",), ("tombstones", 0), ("votes", 0)]
PAYLOADS = [p for p in PAYLOADS if len(p) == 1 or CERTIFICATE[p[0]]]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.data(), TEXTS)
def test_certificates(tmp_path, data, text):
    """Outside of the payloads, and inside of them."""
    document = CERTIFICATE
    if data.draw(st.booleans()):
        at = data.draw(st.sampled_from(PAYLOADS))
        envelope = document[at[0]] if len(at) == 1 else document[at[0]][at[1]]
        payload = json.loads(base64.b64decode(envelope["payload"]))
        changed = altered(payload, data.draw(st.sampled_from(places(payload))), text)
        raw = base64.b64encode(json.dumps(changed).encode()).decode()
        document = put(document, (*at, "payload"), raw)
    else:
        document = altered(document, data.draw(st.sampled_from(places(document))), text)
    file = tmp_path / "certificate.json"
    ascii_only = data.draw(st.booleans())
    content = json.dumps(document, ensure_ascii=ascii_only)
    file.write_bytes(content.encode("utf-8", "surrogatepass"))
    if document != CERTIFICATE:
        run("verify", file, "-n", VECTORS / "network.toml")
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    run("verify", file, "-n", VECTORS / "network.toml")


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put(copy[path[0]], path[1:], new)
    return copy


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.data(), TEXTS)
def test_manifests(tmp_path, data, text):
    import tomllib

    import tomli_w

    document = tomllib.loads(MANIFEST)
    changed = altered(document, data.draw(st.sampled_from(places(document))), text)
    file = tmp_path / "network.toml"
    file.write_bytes(tomli_w.dumps(changed).encode("utf-8", "surrogatepass"))
    for words in (("verify", VECTORS / "certificate.json", "-n", file), ("check", tmp_path)):
        done = run_command(*words)
        visible_lines(done.out + done.err)
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    run("verify", VECTORS / "certificate.json", "-n", file)


# ------------------------------------------------------------------------------------- peers


class Failed(Exception):
    """As gRPC's error, with the details that a peer chose."""

    def __init__(self, code: Any, details: str) -> None:
        self.code, self.details = (lambda: code), (lambda: details)


@given(TEXTS)
def test_what_a_peer_answers_and_says(text):
    network = LocalNetwork(2)
    terms = network.manifest.terms()
    stream = io.StringIO()
    log = Log("north", stream=stream)
    pin = SimpleNamespace(name=text, address=text, pem=b"", tls_name="")
    client = NeighbourClient(pin, network.identities[0], SimpleNamespace(outgoing=8))
    for code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL):
        failure = client._failure(Failed(code, text))
        log.debug("not delivered", to=text, why=str(failure))
        Refusals(log).add(text, "imposter", str(failure), address=text)
    for kind in (Intent, Tombstone, Vote):
        for body in (text, {text: text}, {"agent": text, "request": text, "rows": [text]}):
            raw = json.dumps(body).encode()
            for sent in (raw, text.encode("utf-8", "surrogatepass")):
                try:
                    read_statement(kind, pb.Statement(raw=sent, author=0, signature=b""), terms)
                except WireError as error:
                    log.warning("refused", sender=text, reason="message", why=str(error))
    lines = stream.getvalue().splitlines()
    assert len(lines) >= 10
    for line in lines:
        visible_line(line)
        assert line.split("  ")[1].startswith(("refused", "… ")) or " north" in line
        assert len(line) < 20_000


@given(TEXTS)
def test_metrics_show_no_text_raw(text):
    node: Any = SimpleNamespace(
        counts=Counter({"tokens received": 3}),
        transport=SimpleNamespace(refusals=Counter({(text, "message"): 2})),
    )
    status = {"name": text, "phase": "parked", "up_seconds": 1.5}
    before, metrics.status_report = metrics.status_report, lambda _: status
    try:
        visible_lines(Metrics(node).text().decode(), 10**6)
    finally:
        metrics.status_report = before


def test_the_api_answers_in_visible_ascii(tmp_path):
    """Every request with every hostile text in its parameters, and a status with hostile counts."""
    from tests.node.test_api import call

    from unweave.node.agent import open_data, open_identity
    from unweave.node.api.routes import ROUTES
    from unweave.node.api.server import Api
    from unweave.node.data.watch import DataWatch

    async def main() -> None:
        async with nodes(Processes(tmp_path / "net", agents=1)) as agents:
            node = agents["a1"]
            data = open_data(node.folder, open_identity(node.folder))
            api = Api(node, data, DataWatch(node, data))
            await api.start()
            try:
                for text in HOSTILE:
                    node.data_problem = text
                    node.counts[text] = 1
                    for route in ROUTES.values():
                        if route.name in ("stop", "wait", "backup") or route.method == "GET":
                            continue
                        for body in ({text: text}, {"keys": [text]}, {"request": text}, [text]):
                            raw = json.dumps(body).encode()
                            _, answer = await asyncio.to_thread(
                                call, node, route.method, route.path, raw
                            )
                            visible_lines(answer.decode())
                    _, answer = await asyncio.to_thread(call, node, "GET", "/status")
                    visible_lines(answer.decode(), 10**6)
            finally:
                await api.stop()
            for line in node.log.stream.getvalue().splitlines():
                visible_line(line)

    asyncio.run(main())


# ------------------------------------------------------------------------------- a terminal's end


def test_an_error_in_the_program_is_one_line_without_its_text(monkeypatch, capsys):
    from unweave import cli

    def broken(**_: Any) -> None:
        raise KeyError("\x1b[2J a record")

    monkeypatch.setattr(cli, "app", broken)
    monkeypatch.setattr("sys.argv", ["unweave", "status"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    assert ended.value.code == 1
    assert said.startswith("unweave: an error in unweave: KeyError < test_hostile_texts.py:")
    assert "record" not in said
    visible_lines(said)


def test_a_long_text_does_not_fill_the_terminal(capsys):
    common.fail(UnweaveError("x" * 10**6))
    said = capsys.readouterr().err
    assert len(said) < 6000
    assert "more characters)" in said
