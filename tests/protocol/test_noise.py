"""Rule 22, one part at a time, on a wire that is driven by hand; the checker checks P1 to P7."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.support import wire as wire_module
from tests.support.tally import row_key
from tests.support.wire import Flight, Wire

from unweave.errors import NotCertified, WireError
from unweave.keyring import Keyring
from unweave.protocol.admission import check_message
from unweave.protocol.certificate.unchecked import unchecked_payloads
from unweave.protocol.certificate.verify import verify
from unweave.protocol.events import Enrol, Mask, NewKey, WakeRequested
from unweave.protocol.given import count_welcome, forget_given, remember_given
from unweave.protocol.messages import Ack, Gossip, Pass, Welcome
from unweave.protocol.rounds import has_masked_work, is_exhausted, spent_agents
from unweave.protocol.state import State
from unweave.protocol.statements import Enrolment
from unweave.protocol.terms import Noise
from unweave.protocol.token import NEVER, MaskedRound

SQUARE = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 3)]
RING = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]


def noisy_wire(releases: int = 20, edges: list[tuple[int, int]] = SQUARE, **settings) -> Wire:
    size = 1 + max(max(edge) for edge in edges)
    return Wire(size, edges, releases=releases, **({"min_roster": 3} | settings))


def settled(wire: Wire, seconds: float = 30.0) -> None:
    wire.wait(seconds)
    assert wire.resting


def keys_in(wire: Wire) -> list[bytes]:
    """The keys of the values in the newest token."""
    held = [wire.disks[k].own.factor(wire.token.included[k]) for k in wire.token.inside]
    return [one.given.key for one in held]


def without_noise(wire: Wire) -> list[int]:
    noise = sum((wire.noise.drawn[key] for key in keys_in(wire)), np.zeros(2, np.int64))
    return [int(v) for v in wire.token.eta - noise]


def exact_sum(wire: Wire, without: dict[int, set[int]] | None = None) -> list[int]:
    total = np.array([1, 1], dtype=np.int64)
    for k in wire.token.inside:
        rows = frozenset(row_key(r) for r in (without or {}).get(k, ()))
        total = total + np.array(wire.workers[k].factor(rows))
    return [int(v) for v in total]


def test_the_sum_without_its_noise_is_exact_and_the_audit_holds_the_same_noise() -> None:
    wire = noisy_wire()
    settled(wire)
    assert without_noise(wire) == exact_sum(wire)
    assert [int(v) for v in wire.token.eta] != exact_sum(wire)
    assert np.array_equal(wire.token.round.audit, wire.token.eta)
    wire.erase(2, rows=[1, 5])
    settled(wire)
    assert without_noise(wire) == exact_sum(wire, {2: {1, 5}})
    assert wire.checker.certified


def test_noise_is_drawn_once_for_every_given_value_and_paid_before() -> None:
    wire = noisy_wire()
    settled(wire)
    first = set(keys_in(wire))
    wire.change_data(1)
    settled(wire)
    second = set(keys_in(wire))
    assert not first & second
    assert wire.noise.drawn.keys() == first | second == wire.checker.private.given.keys()
    draws = {bytes(noise) for noise in wire.noise.drawn.values()}
    assert len(draws) == 8
    assert [ledger.given for ledger in wire.noise.ledgers] == [2] * 4
    assert [ledger.keys <= first | second for ledger in wire.noise.ledgers] == [True] * 4


def test_enrolments_count_the_values_before_their_own() -> None:
    wire = noisy_wire()
    settled(wire)
    for rounds in (1, 2, 3):
        masked = wire.token.masked
        assert {one.given for one in masked.keys.values()} == {rounds - 1}
        assert {one.given for one in masked.spare.values()} == {rounds}
        wire.change_data(rounds % 4)
        settled(wire)


def test_a_process_that_dies_between_charge_and_gift_has_paid_for_nothing_and_pays_again() -> None:
    wire = noisy_wire()
    wire.settle(until=lambda: bool(wire.noise.drawn))
    (key,) = wire.noise.drawn
    k = next(k for k, ledger in enumerate(wire.noise.ledgers) if ledger.given)
    assert not wire.checker.private.given  # charged, and not given
    assert wire.disks[k].token.pending[0] == Mask.__name__.lower()
    wire.crash(k)
    wire.start_agent(k)
    settled(wire, 60.0)
    assert key not in wire.checker.private.given
    assert wire.noise.ledgers[k].given == 2
    assert wire.token.masked.spare[k].given == 2
    assert without_noise(wire) == exact_sum(wire)


def test_a_value_that_is_asked_for_again_costs_nothing() -> None:
    """The token is lost after an agent gave its value; a copy of it comes back: the same bytes."""
    wire = noisy_wire()
    wire.settle(until=lambda: len(wire.noise.drawn) == 1)
    wire.settle(until=lambda: bool(wire.find(Pass)) and len(wire.inside) == 1)
    wire.drop(Pass)
    settled(wire, 60.0)
    assert len(wire.checker.private.given) == 4
    assert [ledger.given for ledger in wire.noise.ledgers] == [1] * 4


@pytest.mark.parametrize("lost", ["restored", "empty"])
@pytest.mark.parametrize("evidence", ["token", "neighbours"])
def test_a_ledger_that_was_restored_counts_what_the_network_remembers(lost, evidence) -> None:
    wire = noisy_wire(edges=RING)
    settled(wire)
    disk, image = wire.disks[1], wire.noise.image(1)
    for k in (3, 4, 3):
        wire.change_data(k)
        settled(wire)
    assert wire.noise.ledgers[1].given == 4
    wire.crash(1)
    if lost == "empty":
        disk, image = wire.blank(1), None
    wire.noise.wipe(1, image)
    if evidence == "neighbours":  # the next token shows no enrolment of this agent
        for k in (0, 2, 3, 4):
            s = wire.disks[k].fork()
            for name in ("copy", "published"):
                token = getattr(s.token, name)
                setattr(s.token, name, token._replace(masked=forgotten(token.masked, 1)))
            role = s.token.role
            if s.token.held is not None:
                masked = forgotten(s.token.held.masked, 1)
                s.token.role = role._replace(token=s.token.held._replace(masked=masked))
            wire.disks[k] = wire.checker.latest[k] = s
    wire.start_agent(1, disk)
    wire.wait(60.0)
    wire.change_data(3)
    settled(wire, 60.0)
    shown = {key for key, (agent, _) in wire.checker.private.given.items() if agent == 1}
    assert wire.noise.ledgers[1].given >= len(shown) >= 5
    assert wire.noise.missing >= 3
    assert wire.token.masked.spare[1].given == wire.noise.ledgers[1].given


def test_neighbours_remember_what_a_restored_agent_has_given() -> None:
    test_a_ledger_that_was_restored_counts_what_the_network_remembers("restored", "neighbours")


def forgotten(masked: MaskedRound, agent: int) -> MaskedRound:
    spare = {k: one for k, one in masked.spare.items() if k != agent}
    return masked._replace(spare=spare)


def test_an_agent_makes_no_key_before_its_last_neighbour_has_answered() -> None:
    """A value left agent 1 for a neighbour, which alone knows of it. Agent 1 loses its disk, and
    leaves quarantine with the answer of the other neighbour."""
    wire = noisy_wire(edges=RING)
    settled(wire)
    wire.change_data(1)
    wire.settle(until=lambda: bool(given_by(wire, 1)))
    (flight,) = given_by(wire, 1)
    witness, other = flight.to, 2 - flight.to
    wire.flight = []
    wire.arrive(flight)
    wire.flight = []
    assert wire.disks[witness].known.enrolments[1].given == 2
    assert wire.disks[other].known.enrolments[1].given == 1
    for k in (1, witness):
        wire.crash(k)
    wire.noise.wipe(1)
    wire.start_agent(1, wire.blank(1))
    wire.wait(120.0)
    assert wire.disks[1].peers.synced
    assert wire.noise.ledgers[1].given == 0  # and it has asked for no key
    wire.start_agent(witness)
    settled(wire, 60.0)
    assert wire.noise.ledgers[1].given >= 3
    assert without_noise(wire) == exact_sum(wire)


@pytest.mark.parametrize("lost", [False, True])
def test_while_an_agent_waits_for_its_neighbours_nobody_pays_and_the_token_rests(lost) -> None:
    wire = noisy_wire(edges=RING)
    settled(wire)
    silent = 0 if wire.holder == 2 else 2
    for k in (1, silent):
        wire.crash(k)
    if lost:
        wire.noise.wipe(1)
    opened = len(wire.opened)
    wire.start_agent(1, wire.blank(1) if lost else None)
    wire.wait(120.0)
    assert lost or len(wire.opened) == opened  # the published sum is left alone
    assert wire.disks[1].peers.synced
    before = wire.transitions
    wire.wait(30.0)
    assert wire.transitions - before < 1000  # ticks of 30 seconds
    assert [ledger.given for ledger in wire.noise.ledgers] == [1, 0 if lost else 1, 1, 1, 1]
    wire.tell(3, WakeRequested(wire.now))
    wire.wait(60.0)
    enrolments = {**wire.token.masked.keys, **wire.token.masked.spare}
    assert 1 not in enrolments or enrolments[1].incarnation != wire.disks[1].incarnation
    wire.start_agent(silent)
    settled(wire, 60.0)
    assert wire.disks[1].own.spent is False


def given_by(wire: Wire, agent: int) -> list[Flight]:
    """The agent's value of the second round, on its way to the first receiver."""
    found = [f for f in wire.flight if f.sender == agent and isinstance(f.message, Pass)]
    return [f for f in found if f.message.token.included[agent].counter == 2]


@pytest.mark.parametrize("how", ["never seen", "restored"])
def test_a_budget_counts_as_spent_if_a_neighbour_remembers_nothing(how) -> None:
    wire = noisy_wire(edges=RING)
    settled(wire)
    disk, image = wire.disks[2], wire.noise.image(2)
    wire.change_data(3)
    settled(wire)
    for k in (1, 2):
        wire.crash(k)
    wire.noise.wipe(1, wire.noise.image(1))
    if how == "restored":
        wire.noise.wipe(2, image)
    wire.start_agent(2, wire.blank(2) if how == "never seen" else forget_given(disk))
    wire.start_agent(1)
    wire.wait(60.0)
    assert wire.noise.unsure > 0
    assert wire.noise.release(1, 0).left == 0
    given = len(wire.checker.private.given)
    wire.change_data(3)
    wire.wait(60.0)
    assert len(wire.checker.private.given) == given
    assert spent_agents(wire.disks[3]) >= {1}
    wire.erase(3, rows=[2])
    settled(wire, 60.0)
    assert wire.checker.certified  # erasing depends on no budget


def test_a_restored_disk_vouches_again_when_a_running_process_has_enrolled() -> None:
    wire = noisy_wire(edges=RING)
    settled(wire)
    wire.crash(2)
    wire.start_agent(2, forget_given(wire.disks[2]))
    wire.wait(60.0)
    old = wire.disks[3].known.enrolments[2]
    assert wire.disks[2].known.enrolments.keys() == {1, 3}  # their processes run
    wire.crash(1)
    wire.start_agent(1)
    s = forget_given(wire.disks[0])
    s.peers.incarnations = {1: wire.disks[1].incarnation}
    token = wire.token._replace(masked=wire.token.masked._replace(spare={1: old_of(wire, 1)}))
    remember_given(s, token)
    assert not s.known.enrolments  # of a process that has ended
    assert old.given == 1


def old_of(wire: Wire, agent: int) -> Enrolment:
    return wire.disks[0].known.enrolments[agent]


def test_a_token_that_arrives_in_quarantine_is_remembered() -> None:
    """It is not accepted, but its bytes have left their agent."""
    wire = noisy_wire(edges=RING)
    settled(wire)
    wire.change_data(1)
    wire.settle(until=lambda: bool(given_by(wire, 1)))
    (flight,) = given_by(wire, 1)
    wire.crash(flight.to)
    wire.start_agent(flight.to)
    assert not wire.disks[flight.to].peers.synced
    assert wire.disks[flight.to].known.enrolments[1].given == 1
    wire.arrive(flight)
    assert wire.disks[flight.to].token.last < flight.message.token.stamp
    assert wire.disks[flight.to].known.enrolments[1].given == 2


def test_a_spent_budget_is_said_again_after_the_token_that_heard_it_was_lost() -> None:
    wire = noisy_wire(edges=RING)
    wire.noise.ledgers[2].charge(b"all", 20.0)
    said = lambda: [f for f in wire.find(Pass, sender=2) if 2 in f.message.token.masked.keys]  # noqa: E731
    wire.settle(until=lambda: bool(said()))
    (flight,) = said()
    wire.flight = []
    wire.arrive(flight)
    wire.deliver(Ack, to=2)
    wire.flight, wire.local = [], []
    wire.crash(flight.to)
    wire.start_agent(flight.to, wire.blank(flight.to))
    s = wire.disks[2].fork()
    s.token.copy = None
    wire.disks[2] = wire.checker.latest[2] = s
    wire.wait(120.0)
    assert wire.resting
    assert spent_agents(wire.disks[0]) >= {2}
    assert not wire.checker.private.given
    wire.crash(2)
    wire.start_agent(2)
    wire.tell(wire.holder, WakeRequested(wire.now))
    wire.wait(60.0)
    assert wire.disks[2].own.exhausted  # by its own word


def test_no_value_leaves_without_its_number(monkeypatch) -> None:
    """The keyring makes no key for the next round, and would still mask a value of this one."""
    wire = noisy_wire()
    good = wire_module.unlock

    def broken(keyring, me, work):
        if me == 2 and isinstance(work, Enrol) and work.ahead:
            return NewKey(b"")
        return good(keyring, me, work)

    monkeypatch.setattr(wire_module, "unlock", broken)
    wire.wait(60.0)
    assert 2 not in {agent for agent, _ in wire.checker.private.given.values()}
    assert wire.noise.ledgers[2].given == 0


def test_agents_that_were_started_again_waste_no_value_in_the_next_round() -> None:
    """Their one-time keys are gone. They enrol again at the published sum, before anybody pays."""
    wire = noisy_wire()
    settled(wire)
    for k in range(4):
        wire.crash(k)
    for k in range(4):
        wire.start_agent(k)
    settled(wire, 60.0)
    assert [ledger.given for ledger in wire.noise.ledgers] == [1] * 4
    wire.change_data(2)
    settled(wire)
    assert [ledger.given for ledger in wire.noise.ledgers] == [2] * 4
    assert without_noise(wire) == exact_sum(wire)


def test_an_agent_that_can_make_no_key_does_not_wake_the_token_for_ever(monkeypatch) -> None:
    """Its ledger fails after it was started again."""
    wire = noisy_wire()
    settled(wire)
    good, asked = wire_module.unlock, []

    def broken(keyring, me, work):
        if me == 2 and isinstance(work, Enrol):
            asked.append(work)
            return NewKey(b"")
        return good(keyring, me, work)

    monkeypatch.setattr(wire_module, "unlock", broken)
    wire.crash(2)
    wire.start_agent(2)
    wire.wait(30.0)
    before = wire.transitions
    wire.wait(30.0)
    assert wire.resting
    assert wire.transitions - before < 1000  # ticks of 30 seconds
    wire.tell(wire.holder, WakeRequested(wire.now))
    wire.wait(30.0)
    assert len(asked) == 1  # a ledger that fails would hold every token up


def test_a_spent_budget_keeps_the_last_sum_and_wakes_nobody() -> None:
    wire = noisy_wire(releases=2)
    settled(wire)
    wire.change_data(0)
    settled(wire)
    eta, held = wire.token.eta, wire.token
    assert is_exhausted(held.masked.spare)
    before = wire.transitions
    wire.change_data(1)
    wire.wait(30.0)
    wire.tell(wire.holder, WakeRequested(wire.now))  # as an audit does
    wire.wait(5.0)
    assert wire.resting
    assert np.array_equal(wire.token.eta, eta)
    assert wire.transitions - before < 1000  # ticks of 30 seconds
    assert [ledger.given for ledger in wire.noise.ledgers] == [2] * 4
    for s in wire.disks:
        assert not has_masked_work(s, s.token.parked)
        assert spent_agents(s) == {0, 1, 2, 3}
        assert s.token.published is not None


def test_an_erasure_after_the_budget_is_spent_is_certified_with_an_empty_sum() -> None:
    wire = noisy_wire(releases=1)
    settled(wire)
    wire.erase(2, rows=[3])
    settled(wire)
    assert not wire.token.inside
    assert np.array_equal(wire.token.eta, wire.terms.eta0)
    assert wire.checker.certified
    assert [ledger.given for ledger in wire.noise.ledgers] == [1] * 4
    account = verify(wire.checker.certificates[-1], wire.terms, wire.checker._signed)
    assert not account.included
    # A certificate of a network without noise may not be empty for this reason.
    with pytest.raises(NotCertified, match="this one includes 0"):
        plain = replace(wire.terms, noise=None)
        verify(wire.checker.certificates[-1], plain, wire.checker._signed)


def test_when_the_spent_agent_is_gone_the_others_go_on() -> None:
    wire = noisy_wire()
    settled(wire)
    ledger = wire.noise.ledgers[3]
    ledger.observe(19, 1.0)
    wire.change_data(0)
    settled(wire)
    assert spent_agents(wire.disks[0]) == {3}
    wire.erase(1, rows=[0])
    settled(wire)
    assert not wire.token.inside
    assert [one.given for one in wire.noise.ledgers] == [2, 2, 2, 20]  # nobody pays for nothing
    wire.erase(3, whole=True)
    settled(wire)
    assert wire.token.inside == {0, 1, 2}
    assert without_noise(wire) == exact_sum(wire, {1: {0}})


def test_a_key_without_a_budget_ends_in_no_loop() -> None:
    """The budget was spent between the enrolment and the gift."""
    wire = noisy_wire(releases=3)
    wire.settle(until=lambda: any(len(s.token.held.masked.keys) == 4 for s in held(wire)))
    wire.noise.ledgers[2].observe(3, 1.0)
    settled(wire, 60.0)
    assert not wire.token.inside
    assert spent_agents(wire.disks[0]) == {2}


def held(wire: Wire) -> list[State]:
    return [s for s in wire.disks if s.token.held is not None]


def test_the_share_of_the_grid_leaves_room_for_the_noise() -> None:
    """With the reach as large as the share, a factor does not fit and the agent gives zero."""
    wire = noisy_wire()
    wire.terms.noise.reach[:] = 2**62
    settled(wire)
    assert without_noise(wire) == [1, 1]


# ------------------------------------------------------------------------------------ certificates


def test_a_certificate_states_the_noise_and_claims_no_bit_of_the_published_sum() -> None:
    wire = noisy_wire()
    settled(wire)
    wire.erase(1, rows=[0])
    settled(wire)
    raw = wire.checker.certificates[-1]
    attestation, closing = [json.loads(p)["predicate"] for p in list(unchecked_payloads(raw))[:2]]
    assert attestation["noise"] == wire.terms.noise.statement
    assert {one["kind"] for one in closing["erasures"].values()} == {"exact_before_noise"}
    account = verify(raw, wire.terms, wire.checker._signed)
    assert account.noise == wire.terms.noise.statement
    other = {**wire.terms.noise.statement, "epsilon": 0.5}
    with pytest.raises(NotCertified, match=r"attestation\.noise"):
        terms = replace(wire.terms, noise=Noise(wire.terms.noise.reach, other))
        verify(raw, terms, wire.checker._signed)


# -------------------------------------------------------------------------------------- signatures


def test_only_the_own_signature_counts_values() -> None:
    wire = noisy_wire()
    s = wire.disks[0].fork()
    body = {"network_id": wire.terms.network_id.hex(), "incarnation": 1}
    key = Keyring().enrol().hex()

    def enrolment(author: int, signer: int) -> Enrolment:
        return Enrolment.write(author, wire.signers[signer], agent=author, key=key, given=7, **body)

    def welcome(author: int, signer: int) -> Welcome:
        return Welcome(NEVER, Gossip(None), 1, 1, 1, enrolment(author, signer))

    count_welcome(s, 1, welcome(1, 1))
    assert s.own.counter == 0
    assert not s.peers.vouched
    count_welcome(s, 1, welcome(0, 0))
    assert s.own.counter == 7
    assert s.peers.vouched == {1}
    good, forged = welcome(0, 0), welcome(0, 1)
    terms = wire.terms
    for message in (good._replace(gossip=None), forged._replace(gossip=None)):
        signed = lambda author, text, signature: signature == wire.signers[author](text)  # noqa: E731
        if message.enrolment.signature == good.enrolment.signature:
            check_message(message, None, terms, signed)
            with pytest.raises(WireError, match="no noise"):
                check_message(message, None, replace(terms, noise=None), signed)
        else:
            with pytest.raises(WireError, match="did not sign"):
                check_message(message, None, terms, signed)
