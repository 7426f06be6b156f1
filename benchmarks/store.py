"""A step on disk against one bare transaction that writes the same bytes."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import benchmark
from unweave.node.storage.file import connect
from unweave.node.storage.sqlite import SqliteStore
from unweave.protocol.events import Event, Received, Solve, SolveResult
from unweave.protocol.machine import handle, start
from unweave.protocol.messages import Pass
from unweave.protocol.state import State
from unweave.protocol.terms import Terms
from unweave.simulator.world import World
from unweave.testing.store import CountingWorker
from unweave.testing.values import small_terms

STEPS = 60
TURNS = 9
SECRET = bytes(range(32))


class _Solver(CountingWorker):
    """Ones: the time of a solver is not measured."""

    def __init__(self, agent: int, dim: int) -> None:
        super().__init__(agent)
        self.units = np.ones(dim, dtype=np.int64)

    def solve(self, work: Solve) -> SolveResult:
        return SolveResult(self.units)


class _Recorder(World):
    """A walk that never ends; keeps what happens to agent 0."""

    def __init__(self, terms: Terms) -> None:
        dim = terms.grid.dim
        super().__init__(terms, [_Solver(k, dim) for k in range(terms.size)])
        self.events_at_0: list[Event] = []

    def _transition(self, k: int, event: Event) -> None:
        if k == 0:
            self.events_at_0.append(event)
        super()._transition(k, event)


def _life(terms: Terms, steps: int) -> tuple[State, list[Event]]:
    """Agent 0 after its start, and what follows: tokens received, acknowledgements."""
    world = _Recorder(terms)
    world.start()
    boot = world.state(0).incarnation
    world.run(lambda: len(world.events_at_0) >= steps)
    first, _ = start(State(terms, 0), boot, 0.0, alone=True)
    return first, [_fresh(event, n) for n, event in enumerate(world.events_at_0[:steps])]


def _fresh(event: Event, n: int) -> Event:
    """With a vector of its own, as if others had learned: pages that did not change are not
    written, and the bare transactions write all of theirs."""
    if not (isinstance(event, Received) and isinstance(event.message, Pass)):
        return event
    token = event.message.token
    eta = token.eta + np.arange(1, len(token.eta) + 1) * (n + 1)
    return event._replace(message=event.message._replace(token=token._replace(eta=eta)))


class _Counter:
    """Stands before a connection and adds up what is written."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.sizes: list[int] = []

    def execute(self, sql: str, values: Iterable[Any] = ()) -> sqlite3.Cursor:
        if sql.startswith("BEGIN"):
            self.sizes.append(0)
        else:
            size = sum(len(v) if isinstance(v, bytes | str | memoryview) else 8 for v in values)
            if self.sizes:
                self.sizes[-1] += size
        return self.db.execute(sql, tuple(values))


def _steps(store: SqliteStore, first: State, events: list[Event]) -> Iterator[None]:
    """One transition and its commit at a time."""
    at = first
    for event in events:
        after, _ = handle(at, event)
        store.commit(at, after)
        at = after
        yield


def _plain(db: sqlite3.Connection, sizes: list[int], turn: int) -> Iterator[None]:
    """One bare transaction at a time, each over a row of its own size: nothing is moved. Each value
    differs from the one before it, also from that of the last turn: the same would not be written.
    """
    for n, size in enumerate(sizes, start=turn + 1):
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE plain SET value = ? WHERE id = ?", (bytes([n]) * size, size))
        db.execute("COMMIT")
        yield


def step_ratio(dim: int, steps: int = STEPS, turns: int = TURNS) -> float:
    """Wall time, since it is the disk that is waited for. The two sides alternate after every step;
    of each step the median over all turns counts, as a disk has moods."""
    # A receiver that checks steps would refuse tokens with the vectors of `_fresh`.
    terms = small_terms(agents=10, dim=dim, schedule="metropolis", parks=False, checked=False)
    first, events = _life(terms, steps)
    times = np.zeros((turns, steps, 2))
    with tempfile.TemporaryDirectory(dir=os.curdir) as name:
        directory = Path(name)
        sizes = _bytes_written(directory / "count.db", terms, first, events)
        for number, turn in enumerate(times):
            _bare_file(directory / "bare.db", sizes)
            with (
                SqliteStore.open(directory / "ours.db", terms, 0) as store,
                closing(connect(directory / "bare.db")) as bare,
            ):
                store.commit(State(terms, 0), first)
                sides = (_steps(store, first, events), _plain(bare, sizes, number))
                for step in turn:
                    for side, work in enumerate(sides):
                        begin = time.perf_counter()
                        next(work)
                        step[side] = time.perf_counter() - begin
            for name in ("ours.db", "bare.db"):  # a file that has grown already is faster
                (directory / name).unlink()
    ours, plain = np.median(times, axis=0).sum(axis=0)
    return float(ours / plain)


def _bare_file(path: Path, sizes: list[int]) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE plain (id INTEGER PRIMARY KEY, value BLOB)")
        for size in set(sizes):
            db.execute("INSERT INTO plain VALUES (?, zeroblob(?))", (size, size))


def _bytes_written(path: Path, terms: Terms, first: State, events: list[Event]) -> list[int]:
    """Per transaction."""
    with SqliteStore.open(path, terms, 0, SECRET) as store:
        store.commit(State(terms, 0), first)
        counter = _Counter(store._db)
        store._db = counter  # type: ignore[assignment]
        for _ in _steps(store, first, events):
            pass
        store._db = counter.db
    assert len(counter.sizes) == len(events), "every one of these steps is one transaction"
    return counter.sizes


@benchmark("a step on disk against a bare transaction (wall time, D=2)", target=1.5, at_most=True)
def small_step() -> float:
    return step_ratio(2)


@benchmark("a step on disk against a bare transaction (wall time, 1 MB)", target=1.5, at_most=True)
def large_step() -> float:
    return step_ratio(125_000)
