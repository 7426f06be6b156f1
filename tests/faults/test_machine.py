"""Model against system: Hypothesis draws the faults.

The model is a dict: agent → the rows that should be in the sum, or None for one that erased itself
or was voted out. The system is the protocol core on a wire; every fault is a rule, among them
crash-and-reopen. The checker looks at every transition. In the end everything heals, and the sum
must be the model's, bit for bit.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.support.seeded import read_bug, seeded
from tests.support.tally import ROWS, row_key
from tests.support.wire import Wire

from unweave.protocol.events import DataChanged, VoteCast
from unweave.protocol.state import State
from unweave.protocol.token import request_id
from unweave.simulator.invariants import Violation

GRAPHS = {
    "path": (3, [(0, 1), (1, 2)]),
    "triangle": (3, [(0, 1), (0, 2), (1, 2)]),
    "ring": (4, [(0, 1), (1, 2), (2, 3), (3, 0)]),
    "star": (4, [(0, 1), (0, 2), (0, 3)]),
}
# Whom the others can do without: those that stay are connected, and a quorum.
SPARE = {"path": (0, 2), "triangle": (0, 1, 2), "ring": (0, 1, 2, 3), "star": (1, 2, 3)}
agents = st.integers(0, 3)
pick = st.integers(0, 30)


class Machine(RuleBasedStateMachine):
    wire: Wire
    model: dict[int, set[int] | None]

    @initialize(
        graph=st.sampled_from(sorted(GRAPHS)),
        conjugate=st.booleans(),
        schedule=st.sampled_from(["sweep", "metropolis"]),
        forget=st.sampled_from(["seek", "walk"]),
        compact_after=st.sampled_from([1, 2, 32]),
    )
    def begin(
        self, graph: str, conjugate: bool, schedule: str, forget: str, compact_after: int
    ) -> None:
        size, edges = GRAPHS[graph]
        self.wire = Wire(
            size,
            edges,
            conjugate=conjugate,
            schedule=schedule,
            forget=forget,
            compact_after=compact_after,
            max_passes=8,
        )
        self.size = size
        self.spare = SPARE[graph]
        self.voters: dict[int, set[int]] = {k: set() for k in self.spare}
        self.gone: int | None = None  # a quorum has voted: it never comes back
        self.model = {k: set(range(ROWS)) for k in range(size)}
        self.asked: dict[int, list[tuple[bytes, list[int], bool]]] = {}
        self.backup: tuple[int, State] | None = None
        self.spoiled: int | None = None

    def _alive(self, k: int) -> int | None:
        k %= self.size
        return k if self.wire.up[k] else None

    def _boot(self, k: int) -> None:
        if k != self.gone:
            self.wire.start_agent(k)

    @property
    def stay(self) -> list[int]:
        return [k for k in range(self.size) if k != self.gone]

    # ------------------------------------------------------------------------------------- wire

    @precondition(lambda self: self.wire.flight)
    @rule(i=pick)
    def deliver(self, i: int) -> None:
        flight = self.wire.flight.pop(i % len(self.wire.flight))
        self.wire.arrive(flight)

    @precondition(lambda self: self.wire.flight)
    @rule(i=pick)
    def duplicate(self, i: int) -> None:
        self.wire.arrive(self.wire.flight[i % len(self.wire.flight)])

    @precondition(lambda self: self.wire.flight)
    @rule(i=pick)
    def drop(self, i: int) -> None:
        self.wire.flight.pop(i % len(self.wire.flight))

    @rule(count=st.integers(1, 60))
    def run(self, count: int) -> None:
        """A calm stretch: the oldest messages arrive, work gets done."""
        self._calm(count)

    def _calm(self, count: int) -> None:
        steps = iter(range(count))
        self.wire.settle(until=lambda: next(steps, None) is None)

    @rule(seconds=st.sampled_from([0.5, 4.0, 25.0]))
    def wait(self, seconds: float) -> None:
        self.wire.wait(seconds, hold=lambda flight: len(self.wire.flight) > 200)

    # ------------------------------------------------------------------------------------ faults

    @rule(k=agents)
    def crash_and_reopen(self, k: int) -> None:
        self.wire.crash(k % self.size)
        self._boot(k % self.size)

    @rule(k=agents)
    def crash(self, k: int) -> None:
        self.wire.crash(k % self.size)

    @rule(k=agents)
    def reopen(self, k: int) -> None:
        if not self.wire.up[k % self.size]:
            self._boot(k % self.size)

    @precondition(lambda self: self.wire.flight)
    @rule(i=pick, effects=st.integers(0, 3))
    def die_between_commit_and_effects(self, i: int, effects: int) -> None:
        flight = self.wire.flight.pop(i % len(self.wire.flight))
        self.wire.arrive(flight, effects=effects)

    @rule(k=agents)
    def take_backup(self, k: int) -> None:
        if self.spoiled in (None, k % self.size):
            self.backup = (k % self.size, self.wire.disks[k % self.size])

    @precondition(lambda self: self.backup is not None)
    @rule()
    def restore_backup(self) -> None:
        k, disk = self.backup
        self._spoil(k, disk)

    @rule(k=agents)
    def lose_disk(self, k: int) -> None:
        if self.spoiled in (None, k % self.size):
            self._spoil(k % self.size, self.wire.blank(k % self.size))

    def _spoil(self, k: int, disk: State) -> None:
        """One agent only: two bad disks may forget a request between them."""
        if self.spoiled in (None, k) and k != self.gone:
            self.spoiled = k
            self.wire.crash(k)
            self.wire.start_agent(k, disk)
            # An agent that starts looks whether the data are those that its disk knows.
            self.wire.tell(k, DataChanged(self.wire.now))

    # ---------------------------------------------------------------------------------- requests

    @rule(k=agents, rows=st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=3, unique=True))
    def erase_rows(self, k: int, rows: list[int]) -> None:
        if self._alive(k) is not None:
            request = self.wire.erase(k % self.size, rows)
            self.asked.setdefault(k % self.size, []).append((request, rows, False))
            held = self.model[k % self.size]
            if held is not None:
                held.difference_update(rows)

    @rule(k=agents)
    def erase_agent(self, k: int) -> None:
        if self._alive(k) is not None:
            request = self.wire.erase(k % self.size, whole=True)
            self.asked.setdefault(k % self.size, []).append((request, [], True))
            self.model[k % self.size] = None

    @rule(k=agents)
    def change_data(self, k: int) -> None:
        if self._alive(k) is not None:
            self.wire.change_data(k % self.size)

    @rule(whom=agents, who=st.sets(agents, min_size=1), spread=st.booleans())
    def vote(self, whom: int, who: set[int], spread: bool) -> None:
        """Somebody is down for a while and some say that it is gone: with a quorum it is, with less
        it may come back. Votes may be cast before anybody has heard of the others'."""
        target = self.spare[whom % len(self.spare)]
        if self.gone not in (None, target):
            return
        self.wire.crash(target)
        self.wire.wait(12.0, hold=lambda flight: len(self.wire.flight) > 200)
        near = self.wire.terms.topology.adjacency[target]
        for k in sorted({k % self.size for k in who} - {target}, key=lambda k: k not in near):
            if self.wire.up[k]:
                self._vote(k, target)
                if spread:
                    self._calm(20)

    def _vote(self, k: int, target: int) -> None:
        request = request_id(target, b"gone" * 3)
        self.wire.tell(k, VoteCast(target, request, self.wire.now))
        if (target, k) in self.wire.disks[k].known.votes:
            self.voters[target].add(k)
        if len(self.voters[target]) >= self.wire.terms.quorum:
            self.gone = target
            self.model[target] = None

    # ------------------------------------------------------------------------------------ checks

    @invariant()
    def nothing_is_dropped_that_was_not_asked_for(self) -> None:
        for k, state in enumerate(self.wire.disks if hasattr(self, "wire") else ()):
            asked = {row_key(row) for _, rows, _ in self.asked.get(k, ()) for row in rows}
            assert state.own.dropped <= asked
            assert not state.own.detached or self.model[k] is None

    def teardown(self) -> None:
        if not hasattr(self, "wire"):
            return
        wire = self.wire
        for k in self.stay:
            if not wire.up[k]:
                wire.start_agent(k)
        wire.wait(5.0)
        for _ in range(2 if self.gone is not None else 0):  # the neighbours first, then the others
            for k in self.stay:
                self._vote(k, self.gone)
            wire.wait(2.0)
        if self.spoiled not in (None, self.gone):
            # What its disk may have forgotten is asked for again.
            for request, rows, whole in self.asked.get(self.spoiled, ()):
                wire.erase(self.spoiled, rows, whole=whole, request=request)
        wire.wait(400.0, until=lambda: self._finished())
        assert self._finished(), f"not at rest: {[s.token.role for s in wire.disks]}"
        EVENTS.update(self._events())
        total = [1, 1]
        for k, held in self.model.items():
            if held is None:
                continue
            factor = wire.workers[k].factor(
                frozenset(row_key(row) for row in range(ROWS) if row not in held)
            )
            if factor is not None:
                total = [a + b for a, b in zip(total, factor, strict=True)]
        assert [int(v) for v in wire.token.eta[:2]] == total

    def _finished(self) -> bool:
        wire = self.wire
        left = frozenset() if self.gone is None else {self.gone}
        asked = {request for requests in self.asked.values() for request, _, _ in requests}
        overtaken = {
            request
            for k, requests in self.asked.items()
            if self.model[k] is None
            for request, _, _ in requests
        }
        return (
            wire.resting
            and not wire.flight
            and not any(wire.disks[k].known.intents for k in self.stay)
            and wire.token.round.agents | left == wire.terms.everybody
            and all(wire.disks[k].departed == left for k in self.stay)
            and asked - overtaken <= wire.checker.certified
        )

    def _events(self) -> set[str]:
        """What has happened in this run."""
        checker = self.wire.checker
        happened = {
            "departure": self.gone is not None,
            "vote without a quorum": any(self.voters.values()) and self.gone is None,
            "put away": bool(checker.compacted),
            "retraining": any("start from zero" in why for why in checker.opened),
            "rebuild": any("no longer kept" in why for why in checker.opened),
        }
        return {event for event, has in happened.items() if has}


EVENTS: Counter[str] = Counter()
EVERY = {"departure", "vote without a quorum", "put away", "retraining", "rebuild"}
_RUN = settings(max_examples=60, stateful_step_count=40, derandomize=True, deadline=None)


def test_model_and_system_agree() -> None:
    """In runs that also put erasures away, start from zero, rebuild, and lose an agent by vote."""
    EVENTS.clear()
    run_state_machine_as_test(Machine, settings=_RUN)
    assert not EVERY - set(EVENTS), EVENTS


@pytest.mark.parametrize(
    "name",
    [
        "dedup-by-equality",
        "missing-revision",
        "redraw",
        "put-away-unproved",
        "generation-kept-back",
        "genesis-departed",
    ],
)
def test_the_machine_finds_a_seeded_bug(name: str) -> None:
    bug = read_bug(Path(__file__).parent / "mutants" / f"{name}.toml")
    generate = settings(_RUN, phases=[Phase.generate], max_examples=3000, print_blob=False)
    with seeded(bug), pytest.raises((Violation, AssertionError)):
        run_state_machine_as_test(Machine, settings=generate)
