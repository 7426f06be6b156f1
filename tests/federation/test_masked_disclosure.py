"""What a neighbour computes from the tokens of private rounds: nothing about one agent.

The attack is the one that recovers records in plain mode (tests/models/test_disclosure.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats
from sklearn.datasets import load_breast_cancer

from unweave import BetaBernoulli, Federation
from unweave.models import LogisticRegression
from unweave.protocol.events import Effect, Send
from unweave.protocol.messages import Pass
from unweave.protocol.state import State
from unweave.protocol.token import Token


class Wiretap:
    """Every token that leaves an agent, with the one before it."""

    def __init__(self) -> None:
        self.tokens: list[Token] = []

    def after(self, agent: int, before: State, after: State, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Pass):
                self.tokens.append(effect.message.token)

    def given_by(self, agent: int) -> list[np.ndarray]:
        """The differences of two tokens in a row of which only the second includes the agent."""
        pairs = zip(self.tokens, self.tokens[1:], strict=False)
        return [
            b.eta - a.eta
            for a, b in pairs
            if b.inside == a.inside.plus(agent) and agent not in a.inside
        ]


def tapped(model, shards, **settings) -> tuple[Federation, Wiretap]:
    federation, tap = Federation(model, shards, **settings), Wiretap()
    federation._walk.world.observers.append(tap)
    return federation, tap


def recovered(model: LogisticRegression, factors: list[np.ndarray], records: np.ndarray) -> float:
    """The share of records that two factors of an agent give back within 0.05 sd."""
    first, second = (model.gaussian(model.grid.decode(one)).precision for one in factors[:2])
    n = len(records)
    spectrum, basis = np.linalg.eigh(first)
    basis = basis[:, -n:] / np.sqrt(np.abs(spectrum[-n:]))
    _, turned = np.linalg.eigh(basis.T @ second @ basis)
    found = (first @ basis @ turned).T
    found = found[:, 1:] / found[:, :1]
    return float(np.mean([np.abs(found - one).max(axis=1).min() < 0.05 for one in records]))


def test_tokens_of_private_rounds_give_no_record_back() -> None:
    x, y = load_breast_cancer(return_X_y=True)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    parts = [slice(12 * k, 12 * k + 12) for k in range(5)]
    shards = [(x[part], y[part]) for part in parts]
    model = LogisticRegression(30, intercept=True)
    plain, seen = tapped(model, shards, seed=1)
    plain.learn()
    ones = [recovered(model, _changes(seen, k), x[parts[k]]) for k in range(1, 5)]
    assert max(ones) > 0.8  # the attack works where it should
    masked, seen = tapped(model, shards, seed=1, privacy="masked")
    masked.learn()
    for k in range(5):
        given = [one[: model.grid.dim] for one in seen.given_by(k)]
        assert len(given) >= 2
        assert recovered(model, given, x[parts[k]]) == 0.0


def _changes(tap: Wiretap, agent: int) -> list[np.ndarray]:
    """In plain mode a visit takes the old factor out and puts the new one in: both are seen."""
    factors, total = [], 0
    for a, b in zip(tap.tokens, tap.tokens[1:], strict=False):
        if a.included[agent] != b.included[agent]:
            total = total + (b.eta - a.eta)
            factors.append(total)
    return factors


def test_partial_sums_are_independent_of_the_data() -> None:
    """Two networks whose records are as different as can be: thousands of words of partial tokens
    have the same, uniform distribution."""
    words: dict[bool, list[int]] = {False: [], True: []}
    for value in (False, True):
        for seed in range(60):
            shards = [np.full(40, value) for _ in range(6)]
            federation, tap = tapped(BetaBernoulli(), shards, seed=seed, privacy="masked")
            federation.learn()
            partial = [t for t in tap.tokens if t.inside and len(t.inside) < 6]
            assert len({t.eta.tobytes() for t in partial}) == 5
            distinct = {t.eta.tobytes(): t.eta for t in partial}
            words[value] += [int(v) % 2**64 for eta in distinct.values() for v in eta]
    scaled = {value: np.array(found, dtype=float) / 2.0**64 for value, found in words.items()}
    for found in scaled.values():
        assert len(found) == 600
        assert stats.kstest(found, "uniform").pvalue > 1e-4
    assert stats.ks_2samp(scaled[False], scaled[True], method="asymp").pvalue > 1e-4
    low = [
        np.bincount(np.array(found, dtype=np.uint64) & 15, minlength=16) for found in words.values()
    ]
    assert stats.chi2_contingency(np.array(low)).pvalue > 1e-4
