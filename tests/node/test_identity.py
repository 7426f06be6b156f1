"""Identities: keys on disk, signatures, certificates that open connections."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, utils
from hypothesis import given
from hypothesis import strategies as st
from tests.support.certificates import fixed_identity

from unweave.errors import ConfigError
from unweave.keys import check_signature, keyid_of, public_key, tls_name, verifier
from unweave.node import identity as identity_room
from unweave.node.identity import CERTIFICATE_FILE, KEY_FILE, Identity

ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
# RFC 6979, appendix A.2.5: P-256 with SHA-256.
RFC_KEY = 0xC9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721
RFC = {
    b"sample": (
        0xEFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716,
        0xF7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8,
    ),
    b"test": (
        0xF1ABB023518351CD71D881567B1EA663ED3EFCF6C5132B354F28D3B0B7D38367,
        0x019F4113742A2B14BD25926B49C649155F267E60D3814B4C0CC84250E46F0083,
    ),
}


@pytest.mark.parametrize("message", RFC)
def test_signatures_are_those_of_the_standard_with_the_smaller_s(message: bytes) -> None:
    one = Identity("x", ec.derive_private_key(RFC_KEY, ec.SECP256R1()))
    r, s = RFC[message]
    assert utils.decode_dss_signature(one.sign(message)) == (r, min(s, ORDER - s))


@given(st.binary(max_size=200))
def test_a_signature_is_a_function_of_key_and_bytes(payload: bytes) -> None:
    one, two = fixed_identity("a"), fixed_identity("b")
    signature = one.sign(payload)
    assert signature == fixed_identity("a").sign(payload)
    assert check_signature(one.key.public_key(), payload, signature)
    assert not check_signature(one.key.public_key(), payload + b"x", signature)
    assert not check_signature(two.key.public_key(), payload, signature)
    r, s = utils.decode_dss_signature(signature)
    assert not check_signature(
        one.key.public_key(), payload, utils.encode_dss_signature(r, ORDER - s)
    )


@given(st.binary(max_size=80))
def test_rubbish_is_no_signature(signature: bytes) -> None:
    assert not check_signature(fixed_identity("a").key.public_key(), b"payload", signature)


def test_a_verifier_looks_at_the_key_of_the_agent_it_is_asked_about() -> None:
    people = [fixed_identity("a"), fixed_identity("b")]
    check = verifier([people[0].certificate_pem, people[1].public_pem])
    for k, one in enumerate(people):
        assert check(k, b"x", one.sign(b"x"))
        assert not check(1 - k, b"x", one.sign(b"x"))


def test_a_key_id_names_the_public_key() -> None:
    one = fixed_identity("a")
    der = one.key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert one.keyid == hashlib.sha256(der).hexdigest()
    assert one.keyid == keyid_of(public_key(one.certificate_pem))
    assert one.keyid == keyid_of(public_key(one.public_pem))
    assert one.keyid != Identity.create("a").keyid


def test_a_certificate_is_a_function_of_key_and_name() -> None:
    one = fixed_identity("a")
    assert one.certificate_pem == fixed_identity("a").certificate_pem
    certificate = x509.load_pem_x509_certificate(one.certificate_pem.encode())
    certificate.verify_directly_issued_by(certificate)
    assert isinstance(certificate.signature_hash_algorithm, hashes.SHA256)
    assert certificate.not_valid_after_utc.year == 9999
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [tls_name(one.keyid)]


def test_row_commitments_need_the_key() -> None:
    one, two = fixed_identity("a"), fixed_identity("b")
    assert one.commit("row 1") == fixed_identity("a").commit("row 1")
    assert len({one.commit("row 1"), one.commit("row 2"), two.commit("row 1")}) == 3
    assert one.commit("row 1") != hashlib.sha256(b"row 1").digest()


# ------------------------------------------------------------------------------------- files


def test_saved_and_loaded(tmp_path: Path) -> None:
    one = Identity.create("north")
    old = os.umask(0o000)
    try:
        one.save(tmp_path)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600
    again = Identity.load(tmp_path)
    assert (again.name, again.keyid) == ("north", one.keyid)
    assert again.sign(b"x") == one.sign(b"x")
    assert (tmp_path / CERTIFICATE_FILE).read_text() == one.certificate_pem


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    Identity.create("north").save(tmp_path)
    before = (tmp_path / KEY_FILE).read_bytes()
    with pytest.raises(ConfigError, match="there is a key already"):
        Identity.create("north").save(tmp_path)
    assert (tmp_path / KEY_FILE).read_bytes() == before


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    Identity.create("north").save(tmp_path)
    (tmp_path / KEY_FILE).chmod(mode)
    with pytest.raises(ConfigError, match=r"chmod 600 .*key\.pem"):
        Identity.load(tmp_path)


def test_files_that_are_missing_broken_or_do_not_belong_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="restore this agent's key"):
        Identity.load(tmp_path)
    one = Identity.create("north")
    one.save(tmp_path)
    (tmp_path / CERTIFICATE_FILE).write_text(Identity.create("north").certificate_pem)
    with pytest.raises(ConfigError, match="another key"):
        Identity.load(tmp_path)
    (tmp_path / CERTIFICATE_FILE).write_text("hello")
    with pytest.raises(ConfigError, match="not a certificate"):
        Identity.load(tmp_path)
    (tmp_path / CERTIFICATE_FILE).write_text(one.public_pem)
    with pytest.raises(ConfigError, match=CERTIFICATE_FILE):
        Identity.load(tmp_path)
    (tmp_path / KEY_FILE).write_text("hello")
    with pytest.raises(ConfigError, match="private key"):
        Identity.load(tmp_path)
    other = ec.generate_private_key(ec.SECP384R1())
    (tmp_path / KEY_FILE).write_bytes(Identity("x", other).key_pem)
    with pytest.raises(ConfigError, match="not a P-256 key"):
        Identity.load(tmp_path)


def test_other_kinds_of_keys_are_refused() -> None:
    pem = ed25519.Ed25519PrivateKey.generate().public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )  # fmt: skip
    with pytest.raises(ConfigError, match="not a P-256 key"):
        public_key(pem.decode())
    with pytest.raises(ConfigError, match="not a certificate or public key"):
        public_key("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")


# ------------------------------------------------------------------------------- connections


def handshake(client: Identity, server: Identity, trust: str, wanted: Identity) -> None:
    """Mutual TLS in memory: the client trusts `wanted` alone, the server trusts `trust` alone."""

    def context(side: int, me: Identity, peer: str, folder: Path) -> ssl.SSLContext:
        made = ssl.SSLContext(side)
        made.verify_mode = ssl.CERT_REQUIRED
        made.load_verify_locations(cadata=peer)
        made.load_cert_chain(folder / CERTIFICATE_FILE, folder / KEY_FILE)
        return made

    import tempfile

    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        client.save(one)
        server.save(two)
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        asks = context(ssl.PROTOCOL_TLS_CLIENT, client, wanted.certificate_pem, Path(one))
        a = asks.wrap_bio(to_client, to_server, server_hostname=tls_name(wanted.keyid))
        answers = context(ssl.PROTOCOL_TLS_SERVER, server, trust, Path(two))
        b = answers.wrap_bio(to_server, to_client, server_side=True)
    open_ = [a, b]
    for _ in range(10):
        for end in list(open_):
            try:
                end.do_handshake()
                open_.remove(end)
            except ssl.SSLWantReadError:
                continue
    assert not open_
    a.write(b"hello")
    assert b.read() == b"hello"


def test_pinned_certificates_open_connections_to_each_other_and_to_nobody_else() -> None:
    north, east, stranger = (Identity.create(n) for n in ("north", "east", "stranger"))
    handshake(north, east, north.certificate_pem, east)
    with pytest.raises(ssl.SSLError):
        handshake(stranger, east, north.certificate_pem, east)
    with pytest.raises(ssl.SSLError):
        handshake(north, stranger, north.certificate_pem, east)


def test_the_certificate_in_the_folder_is_the_one_that_is_shown(tmp_path, monkeypatch):
    """The manifest pins its bytes, whatever a later version would write."""
    one = Identity.create("north")
    with monkeypatch.context() as earlier:
        earlier.setattr(identity_room, "_SINCE", dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
        one.save(tmp_path)
        old = one.certificate_pem
    assert Identity.load(tmp_path).certificate_pem == old
    assert Identity("north", one.key).certificate_pem != old

    nobody = x509.Name([])
    certificate = (
        x509.CertificateBuilder(nobody, nobody, one.key.public_key(), 1)
        .not_valid_before(dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(dt.datetime(2030, 1, 1, tzinfo=dt.UTC))
        .sign(one.key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    (tmp_path / CERTIFICATE_FILE).write_bytes(pem)
    with pytest.raises(ConfigError, match="names no agent"):
        Identity.load(tmp_path)
