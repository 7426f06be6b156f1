"""A message with its sender's signature.

The signature covers DSSE's pre-authentication encoding of the very bytes that travel; the receiver
checks those bytes and only then reads them, so nothing is ever serialised a second time.
"""

from __future__ import annotations

from collections.abc import Callable

from unweave.errors import WireError
from unweave.node.parts import agent_of, large_field, parsed, pb, to_bytes, writing
from unweave.protocol.records import Sign, pae
from unweave.protocol.terms import Terms

__all__ = ["PAYLOAD_TYPE", "Verify", "seal", "unseal"]

PAYLOAD_TYPE = "application/vnd.unweave.message+protobuf"

Verify = Callable[[int, bytes, bytes], bool]  # agent, signed bytes, signature


def seal(payload: bytes, sender: int, sign: Sign) -> bytes:
    """`payload` in a signed envelope."""
    signature = sign(pae(PAYLOAD_TYPE, payload))
    with writing("envelope"):
        head = to_bytes(pb.Envelope(sender=sender, signature=signature))
    return b"".join((head, *large_field(pb.Envelope.PAYLOAD_FIELD_NUMBER, payload)))


def unseal(data: bytes, terms: Terms, verify: Verify) -> tuple[int, bytes]:
    """Sender and payload, if the sender's signature covers the payload."""
    envelope = parsed(pb.Envelope(), data, "envelope")
    sender, payload = agent_of(envelope.sender, terms), envelope.payload
    signature = envelope.signature
    del envelope  # it holds a second copy of a payload that may be large
    if not verify(sender, pae(PAYLOAD_TYPE, payload), signature):
        raise WireError(
            f"the signature is not {terms.name(sender)}'s: its key must be the one in the manifest"
        )
    return sender, payload
