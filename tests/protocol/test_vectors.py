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


def test_masks_are_those_of_the_vector_by_other_code() -> None:
    """X25519, HKDF and AES-CTR from their definitions: HMAC and one block at a time."""
    import hmac

    import numpy as np
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    vector = json.loads((FOLDER / "masks.json").read_text())
    name, agents = bytes.fromhex(vector["round"]), vector["agents"]

    def words(key: bytes) -> list[int]:
        block = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
        stream = b"".join(block.update(i.to_bytes(16, "big")) for i in range(2))
        return [int.from_bytes(stream[8 * i : 8 * i + 8], "little") for i in range(3)]

    for k, agent in enumerate(agents):
        key = X25519PrivateKey.from_private_bytes(bytes.fromhex(agent["private"]))
        total = {"sum": list(agent["units"]), "audit": list(agent["units"])}
        for j, other in enumerate(agents):
            if j == k:
                continue
            shared = key.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(other["public"])))
            secret = hmac.digest(name, shared, "sha256")  # HKDF: extract, then two blocks
            info = b"unweave mask v1 %d,%d" % (min(k, j), max(k, j))
            first = hmac.digest(secret, info + b"\x01", "sha256")
            second = hmac.digest(secret, first + info + b"\x02", "sha256")
            sign = 1 if k < j else -1
            for what, stream in (("sum", words(first)), ("audit", words(second))):
                total[what] = [a + sign * b for a, b in zip(total[what], stream, strict=True)]
        for what in ("sum", "audit"):
            assert [f"{word % 2**64:016x}" for word in total[what]] == agent[what]
    plain = np.sum([agent["units"] for agent in agents], axis=0)
    for what in ("sum", "audit"):
        words_of_all = [[int(word, 16) for word in agent[what]] for agent in agents]
        assert [sum(column) % 2**64 for column in zip(*words_of_all, strict=True)] == [
            int(v) % 2**64 for v in plain
        ]
