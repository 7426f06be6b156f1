"""Posteriors against textbook updates written here in floats, and against quadrature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from unweave.families import (
    Beta,
    Dirichlet,
    Distribution,
    Gamma,
    MultivariateNormal,
    Normal,
    NormalInverseGamma,
    NormalInverseWishart,
)
from unweave.models import (
    BetaBernoulli,
    GammaPoisson,
    LinearRegression,
    NormalKnownVariance,
    NormalUnknown,
)
from unweave.testing.models import CASES, Case

Update = Callable[[Any, np.ndarray, float], Distribution]


def _beta(successes: Callable, failures: Callable) -> Update:
    def update(m: Any, rows: np.ndarray, w: float) -> Distribution:
        return Beta(a=m.a + w * successes(m, rows), b=m.b + w * failures(m, rows))

    return update


def _normal(m: Any, rows: np.ndarray, w: float) -> Distribution:
    precision = 1 / m.sd**2 + w * len(rows) / m.noise**2
    mean = (m.mean / m.sd**2 + w * rows.sum() / m.noise**2) / precision
    return Normal(mean=mean, sd=precision**-0.5)


def _normal_unknown(m: Any, rows: np.ndarray, w: float) -> Distribution:
    """Murphy (2007), with n, n·mean and n·variance weighted."""
    n, mean, ss = w * len(rows), rows.mean(), w * ((rows - rows.mean()) ** 2).sum()
    kappa = m.kappa + n
    return NormalInverseGamma(
        m=(m.kappa * m.mean + n * mean) / kappa,
        precision=kappa,
        a=m.a + n / 2,
        b=m.b + ss / 2 + m.kappa * n * (mean - m.mean) ** 2 / (2 * kappa),
    )


def _wishart(m: Any, rows: np.ndarray, w: float) -> Distribution:
    d = rows.shape[1]
    n, mean = w * len(rows), rows.mean(axis=0)
    scatter = w * (rows - mean).T @ (rows - mean)
    prior_mean = np.zeros(d)
    kappa = m.kappa + n
    between = np.outer(mean - prior_mean, mean - prior_mean) * m.kappa * n / kappa
    return NormalInverseWishart(
        mean=n * mean / kappa, kappa=kappa, df=d + 2 + n, scale=np.eye(d) + scatter + between
    )


def _design(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.column_stack([np.ones(len(rows)), rows[:, :-1]]), rows[:, -1]


def _regression(m: Any, rows: np.ndarray, w: float) -> Distribution:
    x, y = _design(rows)
    precision = np.eye(4) / m.sd**2 + w * x.T @ x / m.noise**2
    return MultivariateNormal(
        mean=np.linalg.solve(precision, w * x.T @ y / m.noise**2), precision=precision
    )


def _regression_unknown(m: Any, rows: np.ndarray, w: float) -> Distribution:
    x, y = _design(rows)
    precision = np.eye(4) / m.sd**2 + w * x.T @ x
    mean = np.linalg.solve(precision, w * x.T @ y)
    # b + ½(residuals + shrinkage): the sum of squares written without cancellation.
    squares = w * ((y - x @ mean) ** 2).sum() + (mean**2).sum() / m.sd**2
    return NormalInverseGamma(
        m=mean, precision=precision, a=m.a + w * len(y) / 2, b=m.b + squares / 2
    )


def _groups(m: Any, rows: np.ndarray, w: float) -> Distribution:
    etas = []
    for g in range(len(m.levels)):
        x = rows[rows[:, 0] == g, 1:]
        failures = (x[:, 1] - x[:, 0]).sum()
        etas += [m.each.a + w * x[:, 0].sum(), m.each.b + w * failures]
    return Distribution(m.family, np.array(etas))


TEXTBOOK: dict[str, Update] = {
    "beta-bernoulli": _beta(lambda m, x: x.sum(), lambda m, x: (1 - x).sum()),
    "beta-binomial": _beta(lambda m, x: x[:, 0].sum(), lambda m, x: (x[:, 1] - x[:, 0]).sum()),
    "beta-geometric": _beta(lambda m, x: len(x), lambda m, x: (x - 1).sum()),
    "beta-negative-binomial": _beta(lambda m, x: m.successes * len(x), lambda m, x: x.sum()),
    "dirichlet-categorical": lambda m, x, w: Dirichlet(
        alpha=[0.5 + w * (x == j).sum() for j in range(4)]
    ),
    "dirichlet-multinomial": lambda m, x, w: Dirichlet(alpha=[1, 2, 3] + w * x.sum(axis=0)),
    "beta-exponential-atoms": lambda m, x, w: Distribution(
        m.family,
        (w * (-np.log(atoms := m.space.outward(m.family.u)[:, 0]) - x / atoms)).sum(axis=0),
    ),
    "gamma-poisson": lambda m, x, w: Gamma(a=m.a + w * x.sum(), b=m.b + w * len(x)),
    "gamma-exponential": lambda m, x, w: Gamma(a=m.a + w * len(x), b=m.b + w * x.sum()),
    "gamma-events": lambda m, x, w: Gamma(a=m.a + w * x[:, 0].sum(), b=m.b + w * x[:, 1].sum()),
    "grouped": _groups,
    "normal-known-variance": _normal,
    "normal-unknown": _normal_unknown,
    "multivariate-normal": _wishart,
    "linear-regression": _regression,
    "linear-regression-unknown-noise": _regression_unknown,
}


@pytest.mark.parametrize("n", [1, 40, 3000])
@pytest.mark.parametrize(
    ("alpha", "reduction"), [(1.0, "sum"), (0.5, "sum"), (3.0, "sum"), (1.0, "mean"), (0.1, "mean")]
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_posterior_is_the_textbooks(case: Case, alpha: float, reduction: str, n: int) -> None:
    """The grid costs less than 1e-6 in KL, in both directions, at every temperature."""
    model = replace(case.model, alpha=alpha, reduction=reduction)
    rows = case.rows(n, seed=n)
    weight = 1 / alpha / (n if reduction == "mean" else 1)
    expected = TEXTBOOK[case.id](model, rows, weight)
    shard = model.shard(rows)
    posterior = model.posterior(model.grid.add(model.eta0, model.factor(shard)))
    assert posterior.distribution.kl(expected) < 1e-6
    assert expected.kl(posterior.distribution) < 1e-6
    counts = case.id.startswith(("beta", "dirichlet", "gamma-poisson")) and "atoms" not in case.id
    if counts and weight == 1:
        # Counts lie on the grid; only a prior such as 0.1 is rounded.
        np.testing.assert_allclose(posterior.eta, expected.eta, rtol=0, atol=2.0**-24)


def test_beta_posterior_is_the_normalised_product() -> None:
    model = BetaBernoulli(a=2.5, b=1.5)
    data = np.array([1, 1, 0, 1, 0, 1, 1])
    posterior = model.posterior(model.grid.add(model.eta0, model.factor(model.shard(data))))

    def unnormalised(t: float) -> float:
        return stats.beta.pdf(t, 2.5, 1.5) * np.prod(stats.bernoulli.pmf(data, t))

    z = integrate.quad(unnormalised, 0, 1)[0]
    for t in (0.2, 0.5, 0.8):
        assert np.exp(posterior.log_prob(t)) == pytest.approx(unnormalised(t) / z, rel=1e-8)
    mean = integrate.quad(lambda t: t * unnormalised(t), 0, 1)[0] / z
    assert float(posterior.mean()) == pytest.approx(mean, rel=1e-8)


def test_a_tempered_gamma_posterior_is_the_normalised_power() -> None:
    """prior · exp(−L/alpha) with L the mean loss: `eq:opt_sol` with both options at work."""
    model = GammaPoisson(a=2, b=0.5, alpha=0.25, reduction="mean")
    data = np.array([3, 5, 2, 8])
    posterior = model.posterior(model.grid.add(model.eta0, model.factor(model.shard(data))))

    def unnormalised(t: float) -> float:
        power = stats.poisson.logpmf(data, t).mean() / 0.25
        return stats.gamma.pdf(t, 2, scale=2) * np.exp(power)

    z = integrate.quad(unnormalised, 0, 60)[0]
    for t in (2.0, 4.0, 7.0):
        assert np.exp(posterior.log_prob(t)) == pytest.approx(unnormalised(t) / z, rel=1e-6)


def test_normal_unknown_is_the_normalised_product() -> None:
    model = NormalUnknown(mean=0.5, kappa=2, a=3, b=2)
    data = np.array([0.25, 1.5, -0.75])
    posterior = model.posterior(model.grid.add(model.eta0, model.factor(model.shard(data))))

    def unnormalised(t: np.ndarray, v: np.ndarray) -> np.ndarray:
        density = stats.invgamma.pdf(v, 3, scale=2) * stats.norm.pdf(t, 0.5, np.sqrt(v / 2))
        for x in data:
            density = density * stats.norm.pdf(x, t, np.sqrt(v))
        return density

    # Trapezoids in (t, log v); the integrand is smooth and vanishes at the ends.
    t, u = np.linspace(-30, 30, 1501)[:, None], np.linspace(-5, 7, 601)
    z = np.trapezoid(np.trapezoid(unnormalised(t, np.exp(u)) * np.exp(u), u, axis=1), t[:, 0])
    for at, v in ((0.0, 0.5), (0.5, 1.0), (1.0, 2.0)):
        density = np.exp(posterior.log_prob(np.array([at, v])))
        assert density == pytest.approx(unnormalised(np.array(at), np.array(v)) / z, rel=1e-6)


def test_rounding_the_noise_does_not_bias_the_mean() -> None:
    """With few bits 1/noise² is off by 1e-5, which far from zero would move the mean a lot if the
    two components did not share it."""
    model = NormalKnownVariance(noise=1.7, mean=1000, sd=1, bits=(30, 14))
    assert 1e-6 < abs(model.used_noise / model.noise - 1) < 1e-4
    data = np.random.default_rng(0).normal(1001, 1.7, 5000)
    posterior = model.posterior(model.grid.add(model.eta0, model.factor(model.shard(data))))
    w = model.used_noise**-2
    expected = (1000 + w * data.sum()) / (1 + w * 5000)
    assert float(posterior.mean()) == pytest.approx(expected, abs=1e-8)


def test_large_offsets_and_small_noise_stay_accurate() -> None:
    """Unstandardised features: the noise is known, so rounding must not bias the mean."""
    rng = np.random.default_rng(5)
    x = rng.normal(30.0, 5.0, (5000, 2))
    y = x @ [0.2, -0.1] + 4.0 + 0.05 * rng.standard_normal(5000)
    model = LinearRegression(features=2, noise=0.05, sd=10, intercept=True)
    posterior = model.posterior(model.grid.add(model.eta0, model.factor(model.shard((x, y)))))
    z = np.column_stack([np.ones(5000), x])
    precision = np.eye(3) / 100 + z.T @ z / 0.05**2
    mean = np.linalg.solve(precision, z.T @ y / 0.05**2)
    moved = np.abs(posterior.mean() - mean) / np.sqrt(np.diag(np.linalg.inv(precision)))
    assert moved.max() < 2e-3
    np.testing.assert_allclose(posterior.sd() ** 2, np.diag(np.linalg.inv(precision)), rtol=1e-4)
