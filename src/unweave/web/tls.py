"""A certificate for a page beyond this machine: the operator's own, or a self-signed one.

No browser trusts a self-signed certificate: it warns, and shows a fingerprint. The terminal shows
the same one, so that the operator can compare them.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import socket
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from unweave.errors import ConfigError
from unweave.node.storage.atomic import write_atomic
from unweave.web.server import TlsFiles

__all__ = ["fingerprint", "given", "self_signed"]

_DAYS = 397  # browsers refuse certificates that hold longer
_CERTIFICATE, _KEY = "page-certificate.pem", "page-key.pem"


def given(certificate: Path, key: Path) -> TlsFiles:
    """The operator's own files; raises if they do not fit together."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or getattr(error, "reason", None) or "unreadable"
        raise ConfigError(
            f"--tls-cert {certificate}: this certificate and key cannot be used ({why}). Fix: give "
            "a PEM certificate and its key without a passphrase"
        ) from None
    return TlsFiles(certificate, key)


def self_signed(folder: Path, host: str) -> TlsFiles:
    """A certificate in `folder` for this host; that of an earlier page, if it still fits."""
    files = TlsFiles(folder / _CERTIFICATE, folder / _KEY)
    names = _names(host)
    if not _fits(files, names):
        folder.mkdir(mode=0o700, exist_ok=True)
        _write(files, names)
    return files


def fingerprint(files: TlsFiles) -> str:
    """SHA-256 of the certificate, as browsers show it."""
    digest = _read(files.certificate).fingerprint(hashes.SHA256())
    return ":".join(f"{byte:02X}" for byte in digest)


def _names(host: str) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in dict.fromkeys((host, socket.gethostname(), "localhost", "127.0.0.1")):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            if name.isascii():
                found.append(x509.DNSName(name))
    return found


def _read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificates(path.read_bytes())[0]


def _fits(files: TlsFiles, names: list[x509.GeneralName]) -> bool:
    try:
        given(*files)
        found = _read(files.certificate)
        stated = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ConfigError, OSError, ValueError, x509.ExtensionNotFound):
        return False
    now = dt.datetime.now(dt.UTC)
    return list(stated) == names and now + dt.timedelta(days=7) < found.not_valid_after_utc


def _write(files: TlsFiles, names: list[x509.GeneralName]) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "unweave dashboard")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=_DAYS - 1))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    write_atomic(files.key, secret)
    write_atomic(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))
