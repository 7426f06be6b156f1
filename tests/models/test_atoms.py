"""Atoms from the prior: exact sums, exact posteriors, and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.stats import qmc

from unweave import Federation
from unweave.errors import ConfigError, DataError, DomainError, GridOverflow
from unweave.families.atoms.parameters import Parameter, sobol
from unweave.models import AtomModel, BetaExponential, BetaExponentialAtoms
from unweave.models.atoms.likelihood import BITS, CLIP


def posterior(model, data):
    return model.posterior(model.grid.add(model.eta0, model.factor(model.shard(data))))


def weibull(theta, record):
    shape, scale, t = theta["shape"], theta["scale"], record["t"]
    return np.log(shape / scale) + (shape - 1) * np.log(t / scale) - (t / scale) ** shape


WEIBULL = AtomModel(
    weibull,
    params={"shape": "lognormal(0, 0.5)", "scale": "lognormal(0, 0.5)"},
    records={"t": "positive"},
    atoms=1 << 13,
)


# -- atoms and priors ------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", range(1, 7))
def test_sobol_points_are_those_of_another_implementation(dim):
    theirs = qmc.Sobol(dim, scramble=False, bits=32).random(1 << 10)
    assert np.array_equal(sobol(1 << 10, dim) - 0.5 * 2.0**-32, theirs)


LAWS = {
    "normal(1, 2)": stats.norm(1, 2),
    "lognormal(0.3, 0.5)": stats.lognorm(0.5, scale=np.exp(0.3)),
    "gamma(2, 3)": stats.gamma(2, scale=1 / 3),
    "beta(3, 0.7)": stats.beta(3, 0.7),
    "uniform(-1, 4)": stats.uniform(-1, 5),
}


@pytest.mark.parametrize("text", LAWS)
def test_priors_are_scipys_in_their_own_coordinates(text):
    law, parameter = LAWS[text], Parameter.parse("x", text)
    p = np.linspace(0.01, 0.99, 23)
    theta = law.ppf(p)
    u = parameter.quantile(p)
    assert parameter.outward(u) == pytest.approx(theta, rel=1e-9)
    assert parameter.inward(theta) == pytest.approx(u, rel=1e-6, abs=1e-9)
    density = parameter.log_prior(u) - parameter.log_slope(u)
    assert density == pytest.approx(law.logpdf(theta), rel=1e-9, abs=1e-9)
    assert parameter == Parameter.parse("x", str(parameter))


@pytest.mark.parametrize(
    "text", ["normal(0, 0)", "gamma(-1, 1)", "uniform(3, 1)", "cauchy(0, 1)", "normal(0)", 3]
)
def test_impossible_priors_are_explained(text):
    with pytest.raises(ConfigError, match=r"prior of x.*Fix: "):
        Parameter.parse("x", text)


# -- sums ------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.integers(1, 7), st.data())
def test_batches_order_and_splits_change_no_bit(n, seed, parts, data):
    """Blocks have 8 or 65 records here: they are padded with records and with atoms."""
    model = replace(WEIBULL, bits=None, atoms=data.draw(st.sampled_from([1000, 1 << 14])))
    rng = np.random.default_rng(seed)
    rows = model.shard(rng.weibull(1.3, n) + 1e-9).rows
    whole = model.statistics(rows)
    assert np.array_equal(whole, model.statistics(rng.permutation(rows), chunk=parts))
    one_by_one = sum(model.statistics(row[None, :]) for row in rows)
    assert np.array_equal(whole, one_by_one)
    gone = int(rng.integers(n))
    rest = np.delete(rows, gone, axis=0)
    assert np.array_equal(whole - model.statistics(rows[gone : gone + 1]), model.statistics(rest))


def test_a_record_is_rounded_by_itself():
    model = BetaExponentialAtoms(atoms=64)
    theta = model.space.outward(model.family.u)[:, 0]
    one = -np.log(theta) - 0.3 / theta
    assert np.array_equal(model.statistics(np.array([[0.3]])), np.rint(one * 2.0**BITS))
    assert np.array_equal(
        model.statistics(np.full((1000, 1), 0.3)), 1000 * model.statistics(np.array([[0.3]]))
    )


def test_impossible_records_are_clipped_and_many_of_them_overflow():
    """log 0 takes 2^14 nats; 2^25 such records fill the grid, and more are refused, not wrapped."""

    def uniform(theta, record):
        return np.where(record["x"] <= theta["top"], -np.log(theta["top"]), -np.inf)

    model = AtomModel(uniform, {"top": "uniform(0, 1)"}, {"x": "nonnegative"}, atoms=64)
    sums = model.statistics(np.array([[0.5]]))
    top = model.space.outward(model.family.u)[:, 0]
    assert (sums[top < 0.5] == -CLIP * 2.0**BITS).all()
    assert (sums[top >= 0.5] == np.rint(-np.log(top[top >= 0.5]) * 2.0**BITS)).all()
    assert posterior(model, [0.5]).marginals[0].cdf(0.4) < 1e-6
    most = model.grid.units([int(s) * (2**25 - 1) for s in sums])
    with pytest.raises(GridOverflow):
        model.grid.add(most, 2 * model.statistics(np.full((3, 1), 0.5)))


def test_a_log_likelihood_that_is_not_a_number_is_refused():
    def broken(theta, record):
        return np.log(theta["mean"] - 0.5) + record["x"]

    model = AtomModel(broken, {"mean": "normal(0, 1)"}, ["x"], atoms=64)
    with np.errstate(invalid="ignore"), pytest.raises(DataError, match=r"row 0.*not a number"):
        model.factor(model.shard([1.0, 2.0]))
    flat = AtomModel(lambda theta, record: theta["mean"], {"mean": "normal(0, 1)"}, ["x"], atoms=64)
    with pytest.raises(DataError, match="gives shape"):
        flat.factor(flat.shard([1.0, 2.0]))


# -- posteriors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "error"), [(30, 1e-6), (300, 1e-6), (2000, 1e-5)])
def test_beta_exponential_atoms_reach_the_exact_posterior(n, error):
    """512 atoms, where the best Beta is at a KL of 1e-3."""
    z = np.random.default_rng(n).exponential(0.2, n)
    model, loss = BetaExponentialAtoms(a=3, b=3), BetaExponential(a=3, b=3)
    found, exact = posterior(model, z), loss.exact(loss.summary(loss.shard(z)))
    assert abs(found.mean() - exact.mean()) < error * exact.sd()
    assert abs(found.sd() / exact.sd() - 1.0) < error
    cloud = model.cloud(found.eta)
    theta = cloud.theta[:, 0]
    kl = cloud.weights @ (found.log_prob(theta) - exact.log_prob(theta))
    assert abs(kl) < 1e-8
    evidence = exact.log_z - loss.family.log_partition(np.array([3.0, 3.0]))
    assert cloud.log_evidence == pytest.approx(float(evidence), abs=1e-5)
    law = found.marginals[0]
    grid = law.quantile([0.01, 0.3, 0.8])
    for x, p in zip(grid, [0.01, 0.3, 0.8], strict=True):
        mass = integrate.quad(lambda t: float(np.exp(exact.log_prob(t))), 1e-3, x, limit=200)[0]
        assert mass == pytest.approx(p, abs=1e-5)
    assert law.pdf(grid) == pytest.approx(np.exp(exact.log_prob(grid)), rel=1e-5)
    draws = found.sample(20_000, seed=1)["theta"]
    assert abs(draws.mean() - exact.mean()) < 5 * exact.sd() / np.sqrt(20_000)
    assert abs(draws.std() / exact.sd() - 1) < 0.03


def test_the_predictive_is_the_integral():
    z = np.random.default_rng(1).exponential(0.3, 40)
    model, loss = BetaExponentialAtoms(), BetaExponential()
    exact = loss.exact(loss.summary(loss.shard(z)))
    predictive = posterior(model, z).predict()
    for x in (0.01, 0.4, 2.0):
        truth = integrate.quad(
            lambda t, x=x: float(np.exp(exact.log_prob(t) - x / t) / t), 1e-3, 1 - 1e-12, limit=200
        )[0]
        assert np.exp(predictive.log_prob([x])[0]) == pytest.approx(truth, rel=1e-5)
    assert predictive.sample(20_000, seed=2).mean() == pytest.approx(exact.mean(), rel=0.05)


def grid_moments(log_target, low, high, n=601):
    """Mean and sd of each of two parameters u, by a trapezoid on a grid."""
    axes = [np.linspace(a, b, n) for a, b in zip(low, high, strict=True)]
    u = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    value = log_target(u)
    weights = np.exp(value - value.max())
    weights /= weights.sum()
    mean = (weights[..., None] * u).sum(axis=(0, 1))
    return mean, np.sqrt((weights[..., None] * (u - mean) ** 2).sum(axis=(0, 1)))


def test_two_parameters_agree_with_a_grid_and_densities_integrate():
    t = np.random.default_rng(3).weibull(1.4, 40)

    def log_target(u):
        theta = {"shape": np.exp(u[..., 0]), "scale": np.exp(u[..., 1])}
        value = sum(weibull(theta, {"t": x}) for x in t)
        return value + WEIBULL.space.log_prior(u)

    mean, sd = grid_moments(log_target, [-0.6, -0.8], [1.0, 0.6])
    found = posterior(WEIBULL, t)
    assert WEIBULL.family.ess(found.eta) > 200
    logs = np.log(WEIBULL.cloud(found.eta).theta)
    weights = WEIBULL.cloud(found.eta).weights
    assert weights @ logs == pytest.approx(mean, abs=0.05 * sd.min())
    for law in found.marginals:
        x = np.linspace(*law.quantile([1e-4, 1 - 1e-4]), 2001)
        assert np.trapezoid(law.pdf(x), x) == pytest.approx(1.0, abs=0.01)
        assert law.cdf(law.quantile(0.3)) == pytest.approx(0.3, abs=1e-3)
    assert found.sample(3)["shape"].shape == (3,)
    assert np.isfinite(found.log_prob(found.mean()))
    assert found.log_prob([-1.0, 1.0]) == -np.inf


def test_too_few_effective_atoms_are_no_posterior():
    t = np.random.default_rng(3).weibull(1.4, 2000)
    with pytest.raises(DomainError, match=r"effective sample size is .* below 100.*more atoms"):
        posterior(WEIBULL, t)
    assert posterior(replace(WEIBULL, least=5), t).mean() == pytest.approx([1.4, 1.0], rel=0.2)


def test_a_declared_box_replaces_the_prior_as_proposal():
    t = np.random.default_rng(3).weibull(1.4, 400)
    boxed = replace(WEIBULL, bits=None, atoms=4096, box=(1.0, 2.0, 0.8, 1.3))
    truth = posterior(replace(WEIBULL, bits=None, atoms=1 << 15), t)
    found = posterior(boxed, t)
    assert found.mean() == pytest.approx(truth.mean(), abs=0.1 * truth.sd().min())
    assert found.sd() == pytest.approx(truth.sd(), rel=0.1)
    for box in ((1.0, 2.0), (2.0, 1.0, 0.8, 1.3), (-1.0, 2.0, 0.8, 1.3)):
        with pytest.raises(ConfigError, match=r"box.*Fix: "):
            replace(WEIBULL, box=box)


# -- networks --------------------------------------------------------------------------------------


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_forgetting_agents_and_records_of_a_custom_likelihood_leaves_no_bit(seed):
    rng = np.random.default_rng(seed)
    data = {f"a{k}": rng.weibull(1.5, int(rng.integers(3, 40))) for k in range(5)}
    model = replace(WEIBULL, bits=None, atoms=4096, least=10)
    network = Federation(model, data, "ring", schedule="metropolis", seed=seed % 100).learn()
    network.forget("a3", records={"a1": [0, 2]})
    rest = {name: values for name, values in data.items() if name != "a3"}
    rest["a1"] = np.delete(rest["a1"], [0, 2])
    again = Federation(model, rest, "complete", seed=1).learn()
    assert network.units.tobytes() == again.units.tobytes()
    assert network.posterior == again.posterior
    assert network.erasures[-1].kind == "exact"


def test_settings_that_cannot_work_are_explained():
    for wrong, message in [
        ({"atoms": 3}, "atoms = 3"),
        ({"bits": 30}, "rounding of float64 would show"),
        ({"least": 0.5}, "least = 0.5"),
        ({"seed": -1}, "seed = -1"),
    ]:
        with pytest.raises(ConfigError, match=message):
            replace(WEIBULL, **wrong)
    with pytest.raises(ConfigError, match="0 parameters"):
        AtomModel(weibull, {}, ["t"])
    with pytest.raises(ConfigError, match="map each column"):
        AtomModel(weibull, {"shape": "normal(0, 1)"}, {"t": "wrong"})
