"""A large message is not held more often than necessary, and means the same as a small one."""

import asyncio
import hashlib
from random import Random
from types import SimpleNamespace

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from unweave.errors import WireError
from unweave.keys import Hashed, check_signature, verifier
from unweave.node.identity import Identity
from unweave.node.log import Log
from unweave.node.wire import channel as room
from unweave.node.wire import envelope
from unweave.node.wire.envelope import PAYLOAD_TYPE, open_message, sign_message
from unweave.node.wire.primitives import last_field, pb
from unweave.protocol.messages import Ack
from unweave.protocol.ports import MemoryTransport
from unweave.protocol.statements import pae
from unweave.testing.values import small_terms, token

TERMS = small_terms()
NUMBER = pb.Chunk.DATA_FIELD_NUMBER

fields = st.lists(
    st.one_of(
        st.builds(lambda v: pb.Chunk(total=v).SerializeToString(), st.integers(1, 2**64 - 1)),
        st.builds(lambda v: pb.Chunk(data=v).SerializeToString(), st.binary(min_size=1)),
        st.sampled_from(
            [b"\x19" + b"\x07" * 8, b"\x1d" + b"\x07" * 4, b"\x22\x03abc", b"\x80\x01"]
        ),
        st.binary(max_size=6),
    ),
    max_size=5,
).map(b"".join)


@given(data=fields)
def test_the_last_field_is_what_the_library_reads(data):
    found = last_field(data, NUMBER)
    if found is None:
        return
    head, value = found
    try:
        before = pb.Chunk.FromString(head)
    except DecodeError:
        with pytest.raises(DecodeError):
            pb.Chunk.FromString(data)
        return
    whole = pb.Chunk.FromString(data)
    assert (whole.total, whole.data) == (before.total, bytes(value))


@given(total=st.integers(1, 2**64 - 1), data=st.binary(min_size=1))
def test_what_is_written_here_is_found(total, data):
    raw = pb.Chunk(total=total, data=data).SerializeToString()
    head, value = last_field(raw, NUMBER)
    assert head == pb.Chunk(total=total).SerializeToString()
    assert value == data
    assert last_field(raw[:-1], NUMBER) is None
    assert last_field(raw, NUMBER + 1) is None


def test_the_signature_of_a_hash_is_the_signature():
    identity = Identity.create("a1")
    text = b"some words"
    signature = identity.sign(text)
    assert identity.sign(Hashed.of(b"some", b" words")) == signature
    public = identity.key.public_key()
    assert check_signature(public, Hashed.of(text), signature)
    assert not check_signature(public, Hashed.of(b"other words"), signature)
    assert not check_signature(public, hashlib.sha256(text).digest(), signature)  # not marked


@pytest.mark.parametrize("limit", [1, 1 << 20])
def test_large_envelopes_are_the_same_as_small_ones(monkeypatch, limit):
    """Who signs the hash and who signs the text cannot be told apart."""
    identities = [Identity.create(name) for name in TERMS.topology.agents]
    check = verifier([identity.certificate_pem for identity in identities])
    payload = b"a token"
    signature = identities[1].sign(pae(PAYLOAD_TYPE, payload))
    monkeypatch.setattr(envelope, "_LARGE", limit)
    sealed = sign_message(payload, 1, identities[1].sign)
    assert pb.Envelope.FromString(sealed).signature == signature
    assert open_message(sealed, TERMS, check) == (1, payload)
    with pytest.raises(WireError, match="signature"):
        open_message(sealed[:-1] + b"N", TERMS, check)


def test_the_bytes_are_gone_before_the_message_is_read(monkeypatch):
    class Watched(bytes):
        def __del__(self):
            events.append("gone")

    events = []
    identities = [Identity.create(name) for name in TERMS.topology.agents]
    manifest = SimpleNamespace(pems=lambda: [i.certificate_pem for i in identities])
    folder = SimpleNamespace(me=0, terms=TERMS, manifest=manifest)
    channel = room.SecureChannel(
        folder, identities[0], MemoryTransport(0, (), {}), Log("a1", level="error")
    )
    stamp = token(Random(1), TERMS).stamp
    parcel = [Watched(channel.signed(Ack(stamp, stamp)))]
    read = room.decode
    monkeypatch.setattr(room, "decode", lambda *args: events.append("read") or read(*args))
    assert asyncio.run(channel.receive(0, parcel, None))[0].message == Ack(stamp, stamp)
    assert events == ["gone", "read"]
