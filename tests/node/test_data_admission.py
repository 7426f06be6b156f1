"""How few records an agent may have: `min_records` protects the first contribution, and blocks no
erasure."""

from __future__ import annotations

import asyncio
import io
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
from unweave.protocol.state import NOTHING_WAITS


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
    node: Any = SimpleNamespace(state=state(1), folder=folder, tell=tell, data_problem=None)
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
