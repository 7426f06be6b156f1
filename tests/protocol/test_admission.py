"""What an agent checks before it handles a message costs little, and little more when repeated."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tally import tally_signers, tally_terms

from unweave.errors import WireError
from unweave.graph import graphs
from unweave.keyring import Keyring, is_usable_key
from unweave.persistent import NOBODY, Vector
from unweave.protocol.admission import KnownSignatures, WorkBudget, check_message
from unweave.protocol.events import Received
from unweave.protocol.machine import handle
from unweave.protocol.messages import Digests, Gossip, News, ParkNotice, Pass, Share
from unweave.protocol.recovery import empty_token
from unweave.protocol.state import State
from unweave.protocol.statements import AuditMismatch, Enrolment, Intent
from unweave.protocol.steps import Revealed, TokenStep
from unweave.protocol.terms import Terms
from unweave.protocol.token import NEVER, NOT_MASKED, OUT, MaskedRound, Stamp, request_id

TERMS = tally_terms(graphs.ring(4), seed=1)
NETWORK = TERMS.network_id.hex()
NONE = Digests(b"", b"", b"", b"", b"")


def intent(k: int, signature: bytes) -> Intent:
    request = request_id(1, k.to_bytes(12, "big")).hex()
    body = {"network_id": NETWORK, "agent": 1, "whole": False, "remembered": 0}
    return Intent.write(1, lambda _: signature, request=request, rows=["ff" * 16], **body)


def test_a_repeated_statement_is_verified_once() -> None:
    """Also one that the agent does not keep."""
    asked: Counter[bytes] = Counter()

    def check(author: int, signed: bytes, signature: bytes) -> bool:
        asked[signed] += 1
        return signature == b"good"

    known = KnownSignatures(check, most=1000)
    statements = [intent(k, b"good") for k in range(300)]
    message = Share(
        NEVER, Gossip(NONE, news=News({i.request: i for i in statements}, frozenset(), {}, NEVER))
    )
    for _ in range(3):
        check_message(message, None, TERMS, known)
    assert len(asked) == 300
    assert set(asked.values()) == {1}
    forged = intent(7, b"bad")
    news = News({forged.request: forged}, frozenset(), {}, NEVER)
    for _ in range(2):  # the same bytes with another signature
        with pytest.raises(WireError, match="signature that is not"):
            check_message(Share(NEVER, Gossip(NONE, news=news)), None, TERMS, known)


def test_what_is_remembered_of_signatures_is_bounded() -> None:
    known = KnownSignatures(lambda *_: True, most=10)
    for k in range(100):
        assert known(0, b"%d" % k, b"s")
        assert len(known._known) <= 10


def test_one_author_cannot_fill_the_store_with_mismatches() -> None:
    """A mismatch names the departed agents, and a liar can invent any set of them."""
    s = State(TERMS, 0)
    s.peers.synced = True
    said = frozenset(
        AuditMismatch.write(
            1, lambda _: b"", network_id=NETWORK, agent=1, stamp=[k], departed=departed
        )
        for k in range(20)
        for departed in ([], [2], [3], [2, 3], [0], [0, 2], [0, 3])
    )
    heard = Share(NEVER, Gossip(NONE, news=News({}, said, {}, NEVER)))
    s, _ = handle(s, Received(1, heard, 0.0))
    assert len(s.known.mismatches) == 2 * 3  # two for each number of departed agents
    assert not s.audit_failed


charges = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1)), max_size=50)


@given(charges, st.floats(0.01, 1), st.floats(0.1, 10))
def test_a_budget_bounds_the_work_and_forgives(
    steps: list[tuple[float, float]], rate: float, burst: float
) -> None:
    """Who is read only while its budget lasts costs at most burst + rate · time + one message; who
    stops is read again after burst / rate seconds; nobody else pays."""
    budget, now, spent = WorkBudget(rate, burst), 0.0, 0.0
    for wait, part in steps:
        now, cost = now + wait, part * burst
        if not budget.exhausted(1, now):
            budget.charge(1, cost, now)
            spent += cost
            assert spent <= burst + rate * now + cost + 1e-6
        assert not budget.exhausted(2, now)
    assert not budget.exhausted(1, now + burst / rate + 1e-6)


@given(charges)
def test_a_charge_that_is_given_back_leaves_nothing(steps: list[tuple[float, float]]) -> None:
    budget, now = WorkBudget(0.1, 5.0), 0.0
    for wait, cost in steps:
        now += wait
        budget.charge(1, cost, now)
        budget.charge(1, -cost, now)
        assert not budget.exhausted(1, now)


# ------------------------------------------------------------------------------- private rounds

MASKED = tally_terms(graphs.ring(4), seed=1, privacy="masked")
SIGNERS = tally_signers(MASKED)
GOOD = Keyring().enrol()
LOW_ORDER = (  # all points of order 1, 2, 4 and 8, and their other encodings (RFC 7748, section 6)
    bytes(32),
    (1).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),
    (2**255 - 19).to_bytes(32, "little"),
    (2**255 - 18).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
)


def signature_holds(author: int, signed: bytes, signature: bytes) -> bool:
    return signature == SIGNERS[author](signed)


def enrolment(signer: int = 1, author: int = 1, **changes: Any) -> Enrolment:
    body = {"network_id": NETWORK, "agent": author, "incarnation": 7, "key": GOOD.hex()}
    return Enrolment.write(author, SIGNERS[signer], **(body | changes))


def passed(terms: Terms, masked: MaskedRound = NOT_MASKED, step: TokenStep | None = None) -> Pass:
    s = State(terms, 0)
    return Pass(empty_token(s, Stamp(1, 0, 1, 1, 1), masked), None, None, step)


def as_proof(message: Pass) -> Share:
    """The same token, in the gossip of an agent that accuses its sender."""
    return Share(NEVER, Gossip(NONE, news=News({}, frozenset(), {}, NEVER, {1: message})))


@pytest.mark.parametrize("place", ["keys", "spare"])
@pytest.mark.parametrize(
    ("one", "says"),
    [
        (enrolment(signer=2), "a one-time key that a2 did not sign"),
        (enrolment(author=2, signer=2), "in another agent's name"),
        (enrolment(agent=2), "in another agent's name"),
        (enrolment(network_id="00" * 32), "for another network"),
        *((enrolment(key=key.hex()), "that hides nothing") for key in LOW_ORDER),
        (enrolment(key="ab" * 31), "that hides nothing"),
    ],
)
def test_a_one_time_key_is_usable_and_signed_by_its_agent(
    one: Enrolment, says: str, place: str
) -> None:
    good = {0: enrolment(0, 0), 1: enrolment()}
    check_message(passed(MASKED, MaskedRound(**{place: good})), None, MASKED, signature_holds)
    for message in (bad := passed(MASKED, MaskedRound(**{place: good | {1: one}})), as_proof(bad)):
        with pytest.raises(WireError, match=says):
            check_message(message, None, MASKED, signature_holds)


def test_a_one_time_key_is_verified_once() -> None:
    asked: Counter[bytes] = Counter()

    def check(author: int, signed: bytes, signature: bytes) -> bool:
        asked[signed] += 1
        return signature_holds(author, signed, signature)

    known = KnownSignatures(check)
    keys = {k: enrolment(k, k) for k in range(4)}
    is_usable_key.cache_clear()
    for _ in range(3):
        check_message(passed(MASKED, MaskedRound(keys, keys)), None, MASKED, known)
    assert list(asked.values()) == [1] * 4
    assert is_usable_key.cache_info().misses == 1  # here all agents have the same key


VALUE = Revealed(b"s" * 16, TERMS.eta0)
BOTH = VALUE._replace(audit=TERMS.eta0)


@pytest.mark.parametrize(
    ("terms", "masked", "shown", "says"),
    [
        (TERMS, MaskedRound({0: enrolment(0, 0)}), None, "manifest says privacy = plain"),
        (TERMS, MaskedRound(point=b"p"), None, "manifest says privacy = plain"),
        (TERMS, MaskedRound(rested=True), None, "manifest says privacy = plain"),
        (TERMS, NOT_MASKED, (None, BOTH), "manifest says privacy = plain"),
        (MASKED, NOT_MASKED, (None, VALUE), "manifest says privacy = masked"),
        (MASKED, NOT_MASKED, (VALUE, BOTH), "manifest says privacy = masked"),
        (MASKED, MaskedRound(point=b"p"), None, "this model needs none"),
    ],
)
def test_the_parts_of_the_other_mode_are_refused(
    terms: Terms, masked: MaskedRound, shown: tuple[Any, Any] | None, says: str
) -> None:
    step = None if shown is None else TokenStep(None, OUT, *shown)
    for message in (sent := passed(terms, masked, step), as_proof(sent)):
        with pytest.raises(WireError, match=says):
            check_message(message, None, terms, signature_holds)


def test_a_token_with_factors_and_without_one_time_keys_is_refused_under_masks() -> None:
    message = passed(MASKED)
    plain = message.token._replace(inside=message.token.inside.plus(2))
    with pytest.raises(WireError, match="manifest says privacy = masked"):
        check_message(message._replace(token=plain), None, MASKED, signature_holds)


@pytest.mark.parametrize(
    ("terms", "more"), [(TERMS, (b"n" * 32,)), (TERMS, (b"", {1: 2})), (MASKED, ())]
)
def test_a_park_notice_of_the_other_mode_is_refused(terms: Terms, more: tuple[Any, ...]) -> None:
    included = Vector((OUT,) * 4)
    parked = ParkNotice(Stamp(1, 0, 1, 1, 1), 0, included, NOBODY, {}, b"", *more)
    with pytest.raises(WireError, match="the manifest says privacy"):
        check_message(Share(NEVER, Gossip(NONE, parked=parked)), None, terms, signature_holds)
