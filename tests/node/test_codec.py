"""Messages as bytes: back unchanged, always the same, and never an error of another kind."""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unweave.node.wire
from unweave.errors import WireError
from unweave.node.storage.rows import (
    decode_parked,
    decode_set,
    decode_stamp,
    decode_tombs,
    encode_parked,
    encode_set,
    encode_stamp,
    encode_tombs,
)
from unweave.node.wire.codec import decode, encode
from unweave.node.wire.envelope import PAYLOAD_TYPE, open_message, sign_message
from unweave.node.wire.primitives import pb
from unweave.persistent import Bitmap, Stack, Vector
from unweave.protocol.messages import (
    Ack,
    Alive,
    Digests,
    Erasures,
    Gossip,
    Hello,
    News,
    Pass,
    Share,
)
from unweave.protocol.requests import OPEN_REQUESTS
from unweave.protocol.statements import Intent, Tombstone, Vote, pae, tombs_in
from unweave.protocol.token import NEVER, AttestationRound, Revision, Stamp, join, request_id
from unweave.testing.values import MESSAGES, gossip, same, small_terms, state, token

TERMS = small_terms()
NONE = Digests(b"", b"", b"", b"", b"")
randoms = st.randoms(use_true_random=False)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
@given(draw=randoms)
def test_every_message_comes_back_unchanged(kind, draw):
    message = MESSAGES[kind](draw, TERMS)
    assert same(decode(encode(message, TERMS), TERMS), message)


@given(draw=randoms)
def test_the_same_value_gives_the_same_bytes(draw):
    """Also when its sets and maps were filled in another order, as they are after a restart."""
    said = gossip(draw, TERMS)
    other = said
    if said.compacted is not None:
        other = other._replace(compacted=dict(reversed(said.compacted.items())))
    if (erased := said.erasures) is not None:
        shuffled = erased._replace(
            tombs=dict(reversed(erased.tombs.items())),
            tombstones=dict(reversed(erased.tombstones.items())),
            votes=dict(reversed(erased.votes.items())),
            retrain_epoch=frozenset(sorted(erased.retrain_epoch, reverse=True)),
        )
        other = other._replace(erasures=shuffled)
    if said.news is not None:
        intents = dict(reversed(said.news.intents.items()))
        other = other._replace(news=said.news._replace(intents=intents))
    stamp = Stamp(1, 0, 5, 2, 5)
    data = encode(Share(stamp, said), TERMS)
    assert encode(Share(stamp, other), TERMS) == data
    assert encode(decode(data, TERMS), TERMS) == data
    held = token(draw, TERMS)
    signatures = dict(reversed(held.round.signatures.items()))
    shuffled = held._replace(
        tombs=dict(reversed(held.tombs.items())),
        round=held.round._replace(signatures=signatures),
    )
    data = encode(Pass(held), TERMS)
    assert encode(Pass(shuffled), TERMS) == data
    assert encode(decode(data, TERMS), TERMS) == data


@given(draw=randoms)
def test_the_parts_of_a_state_come_back_unchanged(draw):
    s = state(draw, TERMS, 1)
    away = tombs_in(s.known.compacted.values())
    assert same(join(decode_tombs(encode_tombs(s.known.tombs), TERMS), away), s.known.tombs)
    assert same(decode_parked(encode_parked(s.token.parked), TERMS), s.token.parked)
    assert same(decode_set(encode_set(s.own.dropped), TERMS), s.own.dropped)
    assert same(decode_stamp(encode_stamp(s.token.last), TERMS), s.token.last)


# ----------------------------------------------------------------------------- what is no message


def _try(data: bytes) -> bool:
    """Whether `data` was read as a message. Anything but a message or a WireError fails the test,
    also when it happens later, as the records and maps are looked into."""
    try:
        message = decode(data, TERMS)
    except WireError:
        return False
    if isinstance(message, Hello | Share):
        said = message.gossip
        records = [
            *(() if said.erasures is None else said.erasures.tombstones.values()),
            *(() if said.news is None else said.news.intents.values()),
            *(() if said.compacted is None else said.compacted.values()),
        ]
        for record in records:
            assert 0 <= record.agent < TERMS.size
            assert isinstance(record.rows, frozenset)
    encode(message, TERMS)
    return True


@given(data=st.binary(max_size=200))
def test_random_bytes_are_refused(data):
    assert not _try(data)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_truncated_and_flipped_bytes_never_raise_anything_else(kind):
    draw = Random(4)
    for _ in range(8):
        data = encode(MESSAGES[kind](draw, TERMS), TERMS)
        assert _try(data)
        for cut in range(len(data)):
            _try(data[:cut])
        for _ in range(300):
            at, bit = draw.randrange(len(data)), draw.randrange(8)
            _try(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])


def _pass(**changes) -> bytes:
    """A token with some of its wire fields replaced."""
    message = pb.Message()
    message.ParseFromString(encode(Pass(token(Random(1), TERMS)._replace(stack=Stack())), TERMS))
    for name, value in changes.items():
        place = message if name == "eta" else message.token.token
        if hasattr(getattr(place, name), "extend"):
            getattr(place, name).extend(value)
        else:
            setattr(place, name, value)
    return message.SerializeToString()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"eta": b"\0" * 16}, "vector of 16 bytes"),
        ({"eta": b""}, "vector of 0 bytes"),
        ({"included": b"\0" * 48}, "48 bytes of revisions"),
        ({"seen": b"\x10"}, "beyond number 3"),
        ({"seen": b"\xff\xff"}, "beyond number 3"),
        ({"seen": b"\x01" + b"\0" * 10**6}, "beyond number 3"),
        ({"retrain_epoch": b"x" * 17}, "multiple of 16"),
        ({"receipts": b"x" * 31}, "receipts of 31 bytes"),
        ({"stack": [4]}, "agent number 4"),
        ({"stack": [0] * 9}, "a path of"),
    ],
)
def test_what_does_not_fit_the_network_is_named(changes, says):
    assert _try(_pass())
    with pytest.raises(WireError, match=says):
        decode(_pass(**changes), TERMS)


@pytest.mark.parametrize(
    ("agents", "secret"), [([0], b""), ([0, 1], b"s" * 31), ([1], b"s" * 33), ([], b"s" * 32)]
)
def test_a_round_of_agents_has_a_secret_of_one_length(agents, secret):
    wrong = AttestationRound(Bitmap(agents), secret=secret)
    data = encode(Pass(token(Random(1), TERMS)._replace(round=wrong)), TERMS)
    with pytest.raises(WireError, match=f"a secret of {len(secret)} bytes"):
        decode(data, TERMS)


def test_another_network_and_an_unknown_kind_are_refused():
    other = small_terms()
    object.__setattr__(other, "network_id", b"\x08" * 32)
    data = encode(Alive(Stamp(1, 0, 1, 1, 1), 2.0), other)
    with pytest.raises(WireError, match="same manifest"):
        decode(data, TERMS)
    with pytest.raises(WireError, match="unknown kind"):
        decode(pb.Message(network_id=TERMS.network_id).SerializeToString(), TERMS)
    for beat in (float("nan"), float("inf")):
        with pytest.raises(WireError, match="heartbeat"):
            decode(encode(Alive(Stamp(1, 0, 1, 1, 1), beat), TERMS), TERMS)


BAD_RECORDS = {
    "no json": b"{",
    "no object": b"[]",
    "deep": b"[" * 200_000,
    "empty": b"{}",
    "agent is text": b'{"network_id":"%s","agent":"1","request":"%s","rows":[],"whole":true}',
    "agent is huge": b'{"network_id":"%s","agent":1e999,"request":"%s","rows":[],"whole":true}',
    "not the author": b'{"network_id":"%s","agent":2,"request":"%s","rows":[],"whole":true}',
    "short id": b'{"network_id":"%s","agent":1,"request":"00","rows":[],"whole":true}',
    "rows are numbers": b'{"network_id":"%s","agent":1,"request":"%s","rows":[1],"whole":true}',
    "rows are text": b'{"network_id":"%s","agent":1,"request":"%s","rows":"00","whole":true}',
    "whole is a number": b'{"network_id":"%s","agent":1,"request":"%s","rows":[],"whole":1}',
    "another run": b'{"network_id":"00","agent":1,"request":"%s","rows":[],"whole":true}',
    "huge number": b'{"network_id":"%s","agent":' + b"9" * 5000 + b"}",
}


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_a_record_that_cannot_be_read_is_not_let_in(name):
    raw = BAD_RECORDS[name]
    request = b"ab" * 16
    run = TERMS.network_id.hex().encode()
    fill = {2: (run, request), 1: (request if name == "another run" else run,), 0: ()}
    intent = Intent(raw % fill[raw.count(b"%s")], 1, b"")
    news = News({b"key": intent}, frozenset(), {}, NEVER)
    data = encode(Share(Stamp(1, 0, 1, 1, 1), Gossip(NONE, news=news)), TERMS)
    with pytest.raises(WireError, match="intent"):
        decode(data, TERMS)


LISTS = {  # part of the gossip, list in it, how many statements an honest agent holds of one author
    "intents": ("news", "intents", OPEN_REQUESTS),
    "mismatches": ("news", "mismatches", 2 * (TERMS.size + 1)),
    "influences": ("news", "influences", 1),
    "votes": ("erasures", "votes", TERMS.size),
    "openings": ("openings", "openings", 1),
}


@pytest.mark.parametrize("name", LISTS)
def test_more_statements_than_an_author_may_have_are_refused_unread(name):
    """None of these can be read; the number alone is named, so none was."""
    part, field, most = LISTS[name]

    def sent(authors):
        message = pb.Message(network_id=TERMS.network_id)
        message.share.fence.epoch = 1
        place = getattr(getattr(message.share.gossip, part), field)
        place.extend(pb.Statement(raw=b"{", author=author) for author in authors)
        return message.SerializeToString()

    with pytest.raises(WireError, match=f"{most + 1} .* of a2: an agent has at most {most}"):
        decode(sent([1] * (most + 1) + [2] * most), TERMS)
    with pytest.raises(WireError, match="cannot be read"):
        decode(sent([1] * most + [2] * most), TERMS)


@pytest.mark.parametrize("kind", [Intent, Tombstone])
@pytest.mark.parametrize(("whole", "rows"), [(True, []), (False, ["00" * 32]), (False, [])])
def test_an_erasure_of_nothing_is_not_let_in(kind, whole, rows):
    request = request_id(1, b"r" * 12)
    more = {"retrain": False} if kind is Tombstone else {}
    statement = kind.write(
        1, lambda _: b"", network_id=TERMS.network_id.hex(), request=request.hex(), agent=1,
        whole=whole, rows=rows, **more,
    )  # fmt: skip
    if kind is Intent:
        gossip = Gossip(NONE, news=News({request: statement}, frozenset(), {}, NEVER))
    else:
        gossip = Gossip(NONE, news=News({}, frozenset(), {}, NEVER), erasures=Erasures(
            {}, frozenset(), {request: statement}, {}))  # fmt: skip
    data = encode(Share(Stamp(1, 0, 1, 1, 1), gossip), TERMS)
    if whole or rows:
        decode(data, TERMS)
    else:
        with pytest.raises(WireError, match="names no record"):
            decode(data, TERMS)


def test_a_vote_about_nobody_is_not_let_in():
    vote = Vote.write(
        1, lambda _: b"", network_id=TERMS.network_id.hex(), agent=4, request="00" * 16
    )
    said = Gossip(NONE, erasures=Erasures({}, frozenset(), {}, {(4, 1): vote}))
    with pytest.raises(WireError, match="not in this network"):
        decode(encode(Share(Stamp(1, 0, 1, 1, 1), said), TERMS), TERMS)


@pytest.mark.parametrize(
    "message",
    [
        Ack(Stamp(2**64, 0, 0, 0, 0), Stamp(1, 0, 0, 0, 0)),
        Ack(Stamp(1, -1, 0, 0, 0), Stamp(1, 0, 0, 0, 0)),
        Pass(token(Random(1), TERMS)._replace(included=(Revision(1, 2**64),) * 4)),
        Pass(token(Random(1), TERMS)._replace(retrain_epoch=frozenset({b"short"}))),
        Pass(token(Random(1), TERMS)._replace(seen=-1)),
    ],
)
def test_a_value_that_no_message_can_carry_is_refused(message):
    with pytest.raises(WireError):
        encode(message, TERMS)


# ------------------------------------------------------------------------------------- envelopes


def _sign(key: bytes):
    return lambda payload: (key + payload)[-24:]


def _verify(agent: int, payload: bytes, signature: bytes) -> bool:
    return signature == _sign(b"key%d" % agent)(payload)


def test_an_envelope_is_opened_only_with_the_senders_signature():
    payload = encode(Pass(token(Random(2), TERMS)), TERMS)
    data = sign_message(payload, 2, _sign(b"key2"))
    assert open_message(data, TERMS, _verify) == (2, payload)
    assert sign_message(payload, 2, _sign(b"key2")) == data
    seen = []
    sign_message(payload, 2, lambda signed: seen.append(signed) or b"")
    assert seen == [pae(PAYLOAD_TYPE, payload)]
    forged = pb.Envelope()
    forged.ParseFromString(data)
    forged.payload = payload[:-1] + bytes([payload[-1] ^ 1])
    with pytest.raises(WireError, match="a3's"):
        open_message(forged.SerializeToString(), TERMS, _verify)
    forged.sender = 9
    with pytest.raises(WireError, match="agent number 9"):
        open_message(forged.SerializeToString(), TERMS, _verify)
    for cut in range(len(data)):
        with pytest.raises(WireError):
            open_message(data[:cut], TERMS, _verify)


# ------------------------------------------------------------------------------------------ size


def test_large_networks_and_vectors_are_read_whole():
    agents, dim = 10_000, 200_000
    terms = small_terms(agents, dim)
    draw = Random(5)
    revisions = Vector(Revision(k % 7, draw.getrandbits(64)) for k in range(agents))
    inside = Bitmap(k for k, revision in enumerate(revisions) if revision.counter)
    big = token(Random(1), small_terms())._replace(
        included=revisions,
        inside=inside,
        eta=np.random.default_rng(1).integers(-(2**62), 2**62, dim),
        seen=terms.everybody,
        round=token(Random(1), small_terms()).round._replace(audit=None, frozen=None),
    )
    data = encode(Pass(big), terms)
    assert len(data) < 8 * dim + 48 * agents + 5_000
    assert same(decode(data, terms), Pass(big))


@pytest.mark.skipif(find_spec("grpc_tools") is None, reason="the compiler is not installed")
def test_the_generated_code_is_that_of_the_contract(tmp_path):
    room = Path(unweave.node.wire.__file__).parent
    (tmp_path / "unweave" / "node" / "wire").mkdir(parents=True)
    target = tmp_path / "unweave" / "node" / "wire" / "wire.proto"
    shutil.copy(room / "wire.proto", target)
    outs = [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    command = [sys.executable, "-W", "ignore", "-m", "grpc_tools.protoc", f"-I{tmp_path}"]
    subprocess.run([*command, *outs, str(target)], check=True)
    for name in ("wire_pb2.py", "wire_pb2.pyi"):
        made = (target.parent / name).read_text()
        assert made == (room / name).read_text(), f"{name} is stale: run `make wire`"
