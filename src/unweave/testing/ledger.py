"""Laws for every privacy ledger. A law takes `reopen`, which opens the same account anew each time
with a budget (the ledger from the call before is closed or was killed), and raises AssertionError.

    @pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
    def test_ledger(law): law(reopen)
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from unweave.errors import StoreError
from unweave.privacy.ledger import BudgetSpent, Ledger

__all__ = ["LAWS", "Law", "Reopen"]

Reopen = Callable[[float], Ledger]
Law = Callable[[Reopen], None]

RHO = 0.1  # no binary fraction: ten of them are more than 1.0 in exact arithmetic


def a_new_account_is_empty(reopen: Reopen) -> None:
    for _ in range(2):
        ledger = reopen(1.0)
        assert (ledger.spent, ledger.given, ledger.budget) == (Fraction(0), 0, 1.0)
        ledger.close()


def charges_survive(reopen: Reopen) -> None:
    for n in range(1, 5):
        ledger = reopen(1.0)
        ledger.charge(bytes([n]), RHO / n)
        assert ledger.given == n
        ledger.close()
    ledger = reopen(1.0)
    assert ledger.spent == sum(Fraction(RHO / n) for n in range(1, 5))
    assert ledger.given == 4
    ledger.close()


def the_budget_is_never_exceeded(reopen: Reopen) -> None:
    """Also not by a rounding error: 10 · 0.1 is more than 1 in exact arithmetic."""
    ledger = reopen(1.0)
    for n in range(9):
        ledger.charge(bytes([n, 1]), RHO)
    before = ledger.spent
    for _ in range(2):
        assert _refused(ledger, b"last", RHO, BudgetSpent)
        assert (ledger.spent, ledger.given) == (before, 9)
    ledger.charge(b"small", 0.05)
    assert ledger.spent <= 1
    ledger.close()


def a_key_is_charged_once(reopen: Reopen) -> None:
    ledger = reopen(1.0)
    ledger.charge(b"key", RHO)
    assert _refused(ledger, b"key", RHO, StoreError)
    ledger.close()
    ledger = reopen(1.0)
    assert _refused(ledger, b"key", RHO, StoreError)
    assert ledger.given == 1
    ledger.charge(b"other", RHO)
    ledger.close()


def what_others_have_seen_counts(reopen: Reopen) -> None:
    ledger = reopen(1.0)
    ledger.charge(b"one", RHO)
    assert ledger.observe(1, RHO) == 0
    assert ledger.observe(0, RHO) == 0
    assert ledger.given == 1
    assert ledger.observe(4, RHO) == 3
    assert (ledger.given, ledger.spent) == (4, 4 * Fraction(RHO))
    ledger.close()
    ledger = reopen(1.0)
    assert (ledger.given, ledger.spent) == (4, 4 * Fraction(RHO))
    assert ledger.observe(6, RHO) == 2
    ledger.close()


def more_than_the_budget_may_be_seen(reopen: Reopen) -> None:
    """A restored ledger can learn that all is spent; then nothing more is given."""
    ledger = reopen(1.0)
    assert ledger.observe(100, RHO) == 100
    assert _refused(ledger, b"key", 1e-9, BudgetSpent)
    ledger.close()
    ledger = reopen(1.0)
    assert ledger.spent == 100 * Fraction(RHO)
    assert _refused(ledger, b"key", 1e-9, BudgetSpent)
    ledger.close()


def a_ledger_that_lacked_values_is_in_doubt_until_somebody_vouches(reopen: Reopen) -> None:
    ledger = reopen(1.0)
    assert not _in_doubt(ledger)
    ledger.vouch()
    ledger.charge(b"one", RHO)
    assert not _in_doubt(ledger)
    for n in range(3):
        if n == 1:
            assert ledger.observe(ledger.given + 1, RHO) == 1
        else:
            ledger.doubt()
            ledger.doubt()
        assert _in_doubt(ledger)
        ledger.charge(bytes([n]), RHO)  # a value that is given ends no doubt
        ledger.close()
        ledger = reopen(1.0)
        assert _in_doubt(ledger)
        assert ledger.observe(0, RHO) == 0
        assert _in_doubt(ledger)
        ledger.vouch()
        ledger.close()
        ledger = reopen(1.0)
        assert not _in_doubt(ledger)
    assert (ledger.given, ledger.spent) == (5, 5 * Fraction(RHO))  # a doubt costs nothing
    ledger.close()


def _in_doubt(ledger: Ledger) -> bool:
    return ledger.in_doubt


def _refused(ledger: Ledger, key: bytes, rho: float, error: type[Exception]) -> bool:
    try:
        ledger.charge(key, rho)
    except error:
        return True
    return False


LAWS: tuple[Law, ...] = (
    a_new_account_is_empty,
    charges_survive,
    the_budget_is_never_exceeded,
    a_key_is_charged_once,
    what_others_have_seen_counts,
    more_than_the_budget_may_be_seen,
    a_ledger_that_lacked_values_is_in_doubt_until_somebody_vouches,
)
