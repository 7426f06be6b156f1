"""Certificates that the manifest pins: TLS accepts the neighbours' and no others.

`Pin` is one agent's address and certificate, `Pins` are those that one agent needs. `tls_problem`
says why a certificate cannot be used.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping

from unweave.errors import ConfigError, MissingExtra
from unweave.keys import keyid_of, public_key, tls_name
from unweave.manifest import Manifest
from unweave.node.identity import Identity

__all__ = ["Pin", "Pins", "own_pin", "tls_problem"]


try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import ExtendedKeyUsageOID
except ImportError:
    raise MissingExtra("cryptography", "node", "pinning certificates") from None


# The extensions that TLS implementations process; they refuse any other critical one.
_KNOWN = (
    x509.BasicConstraints,
    x509.KeyUsage,
    x509.ExtendedKeyUsage,
    x509.SubjectAlternativeName,
    x509.SubjectKeyIdentifier,
    x509.AuthorityKeyIdentifier,
)


class Pin:
    """The address and the certificate of one agent."""

    def __init__(self, manifest: Manifest, index: int) -> None:
        entry = manifest.entries[index]
        if entry.certificate is None:
            raise ConfigError(
                f'network.toml: agent "{entry.name}" has no certificate. Fix: add the text of its '
                "certificate.pem"
            )
        if entry.address is None:
            raise ConfigError(
                f'network.toml: agent "{entry.name}" has no address. Fix: add host:port'
            )
        self.index = index
        self.name = entry.name
        self.address = entry.address
        self.tls_name = tls_name(keyid_of(public_key(entry.certificate)))
        # Encoded again: a second certificate in the text would be a second trusted root.
        certificate = x509.load_pem_x509_certificate(entry.certificate.strip().encode())
        self.der = certificate.public_bytes(Encoding.DER)
        self.pem = certificate.public_bytes(Encoding.PEM)


def own_pin(manifest: Manifest, me: int, identity: Identity) -> Pin:
    """The pin of this agent; ConfigError unless it is its own certificate, byte for byte."""
    pin = Pin(manifest, me)
    if identity.certificate.public_bytes(Encoding.DER) != pin.der:
        raise ConfigError(
            f'certificate.pem is not the one that network.toml pins for "{pin.name}". Fix: put '
            "back its key.pem and certificate.pem, or the right network.toml"
        )
    return pin


def tls_problem(pem: str, now: dt.datetime) -> str | None:
    """Why no neighbour can open a connection with this certificate; None: they can."""
    certificate = x509.load_pem_x509_certificate(pem.strip().encode())
    name = tls_name(keyid_of(public_key(pem)))
    try:
        certificate.verify_directly_issued_by(certificate)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return "is not signed by its own key"
    if now < certificate.not_valid_before_utc:
        return f"is not valid before {certificate.not_valid_before_utc:%Y-%m-%d}"
    if now > certificate.not_valid_after_utc:
        return f"expired on {certificate.not_valid_after_utc:%Y-%m-%d}"
    try:
        found = {type(one.value): one for one in certificate.extensions}
    except (ValueError, x509.DuplicateExtension):
        return "has extensions that cannot be read"
    names = found.get(x509.SubjectAlternativeName)
    dns = names.value.get_values_for_type(x509.DNSName) if names else []
    if name not in dns:
        return f"does not hold the name {name}"
    usage = found.get(x509.KeyUsage)
    if usage and not usage.value.digital_signature:
        return "may not sign (key usage)"
    roles = found.get(x509.ExtendedKeyUsage)
    for role in (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH):
        if roles and role not in roles.value:
            return "may not be used by servers and clients (extended key usage)"
    unknown = [one for kind, one in found.items() if one.critical and kind not in _KNOWN]
    if unknown:
        return f"has an unknown critical extension ({unknown[0].oid.dotted_string})"
    return None


class Pins:
    """The pins of one agent: its own and its neighbours'."""

    def __init__(self, manifest: Manifest, me: int, identity: Identity) -> None:
        self.me = own_pin(manifest, me, identity)
        around = [int(index) for index in manifest.topology.neighbours(me)]
        self.neighbours = {index: Pin(manifest, index) for index in around}
        self._owner = {pin.der: index for index, pin in self.neighbours.items()}
        self._by_pem: dict[bytes, int] = {}  # a cache: parsing costs more than a lookup

    @property
    def roots(self) -> bytes:
        """All neighbours' certificates: TLS trusts these and no others."""
        return b"".join(pin.pem for pin in self.neighbours.values())

    def owner(self, auth: Mapping[str, Iterable[bytes]]) -> int | None:
        """The neighbour whose certificate this TLS connection has shown; None: no neighbour's."""
        shown = [*auth.get("x509_pem_cert", ())]
        if len(shown) != 1:
            return None
        index = self._by_pem.get(shown[0])
        if index is None:
            try:
                der = x509.load_pem_x509_certificate(shown[0]).public_bytes(Encoding.DER)
            except ValueError:
                return None
            index = self._owner.get(der)
            if index is not None:
                self._by_pem[shown[0]] = index
        return index
