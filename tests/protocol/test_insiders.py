"""One agent with a valid key lies: the others go on, refuse, prove and expel (rules 17 to 19)."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.liar import Liar
from tests.support.tally import run_faults, tally_terms
from tests.support.wire import Wire

from unweave.graph import graphs
from unweave.grid import Ints
from unweave.persistent import Bitmap
from unweave.protocol.events import (
    DataChanged,
    LieProved,
    Received,
    Refused,
    Send,
    Tick,
    VoteCast,
)
from unweave.protocol.machine import handle
from unweave.protocol.membership import automatic_votes
from unweave.protocol.messages import Alive, Digests, Erasures, Gossip, News, Pass, Share
from unweave.protocol.openings import join_openings
from unweave.protocol.state import State
from unweave.protocol.statements import Opening
from unweave.protocol.steps import (
    Revealed,
    TokenHeader,
    TokenStep,
    header_problem,
    write_header,
    wrong_step,
)
from unweave.protocol.token import (
    HOPS,
    NEVER,
    NO_ROUND,
    OUT,
    PASSES,
    AttestationRound,
    Revision,
    Stamp,
    Token,
    Tomb,
    join,
    request_id,
)
from unweave.simulator.faults import PROFILES
from unweave.simulator.invariants import Checker
from unweave.simulator.world import World

SQUARE = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
COMPLETE = [(a, b) for a in range(5) for b in range(a)]
LIAR = 0
SILENT = Digests(b"", b"", b"", b"", b"")


def rested(size: int = 4, edges: Any = SQUARE, **settings: Any) -> tuple[Wire, Liar]:
    """A network at rest, and the agent that will lie."""
    wire = Wire(size, edges, genesis=1, liar=LIAR, **settings)
    liar = Liar(wire, LIAR)
    wire.settle()
    assert wire.resting
    return wire, liar


def woken(**settings: Any) -> tuple[Wire, Liar, Pass]:
    """The token was just handed to the liar, which is included."""
    wire, liar = rested(**settings)
    wire.change_data(2)
    return wire, liar, liar.given()


def stays_live(wire: Wire, owner: int = 2) -> None:
    """An erasure is carried out and certified, and all honest agents know where the token is."""
    request = wire.erase(owner, rows=[3])
    wire.wait(120.0, until=lambda: wire.resting and request in wire.checker.certified)
    assert request in wire.checker.certified
    wire.wait(60.0, until=lambda: len({s.token.parked.stamp for s in wire.disks}) == 1)
    assert len({s.token.parked.stamp for s in wire.disks}) == 1


# ------------------------------------------------------------------------ 17: openings and numbers


def test_two_heartbeats_from_impossible_epochs_do_not_stop_a_network() -> None:
    """Epochs fence + (2^32 − 1), then twice that: the victim alone believed them, for ever."""
    wire, liar = rested()
    victim, fence, far = 2, wire.disks[2].token.fence, 2**32 - 1
    for epoch in (fence.epoch + far, fence.epoch + 2 * far):
        liar.say(victim, Alive(Stamp(epoch, 3, 7, 1, 7), 1.0))
    assert wire.disks[victim].token.fence == fence
    stays_live(wire)
    wire.crash(victim)
    wire.start_agent(victim)
    stays_live(wire, owner=3)
    assert max(s.token.fence.epoch for s in wire.disks) < fence.epoch + 20


def test_the_largest_jump_that_an_agent_can_sign_is_believed_by_all() -> None:
    """It spends the liar's own numbers; the others go on above it."""
    wire, liar = rested()
    others = sum(o.count for k, o in wire.disks[2].known.openings.items() if k != LIAR)
    opening = liar.opening(count=2**48 - 1, epoch=2**48 + others)
    liar.say(2, Share(Stamp(*opening.epoch, HOPS - 1, 7), liar.opened(opening)))
    assert wire.disks[2].token.fence[:3] == opening.epoch
    stays_live(wire)
    assert all(s.token.fence.epoch > opening.epoch[0] for s in wire.disks)


def test_an_epoch_above_the_sum_of_the_openings_is_not_believed() -> None:
    wire, liar = rested()
    known = wire.disks[2].known.openings
    most = 1 + 1 + sum(o.count for k, o in known.items() if k != LIAR)
    for beyond in (1, 2**32, 2**60):
        opening = liar.opening(count=1, epoch=most + beyond)
        liar.say(2, Share(Stamp(*opening.epoch, 1, 7), liar.opened(opening)))
        assert wire.disks[2].known.openings == known
    stays_live(wire)


def test_numbers_near_the_limits_are_not_passed_on() -> None:
    """hop or passes near 2^62 made a store unreadable."""
    wire, liar, given = woken()
    to, sent = liar.handed_on()
    assert sent.step is not None
    for hop in (HOPS, 2**62 - 1):
        liar.say(to, Alive(given.token.stamp._replace(hop=hop), 1.0))
        assert wire.disks[to].token.fence.hop < HOPS
    late = sent.token.stamp._replace(hop=HOPS - 3)
    liar.say(
        to, liar.signed(sent.token._replace(stamp=late, passes=PASSES), sent.step, sent.gossip)
    )
    assert "the hops of this epoch are used up" in wire.opened
    wire.wait(60.0, until=lambda: wire.resting)
    stays_live(wire)
    for s in wire.disks:
        for token in (s.token.held, s.token.copy):
            assert token is None or (token.stamp.hop < HOPS and token.passes <= PASSES)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_every_order_of_gossip_ends_with_the_same_openings(seed: int) -> None:
    """What one honest agent believes, all will; and no number is above the sum of the counts."""
    rng = random.Random(seed)
    terms = tally_terms(graphs.complete(4), seed=1)
    states = [State(terms, k) for k in range(1, 4)]

    def opening(agent: int, count: int, epoch: int) -> Opening:
        body = {"agent": agent, "count": count, "epoch": epoch, "incarnation": rng.getrandbits(8)}
        return Opening.write(agent, lambda raw: b"", network_id="", **body)

    for _ in range(30):
        s = rng.choice(states)
        draw = rng.random()
        if draw < 0.3:  # an honest agent opens an epoch
            known = s.known.openings
            count = known[s.me].count + 1 if s.me in known else 1
            number = max((o.epoch[0] for o in known.values()), default=0) + 1
            assert join_openings(s, {s.me: opening(s.me, count, number)})
        elif draw < 0.6:  # the liar says anything, to one agent
            count = rng.choice([1, 5, 2**40, 2**48 - 1, 2**48])
            join_openings(s, {0: opening(0, count, rng.choice([1, 4, 2**40, 2**61]))})
        else:
            join_openings(s, rng.choice(states).known.openings)
    for _ in range(2):
        for a in states:
            for b in states:
                join_openings(a, b.known.openings)
    found = [s.known.openings for s in states]
    assert found[0] == found[1] == found[2]
    total = 1 + sum(o.count for o in found[0].values())
    assert all(o.epoch[0] <= total for o in found[0].values())


def test_a_notice_of_an_epoch_that_nobody_opened_is_not_kept() -> None:
    """Kept, it would silence the loss timer, or wake every token, for ever."""
    wire, liar = rested()
    s = wire.disks[2]
    far = s.token.fence._replace(epoch=s.token.fence.epoch + 5)
    assert s.token.parked is not None
    notice = s.token.parked._replace(stamp=far)
    for said in ({"parked": notice}, {"news": News({}, frozenset(), {}, far)}):
        liar.say(2, Share(s.token.fence, Gossip(SILENT, **said)))
        now = wire.disks[2].token
        assert (now.parked, now.wake) == (s.token.parked, s.token.wake)


# ------------------------------------------------------------------------------ 18, 19: wrong steps


def test_a_wrong_sum_dies_at_the_first_neighbour_and_its_liar_is_expelled() -> None:
    wire, liar, _ = woken(size=5, edges=COMPLETE)
    to, sent = liar.handed_on()
    assert sent.step is not None
    wrong = liar.signed(sent.token._replace(eta=sent.token.eta + 1), sent.step, sent.gossip)
    before = wire.disks[to].token
    after, effects = handle(wire.disks[to], Received(LIAR, wrong, wire.now), wire.signers[to])
    assert (after.token.last, after.token.role) == (before.last, before.role)
    assert any(isinstance(e, LieProved) and e.agent == LIAR for e in effects)
    assert any(isinstance(e, Refused) and "does not follow" in e.why for e in effects)
    # The proof is passed on and checked by every agent, which then votes while it hears the liar.
    liar.say(to, wrong)
    honest = [k for k in range(5) if k != LIAR]
    wire.settle(
        hold=lambda f: f.to == LIAR, until=lambda: all(wire.disks[k].known.proofs for k in honest)
    )
    assert all(set(wire.disks[k].known.proofs) == {LIAR} for k in honest)
    wire.vote(honest, LIAR, lying=True)
    wire.wait(60.0, until=lambda: all(LIAR in wire.disks[k].departed for k in honest))
    assert all(LIAR in wire.disks[k].departed for k in honest)
    assert not any(wire.disks[k].known.proofs for k in honest)  # they hold sums
    wire.wait(60.0, until=lambda: wire.resting and LIAR not in wire.inside)
    assert LIAR not in wire.token.inside


def test_a_living_agent_cannot_be_voted_out_unless_it_lied() -> None:
    wire, liar, _ = woken()
    liar.say(2, Alive(wire.disks[2].token.fence, 1.0))
    wire.vote([2], LIAR)
    assert not wire.disks[2].known.votes
    assert "it has not departed" in wire.refused[-1]
    wire.vote([2], LIAR, lying=True)
    assert (LIAR, 2) in wire.disks[2].known.votes


def test_one_false_vote_expels_no_silent_agent() -> None:
    """An agent is down for long, and the liar votes. No agent votes by itself without a proof."""
    wire, _, _ = woken(size=5, edges=COMPLETE)
    wire.crash(3)
    wire.wait(3 * wire.terms.timeouts.loss)
    wire.vote([LIAR], 3)
    for _ in range(5):
        wire.wait(wire.terms.timeouts.loss)
        for k in (k for k in range(5) if wire.up[k]):
            for vote in automatic_votes(wire.disks[k], wire.now):
                wire.tell(k, vote)
    honest = [k for k in range(5) if k not in (LIAR, 3)]
    assert all((3, LIAR) in wire.disks[k].known.votes for k in honest)
    assert not any(wire.disks[k].departed for k in honest)


def test_an_old_sum_cannot_claim_later_erasures() -> None:
    """The erased data would come back, after the certificate, in a token that looks legal."""
    wire, liar, old = woken()
    wire.settle()
    request = wire.erase(2, rows=[3])
    wire.wait(30.0, until=lambda: request in wire.checker.certified)
    assert request in wire.checker.certified
    known = wire.disks[LIAR].known
    wrong = liar.reopened(old, tombs=join(old.token.tombs, known.tombs))
    liar.say(1, wrong)
    assert any("an erasure of data that are in the sum" in why for why in wire.refused)
    assert set(wire.disks[1].known.proofs) <= {LIAR}


def test_an_old_sum_cannot_claim_a_later_retrain_epoch() -> None:
    wire, _, old = woken(conjugate=False)
    request = request_id(2, b"r" * 12)
    token = old.token._replace(retrain_epoch=old.token.retrain_epoch | {request})
    step = TokenStep(old.header, token.included[LIAR])
    token = token._replace(stamp=old.token.stamp.next(7), round=NO_ROUND)
    assert wrong_step(wire.terms, LIAR, token, step) == "a retrain epoch of a sum that is older"


def test_an_old_token_that_is_still_right_may_be_opened_again() -> None:
    """That is no lie: a token was lost, and the last copy is the base of a new epoch."""
    wire, liar, old = woken()
    liar.say(1, liar.reopened(old))
    assert not wire.refused
    stays_live(wire)


def test_every_wrong_step_is_named() -> None:
    """One lie for each thing that `wrong_step` looks at."""
    wire, liar, _ = woken()
    wire.settle()
    wire.change_data(LIAR)
    _, exchange = liar.handed_on()  # its new factor for the old one
    found = list(_lies(wire, exchange))
    for reason, token, step in found:
        assert wrong_step(wire.terms, LIAR, token, step) == reason
    assert {reason for reason, _, _ in found} == REASONS


REASONS = {
    "an attestation round without its secret",
    "a token from nothing in another agent's epoch",
    "a token that no neighbour gave it",
    "a token that was moved to another agent's epoch",
    "a hop that does not follow",
    "a change of another agent's revision",
    "a new revision without its factor",
    "a commitment to no factor",
    "a sum without the factor that was in it",
    "a sum that does not follow from the one that it received",
    "an erasure of data that are in the sum",
    "a retrain epoch of a sum that is older",
    "an attestation round of no agent",
    "an attestation round without its sums",
    "an attestation round that estimates an exact sum",
    "a change of an attestation round of others",
    "an audit without the factor that was added to it",
    "another factor in the audit than in the sum",
    "attestations of another token",
    "attestations that others have not given",
    "an attestation round that says more than its agents did",
}


def _lies(wire: Wire, exchange: Pass) -> Iterator[tuple[str, Token, TokenStep]]:
    """Each with the reason for which it must be refused."""
    token, step = exchange.token, exchange.step
    assert step is not None
    assert step.factor is not None
    assert step.removed is not None
    assert step.before is not None
    assert wrong_step(wire.terms, LIAR, token, step) is None
    other = Revealed(bytes(16), step.factor.units + 1)
    stamp, mine = token.stamp, token.included[LIAR]
    assert stamp.initiator != LIAR
    yield "a token from nothing in another agent's epoch", token, step._replace(before=None)
    yield "a token that no neighbour gave it", token, step._replace(before=exchange.header)
    moved = stamp._replace(epoch=stamp.epoch + 1)
    yield "a token that was moved to another agent's epoch", token._replace(stamp=moved), step
    hop = token._replace(stamp=stamp._replace(hop=step.before.stamp.hop))
    yield "a hop that does not follow", hop, step
    included = token.included.set(1, token.included[1]._replace(counter=9))
    yield "a change of another agent's revision", token._replace(included=included), step
    wrong = token._replace(eta=token.eta + 1)
    yield "a new revision without its factor", token, step._replace(factor=None)
    yield "a new revision without its factor", wrong, step._replace(factor=other)
    nothing = token._replace(included=token.included.set(LIAR, mine._replace(counter=0)))
    yield "a commitment to no factor", nothing, step
    removed = Revealed(bytes(16), step.removed.units - 1)
    yield "a sum without the factor that was in it", token, step._replace(removed=None)
    yield "a sum without the factor that was in it", wrong, step._replace(removed=removed)
    yield "a sum that does not follow from the one that it received", wrong, step
    claimed = {2: Tomb(frozenset({request_id(2, b"c" * 12)}))}
    yield "an erasure of data that are in the sum", token._replace(tombs=claimed), step
    retrained = token._replace(retrain_epoch=frozenset(claimed[2].ids))
    yield "a retrain epoch of a sum that is older", retrained, step

    # The rest is about rounds. Agent 1 has attested a token, and gives it to the liar.
    unchanged, shown = TokenStep(None, mine), step.factor

    def attested(agents: list[int], audit: Ints, **changes: Any) -> Token:
        so_far = AttestationRound(
            Bitmap(agents), audit, None, b"{}", dict.fromkeys(agents, b""), secret=bytes(32)
        )
        return token._replace(round=so_far._replace(**changes), stamp=stamp.next(7))

    giver = Liar(wire, 1)
    factor = wire.disks[1].own.current
    assert factor is not None
    audit = wire.terms.eta0 + factor.units
    before = giver.signed(attested([1], audit), TokenStep(None, OUT)).header
    unchanged = TokenStep(before, mine, None, shown)

    def later(agents: list[int], audit: Ints | None, **changes: Any) -> Token:
        sent = attested(agents, audit, **changes)  # type: ignore[arg-type]
        return sent._replace(stamp=sent.stamp.next(8))

    both = audit + shown.units
    for right in (
        later([1], audit),
        later([0, 1], both),
        later([0], wire.terms.eta0 + shown.units),
    ):
        assert wrong_step(wire.terms, LIAR, right, unchanged) is None
    yield "an attestation round of no agent", later([], None, unknown=True), unchanged
    yield "an attestation round of no agent", later([], audit), unchanged
    yield "an attestation round without its sums", later([0, 1], None), unchanged
    yield "an attestation round without its sums", later([0, 1], both, frozen=both), unchanged
    exact = "an attestation round that estimates an exact sum"
    yield exact, later([0, 1], both, unknown=True), unchanged
    yield "a change of an attestation round of others", later([1], audit + 1), unchanged
    yield "a change of an attestation round of others", later([1, 2], audit), unchanged
    hidden = unchanged._replace(factor=None)
    yield "an audit without the factor that was added to it", later([0, 1], both), hidden
    yield "another factor in the audit than in the sum", later([0, 1], both + 1), unchanged
    yield "another factor in the audit than in the sum", later([0], shown.units), unchanged
    junk = later([0, 1], both, statement=b"[]")
    yield "attestations of another token", junk, unchanged
    yield "attestations of another token", later([0, 1], both, secret=b"s" * 32), unchanged
    bare = "an attestation round without its secret"
    yield bare, later([0, 1], both, secret=b""), unchanged
    yield bare, later([0], wire.terms.eta0 + shown.units, secret=b"short"), unchanged
    yield "attestations that others have not given", later([0, 1, 2], both), unchanged
    sad = giver.signed(attested([1], audit, converged=False), TokenStep(None, OUT)).header
    more = "an attestation round that says more than its agents did"
    yield more, later([0, 1], both), unchanged._replace(before=sad)


def test_an_accusation_of_an_honest_agent_convicts_nobody() -> None:
    """Its genuine token is right; another token below its header is no word of its own."""
    wire, liar, given = woken()
    genuine = given._replace(gossip=None)
    swapped = genuine._replace(token=given.token._replace(eta=given.token.eta + 1))
    for accused in (genuine, swapped):
        assert accused.header is not None
        news = News({}, frozenset(), {}, NEVER, {accused.header.author: accused})
        liar.say(2, Share(NEVER, Gossip(SILENT, news=news)))
        assert not wire.disks[2].known.proofs
    swapped = liar.signed(swapped.token, TokenStep(None, OUT))._replace(header=given.header)
    liar.say(2, swapped)
    assert not wire.disks[2].known.proofs


# ------------------------------------------------------------------------------------ 6, 13: halts


def mismatches(*found: Any) -> Share:
    return Share(NEVER, Gossip(SILENT, news=News({}, frozenset(found), {}, NEVER)))


def test_one_author_cannot_stop_a_network() -> None:
    wire, liar = rested()
    for k in (1, 2, 3):
        liar.say(k, mismatches(*(liar.mismatch(n) for n in range(5))))
        assert not wire.disks[k].audit_failed
        assert len(wire.disks[k].known.mismatches) == 2  # more say nothing new
    stays_live(wire)


def test_two_authors_stop_a_network_and_an_expulsion_starts_it_again() -> None:
    wire, liar = rested(size=5, edges=COMPLETE)
    other = Liar(wire, 1)
    found = [one.mismatch(1) for one in (liar, other, Liar(wire, 3))]
    after, _ = handle(wire.disks[2], Received(LIAR, mismatches(*found), wire.now))
    assert after.audit_failed
    votes = {}
    for voter in (1, 2, 3):
        vote = VoteCast(LIAR, request_id(LIAR, b"v" * 12), wire.now, lying=True)
        votes |= handle(wire.disks[voter], vote, wire.signers[voter])[0].known.votes
    erasures = Erasures({LIAR: Tomb(departed=True)}, frozenset(), {}, votes)
    after, _ = handle(after, Received(3, Share(NEVER, Gossip(SILENT, erasures=erasures)), wire.now))
    assert LIAR in after.departed
    assert not after.audit_failed


def test_a_departed_agent_shares_nothing() -> None:
    """No agent believes it, so everything that it sends only loads the others."""
    wire, _ = rested(size=5, edges=COMPLETE)
    honest = [1, 2, 3, 4]
    wire.vote(honest, LIAR, lying=True)
    wire.wait(60.0, until=lambda: LIAR in wire.disks[LIAR].departed)
    s = wire.disks[LIAR]
    assert LIAR in s.departed
    assert s.token.copy is None
    for now in (wire.now + second for second in range(1, 60)):
        heard = Received(1, Alive(s.token.fence, now), now)
        for event in (heard, Tick(now), DataChanged(now)):
            s, effects = handle(s, event, wire.signers[LIAR])
            assert not [e for e in effects if isinstance(e, Send)]


# ------------------------------------------------------ the honest are never wrong, lies always are


class Passes:
    """Collects every token that is sent, by its header."""

    def __init__(self) -> None:
        self.sent: dict[bytes, Pass] = {}

    def after(self, agent: int, before: State, after: State, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Pass):
                header = effect.message.header
                assert header is not None
                self.sent[header.raw] = effect.message


@lru_cache
def honest_run(seed: int, name: str) -> tuple[World, Checker, dict[bytes, Pass]]:
    """An honest run, and every token that was sent in it."""
    passes = Passes()
    original = World.__init__

    def observed(self: World, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.observers.append(passes)

    World.__init__ = observed  # type: ignore[method-assign]
    try:
        profile = dataclasses.replace(PROFILES[name], erase=0.03)
        outcome = run_faults(seed, profile)
    finally:
        World.__init__ = original  # type: ignore[method-assign]
    return outcome.world, outcome.checker, passes.sent


RUNS = [(seed, name) for seed in range(3) for name in PROFILES if name != "insider"]


@pytest.mark.parametrize(("seed", "name"), RUNS)
def test_an_honest_step_is_never_wrong(seed: int, name: str) -> None:
    world, _, sent = honest_run(seed, name)
    assert len(sent) > 5
    for message in sent.values():
        assert message.header is not None
        assert message.step is not None
        who = message.header.author
        assert header_problem(message.header, who, message.token, message.step) is None
        assert wrong_step(world.terms, who, message.token, message.step) is None
    assert not any(world.state(k).known.proofs for k in range(world.terms.size))


def corruptions(rng: random.Random, who: int, message: Pass) -> Iterator[tuple[Token, TokenStep]]:
    """The token or the step with one thing changed."""
    token, step = message.token, message.step
    assert step is not None
    size, dim = len(token.included), len(token.eta)
    other = rng.choice([k for k in range(size) if k != who])
    bump = np.zeros(dim, dtype=np.int64)
    bump[rng.randrange(dim)] = rng.choice([1, -1, 2**33])
    random_revision = Revision(3, rng.getrandbits(60), rng.randbytes(32))

    def included(agent: int, revision: Revision) -> Token:
        inside = token.inside.plus(agent) if revision.counter else token.inside.minus(agent)
        return token._replace(included=token.included.set(agent, revision), inside=inside)

    yield token._replace(eta=token.eta + bump), step
    for revision in (OUT, random_revision, token.included[other]._replace(commitment=bytes(32))):
        yield included(other, revision), step
    for revision in (OUT, random_revision, token.included[who]._replace(counter=99)):
        yield included(who, revision), step
    for revision in (OUT, random_revision):
        yield token, step._replace(revision=revision)
    for shown in (None, Revealed(bytes(16), bump)):
        yield token, step._replace(removed=shown)
        yield token, step._replace(factor=shown)
    yield token, step._replace(before=None)
    yield token, step._replace(before=message.header)
    stamp = token.stamp
    for moved in (stamp._replace(hop=0), stamp._replace(epoch=stamp.epoch + 1)):
        yield token._replace(stamp=moved), step
    yield token._replace(stamp=stamp._replace(initiator=(stamp.initiator + 1) % size)), step
    claimed = Tomb(frozenset({request_id(other, rng.randbytes(12))}))
    yield token._replace(tombs=join(token.tombs, {other: claimed})), step
    for agent in token.tombs:
        yield token._replace(tombs={k: t for k, t in token.tombs.items() if k != agent}), step
    yield token._replace(retrain_epoch=token.retrain_epoch | {rng.randbytes(16)}), step
    so_far = token.round
    if so_far.audit is not None:
        for changes in (
            {"audit": so_far.audit + bump},
            {"audit": None},
            {"frozen": bump},
            {"unknown": not so_far.unknown},
            {"converged": not so_far.converged},
            {"statement": b"{}"},
            {"secret": rng.randbytes(32)},
            {"agents": so_far.agents.plus(other)},
            {"agents": so_far.agents.minus(other)},
            {"agents": so_far.agents.plus(who)},
            {"agents": Bitmap()},
        ):
            yield token._replace(round=so_far._replace(**changes)), step
        yield token._replace(round=NO_ROUND), step


def legal(
    who: int, terms: Any, checker: Checker, sent: dict[bytes, Pass], token: Token, step: TokenStep
) -> bool:
    """Whether the sum, the audit and the erasures of the token are those of its agents. The factors
    are those that the checker saw on disks, or that this step shows. The erasures of `who` are its
    own business."""
    factors: dict[int, Ints] = {}
    for k, revision in enumerate(token.included):
        if not revision.counter:
            continue
        if (k, revision) in checker.factors:
            factors[k] = checker.factors[k, revision].units
        elif step.factor is not None and step.factor.commitment == revision.commitment:
            factors[k] = step.factor.units
        else:
            return False
    if not np.array_equal(terms.eta0 + sum(factors.values()), token.eta):
        return False
    if token.round.agents:
        audited = [units for k, units in factors.items() if k in token.round.agents]
        if not np.array_equal(terms.eta0 + sum(audited), token.round.audit):
            return False
    if step.before is None:
        return True
    given = sent[step.before.raw].token
    return all(
        token.tombs.get(k, Tomb()).ids == given.tombs.get(k, Tomb()).ids
        for k in token.inside
        if k != who
    )


@pytest.mark.parametrize(("seed", "name"), [(s, n) for s, n in RUNS if n in ("calm", "disks")])
def test_every_change_of_one_thing_is_refused_or_a_legal_step(seed: int, name: str) -> None:
    world, checker, sent = honest_run(seed, name)
    rng = random.Random(seed)
    refused = legally = 0
    for message in list(sent.values())[:60]:
        assert message.header is not None
        who = message.header.author
        for token, step in corruptions(rng, who, message):
            if wrong_step(world.terms, who, token, step) is not None:
                refused += 1
                continue
            assert legal(who, world.terms, checker, sent, token, step), (token, step)
            legally += 1
    assert refused > 200
    assert legally < refused


def test_a_header_binds_its_sender_to_token_and_step() -> None:
    wire, liar, given = woken()
    assert given.header is not None
    assert given.step is not None
    giver = given.header.author
    assert header_problem(given.header, giver, given.token, given.step) is None
    parsed = TokenHeader(given.header.raw, giver, given.header.signature)
    assert parsed.body == given.header.body  # the writer keeps the body that a reader parses
    rng = random.Random(1)
    for token, step in corruptions(rng, giver, given):
        same = (
            token == given.token if token is given.token else _parts(token) == _parts(given.token)
        )
        if not same or step != given.step:
            assert header_problem(given.header, giver, token, step) is not None
    other = write_header(wire.terms.network_id, LIAR, liar.sign, given.token, given.step)
    assert header_problem(other, giver, given.token, given.step) is not None


def _parts(token: Token) -> tuple[Any, ...]:
    """What a header names."""
    so_far = token.round
    inside = {k: t.ids for k, t in token.tombs.items() if k in token.inside and t.ids}
    vectors = [None if v is None else v.tobytes() for v in (token.eta, so_far.audit, so_far.frozen)]
    flags = (so_far.agents, so_far.statement, so_far.converged, so_far.unknown)
    return (token.stamp, token.included, inside, token.retrain_epoch, vectors, flags)
