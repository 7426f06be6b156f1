"""Laws for every store. A law takes `reopen`, which opens the same disk anew each time (the
store from the call before is closed or was killed), and raises AssertionError. The disk is that of
agent ME of a network with `terms`: TERMS, or MASKED for one with private rounds.

    @pytest.mark.parametrize("terms", (TERMS, MASKED), ids=lambda terms: terms.privacy)
    @pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
    def test_store(law, terms): law(reopen, Random(1), terms)
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

from unweave.grid import Ints
from unweave.protocol.events import (
    Advance,
    Appraise,
    DataChanged,
    EraseRequested,
    Freeze,
    Judge,
    NextPoint,
    Solve,
    SolveResult,
)
from unweave.protocol.ports import Store
from unweave.protocol.state import DURABLE, State
from unweave.protocol.terms import Terms
from unweave.protocol.token import request_id
from unweave.simulator.world import World
from unweave.testing.values import same, same_durable, small_terms, state

__all__ = [
    "LAWS",
    "MASKED",
    "ME",
    "TERMS",
    "CountingWorker",
    "Law",
    "Reopen",
    "the_last_commit_is_what_is_loaded",
]


TERMS = small_terms(agents=3, dim=2)
MASKED = small_terms(agents=3, dim=2, privacy="masked", min_roster=2)
ME = 1

Reopen = Callable[[], Store]
Law = Callable[[Reopen, Random, Terms], None]


def a_new_disk_is_empty(reopen: Reopen, draw: Random, terms: Terms) -> None:
    for _ in range(2):
        store = reopen()
        assert store.load(terms, ME) is None
        store.close()


def the_last_commit_is_what_is_loaded(reopen: Reopen, draw: Random, terms: Terms) -> None:
    """Over any sequence of states, each keeping some fields and replacing others."""
    store = reopen()
    at = State(terms, ME)
    for step in range(12):
        after = state(draw, terms, ME, at if step else None)
        store.commit(at, after)
        at = after
        if draw.random() < 0.4:
            store.close()
            store = reopen()
            loaded = store.load(terms, ME)
            assert loaded is not None
            assert same_durable(loaded, at), f"step {step}"
            at = loaded
    store.close()


def nothing_volatile_is_kept(reopen: Reopen, draw: Random, terms: Terms) -> None:
    store = reopen()
    after = state(draw, terms, ME).restarted(77)
    after.peers.synced, after.peers.suspects, after.timers = True, frozenset({0}), {"loss": 3.0}
    store.commit(State(terms, ME), after)
    store.close()
    store = reopen()
    loaded = store.load(terms, ME)
    assert loaded is not None
    assert (loaded.incarnation, dict(loaded.timers)) == (0, {})
    for group in (loaded.token, loaded.own, loaded.known, loaded.peers):
        blank = type(group)()
        for name, value in vars(group).items():
            assert name in DURABLE or value == getattr(blank, name), name
    store.close()


def a_step_without_durable_change_is_no_step(reopen: Reopen, draw: Random, terms: Terms) -> None:
    store = reopen()
    first = state(draw, terms, ME)
    store.commit(State(terms, ME), first)
    second = first.restarted(5)
    store.commit(first, second)
    third = second.fork()
    third.own.counter += 1
    store.commit(second, third)
    store.close()
    store = reopen()
    loaded = store.load(terms, ME)
    assert loaded is not None
    assert same_durable(loaded, third)
    store.close()


def an_agents_life_survives(reopen: Reopen, draw: Random, terms: Terms) -> None:
    """A real run: learn, new data, erase. After every step the disk holds the step's state."""
    watch = _Watch(reopen, terms)
    world = World(terms, [CountingWorker(k) for k in range(terms.size)], observers=[watch])
    world.start()
    world.run(lambda: world.parked is not None, limit=500)
    world.tell(ME, DataChanged(0.0))
    world.run(lambda: False, limit=500)
    world.tell(ME, EraseRequested(request_id(ME, b"r" * 12), False, frozenset({b"row" * 8}), 0.0))
    world.run(lambda: False, limit=500)
    world.tell(ME, EraseRequested(request_id(ME, b"s" * 12), True, frozenset(), 0.0))
    world.run(lambda: False, limit=500)
    assert world.parked is not None
    assert world.state(ME).own.detached
    assert watch.steps > 20
    watch.store.close()


class CountingWorker:
    """A worker whose factor is agent + 1 and the number of remaining rows."""

    def __init__(self, agent: int) -> None:
        self.agent = agent

    def solve(self, work: Solve) -> SolveResult:
        remaining = 100 - len(work.dropped)
        return SolveResult(np.array([self.agent + 1, remaining], dtype=np.int64))

    def judge(self, work: Judge) -> bool:
        return True

    def freeze(self, work: Freeze) -> Ints:
        return work.factor

    def appraise(self, work: Appraise) -> dict[str, object]:
        return {}

    def advance(self, work: Advance) -> NextPoint:
        return NextPoint(work.point if work.eta is None else None)


class _Watch:
    """Commits one agent's steps and compares the disk with the state after each."""

    def __init__(self, reopen: Reopen, terms: Terms) -> None:
        self.reopen = reopen
        self.terms = terms
        self.store = reopen()
        self.steps = 0
        self.known: State | None = None

    def after(self, agent: int, before: State, after: State, effects: object) -> None:
        if agent != ME:
            return
        self.steps += 1
        # The disk was opened anew in the step before: its state is the same, in other objects.
        if self.known is not None:
            before = _with_objects_of(self.known, before)
            after = _with_objects_of(self.known, after)
        self.store.commit(before, after)
        self.store.close()
        self.store = self.reopen()
        self.known = self.store.load(self.terms, ME)
        assert self.known is not None
        assert same_durable(self.known, after)


def _with_objects_of(loaded: State, s: State) -> State:
    """`s` with the loaded object wherever the value is the same, as after a restart."""
    copy = s.fork()
    for name in DURABLE:
        if same(s.durable(name), loaded.durable(name)):
            copy.set_durable(name, loaded.durable(name))
    return copy


LAWS: tuple[Law, ...] = (
    a_new_disk_is_empty,
    the_last_commit_is_what_is_loaded,
    nothing_volatile_is_kept,
    a_step_without_durable_change_is_no_step,
    an_agents_life_survives,
)
