"""Posteriors that know of noise: against integrals by other software, and coverage."""

from functools import cache
from math import sqrt

import numpy as np
import pytest
from scipy import integrate, stats

from unweave import Posterior
from unweave.errors import ConfigError
from unweave.families.marginals import BetaMarginal, NormalMarginal
from unweave.models import (
    BetaBernoulli,
    BetaBinomial,
    DirichletCategorical,
    GammaPoisson,
    LinearRegression,
    NormalKnownVariance,
)
from unweave.privacy import noisy
from unweave.privacy.mechanism import Mechanism
from unweave.privacy.noisy import MixtureMarginal, NoisyPosterior
from unweave.privacy.terms import Bounds, PrivacyTerms


def summary(theta, density):
    """Mean, sd and quantiles of a density on a fine grid."""
    p = density / density.sum()
    mean = p @ theta
    ends = np.interp([0.025, 0.975], np.cumsum(p) - p / 2, theta)
    return np.array([mean, sqrt(p @ (theta - mean) ** 2), *ends])


def told(posterior):
    return np.array([posterior.mean(), posterior.sd(), *posterior.interval(0.95)], dtype=float)


@pytest.mark.parametrize(
    ("counts", "sd", "prior"),
    [
        ((30.0, 70.0), 9.0, (2, 2)),
        ((3.2, 61.0), 6.0, (2, 2)),
        ((-4.0, 40.0), 5.0, (1, 3)),
        ((300.0, 200.0), 44.0, (2, 2)),
        ((60.0, 60.0), 30.0, (200, 100)),
    ],
)
def test_beta_against_a_sum_over_counts_at_each_theta(counts, sd, prior):
    """p(Ã, B̃ | theta) = Σ_n Σ_A Binomial(A; n, theta) p(Ã | A) p(B̃ | n − A), by SciPy."""
    model = BetaBernoulli(*prior)
    units = model.grid.encode(np.array(counts) + prior)
    found = NoisyPosterior(model, units, np.full(2, sd**2))
    theta = (np.arange(800) + 0.5) / 800
    reach = int(7 * sd)
    a = np.arange(max(0, int(counts[0]) - reach), max(int(counts[0]), 0) + reach + 1)
    b = np.arange(max(0, int(counts[1]) - reach), max(int(counts[1]), 0) + reach + 1)
    a, b = (x[:: max(1, int(sd // 8))] for x in (a, b))
    noise = np.outer(stats.norm.pdf(a, counts[0], sd), stats.norm.pdf(b, counts[1], sd))
    likelihood = [(stats.binom.pmf(a[:, None], a[:, None] + b, t) * noise).sum() for t in theta]
    expected = summary(theta, np.array(likelihood) * stats.beta.pdf(theta, *prior))
    scale = np.array([expected[1], 2 * expected[1], expected[1], expected[1]])
    assert (np.abs(told(found) - expected) / scale < 0.02).all()


@pytest.mark.parametrize(
    ("total", "n", "sd_total", "sd_n"),
    [(150.0, 500.0, 44.0, 44.0), (-30.0, 60.0, 20.0, 9.0), (90.0, 100.0, 5.0, 30.0)],
)
def test_normal_against_a_sum_over_n_at_each_theta(total, n, sd_total, sd_n):
    model = NormalKnownVariance(noise=1.0, mean=0.0, sd=2.0)
    units = model.grid.encode([total, n + 0.25])
    found = NoisyPosterior(model, units, np.array([sd_total, sd_n]) ** 2)
    theta = np.linspace(-9, 9, 9001)
    sizes = np.arange(0, int(n + 9 * sd_n))[:, None]
    density = stats.norm.pdf(n, sizes, sd_n) * stats.norm.pdf(
        total, sizes * theta, np.sqrt(sizes + sd_total**2)
    )
    expected = summary(theta, density.sum(axis=0) * stats.norm.pdf(theta, 0, 2))
    assert np.abs((told(found) - expected) / expected[1]).max() < 0.01


def test_dirichlet_against_a_full_sum_over_three_counts():
    alpha, counts, sd = np.array([1.0, 2.0, 0.5]), np.array([40.0, 25.0, 1.0]), 4.0
    model = DirichletCategorical(3, concentration=alpha.tolist())
    found = NoisyPosterior(model, model.grid.encode(counts + alpha), np.full(3, sd**2))
    axes = [np.arange(max(0, int(c - 6 * sd)), int(c + 6 * sd)) for c in counts]
    nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    log = stats.norm.logpdf(nodes, counts, sd).sum(axis=1)
    n = nodes.sum(axis=1)
    log += stats.dirichlet_multinomial.logpmf(nodes, alpha, n)
    w = np.exp(log - log.max())
    w /= w.sum()
    a, total = nodes + alpha, n + alpha.sum()
    mean = w @ (a / total[:, None])
    second = w @ (a * (a + 1) / (total * (total + 1))[:, None])
    np.testing.assert_allclose(found.mean(), mean, atol=0.1 * found.sd().min())
    np.testing.assert_allclose(found.sd(), np.sqrt(second - mean**2), rtol=0.06)
    low, high = found.interval(0.95)
    keep = w > 1e-9
    for j in range(3):
        part = BetaMarginal("x", a[keep, j], total[keep] - a[keep, j])
        exact = MixtureMarginal("x", w[keep] / w[keep].sum(), part)
        np.testing.assert_allclose(exact.cdf([low[j], high[j]]), [0.025, 0.975], atol=0.008)
    assert found == NoisyPosterior(model, found.units, found.noise)  # the chain has a fixed seed


def test_two_classes_are_a_beta():
    beta, pair = BetaBernoulli(1, 3), DirichletCategorical(2, concentration=[1.0, 3.0])
    units, noise = beta.grid.encode([21.0, 43.0]), np.array([25.0, 25.0])
    a, b = NoisyPosterior(beta, units, noise), NoisyPosterior(pair, units, noise)
    np.testing.assert_allclose(told(a), [x[0] for x in (b.mean(), b.sd(), *b.interval())])


def test_the_chain_finds_what_the_lattice_sums(monkeypatch):
    noisy_counts, variance, alpha = np.array([20.0, 5.0]), np.array([36.0, 36.0]), np.ones(2)
    w, parts = noisy._lattice(noisy_counts, variance, alpha)
    v, draws = noisy._chain(noisy_counts, variance, alpha)
    sd = np.sqrt(w @ parts**2 - (w @ parts) ** 2)
    np.testing.assert_allclose(v @ draws, w @ parts, atol=5 * sd.max() / sqrt(len(v)))
    np.testing.assert_allclose(np.sqrt(v @ draws**2 - (v @ draws) ** 2), sd, rtol=0.06)


def test_the_delta_method_has_the_covariance_of_the_noise():
    """Cov(e − E·theta) by drawing the noise; entries off the diagonal appear in two rows."""
    rng = np.random.default_rng(2)
    d, theta = 3, np.array([0.7, -1.2, 0.4])
    variance = rng.uniform(0.5, 2.0, d + d * (d + 1) // 2)
    draws = rng.standard_normal((200_000, len(variance))) * np.sqrt(variance)
    matrix = np.zeros((len(draws), d, d))
    rows, columns = np.triu_indices(d)
    matrix[:, rows, columns] = matrix[:, columns, rows] = draws[:, d:]
    drawn = np.cov((draws[:, :d] - matrix @ theta).T)
    size = 1e6  # so much data that the other terms vanish
    p = size * np.eye(d)
    eta = np.concatenate([p @ theta, p[rows, columns]])
    prior = np.concatenate([np.zeros(d), np.eye(d)[rows, columns]])
    law = noisy._regression(d, eta, variance, prior)
    family = LinearRegression(3, noise=1.0).family
    cov = family.to_params(law.eta)["cov"]
    np.testing.assert_allclose((cov - np.eye(d) / size) * size**2, drawn, atol=0.08)


def test_without_much_noise_it_is_the_posterior():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(300, 2))
    rows = np.column_stack([x, x @ [1.0, -2.0] + 0.5 * rng.normal(size=300)])
    cases = [
        (LinearRegression(2, noise=0.5, scale={"x1": 2.0}), rows),
        (NormalKnownVariance(center={"x": 1.0}, scale={"x": 3.0}), rows[:, :1]),
        (BetaBernoulli(), (rows[:, :1] > 0).astype(float)),
        (BetaBinomial(trials=3), rng.integers(0, 4, (300, 1)).astype(float)),
    ]
    for model, data in cases:
        units = model.grid.add(model.eta0, model.factor(model.shard(data)))
        exact = model.posterior(units)
        found = NoisyPosterior(model, units, np.full(model.grid.dim, 1e-4))
        np.testing.assert_allclose(found.mean(), exact.mean(), atol=1e-3 * exact.sd().min())
        np.testing.assert_allclose(found.sd(), exact.sd(), rtol=1e-3)
        np.testing.assert_allclose(
            found.interval(0.9), exact.interval(0.9), atol=2e-3 * exact.sd().min()
        )
        assert found.remark is None


MODELS = [
    (BetaBernoulli(), [30.0, 74.0], 64.0),
    (DirichletCategorical(["a", "b", "c"]), [30.0, 74.0, 11.0], 64.0),
    (NormalKnownVariance(center={"x": 1.0}, scale={"x": 3.0}), [80.0, 204.0], 90.0),
    (LinearRegression(1, intercept=True, center={"y": 9.0}), [30.0, 50.0, 99, 7, 80], 9.0),
]


@pytest.mark.parametrize(("model", "eta", "noise"), MODELS, ids=lambda x: getattr(x, "name", ""))
def test_everything_that_a_posterior_offers(model, eta, noise):
    found = NoisyPosterior(model, model.grid.encode(eta), np.full(model.grid.dim, noise))
    draws = np.stack(list(found.draws(40_000, seed=1).values()), axis=1)
    sd = np.atleast_1d(found.sd())
    np.testing.assert_allclose(
        draws.mean(axis=0), np.atleast_1d(found.mean()), atol=0.03 * sd.max()
    )
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.03)
    np.testing.assert_allclose(
        found.covariance(), np.atleast_2d(np.cov(draws.T)), atol=0.04 * sd.max() ** 2
    )
    np.testing.assert_allclose(np.sqrt(np.diag(found.covariance())), sd, rtol=1e-9)
    low, high = (np.atleast_1d(end) for end in found.interval(0.8))
    inside = ((draws > low) & (draws < high)).mean(axis=0)
    np.testing.assert_allclose(inside, 0.8, atol=0.015)
    for law, (name, mean, spread, _, _) in zip(found.marginals, found.table(), strict=True):
        assert (law.name, float(law.mean()), float(law.sd())) == (name, mean, spread)
        grid = np.linspace(mean - 7 * spread, mean + 7 * spread, 2001)
        grid = np.clip(grid, 0, 1) if "theta" in name and model.name[0] in "bd" else grid
        assert integrate.trapezoid(law.pdf(grid), grid) == pytest.approx(1, abs=1e-3)
        np.testing.assert_allclose(law.cdf(law.quantile([0.01, 0.5, 0.99])), [0.01, 0.5, 0.99])
    again = NoisyPosterior.from_json(found.to_json())
    assert again == found
    assert hash(again) == hash(found)
    assert again != NoisyPosterior(model, found.units, found.noise * 2)
    with pytest.raises(ConfigError, match="too narrow"):
        Posterior.from_json(found.to_json())
    with pytest.raises(ConfigError, match="has no noise"):
        NoisyPosterior.from_json(model.posterior(model.eta0).to_json())
    with pytest.raises(ConfigError, match="log_evidence"):
        found.log_evidence([])
    assert "±" in repr(found)
    args = () if model.name != "linear-regression" else ([[1.0]],)
    predicted = found.predict(*args)
    if model.name == "beta-bernoulli":
        assert float(predicted.mean()) == pytest.approx(float(found.mean()), rel=1e-9)
    if model.name == "normal-known-variance":
        assert float(predicted.mean()) == pytest.approx(float(found.mean()), rel=1e-9)
        assert float(predicted.sd()) ** 2 == pytest.approx(float(found.sd()) ** 2 + 9.0)


def test_counts_below_zero_have_a_posterior():
    """Noise may exceed the counts; the sum itself is outside the domain of a Beta."""
    model = BetaBernoulli()
    units = model.grid.encode([-15.0, 41.0])
    with pytest.raises(ValueError, match="a = -15"):
        model.posterior(units)
    found = NoisyPosterior(model, units, np.full(2, 64.0))
    assert 0 < found.interval(0.95)[0] < found.interval(0.95)[1] < 0.4


def test_wrong_shapes_and_other_models_are_refused():
    with pytest.raises(ConfigError, match="give 2 variances"):
        NoisyPosterior(BetaBernoulli(), BetaBernoulli().eta0, np.ones(3))
    with pytest.raises(ConfigError, match="gamma-poisson: no posterior that knows of noise"):
        NoisyPosterior(GammaPoisson(), GammaPoisson().eta0, np.ones(2))


def test_a_mixture_of_equal_parts_is_its_part():
    law = MixtureMarginal("x", np.full(3, 1 / 3), NormalMarginal("x", np.zeros(3), np.ones(3)))
    np.testing.assert_allclose(law.quantile([0.1, 0.9]), stats.norm.ppf([0.1, 0.9]))


# Coverage: PRIVACY's table, n × ε at δ = 10⁻⁶, one release, ten shares of which all are honest.

SIZES, EPSILONS = (500, 2000, 5000), (0.5, 1.0, 4.0)
COEFFICIENTS = np.array([0.3, 0.5, -0.4])


@cache
def mechanism(kind, epsilon):
    model, bounds = {
        "beta": (BetaBernoulli(), Bounds()),
        "dirichlet": (DirichletCategorical(4), Bounds()),
        "normal": (NormalKnownVariance(), Bounds({"x": (-5.0, 5.0)})),
        "regression": (LinearRegression(2, intercept=True, noise=0.5), Bounds(norm=4.0)),
    }[kind]
    return Mechanism.of(model, PrivacyTerms(epsilon, 1e-6, 1, 0, bounds), 10)


def records(kind, n, rng):
    """The truth and n records."""
    if kind == "beta":
        return np.array([0.3]), (rng.random((n, 1)) < 0.3).astype(float)
    if kind == "dirichlet":
        theta = np.array([0.5, 0.3, 0.15, 0.05])
        return theta, rng.choice(4, size=(n, 1), p=theta).astype(float)
    if kind == "normal":
        return np.array([0.5]), rng.normal(0.5, 1.0, (n, 1))
    x = rng.normal(size=(n, 2))
    y = COEFFICIENTS[0] + x @ COEFFICIENTS[1:] + 0.5 * rng.normal(size=n)
    return COEFFICIENTS, np.column_stack([x, y])


def covered(kind, n, epsilon, runs, seed=1):
    """The shares of 95% intervals that hold the truth: with knowledge of the noise, and naive."""
    rng, chosen = np.random.default_rng(seed), mechanism(kind, epsilon)
    model, aware, naive, remarks = chosen.stated, [], [], 0
    for _ in range(runs):
        theta, rows = records(kind, n, rng)
        noise = np.sum([chosen.draw(rng.bytes) for _ in range(10)], axis=0)
        units = model.eta0 + np.array(chosen.model.sums(rows)) + noise
        found = chosen.posterior(units, shares=10)
        low, high = found.interval(0.95)
        aware.append(((low <= theta) & (theta <= high)).mean())
        remarks += found.remark is not None
        if model.inside(units):
            low, high = model.posterior(units).interval(0.95)
            naive.append(((low <= theta) & (theta <= high)).mean())
        else:
            naive.append(0.0)
    return float(np.mean(aware)), float(np.mean(naive)), remarks / runs


CELLS = [(n, epsilon) for n in SIZES for epsilon in EPSILONS]


@pytest.mark.parametrize("kind", ["beta", "normal", "regression"])
def test_coverage(kind):
    """A scaled count: the mean of all cells, and no cell far below."""
    runs = 60
    found = [covered(kind, n, epsilon, runs)[0] for n, epsilon in CELLS]
    assert np.mean(found) > 0.93
    assert min(found) > 0.95 - 3.5 * sqrt(0.95 * 0.05 / runs)


def test_coverage_of_classes():
    assert np.mean([covered("dirichlet", 500, eps, 12)[0] for eps in EPSILONS]) > 0.9


RUNS = {"beta": 1000, "normal": 2000, "regression": 1000, "dirichlet": 150}


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize(("n", "epsilon"), CELLS)
def test_coverage_of_every_cell(kind, n, epsilon):
    aware, naive, _ = covered(kind, n, epsilon, RUNS[kind], seed=2)
    assert aware >= 0.93
    if kind == "regression":
        assert naive < 0.93


def test_where_the_noise_leaves_nothing_the_posterior_says_so():
    _, naive, remarks = covered("regression", 500, 0.5, 30)
    assert remarks == 1.0
    assert naive < 0.3
    assert covered("regression", 5000, 0.5, 10)[2] == 0.0
    model = LinearRegression(2, intercept=True, noise=0.5, sd=100.0)
    chosen = Mechanism.of(model, PrivacyTerms(0.5, 1e-6, 1, 0, Bounds(norm=4.0)), 10)
    found = chosen.posterior(model.eta0, shares=10)  # no records at all
    assert "3 of 3 directions are the prior's" in found.remark
    np.testing.assert_allclose(found.sd(), 100.0, rtol=1e-5)
    assert "the noise leaves nearly nothing of the data" in found.remark
