"""Batches (rule 21): what waits, what leaves together, and what no published sum shows alone."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from tests.protocol.test_private_rounds import SQUARE, at_rest, sum_of
from tests.support.tally import run_faults
from tests.support.wire import Wire

from unweave.protocol.events import BatchDue
from unweave.protocol.state import NOTHING_WAITS, State
from unweave.protocol.terms import Batches
from unweave.simulator.faults import PROFILES

GATHERED = "enough changes have gathered"
PERIOD = 1000.0


def batched(records: int = 3, agents: int = 2) -> Wire:
    publish = Batches(records, agents, PERIOD)
    wire = Wire(4, SQUARE, privacy="masked", min_roster=3, publish=publish)
    wire.checker.private.clock = lambda: wire.now
    wire.settle()
    return wire


def shown(wire: Wire) -> list[int]:
    assert wire.resting
    return [int(v) for v in wire.token.eta]


def restore_agent(wire: Wire, old: State) -> None:
    """Agent 1 starts again from an older disk: a new round, with the same sum."""
    before = shown(wire)
    wire.crash(1)
    wire.start_agent(1, old)
    wire.wait(100.0)
    assert "no longer kept" in wire.opened[-1]
    assert shown(wire) == before


def test_a_lone_change_waits_and_changes_nothing() -> None:
    wire = batched()
    before = shown(wire)
    request = wire.erase(1, rows=[3, 4, 5, 6])  # enough records, of one agent
    wire.wait(60.0)
    assert shown(wire) == before
    assert wire.opened == ["genesis"]
    assert set(wire.disks[1].own.waiting.requests) == {request}
    assert wire.disks[1].own.waiting.due == pytest.approx(PERIOD, abs=wire.now)
    assert all(s.token.published is not None for s in wire.disks)
    assert not any(s.known.intents or s.known.tombs for s in wire.disks)


def test_enough_changes_of_two_agents_leave_together() -> None:
    wire = batched()
    before = shown(wire)
    wire.erase(1, rows=[3])
    wire.wait(30.0)
    wire.change_data(2)
    wire.wait(30.0)
    assert shown(wire) == before  # two records of three
    wire.erase(1, rows=[4])
    wire.wait(60.0)
    at_rest(wire, {1: {3, 4}})
    assert wire.opened == ["genesis", GATHERED]
    assert all(s.own.waiting.requests == {} and not s.own.waiting.data for s in wire.disks)
    assert len(wire.checker.certified) == 2


def test_a_published_batch_counts_no_more() -> None:
    wire = batched(records=2)
    wire.erase(1, rows=[3])
    wire.change_data(2)
    wire.wait(60.0)
    at_rest(wire, {1: {3}})
    before = shown(wire)
    wire.erase(0, rows=[7])
    wire.wait(60.0)
    assert shown(wire) == before
    assert wire.opened == ["genesis", GATHERED]


def test_after_its_date_a_change_leaves_alone() -> None:
    wire = batched()
    wire.erase(1, rows=[3])
    wire.wait(30.0)
    due = wire.disks[1].own.waiting.due
    wire.tell(1, BatchDue(due - 1.0, wire.now))
    assert wire.disks[1].own.waiting.requests
    wire.now = due
    wire.tell(1, BatchDue(due, wire.now))
    wire.wait(60.0)
    at_rest(wire, {1: {3}})
    assert len(wire.checker.certified) == 1


def test_a_waiting_change_is_durable() -> None:
    wire = batched()
    wire.erase(1, rows=[3])
    wire.change_data(1)
    waiting = wire.disks[1].own.waiting
    wire.crash(1)
    wire.start_agent(1)
    wire.wait(60.0)
    assert wire.disks[1].own.waiting == waiting
    wire.erase(2, rows=[5])
    wire.wait(60.0)
    at_rest(wire, {1: {3}, 2: {5}})


def test_now_leaves_at_once_and_takes_along_what_waits_here() -> None:
    wire = batched()
    wire.checker.private.clock = lambda: np.inf  # the owner decides: not a batch
    first = wire.erase(1, rows=[3])
    wire.wait(20.0)
    wire.erase(1, rows=[3], request=first, at_once=True)
    wire.wait(60.0)
    at_rest(wire, {1: {3}})
    wire.erase(1, rows=[4])
    wire.erase(1, rows=[5], at_once=True)
    wire.wait(60.0)
    at_rest(wire, {1: {3, 4, 5}})


def test_a_whole_agent_leaves_at_once_and_alone() -> None:
    """The others' changes keep waiting: the round is made of their old factors."""
    wire = batched()
    wire.erase(1, rows=[3])
    wire.change_data(2)
    wire.wait(30.0)
    before = np.array(shown(wire))
    old = wire.disks[0].own.current.units
    wire.erase(0, whole=True)
    wire.wait(60.0)
    assert np.array_equal(before - np.array(shown(wire)), old)
    assert wire.disks[1].own.waiting.requests
    assert wire.disks[2].own.waiting.data
    # The counts belong to the new sum now, and one more record is enough.
    wire.erase(2, rows=[8])
    wire.wait(60.0)
    at_rest(wire, {1: {3}, 2: {8}}, out={0})


def test_an_agent_that_restarts_within_the_round_does_not_stay_behind() -> None:
    """The round of a batch is broken off after one agent has given its change: the next round still
    shows the batch, and the other agent's change comes along."""
    wire = batched(records=2)
    wire.erase(1, rows=[3])
    wire.wait(30.0)
    wire.erase(2, rows=[4])
    wire.wait(60.0, until=lambda: bool(wire.inside) and GATHERED in wire.opened)
    first = next(iter(wire.inside))
    last = 1 if first != 1 else 2
    assert last not in wire.inside
    wire.crash(last)
    wire.start_agent(last)
    wire.wait(200.0)
    at_rest(wire, {1: {3}, 2: {4}})
    assert wire.opened[1] == GATHERED


def test_a_restored_disk_keeps_its_requests_waiting() -> None:
    """It lacks the value that the sum holds, and gives what the data are now: the same again."""
    wire = batched()
    request = wire.erase(1, rows=[3])
    wire.wait(30.0)
    old = wire.disks[1]
    wire.erase(0, whole=True)  # a new round, and a new value of each agent
    wire.wait(60.0)
    restore_agent(wire, old)
    assert set(wire.disks[1].own.waiting.requests) == {request}
    assert wire.disks[1].own.waiting.leaving == 0
    wire.erase(2, rows=[4, 5])
    wire.wait(60.0)
    at_rest(wire, {1: {3}, 2: {4, 5}}, out={0})


def test_a_restored_disk_gives_the_data_of_now_and_not_those_of_the_backup() -> None:
    """The data were published after the backup: an older value would show the difference."""
    wire = batched(records=2)
    old = wire.disks[1]
    wire.change_data(1)
    wire.change_data(2)
    wire.wait(60.0)
    restore_agent(wire, old)


def test_a_request_that_was_carried_out_does_not_wait_again() -> None:
    wire = batched(records=2)
    wire.erase(1, rows=[3])
    wire.wait(30.0)
    old = wire.disks[1]
    wire.erase(2, rows=[4])
    wire.wait(60.0)
    before = shown(wire)
    wire.crash(1)
    wire.start_agent(1, old)
    wire.wait(100.0)
    assert shown(wire) == before
    assert wire.disks[1].own.waiting == NOTHING_WAITS
    assert len(wire.checker.certified) == 2


@pytest.mark.parametrize("seed", range(12))
def test_no_two_sums_differ_by_the_changes_of_one_agent(seed: int) -> None:
    """What a reader of all published sums can subtract, in a calm network."""
    rng = random.Random(seed)
    wire = batched(records=3)
    sums = [np.array(shown(wire))]
    units = [[s.own.current.units for s in wire.disks]]
    rows = {k: list(range(12)) for k in range(4)}
    for _ in range(12):
        k = rng.randrange(4)
        if rng.random() < 0.5 and len(rows[k]) > 2:
            wire.erase(k, rows=[rows[k].pop()])
        else:
            wire.change_data(k)
        wire.wait(rng.choice([0.5, 3.0, 30.0]))
        wire.wait(40.0)
        now = np.array(shown(wire))
        if not np.array_equal(now, sums[-1]):
            sums.append(now)
            units.append([s.own.current.units for s in wire.disks])
    assert len(sums) > 2
    for before, after in pairwise(units):
        changed = sum(not np.array_equal(a, b) for a, b in zip(before, after, strict=True))
        assert changed >= 2


@pytest.mark.parametrize("chunk", range(4))
def test_fault_runs_with_batches(chunk: int) -> None:
    names = [name for name in PROFILES if not PROFILES[name].lies]
    for seed in range(12 * chunk, 12 * (chunk + 1)):
        rng = random.Random(seed)
        publish = Batches(rng.choice([2, 3, 4]), 2, rng.choice([40.0, 150.0, 600.0]))
        profile = PROFILES[names[seed % len(names)]]
        more = replace(profile, erase=3 * profile.erase, data=6 * profile.data)
        outcome = run_faults(
            seed, more, privacy="masked", conjugate=True, publish=publish, events=500
        )
        assert all(
            s.tomb.out or s.own.waiting._replace(leaving=0) == NOTHING_WAITS
            for s in (outcome.world.state(k) for k in range(len(outcome.world.agents)))
            if not s.tomb.whole
        )


def test_a_change_after_a_value_was_given_waits_while_the_value_is_given_again() -> None:
    """A copy of a token comes back to an agent that gave to the round of its batch, and has changed
    again since: it gives the same bytes, and P6 holds."""
    profile = replace(PROFILES["partitions"], data=0.05)
    run_faults(30018, profile, privacy="noisy", publish=Batches(5, 2, 600.0), events=500)


def test_without_publish_nothing_waits() -> None:
    wire = Wire(4, SQUARE, privacy="masked", min_roster=3)
    wire.settle()
    wire.erase(1, rows=[3])
    wire.wait(30.0)
    at_rest(wire, {1: {3}})
    assert sum_of(wire, {1: {3}}) == shown(wire)
    assert all("changed" not in one.body for one in wire.token.masked.keys.values())
