"""A message with its sender's signature.

The signature covers DSSE's pre-authentication encoding of the payload's bytes as they are sent. The
receiver checks those bytes before it decodes them, so nothing is serialised a second time.
"""

from __future__ import annotations

from collections.abc import Callable

from unweave.errors import WireError
from unweave.keys import Hashed
from unweave.node.wire.primitives import (
    agent_of,
    large_field,
    last_field,
    parsed,
    pb,
    to_bytes,
    writing,
)
from unweave.protocol.statements import Sign, pae
from unweave.protocol.terms import Terms

__all__ = ["PAYLOAD_TYPE", "Verify", "open_message", "sign_message"]


PAYLOAD_TYPE = "application/vnd.unweave.message+protobuf"

_PAYLOAD = pb.Envelope.PAYLOAD_FIELD_NUMBER
_LARGE = 1 << 20

Verify = Callable[[int, bytes, bytes], bool]  # agent, signed bytes, signature


def sign_message(payload: bytes, sender: int, sign: Sign) -> bytes:
    """`payload` in a signed envelope."""
    signature = sign(_signed(payload))
    with writing("envelope"):
        head = to_bytes(pb.Envelope(sender=sender, signature=signature))
    return b"".join((head, *large_field(_PAYLOAD, payload)))


def open_message(data: bytes, terms: Terms, verify: Verify) -> tuple[int, bytes]:
    """Sender and payload, if the sender's signature covers the payload."""
    found = last_field(data, _PAYLOAD)
    envelope = parsed(pb.Envelope(), data if found is None else found[0], "envelope")
    payload = envelope.payload if found is None else found[1]
    sender = agent_of(envelope.sender, terms)
    if not verify(sender, _signed(payload), envelope.signature):
        raise WireError(
            f"the signature is not {terms.name(sender)}'s. Fix: use the key that the manifest pins"
        )
    return sender, bytes(payload)


def _signed(payload: bytes | memoryview) -> bytes:
    """The signed bytes, or their hash if they are large: a token is not copied to be signed."""
    if len(payload) < _LARGE:
        return pae(PAYLOAD_TYPE, bytes(payload))
    head = b"DSSEv1 %d %s %d " % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload))
    return Hashed.of(head, payload)
