"""Asking twice for the same erasure is asking once."""

from tests.support.tally import row_key
from tests.support.wire import Wire

from unweave.node.erasures import asked_before, erased_before

RING = [(0, 1), (1, 2), (2, 3), (3, 0)]


def rows(*numbers):
    return frozenset(map(row_key, numbers))


def test_records_are_found_wherever_their_erasure_stands():
    for chapter in (1, 32):  # put away at once; or open
        wire = Wire(4, RING, compact_after=chapter)
        wire.settle()
        assert asked_before(wire.disks[1], rows(1)) == (None, rows(1))
        first = wire.erase(1, rows=[1, 2])
        assert asked_before(wire.disks[1], rows(1)) == (first, frozenset())  # only asked for yet
        wire.settle()
        wire.erase(2, rows=[5])
        wire.settle()
        second = wire.erase(1, rows=[3])
        wire.settle()
        s = wire.disks[1]
        assert bool(s.known.compacted) == (chapter == 1)
        assert asked_before(s, rows(1, 2)) == (first, frozenset())
        assert asked_before(s, rows(3)) == (second, frozenset())
        assert asked_before(s, rows(1, 4)) == (first, rows(4))
        assert asked_before(s, rows(1, 2, 3)) == (first, frozenset())
        assert asked_before(s, rows(5)) == (None, rows(5))  # somebody else's
        assert erased_before(s) is None
        all_of_it = wire.erase(1, whole=True)
        assert erased_before(wire.disks[1]) == all_of_it
        wire.settle()
        assert erased_before(wire.disks[1]) == all_of_it
