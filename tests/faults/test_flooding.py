"""A liar that floods its neighbours uses up its budget of work; no honest agent ever does."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from tests.support.tally import run_faults

from unweave.protocol.admission import WorkBudget
from unweave.protocol.messages import Message
from unweave.protocol.state import State
from unweave.simulator.faults import Profile
from unweave.simulator.insider import InsiderWorld
from unweave.simulator.lies import Liar

COST = 0.001  # seconds of work for a message: more than a real one takes
FAULTS = Profile(lies=2.0, automatic=1.0, erase=0.01, data=0.01, drop=0.1, crash=0.002)


def flood(self: Liar, s: State) -> list[Message]:
    """The same message, often."""
    return [self.said[-1]] * 300 if self.said else []


@pytest.mark.parametrize("seed", range(2))
def test_only_a_flood_uses_up_a_budget(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the network comes to rest with the exact sum, while the flood is not read."""
    budgets: dict[int, WorkBudget] = defaultdict(lambda: WorkBudget(0.1, 0.5))
    admits, choose = InsiderWorld._admits, Liar.choose_habits
    unread = 0

    def within_budget(self: InsiderWorld, k: int, sender: int, message: Message) -> bool:
        nonlocal unread
        if budgets[k].exhausted(sender, self.now):
            assert sender == self.liar, f"{sender} is honest, and {k} does not read it"
            unread += 1
            return False
        budgets[k].charge(sender, COST, self.now)
        return admits(self, k, sender, message)

    def only(self: Liar) -> None:
        choose(self)
        habits: dict[str, Any] = {"swallows": 0.0, "withholds": 0.0, "twists": 0.0}
        vars(self).update(habits, kinds=[("flood", flood)], pace=3.0)

    monkeypatch.setattr(InsiderWorld, "_admits", within_budget)
    monkeypatch.setattr(Liar, "choose_habits", only)
    run_faults(seed, FAULTS, events=3000, size=4)
    assert unread > 0
