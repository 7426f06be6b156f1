"""The published schema says what the reader says, and reading needs no state machine."""

from __future__ import annotations

import base64
import copy
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from unweave.errors import NotCertified
from unweave.protocol.certificate import format as f
from unweave.protocol.certificate.read import parse

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs/reference/certificate.schema.json").read_text(encoding="utf-8"))
RAW = (ROOT / "tests/vectors/certificate.json").read_bytes()
Json = Any


def inside(name: str) -> Draft202012Validator:
    """The schema of one of the documents."""
    return Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{name}"})


def documents() -> Iterator[tuple[str, Json]]:
    """Every JSON document of the vectors' certificate, with the name of its schema: found by
    following the schema's own notes on what texts contain."""
    yield from walk("Certificate", json.loads(RAW))


def walk(name: str, value: Json) -> Iterator[tuple[str, Json]]:
    yield name, value
    yield from content(SCHEMA["$defs"][name], value)


def content(schema: Json, value: Json) -> Iterator[tuple[str, Json]]:
    if "contentSchema" in schema:
        raw = value.encode()
        if schema.get("contentEncoding") == "base64":
            raw = base64.b64decode(raw)
        yield from walk(schema["contentSchema"]["$ref"].rpartition("/")[2], json.loads(raw))
    if "$ref" in schema:
        yield from content(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], value)
    for key, inner in schema.get("properties", {}).items():
        yield from content(inner, value[key])
    if "items" in schema:
        for one in value:
            yield from content(schema["items"], one)


DOCUMENTS = list(documents())


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_every_document_of_the_vectors_is_valid() -> None:
    names = [name for name, _ in DOCUMENTS]
    assert set(names) == {
        "Certificate",
        "AttestationStatement",
        "ClosingStatement",
        "TombstoneBody",
        "ReceiptBody",
        "VoteBody",
    }
    Draft202012Validator(SCHEMA).validate(json.loads(RAW))
    for name, value in DOCUMENTS:
        inside(name).validate(value)
        parse(getattr(f, name), value, name)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.pop("votes"),
        lambda c: c.update(remark="trust me"),
        lambda c: c.update(format="unweave certificate 2"),
        lambda c: c["closing"].update(payloadType="application/json"),
        lambda c: c["closing"]["signatures"].append(c["closing"]["signatures"][0]),
        lambda c: c["closing"]["signatures"][0].update(sig="QR=="),
        lambda c: c["tombstones"][0].update(payload="e30 "),
        lambda c: c["votes"][0].update(payloadType=c["tombstones"][0]["payloadType"]),
        lambda c: c.update(tombstones={}),
    ],
)  # fmt: skip
def test_an_altered_file_is_invalid(change: Callable[[Json], None]) -> None:
    altered = json.loads(RAW)
    change(altered)
    with pytest.raises(ValidationError):
        Draft202012Validator(SCHEMA).validate(altered)


def places(value: Json, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


OTHERS = [None, True, -1, 7, 0.5, "", "x", "AB" * 16, "ab" * 16, "ab" * 32, [], [7], {}, {"x": 1}]


def altered(original: Json) -> Iterator[Json]:
    """The document with each part replaced, removed, or with something put beside it."""
    for path in places(original):
        for how, other in [("remove", None), *product(("replace", "add"), OTHERS)]:
            value = copy.deepcopy(original)
            place = value
            for step in path[:-1]:
                place = place[step]
            if how == "remove":
                del place[path[-1]]
            elif how == "replace":
                place[path[-1]] = other
            elif isinstance(place, dict):
                place["remark"] = other
            else:
                place.append(other)
            yield value


@pytest.mark.parametrize(("name", "original"), {n: (n, v) for n, v in DOCUMENTS}.values())
def test_the_schema_and_the_reader_agree(name: str, original: Json) -> None:
    """Both take an altered document, or both refuse it; but a schema cannot state an order."""
    schema, verdicts = inside(name), set()
    for value in altered(original):
        try:
            parse(getattr(f, name), value, name)
            taken = True
        except NotCertified as error:
            taken = False
            if "ascending order" in str(error):
                continue
        assert schema.is_valid(value) == taken, value
        verdicts.add(taken)
    assert False in verdicts


LOADED = """
import sys
import unweave.protocol.certificate.{module}
print(*sorted(sys.modules))
"""
MACHINE = {
    *("audit", "events", "gossip", "machine", "merge", "messages", "ports", "recovery"),
    *("requests", "routing", "state", "timers", "visit"),
}


@pytest.mark.parametrize("module", ["verify", "write"])
def test_a_process_that_verifies_loads_no_state_machine(module: str) -> None:
    code = LOADED.format(module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert f"unweave.protocol.certificate.{module}" in loaded
    assert not {f"unweave.protocol.{name}" for name in MACHINE} & loaded
    assert not {"scipy", "duckdb", "grpc", "cryptography"} & loaded
