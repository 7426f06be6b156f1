"""An agent's identity: a P-256 key, and a self-signed certificate that the manifest pins.

The key signs the agent's statements and messages, the certificate opens its connections. Trust
comes from the manifest alone: there is no certificate authority. The certificate is a function of
key and name and never expires: a wrong clock cannot stop a network, and votes remove an agent.

    keyid = SHA-256 of the public key's DER SubjectPublicKeyInfo, in hex
    signature = ECDSA-P256-SHA256, deterministic (RFC 6979), low s, DER
"""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from unweave.errors import ConfigError, MissingExtra
from unweave.keys import (
    _ORDER,
    PublicKey,
    _scheme,
    check_signature,
    keyid_of,
    public_key,
    tls_name,
)
from unweave.node.data.commitments import Key, canonical, commitment
from unweave.node.storage.atomic import create_private, write_atomic
from unweave.text import quote

__all__ = ["CERTIFICATE_FILE", "KEY_FILE", "Identity"]


try:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, utils
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    raise MissingExtra("cryptography", "node", "signing and verifying") from None


KEY_FILE = "key.pem"
CERTIFICATE_FILE = "certificate.pem"

_RESTORE = "restore this agent's key and certificate from its backup"


_SINCE = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)  # where a clock without a battery starts
_EVER = dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)  # RFC 5280: no expiry


@dataclass(frozen=True)
class Identity:
    """An agent's private key and its name."""

    name: str
    key: ec.EllipticCurvePrivateKey
    issued: x509.Certificate | None = (
        None  # the certificate in the folder, perhaps of an earlier version
    )

    @classmethod
    def create(cls, name: str) -> Identity:
        return cls(name, ec.generate_private_key(ec.SECP256R1()))

    def signed(self, payload: bytes, signature: bytes) -> bool:
        """Whether this key signed exactly these bytes."""
        return check_signature(self.key.public_key(), payload, signature)

    def sign(self, payload: bytes) -> bytes:
        """The one signature of these bytes under this key.

        (r, s) and (r, n − s) are both valid ECDSA signatures. Only the smaller s is written and
        accepted, so that a signature cannot be altered and still hold.
        """
        r, s = utils.decode_dss_signature(self.key.sign(payload, _scheme(payload)))
        return utils.encode_dss_signature(r, min(s, _ORDER - s))

    def commit(self, row_key: Key) -> bytes:
        """A commitment to one record, by its key: only this agent can compute it."""
        text = canonical(row_key)
        if text is None:
            raise ConfigError(
                "a record has no key, so it cannot be named. Fix: fill in the key column"
            )
        return commitment(self.row_secret, text)

    @cached_property
    def row_secret(self) -> bytes:
        """The key of the commitments, derived from the private key, so that it is not stored."""
        return self._derive(b"unweave row commitments v1")

    @cached_property
    def store_secret(self) -> bytes:
        """The key of the MACs in this agent's store, derived likewise."""
        return self._derive(b"unweave store seals v1")

    def _derive(self, label: bytes) -> bytes:
        secret = self.key.private_numbers().private_value.to_bytes(32, "big")
        return HKDF(hashes.SHA256(), 32, None, label).derive(secret)

    @cached_property
    def keyid(self) -> str:
        return keyid_of(self.key.public_key())

    @cached_property
    def certificate(self) -> x509.Certificate:
        """Self-signed; the same bytes whenever it is made from this key and name."""
        if self.issued is not None:
            return self.issued
        public = self.key.public_key()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=False,
            crl_sign=False,
            encipher_only=False,
            decipher_only=False,
        )
        roles = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(public)
            .serial_number(int(self.keyid[:30], 16) + 1)
            .not_valid_before(_SINCE)
            .not_valid_after(_EVER)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage(roles), critical=False)
            .add_extension(
                x509.SubjectAlternativeName([x509.DNSName(tls_name(self.keyid))]), critical=False
            )
        )
        return builder.sign(self.key, hashes.SHA256(), ecdsa_deterministic=True)

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def public_pem(self) -> str:
        return (
            self.key.public_key()
            .public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            .decode()
        )

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def save(self, folder: str | Path) -> None:
        """Write key and certificate. A key that exists is never overwritten."""
        folder = Path(folder)
        path = folder / KEY_FILE
        try:
            file = create_private(path)
        except FileExistsError:
            raise ConfigError(
                f"{path}: there is a key already. Fix: keep it, as it is this agent's identity, or "
                "move it away first"
            ) from None
        with file:
            file.write(self.key_pem)
            file.flush()
            os.fsync(file.fileno())
        write_atomic(folder / CERTIFICATE_FILE, self.certificate_pem.encode())

    @classmethod
    def load(cls, folder: str | Path) -> Identity:
        """Read key and certificate, and refuse a key that others can read."""
        folder = Path(folder)
        path = folder / KEY_FILE
        try:
            with path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                raw = file.read()
        except OSError as error:
            raise ConfigError(
                f"{path}: cannot be read ({error.strerror}). Fix: {_RESTORE}"
            ) from None
        if mode & 0o077:
            raise ConfigError(
                f"{path}: others can read this key (mode {mode & 0o777:04o}). Fix: "
                f"chmod 600 {quote(path)}"
            )
        try:
            key = serialization.load_pem_private_key(raw, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise ConfigError(
                f"{path}: not an unencrypted private key in PEM form. Fix: {_RESTORE}"
            ) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
            raise ConfigError(f"{path}: not a P-256 key. Fix: {_RESTORE}")
        issued = _certificate_of(folder / CERTIFICATE_FILE, key.public_key())
        names = issued.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        if not names:
            raise ConfigError(
                f"{folder / CERTIFICATE_FILE}: this certificate names no agent. Fix: {_RESTORE}"
            )
        return cls(str(names[0].value), key, issued)


def _certificate_of(path: Path, public: PublicKey) -> x509.Certificate:
    """The certificate in the file; ConfigError if it belongs to another key."""
    try:
        pem = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}). Fix: {_RESTORE}") from None
    try:
        found = public_key(pem)
        certificate = x509.load_pem_x509_certificate(pem.encode())
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    if found != public:
        raise ConfigError(
            f"{path}: this certificate belongs to another key than {KEY_FILE}. Fix: {_RESTORE}"
        )
    return certificate
