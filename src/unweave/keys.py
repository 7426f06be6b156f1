"""P-256 keys: reading a public key, its id, and checking signatures."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from unweave.errors import ConfigError, MissingExtra

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, utils
except ImportError:
    raise MissingExtra("cryptography", "verify", "signing and verifying") from None

__all__ = ["Hashed", "check_signature", "keyid_of", "public_key", "tls_name", "verifier"]


class Hashed(bytes):
    """The SHA-256 of the signed bytes, in place of them; the signature is the same."""

    __slots__ = ()

    @classmethod
    def of(cls, *parts: bytes | memoryview) -> Hashed:
        h = hashlib.sha256()
        for part in parts:
            h.update(part)
        return cls(h.digest())


PublicKey = ec.EllipticCurvePublicKey


_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256


_ECDSA = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)


_OF_HASH = ec.ECDSA(utils.Prehashed(hashes.SHA256()), deterministic_signing=True)


def public_key(pem: str) -> PublicKey:
    """The P-256 key in a PEM certificate or a PEM public key."""
    raw = pem.strip().encode()
    try:
        if b"BEGIN CERTIFICATE" in raw:
            key: object = x509.load_pem_x509_certificate(raw).public_key()
        else:
            key = serialization.load_pem_public_key(raw)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(
            "not a certificate or public key in PEM form. Fix: copy the text of certificate.pem"
        ) from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp256r1":
        raise ConfigError("not a P-256 key. Fix: take the certificate that `unweave init` made")
    return key


def keyid_of(key: PublicKey) -> str:
    """SHA-256 of the DER SubjectPublicKeyInfo, in hex."""
    der = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(der).hexdigest()


def tls_name(keyid: str) -> str:
    """The host name in an agent's certificate: it depends on the key, not on the address."""
    return f"{keyid[:40]}.unweave.invalid"


def _scheme(payload: bytes) -> ec.ECDSA:
    return _OF_HASH if isinstance(payload, Hashed) else _ECDSA


def check_signature(key: PublicKey, payload: bytes, signature: bytes) -> bool:
    """Whether `signature` is the key's signature of `payload`, with the smaller s."""
    try:
        _, s = utils.decode_dss_signature(signature)
        if s > _ORDER // 2:
            return False
        key.verify(signature, payload, _scheme(payload))
    except (InvalidSignature, ValueError):
        return False
    return True


def verifier(pems: Sequence[str]) -> Callable[[int, bytes, bytes], bool]:
    """`check(agent, payload, signature)` against the keys that a manifest pins, in its order."""
    keys = [public_key(pem) for pem in pems]

    def check(agent: int, payload: bytes, signature: bytes) -> bool:
        return check_signature(keys[agent], payload, signature)

    return check
