"""The privacy account of one agent: what its given values have cost, against the network's budget.

The laws of every ledger (`unweave.testing.ledger`):

1. A charge is durable when `charge` returns. Nothing leaves the agent before that, so a charge may
   count a value that never left, and never misses one that did.
2. A charge that the budget cannot pay is refused, and changes nothing.
3. A key is charged once: one key masks one value.
4. Nothing is ever refunded: not by a crash, not by an erasure, not by a round that failed.
5. `observe` raises the number of given values to what others have seen, and charges the missing
   ones. This is how a ledger that was restored from a backup catches up: a backup forgets what was
   given since, but the network does not.
6. A ledger that lacked values, or that was restored (`doubt`), is in doubt until `vouch`, durably:
   it has forgotten values, perhaps more than were missing.

Law 5 needs somebody who remembers. An agent states the number of its given values (`given`) in its
signed enrolments, which its neighbours keep; it also keeps the number in its own store. Both are
shown to `observe` before the next charge. Law 6 is for what nobody remembers any more: only all
neighbours together can vouch for the number (`protocol.given`). If they do not, the budget counts
as spent (`release`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

from unweave.errors import StoreError, UnweaveError

__all__ = ["BudgetSpent", "Ledger", "MemoryLedger", "affordable", "check_charge", "repeated"]


class BudgetSpent(UnweaveError):
    """The privacy budget does not pay for another value."""


class Ledger(Protocol):
    """The account of one agent. `rho` and `spent` are exact sums of costs in zCDP."""

    @property
    def budget(self) -> float:
        """The total cost that the network's (epsilon, delta) allows."""

    @property
    def spent(self) -> Fraction:
        """The total cost of all given values."""

    @property
    def given(self) -> int:
        """The number of given values, with those that only others remember."""

    def charge(self, key: bytes, rho: float) -> None:
        """Durably charge ρ for the value that `key` will mask. BudgetSpent if there is too little
        left; StoreError if the key was charged before."""

    @property
    def in_doubt(self) -> bool:
        """Whether the ledger may have forgotten values that nobody has shown yet."""

    def observe(self, given: int, rho: float) -> int:
        """Durably count at least `given` values, the missing ones at ρ each. Returns how many were
        missing: above 0, the ledger is older than the truth, and in doubt."""

    def doubt(self) -> None:
        """Durably note that the ledger was restored."""

    def vouch(self) -> None:
        """Durably note that all who remember given values have shown what they know."""

    def close(self) -> None: ...


def affordable(budget: float, spent: Fraction, rho: float) -> int:
    """How many more values of cost ρ the budget pays for."""
    return max(0, int((Fraction(budget) - spent) / Fraction(rho)))


def check_charge(budget: float, spent: Fraction, given: int, rho: float) -> None:
    """BudgetSpent unless the budget pays for one more value of cost ρ."""
    if not rho > 0:
        raise ValueError(f"rho = {rho}")
    if not affordable(budget, spent, rho):
        raise BudgetSpent(
            f"the privacy budget is spent: {given} values were given, at a total cost of "
            f"{float(spent):.6g} of {budget:.6g} (zCDP). Fix: a new network with other terms; "
            "records that were in the old one have spent its epsilon there"
        )


@dataclass
class MemoryLedger:
    """A ledger of one process, for simulations: it ends with the process."""

    budget: float
    spent: Fraction = Fraction(0)
    given: int = 0
    keys: set[bytes] = field(default_factory=set)
    in_doubt: bool = False

    def charge(self, key: bytes, rho: float) -> None:
        if key in self.keys:
            raise StoreError(repeated(key))
        check_charge(self.budget, self.spent, self.given, rho)
        self.keys.add(key)
        self.spent += Fraction(rho)
        self.given += 1

    def observe(self, given: int, rho: float) -> int:
        missing = max(0, given - self.given)
        self.spent += missing * Fraction(rho)
        self.given += missing
        self.in_doubt |= missing > 0
        return missing

    def doubt(self) -> None:
        self.in_doubt = True

    def vouch(self) -> None:
        self.in_doubt = False

    def close(self) -> None:
        return None


def repeated(key: bytes) -> str:
    """The error of a second charge."""
    return (
        f"the key {key.hex()[:16]}… was charged before, and one key masks one value. Fix: start "
        "the agent again; it draws new keys"
    )
