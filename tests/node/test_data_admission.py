"""How few records an agent may have: `min_records` protects the first contribution, and blocks no
erasure."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unweave.errors import DataError
from unweave.models import BetaBernoulli
from unweave.node.data import DataSource, PrivateData
from unweave.node.freshness import Freshness, admit


def rows(folder: Path, *keys: int) -> None:
    (folder / "d.csv").write_text("id,x\n" + "".join(f"{key},{key % 2}\n" for key in keys))


@pytest.fixture
def data(tmp_path: Path) -> PrivateData:
    rows(tmp_path, *range(14))
    source = DataSource(path="d.csv", key="id")
    return PrivateData(tmp_path, source, BetaBernoulli(), "north", b"secret")


def state(counter: int = 0, dropped: frozenset[bytes] = frozenset()) -> Any:
    return SimpleNamespace(
        counter=counter,
        dropped=dropped,
        detached=False,
        data=0,
        current=object() if counter else None,
    )


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

    config = SimpleNamespace(name="north", min_records=10)
    node: Any = SimpleNamespace(
        state=state(1), folder=SimpleNamespace(path=tmp_path, config=config), tell=tell
    )
    rows(tmp_path, *range(7))
    assert asyncio.run(getattr(Freshness(node, data), ask)())
    assert len(told) == 1
    (tmp_path / "data.seen").unlink()
    node.state = state(0)
    with pytest.raises(DataError, match="fewer than min_records"):
        asyncio.run(Freshness(node, data).look())
