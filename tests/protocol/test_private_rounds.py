"""Private rounds, one rule at a time, on a wire that is driven by hand; the checker looks on.

Several of these tests are what catches a seeded bug that a fault run would heal.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.support.tally import ROWS, row_key
from tests.support.wire import Wire

from unweave.errors import NotCertified
from unweave.keyring import Keyring
from unweave.protocol.certificate.verify import verify
from unweave.protocol.events import (
    Continue,
    Done,
    Mask,
    MaskedValue,
    NextPoint,
    SolveResult,
    StaysOut,
)
from unweave.protocol.machine import handle
from unweave.protocol.messages import Pass
from unweave.protocol.rounds import given_to
from unweave.protocol.state import Hold
from unweave.protocol.statements import Opening
from unweave.protocol.steps import wrong_step
from unweave.protocol.token import OPENINGS, OUT, round_name

SQUARE = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 3)]
CHANGED = "the data have changed"
ERASED = "this round has a value with erased data"
GONE = "the one-time key of this agent is gone"
NEXT = "the next private round"


def masked_wire(size: int = 4, **settings) -> Wire:
    settings = {"privacy": "masked", "min_roster": 3} | settings
    return Wire(size, SQUARE if size == 4 else SQUARE[:3], **settings)


def sum_of(wire: Wire, without: dict[int, set[int]] | None = None, out: set[int] = frozenset()):
    """Components 0 and 1 of the sum that should have been learned."""
    total = [1, 1]
    for k, worker in enumerate(wire.workers):
        factor = worker.factor(frozenset(row_key(r) for r in (without or {}).get(k, ())))
        if k not in out and factor is not None:
            total = [a + b for a, b in zip(total, factor, strict=True)]
    return total


def enrolled(wire: Wire) -> int:
    """How many agents have enrolled on the newest token."""
    return max((len(s.token.held.masked.keys) for s in wire.disks if s.token.held), default=0)


def at_rest(wire: Wire, *args, **kwargs) -> None:
    assert wire.resting
    assert [int(v) for v in wire.token.eta[:2]] == sum_of(wire, *args, **kwargs)
    assert wire.token.round.agents == wire.terms.everybody - wire.disks[wire.holder].departed


def test_a_round_takes_three_laps_and_the_next_one_two() -> None:
    """Enrol, give, attest. The next keys were written while giving: a change costs two laps."""
    wire = masked_wire()
    wire.settle()
    at_rest(wire)
    assert wire.opened == ["genesis"]
    first = wire.token.stamp.hop
    assert first <= 3 * 4 + 1
    wire.change_data((wire.holder + 2) % 4)
    wire.settle()
    at_rest(wire)
    assert wire.opened == ["genesis", CHANGED]
    assert wire.token.stamp.hop <= 2 * 4 + 1


def test_the_sum_is_that_of_plain_mode_bit_for_bit() -> None:
    masked, plain = masked_wire(), Wire(4, SQUARE)
    for wire in (masked, plain):
        wire.settle()
        wire.erase(2, rows=[1, 5])
        wire.wait(20.0)
        wire.change_data(0)
        wire.wait(20.0)
    assert np.array_equal(masked.token.eta, plain.token.eta)
    at_rest(masked, {2: {1, 5}})


def test_no_token_shows_a_factor() -> None:
    """What an agent sees between the first and the last value is noise, to the last bit."""
    wire = masked_wire()
    seen = []
    while not wire.resting:
        for flight in wire.find(Pass):
            token = flight.message.token
            if token.inside and len(token.inside) < 4:
                seen.append(token)
        if wire.local:
            k, event = wire.local.pop(0)
            wire.tell(k, event._replace(now=wire.now))
        else:
            wire.arrive(wire.flight.pop(0))
    assert len({tuple(token.eta) for token in seen}) >= 3
    for token in seen:
        assert np.abs(token.eta).min() > 2**48  # a factor of 12 rows is far smaller


def test_the_audit_has_a_mask_of_its_own() -> None:
    """With the mask of the sum, an audit of sums whose masks have not cancelled would say equal."""
    wire = masked_wire()
    wire.settle()
    for s in wire.disks:
        given = s.own.current.given
        assert not np.array_equal(given.units, given.audit)


def test_an_erasure_starts_a_new_round_without_the_rows() -> None:
    wire = masked_wire()
    wire.settle()
    wire.erase(1, rows=[3])
    wire.wait(20.0)
    at_rest(wire, {1: {3}})
    assert wire.opened == ["genesis", ERASED]
    assert len(wire.checker.certificates) == 1


def test_nothing_is_served_between_an_erasure_and_the_next_complete_sum() -> None:
    wire = masked_wire()
    wire.settle()
    assert all(s.token.published is not None for s in wire.disks)
    wire.erase(1, rows=[3])
    wire.wait(20.0, hold=lambda flight: isinstance(flight.message, Pass))
    told = [k for k, s in enumerate(wire.disks) if s.known.tombs]
    assert told
    assert all(wire.disks[k].token.published is None for k in told)
    wire.wait(30.0)
    at_rest(wire, {1: {3}})
    for s in wire.disks:
        assert s.token.published is not None
        assert np.array_equal(s.token.published.eta, wire.token.eta)


def test_a_change_keeps_the_old_sum_until_the_next_one_is_complete() -> None:
    wire = masked_wire()
    wire.settle()
    old = wire.token.eta
    wire.change_data(1)
    wire.wait(20.0, until=lambda: 0 < len(wire.inside) < 4)
    for s in wire.disks:
        assert s.token.published is not None
        assert np.array_equal(s.token.published.eta, old)


def test_an_agent_that_erases_itself_leaves_the_roster() -> None:
    wire = masked_wire()
    wire.settle()
    wire.erase(3, whole=True)
    wire.wait(30.0)
    at_rest(wire, out={3})
    assert set(wire.token.masked.keys) == {0, 1, 2}


def test_below_the_least_roster_an_erasure_is_certified_without_a_sum() -> None:
    wire = masked_wire()
    wire.settle()
    wire.erase(3, whole=True)
    wire.wait(30.0)
    wire.erase(2, whole=True)
    wire.wait(40.0)
    assert wire.resting
    assert not wire.token.inside
    assert np.array_equal(wire.token.eta, wire.terms.eta0)
    account = verify(wire.checker.certificates[-1], wire.terms, lambda *_: True)
    assert account.included == ()
    assert {erased.agent for erased in account.erasures} >= {"a3"}
    assert all(s.token.published is None for s in wire.disks)


def test_a_departed_agent_leaves_the_roster() -> None:
    wire = masked_wire()
    wire.settle()
    wire.crash(3)
    wire.wait(20.0)
    wire.vote([0, 1, 2], 3)
    wire.wait(60.0)
    at_rest(wire, out={3})


def test_a_round_that_waits_for_an_agent_is_at_rest() -> None:
    """One agent is down and another has new data: no sum can be complete, and the token rests."""
    wire = masked_wire()
    wire.settle()
    wire.crash(3)
    wire.change_data(0)
    wire.wait(60.0)
    assert set(wire.inside) == {0, 1, 2}
    wire.change_data(1)
    wire.wait(20.0)
    before = wire.checker.checked
    hops = wire.token.stamp.hop
    wire.wait(120.0)
    assert wire.token.stamp.hop == hops
    assert wire.checker.checked - before < 2500  # timers, and repetitions to the silent agent


def test_a_round_goes_on_when_the_missing_agent_is_back() -> None:
    wire = masked_wire()
    wire.settle()
    wire.crash(3)
    wire.change_data(0)
    wire.wait(60.0)
    wire.start_agent(3)
    wire.wait(60.0)
    at_rest(wire)


def test_a_restarted_agent_enrols_again() -> None:
    """Its private key died with its process: it must not believe the enrolment on the token."""
    wire = masked_wire()
    wire.settle(until=lambda: enrolled(wire) == 2 and wire.disks[0].token.held is None)
    old = wire.token.masked.keys[0]
    wire.crash(0)
    wire.start_agent(0)
    wire.wait(60.0)
    at_rest(wire)
    assert wire.token.masked.keys[0] != old
    assert wire.disks[0].own.counter == 1  # it gave once, in the round that was completed
    # The others gave to the round with the old key; the restarted agent opens the next one, once.
    assert wire.opened.count(GONE) == 1
    assert not wire.masked_in_vain


def test_a_fork_of_a_round_gets_the_same_bytes() -> None:
    """A token takes a detour: both copies belong to one round, so both get the same value."""
    wire = masked_wire()
    wire.settle(until=lambda: bool(wire.inside) and len(wire.inside) < 3)
    late = wire.find(Pass)[-1]
    giver = late.to
    wire.settle(until=lambda: giver in wire.inside)
    s = wire.disks[giver]
    token = late.message.token
    name = round_name(wire.terms.network_id, token.masked)
    first = given_to(s, name)
    assert first is not None
    # The same token, in a newer epoch: another agent has opened it from its copy.
    fork = s.fork()
    stamp = token.stamp._replace(epoch=s.token.fence.epoch, hop=s.token.fence.hop + 1)
    fork.token.role = Hold(token._replace(stamp=stamp))
    fork.token.origin = s.token.origin
    fork.token.last = fork.token.fence = stamp
    after, _ = handle(fork, Continue(wire.now), wire.signers[giver])
    assert after.token.copy is not None
    assert after.token.copy.stamp == stamp.next(s.incarnation)
    assert after.token.copy.included[giver] == first.revision
    assert np.array_equal(after.token.copy.eta, token.eta + first.given.units)


def test_data_that_change_while_a_round_runs_wait_for_the_next() -> None:
    wire = masked_wire()
    wire.settle(until=lambda: 2 in wire.inside and len(wire.inside) < 4)
    wire.change_data(2)
    wire.settle(until=lambda: wire.resting)
    wire.settle()
    at_rest(wire)
    assert wire.opened == ["genesis", CHANGED]


def test_an_agent_without_rows_gives_zero() -> None:
    wire = masked_wire()
    wire.settle()
    wire.erase(1, rows=range(ROWS))
    wire.wait(30.0)
    at_rest(wire, {1: set(range(ROWS))})
    assert 1 in wire.token.inside


@pytest.mark.parametrize("value", [2**62, -(2**62), -(2**63)])
def test_a_factor_beyond_its_share_of_the_grid_is_zero_and_told(value: int) -> None:
    wire = masked_wire()

    class Huge:
        def solve(self, work):
            return SolveResult(np.array([value, 1], dtype=np.int64))

    wire.workers[1].solve = Huge().solve
    told = []
    after = wire.checker.after

    def watch(agent, before, state, effects):
        told.extend(effect.why for effect in effects if isinstance(effect, StaysOut))
        after(agent, before, state, effects)

    wire.checker.after = watch
    wire.settle()
    assert any("share of the grid" in why for why in told)
    assert [int(v) for v in wire.token.eta] == sum_of(wire, out={1})


def test_a_model_that_iterates_takes_several_rounds() -> None:
    wire = masked_wire(conjugate=False, iterates=True)
    wire.wait(60.0)
    assert wire.resting
    assert wire.token.masked.step == wire.opened.count(NEXT) > 2
    assert wire.token.round.converged
    wire.erase(1, rows=[0])
    wire.wait(60.0)
    assert wire.resting
    account = verify(wire.checker.certificates[-1], wire.terms, lambda *_: True)
    assert account.erasures[0].kind in ("refined", "retrained")
    assert account.estimate == {"point": int.from_bytes(wire.token.masked.point, "big")}


def test_rounds_that_never_settle_are_not_called_converged() -> None:
    wire = masked_wire(conjugate=False, iterates=True, max_rounds=1)
    wire.wait(60.0)
    assert wire.resting
    assert not wire.token.round.converged


@pytest.mark.parametrize("which", ["removed", "round", "audit"])
def test_a_step_that_breaks_a_round_is_wrong(which: str) -> None:
    """Rule 18 under rule 20: the receiver finds it, under the sender's signature."""
    wire = masked_wire()
    wire.settle(until=lambda: len(wire.inside) == 2 and bool(wire.find(Pass)))
    flight = wire.find(Pass)[-1]
    message, who = flight.message, flight.sender
    assert wrong_step(wire.terms, who, message.token, message.step) is None
    token, step = message.token, message.step
    if which == "removed":
        revision = token.included[who]
        token = token._replace(
            included=token.included.set(who, OUT), inside=token.inside.minus(who)
        )
        step = step._replace(revision=revision)
        expected = "without the value"
    elif which == "round":
        keys = dict(token.masked.keys)
        keys[who] = wire.disks[who].token.copy.masked.spare[who]
        token = token._replace(masked=token.masked._replace(keys=keys))
        expected = "another round"
    else:
        step = step._replace(factor=step.factor._replace(audit=None))
        expected = "the one for the audit"
    problem = wrong_step(wire.terms, who, token, step)
    assert problem is not None
    assert expected in problem


def test_a_certificate_of_a_part_of_the_roster_does_not_verify() -> None:
    """A masked sum without one agent is noise, whatever was signed about it."""
    wire = masked_wire()
    wire.settle()
    wire.erase(1, rows=[3])
    wire.wait(20.0)
    certificate = wire.checker.certificates[-1]
    verify(certificate, wire.terms, lambda *_: True)
    with pytest.raises(NotCertified, match="names a private round"):
        verify(certificate, replace(wire.terms, privacy="plain"), lambda *_: True)


def test_an_agent_that_lost_the_sum_asks_for_it() -> None:
    """It is not in the round, so nothing of the round is missing; only its copy of the sum is."""
    wire = masked_wire()
    wire.settle()
    wire.erase(1, whole=True)
    wire.wait(20.0)
    wire.crash(1)
    wire.start_agent(1, wire.blank(1))
    wire.wait(60.0)
    at_rest(wire, out={1})
    shown = wire.disks[1].token.published
    assert shown is not None
    assert np.array_equal(shown.eta, wire.token.eta)
    hop = wire.token.stamp.hop
    wire.wait(60.0)
    assert wire.token.stamp.hop == hop  # once


def test_a_question_about_another_value_has_another_name() -> None:
    """The mask of the value before an erasure may be answered after it."""
    wire = masked_wire()
    asked = []
    good = wire._commit

    def watch(k, after, effects, live):
        asked.extend(e for e in effects if isinstance(e, Mask) and k == 1)
        good(k, after, effects, live)

    wire._commit = watch
    while not asked:
        if wire.local:
            k, event = wire.local.pop(0)
            wire.tell(k, event._replace(now=wire.now))
        else:
            wire.arrive(wire.flight.pop(0))
    (late,) = [item for item in wire.local if item[0] == 1]
    wire.local.remove(late)
    wire.erase(1, rows=[2])
    for _ in range(20):
        if len(asked) == 2:
            break
        k, event = wire.local.pop(0)
        wire.tell(k, event._replace(now=wire.now))
    assert asked[0].round == asked[1].round
    wire.local = [item for item in wire.local if item[0] != 1]  # the first answer overtakes it
    wire.tell(1, late[1]._replace(now=wire.now))
    assert wire.disks[1].own.current is None
    wire.wait(60.0)
    wire.local += [(1, Done(asked[1].key, MaskedValue(None, None), wire.now))]
    wire.wait(60.0)
    at_rest(wire, {1: {2}})


def test_an_agent_that_cannot_compute_the_next_point_calls_no_sum_final() -> None:
    wire = masked_wire(conjugate=False, iterates=True, max_rounds=30)
    wire.workers[2].advance = lambda work: NextPoint(None, failed=True)
    wire.wait(200.0)
    at_rest(wire)
    assert NEXT in wire.opened
    assert not wire.token.round.converged
    healthy = masked_wire(conjugate=False, iterates=True, max_rounds=30)
    healthy.wait(200.0)
    assert healthy.token.round.converged
    assert np.array_equal(wire.token.eta, healthy.token.eta)


def test_a_restored_agent_counts_on_from_the_value_that_it_removes() -> None:
    """Its disk knows earlier revisions only. A certificate shows by their numbers that the value in
    the sum is from after the erasure."""
    wire = masked_wire()
    wire.settle()
    old = wire.disks[1]
    for _ in range(3):
        wire.change_data(1)
        wire.settle()
    removed = wire.token.included[1]
    assert removed.counter > old.own.counter + 1
    wire.crash(1)
    wire.start_agent(1, old)
    request = wire.erase(1, rows=[3])  # asked before it hears what the token includes
    wire.wait(60.0)
    at_rest(wire, {1: {3}})
    assert wire.token.included[1].counter > removed.counter
    account = verify(wire.checker.certificates[-1], wire.terms, lambda *_: True)
    assert [erased.request for erased in account.erasures] == [request.hex()]


class TwoValues(Keyring):
    """The keyring of an agent that gives one value to the sum and another to the audit."""

    def mask(self, *asked):
        found = super().mask(*asked)
        return None if found is None else (found[0], found[1] + 1)


def test_two_values_for_sum_and_audit_are_never_served_and_name_nobody() -> None:
    """The audit fails in every round, two agents find it, and the network stops. No step is wrong,
    so there is no proof: the operators have to find out, and vote."""
    wire = masked_wire(down=range(4))
    for k in range(4):
        wire.start_agent(k)
        if k == 2:
            wire.keyrings[k].__class__ = TwoValues
    wire.wait(120.0)
    assert all(s.audit_failed for s in wire.disks)
    assert not any(s.token.published for s in wire.disks)
    assert not any(s.known.proofs for s in wire.disks)
    assert not wire.checker.certificates
    # Without the agent, the others publish the sum of theirs.
    wire.vote([0, 1, 3], 2, lying=True)
    wire.wait(120.0)
    at_rest(wire, out={2})
    assert all(wire.disks[k].token.published is not None for k in (0, 1, 3))


@pytest.mark.parametrize("spent", range(4))
def test_an_agent_that_may_open_no_epoch_leaves_the_next_round_to_another(spent: int) -> None:
    """It has lied about its openings, and stopped. Without another agent, every sum that it
    completes would be lost with the token."""
    wire = masked_wire(conjugate=False, iterates=True, down=range(4))
    opening = Opening.write(
        spent,
        wire.signers[spent],
        network_id=wire.terms.network_id.hex(),
        agent=spent,
        count=OPENINGS - 1,
        epoch=2,
        incarnation=9,
    )
    for k, disk in enumerate(wire.disks):
        disk.known.openings = {spent: opening}
        wire.start_agent(k, disk)
    wire.wait(100.0)
    assert wire.resting
    assert wire.token.round.converged
    assert [int(v) for v in wire.token.eta[:2]] == sum_of(wire)
