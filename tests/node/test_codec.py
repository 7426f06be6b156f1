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
from unweave.node.wire.primitives import pb, read_point
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
    Welcome,
)
from unweave.protocol.requests import OPEN_REQUESTS
from unweave.protocol.statements import Enrolment, Intent, Tombstone, Vote, pae, tombs_in
from unweave.protocol.terms import Noise
from unweave.protocol.token import (
    NEVER,
    AttestationRound,
    MaskedRound,
    Revision,
    Stamp,
    join,
    request_id,
)
from unweave.testing.values import MESSAGES, gossip, same, small_terms, state, token

TERMS = small_terms()
MASKED = small_terms(privacy="masked", iterates=True)
NOISY = small_terms(privacy="masked", noise=Noise(np.zeros(2, np.int64), {}))
MODES = pytest.mark.parametrize("terms", [TERMS, MASKED, NOISY], ids=["plain", "masked", "noisy"])
NONE = Digests(b"", b"", b"", b"", b"")
randoms = st.randoms(use_true_random=False)


@MODES
@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
@given(draw=randoms)
def test_every_message_comes_back_unchanged(kind, terms, draw):
    message = MESSAGES[kind](draw, terms)
    assert same(decode(encode(message, terms), terms), message)


@MODES
@given(draw=randoms)
def test_the_same_value_gives_the_same_bytes(terms, draw):
    """Also when its sets and maps were filled in another order, as they are after a restart."""
    said = gossip(draw, terms)
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
    if said.parked is not None:
        enrolled = dict(reversed(said.parked.enrolled.items()))
        other = other._replace(parked=said.parked._replace(enrolled=enrolled))
    if said.news is not None:
        intents = dict(reversed(said.news.intents.items()))
        other = other._replace(news=said.news._replace(intents=intents))
    stamp = Stamp(1, 0, 5, 2, 5)
    data = encode(Share(stamp, said), terms)
    assert encode(Share(stamp, other), terms) == data
    assert encode(decode(data, terms), terms) == data
    held = token(draw, terms)
    signatures = dict(reversed(held.round.signatures.items()))
    masked = held.masked._replace(
        keys=dict(reversed(held.masked.keys.items())),
        spare=dict(reversed(held.masked.spare.items())),
    )
    shuffled = held._replace(
        tombs=dict(reversed(held.tombs.items())),
        round=held.round._replace(signatures=signatures),
        masked=masked if terms.masked else held.masked,
    )
    data = encode(Pass(held), terms)
    assert encode(Pass(shuffled), terms) == data
    assert encode(decode(data, terms), terms) == data


@MODES
@given(draw=randoms)
def test_the_parts_of_a_state_come_back_unchanged(terms, draw):
    s = state(draw, terms, 1)
    away = tombs_in(s.known.compacted.values())
    assert same(join(decode_tombs(encode_tombs(s.known.tombs), terms), away), s.known.tombs)
    assert same(decode_parked(encode_parked(s.token.parked), terms), s.token.parked)
    assert same(decode_set(encode_set(s.own.dropped), terms), s.own.dropped)
    assert same(decode_stamp(encode_stamp(s.token.last), terms), s.token.last)


# ----------------------------------------------------------------------------- what is no message


def _try(data: bytes, terms=TERMS) -> bool:
    """Whether `data` was read as a message. Anything but a message or a WireError fails the test,
    also when it happens later, as the records and maps are looked into."""
    try:
        message = decode(data, terms)
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
    if isinstance(message, Pass):
        for enrolments in (message.token.masked.keys, message.token.masked.spare):
            for agent, one in enrolments.items():
                assert one.author == agent < terms.size
                # Without a key, an agent says that its privacy budget is spent.
                assert len(one.key) == 32 or (terms.noise is not None and not one.key)
                assert 0 <= one.incarnation < 2**64
    encode(message, terms)
    return True


@given(data=st.binary(max_size=200))
def test_random_bytes_are_refused(data):
    assert not _try(data)


@MODES
@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_truncated_and_flipped_bytes_never_raise_anything_else(kind, terms):
    draw = Random(4)
    for _ in range(8):
        data = encode(MESSAGES[kind](draw, terms), terms)
        assert _try(data, terms)
        for cut in range(len(data)):
            _try(data[:cut], terms)
        for _ in range(300):
            at, bit = draw.randrange(len(data)), draw.randrange(8)
            _try(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :], terms)


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


def _enrolment(**changes):
    body = {"network_id": MASKED.network_id.hex(), "agent": 1, "incarnation": 5, "key": "ab" * 32}
    return Enrolment.write(1, lambda _: b"", **(body | changes))


def _in_round(*enrolments: Enrolment, **changes) -> bytes:
    """A token whose private round has these keys, with some of its wire fields replaced."""
    carried = token(Random(1), MASKED)._replace(masked=MaskedRound(point=b"p"))
    message = pb.Message()
    message.ParseFromString(encode(Pass(carried), MASKED))
    for one in enrolments:
        sent = pb.Statement(raw=one.raw, author=one.author, signature=one.signature)
        message.token.token.masked.keys.append(sent)
    for name, value in changes.items():
        setattr(message if name == "point" else message.token.token.masked, name, value)
    return message.SerializeToString()


@pytest.mark.parametrize(
    ("enrolments", "changes", "says"),
    [
        ([_enrolment()] * 5, {}, "5 one-time keys among 4 agents"),
        ([_enrolment()] * 2, {}, "two one-time keys of a2"),
        ([_enrolment(key="ab" * 31)], {}, "key must have 32 bytes"),
        ([_enrolment(key="ab" * 31 + "  ")], {}, "key must have 32 bytes"),
        ([_enrolment(key="xy" * 32)], {}, "cannot be read"),
        ([_enrolment(key=7)], {}, "cannot be read"),
        ([_enrolment(more="x" * 300)], {}, "an enrolment of .* bytes: at most 400"),
        ([_enrolment(agent=2)], {}, "not signed by the agent"),
        ([_enrolment(agent=True)], {}, "not signed by the agent"),
        ([_enrolment(network_id="00" * 32)], {}, "another network"),
        ([_enrolment(incarnation=2**64)], {}, "incarnation is not a number"),
        ([_enrolment(incarnation=-1)], {}, "incarnation is not a number"),
        ([Enrolment(b"[" * 300, 1, b"")], {}, "cannot be read"),
        ([], {"step": MASKED.max_rounds + 1}, f"the last one is {MASKED.max_rounds}"),
        ([], {"point": bytes(1024 + 16 * 8 * 3 + 1)}, "a point of 1409 bytes: at most 1408"),
    ],
)
def test_a_private_round_that_does_not_fit_the_network_is_named(enrolments, changes, says):
    assert _try(_in_round(_enrolment(), point=bytes(1408), step=MASKED.max_rounds), MASKED)
    with pytest.raises(WireError, match=says):
        decode(_in_round(*enrolments, **changes), MASKED)


@pytest.mark.parametrize(
    ("terms", "changes", "says"),
    [
        (MASKED, {"given": 1}, "a count of given values without noise"),
        (MASKED, {"key": ""}, "key must have 32 bytes"),
        (NOISY, {}, "cannot be read"),
        (NOISY, {"given": -1}, "given is not a number"),
        (NOISY, {"given": 2**48}, "given is not a number"),
        (NOISY, {"given": 1.0}, "given is not a number"),
        (NOISY, {"given": 1, "key": "ab"}, "key must have 32 bytes"),
    ],
)
def test_counts_of_given_values_belong_to_networks_with_noise(terms, changes, says):
    said = Gossip(NONE)
    for key in ("ab" * 32, ""):
        one = _enrolment(given=2**48 - 1, key=key)
        good = Welcome(Stamp(1, 0, 1, 1, 1), said, 1, 2, 3, one)
        assert same(decode(encode(good, NOISY), NOISY), good)
    bad = Welcome(Stamp(1, 0, 1, 1, 1), said, 1, 2, 3, _enrolment(**changes))
    with pytest.raises(WireError, match=says):
        decode(encode(bad, terms), terms)


def test_a_point_is_bounded_also_on_a_large_grid():
    wide = small_terms(dim=10**6, privacy="masked", iterates=True)
    read_point(bytes(4 << 20), wide)
    with pytest.raises(WireError, match="at most 4194304"):
        read_point(bytes((4 << 20) + 1), wide)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"masked": b"x" * 31}, "a name of 31 bytes"),
        ({"enrolled": {4: 1}}, "agent number 4"),
    ],
)
def test_a_notice_of_a_private_round_that_does_not_fit_the_network_is_named(changes, says):
    parked = gossip_with_notice()._replace(**changes)
    said = Gossip(NONE, parked=parked)
    with pytest.raises(WireError, match=says):
        decode(encode(Share(Stamp(1, 0, 1, 1, 1), said), MASKED), MASKED)


def gossip_with_notice():
    draw = Random(3)
    while (parked := gossip(draw, MASKED).parked) is None:
        pass
    return parked


def test_an_agent_enrols_once_in_a_notice():
    notice = pb.ParkNotice()
    notice.ParseFromString(encode_parked(gossip_with_notice()._replace(enrolled={2: 1})))
    notice.enrolled.append(pb.Enrolled(agent=2, incarnation=7))
    with pytest.raises(WireError, match="2 enrolments of 1 agents"):
        decode_parked(notice.SerializeToString(), MASKED)


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
