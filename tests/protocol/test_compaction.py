"""What is certified is put away: the evidence goes, the ids and the rows stay."""

from __future__ import annotations

import pytest
from tests.support.tally import row_key
from tests.support.wire import Wire

from unweave.errors import WireError
from unweave.node.wire.codec import decode, encode
from unweave.protocol.admission import check_statements
from unweave.protocol.events import EraseRequested, Received, Refused
from unweave.protocol.machine import handle
from unweave.protocol.messages import Digests, Erasures, Gossip, Pass, Share
from unweave.protocol.requests import UNPROVED
from unweave.protocol.statements import CompactedErasures, Tombstone
from unweave.protocol.token import Stamp, Tomb, request_id

RING = [(0, 1), (1, 2), (2, 3), (3, 0)]


def rested(**settings) -> Wire:
    wire = Wire(4, RING, **settings)
    wire.settle()
    assert wire.resting
    return wire


def test_the_evidence_goes_when_enough_erasures_are_compacted():
    wire = rested(compact_after=2)
    first = wire.erase(1, rows=[1])
    wire.settle()
    assert all(first in s.known.tombstones for s in wire.disks)
    second = wire.erase(1, rows=[2])
    wire.settle()
    for s in wire.disks:
        assert s.known.tombs[1].ids == {first, second}
        assert s.known.tombs[1].compacted == {first}  # the certificate of the second has just come
        assert s.known.tombstones.keys() == {second}
        (chapter,) = s.known.compacted.values()
        assert chapter.rows == {row_key(1)}
    third = wire.erase(2, whole=True)
    wire.settle()
    assert all(s.known.tombstones.keys() == {third} for s in wire.disks)
    assert not wire.disks[1].known.proved
    rest = wire.disks[0].token.parked
    assert rest.certificate
    assert first.hex() not in str(rest.certificate)
    assert wire.checker.certified >= {first, second, third}


def test_many_agents_that_erase_little_compact_it_all_the_same():
    """None of them ever has a chapter full of its own; the evidence stays short."""
    wire = rested(compact_after=3)
    for row in range(4):
        for k in range(4):
            wire.erase(k, rows=[row])
            wire.settle()
            assert all(len(s.known.tombstones) < 3 for s in wire.disks)
    assert len(wire.checker.certified) == 16
    assert len(wire.checker.compacted) > 12
    for s in wire.disks:
        by_agent = [
            chapter.agent for chapter in s.known.compacted.values() if len(chapter.erasures) < 3
        ]
        assert len(by_agent) == len(set(by_agent))  # at most one short chapter of each


def test_a_short_compaction_is_included_in_the_next():
    wire = rested(compact_after=2)
    asked = {0: wire.erase(0, rows=[1]), 1: wire.erase(1, rows=[1])}
    wire.settle()
    lost = wire.disks[3]
    k = next(iter(lost.known.compacted.values())).agent
    wire.crash(3)
    more = {wire.erase(k, rows=[2]), wire.erase(k, rows=[3])}
    wire.start_agent(3)
    wire.wait(20.0)
    for s in wire.disks:
        (own,) = (chapter for chapter in s.known.compacted.values() if chapter.agent == k)
        assert own.ids == {asked[k], *more}
        assert own.rows == {row_key(1), row_key(2), row_key(3)}
        assert s.known.compacted == wire.disks[0].known.compacted
    # Somebody who has the short one still does not bring it back.
    share = Share(wire.disks[0].token.fence, Gossip(NONE, compacted=lost.known.compacted))
    after, _ = handle(wire.disks[0], Received(wire.disks[0].neighbours[0], share, wire.now))
    assert after.known.compacted == wire.disks[0].known.compacted


def test_a_parked_token_without_open_erasures_needs_no_certificate():
    wire = rested(compact_after=1)
    wire.erase(1, rows=[1])
    wire.settle()
    wire.change_data(3)
    wire.settle()
    assert wire.resting
    assert wire.disks[0].token.parked.certificate == b""
    assert wire.token.tombs[1].compacted


def test_an_agent_that_missed_the_certificate_gets_the_next_one():
    """Rest and certificate never reach the agent that asked: nothing is put away before they do,
    and the next certificate proves the erasure again."""
    wire = rested(compact_after=1)
    asked = wire.erase(1, rows=[1])

    def rests(flight):
        gossip = getattr(flight.message, "gossip", None)
        return (
            flight.to == 1
            and gossip is not None
            and bool(gossip.parked and gossip.parked.certificate)
        )

    wire.settle(
        hold=rests, until=lambda: wire.resting and bool(wire.disks[0].token.parked.certificate)
    )
    wire.flight = [f for f in wire.flight if not rests(f)]
    assert wire.holder != 1
    assert asked in wire.disks[1].known.tombstones
    assert not wire.disks[1].known.tombs[1].compacted
    wire.change_data(3)
    wire.wait(5.0)
    assert wire.resting
    assert asked in wire.checker.kept[1]
    assert all(s.known.tombs[1].compacted == {asked} for s in wire.disks)


def test_an_agent_that_lost_its_disk_learns_the_compacted_erasures():
    wire = rested(compact_after=1)
    asked = wire.erase(1, rows=[2])
    wire.settle()
    wire.crash(2)
    wire.start_agent(2, wire.blank(2))
    wire.wait(20.0)
    assert wire.disks[2].known.tombs[1].compacted == {asked}
    assert wire.disks[2].known.compacted == wire.disks[0].known.compacted


def test_what_is_acknowledged_is_not_sent_again():
    wire = rested(compact_after=1)
    wire.erase(1, rows=[1])
    wire.wait(3.0)
    wire.change_data(2)
    parts = []
    wire.settle(hold=lambda f: parts.append(f.message) is not None)
    shares = [m.gossip for m in parts if isinstance(m, Share)]
    assert shares
    assert all(gossip.compacted is None and gossip.erasures is None for gossip in shares)


# ---------------------------------------------------------------------------------- who may say so


def tombstone(wire: Wire, agent: int, request: bytes, **changes) -> Tombstone:
    body = {"agent": agent, "whole": False, "rows": [], "retrain": False} | changes
    run = wire.terms.network_id.hex()
    return Tombstone.write(
        agent, wire.signers[agent], network_id=run, request=request.hex(), **body
    )


def heard(wire: Wire, to: int, gossip: Gossip) -> list[str]:
    sender = wire.disks[to].neighbours[0]
    share = Share(wire.disks[to].token.fence, gossip)
    _, effects = handle(wire.disks[to], Received(sender, share, wire.now))
    return [effect.why for effect in effects if isinstance(effect, Refused)]


NONE = Digests(b"", b"", b"", b"", b"")


def test_only_the_owner_compacts_an_erasure():
    wire = rested(compact_after=256)
    asked = wire.erase(1, rows=[1])
    wire.settle()
    marked = {1: Tomb(frozenset({asked}), compacted=frozenset({asked}))}
    said = Gossip(NONE, erasures=Erasures(marked, frozenset(), {}, {}))
    assert "compacted, without its signed statement" in heard(wire, 3, said)[0]
    token = wire.token._replace(stamp=wire.token.stamp.next(5), tombs=marked)
    to = (wire.holder + 1) % 4
    event = Received(wire.holder, Pass(token), wire.now)
    _, effects = handle(wire.disks[to], event)
    assert any("signed statement" in e.why for e in effects if isinstance(e, Refused))


def test_a_compaction_concerns_its_author_alone():
    wire = rested()
    request = request_id(2, b"r" * 12)
    record = tombstone(wire, 2, request)
    own = CompactedErasures.write_all(2, wire.signers[2], wire.terms.network_id, [record])
    forged = CompactedErasures(own.raw, 3, wire.signers[3](b""))  # about 2, by 3
    share = Share(Stamp(1, 0, 1, 1, 1), Gossip(NONE, compacted={own.name: own}))
    decode(encode(share, wire.terms), wire.terms)
    share = Share(share.fence, Gossip(NONE, compacted={forged.name: forged}))
    with pytest.raises(WireError, match="not signed by the agent"):
        decode(encode(share, wire.terms), wire.terms)
    with pytest.raises(WireError, match="signature that is not a3's"):
        check_statements(
            Share(share.fence, Gossip(NONE, compacted={own.name: own})),
            None,
            wire.terms,
            lambda agent, payload, signature: False,
        )


@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw: raw[:-1],
        lambda raw: raw + b"\0",
        lambda raw: raw[:36],
        lambda raw: raw[:20],
        lambda raw: raw + raw[36:],
        lambda raw: raw[:48] + b"\x07" + raw[49:],
        lambda raw: raw[:49] + b"\xff\xff\xff\xff" + raw[53:],
    ],
)
def test_a_malformed_compaction_is_refused(spoil):
    wire = rested()
    rows = [row_key(1).hex(), row_key(2).hex()]
    record = tombstone(wire, 2, request_id(2, b"r" * 12), rows=rows)
    good = CompactedErasures.write_all(2, wire.signers[2], wire.terms.network_id, [record])
    assert good.rows == {row_key(1), row_key(2)}
    bad = CompactedErasures(spoil(good.raw), 2, good.signature)
    share = Share(Stamp(1, 0, 1, 1, 1), Gossip(NONE, compacted={b"x": bad}))
    with pytest.raises(WireError):
        decode(encode(share, wire.terms), wire.terms)


def test_too_much_unproved_evidence_is_refused():
    wire = rested()
    rows = frozenset(b"%016d" % k for k in range(UNPROVED // 40 + 1))
    request = request_id(1, b"r" * 12)
    event = EraseRequested(request, False, rows, wire.now)
    after, effects = handle(wire.disks[1], event)
    assert not after.known.intents
    assert any("wait for their certificate" in e.why for e in effects if isinstance(e, Refused))
