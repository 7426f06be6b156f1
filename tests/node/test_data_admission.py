"""How few records an agent may have: `min_records` protects the first contribution, and blocks no
erasure."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unweave.errors import DataError
from unweave.models import BetaBernoulli
from unweave.node.agent import _watch
from unweave.node.data.private import PrivateData
from unweave.node.data.source import DataSource
from unweave.node.data.watch import DataWatch, admit
from unweave.node.log import Log
from unweave.protocol.events import DataChanged
from unweave.protocol.state import NOTHING_WAITS
from unweave.protocol.statements import Intent
from unweave.protocol.terms import Batches

PLAIN = SimpleNamespace(publish=None)


def rows(folder: Path, *keys: int) -> None:
    (folder / "d.csv").write_text("id,x\n" + "".join(f"{key},{key % 2}\n" for key in keys))


@pytest.fixture
def data(tmp_path: Path) -> PrivateData:
    rows(tmp_path, *range(14))
    source = DataSource(path="d.csv", key="id")
    return PrivateData(tmp_path, source, BetaBernoulli(), "north", b"secret")


def state(counter: int = 0, dropped: frozenset[bytes] = frozenset()) -> Any:
    own = SimpleNamespace(
        waiting=NOTHING_WAITS,
        counter=counter,
        dropped=dropped,
        detached=False,
        data=0,
        current=object() if counter else None,
    )
    return SimpleNamespace(own=own)


def test_the_first_contribution_needs_enough(tmp_path: Path, data: PrivateData) -> None:
    assert admit(data, 14, None) == admit(data, 14, state()) == 14
    for never in (None, state()):
        with pytest.raises(DataError, match="14 records, fewer than min_records = 15"):
            admit(data, 15, never)


def test_who_has_contributed_may_shrink(tmp_path: Path, data: PrivateData) -> None:
    dropped, _ = data.commit_keys(range(7))
    assert admit(data, 10, state(1, dropped)) == 7, "erased, and still in the file"
    rows(tmp_path, *range(7, 14))
    assert admit(data, 10, state(1, dropped)) == 7, "and taken out of it"
    assert admit(data, 10, state(1)) == 7, "taken out without an erasure"
    assert admit(data, 10, state(0, dropped)) == 7, "a disk that remembers the erasure only"
    rows(tmp_path, *range(3))
    assert admit(data, 10, state(2, dropped)) == 0, "nothing is left of what is there"


def test_who_has_contributed_is_still_checked(tmp_path: Path, data: PrivateData) -> None:
    (tmp_path / "d.csv").write_text("id,x\n1,1\n2,no\n")
    with pytest.raises(DataError, match="line 3"):
        admit(data, 10, state(1))
    rows(tmp_path)
    with pytest.raises(DataError, match="unweave forget"):
        admit(data, 10, state(1))


@pytest.mark.parametrize("ask", ["begin", "look"])
def test_rows_that_are_taken_out_travel(tmp_path: Path, data: PrivateData, ask: str) -> None:
    """At a start, and when `unweave learn` asks."""
    told = []

    async def tell(event: object) -> None:
        told.append(event)

    config = SimpleNamespace(name="north")
    node: Any = SimpleNamespace(
        state=state(1),
        folder=SimpleNamespace(path=tmp_path, config=config, least_records=10),
        tell=tell,
        data_problem=None,
        terms=PLAIN,
    )
    rows(tmp_path, *range(7))
    assert asyncio.run(getattr(DataWatch(node, data), ask)())
    assert len(told) == 1
    (tmp_path / "data.seen").unlink()
    node.state = state(0)
    with pytest.raises(DataError, match="fewer than min_records"):
        asyncio.run(DataWatch(node, data).look())


def test_data_that_were_away_are_learned_again(tmp_path: Path, data: PrivateData) -> None:
    """They came back as they were; meanwhile a solver was told that there are none."""
    told = []

    async def tell(event: object) -> None:
        told.append(event)

    folder = SimpleNamespace(path=tmp_path, config=SimpleNamespace(name="north"), least_records=10)
    node: Any = SimpleNamespace(
        state=state(1), folder=folder, tell=tell, data_problem=None, terms=PLAIN
    )
    fresh = DataWatch(node, data)
    fresh._write(data.fingerprint(), 0)
    assert not asyncio.run(fresh.look(anew=False))
    node.data_problem = "no file"
    assert asyncio.run(fresh.look(anew=False))
    assert len(told) == 1
    assert node.data_problem is None


def test_refused_data_are_read_and_told_once(tmp_path: Path, data: PrivateData) -> None:
    """Whoever watches a file with a bad row reads it again when it changes; an operator's question
    is answered every time."""
    read: list[int] = []
    check = data.check
    data.check = lambda *args: read.append(1) or check(*args)  # type: ignore[method-assign, func-returns-value]
    told: list[object] = []
    stream = io.StringIO()
    config = SimpleNamespace(name="north")

    def put(text: str) -> None:
        """As a whole: somebody may be reading."""
        (tmp_path / "part").write_text("id,x\n" + text)
        (tmp_path / "part").replace(tmp_path / "d.csv")

    async def tell(event: object) -> list[object]:
        told.append(event)
        return []

    node: Any = SimpleNamespace(
        folder=SimpleNamespace(path=tmp_path, config=config, least_records=10),
        state=state(1),
        tell=tell,
        data_problem=None,
        terms=PLAIN,
    )

    async def play() -> None:
        fresh = DataWatch(node, data)
        put("1,1\n2,no\n")
        looks = 0
        look = fresh.look

        async def counted(**how: bool) -> bool:
            nonlocal looks
            looks += 1
            return await look(**how)

        fresh.look = counted  # type: ignore[method-assign, assignment]
        watching = asyncio.ensure_future(_watch(fresh, 0.001, Log("north", stream=stream)))

        async def more(reads: int) -> None:
            goal = looks + 4
            while (looks < goal or len(read) < reads) and not watching.done():
                await asyncio.sleep(0.001)

        await more(1)
        assert (len(read), stream.getvalue().count("line 3")) == (1, 1)
        with pytest.raises(DataError, match="line 3"):
            await look()
        await more(2)
        assert (len(read), stream.getvalue().count("line 3")) == (2, 1)
        (tmp_path / "d.csv").unlink()
        await more(2)
        assert stream.getvalue().count("no file 'd.csv'") == 1
        put("1,1\n2,1\n3,no\n")
        await more(3)
        assert (len(read), stream.getvalue().count("line 4")) == (3, 1)
        assert not told
        put("1,1\n2,1\n3,0\n")
        await more(4)
        assert told
        watching.cancel()

    asyncio.run(play())


def test_keys_that_are_not_there_any_more(tmp_path: Path, data: PrivateData) -> None:
    """They were deleted from the file, and must not come back with a backup of it."""
    known, unknown = data.commit_keys(["3", "99"])
    assert (len(known), unknown) == (1, ("99",))
    absent, unknown = data.commit_absent(["99", "bad\udcff"])
    assert (len(absent), unknown) == (1, ("bad\udcff",))
    both = known | absent
    rows(tmp_path, *range(14), 99)
    assert data.commit_keys(["3", "99"])[0] == both
    assert data.count(both) == 13


def test_keys_of_another_column_are_not_taken(tmp_path: Path, data: PrivateData) -> None:
    dropped, _ = data.commit_keys(["3"])
    assert data.count(dropped) == 13
    source = DataSource(path="d.csv", key="x")
    other = PrivateData(tmp_path, source, BetaBernoulli(), "north", b"secret")
    for commit in (other.commit_keys, other.commit_absent):
        with pytest.raises(DataError, match="known by the column 'id'"):
            commit(["1"])


class Batched:
    """An agent of a network with batches, as far as the watch sees it."""

    def __init__(self, folder: Path, data: PrivateData) -> None:
        self.data_problem = None
        self.terms = SimpleNamespace(publish=Batches(3))
        config = SimpleNamespace(name="north")
        self.folder = SimpleNamespace(path=folder, config=config, least_records=1)
        self.state = state(1)
        self.data = data
        self.watch = DataWatch(self, data)  # type: ignore[arg-type]
        self.told = 0
        asyncio.run(self.watch.look())
        self.leave()

    async def tell(self, event: DataChanged) -> None:
        own = self.state.own
        self.told = event.records
        own.waiting = own.waiting._replace(data=True, records=event.records)

    def counted(self, *keys: int) -> int:
        """How many records have changed, after the file has these keys."""
        rows(self.folder.path, *keys)
        assert asyncio.run(self.watch.look())
        return self.told

    def forget(self, *keys: int) -> None:
        own = self.state.own
        found, _ = self.data.commit_keys(keys)
        body = {"rows": [row.hex() for row in found], "remembered": 0, "request": f"{keys[0]:02x}"}
        intent = Intent(json.dumps(body).encode(), 0, b"")
        waits = {**own.waiting.requests, intent.request: intent}
        own.waiting = own.waiting._replace(requests=waits)

    def leave(self) -> None:
        own = self.state.own
        for intent in own.waiting.requests.values():
            own.dropped |= intent.rows
        own.data += own.waiting.data
        own.waiting = NOTHING_WAITS


def test_changes_are_counted_from_the_data_that_left(tmp_path: Path, data: PrivateData) -> None:
    node = Batched(tmp_path, data)
    assert node.counted(*range(16)) == 2
    assert node.counted(*range(19)) == 5  # with the two that wait
    assert node.counted(*range(1, 20)) == 5  # one more and one less: nobody knows
    node.leave()
    assert node.counted(*range(1, 21)) == 1
    (tmp_path / "data.seen").unlink()
    assert node.counted(*range(40)) == 1  # unknown


def test_a_record_that_is_changed_again_is_one_record(tmp_path: Path, data: PrivateData) -> None:
    node = Batched(tmp_path, data)
    for key in (101, 102, 103):
        assert node.counted(*range(13), key) == 1


def test_an_erased_record_that_is_deleted_is_counted_once(
    tmp_path: Path, data: PrivateData
) -> None:
    node = Batched(tmp_path, data)
    node.forget(3, 4)
    assert node.counted(0, 1, 2, *range(5, 14)) == 0  # the request counts them
    node.leave()
    assert node.counted(0, 1, 2, *range(5, 15)) == 1
    node.leave()
    node.forget(5, 6, 7)
    node.leave()
    assert node.counted(0, 1, 2, *range(5, 16)) == 0  # one more; at least none, as far as is known
    node.leave()
    assert node.counted(0, 1, 2, *range(5, 18)) == 2


def test_a_crash_before_the_counts_are_written_counts_from_the_same_data(
    tmp_path: Path, data: PrivateData
) -> None:
    node = Batched(tmp_path, data)
    for _ in range(2):
        before = (tmp_path / "data.seen").read_bytes()
        first = node.counted(*range(node.data.count() + 2))
        (tmp_path / "data.seen").write_bytes(before)
        assert asyncio.run(node.watch.look())
        assert node.told == first == 2
        node.leave()
