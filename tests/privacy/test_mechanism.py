"""The mechanism: its promise, computed exactly; its draws; its statement; the table [privacy]."""

from dataclasses import replace
from math import exp, sqrt

import numpy as np
import pytest

from unweave.errors import ConfigError
from unweave.manifest import Manifest
from unweave.models import BetaBernoulli, LinearRegression, NormalKnownVariance
from unweave.privacy import accounting
from unweave.privacy.mechanism import Mechanism
from unweave.privacy.noisy import NoisyPosterior
from unweave.privacy.terms import Bounds, PrivacyTerms

TERMS = PrivacyTerms(epsilon=1.0, delta=1e-6, releases=1, colluders=1)
NORMAL = NormalKnownVariance()
WITHIN = replace(TERMS, bounds=Bounds({"x": (-5.0, 5.0)}))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_one_release_keeps_its_promise_exactly(epsilon):
    """δ(ε) of the exact distributions with and without one record, of the honest agents' noise."""
    mechanism = Mechanism.of(BetaBernoulli(bits=3), replace(TERMS, epsilon=epsilon), 4)
    variance, step = mechanism.variances[0], 2**3
    x = np.arange(-int(40 * sqrt(variance)), int(40 * sqrt(variance)) + 1)
    share = np.exp(-(x.astype(float) ** 2) / (2 * variance))
    share /= share.sum()
    noise = share
    for _ in range(mechanism.honest - 1):
        noise = np.convolve(noise, share)
    without, with_one = noise[step:], noise[:-step]
    for p, q in ((without, with_one), (with_one, without)):
        exact = np.maximum(p - exp(epsilon) * q, 0).sum()
        assert exact <= 1e-6
        assert exact > 1e-8  # and not by far too much noise


@pytest.mark.parametrize("releases", [1, 20, 1000])
def test_all_releases_together_cost_at_most_the_budget(releases):
    for model, terms in ((BetaBernoulli(), TERMS), (NORMAL, WITHIN)):
        mechanism = Mechanism.of(model, replace(terms, releases=releases), 5)
        assert mechanism.releases == releases
        assert mechanism.rho * releases <= mechanism.budget
        assert mechanism.rho * releases == pytest.approx(mechanism.budget, rel=1e-6)
        assert mechanism.honest == 4


def test_more_honest_agents_need_smaller_shares():
    few, many = (Mechanism.of(NORMAL, WITHIN, k) for k in (4, 31))
    assert few.variances[0] / many.variances[0] == pytest.approx(30 / 3, rel=1e-9)
    np.testing.assert_allclose(few.noise_variances(3), many.noise_variances(30), rtol=1e-9)


def test_draws_have_the_variances_of_their_components():
    mechanism = Mechanism.of(NORMAL, WITHIN, 4)
    assert len(set(mechanism.variances)) == 2
    sd = np.sqrt(np.array(mechanism.variances, dtype=float))
    x = np.stack([mechanism.draw() for _ in range(4000)]) / sd
    np.testing.assert_allclose(x.var(axis=0), 1.0, atol=5 * sqrt(2 / 4000))
    assert abs(np.corrcoef(x.T)[0, 1]) < 5 / sqrt(4000)
    assert (np.abs(x).max(axis=0) * sd < mechanism.reach).all()


def test_a_wide_regression_draws_all_its_components():
    model = LinearRegression(30, intercept=True)
    mechanism = Mechanism.of(model, replace(TERMS, bounds=Bounds(norm=12.0)), 5)
    share = mechanism.draw()
    assert share.shape == (model.grid.dim,)
    assert np.unique(share).size > 0.99 * share.size


def test_a_posterior_knows_of_all_shares_and_of_the_stated_model():
    mechanism = Mechanism.of(NORMAL, WITHIN, 4)
    rows = np.full((1000, 1), 7.0)  # beyond the bounds
    units = NORMAL.eta0 + np.array(mechanism.model.sums(rows)) + mechanism.draw()
    found = mechanism.posterior(units, shares=6)
    assert isinstance(found, NoisyPosterior)
    assert type(found.model) is NormalKnownVariance
    assert found.noise[0] == pytest.approx(6 * mechanism.variances[0] * 4.0**-24)
    assert abs(float(found.mean()) - 5.0) < 0.5


def test_a_statement_names_what_a_certificate_may_say():
    statement = Mechanism.of(NORMAL, WITHIN, 4).statement()
    assert statement["sensitivity"] == pytest.approx(sqrt(26))
    assert (statement["honest_shares"], statement["releases"]) == (3, 1)
    assert statement["neighbours"] == "add or remove one record"


IMPOSSIBLE = {
    "colluders": (BetaBernoulli(), replace(TERMS, colluders=3), "at most 2, so that two"),
    "too much noise": (
        LinearRegression(1, scale={"y": 1e-3}, noise=1e-3, bits=62),
        replace(TERMS, epsilon=0.01, releases=10**6, bounds=Bounds(norm=9000.0)),
        "leaves the grid",
    ),
}


@pytest.mark.parametrize("why", IMPOSSIBLE)
def test_impossible_mechanisms_are_refused(why):
    model, terms, text = IMPOSSIBLE[why]
    with pytest.raises(ConfigError, match=text):
        Mechanism.of(model, terms, 4)


MANIFEST = """
name = "clinics"
graph = "ring"
agents = 5
{table}
[model]
name = "{model}"
"""
TABLE = "[privacy]\nepsilon = 1.0\ndelta = 1e-6\ncolluders = 1\nbounds = {{ x = [-5, 5] }}"


def read(table, model="normal-known-variance"):
    text = MANIFEST.format(table=table.format(), model=model)
    manifest = Manifest.parse(text.encode())
    return manifest, manifest.build_mechanism()


def test_a_manifest_states_the_mechanism():
    manifest, mechanism = read(TABLE)
    expected = PrivacyTerms(1.0, 1e-6, 20, 1, Bounds({"x": (-5.0, 5.0)}))
    assert mechanism == Mechanism.of(NORMAL, expected, 3)
    again = Manifest.parse(manifest.to_toml().encode())
    assert again.build_mechanism() == mechanism
    assert "releases = 20" in manifest.to_toml()  # a later default does not change the terms


@pytest.mark.parametrize("table", ["", 'privacy = "masked"', 'privacy = "plain"', "[privacy]"])
def test_without_epsilon_there_is_no_noise(table):
    manifest, mechanism = read(table, "beta-bernoulli")
    assert mechanism is None
    assert "releases" not in manifest.to_toml()


def test_the_terms_and_the_model_of_a_network_hold_the_noise_that_its_manifest_promises():
    manifest, mechanism = read(TABLE)
    noise = manifest.terms().noise
    assert noise is not None
    assert noise.statement == mechanism.statement()
    assert np.array_equal(noise.reach, mechanism.reach)
    model = manifest.build_model()
    assert model == mechanism.model
    outside, inside = np.array([[-100.0], [100.0]]), np.array([[-5.0], [5.0]])
    assert model.sums(outside) == model.sums(inside)
    assert model.clipped(outside) == 2
    assert read('privacy = "masked"', "beta-bernoulli")[0].terms().noise is None


def test_other_models_are_refused_by_name_with_the_reason():
    table = "[privacy]\nepsilon = 1.0\ndelta = 1e-6"
    for model in ("gamma-poisson", "normal-unknown"):
        with pytest.raises(ConfigError, match=rf"\[privacy\]: {model}: no differential privacy"):
            read(table, model)[0].terms()


def test_the_statement_is_the_same_on_machines_whose_logarithms_differ_a_little():
    _, mechanism = read(TABLE)
    stated = accounting.budget(1.0, 1e-6)
    assert mechanism.budget <= stated < mechanism.budget * (1 + 1e-5)
    assert len(f"{mechanism.budget:.17g}".strip("0.")) <= 8
    assert mechanism.statement()["rho"] >= mechanism.rho


WRONG = {
    "plain": (TABLE + '\nmode = "plain"', "epsilon needs masked rounds"),
    "no delta": (TABLE.replace("delta = 1e-6", ""), "epsilon has no delta"),
    "no epsilon": (TABLE.replace("epsilon = 1.0", ""), "delta has no epsilon"),
    "a typo": (TABLE.replace("colluders", "coluders"), "did you mean colluders"),
    "a negative epsilon": (TABLE.replace("1.0", "-1.0"), "epsilon = -1"),
    "a large delta": (TABLE.replace("1e-6", "0.5"), "delta = 0.5"),
    "no releases": (TABLE + "\nreleases = 0", "releases = 0"),
    "negative colluders": (TABLE.replace("colluders = 1", "colluders = -1"), "colluders = -1"),
    "too many colluders": (TABLE.replace("colluders = 1", "colluders = 3"), r"\[privacy\]: coll"),
    "one bound": (TABLE.replace("[-5, 5]", "[5]"), "privacy.bounds"),
    "a bound of text": (TABLE.replace("[-5, 5]", '["a", 5]'), "privacy.bounds"),
    "another mode": ('privacy = "secret"', "should be 'plain' or 'masked'"),
    "no bounds": ("[privacy]\nepsilon = 1.0\ndelta = 1e-6", "needs bounds of x"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_table_is_refused_with_its_place_and_a_fix(what):
    table, text = WRONG[what]
    with pytest.raises(ConfigError, match=text) as caught:
        read(table)
    assert str(caught.value).startswith("network.toml: ")
    assert "Fix: " in str(caught.value)
