"""What a neighbour computes from the tokens of private rounds: nothing about one agent.

The attack is the one that recovers records in plain mode (tests/models/test_disclosure.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_breast_cancer

from unweave import BetaBernoulli, Federation
from unweave.models import (
    DirichletCategorical,
    LinearRegression,
    LogisticRegression,
    NormalUnknown,
)
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


# Models, and the records of an agent in two networks that are as different as can be.
MODELS = {
    "beta-bernoulli": (BetaBernoulli(), lambda on: np.full(40, on)),
    "dirichlet-categorical": (DirichletCategorical(4), lambda on: np.full(40, 3 * on)),
    "normal-unknown": (NormalUnknown(), lambda on: np.linspace(-1, 1, 20) + 900 * on),
    "linear-regression": (
        LinearRegression(2, noise=1.0),
        lambda on: (np.eye(20, 2) * (1 + 50 * on), np.full(20, 7.0 * on)),
    ),
    "logistic-regression": (
        LogisticRegression(2),
        lambda on: (np.column_stack([np.arange(20) % 3, np.arange(20) % 2]), np.full(20, on)),
    ),
}


def partial_sums(name: str, on: bool, networks: int) -> np.ndarray:
    """The distinct incomplete sums on tokens, as unsigned words [tokens, D]."""
    model, records = MODELS[name]
    found: dict[bytes, np.ndarray] = {}
    for seed in range(networks * on, networks * (1 + on)):  # other keys in the other network
        shards = [records(on) for _ in range(6)]
        federation, tap = tapped(model, shards, seed=seed, privacy="masked")
        federation.learn()
        mine = {t.eta.tobytes(): t.eta for t in tap.tokens if t.inside and len(t.inside) < 6}
        assert len(mine) % 5 == 0  # five in every round
        assert len(mine) >= 5
        found |= mine
    return np.array([*found.values()]).view(np.uint64)


def check_independent(name: str, networks: int) -> int:
    """Incomplete sums are uniform, whatever the data are; returns their number."""
    both = [partial_sums(name, on, networks) for on in (False, True)]
    least = 1e-6
    scaled = [found.astype(float) / 2.0**64 for found in both]
    for found, part in zip(both, scaled, strict=True):
        assert stats.kstest(part.ravel(), "uniform").pvalue > least
        assert stats.chisquare(np.bincount(found.view(np.uint8).ravel())).pvalue > least
        # No component tells another one, or the next token's.
        flat = part.ravel()
        assert stats.spearmanr(flat[:-1], flat[1:]).pvalue > least
    assert stats.ks_2samp(*(p.ravel() for p in scaled), method="asymp").pvalue > least
    low = [np.bincount((found.ravel() & np.uint64(15)).astype(int), minlength=16) for found in both]
    assert stats.chi2_contingency(np.array(low)).pvalue > least
    return sum(map(len, both))


@pytest.mark.parametrize("name", MODELS)
def test_partial_sums_are_independent_of_the_data(name: str) -> None:
    assert check_independent(name, 8) >= 80


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_thousands_of_partial_sums_are_independent_of_the_data(name: str) -> None:
    assert check_independent(name, 100) >= 1000


def test_partial_sums_without_masks_are_found_out() -> None:
    """The tests can fail: the sums of plain mode are not uniform."""
    federation, tap = tapped(BetaBernoulli(), [np.full(40, True)] * 6, seed=1)
    federation.learn()
    words = np.array([t.eta for t in tap.tokens if t.inside]).view(np.uint64).ravel()
    assert stats.kstest(words.astype(float) / 2.0**64, "uniform").pvalue < 1e-6
