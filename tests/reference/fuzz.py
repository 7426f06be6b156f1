"""Fuzz targets for atheris, which follows the branches of the code.

python -m tests.reference.fuzz certificate|statements|codec [options of libFuzzer]

An input may be refused with the error that belongs to it. Every other exception is a finding: it
ends the process, and the input is written to the current folder.
"""

from __future__ import annotations

import base64
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["unweave"]):
    from unweave.errors import NotACertificate, NotCertified, WireError
    from unweave.keys import verifier
    from unweave.manifest import load
    from unweave.node.wire.codec import decode, encode
    from unweave.protocol.certificate.verify import verify
    from unweave.testing.values import small_terms

VECTORS = Path(__file__).parents[1] / "vectors"


def certificate(data: bytes) -> None:
    with suppress(NotACertificate, NotCertified):
        verify(data, *_MANIFEST)


def statements(data: bytes) -> None:
    """A certificate whose payloads are plain text here, and whose signatures all hold: alterations
    reach what is signed."""

    def encoded(node: Any) -> Any:
        if isinstance(node, list):
            return [encoded(one) for one in node]
        if not isinstance(node, dict):
            return node
        found = {key: encoded(value) for key, value in node.items()}
        if isinstance(found.get("payload"), str):
            raw = found["payload"].encode("utf-8", "surrogatepass")
            found["payload"] = base64.b64encode(raw).decode()
        return found

    try:
        raw = json.dumps(encoded(json.loads(data))).encode()
    except (ValueError, RecursionError):
        return
    with suppress(NotACertificate, NotCertified):
        verify(raw, _MANIFEST[0], lambda agent, payload, signature: True)


def codec(data: bytes) -> None:
    """What is read as a message can be written, and is then read as the same bytes."""
    try:
        message = decode(data, _TERMS)
    except WireError:
        return
    written = encode(message, _TERMS)
    if encode(decode(written, _TERMS), _TERMS) != written:
        raise AssertionError("a message changes when it is read and written again")


_manifest = load(VECTORS / "network.toml")
_MANIFEST = (_manifest.terms(), verifier(_manifest.pems()))
_TERMS = small_terms()

if __name__ == "__main__":
    target = {"certificate": certificate, "statements": statements, "codec": codec}[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], target)
    atheris.Fuzz()
