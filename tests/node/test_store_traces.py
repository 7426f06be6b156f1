"""What stays in a store's files: nothing that was erased, and not more with every visit."""

from pathlib import Path

import numpy as np
import pytest

from unweave.node.storage.sqlite import SqliteStore
from unweave.protocol.events import DataChanged, EraseRequested, SolveResult
from unweave.protocol.messages import Pass
from unweave.protocol.token import request_id
from unweave.simulator.world import World
from unweave.testing.store import CountingWorker
from unweave.testing.values import same_durable, small_terms

VICTIM = 1


class Noise(CountingWorker):
    """A worker whose factors are unmistakable: random numbers of 62 bits."""

    def __init__(self, agent, dim):
        super().__init__(agent)
        self.dim = dim
        self.made = []

    def solve(self, work):
        seed = [self.agent, len(self.made), len(work.dropped)]
        units = np.random.default_rng(seed).integers(2**55, 2**57, self.dim)
        self.made.append(units)
        return SolveResult(units)


class Disks:
    """Every agent's steps go to its own file; remembers what may have to disappear."""

    def __init__(self, directory: Path, terms):
        self.directory = directory
        self.stores = [SqliteStore.open(directory / f"{k}.db", terms, k) for k in range(terms.size)]
        self.tokens = []
        self.given = []  # (agent, what it gave to a private round)

    def after(self, agent, before, after, effects):
        self.stores[agent].commit(before, after)
        tokens = (after.token.held, after.token.copy, after.token.published)
        self.tokens += [token for token in tokens if token is not None]
        self.given += [(agent, f.given) for f in after.own.factors if f.given is not None]
        self.tokens += [
            e.message.token for e in effects if isinstance(getattr(e, "message", 0), Pass)
        ]

    def content(self) -> bytes:
        """All bytes of the database files, their logs and whatever else lies there."""
        return b"".join(file.read_bytes() for file in sorted(self.directory.iterdir()))

    def close(self):
        for store in self.stores:
            store.close()


def traces(vectors, content: bytes) -> int:
    """How many components of these vectors can be found, at any offset."""
    ends = [len(content) - (len(content) - at) % 8 for at in range(8)]
    words = [np.frombuffer(content[at:end], dtype="<i8") for at, end in enumerate(ends)]
    return int(np.isin(np.concatenate(vectors), np.concatenate(words)).sum())


@pytest.mark.parametrize("dim", [2, 150, 3_000])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("privacy", ["plain", "masked"])
def test_what_is_erased_leaves_no_bytes(privacy, whole, dim, tmp_path):
    terms = small_terms(agents=3, dim=dim, privacy=privacy, min_roster=2)
    workers = [Noise(k, dim) for k in range(3)]
    disks = Disks(tmp_path, terms)
    world = World(terms, workers, observers=[disks])
    world.start()
    world.run(lambda: False, limit=200)
    for _ in range(3):  # several revisions, so that older ones have been overwritten too
        world.tell(VICTIM, DataChanged(0.0))
        world.run(lambda: False, limit=200)
    # The steps so far are in the file and in its log: the search below can find them.
    assert traces(workers[VICTIM].made[-1:], disks.content()) > 0.99 * dim
    old = list(workers[VICTIM].made)
    masked = [units for agent, given in disks.given if agent == VICTIM for units in given[2:]]
    if privacy == "masked":
        assert traces(masked[-2:], disks.content()) > 0.99 * 2 * dim
        shown = world.state(0).token.published.eta
        assert traces([shown], disks.content()) > 0.99 * dim
        old += masked
    world.tell(
        VICTIM,
        EraseRequested(
            request_id(VICTIM, b"r" * 12), whole, frozenset({b"commitment of a row"}), 0.0
        ),
    )
    world.run(lambda: False, limit=400)
    assert world.parked is not None
    assert world.state(0).known.tombs[VICTIM].ids == {request_id(VICTIM, b"r" * 12)}
    gone = [
        token.eta
        for token in disks.tokens
        if VICTIM in token.inside and request_id(VICTIM, b"r" * 12) not in _ids(token)
    ]
    assert len(gone) > 5
    unique = list({eta.tobytes(): eta for eta in gone}.values())
    content = disks.content()
    assert traces(old, content) == 0
    assert traces(unique, content) == 0
    for k in (0, 2):  # the others' factors and the token without the victim are still there
        assert traces(workers[k].made[-1:], content) > 0.99 * dim
    assert traces([world.state(0).token.copy.eta], content) > 0.99 * dim
    disks.close()
    assert traces([*old, *unique], disks.content()) == 0
    for k in range(3):
        with SqliteStore.open(tmp_path / f"{k}.db", terms, k) as store:
            assert same_durable(store.load(terms, k), world.state(k))


def _ids(token):
    tomb = token.tombs.get(VICTIM)
    return frozenset() if tomb is None else tomb.ids


def _visits(path: Path, commits: int) -> list[int]:
    """File and log together, in bytes, at ten moments of a walk that never ends."""
    terms = small_terms(agents=3, dim=20, schedule="metropolis", parks=False)
    sizes, count = [], 0
    with SqliteStore.open(path, terms, 0) as store:
        store._db.execute("PRAGMA synchronous = OFF")  # the size does not depend on it

        class Watch:
            def after(self, agent, before, after, effects):
                nonlocal count
                if agent == 0:
                    store.commit(before, after)
                    count += 1
                    if count % (commits // 10) == 0:
                        sizes.append(sum(f.stat().st_size for f in path.parent.iterdir()))

        world = World(terms, [Noise(k, 20) for k in range(3)], observers=[Watch()])
        world.start()
        while count < commits:
            world.run(lambda: False, limit=50)
            world.tell(0, DataChanged(0.0))
    return sizes


def test_size_stays_bounded(tmp_path):
    sizes = _visits(tmp_path / "a.db", 5_000)
    assert max(sizes) < 6 * 2**20
    assert sizes[-1] <= 1.01 * max(sizes[2:5])  # the log is cut when full, give or take a step


@pytest.mark.slow
def test_size_stays_bounded_over_100_000_visits(tmp_path):
    sizes = _visits(tmp_path / "a.db", 100_000)
    assert max(sizes) < 6 * 2**20
    assert sizes[-1] <= 1.01 * max(sizes[:5])
