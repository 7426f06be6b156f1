"""`Federation(privacy="masked")`: private rounds, with the sums of the plain walk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unweave import BetaBernoulli, Federation, LinearRegression
from unweave.errors import ConfigError, DataError, GridOverflow
from unweave.models import LogisticRegression, NormalKnownVariance

RNG = np.random.default_rng(11)
COINS = [RNG.random(20) < 0.3 for _ in range(6)]


def pair(schedule: str = "sweep", shards: list = COINS, model=None, graph="ring") -> tuple:
    model = BetaBernoulli() if model is None else model
    plain = Federation(model, shards, graph, schedule, seed=3)
    return plain, Federation(model, shards, graph, schedule, seed=3, privacy="masked")


@pytest.mark.parametrize("schedule", ["sweep", "metropolis"])
def test_sums_are_those_of_the_plain_walk_bit_for_bit(schedule: str) -> None:
    plain, masked = pair(schedule)
    for step in (
        lambda f: f.learn(),
        lambda f: f.forget("a2"),
        lambda f: f.forget(records={"a1": [0, 1]}),
        lambda f: f.update("a3", np.ones(7)).learn(),
    ):
        step(plain)
        step(masked)
        assert np.array_equal(plain.units, masked.units)
        assert plain.included == masked.included
    assert [e.kind for e in masked.erasures] == ["exact", "exact"]
    assert [e.moved for e in masked.erasures] == [e.moved for e in plain.erasures]
    assert masked.audit().digest == plain.audit().digest
    assert masked.audit().attested == masked.agents
    # Enrol, give, attest: a round costs more than a visit, and nothing is shown before its end.
    assert len(masked.history) > len(plain.history)
    assert len({step.units.tobytes() for step in masked.history}) == 5


def test_a_regression_is_the_same_sum() -> None:
    rows = RNG.normal(size=(60, 3))
    shards = [{"x1": p[:, 0], "x2": p[:, 1], "y": p[:, 2]} for p in np.array_split(rows, 5)]
    model = LinearRegression(features=("x1", "x2"), target="y")
    plain, masked = pair("sweep", shards, model, "star")
    assert masked.learn().posterior == plain.learn().posterior
    assert masked.forget("a4").posterior == plain.forget("a4").posterior


def test_a_changed_record_is_not_shown_before_its_round_is_complete() -> None:
    _, masked = pair()
    before = masked.learn().posterior
    masked.update("a3", np.ones(7))
    assert masked.posterior == before
    assert masked.learn().posterior != before


def test_too_few_agents_have_no_posterior_but_a_certified_erasure() -> None:
    _, masked = pair()
    masked.learn().forget(["a1", "a2"])
    assert len(masked.included) == 4
    masked.forget("a3")
    assert masked.included == ()
    assert set(masked.audit().attested) == set(masked.agents)
    assert np.isnan(masked.erasures[-1].moved)
    with pytest.raises(DataError, match="3 agents remain, and no sum is published for fewer than"):
        masked.posterior.mean()
    with pytest.raises(DataError, match="min_roster = 4"):
        masked.learn()


def test_a_factor_beyond_its_share_of_the_grid_is_an_error_and_no_silent_zero() -> None:
    model = NormalKnownVariance(bits=40)
    shards = [np.full(5, 1.0) for _ in range(4)]
    shards[2] = np.full(5, 1.0e6)
    _, masked = pair("sweep", shards, model)
    for _ in range(2):  # also when another agent's change starts the next round
        with pytest.raises(GridOverflow, match="a3 is not in the sum: its sums do not fit"):
            masked.learn()
        masked.update("a1", np.full(6, 2.0))
    masked.update("a3", np.full(5, 1.0)).learn()
    assert masked.included == masked.agents


@pytest.mark.parametrize("schedule", ["sweep", "metropolis"])
def test_a_saved_network_goes_on_with_other_keys(schedule: str, tmp_path: Path) -> None:
    plain, masked = pair(schedule)
    masked.learn().save(tmp_path / "m.json")
    again = Federation.load(tmp_path / "m.json")
    assert again.privacy == masked.privacy
    assert again.posterior == masked.posterior
    plain.learn().update("a4", np.ones(3)).learn()
    before = given_keys(again)
    again.update("a4", np.ones(3)).learn()
    assert again.posterior == plain.posterior
    # The network goes on twice, from one state: no key may mask a value in both.
    masked.update("a4", np.zeros(3)).learn()
    assert len(given_keys(again) - before) >= 6
    assert not (given_keys(again) - before) & (given_keys(masked) - before)


def given_keys(federation: Federation) -> set[bytes]:
    """The public halves of the keys that have masked a value, of all agents."""
    states = [federation._walk.world.state(k) for k in range(len(federation.agents))]
    return {f.given.key for s in states for f in s.own.factors if f.given is not None}


def test_what_masks_exclude_is_refused_with_the_reason() -> None:
    _, masked = pair()
    masked.learn()
    for call in (masked.influence, lambda: masked.factor("a1")):
        with pytest.raises(ConfigError, match=r"no agent sees another's factor.*Fix: "):
            call()
    with pytest.raises(ConfigError, match=r"shows nothing before it is complete\. Fix: leave"):
        masked.learn(3)
    with pytest.raises(ConfigError, match="could be subtracted"):
        masked.forget("a1", method="subtract")
    for wrong in ({"privacy": "dark"}, {"privacy": "masked", "solve": "visit"}):
        with pytest.raises(ConfigError, match="Fix: "):
            Federation(BetaBernoulli(), COINS, **wrong)
    with pytest.raises(ConfigError, match="at least 4 agents, not 3"):
        Federation(BetaBernoulli(), COINS[:3], privacy="masked")
    with pytest.raises(ConfigError, match="no private rounds"):
        Federation("beta-exponential", [np.full(9, 0.5)] * 4, privacy="masked")


LOGISTIC = LogisticRegression(features=2, intercept=True)


def patients() -> list:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    y = rng.random(300) < 1 / (1 + np.exp(-(x @ [1.0, -1.0] + 0.3)))
    return np.array_split(np.column_stack([x, y]), 6)


def test_a_glm_learns_in_several_rounds_to_the_plain_result() -> None:
    plain, masked = pair("sweep", patients(), LOGISTIC)
    plain.learn(tol=1e-8), masked.learn()
    assert masked.posterior.kl(plain.posterior) < 1e-4
    assert masked.token.masked.step > 1
    first = masked.posterior.kl(plain.posterior)
    masked.learn(tol=1e-9)
    assert masked.posterior.kl(plain.posterior) < min(first, 1e-6)
    plain.forget("a2", tol=1e-8)
    masked.forget("a2", tol=1e-8)
    assert masked.posterior.kl(plain.posterior) < 1e-6
    masked.forget(records={"a1": [0, 1, 2]}, method="retrain")
    assert [e.kind for e in masked.erasures] == ["refined", "retrained"]


def test_a_glm_is_saved_and_goes_on(tmp_path: Path) -> None:
    masked = Federation(LOGISTIC, patients(), privacy="masked", seed=1).learn()
    masked.save(tmp_path / "m.json")
    again = Federation.load(tmp_path / "m.json")
    assert again.posterior == masked.posterior
    rows = patients()[2][:10]
    assert again.update("a3", rows).learn().posterior == masked.update("a3", rows).learn().posterior


def test_solvers_without_private_rounds_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"no private rounds.*Fix: "):
        Federation(LOGISTIC, patients(), solver="ep", privacy="masked")
    masked = Federation(LOGISTIC, patients(), privacy="masked")
    with pytest.raises(ConfigError, match="private rounds end at a tolerance"):
        masked.learn(until="identical")


def test_a_lone_change_is_the_difference_of_two_published_sums() -> None:
    """What masks do not hide, as docs/explanation/security.md says."""
    _, masked = pair()
    before = masked.learn().units
    masked.forget(records={"a1": [4]})
    record = masked.model.factor(masked.model.shard(COINS[0][4:5], "a1"))
    assert np.array_equal(before - masked.units, record)


def test_a_lone_leaver_is_the_difference_of_two_published_sums() -> None:
    _, masked = pair()
    before = masked.learn().units
    masked.forget("a3")
    factor = masked.model.factor(masked.model.shard(COINS[2], "a3"))
    assert np.array_equal(before - masked.units, factor)
