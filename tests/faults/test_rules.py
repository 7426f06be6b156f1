"""One rule at a time, on a wire that is driven by hand; the checker looks on.

The numbers are those of the rules in docs/explanation/protocol.md. Several of these tests are what
catches a seeded bug that a fault run would heal (see test_mutants).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.support.liar import Liar
from tests.support.tally import ROWS, TIMEOUTS, Tally, contains, row_key
from tests.support.wire import Flight, Wire

from unweave.persistent import Bitmap, Stack
from unweave.protocol.events import Continue, Done, Received, Solve, SolveResult, Tick, VoteCast
from unweave.protocol.messages import (
    Ack,
    Alive,
    Digests,
    Gossip,
    Heard,
    Hello,
    News,
    Pass,
    Share,
    Welcome,
)
from unweave.protocol.state import Hold, Idle, Out, Parked
from unweave.protocol.steps import TokenStep, received_from
from unweave.protocol.terms import Timeouts
from unweave.protocol.token import NEVER, NO_ROUND, OUT, Stamp, Tomb, digest, request_id
from unweave.protocol.visit import merge_tombs

PATH = [(0, 1), (1, 2)]
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
COMPLETE = [(0, 1), (0, 2), (1, 2)]
ZERO = "an erasure asked all agents to start from zero"
DEAD = "the token included what a tombstone forbids"
SILENCE = "no heartbeat of the token"


def learned(wire: Wire, without: dict[int, set[int]] | None = None, erased: set[int] = frozenset()):
    """Components 0 and 1 of the sum that should have been learned."""
    total = [1, 1]
    for k, worker in enumerate(wire.workers):
        rows = frozenset(row_key(r) for r in (without or {}).get(k, ()))
        factor = worker.factor(rows)
        if k not in erased and factor is not None:
            total = [a + b for a, b in zip(total, factor, strict=True)]
    return total


def at_rest(wire: Wire, *args, **kwargs) -> None:
    """The network rests, has attested everything, and holds what it should."""
    assert wire.resting
    assert [int(v) for v in wire.token.eta[:2]] == learned(wire, *args, **kwargs)
    left = wire.disks[wire.holder].departed
    assert wire.token.round.agents == wire.terms.everybody - left


def rested(size: int, edges, **settings) -> Wire:
    wire = Wire(size, edges, **settings)
    wire.settle()
    at_rest(wire)
    return wire


# ------------------------------------------------------------------------- 0, 1: start, quarantine


def test_the_genesis_agent_has_departed() -> None:
    """Rule 0: the first agent never starts; the others begin without it, at number 2 or later."""
    wire = Wire(3, COMPLETE, genesis=0, down=[0])
    wire.wait(60.0, until=lambda: any(s.token.last > NEVER for s in wire.disks))
    assert wire.token.stamp.epoch >= 2
    wire.wait(30.0)
    wire.vote([1, 2], 0)
    wire.wait(60.0)
    at_rest(wire, erased={0})


def test_nobody_but_the_genesis_opens_epoch_one() -> None:
    wire = Wire(3, COMPLETE, genesis=0, down=[0])
    wire.wait(60.0, until=lambda: any(s.token.last > NEVER for s in wire.disks))
    wire.start_agent(0)
    wire.wait(60.0)
    at_rest(wire)
    assert "genesis" not in wire.opened


def test_a_power_cut_heals() -> None:
    """Rule 1: everybody is in quarantine, and Hello is answered all the same."""
    wire = rested(4, RING)
    for k in range(4):
        wire.crash(k)
    wire.flight.clear()
    for k in range(4):
        wire.start_agent(k)
    assert not any(s.peers.synced for s in wire.disks)
    wire.settle()
    assert all(s.peers.synced for s in wire.disks)
    at_rest(wire)
    assert wire.opened == ["genesis"]


def test_quarantine_does_nothing_but_greet() -> None:
    wire = rested(3, COMPLETE)
    holder = wire.holder
    other = (holder + 1) % 3
    wire.crash(other)
    wire.start_agent(other)
    wire.drop(Hello)
    token = wire.token
    wire.tell(other, Received(holder, Pass(token._replace(stamp=token.stamp.next(9))), wire.now))
    assert isinstance(wire.disks[other].token.role, Idle)
    assert wire.disks[other].token.last < token.stamp.next(9)
    assert not wire.find(Ack, sender=other)


def test_a_late_hello_of_an_earlier_incarnation_does_not_hide_the_present_one() -> None:
    wire = rested(3, COMPLETE)
    other = (wire.holder + 1) % 3
    wire.crash(other)
    wire.start_agent(other)
    late = wire.find(Hello, sender=other)
    wire.crash(other)
    wire.flight.clear()
    wire.start_agent(other)
    wire.settle()
    for flight in late:
        wire.arrive(flight)
    wire.erase(wire.holder, rows=[3])
    holder = wire.holder
    wire.wait(10.0)
    at_rest(wire, {holder: {3}})


def test_late_messages_of_an_earlier_incarnation_are_no_acknowledgement() -> None:
    """A neighbour acknowledged an erasure and lost its disk. Its Hello and its acknowledgement from
    before arrive after the Hello of its new life: they must not count for it."""
    wire = rested(3, COMPLETE)
    holder = wire.holder
    other = (holder + 1) % 3
    wire.crash(other)
    wire.start_agent(other)
    (late_hello,) = wire.find(Hello, sender=other, to=holder)
    wire.settle()
    wire.erase(holder, rows=[3])
    wire.settle(until=lambda: bool(wire.find(Heard, sender=other, to=holder)))
    late_words = wire.find(Heard, sender=other, to=holder)
    wire.crash(other)
    wire.flight.clear()
    wire.start_agent(other, wire.blank(other))
    wire.deliver(Hello, sender=other, to=holder)
    wire.flight.clear()
    for late in (late_hello, *late_words):
        wire.arrive(late)
    assert other not in wire.disks[holder].peers.acked
    wire.wait(20.0)
    at_rest(wire, {holder: {3}})


def test_a_restored_agent_waits_for_one_answer_and_then_fences() -> None:
    wire = Wire(4, RING)
    wire.settle(until=lambda: isinstance(wire.disks[0].token.role, Out))
    backup = wire.disks[0]
    wire.settle()
    fence = wire.disks[0].token.fence
    wire.crash(0)
    wire.start_agent(0, backup)
    wire.wait(1.0, hold=lambda f: isinstance(f.message, Welcome))
    assert not wire.disks[0].peers.synced
    wire.drop(Welcome, sender=1)
    one = lambda f: f.to == 0 and f.sender == 1  # noqa: E731
    wire.wait(7.0, hold=one)  # one answer could be a lie
    assert wire.disks[0].peers.welcomed == {3}
    assert not wire.disks[0].peers.synced
    wire.wait(4.0, hold=one)
    assert wire.disks[0].peers.synced
    assert wire.disks[0].token.fence >= fence
    assert not isinstance(wire.disks[0].token.role, Out)  # its old token has been superseded
    wire.wait(60.0)
    at_rest(wire)


# --------------------------------------------------------------------- 2, 3, 4: stamps, tombstones


def test_stamps_are_compared_before_tombstones() -> None:
    """Rule 2: an outbox that was superseded is dropped; it is no reason for a rebuild."""
    wire = rested(3, COMPLETE)
    wire.erase(wire.holder, rows=[1])
    wire.settle(until=lambda: isinstance(wire.disks[wire.holder].token.role, Out))
    first = wire.holder
    taken_by = wire.disks[first].token.role.to
    # The next agent takes the token and erases too; its tombstone outruns its acknowledgement.
    wire.erase(taken_by, rows=[2])
    hold = lambda f: isinstance(f.message, Ack)  # noqa: E731
    wire.settle(
        hold=lambda f: f.to == first, until=lambda: isinstance(wire.disks[taken_by].token.role, Out)
    )
    assert isinstance(wire.disks[first].token.role, Out)
    assert wire.disks[taken_by].known.tombs[taken_by].ids
    wire.settle(hold=hold)
    assert wire.opened == ["genesis"]
    wire.settle()
    at_rest(wire, {first: {1}, taken_by: {2}})


def test_a_stamp_that_was_only_heard_of_does_not_refuse_the_token() -> None:
    """Rule 4: `fence` is exclusive; what was heard of may still come."""
    wire = Wire(3, COMPLETE)
    wire.settle(until=lambda: bool(wire.find(Pass)))
    (flight,) = wire.find(Pass)
    wire.tell(flight.to, Received(flight.sender, Alive(flight.message.token.stamp, 1.0), wire.now))
    wire.settle()
    at_rest(wire)


def test_duplicates_and_latecomers_are_acknowledged_and_ignored() -> None:
    wire = Wire(3, COMPLETE)
    seen: list[Flight] = []

    def remember(flight: Flight) -> bool:
        if isinstance(flight.message, Pass) and not any(flight is f for f in seen):
            seen.append(flight)
        return False

    wire.settle(hold=remember)
    before = list(wire.disks)
    assert len(seen) >= 4
    for flight in seen:
        wire.arrive(flight)
        assert wire.find(Ack, sender=flight.to, to=flight.sender)
    wire.settle()
    at_rest(wire)
    assert [s.token.last for s in wire.disks] == [s.token.last for s in before]
    assert wire.opened == ["genesis"]


def test_a_dead_token_that_is_not_stale_is_rebuilt_by_its_receiver() -> None:
    """Rules 4 and 15: whoever gets it answers for it."""
    wire = Wire(3, COMPLETE)
    wire.settle(until=lambda: wire.inside == {0, 1, 2} and bool(wire.find(Pass)))
    (flight,) = wire.find(Pass)
    to = flight.to
    included = next(k for k in range(3) if k != to)
    tombs = {included: Tomb(frozenset({b"t" * 16}))}
    state = wire.disks[to].fork()
    state.known.tombs, state.token.copy, state.known.gossip = (
        tombs,
        None,
        None,
    )  # as if gossip had been faster
    wire.disks[to] = state
    wire.checker.latest[to] = state
    wire.deliver(Pass)
    assert wire.opened == ["genesis", DEAD]
    assert isinstance(wire.disks[to].token.role, Hold)
    assert wire.token.inside == set()


# --------------------------------------------------------------------------------- 5: the visit


def test_a_revision_that_is_not_kept_is_rebuilt() -> None:
    wire = rested(3, COMPLETE)
    other = (wire.holder + 1) % 3
    wire.crash(other)
    wire.start_agent(other, wire.blank(other))
    wire.settle()
    at_rest(wire)
    assert wire.opened == ["genesis", "the token includes a revision that is no longer kept"]


def test_an_erasure_while_solving_discards_the_answer() -> None:
    """Rule 5: a solve that began before the rows were dropped counts for nothing."""
    wire = Wire(3, COMPLETE)
    wire.slow = {1}
    wire.settle()
    wire.erase(1, rows=[3])
    stale = [work for _, work in wire.waiting]
    wire.settle()
    (old,) = stale
    assert isinstance(old, Solve)
    wire.tell(1, Done(old.key, wire.workers[1].solve(old), wire.now))
    assert wire.disks[1].own.current is None
    wire.slow = set()
    while wire.waiting:
        wire.answer(1)
        wire.settle()
    at_rest(wire, {1: {3}})


def test_an_answer_that_nobody_asks_for_is_dropped() -> None:
    wire = rested(3, COMPLETE)
    holder = wire.holder
    wire.tell(holder, Done(("solve", 0, 0), SolveResult(np.array([7, 7])), wire.now))
    at_rest(wire)


def test_restless_cavities_end_as_not_converged() -> None:
    """After `max_passes` passes close enough is assumed, and the certificate says so."""

    def restless(wire: Wire) -> Wire:
        for worker in wire.workers:
            worker.solve = lambda work, w=worker: SolveResult(
                np.array([*w.factor(work.dropped), int(work.cavity[2]) % 97 + 3 + w.agent])
            )
        return wire

    wire = restless(Wire(3, COMPLETE, conjugate=False, max_passes=4))
    for worker in wire.workers:
        worker.judge = lambda work: True
    wire.settle()
    assert wire.resting
    assert not wire.token.round.converged
    wire.erase(0, rows=[1])
    wire.settle()
    assert wire.resting
    assert not wire.token.round.converged
    assert b'"converged":false' in _closing(wire)


def _closing(wire: Wire) -> bytes:
    import base64
    import json

    (*_, certificate) = wire.checker.certificates
    return base64.b64decode(json.loads(certificate)["closing"]["payload"])


def test_a_calm_network_says_converged() -> None:
    wire = rested(3, COMPLETE, conjugate=False)
    for worker in wire.workers:
        worker.judge = lambda work: True
    wire.erase(0, rows=[1])
    wire.settle()
    at_rest(wire, {0: {1}})
    assert b'"converged":true' in _closing(wire)
    assert b'"kind":"refined"' in _closing(wire)


def test_who_has_not_solved_for_this_cavity_does_not_attest() -> None:
    """Rule 6. On its way back to the root the token comes by a second time in the same pass, with
    another cavity: the agent does not solve again, so it cannot say that its factor stays."""
    wire = Wire(3, PATH, conjugate=False)
    unsolved = set()  # agents that had the token with a cavity that they have not solved for

    def look() -> bool:
        for k, s in enumerate(wire.disks):
            token = s.token.held
            if token is None or k not in token.inside:
                continue
            cavity = token.eta - s.own.factor(token.included[k]).units
            if s.own.solved_for != digest(cavity):
                unsolved.add(k)
                assert k not in token.round.agents, f"{k} attests without having solved"
        return False

    wire.settle(until=look)
    assert unsolved >= {0, 1}  # 2 is the end of the way, and is visited once per pass
    at_rest(wire)


def test_a_network_without_one_agent_is_idle_until_it_comes() -> None:
    """Nobody signs an incomplete token of a cavity-dependent model, so nobody wakes it either."""
    wire = rested(4, RING, conjugate=False)
    down = (wire.holder + 1) % 4
    wire.crash(down)
    wire.start_agent(down, wire.blank(down))
    wire.crash(down)
    wire.erase((down + 2) % 4, whole=True)  # makes the others cover the ring without it
    for k in range(4):
        if k not in (down, (down + 2) % 4):
            wire.change_data(k)
    wire.wait(60.0)
    hop = wire.token.stamp
    wire.wait(60.0)
    assert wire.token.stamp == hop
    wire.start_agent(down)
    wire.wait(120.0)
    at_rest(wire, erased={(down + 2) % 4})
    assert wire.token.round.converged


def test_somebody_outside_the_domain_ends_as_not_converged() -> None:
    """A solver that never finds the domain cannot keep the network awake for ever: its agent says
    nothing, and the others do not wait for it."""
    wire = Wire(3, COMPLETE, conjugate=False, max_passes=4)
    wire.workers[1].solve = lambda work: SolveResult(None)
    wire.settle()
    assert wire.resting
    assert wire.token.round.agents == {0, 1, 2}
    assert not wire.token.round.converged
    assert wire.inside == {0, 1, 2}
    assert not wire.disks[1].own.current.units.any()


@pytest.mark.parametrize("conjugate", [True, False])
def test_all_rows_erased_is_no_obstacle(conjugate: bool) -> None:
    wire = rested(3, COMPLETE, conjugate=conjugate)
    for worker in wire.workers:
        worker.judge = lambda work: True
    wire.erase(1, rows=range(ROWS))
    wire.settle()
    at_rest(wire, {1: set(range(ROWS))})
    assert wire.token.round.converged
    wire.change_data(2)
    wire.settle()
    at_rest(wire, {1: set(range(ROWS))})
    assert wire.token.round.converged


# ------------------------------------------------------------------------- 6: audit, certificates


def test_a_faulty_disk_makes_an_agent_solve_again_instead_of_lying() -> None:
    """The factor on the disk is no longer the one in the token: its step would be wrong."""
    wire = rested(3, COMPLETE)
    faulty = (wire.holder + 1) % 3
    state = wire.disks[faulty].fork()
    first, *rest = state.own.factors
    state.own.factors = (first._replace(units=first.units + 1), *rest)
    wire.disks[faulty] = wire.checker.latest[faulty] = state
    wire.change_data(faulty)
    wire.settle()
    wire.wait(60.0)
    at_rest(wire)
    assert wire.opened[-1] == "this agent's own step was wrong"
    assert not any(s.known.mismatches or s.known.proofs for s in wire.disks)


def test_two_mismatches_of_two_agents_stop_the_network() -> None:
    wire = rested(3, COMPLETE, liar=0)
    found = frozenset(Liar(wire, k).mismatch(1) for k in (0, 1))
    news = News({}, found, {}, NEVER)
    wire.checker.after = lambda *args: None  # an honest network has no audit failure
    for k in range(3):
        share = Share(NEVER, Gossip(Digests(*[b""] * 5), news=news))
        wire.tell(k, Received((k + 1) % 3, share, wire.now))
    wire.settle()
    assert all(s.audit_failed for s in wire.disks)
    assert all(isinstance(s.token.role, Idle) for s in wire.disks)
    wire.wait(60.0)
    assert all(isinstance(s.token.role, Idle) for s in wire.disks)
    wire.crash(0)
    wire.start_agent(0)
    wire.wait(60.0)
    assert wire.disks[0].audit_failed
    assert isinstance(wire.disks[0].token.role, Idle)


def test_no_certificate_while_a_neighbour_has_not_acknowledged() -> None:
    """An agent that attested is restored, and a neighbour that has not heard of the erasure tells
    it that all is well: without its acknowledgement the cover would close over its head."""
    wire = rested(4, RING, timeouts=replace(TIMEOUTS, welcome=0.5))
    owner = wire.holder
    backups = list(wire.disks)
    wire.erase(owner, rows=[5])
    wire.settle(until=lambda: bool(wire.find(Pass)))
    after = wire.disks[owner].token.role.to
    last = next(n for n in wire.terms.topology.adjacency[owner] if n != after)
    restored = next(k for k in range(4) if k not in (owner, after, last))
    hold = lambda f: f.to == last or (isinstance(f.message, Share))  # noqa: E731
    wire.settle(hold=hold, until=lambda: bool(wire.find(Pass, to=last)))
    wire.crash(restored)
    wire.start_agent(restored, backups[restored])
    wire.deliver(Hello, sender=restored, to=last)
    wire.deliver(Welcome, sender=last, to=restored)
    wire.drop(Hello, sender=restored)
    wire.wait(2.5, hold=lambda f: True)  # one answer is enough then
    assert wire.disks[restored].peers.synced
    assert owner not in wire.disks[restored].known.tombs
    wire.settle(hold=lambda f: f.to == restored)  # must not certify: the checker looks
    wire.wait(60.0)
    at_rest(wire, {owner: {5}})


def test_no_certificate_while_the_owner_keeps_the_erased_factor() -> None:
    """Until its token is acknowledged, the owner shows the factor that it took out (rule 18)."""
    wire = rested(4, RING)
    owner = wire.holder
    wire.erase(owner, rows=[5])
    wire.wait(3.5, hold=lambda f: f.sender == owner and isinstance(f.message, Pass))
    wire.drop(Pass, sender=owner)
    assert "does not answer" in wire.opened[-1]  # the next token has the same origin
    # The others go on while the acknowledgement is under way: the checker looks.
    wire.wait(2.5, hold=lambda f: f.to == owner and isinstance(f.message, Ack))
    wire.wait(60.0)
    at_rest(wire, {owner: {5}})
    assert wire.checker.certificates


def test_a_certificate_waits_for_an_agent_that_is_down() -> None:
    wire = rested(3, COMPLETE)
    down = (wire.holder + 1) % 3
    owner = (wire.holder + 2) % 3
    wire.crash(down)
    wire.erase(owner, rows=[5])
    wire.wait(60.0)
    assert not wire.checker.certificates
    wire.start_agent(down)
    wire.wait(60.0)
    at_rest(wire, {owner: {5}})
    assert wire.checker.certificates


def test_an_agent_that_erased_itself_still_attests() -> None:
    wire = rested(3, PATH)
    wire.erase(1, whole=True)
    wire.settle()
    at_rest(wire, erased={1})
    assert 1 in wire.token.round.agents
    assert wire.opened == ["genesis"]


# -------------------------------------------------------------------------------- 7, 8, 9: routing


@pytest.mark.parametrize("forget", ["seek", "walk"])
@pytest.mark.parametrize("schedule", ["sweep", "metropolis"])
def test_an_erasure_costs_no_epoch(forget: str, schedule: str) -> None:
    """Rule 12: the tombstone is written by the removal visit, so the live token survives it."""
    wire = rested(5, [(0, 1), (1, 2), (2, 3), (3, 4)], forget=forget, schedule=schedule)
    far = 0 if wire.holder > 2 else 4
    distance = int(wire.terms.topology.distances(wire.holder)[far])
    start, visited = wire.token.stamp.hop, wire.holder
    wire.erase(far, rows=[0])
    wire.settle(until=lambda: bool(wire.disks[far].known.tombs))
    hops = wire.token.stamp.hop - start
    assert visited != far
    if forget == "seek":
        assert hops <= distance + 2  # awake, along the shortest path, and away again
    wire.settle()
    at_rest(wire, {far: {0}})
    assert wire.opened == ["genesis"]


def test_a_target_that_is_down_is_sought_once_on_a_sweep() -> None:
    _a_target_that_is_down_is_sought_once("sweep")


def test_a_target_that_is_down_is_sought_once_on_a_walk() -> None:
    _a_target_that_is_down_is_sought_once("metropolis")


def _a_target_that_is_down_is_sought_once(schedule: str) -> None:
    """Rule 7: the token is not sent back and forth for ever, and the others are served."""
    wire = rested(4, RING, schedule=schedule)
    down = (wire.holder + 1) % 4
    wire.erase(down, rows=[2])
    wire.deliver(Share, sender=down)
    wire.settle(until=lambda: all(s.known.intents for s in wire.disks))
    wire.crash(down)
    wire.wait(60.0)
    hop = wire.token.stamp
    wire.wait(60.0)
    assert wire.token.stamp == hop
    other = (down + 2) % 4
    wire.change_data(other)
    wire.wait(60.0)
    assert wire.token.included[other] == wire.disks[other].own.current.revision
    wire.start_agent(down)
    wire.wait(60.0)
    at_rest(wire, {down: {2}})


def test_a_parent_that_left_ends_the_pass() -> None:
    """Rule 7: on the way back the stack's top has left; this agent is the root then."""
    wire = rested(4, [(0, 1), (1, 2), (0, 2), (2, 3)], genesis=0)
    wire.erase(0, whole=True)
    wire.settle()
    wire.crash(0)
    wire.flight.clear()
    # Make the token go through 0's bitmap by hand: it stands at 1, came from 0, all are seen.
    holder = wire.holder
    if holder == 0:
        wire.start_agent(0)
        wire.settle()
        wire.crash(0)
    state = wire.disks[1].fork()
    token = wire.token._replace(
        stamp=Stamp(9, 1, 1, 1, 1), stack=Stack.of([0]), seen=wire.terms.everybody, busy=True
    )
    state.known.tombs = {**state.known.tombs, 0: Tomb(state.known.tombs[0].ids, True, True)}
    state.token.role, state.token.last, state.token.fence = Hold(token), token.stamp, token.stamp
    given = Liar(wire, 0).signed(token, TokenStep(None, OUT))
    state.token.origin = received_from(given.header, token, 1)
    state.known.gossip = None
    wire.disks[1] = state
    wire.checker.latest[1] = state
    wire.checker.excused = wire.checker.newest = token.stamp
    wire.tell(1, Continue(wire.now))
    assert not wire.find(Pass, to=0)


def test_the_direct_way_to_the_root_waits_for_a_suspect() -> None:
    """Rule 7: another agent may reach it, so the pass goes back depth first."""
    assert _sent_without_3(left=False) == (1, [0], {0, 1, 2})


def test_the_direct_way_to_the_root_does_not_wait_for_one_that_left() -> None:
    assert _sent_without_3(left=True) == (0, [], set())


def _sent_without_3(left: bool) -> tuple[int, list[int], set[int]]:
    """All are neighbours, 0 is the root, and 2 has the token from 1; 3 was not visited, and 2
    suspects it or knows that it left: to whom the token goes, with which stack and bitmap."""
    wire = rested(4, [(j, k) for k in range(4) for j in range(k)], genesis=0)
    wire.erase(3, whole=True)
    wire.settle()
    wire.crash(3)
    wire.flight.clear()
    state = wire.disks[2].fork()
    token = wire.token._replace(
        stamp=Stamp(9, 2, 1, 1, 1),
        stack=Stack.of((0, 1)),
        seen=Bitmap((0, 1)),
        busy=True,
        round=NO_ROUND,
    )
    state.peers.suspects = frozenset({3})
    if left:
        state.known.tombs = {**state.known.tombs, 3: Tomb(state.known.tombs[3].ids, True, True)}
    state.token.role, state.token.last, state.token.fence = Hold(token), token.stamp, token.stamp
    state.known.gossip = None
    wire.disks[2] = state
    wire.checker.latest[2] = state
    wire.checker.excused = wire.checker.newest = token.stamp
    wire.tell(2, Continue(wire.now))
    (flight,) = wire.find(Pass, sender=2)
    sent = flight.message.token
    return flight.to, list(sent.stack), set(sent.seen)


def test_the_same_token_goes_to_the_same_neighbour_again() -> None:
    """Rule 8."""
    wire = Wire(3, PATH, genesis=0)
    wire.settle(until=lambda: bool(wire.find(Pass)))
    (flight,) = wire.find(Pass)
    wire.drop(Pass)
    wire.now += 1.0
    wire.tell(0, Tick(wire.now))
    (again,) = wire.find(Pass)
    assert again == flight
    wire.settle()
    at_rest(wire)
    assert wire.opened == ["genesis"]


def test_after_the_timeout_the_token_goes_elsewhere_in_a_new_epoch() -> None:
    """Rule 9: and the neighbour that got the old token after all is outranked."""
    wire = Wire(3, COMPLETE, genesis=0)
    wire.settle(until=lambda: bool(wire.find(Pass)))
    (late,) = wire.find(Pass)
    wire.drop(Pass)
    wire.wait(10.0, hold=lambda f: f.to == late.to or f.sender == late.to)
    assert any("does not answer" in why for why in wire.opened)
    wire.arrive(late)
    wire.wait(60.0)
    at_rest(wire)


def test_without_an_alternative_the_token_is_sent_again() -> None:
    wire = Wire(3, PATH, genesis=0)
    wire.settle(until=lambda: bool(wire.find(Pass)))
    wire.crash(1)
    wire.wait(40.0)
    assert isinstance(wire.disks[0].token.role, Out)
    assert not any("does not answer" in why for why in wire.opened)
    wire.start_agent(1)
    wire.wait(60.0)
    at_rest(wire)


def test_a_slow_solver_costs_no_epoch() -> None:
    """Rule 9: timeouts measures missing acknowledgements, not work."""
    wire = Wire(3, COMPLETE)
    wire.slow = {0, 1, 2}
    for _ in range(20):
        wire.wait(30.0)
        if not wire.waiting:
            break
        wire.answer(wire.waiting[0][0])
    wire.settle()
    at_rest(wire)
    assert wire.opened == ["genesis"]


# ------------------------------------------------------------------------- 10, 11: loss, rest, wake


def test_a_lost_token_is_found_missing() -> None:
    """Rule 10: the holder and its disk are gone for a while."""
    wire = Wire(4, RING)
    wire.settle(until=lambda: wire.inside == {0, 1, 2} or wire.inside == {1, 2, 3})
    holder = wire.holder
    wire.crash(holder)
    wire.flight.clear()
    wire.wait(40.0)
    assert any(why in (SILENCE, f"a{holder + 1} does not answer") for why in wire.opened)
    wire.start_agent(holder, wire.blank(holder))
    wire.wait(60.0)
    at_rest(wire)


def test_a_parked_token_does_not_hide_the_loss_of_its_holder() -> None:
    """Rules 10 and 11: the holder was restored and does not know that the token rests with it."""
    wire = Wire(3, COMPLETE)
    wire.settle(until=lambda: wire.inside == {0, 1, 2} and len(wire.token.round.agents) == 2)
    backups = list(wire.disks)
    wire.settle()
    holder = wire.holder
    assert isinstance(wire.disks[holder].token.role, Parked)
    wire.crash(holder)
    wire.start_agent(holder, backups[holder])
    wire.wait(120.0)
    at_rest(wire)


def test_a_parked_token_does_not_hide_the_loss_of_a_departed_holder() -> None:
    wire = rested(3, COMPLETE)
    holder = wire.holder
    wire.crash(holder)
    wire.wait(30.0)
    assert wire.opened == ["genesis"]  # silence is as it should be
    wire.vote([k for k in range(3) if k != holder], holder)
    wire.wait(60.0)
    at_rest(wire, erased={holder})


def test_a_wake_is_a_level_not_an_edge() -> None:
    """Rule 11: data change at an agent that does not know yet that the token rests."""
    wire = Wire(3, PATH)
    wire.settle(hold=lambda f: isinstance(f.message, Share))
    assert wire.resting
    far = next(k for k in range(3) if wire.disks[k].token.parked is None)
    wire.drop(Share)
    wire.change_data(far)
    wire.wait(5.0)
    at_rest(wire)
    assert wire.opened == ["genesis"]


def test_a_wake_starts_a_pass() -> None:
    wire = rested(3, PATH)
    wire.change_data(wire.holder)
    assert isinstance(wire.disks[wire.holder].token.role, Hold)
    assert not wire.token.seen
    assert not wire.token.stack
    assert not wire.token.round.agents
    wire.settle()
    at_rest(wire)


def test_a_flood_survives_the_crash_of_a_relay() -> None:
    """The relay dies between the commit and its messages; what it knows is spread all the same."""
    wire = rested(3, PATH)
    if wire.holder == 1:
        wire.change_data(0)
        wire.settle()
    far = 2 - wire.holder if wire.holder != 1 else 2
    relay = 1
    wire.erase(far, rows=[4])
    wire.deliver(Share, sender=far, to=relay, effects=0)
    wire.drop(Share)
    wire.start_agent(relay)
    wire.wait(6.0)
    at_rest(wire, {far: {4}})
    assert wire.opened == ["genesis"]


def test_what_is_lost_is_repeated() -> None:
    """Gossip is sent until it is acknowledged."""
    wire = rested(3, PATH)
    assert wire.holder == 0  # the request comes from the other end
    wire.erase(2, rows=[4])
    for _ in range(4):
        wire.drop(Share)
        wire.wait(1.0, hold=lambda f: isinstance(f.message, Share))
    wire.wait(6.0)
    at_rest(wire, {2: {4}})
    assert wire.opened == ["genesis"]


def test_a_restored_backup_drops_rows_of_compacted_erasures() -> None:
    """Nobody has the owner's tombstone any longer; the chapter names the rows."""
    wire = rested(4, RING, compact_after=1)
    backup = wire.disks[1]
    asked = wire.erase(1, rows=[2])
    wire.settle()
    assert not any(s.known.tombstones for s in wire.disks)
    wire.crash(1)
    wire.start_agent(1, backup)
    wire.wait(20.0)
    assert row_key(2) in wire.disks[1].own.dropped
    assert wire.disks[1].tomb.compacted == {asked}
    at_rest(wire, {1: {2}})


def test_who_cannot_hear_an_agent_does_not_vote_first() -> None:
    """Rule 13: on a ring of five two agents are no neighbours of the third; they would vote out
    anybody, alive or not. They second a vote of a neighbour, or vote when no neighbour is left."""
    ring = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]
    wire = rested(5, ring)
    wire.wait(60.0)
    for k in (3, 4):
        wire.tell(k, VoteCast(1, request_id(1, b"v" * 12), wire.now))
    assert not any(s.known.votes for s in wire.disks)
    assert "no neighbour of a2 and cannot hear it" in wire.refused[-1]
    wire.crash(1)
    wire.wait(60.0)
    wire.vote([0, 2, 3], 1)
    wire.settle()
    assert all(wire.disks[k].departed == {1} for k in (0, 2, 3, 4))
    # Now 3 and 4 are no neighbours of 1; everybody else of a chain may go, one after the other.
    wire.crash(2)
    wire.wait(60.0)
    wire.vote([3, 4, 0], 2)
    wire.settle()
    assert all(wire.disks[k].departed == {1, 2} for k in (0, 3, 4))


def test_an_outbox_that_a_quorum_kills_is_rebuilt() -> None:
    """Rule 15: the token was sent and is not acknowledged when an agent in it is declared departed.
    Its sender is responsible for it: it opens the rebuild, and no agent waits for a lost token."""
    timeouts = Timeouts(welcome=2.0, resend=0.5, ack=1e6, alive=1.0, loss=3.0)
    wire = Wire(4, RING, timeouts=timeouts)
    wire.settle(until=lambda: wire.inside == {0, 1, 2, 3} and bool(wire.find(Pass)))
    flight = wire.find(Pass)[0]
    gone = next(k for k in range(4) if k not in (flight.sender, flight.to))
    wire.crash(gone)
    wire.wait(5.0, hold=lambda f: isinstance(f.message, Pass))
    assert isinstance(wire.disks[flight.sender].token.role, Out)
    wire.drop(Pass)
    wire.vote([k for k in range(4) if k != gone], gone)
    wire.settle()
    assert wire.opened == ["genesis", DEAD]
    wire.wait(5.0)
    at_rest(wire, erased={gone})


class Outside(Tally):
    """Whatever is there is outside its domain."""

    def solve(self, work: Solve) -> SolveResult:
        return SolveResult(None)


@pytest.mark.parametrize("schedule", ["sweep", "metropolis"])
def test_agents_outside_the_domain_do_not_hold_up_a_certificate(schedule: str) -> None:
    """Two agents cannot be solved for while the other is not in: no pass will change that, so they
    say nothing, and the certificate says that it has not converged."""
    wire = Wire(4, RING, conjugate=False, schedule=schedule, max_passes=5)
    wire.workers[1], wire.workers[2] = Outside(1, False), Outside(2, False)
    wire.wait(30.0)
    assert wire.resting
    assert wire.inside == {0, 1, 2, 3}
    assert not any(wire.disks[k].own.current.units.any() for k in (1, 2))
    asked = wire.erase(0, rows=[3])
    wire.wait(60.0)
    assert wire.resting
    assert asked in wire.checker.certified
    assert not wire.token.round.converged
    stamp = wire.token.stamp
    wire.wait(300.0)
    assert wire.token.stamp == stamp
    # One who can be solved for again takes part again.
    wire.workers[2] = Tally(2, False)
    wire.change_data(2)
    wire.wait(60.0)
    assert wire.resting
    assert wire.disks[2].own.current.units.any()


def test_a_vote_that_can_never_succeed_is_refused() -> None:
    """A majority is one of the manifest: of two agents, both."""
    wire = rested(2, [(0, 1)])
    wire.crash(1)
    wire.wait(30.0)
    wire.vote([0], 1)
    assert any("2 of 2 agents must vote, and 1 other can" in why for why in wire.refused)
    assert not wire.disks[0].known.votes


def test_votes_count_though_their_voters_have_left() -> None:
    wire = rested(5, [(a, b) for a in range(5) for b in range(a)])
    wire.crash(2)
    wire.wait(40.0)
    wire.vote([4], 2)
    wire.settle()
    wire.start_agent(2)
    wire.wait(40.0)
    for gone in (3, 4):
        wire.crash(gone)
        wire.wait(60.0)
        wire.vote([0, 1, 2], gone)
        wire.wait(30.0)
    wire.crash(2)
    wire.wait(60.0)
    wire.vote([0, 1], 2)  # two that are left, and one that was cast: three of five
    wire.wait(30.0)
    assert wire.disks[0].departed == {2, 3, 4}


def test_who_has_just_started_votes_nobody_out() -> None:
    """It has heard nobody yet, the living no more than the dead."""
    wire = rested(3, COMPLETE)
    for k in range(3):
        wire.crash(k)
    for k in (0, 1):
        wire.start_agent(k)
        wire.tell(k, VoteCast(2, request_id(2, b"v" * 12), wire.now))
    assert len([why for why in wire.refused if "is in quarantine" in why]) == 2
    wire.start_agent(2)
    wire.settle()
    at_rest(wire)


def test_when_somebody_has_left_passes_are_counted_anew() -> None:
    """While it was missing the last pass came and went: the others must be allowed to solve."""
    wire = rested(4, RING, conjugate=False)
    token = wire.token._replace(passes=wire.terms.max_passes)
    s = wire.disks[0].fork()
    assert merge_tombs(s, token) is token
    s.known.tombs = {2: Tomb(frozenset({request_id(2, b"r" * 12)}), departed=True)}
    after = merge_tombs(s, token)
    assert after.tombs == s.known.tombs
    assert (after.passes, after.busy, after.round) == (0, True, NO_ROUND)


def test_a_holder_that_was_woken_sends_heartbeats() -> None:
    """Rule 10: its solver takes long, and nobody may think that the token is lost."""
    wire = rested(3, COMPLETE)
    holder = wire.holder
    wire.wait(60.0)  # until all is silent
    wire.slow = {holder}
    wire.change_data(holder)
    wire.wait(120.0)
    assert wire.opened == ["genesis"]
    wire.answer(holder)
    wire.settle()
    at_rest(wire)


def test_an_idle_network_is_idle() -> None:
    wire = rested(3, COMPLETE)
    wire.wait(5.0)
    wire.wait(300.0)
    assert not wire.flight
    assert wire.opened == ["genesis"]
    hop = wire.token.stamp
    wire.wait(300.0)
    assert wire.token.stamp == hop


# ------------------------------------------------------------------------------ 12: erase requests


def test_repeated_and_concurrent_requests() -> None:
    wire = rested(4, RING)
    request = wire.erase(1, rows=[1])
    wire.erase(1, rows=[1], request=request)  # again
    wire.erase(1, rows=[1, 2])  # another request for the same row
    wire.erase(3, rows=[0])
    wire.erase(2, whole=True)
    wire.settle()
    at_rest(wire, {1: {1, 2}, 3: {0}}, erased={2})
    assert wire.opened == ["genesis"]
    wire.erase(1, rows=[1], request=request)  # long done
    assert not wire.disks[1].known.intents
    wire.settle()
    at_rest(wire, {1: {1, 2}, 3: {0}}, erased={2})


def test_an_erasure_while_the_token_is_in_flight() -> None:
    wire = Wire(3, COMPLETE)
    wire.settle(until=lambda: wire.inside == {0, 1, 2} and bool(wire.find(Pass)))
    (flight,) = wire.find(Pass)
    wire.erase(flight.sender, rows=[1])
    wire.erase(flight.to, rows=[2])
    wire.settle()
    at_rest(wire, {flight.sender: {1}, flight.to: {2}})
    assert wire.opened == ["genesis"]


def test_an_erasure_while_the_token_is_lost() -> None:
    wire = Wire(3, COMPLETE)
    wire.settle(until=lambda: wire.inside == {0, 1, 2})
    holder = wire.holder
    wire.crash(holder)
    wire.flight.clear()
    owner = (holder + 1) % 3
    wire.erase(owner, rows=[1])
    wire.wait(40.0)
    wire.start_agent(holder, wire.blank(holder))
    wire.wait(60.0)
    at_rest(wire, {owner: {1}})


def test_an_erasure_while_the_token_is_being_rebuilt() -> None:
    wire = rested(3, COMPLETE)
    other = (wire.holder + 1) % 3
    wire.crash(other)
    wire.start_agent(other, wire.blank(other))
    wire.settle(until=lambda: len(wire.opened) == 2)
    for k in range(3):
        wire.erase(k, rows=[k])
    wire.settle()
    at_rest(wire, {k: {k} for k in range(3)})


def test_a_restored_backup_whose_outbox_holds_an_erased_factor() -> None:
    """The token in the old outbox is dead; so are the rows and factors that came back."""
    wire = Wire(3, COMPLETE)
    wire.settle(until=lambda: isinstance(wire.disks[0].token.role, Out) and 0 in wire.token.inside)
    backup = wire.disks[0]
    assert contains(0, backup.own.factors[0].units, frozenset({row_key(6)}))
    wire.settle()
    wire.erase(0, rows=[6])
    wire.settle()
    at_rest(wire, {0: {6}})
    wire.crash(0)
    wire.start_agent(0, backup)
    wire.wait(60.0)
    at_rest(wire, {0: {6}})
    assert not any(contains(0, f.units, frozenset({row_key(6)})) for f in wire.disks[0].own.factors)


def test_an_erasure_after_the_owner_has_left_is_refused() -> None:
    wire = rested(3, COMPLETE)
    gone = (wire.holder + 1) % 3
    wire.crash(gone)
    wire.wait(30.0)
    wire.vote([k for k in range(3) if k != gone], gone)
    wire.wait(30.0)
    wire.start_agent(gone)
    wire.wait(10.0)
    wire.erase(gone, rows=[1])
    assert "declared departed" in wire.refused[-1]
    assert wire.disks[gone].own.current is not None  # others' votes never delete its own data


# -------------------------------------------------------------------------------------- 13: quorum


def test_voters_refuse_while_they_hear_the_target() -> None:
    wire = rested(3, COMPLETE)
    wire.change_data(1)
    wire.settle()
    wire.vote([0, 2], 1)
    assert len(wire.refused) == 2
    assert "it has not departed" in wire.refused[0]
    assert not any(s.known.votes for s in wire.disks)
    wire.vote([1], 1)
    assert "vote on itself" in wire.refused[-1]


def test_a_quorum_is_a_majority_of_the_original_manifest() -> None:
    wire = rested(5, [(k, j) for k in range(5) for j in range(k)])
    wire.crash(4)
    wire.wait(30.0)
    wire.vote([0, 1], 4)
    wire.wait(10.0)
    assert not any(s.departed for s in wire.disks)
    wire.vote([2], 4)
    wire.wait(60.0)
    at_rest(wire, erased={4})
    assert b'"not_attested":["a5"]' in _closing(wire)
    wire.crash(3)
    wire.wait(30.0)
    wire.vote([0, 1], 3)  # two of the three that remain, of five: not enough
    wire.wait(30.0)
    assert 3 not in wire.disks[0].departed


def test_one_that_left_and_comes_back_stays_out() -> None:
    wire = rested(4, RING)
    wire.crash(2)
    wire.wait(30.0)
    wire.vote([0, 1, 3], 2)
    wire.wait(60.0)
    at_rest(wire, erased={2})
    wire.start_agent(2)
    wire.wait(60.0)
    assert isinstance(wire.disks[2].token.role, Idle)
    at_rest(wire, erased={2})


def voted_out(gone: int, *, parked: bool) -> tuple[Wire, list[str]]:
    """Four agents, one of them stopped while the others forget a record and vote it out; the
    process goes on now. Returns why epochs were opened until then, too."""
    for genesis in range(4):
        wire = rested(4, RING, genesis=genesis)
        if (wire.holder == gone) is parked:
            break
    wire.wait(5.0)  # until nobody has anything left to say
    wire.up[gone] = False  # stopped: what it knows stays in its memory
    wire.erase((gone + 2) % 4, rows=[0])
    wire.wait(30.0)
    wire.vote([k for k in range(4) if k != gone], gone)
    wire.wait(60.0)
    at_rest(wire, without={(gone + 2) % 4: {0}}, erased={gone})
    assert wire.checker.certified
    wire.up[gone] = True
    assert not wire.disks[gone].tomb.departed
    return wire, list(wire.opened)


def test_who_was_voted_out_while_it_was_stopped_is_told() -> None:
    """Rule 13: its first word is answered with the votes; its epoch reaches nobody."""
    wire, opened = voted_out(2, parked=False)
    fences = [s.token.fence for s in wire.disks]
    wire.wait(120.0)
    departed = wire.disks[2]
    assert departed.tomb.departed
    assert isinstance(departed.token.role, Idle)
    assert departed.token.copy is None
    assert len(wire.opened) <= len(opened) + 1  # its own, before it was told
    assert [s.token.fence for k, s in enumerate(wire.disks) if k != 2] == fences[:2] + fences[3:]
    at_rest(wire, without={0: {0}}, erased={2})


def test_a_silent_agent_that_was_voted_out_is_told() -> None:
    """Rule 13: where the token rested, nobody speaks; the votes come unasked."""
    wire, opened = voted_out(2, parked=True)
    assert isinstance(wire.disks[2].token.role, Parked)
    wire.wait(2 * wire.terms.timeouts.loss)
    assert wire.disks[2].tomb.departed
    assert isinstance(wire.disks[2].token.role, Idle)
    assert wire.disks[2].token.copy is None
    assert wire.opened == opened


def test_nothing_that_a_departed_agent_says_is_believed() -> None:
    """Rule 13: and it is answered at most once per `resend`, except for its Hello."""
    wire, _ = voted_out(2, parked=False)
    wire.flight.clear()
    late = Stamp(50, 2, 7, 1, 7)
    token = wire.token._replace(stamp=late, round=NO_ROUND)
    gossip = wire.disks[2].known.gossip
    assert gossip is not None
    before = wire.disks[1]
    for message in (Pass(token), Alive(late, wire.now), Ack(late, late), Share(late, gossip)):
        for _ in range(3):
            wire.arrive(Flight(2, 1, message))
    after = wire.disks[1]
    assert (after.token.fence, after.token.last, after.token.role) == (
        before.token.fence,
        before.token.last,
        before.token.role,
    )
    assert (after.token.parked, after.token.wake, after.token.heartbeat) == (
        before.token.parked,
        before.token.wake,
        before.token.heartbeat,
    )
    assert [type(flight.message) for flight in wire.find(to=2)] == [Share]
    wire.arrive(Flight(2, 1, Hello(late, gossip)))
    assert wire.find(Welcome, to=2)
    assert wire.disks[1].token.fence == before.token.fence


def test_a_departed_agent_keeps_no_sum() -> None:
    """Rule 13: it is not told of later erasures, so it could serve what is erased. It had erased
    itself before, so that no tombstone forbids its copy."""
    wire = rested(4, RING)
    wire.erase(2, whole=True)
    wire.settle()
    wire.wait(30.0)
    wire.up[2] = False
    wire.wait(30.0)
    wire.vote([0, 1, 3], 2)
    wire.wait(60.0)
    wire.up[2] = True
    assert wire.disks[2].token.copy is not None
    wire.wait(4 * wire.terms.timeouts.loss)
    assert wire.disks[2].tomb.departed
    assert wire.disks[2].token.copy is None


def test_an_agent_that_knows_that_it_left_falls_silent() -> None:
    wire, _ = voted_out(2, parked=False)
    wire.wait(30.0)
    assert wire.disks[2].tomb.departed
    wire.vote([2], 0)
    assert "its vote does not count" in wire.refused[-1]
    said = []
    wire.wait(60.0, hold=lambda flight: flight.sender == 2 and bool(said.append(flight)))
    assert not said
    assert not wire.find(to=2)  # nor do the others go on telling it


# ----------------------------------------------------------------------------------- 14b: retrain


def test_a_retraining_starts_everybody_from_zero() -> None:
    wire = rested(3, COMPLETE, conjugate=False)
    for worker in wire.workers:
        worker.judge = lambda work: False
    before = {k: wire.disks[k].own.current.revision for k in range(3)}
    request = wire.erase(1, rows=[2])
    wire.settle()
    at_rest(wire, {1: {2}})
    assert wire.opened == ["genesis", ZERO]
    assert all(wire.disks[k].own.current.revision != before[k] for k in range(3))
    assert all(f.retrain_epoch == {request} for s in wire.disks for f in s.own.factors)
    assert b'"kind":"retrained"' in _closing(wire)


def test_a_retraining_survives_the_loss_of_its_token() -> None:
    """The generation is gossiped: whoever opens the next epoch starts from zero too."""
    wire = rested(4, RING, conjugate=False)
    for worker in wire.workers:
        worker.judge = lambda work: False
    owner = wire.holder
    request = wire.erase(owner, rows=[2])
    wire.settle(until=lambda: wire.opened[-1] == ZERO)
    wire.settle(hold=lambda f: isinstance(f.message, Pass), until=lambda: not wire.flight)
    wire.crash(owner)
    wire.flight.clear()
    wire.wait(60.0)
    hop = wire.token.stamp
    wire.wait(30.0)
    assert wire.token.stamp == hop  # incomplete without its owner: nobody can sign it, so it rests
    assert hop.hop < 60
    wire.start_agent(owner, wire.blank(owner))
    wire.wait(120.0)
    at_rest(wire, {owner: {2}})
    assert all(f.retrain_epoch == {request} for s in wire.disks for f in s.own.factors)


def test_a_restored_owner_decides_anew() -> None:
    """The removal visit was lost with the disk: the request comes back by gossip, and is judged
    again."""
    wire = rested(3, COMPLETE, conjugate=False)
    for worker in wire.workers:
        worker.judge = lambda work: False
    owner = (wire.holder + 1) % 3
    wire.erase(owner, rows=[2])
    wire.settle(
        until=lambda: (
            not wire.find(Share, sender=owner) and all(s.known.intents for s in wire.disks)
        )
    )
    backup = wire.disks[owner]
    wire.settle(until=lambda: ZERO in wire.opened)
    wire.flight.clear()
    wire.crash(owner)
    for worker in wire.workers:
        worker.judge = lambda work: True
    wire.start_agent(owner, backup)
    wire.wait(60.0)
    at_rest(wire, {owner: {2}})
    assert all(f.retrain_epoch == frozenset() for s in wire.disks for f in s.own.factors)
    assert b'"kind":"refined"' in _closing(wire)
