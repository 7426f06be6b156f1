"""Owners never take away everything, however often they ask and however few the records are."""

import random

import pytest

from unweave.simulator.faults import Profile
from unweave.simulator.workload import OwnerRequests, spared


class _Quiet:
    """A world in which everybody hears everything."""

    now = 0.0

    class _Agent:
        state = None

    def __init__(self, size):
        self.agents = [self._Agent() for _ in range(size)]
        self.told = []

    def clock(self, k):
        return 0.0

    def tell(self, k, request):
        self.told.append((k, request))


def _left(records, told):
    """Records left per agent if everything that was asked is done."""
    left = []
    for k, n in enumerate(records):
        mine = [request for agent, request in told if agent == k]
        rows = {row for request in mine for row in request.rows}
        left.append(0 if any(request.whole for request in mine) else n - len(rows))
    return left


@pytest.mark.parametrize(
    "records", [[1], [3], [1, 1], [5, 0], [1, 1, 1], [2, 9, 4, 1, 1], [6] * 12, [0, 0, 0], [0]]
)
@pytest.mark.parametrize("departs", [0.0, 1.0])
def test_part_of_the_agents_keep_records(records, departs):
    for seed in range(30):
        world = _Quiet(len(records))
        owners = OwnerRequests(world, Profile(erase=1.0, departs=departs), records, 10_000, seed)
        for _ in range(300):
            owners.between_events(1.0)
        left = _left(records, world.told)
        with_records = sum(n > 0 for n in records)
        keeps = min(with_records, spared(with_records) + (departs > 0))
        assert min(left) >= 0
        assert sum(n > 0 for n in left) >= keeps
        if max(records) > 1:
            assert world.told


def test_requests_follow_the_hops():
    world = _Quiet(4)
    owners = OwnerRequests(world, Profile(erase=1.0), [100] * 4, 50, 1)
    counts = []
    for progress in (0.0, 0.5, 1.0):
        for _ in range(500):
            owners.between_events(progress)
        counts.append(len(owners.asked))
    assert counts[0] == 0
    assert 5 <= counts[1] <= 9
    assert 11 <= counts[2] <= 15


def test_hardly_anybody_asks_where_all_is_erased():
    world = _Quiet(5)
    owners = OwnerRequests(world, Profile(erase=1.0), [1000] * 5, 10_000, 1)
    late = 0
    for _ in range(1000):
        full = set(owners.full)
        before = len(owners.asked)
        owners.rng = random.Random(owners.rng.random())
        owners.between_events(1.0)
        late += len(owners.asked) - before == 1 and world.told[-1][0] not in full
    assert 0 < late < 0.1 * len(owners.asked)


def test_spared():
    assert [spared(k) for k in (0, 1, 2, 3, 4, 5, 12)] == [0, 1, 1, 2, 3, 3, 7]
