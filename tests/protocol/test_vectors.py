"""The published vectors: they verify, here and elsewhere, and they are made the same again."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from securesystemslib.dsse import Envelope
from securesystemslib.signer import Signature, SSlibKey

from unweave.keys import verifier
from unweave.manifest import load
from unweave.node.wire.codec import decode
from unweave.node.wire.envelope import open_message
from unweave.protocol.certificate.verify import verify
from unweave.protocol.messages import Ack
from unweave.protocol.statements import CompactedErasures, pae

FOLDER = Path(__file__).parents[1] / "vectors"
KEYS = {key["name"]: key for key in json.loads((FOLDER / "keys.json").read_text())}
SIGNED = json.loads((FOLDER / "signatures.json").read_text())


def made() -> dict[str, bytes]:
    spec = importlib.util.spec_from_file_location("unweave_vectors", FOLDER / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    files: dict[str, bytes] = module.build()
    return files


@pytest.mark.parametrize(
    "name",
    [
        *("keys.json", "signatures.json", "compacted.json", "message.json"),
        *("network.toml", "certificate.json", "sum.bin", "secret.txt"),
    ],
)
def test_they_are_made_again_bit_for_bit(name: str) -> None:
    assert made()[name] == (FOLDER / name).read_bytes()


@pytest.mark.parametrize("vector", SIGNED, ids=lambda v: v["what"])
def test_a_signature_covers_the_encoding_of_exact_bytes(vector: dict[str, Any]) -> None:
    kind, payload = vector["payloadType"].encode(), vector["payload"].encode()
    encoded = bytes.fromhex(vector["pae"])
    # DSSE protocol.md: "DSSEv1" SP LEN(type) SP type SP LEN(body) SP body
    parts = [b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload]
    assert encoded == b" ".join(parts) == pae(vector["payloadType"], payload)
    key = serialization.load_pem_public_key(KEYS[vector["signer"]]["public"].encode())
    assert isinstance(key, ec.EllipticCurvePublicKey)
    key.verify(bytes.fromhex(vector["signature"]), encoded, ec.ECDSA(hashes.SHA256()))


@pytest.mark.parametrize("vector", SIGNED, ids=lambda v: v["what"])
def test_another_library_agrees(vector: dict[str, Any]) -> None:
    signature = Signature(vector["keyid"], vector["signature"])
    envelope = Envelope(
        vector["payload"].encode(), vector["payloadType"], {vector["keyid"]: signature}
    )
    assert envelope.pae().hex() == vector["pae"]
    public = {"public": KEYS[vector["signer"]]["public"]}
    key = SSlibKey(vector["keyid"], "ecdsa", "ecdsa-sha2-nistp256", public)
    assert list(envelope.verify([key], 1)) == [vector["keyid"]]


@pytest.mark.parametrize("key", KEYS.values(), ids=lambda k: k["name"])
def test_a_key_id_is_the_digest_of_the_public_key(key: dict[str, str]) -> None:
    der = base64.b64decode("".join(key["public"].splitlines()[1:-1]))
    assert key["keyid"] == hashlib.sha256(der).hexdigest()


def test_a_compaction_is_read_as_the_page_says() -> None:
    vector = json.loads((FOLDER / "compacted.json").read_text())
    raw = bytes.fromhex(vector["payload"])
    assert bytes.fromhex(vector["pae"]) == pae(vector["payloadType"], raw)
    key = serialization.load_pem_public_key(KEYS[vector["signer"]]["public"].encode())
    assert isinstance(key, ec.EllipticCurvePublicKey)
    signature = bytes.fromhex(vector["signature"])
    key.verify(signature, bytes.fromhex(vector["pae"]), ec.ECDSA(hashes.SHA256()))
    # run · agent · request · flags · number of rows · (length · commitment) twice
    assert raw[:32] == load(FOLDER / "network.toml").terms().network_id
    assert raw[32:36] == (1).to_bytes(4, "big")
    assert raw[48:53] == bytes([0, 0, 0, 0, 2])
    assert raw[53] == raw[70] == 16
    assert len(raw) == 87
    (entry,) = CompactedErasures(raw, 1, signature).erasures
    assert entry.request == raw[32:48]
    assert entry.rows == {raw[54:70], raw[71:]}


def test_the_certificate_holds() -> None:
    manifest = load(FOLDER / "network.toml")
    raw = (FOLDER / "certificate.json").read_bytes()
    found = verify(raw, manifest.terms(), verifier(manifest.pems()))
    assert [(e.agent, e.scope, e.kind, e.by, e.rows) for e in found.erasures] == [
        ("east", "records", "exact", "owner", 2),
        ("south", "agent", "exact", "owner", None),
        ("west", "agent", "exact", "quorum", None),
    ]
    assert found.attested == ("north", "east", "south")


def test_the_message_is_read_from_its_envelope() -> None:
    vector = json.loads((FOLDER / "message.json").read_text())
    manifest = load(FOLDER / "network.toml")
    terms, payload = manifest.terms(), bytes.fromhex(vector["payload"])
    assert vector["pae"] == pae(vector["payloadType"], payload).hex()
    data = bytes.fromhex(vector["envelope"])
    assert open_message(data, terms, verifier(manifest.pems())) == (0, payload)
    assert isinstance(decode(payload, terms), Ack)


def test_every_kind_of_signed_record_has_a_vector() -> None:
    from unweave.protocol import statements as records

    kinds = {
        value.kind
        for value in vars(records).values()
        if isinstance(value, type) and issubclass(value, records.SignedStatement) and value.kind
    }
    assert kinds - {CompactedErasures.kind} <= {vector["payloadType"] for vector in SIGNED}
