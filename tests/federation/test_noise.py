"""A federation with differential privacy: clipped records, noisy sums, posteriors that know it."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from unweave import (
    BetaBernoulli,
    DirichletCategorical,
    Federation,
    LinearRegression,
    NormalKnownVariance,
)
from unweave.errors import ConfigError, DataError
from unweave.federation.saving import _ledger, _ledger_values
from unweave.privacy.ledger import BudgetSpent, MemoryLedger
from unweave.privacy.noisy import NoisyPosterior
from unweave.privacy.terms import Bounds, PrivacyTerms

PROMISE = {"epsilon": 1.0, "delta": 1e-6, "releases": 4}


def coins(agents: int = 5, n: int = 200) -> list[dict]:
    rng = np.random.default_rng(0)
    return [{"x": rng.integers(0, 2, n)} for _ in range(agents)]


def private(releases: int = 4, **more) -> Federation:
    promise = PROMISE | {"releases": releases} | more
    return Federation(BetaBernoulli(), coins(), "ring", privacy=promise)


def drawn(federation: Federation) -> np.ndarray:
    """The noise in the published sum."""
    walk, token = federation._walk, federation.token
    total = federation.model.grid.zeros()
    for k in token.inside:
        given = walk.world.state(k).own.factor(token.included[k]).given
        total = total + walk.noise.drawn[given.key]
    return total


CASES = {
    "bernoulli": (BetaBernoulli(), coins(), {}),
    "dirichlet": (
        DirichletCategorical(classes=3),
        [{"x": np.random.default_rng(k).integers(0, 3, 100)} for k in range(5)],
        {},
    ),
    "normal": (
        NormalKnownVariance(noise=1.0),
        [{"x": np.random.default_rng(k).normal(1, 3, 100)} for k in range(5)],
        {"bounds": {"x": (-2, 2)}},
    ),
    "regression": (
        LinearRegression(features=["u"], noise=1.0),
        [{"u": (u := np.random.default_rng(k).normal(size=100)), "y": 2 * u + 1} for k in range(5)],
        {"norm": 3.0},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_sum_without_its_noise_is_that_of_the_clipped_records_bit_for_bit(case):
    model, shards, bounds = CASES[case]
    noisy = Federation(model, shards, "ring", privacy=PROMISE | bounds).learn()
    clipped = noisy._walk.mechanism.model
    exact = clipped.eta0
    for k, part in enumerate(shards):
        exact = clipped.grid.add(exact, clipped.factor(clipped.shard(part, f"a{k + 1}")))
    assert np.array_equal(noisy.units - drawn(noisy), exact)
    assert not np.array_equal(noisy.units, exact)
    if bounds:
        plain = Federation(model, shards, "ring").learn()
        assert not np.array_equal(plain.units, exact)  # some records were outside
    assert isinstance(noisy.posterior, NoisyPosterior)
    assert np.array_equal(noisy.posterior.noise, noisy._walk.mechanism.noise_variances(5))
    audit = noisy.audit()
    assert len(audit.attested) == 5


def test_noise_hides_a_lone_change():
    """Without noise the difference of two sums is the record (tests/federation/test_masked.py)."""
    federation = private().learn()
    before = federation.units
    federation.forget(records={"a1": [0]})
    step = 1 << federation.model.grid.bits[0]
    difference = (federation.units - before) / step
    sd = np.sqrt(2 * federation._walk.mechanism.noise_variances(5))
    assert (np.abs(difference) > 2).any()  # one record is at most 1
    assert (np.abs(difference) < 6 * sd + 1).all()
    assert federation.erasures[-1].kind == "exact_before_noise"


def test_every_round_redraws_the_noise_of_all():
    federation = private().learn()
    first = drawn(federation)
    federation.forget(records={"a1": [0]})
    assert not (drawn(federation) == first).any()
    assert federation.noise["left"] == dict.fromkeys(federation.agents, 2)


def test_a_seed_repeats_the_noise():
    assert private().learn().posterior == private().learn().posterior


def test_a_spent_budget_refuses_new_data_and_withholds_after_an_erasure():
    federation = private(releases=1).learn()
    shown = federation.posterior
    federation.update("a1", {"x": [1] * 50})
    with pytest.raises(BudgetSpent, match="not learned"):
        federation.learn()
    assert federation.posterior == shown
    federation.forget(records={"a2": [3]})
    assert federation.erasures[-1].records == {"a2": 1}
    with pytest.raises(DataError, match="privacy budget is spent"):
        federation.posterior  # noqa: B018
    assert np.array_equal(federation.units, federation.model.eta0)


def test_a_saved_federation_keeps_its_accounts_and_wastes_no_value(tmp_path):
    federation = private().learn().forget(records={"a1": [0]})
    walk = federation._walk
    walk.noise.ledgers[4].observe(3, walk.mechanism.rho)  # charged, and never given
    federation.save(tmp_path / "f.json")
    again = Federation.load(tmp_path / "f.json")
    assert again.posterior == federation.posterior
    assert again.noise == federation.noise
    noted = json.loads((tmp_path / "f.json").read_text())["ledgers"]
    assert [one["in_doubt"] for one in noted] == [False] * 4 + [True]
    assert not again._walk.noise.ledgers[4].in_doubt  # all have enrolled again, and vouched
    again.forget("a2")
    assert again.noise["left"] == {"a1": 1, "a2": 2, "a3": 1, "a4": 1, "a5": 0}
    again.save(tmp_path / "g.json")
    spent = Federation.load(tmp_path / "g.json").forget("a3")
    with pytest.raises(DataError, match=r"min_roster|budget"):
        spent.forget(records={"a1": [5]}).posterior  # noqa: B018


@pytest.mark.parametrize("in_doubt", [False, True])
def test_a_saved_ledger_is_the_same_ledger(in_doubt):
    ledger = MemoryLedger(0.5, Fraction(1, 3), 2, {b"key", b"other"}, in_doubt)
    assert _ledger(ledger.budget, json.loads(json.dumps(_ledger_values(ledger)))) == ledger


def test_the_history_knows_of_the_noise():
    federation = private().learn()
    table = federation.history.columns()
    assert table["theta_sd"][-1] == pytest.approx(float(federation.posterior.sd()))


def test_what_a_noisy_sum_does_not_have_is_refused_with_the_reason():
    federation = private().learn()
    with pytest.raises(ConfigError, match="noisy sum has none"):
        federation.log_evidence()
    with pytest.raises(ConfigError, match="drawn anew in every round"):
        federation.posterior.published()
    with pytest.raises(ConfigError, match="under masks"):
        federation.influence()
    assert federation.posterior.covariance().shape == (1, 1)
    assert len(federation.posterior.draws(10)["theta"]) == 10


def test_terms_and_mappings_say_the_same():
    bounds = Bounds({"x": (-2.0, 2.0)})
    terms = PrivacyTerms(1.0, 1e-6, 4, 1, bounds)
    model, shards, _ = CASES["normal"]
    mapping = PROMISE | {"colluders": 1, "bounds": {"x": (-2, 2)}}
    pair = [Federation(model, shards, "ring", privacy=p) for p in (terms, mapping)]
    assert pair[0].terms.network_id == pair[1].terms.network_id
    assert pair[0].noise == pair[1].noise


WRONG = {
    "another model": ("gamma-poisson", PROMISE, "gamma-poisson: no differential privacy"),
    "an unknown key": ("beta-bernoulli", PROMISE | {"epsilom": 1}, "did you mean epsilon"),
    "no delta": ("beta-bernoulli", {"epsilon": 1.0}, "epsilon has no delta"),
    "plain": ("beta-bernoulli", PROMISE | {"mode": "plain"}, "epsilon needs masked rounds"),
    "bounds of counts": ("beta-bernoulli", PROMISE | {"norm": 2.0}, "need no bounds"),
    "too many colluders": ("beta-bernoulli", PROMISE | {"colluders": 2}, "leave 1"),
    "a mode": ("beta-bernoulli", "noisy", 'choose "plain" or "masked"'),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_terms_are_refused_with_a_fix(what):
    model, privacy, text = WRONG[what]
    with pytest.raises(ConfigError, match=text) as caught:
        Federation(model, coins(), "ring", privacy=privacy)
    assert "Fix: " in str(caught.value)
