"""Which certificates `unweave check` lets pass: those with which TLS opens a connection."""

import datetime as dt
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from unweave.keys import tls_name
from unweave.node.identity import Identity
from unweave.node.transport.pinning import tls_problem

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
BOTH = x509.ExtendedKeyUsage([SERVER, CLIENT])
STRANGE = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00")


def usage(signs):
    others = ["content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
              "key_cert_sign", "encipher_only", "decipher_only"]  # fmt: skip
    return x509.KeyUsage(
        digital_signature=signs, crl_sign=not signs, **dict.fromkeys(others, False)
    )


def certificate(me, *, since=-DAY, until=DAY, names=None, issuer=None, more=()):
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "me")]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca" if issuer else "me")]))
        .public_key(me.key.public_key())
        .serial_number(7)
        .not_valid_before(NOW + since)
        .not_valid_after(NOW + until)
    )
    for extension, critical in more:
        builder = builder.add_extension(extension, critical)
    listed = [x509.DNSName(name) for name in (names or [tls_name(me.keyid)])]
    builder = builder.add_extension(x509.SubjectAlternativeName(listed), False)
    made = builder.sign((issuer or me).key, hashes.SHA256())
    return made.public_bytes(Encoding.PEM).decode()


CASES = {
    "as init makes it": ({}, None),
    "plain": ({"since": -DAY}, None),
    "roles": ({"more": [(usage(True), True), (BOTH, True)]}, None),
    "strange, not critical": ({"more": [(STRANGE, False)]}, None),
    "expired": ({"since": -2 * DAY, "until": -DAY}, "expired on"),
    "not yet": ({"since": DAY, "until": 2 * DAY}, "not valid before"),
    "another name": ({"names": ["example.com"]}, "does not hold the name"),
    "another signer": ({"issuer": Identity.create("ca")}, "not signed by its own key"),
    "strange, critical": ({"more": [(STRANGE, True)]}, "critical extension"),
    "servers only": ({"more": [(x509.ExtendedKeyUsage([SERVER]), False)]}, "servers and clients"),
    "clients only": ({"more": [(x509.ExtendedKeyUsage([CLIENT]), False)]}, "servers and clients"),
    "signs nothing": ({"more": [(usage(False), True)]}, "may not sign"),
}  # fmt: skip


def connects(me, pem, folder):
    """Whether TLS opens a connection in both directions, with this certificate as the only root."""
    (folder / "key.pem").write_bytes(me.key_pem)
    (folder / "cert.pem").write_text(pem)
    ends = []
    for purpose in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER):
        context = ssl.SSLContext(purpose)
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        context.load_verify_locations(folder / "cert.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        ends.append(context)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ends[0].wrap_bio(down, up, server_hostname=tls_name(me.keyid))
    server = ends[1].wrap_bio(up, down, server_side=True)
    done = set()
    try:
        for _ in range(10):
            for end in (client, server):
                try:
                    end.do_handshake()
                    done.add(end)
                except ssl.SSLWantReadError:
                    pass
    except ssl.SSLError:
        return False
    return len(done) == 2


@pytest.mark.parametrize("case", CASES)
def test_what_check_says_is_what_tls_does(tmp_path, case):
    how, problem = CASES[case]
    me = Identity.create("me")
    pem = me.certificate_pem if not how else certificate(me, **how)
    said = tls_problem(pem, NOW)
    assert (said is None) if problem is None else (problem in said)
    assert connects(me, pem, tmp_path) == (said is None)
