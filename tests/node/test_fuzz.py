"""The wire decoder against bytes that nobody meant: a message, or a WireError; nothing else."""

from random import Random

import pytest

from unweave.errors import WireError
from unweave.node.transport.framing import Assembly, split
from unweave.node.wire.codec import decode, encode
from unweave.node.wire.envelope import PAYLOAD_TYPE, open_message, sign_message
from unweave.protocol.statements import pae
from unweave.testing.values import MESSAGES, small_terms

TERMS = small_terms()
COUNTS = [3_000, pytest.param(120_000, marks=pytest.mark.slow)]


def sign(payload):
    return b"signed " + payload[:8]


def verify(agent, payload, signature):
    """Takes every signature that looks like one: the bytes behind it must be checked as well."""
    return signature.startswith(b"signed")


# ------------------------------------------------------------------------------------- mutations


def flip(draw, data):
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 5, 20))):
        if out:
            out[draw.randrange(len(out))] ^= 1 << draw.randrange(8)
    return bytes(out)


def cut(draw, data):
    return data[: draw.randrange(len(data) + 1)]


def drop(draw, data):
    start = draw.randrange(len(data) + 1)
    return data[:start] + data[start + draw.choice((1, 2, 8, 40)) :]


def insert(draw, data):
    at = draw.randrange(len(data) + 1)
    return data[:at] + draw.randbytes(draw.choice((1, 2, 8, 40))) + data[at:]


def repeat(draw, data):
    """A stretch of it once more: fields that come twice, lists that grow."""
    start = draw.randrange(len(data) + 1)
    stretch = data[start : start + draw.randrange(64)]
    return data[:start] + stretch * draw.choice((2, 3, 50)) + data[start:]


def varint(draw, data):
    """A length or a number that is as large as it gets."""
    at = draw.randrange(len(data) + 1)
    return data[:at] + b"\xff" * draw.choice((4, 9)) + draw.choice((b"\x01", b"\x7f")) + data[at:]


def splice(draw, data):
    other = a_message(draw)
    return data[: draw.randrange(len(data) + 1)] + other[draw.randrange(len(other) + 1) :]


def noise(draw, data):
    return draw.randbytes(draw.randrange(200))


MUTATIONS = (flip, cut, drop, insert, repeat, varint, splice, noise)


def a_message(draw):
    return encode(draw.choice(list(MESSAGES.values()))(draw, TERMS), TERMS)


def mutated(draw, data):
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        data = draw.choice(MUTATIONS)(draw, data)
    return data


# ----------------------------------------------------------------------------------------- tests


def reads(data):
    """Whether `data` is a message; what is read as one can be written again."""
    try:
        message = decode(data, TERMS)
    except WireError:
        return False
    encode(message, TERMS)
    return True


@pytest.mark.parametrize("count", COUNTS)
def test_mutated_messages(count):
    draw, read, pool = Random(1), 0, []
    for k in range(count):
        if k % 20 == 0:
            pool.append(a_message(draw))
            assert reads(pool[-1])
        read += reads(mutated(draw, draw.choice(pool[-100:])))
    # A fuzzer that is always refused at the door, or never, tests nothing. (Most are: an id that
    # does not name its agent, a stamp beyond every count and a record of another network end here.)
    assert 0.01 * count < read < 0.9 * count


@pytest.mark.parametrize("count", COUNTS)
def test_mutated_envelopes(count):
    draw, opened, payload = Random(2), 0, b""
    for k in range(count):
        if k % 20 == 0:
            payload = a_message(draw)
            sealed = sign_message(payload, draw.randrange(TERMS.size), sign)
            assert open_message(sealed, TERMS, verify)[1] == payload
        try:
            sender, inside = open_message(mutated(draw, sealed), TERMS, verify)
        except WireError:
            continue
        assert 0 <= sender < TERMS.size
        assert isinstance(pae(PAYLOAD_TYPE, inside), bytes)
        reads(inside)
        opened += 1
    assert 0.02 * count < opened < 0.95 * count


@pytest.mark.parametrize("count", COUNTS)
def test_mutated_chunks(count):
    draw, complete = Random(3), 0
    for _ in range(count):
        chunks = list(split(draw.randbytes(draw.randrange(1, 60)), draw.choice((1, 7, 20, 100))))
        at = draw.randrange(len(chunks))
        chunks[at] = mutated(draw, chunks[at])
        assembly = Assembly(50)
        try:
            for chunk in chunks:
                assembly.add(chunk)
        except WireError:
            continue
        if assembly.complete:
            assert len(assembly.take()) == assembly.total <= 50
            complete += 1
    assert 0.02 * count < complete < 0.9 * count
