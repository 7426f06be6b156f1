"""One kind of lie at a time: it delays, and nothing else.

A run checks every invariant after every event, and at its end that the honest agents are at rest
with the exact sum, whether the liar stops or is voted out. docs/explanation/security.md has a
row for each kind.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.support.tally import run_faults

from unweave.simulator.faults import Profile
from unweave.simulator.forgeries import ROUND_TWISTS, TWISTS
from unweave.simulator.insider import InsiderWorld
from unweave.simulator.invariants import known_departed
from unweave.simulator.lies import DISTURBANCES, Liar

LIES = dict(DISTURBANCES) | {"revived": Liar.revived}
ROUNDS = dict(ROUND_TWISTS)
TOKENS = dict(TWISTS) | ROUNDS

# What every agent can check again: a wrong step, under the liar's signature.
PROVABLE = (
    "audit", "dropped", "edge", "epoch", "eta", "exchanged", "included", "initiator", "renamed",
    "self given", "unshown",
)  # fmt: skip
CALM = Profile(lies=2.0, automatic=1.0, erase=0.01, data=0.01)


def told(monkeypatch: pytest.MonkeyPatch, **habits: Any) -> Counter[str]:
    """The lies of two runs whose liar has these habits only; in how many it was voted out by a
    proof."""
    choose, twist = Liar.choose_habits, Liar.twisted
    habits = {"swallows": 0.0, "withholds": 0.0, "twists": 0.0, "kinds": [], **habits}

    def only(self: Liar) -> None:
        choose(self)
        vars(self).update(habits, pace=1.0)

    def twisted(self: Liar, message: Any) -> Any:
        """A lie about a round needs one."""
        in_a_round = message.token.round.audit is not None
        return (
            twist(self, message)
            if in_a_round or habits["favourites"][0][0] not in ROUNDS
            else message
        )

    monkeypatch.setattr(Liar, "choose_habits", only)
    monkeypatch.setattr(Liar, "twisted", twisted)
    if not habits["kinds"]:
        monkeypatch.setattr(Liar, "lie", lambda self: ())
    lies: Counter[str] = Counter()
    for seed in (1, 2, 3):
        outcome = run_faults(seed, CALM, events=160, size=4)
        world = outcome.world
        assert isinstance(world, InsiderWorld)
        lies += world.lies.told
        by_hand = outcome.workload.counts["votes"] > 0
        lies["proved"] += world.liar in known_departed(world) and not by_hand
    return lies


@pytest.mark.parametrize("kind", LIES)
def test_a_lie_only_delays(kind, monkeypatch):
    lies = told(monkeypatch, kinds=[(kind, LIES[kind])])
    assert lies[kind] > 0
    assert not lies["proved"] or kind == "revived"


@pytest.mark.parametrize("kind", TOKENS)
def test_a_wrong_token_only_delays(kind, monkeypatch):
    lies = told(monkeypatch, twists=0.7, favourites=[(kind, TOKENS[kind])])
    assert lies["token: " + kind] > 0
    assert bool(lies["proved"]) or kind not in PROVABLE


def test_a_swallowed_token_only_delays(monkeypatch):
    lies = told(monkeypatch, swallows=0.9)
    assert lies["swallowed"] > 0
    assert not lies["proved"]
