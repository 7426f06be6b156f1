"""What an agent checks before it handles a message costs little, and little more when repeated."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tally import tally_terms

from unweave.errors import WireError
from unweave.graph import graphs
from unweave.protocol.admission import KnownSignatures, WorkBudget, check_message
from unweave.protocol.events import Received
from unweave.protocol.machine import handle
from unweave.protocol.messages import Digests, Gossip, News, Share
from unweave.protocol.state import State
from unweave.protocol.statements import AuditMismatch, Intent
from unweave.protocol.token import NEVER, request_id

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
