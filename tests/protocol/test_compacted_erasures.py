"""What was suspected of erasures that are put away, and found to hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.tally import row_key
from tests.support.wire import Flight, Wire

from unweave.errors import WireError
from unweave.protocol.admission import check_parked
from unweave.protocol.certificate.verify import verify
from unweave.protocol.events import InfluenceMeasured, Tick
from unweave.protocol.gossip import current_gossip
from unweave.protocol.messages import (
    Digests,
    Gossip,
    Heard,
    Hello,
    ParkNotice,
    Pass,
    Share,
    Welcome,
)
from unweave.protocol.state import State
from unweave.protocol.token import Tomb

RING = [(0, 1), (1, 2), (2, 3), (3, 0)]


class Recorder(Wire):
    """A wire that remembers every message that arrived."""

    def __init__(self, *args, **settings) -> None:
        self.past: list[Flight] = []
        super().__init__(*args, **settings)

    def arrive(self, flight: Flight, *, effects: int | None = None) -> None:
        self.past.append(flight)
        super().arrive(flight, effects=effects)


def rested(**settings) -> Recorder:
    wire = Recorder(4, RING, **settings)
    wire.settle()
    assert wire.resting
    return wire


def check(wire: Wire) -> Callable[[int, bytes, bytes], bool]:
    return lambda agent, payload, signature: wire.signers[agent](payload) == signature


def assert_idle(wire: Wire) -> None:
    """Everybody has attested; nothing is said, and nobody wakes anybody, however long it lasts."""
    assert wire.resting
    stamp, left = wire.token.stamp, wire.disks[wire.holder].departed
    assert wire.token.round.agents == wire.terms.everybody - left
    wire.wait(5.0)  # the last signs of life are passed on
    told = len(wire.past)
    wire.wait(60.0)
    assert wire.token.stamp == stamp
    assert len(wire.past) == told


def same_knowledge(wire: Wire) -> None:
    digests = {current_gossip(s.fork()).digests for s in wire.disks}
    assert len(digests) == 1


# ------------------------------------------------------------------------------------- no way back


@pytest.mark.parametrize("chapter", [1, 2])
def test_old_words_bring_nothing_back(chapter: int) -> None:
    """Everything that was ever said arrives once more, after all of it was put away."""
    wire = rested(compact_after=chapter)
    first, second = wire.erase(1, rows=[1]), wire.erase(1, rows=[2])
    wire.settle()
    third, fourth = wire.erase(3, rows=[4]), wire.erase(3, rows=[5])
    wire.settle()
    assert_idle(wire)
    before = [current_gossip(s.fork()).digests for s in wire.disks]
    stamp, epochs = wire.token.stamp, list(wire.opened)
    for flight in [f for f in wire.past if isinstance(f.message, Share | Pass | Heard | Welcome)]:
        wire.arrive(flight)
    wire.wait(20.0)
    assert wire.opened == epochs
    assert wire.token.stamp == stamp
    assert [current_gossip(s.fork()).digests for s in wire.disks] == before
    for s in wire.disks:
        assert not s.known.tombstones
        assert s.known.tombs[1].compacted == {first, second}
        assert s.known.tombs[3].compacted == {third, fourth}
    assert_idle(wire)


def test_a_restored_owner_compacts_again() -> None:
    """A chapter is written and reaches one neighbour; then its author has the disk from before, and
    the other neighbour, which does not know the chapter, is the first to answer."""
    wire = rested(compact_after=1)
    first = wire.erase(1, rows=[1])

    def says_so(flight: Flight) -> bool:
        return bool(getattr(getattr(flight.message, "gossip", None), "chapters", None))

    def certified(s: State) -> bool:
        return s.token.parked is not None and bool(s.token.parked.certificate)

    def rests(flight: Flight) -> bool:
        gossip = getattr(flight.message, "gossip", None)
        return flight.to == 1 and gossip is not None and bool(gossip.parked)

    wire.settle(hold=rests, until=lambda: any(certified(s) for s in wire.disks))
    backup = wire.disks[1]
    assert first in backup.known.tombstones
    assert not backup.known.compacted
    wire.settle(until=lambda: bool(wire.disks[1].known.compacted))
    (chapter,) = wire.disks[1].known.compacted
    assert not wire.disks[2].known.compacted
    wire.settle(
        hold=lambda f: says_so(f) and f.to != 0, until=lambda: bool(wire.disks[0].known.compacted)
    )
    wire.crash(1)
    wire.flight.clear()
    wire.start_agent(1, backup)
    wire.drop(Hello, sender=1, to=0)
    second = wire.erase(1, rows=[2])
    wire.wait(3.0, hold=lambda f: {f.sender, f.to} in ({0, 1}, {0, 3}))
    wire.wait(60.0)
    same_knowledge(wire)
    for s in wire.disks:
        assert s.known.tombs[1].compacted == s.known.tombs[1].ids == {first, second}
        assert chapter in s.known.compacted
        assert len(s.known.compacted) == 2
    assert wire.checker.kept[1] == {first, second}
    assert_idle(wire)


def test_an_agent_that_compacted_its_own_erasure_stays_erased() -> None:
    """Its own backup brings everything back, and a neighbour has lost its disk."""
    wire = rested(compact_after=1)
    backup = wire.disks[1]
    asked = wire.erase(1, whole=True)
    wire.settle()
    assert all(
        s.known.tombs[1] == Tomb(frozenset({asked}), True, False, frozenset({asked}))
        for s in wire.disks
    )
    wire.crash(2)
    wire.start_agent(2, wire.blank(2))
    wire.wait(20.0)
    assert wire.disks[2].known.tombs[1].whole
    wire.crash(1)
    wire.start_agent(1, backup)
    assert wire.disks[1].own.current is not None
    wire.wait(20.0)
    assert wire.disks[1].own.detached
    assert not wire.disks[1].own.factors
    assert 1 not in wire.inside
    same_knowledge(wire)
    assert_idle(wire)


def test_a_compacted_retraining_still_voids_old_factors() -> None:
    """The generation stays with the chapter: an old disk starts from zero."""
    wire = rested(compact_after=1, conjugate=False)
    backup = wire.disks[2]
    old = backup.own.current.revision
    for worker in wire.workers:
        worker.judge = lambda work: False
    asked = wire.erase(1, rows=[2])
    wire.settle()
    assert all(s.known.tombs[1].compacted == {asked} == s.known.retrain_epoch for s in wire.disks)
    wire.crash(2)
    wire.start_agent(2, backup)
    wire.wait(3.0, hold=lambda f: isinstance(f.message, Pass))
    assert wire.disks[2].known.retrain_epoch == {asked}  # before any token has told it
    wire.wait(60.0)
    assert all(f.revision != old and f.retrain_epoch == {asked} for f in wire.disks[2].own.factors)
    assert wire.inside == {0, 1, 2, 3}
    assert wire.token.retrain_epoch == {asked}
    assert_idle(wire)


def test_requests_of_an_agent_that_left_do_not_hold_up_the_others() -> None:
    """Its open erasures have nobody who puts them away; certificates hold, and others' requests are
    put away as ever."""
    wire = rested(compact_after=2)
    orphan = wire.erase(2, rows=[1])
    wire.settle()
    wire.crash(2)
    wire.wait(15.0)
    wire.vote([0, 1, 3], 2)
    wire.wait(30.0)
    asked = {wire.erase(3, rows=[1]), wire.erase(3, rows=[2])}
    wire.wait(30.0)
    assert wire.resting
    for k in (0, 1, 3):
        assert wire.disks[k].known.tombs[3].compacted == asked
        assert wire.disks[k].known.tombs[2].open == {orphan}
    account = verify(wire.disks[0].token.parked.certificate, wire.terms, check(wire))
    assert {e.request for e in account.erasures} >= {r.hex() for r in (orphan, *asked)}
    assert account.not_attested == ("a3",)


# ------------------------------------------------------------------------------------ who knows it


def test_what_was_left_out_for_one_incarnation_is_not_acknowledged_by_the_next() -> None:
    """A neighbour knew the erasure, so news for it come without; it loses its disk before they
    arrive, and is back in the network by the word of one that knows nothing yet."""
    wire = rested(genesis=2)
    asked = wire.erase(0, rows=[1])

    def cut(flight: Flight) -> bool:
        return {flight.sender, flight.to} in ({1, 2}, {0, 3})

    wire.settle(hold=cut, until=lambda: asked in wire.disks[0].tomb.ids)
    wire.settle(hold=lambda f: cut(f) or isinstance(f.message, Pass))
    assert asked in wire.disks[1].known.tombs[0].ids
    assert 0 not in wire.disks[2].known.tombs
    wire.tell(0, InfluenceMeasured(0.5, wire.now))
    late = wire.find(Share, sender=0, to=1)[-1]
    assert late.message.gossip.erasures is None
    wire.crash(1)
    wire.flight.clear()
    wire.start_agent(1, wire.blank(1))
    wire.deliver(Hello, sender=1, to=0)
    wire.drop(sender=0, to=1)
    wire.deliver(Hello, sender=1, to=2)
    wire.deliver(Welcome, sender=2, to=1)
    for _ in range(5):  # one answer is enough only after five waits for the others
        assert not wire.disks[1].peers.synced
        wire.now += wire.terms.timeouts.welcome + 0.5
        wire.tell(1, Tick(wire.now))
    assert wire.disks[1].peers.synced
    wire.arrive(late)
    for flight in wire.find(Heard, sender=1, to=0):
        wire.arrive(flight)
    assert 0 not in wire.disks[1].known.tombs
    said = wire.disks[0].peers.acked.get(1)
    assert said is None or said.erasures != current_gossip(wire.disks[0].fork()).digests.erasures
    wire.wait(60.0)
    assert asked in wire.checker.certified
    assert asked in wire.disks[1].known.tombs[0].ids


# ------------------------------------------------------------------------ certificates at the door


def arriving(rest: ParkNotice) -> Share:
    return Share(rest.stamp, Gossip(Digests(b"", b"", b"", b"", b""), parked=rest))


@pytest.fixture(scope="module")
def two_rests() -> tuple[Wire, ParkNotice, ParkNotice]:
    """The rests of two erasures, one after the other."""
    wire = rested()
    wire.erase(1, rows=[1])
    wire.settle()
    first = wire.disks[0].token.parked
    wire.erase(2, rows=[2])
    wire.settle()
    return wire, first, wire.disks[0].token.parked


def test_a_parked_token_is_accepted_with_its_own_certificate(two_rests) -> None:
    wire, first, second = two_rests
    for rest in (first, second):
        check_parked(arriving(rest), None, wire.terms, check(wire))
    check_parked(arriving(first._replace(certificate=b"")), None, wire.terms, check(wire))


@pytest.mark.parametrize(
    "lie",
    [
        lambda first, second: second._replace(certificate=first.certificate),
        lambda first, second: first._replace(stamp=second.stamp),
        lambda first, second: first._replace(tombs=second.tombs),
        lambda first, second: first._replace(tombs={**first.tombs, 3: Tomb(departed=True)}),
    ],
)
def test_a_certificate_of_something_else_is_refused(two_rests, lie) -> None:
    """An old one for a new rest, a later stamp, more erasures than it proves, a false departure."""
    wire, first, second = two_rests
    with pytest.raises(WireError, match="certificate of another one"):
        check_parked(arriving(lie(first, second)), None, wire.terms, check(wire))


def test_a_damaged_certificate_is_refused(two_rests) -> None:
    wire, first, _ = two_rests
    for bad in (first.certificate[:-1], b"{}", first.certificate.replace(b'"tombstones":[', b"")):
        with pytest.raises(WireError, match="invalid certificate"):
            check_parked(arriving(first._replace(certificate=bad)), None, wire.terms, check(wire))


def test_a_known_certificate_is_not_read_again(two_rests) -> None:
    """It may be large, and comes from every neighbour."""
    wire, _, second = two_rests

    def never(*args: object) -> bool:
        raise AssertionError("read again")

    check_parked(arriving(second), wire.disks[0], wire.terms, never)
    old = second._replace(stamp=second.stamp._replace(hop=1), certificate=b"old")
    check_parked(arriving(old), wire.disks[0], wire.terms, never)


def test_rows_of_compacted_erasures_are_never_solved_for_again() -> None:
    """A lost disk has the data, and not the list of what was dropped: the chapters have it."""
    wire = rested(compact_after=1)
    wire.erase(1, rows=[2])
    wire.settle()
    wire.crash(1)
    wire.start_agent(1, wire.blank(1))
    wire.wait(30.0)
    assert wire.disks[1].own.dropped == {row_key(2)}
    assert wire.inside == {0, 1, 2, 3}
    assert_idle(wire)
