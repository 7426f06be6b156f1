"""Posterior predictives against SciPy's distributions and against quadrature."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import integrate, special, stats

from unweave import Federation
from unweave.errors import ConfigError, DataError, DomainError
from unweave.models import (
    BetaBernoulli,
    BetaBinomial,
    BetaExponential,
    BetaGeometric,
    BetaNegativeBinomial,
    ConjugateModel,
    DirichletCategorical,
    DirichletMultinomial,
    GammaExponential,
    GammaPoisson,
    LinearRegression,
    LinearRegressionUnknownNoise,
    MultivariateNormalModel,
    NormalKnownVariance,
    NormalUnknown,
)


def predict(model: ConjugateModel, data: Any, *args: Any) -> Any:
    factor = model.factor(model.shard(data))
    return model.posterior(model.grid.add(model.eta0, factor)).predict(*args)


def same_moments(ours: Any, n: int = 200_000, sigmas: float = 5.0) -> None:
    """Mean and sd of samples agree with the formulas."""
    draws = ours.sample(n, seed=1)
    error = sigmas * np.asarray(ours.sd()) / np.sqrt(n)
    assert np.all(np.abs(draws.mean(axis=0) - ours.mean()) < error)
    np.testing.assert_allclose(draws.std(axis=0), ours.sd(), rtol=0.05)
    np.testing.assert_array_equal(draws[:10], ours.sample(n, seed=1)[:10])


P = np.array([0.01, 0.2, 0.5, 0.77, 0.99, 0.9999])


def test_beta_binomial() -> None:
    data = {"successes": [3, 4], "trials": [10, 7]}
    ours = predict(BetaBinomial(a=2, b=3), data, 12)
    theirs = stats.betabinom(12, 9, 13)
    x = np.arange(-1, 14)
    np.testing.assert_allclose(np.exp(ours.log_prob(x)), theirs.pmf(x), rtol=1e-10)
    np.testing.assert_allclose(ours.cdf(x), theirs.cdf(x), rtol=1e-10, atol=1e-14)
    np.testing.assert_array_equal(ours.quantile(P), theirs.ppf(P))
    assert ours.mean() == pytest.approx(theirs.mean())
    assert ours.sd() == pytest.approx(theirs.std())
    assert ours.interval(0.9) == theirs.interval(0.9)
    same_moments(ours)


def test_bernoulli_is_one_trial() -> None:
    ours = predict(BetaBernoulli(a=2, b=2), [1, 1, 1, 0])
    np.testing.assert_allclose(np.exp(ours.log_prob([0, 1, 2, 0.5])), [3 / 8, 5 / 8, 0, 0])
    assert ours.mean() == 5 / 8


@pytest.mark.parametrize("r", [1, 4])
def test_beta_negative_binomial(r: int) -> None:
    ours = predict(BetaNegativeBinomial(a=3.5, b=2, successes=r), [2, 0, 5])
    a, b = 3.5 + 3 * r, 9.0
    theirs = stats.betanbinom(r, a, b)
    x = np.arange(-1, 60)
    np.testing.assert_allclose(np.exp(ours.log_prob(x)), theirs.pmf(x), rtol=1e-9)
    np.testing.assert_allclose(ours.cdf(x), np.cumsum(theirs.pmf(x)), rtol=1e-9, atol=1e-13)
    assert ours.mean() == pytest.approx(theirs.mean())
    assert ours.sd() == pytest.approx(theirs.std())
    far = ours.quantile(P)
    assert np.all(ours.cdf(far) >= P)
    assert np.all(ours.cdf(far - 1) < P)
    same_moments(ours)


def test_beta_geometric_is_the_integral() -> None:
    ours = predict(BetaGeometric(a=2, b=2), [1, 4, 2])
    for x in (1, 2, 7):
        integral = integrate.quad(
            lambda t, x=x: stats.geom.pmf(x, t) * stats.beta.pdf(t, 5, 6), 0, 1
        )
        assert np.exp(ours.log_prob(x)) == pytest.approx(integral[0], rel=1e-9)
        mass = integrate.quad(lambda t, x=x: stats.geom.cdf(x, t) * stats.beta.pdf(t, 5, 6), 0, 1)
        assert ours.cdf(x) == pytest.approx(mass[0], rel=1e-9)
    assert ours.log_prob(0) == -np.inf
    assert ours.cdf(0) == 0
    assert ours.sample(1000).min() == 1
    same_moments(ours)


def test_heavy_tails_have_infinite_moments_and_finite_quantiles() -> None:
    ours = predict(BetaGeometric(a=0.25, b=2), [9])  # a = 1.25 after one record
    assert ours.sd() == np.inf
    assert np.isfinite(ours.quantile(0.999))
    assert ours.quantile(1.0) == np.inf
    with pytest.raises(ConfigError, match="levels from 0 to 1"):
        ours.quantile(1.5)
    lomax = GammaExponential(a=0.5, b=1).predictive(np.array([0.5, 1.0]))
    assert lomax.mean() == np.inf
    assert lomax.sd() == np.inf
    assert lomax.quantile(1.0) == np.inf


def test_negative_binomial() -> None:
    ours = predict(GammaPoisson(a=2, b=0.5), [3, 7, 4])
    theirs = stats.nbinom(16, 3.5 / 4.5)
    x = np.arange(-1, 40)
    np.testing.assert_allclose(np.exp(ours.log_prob(x)), theirs.pmf(x), rtol=1e-10)
    np.testing.assert_allclose(ours.cdf(x), theirs.cdf(x), rtol=1e-10)
    np.testing.assert_array_equal(ours.quantile(P), theirs.ppf(P))
    assert ours.mean() == pytest.approx(theirs.mean())
    assert ours.sd() == pytest.approx(theirs.std())
    same_moments(ours)


def test_lomax() -> None:
    ours = predict(GammaExponential(a=2, b=1.5), [0.25, 1.5, 0.75])
    theirs = stats.lomax(5, scale=4)
    x = np.array([-1.0, 0.0, 0.1, 1.0, 20.0])
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(ours.log_prob(x), theirs.logpdf(x), rtol=1e-10)
    np.testing.assert_allclose(ours.cdf(x), theirs.cdf(x), rtol=1e-10)
    np.testing.assert_allclose(ours.quantile(P), theirs.ppf(P), rtol=1e-10)
    assert ours.mean() == pytest.approx(theirs.mean())
    assert ours.sd() == pytest.approx(theirs.std())
    assert ours.interval(0.5) == pytest.approx(theirs.interval(0.5))
    same_moments(ours)


def test_categorical() -> None:
    ours = predict(DirichletCategorical(classes=3), [0, 2, 2, 2, 1])
    np.testing.assert_allclose(ours.mean(), [2 / 8, 2 / 8, 4 / 8])
    np.testing.assert_allclose(np.exp(ours.log_prob([0, 2, 3, -1])), [0.25, 0.5, 0, 0])
    assert [end.tolist() for end in ours.interval(0.6)] == [[0, 0, 0], [1, 1, 1]]
    assert [end.tolist() for end in ours.interval(0.4)] == [[0, 0, 0], [0, 0, 1]]
    frequencies = np.bincount(ours.sample(100_000, seed=2), minlength=3) / 100_000
    assert np.abs(frequencies - ours.mean()).max() < 5 * ours.sd().max() / np.sqrt(100_000)


def test_dirichlet_multinomial() -> None:
    ours = predict(DirichletMultinomial(classes=3, concentration=(1, 2, 3)), [[2, 0, 1]], 6)
    theirs = stats.dirichlet_multinomial([3, 2, 4], 6)
    for x in ([6, 0, 0], [1, 2, 3], [2, 2, 2]):
        assert ours.log_prob(x) == pytest.approx(theirs.logpmf(x), rel=1e-10)
    assert ours.log_prob([1, 1, 1]) == -np.inf
    low, high = ours.interval(0.8)
    for j, alpha in enumerate((3, 2, 4)):
        each = stats.betabinom(6, alpha, 9 - alpha)
        assert (low[j], high[j]) == each.interval(0.8)
    np.testing.assert_allclose(ours.mean(), theirs.mean())
    np.testing.assert_allclose(ours.cov(), theirs.cov())
    same_moments(ours)


def test_normal_with_known_variance_is_the_integral() -> None:
    ours = predict(NormalKnownVariance(noise=2, mean=1, sd=3), [0.5, 2.5])
    precision = 1 / 9 + 2 / 4
    theirs = stats.norm((1 / 9 + 3 / 4) / precision, np.sqrt(4 + 1 / precision))
    np.testing.assert_allclose(
        ours.log_prob([-3.0, 0.0, 5.0]), theirs.logpdf([-3, 0, 5]), rtol=1e-7
    )
    assert float(ours.quantile(0.9)) == pytest.approx(theirs.ppf(0.9))
    assert [float(v) for v in ours.interval(0.8)] == pytest.approx(theirs.interval(0.8))
    same_moments(ours)


def test_normal_unknown_is_students_t() -> None:
    data = np.array([0.5, 2.5, -1.0, 0.0])
    ours = predict(NormalUnknown(mean=0, kappa=1, a=2, b=1), data)
    kappa, a, mean = 5, 4, data.sum() / 5
    b = 1 + (data**2).sum() / 2 - kappa * mean**2 / 2
    theirs = stats.t(2 * a, mean, np.sqrt(b / a * (1 + 1 / kappa)))
    x = np.array([-4.0, 0.0, 3.0])
    np.testing.assert_allclose(ours.log_prob(x), theirs.logpdf(x), rtol=1e-7)
    np.testing.assert_allclose(ours.cdf(x), theirs.cdf(x), rtol=1e-7)
    assert float(ours.quantile(0.975)) == pytest.approx(theirs.ppf(0.975), rel=1e-7)
    assert float(ours.sd()) == pytest.approx(theirs.std(), rel=1e-7)
    same_moments(ours)


def test_students_t_without_moments() -> None:
    ours = NormalUnknown().predictive(np.array([0.0, 1.0, 1.0, 0.8]))
    assert np.isnan(ours.mean())
    assert np.isnan(ours.sd())  # without a mean it is undefined, as for a marginal
    heavy = NormalUnknown().predictive(np.array([0.0, 1.0, 1.0, 1.8]))
    assert heavy.mean() == 0.0
    assert np.isinf(heavy.sd())


def test_multivariate_t() -> None:
    rng = np.random.default_rng(0)
    data = rng.integers(-64, 64, (9, 2)) / 16  # on the grid, so that the comparison is exact
    ours = predict(MultivariateNormalModel(dim=2, kappa=0.5, df=5, psi=2.0), data)
    n, mean = 9, data.mean(axis=0)
    kappa, df = 0.5 + n, 5 + n - 2 + 1
    scale = 2 * np.eye(2) + (data - mean).T @ (data - mean) + 0.5 * n / kappa * np.outer(mean, mean)
    theirs = stats.multivariate_t(n * mean / kappa, scale * (kappa + 1) / (kappa * df), df=df)
    x = rng.standard_normal((5, 2)) * 3
    np.testing.assert_allclose(ours.log_prob(x), theirs.logpdf(x), rtol=1e-9)
    np.testing.assert_allclose(ours.mean(), n * mean / kappa, rtol=1e-9)
    each = stats.t(df, n * mean / kappa, np.sqrt(np.diag(scale * (kappa + 1) / (kappa * df))))
    np.testing.assert_allclose(ours.interval(0.9), each.interval(0.9), rtol=1e-9)
    same_moments(ours)


def test_regression_with_known_noise_predicts_normals() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(-32, 32, (20, 2)) / 16
    y = rng.integers(-64, 64, 20) / 16
    model = LinearRegression(features=2, noise=0.5, sd=2, intercept=True)
    new = rng.standard_normal((4, 2))
    ours = predict(model, (x, y), new)
    z, z_new = (np.column_stack([np.ones(len(v)), v]) for v in (x, new))
    cov = np.linalg.inv(np.eye(3) / 4 + z.T @ z / 0.25)
    mean = cov @ z.T @ y / 0.25
    np.testing.assert_allclose(ours.mean(), z_new @ mean, rtol=1e-9)
    np.testing.assert_allclose(ours.sd() ** 2, 0.25 + np.diag(z_new @ cov @ z_new.T), rtol=1e-9)
    theirs = stats.norm(ours.mean(), ours.sd())
    np.testing.assert_allclose(ours.cdf(np.ones(4)), theirs.cdf(np.ones(4)), rtol=1e-12)
    same_moments(ours)
    with pytest.raises(DataError, match=r"shape \(4, 3\)\. Fix: give 2 columns \(x1, x2\)"):
        predict(model, (x, y), np.ones((4, 3)))


def test_regression_with_unknown_noise_predicts_students_t() -> None:
    rng = np.random.default_rng(2)
    x = rng.integers(-32, 32, (20, 2)) / 16
    y = rng.integers(-64, 64, 20) / 16
    model = LinearRegressionUnknownNoise(features=2, sd=2, a=3, b=2)
    new = rng.standard_normal((4, 2))
    ours = predict(model, (x, y), new)
    precision = np.eye(2) / 4 + x.T @ x
    mean = np.linalg.solve(precision, x.T @ y)
    a, b = 3 + 10, 2 + 0.5 * (y @ y - mean @ precision @ mean)
    scale = np.sqrt(b / a * (1 + np.diag(new @ np.linalg.inv(precision) @ new.T)))
    theirs = stats.t(2 * a, new @ mean, scale)
    np.testing.assert_allclose(ours.log_prob(np.ones(4)), theirs.logpdf(np.ones(4)), rtol=1e-8)
    low, high = ours.interval(0.9)
    np.testing.assert_allclose([low, high], theirs.interval(0.9), rtol=1e-8)
    same_moments(ours)


def test_regression_predicts_by_name_as_it_learns():
    import pandas as pd

    from unweave.errors import DataError
    from unweave.models import LinearRegressionUnknownNoise

    model = LinearRegressionUnknownNoise(features=("size", "age"), target="price")
    rows = {"size": [1.0, 2.0, 3.0], "age": [3.0, 1.0, 2.0], "price": [5.0, 3.0, 4.0]}
    eta = model.grid.decode(model.eta0 + model.factor(model.shard(rows)))
    expected = model.predictive(eta, [[1.0, 7.0]]).mean()
    for x in ({"age": [7.0], "size": [1.0]}, pd.DataFrame({"age": [7.0], "size": [1.0]})):
        assert model.predictive(eta, x).mean() == pytest.approx(expected)
    with pytest.raises(DataError, match="Fix: add 'age'"):
        model.predictive(eta, {"size": [1.0]})


def test_regression_names_what_cannot_be_predicted() -> None:
    model = LinearRegression(features=["dose", "age"])
    posterior = model.posterior(model.eta0)
    with pytest.raises(ConfigError, match=r"missing .* 'x'\. Fix: give x"):
        posterior.predict()
    with pytest.raises(DataError, match="are not numbers"):
        posterior.predict([["a", 1]])
    with pytest.raises(DataError, match="column 'age', row 1: the value is missing"):
        posterior.predict([[1, 2], [1, np.nan]])


@pytest.mark.parametrize(("a", "b"), [(1.2, 0.3), (3.0, 3.0), (2.5, 80.0), (900.0, 40.0)])
def test_beta_exponential_integrates_theta_out(a: float, b: float) -> None:
    """Against adaptive quadrature, and against samples of both steps."""
    ours = BetaExponential().predictive([a, b])
    prior = stats.beta(a, b)

    def mixed(f: Any) -> float:
        """E f(θ), in x = logit θ, where nothing is singular."""

        def integrand(x: float) -> float:
            weight = a * special.log_expit(x) + b * special.log_expit(-x) - special.betaln(a, b)
            return float(f(special.expit(x)) * np.exp(weight))

        centre, width = np.log(a / b), np.sqrt(1 / a + 1 / b)
        low, high = centre - 9 * width - 45 / (a - 1), centre + 9 * width + 45 / b
        ends = pairwise([low, centre - 4 * width, centre, centre + 4 * width, high])
        parts = [integrate.quad(integrand, *end, epsabs=0, epsrel=1e-11, limit=400) for end in ends]
        return float(sum(part for part, _ in parts))

    mean = prior.mean()
    for z in (0.01 * mean, mean, 4.0 * mean, 9.0 * mean):
        density = mixed(lambda t, z=z: np.exp(-z / t) / t)
        assert float(ours.log_prob(z)) == pytest.approx(np.log(density), abs=1e-9)
        tail = mixed(lambda t, z=z: np.exp(-z / t))
        assert 1.0 - float(ours.cdf(z)) == pytest.approx(tail, rel=1e-9, abs=1e-13)
    assert ours.mean() == pytest.approx(mean)
    assert ours.sd() == pytest.approx(np.sqrt(2 * prior.moment(2) - mean**2))
    np.testing.assert_allclose(ours.cdf(ours.quantile(P)), P, rtol=1e-12)
    assert ours.quantile([0.0, 1.0]).tolist() == [0.0, np.inf]
    assert ours.interval(0.9) == pytest.approx(tuple(ours.quantile([0.05, 0.95])))
    assert float(ours.log_prob(-1.0)) == -np.inf
    assert float(ours.cdf(-1.0)) == 0.0
    same_moments(ours)


@pytest.mark.parametrize(("a", "b"), [(1.05, 0.3), (3.0, 3.0), (2.5, 80.0), (900.0, 4000.0)])
@pytest.mark.parametrize("means", [1e-12, 1.0, 50.0, 500.0, 5e3, 1e6])
def test_beta_exponential_keeps_its_tail(a: float, b: float, means: float) -> None:
    """In t = 1/θ − 1: p(z) = exp(−z)/B(a, b) ∫ t^(b−1) (1+t)^(1−a−b) exp(−zt) dt, around its mode
    in log t."""
    z = means * a / (a + b)

    def log_integrand(y: float) -> float:
        return float(b * y + (1 - a - b) * np.logaddexp(0.0, y) - z * np.exp(y))

    grid = np.linspace(-60 / b - 40, 60 / (a - 1) + 40, 400_001)
    values = b * grid + (1 - a - b) * np.logaddexp(0.0, grid) - z * np.exp(np.minimum(grid, 600))
    peak = values.max()
    inside = grid[values > peak - 60]
    ends = np.linspace(inside[0], inside[-1], 12)
    parts = [
        integrate.quad(lambda y: np.exp(log_integrand(y) - peak), *end, epsrel=1e-12, limit=400)[0]
        for end in pairwise(ends)
    ]
    expected = peak + np.log(sum(parts)) - z - special.betaln(a, b)
    assert float(BetaExponential().predictive([a, b]).log_prob(z)) == pytest.approx(
        expected, abs=1e-8, rel=1e-11
    )


def test_beta_exponential_at_the_ends() -> None:
    ours = BetaExponential().predictive([3.0, 2.0])
    near, zero, far, never = ours.log_prob([1e-14, 0.0, 1e300, np.inf]).tolist()
    assert zero == pytest.approx(np.log(2.0), rel=1e-12)  # E[1/θ] = (a + b − 1)/(a − 1)
    assert near == pytest.approx(zero, abs=1e-10)
    assert far == pytest.approx(-1e300, rel=1e-12)
    assert never == -np.inf


def test_a_beta_exponential_predicts_inside_the_domain_only() -> None:
    model = BetaExponential()
    predicted = Federation(model, [[0.2, 0.4], [0.3]], "path").learn().posterior.predict()
    assert predicted.interval(0.5)[0] < predicted.mean()
    with pytest.raises(DomainError, match=r"needs E\[1/θ\]: a > 1"):
        model.predictive([0.9, 1.0])
