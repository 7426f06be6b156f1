"""What differential privacy does to a value before it is masked: the `Release` of a keyring.

The ledger is charged first, durably, then the noise is drawn. A process that ends between the two
has spent a part of its budget for nothing; it never gives a value that was not paid for.

A ledger that was lost or restored has forgotten values. If all neighbours vouch for what they have
seen, the number is known again. If one cannot, nobody knows it: the whole budget counts as spent.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from unweave.errors import StoreError
from unweave.grid import Ints
from unweave.privacy.discrete_gaussian import Source
from unweave.privacy.ledger import BudgetSpent, Ledger, affordable

__all__ = ["NoiseShares", "NoisyRelease"]


class NoiseShares(Protocol):
    """What a `Mechanism` is to a release: the cost of a value, and a share of noise."""

    @property
    def rho(self) -> float: ...
    @property
    def budget(self) -> float: ...
    def draw(self, source: Source = ...) -> Ints: ...


class NoisyRelease:
    """Of one agent. `on_missing` hears how many values a restored ledger had forgotten, `on_unsure`
    how many are charged because nobody knows, and `on_noise` each key with the noise that it was
    given (simulations check sums with it)."""

    def __init__(
        self,
        shares: NoiseShares,
        ledger: Ledger,
        source: Source = os.urandom,
        *,
        on_missing: Callable[[int], None] = lambda missing: None,
        on_unsure: Callable[[int], None] = lambda charged: None,
        on_noise: Callable[[bytes, Ints], None] = lambda key, noise: None,
    ) -> None:
        self.shares = shares
        self.ledger = ledger
        self._source = source
        self._on_missing = on_missing
        self._on_unsure = on_unsure
        self._on_noise = on_noise
        self._failed: StoreError | None = None

    @property
    def given(self) -> int:
        return self.ledger.given

    @property
    def left(self) -> int:
        """How many more values the budget pays for."""
        return affordable(self.ledger.budget, self.ledger.spent, self.shares.rho)

    def begin(self, given: int) -> None:
        """A new incarnation of the agent, whose store counts so many given values: the ledger may
        be older, and a disk that failed may be back."""
        self._failed = None
        self._catch_up(given)

    def observe(self, given: int, vouched: bool) -> None:
        if self._failed is not None:
            # No key: a round that breaks off again costs every other agent a part of its budget.
            raise self._failed
        self._catch_up(given)
        if not self.ledger.in_doubt:
            return
        if vouched:
            self.ledger.vouch()
        elif rest := self.left:
            self.ledger.observe(self.given + rest, self.shares.rho)
            self._on_unsure(rest)

    def _catch_up(self, given: int) -> None:
        missing = self.ledger.observe(given, self.shares.rho)
        if missing:
            self._on_missing(missing)

    def pays_for(self, values: int) -> bool:
        return self.left >= values

    def release(self, key: bytes, units: Ints) -> Ints | None:
        try:
            self.ledger.charge(key, self.shares.rho)
        except BudgetSpent:
            return None
        except StoreError as error:
            self._failed = error
            raise
        noise = self.shares.draw(self._source)
        self._on_noise(key, noise)
        value: Ints = units + noise
        return value
