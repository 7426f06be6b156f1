"""A disk that takes no more: a clear error, the last commit stands, and the agent goes on later.

The limit on the size of files acts on the whole process, so each test runs in one of its own.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from tests.support.nodes import QUICK, nodes, until
from tests.support.processes import Processes

from unweave.errors import StoreError, UnweaveError
from unweave.node.agent import open_data
from unweave.node.api.server import Api
from unweave.node.data.watch import DataWatch
from unweave.node.storage.sqlite import SqliteStore
from unweave.protocol.state import State
from unweave.testing.values import same_durable, small_terms, state

ROOT = Path(__file__).parents[2]
TERMS, ME = small_terms(agents=3, dim=2000), 1
UNLIMITED = resource.getrlimit(resource.RLIMIT_FSIZE)


def limit(size: int | None) -> None:
    """No file may grow beyond `size` bytes; None: as before."""
    soft, hard = UNLIMITED
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft if size is None else size, hard))


def store(folder: Path, size: int) -> None:
    """Commit until the disk refuses; then the file holds the last commit, or the refused one."""
    path, at, after = folder / "store.db", State(TERMS, ME), State(TERMS, ME)
    draw = Random(size)
    limit(size)
    full = pytest.raises(StoreError, match="Fix: check its free space")
    with full, SqliteStore.open(path, TERMS, ME) as opened:
        for step in range(100):
            after = state(draw, TERMS, ME, at if step else None)
            opened.commit(at, after)
            at = after
    limit(None)
    with SqliteStore.open(path, TERMS, ME) as opened:
        found = opened.load(TERMS, ME) or State(TERMS, ME)
        assert same_durable(found, at) or same_durable(found, after)
        opened.commit(found, state(draw, TERMS, ME, found))


def operator(folder: Path, size: int) -> None:
    """Every request is answered or refused, and afterwards the agent carries the erasure out."""

    async def main() -> None:
        async with nodes(Processes(folder / "net", agents=1, timeouts=QUICK)) as agents:
            node = agents["a1"]
            await until(lambda: node.phase == "parked")
            data = open_data(node.folder, node.identity)
            api = Api(node, data, DataWatch(node, data))
            limit(size)
            with pytest.raises(UnweaveError, match="Fix: check") as refused:
                await api.call("erase", {"keys": ["a1-0"]})
            assert str(node.folder.path) in str(refused.value)
            for name in ("status", "posterior", "forgotten", "backup", "learn", "wake"):
                with suppress(UnweaveError):
                    await api.call(name, {})
            limit(None)
            await until(lambda: node.phase == "parked")
            request = (await api.call("erase", {"keys": ["a1-0"]}))["request"]
            while True:
                found = await api.call("erasure", {"request": request})
                if found["erasure"]["state"] == "certified":
                    break
                await node.changed(1.0)
            assert "Traceback" not in node.log.stream.getvalue()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("story", "size"),
    [(store, size) for size in (0, 1_000, 40_000, 100_000, 150_000)]
    + [(operator, size) for size in (0, 4096)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_full_disk(story, size, tmp_path):
    command = [sys.executable, "-m", "tests.node.test_full_disk", story.__name__]
    done = subprocess.run(
        [*command, str(tmp_path), str(size)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    {"store": store, "operator": operator}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
