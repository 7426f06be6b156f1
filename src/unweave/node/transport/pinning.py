"""The neighbours that the manifest pins: the only ones that TLS lets in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from unweave.errors import ConfigError, MissingExtra
from unweave.keys import keyid_of, public_key, tls_name
from unweave.manifest import Manifest
from unweave.node.identity import Identity

__all__ = ["Pin", "Pins"]


try:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding
except ImportError:
    raise MissingExtra("cryptography", "node", "pinning certificates") from None


class Pin:
    """One agent: where it is, and the one certificate that is its own."""

    def __init__(self, manifest: Manifest, index: int) -> None:
        entry = manifest.entries[index]
        if entry.certificate is None:
            raise ConfigError(
                f'network.toml: agent "{entry.name}" has no certificate: neighbours trust nothing '
                "else; add the text of its certificate.pem"
            )
        if entry.address is None:
            raise ConfigError(f'network.toml: agent "{entry.name}" has no address: add host:port')
        self.index = index
        self.name = entry.name
        self.address = entry.address
        self.tls_name = tls_name(keyid_of(public_key(entry.certificate)))
        # Written anew from what was read: a second certificate in the text would be a second root.
        certificate = x509.load_pem_x509_certificate(entry.certificate.strip().encode())
        self.der = certificate.public_bytes(Encoding.DER)
        self.pem = certificate.public_bytes(Encoding.PEM)


class Pins:
    """The certificates that count for one agent: its own and its neighbours'."""

    def __init__(self, manifest: Manifest, me: int, identity: Identity) -> None:
        self.me = Pin(manifest, me)
        if identity.certificate.public_bytes(Encoding.DER) != self.me.der:
            raise ConfigError(
                f'this is not the identity that network.toml pins for "{self.me.name}": put back '
                "its key.pem and certificate.pem, or the right network.toml"
            )
        around = [int(index) for index in manifest.topology.neighbours(me)]
        self.neighbours = {index: Pin(manifest, index) for index in around}
        self._owner = {pin.der: index for index, pin in self.neighbours.items()}
        self._seen: dict[bytes, int] = {}

    @property
    def roots(self) -> bytes:
        """All neighbours' certificates: whoever has none of their keys does not get in."""
        return b"".join(pin.pem for pin in self.neighbours.values())

    def owner(self, auth: Mapping[str, Iterable[bytes]]) -> int | None:
        """The neighbour whose very certificate this TLS connection has shown."""
        shown = [*auth.get("x509_pem_cert", ())]
        if len(shown) != 1:
            return None
        index = self._seen.get(shown[0])
        if index is None:
            try:
                der = x509.load_pem_x509_certificate(shown[0]).public_bytes(Encoding.DER)
            except ValueError:
                return None
            index = self._owner.get(der)
            if index is not None:
                self._seen[shown[0]] = index
        return index
