"""The exact posterior of the beta-exponential model, against integrals nobody here wrote."""

import numpy as np
import pytest
from scipy import integrate, stats

from unweave.errors import ConfigError, DataError
from unweave.models import by_name
from unweave.models.beta_exponential import BetaExponential
from unweave.solvers import optimum


def cases() -> list[tuple[BetaExponential, np.ndarray]]:
    rng = np.random.default_rng(2)
    found = []
    for n, theta in ((1, 0.5), (30, 0.2), (2000, 0.7), (50, 0.97)):
        for settings in ({}, {"alpha": 2.5}, {"reduction": "mean"}):
            model = BetaExponential(a=2.5, b=1.5, **settings)
            found.append((model, model.summary(model.shard(rng.exponential(theta, n)))))
    return found


@pytest.mark.parametrize(("model", "data"), cases())
def test_posterior_is_normalised_and_has_the_right_moments(
    model: BetaExponential, data: np.ndarray
) -> None:
    p = model.exact(data)
    low, high = max(1e-9, p.mean() - 30 * p.sd()), min(1 - 1e-12, p.mean() + 30 * p.sd())
    points = [float(p.mean())]

    def moment(k: int) -> float:
        return float(
            integrate.quad(
                lambda t: t**k * np.exp(p.log_prob(t)),
                low,
                high,
                points=points,
                epsrel=1e-11,
                limit=500,
            )[0]
        )

    assert moment(0) == pytest.approx(1.0, rel=1e-8)
    assert moment(1) == pytest.approx(float(p.mean()), rel=1e-8)
    assert np.sqrt(moment(2) - moment(1) ** 2) == pytest.approx(float(p.sd()), rel=1e-5)
    # log p̃ = log prior − L/alpha up to a constant
    t = np.array([0.3, 0.6])
    shape = stats.beta(2.5, 1.5).logpdf(t) - model.loss(t, data) / model.alpha
    np.testing.assert_allclose(np.diff(p.log_prob(t)), np.diff(shape), rtol=1e-9)


@pytest.mark.parametrize("eta", [(3.0, 2.0), (40.0, 55.0), (600.0, 900.0)])
def test_kl_equals_an_integral(eta: tuple[float, float]) -> None:
    model = BetaExponential(a=3, b=3)
    p, q = model.exact(np.array([100.0, 41.0])), stats.beta(*eta)
    direct = integrate.quad(
        lambda t: q.pdf(t) * (q.logpdf(t) - p.log_prob(t)),
        q.ppf(1e-14),
        q.isf(1e-14),
        points=[q.mean()],
        epsrel=1e-10,
        limit=500,
    )[0]
    assert float(p.kl_from(np.array(eta))) == pytest.approx(direct, rel=1e-7, abs=1e-9)


def test_without_data_the_posterior_is_the_prior() -> None:
    model = BetaExponential(a=3, b=2)
    p = model.exact(np.zeros(2))
    assert float(p.kl_from(model.prior.eta)) == pytest.approx(0.0, abs=1e-12)


def test_the_floor_is_a_minimum() -> None:
    model = BetaExponential(a=3, b=3)
    data = np.array([1000.0, 400.0])
    p, best = model.exact(data), optimum(model, data)
    floor = p.kl_from(best)
    around = best + 0.02 * best * np.random.default_rng(0).standard_normal((200, 2))
    assert np.all(p.kl_from(around) > floor)
    gradient = model.exact_gradient(best, data) + best - model.prior.eta
    assert np.max(np.abs(gradient)) < 1e-3


def test_batches() -> None:
    model = BetaExponential(a=3, b=3)
    data = np.array([[10.0, 4.0], [500.0, 350.0], [1.0, 0.9]])
    eta = np.array([[5.0, 6.0], [300.0, 200.0], [3.0, 3.0]])
    together = model.exact(data).kl_from(eta)
    alone = [float(model.exact(d).kl_from(e)) for d, e in zip(data, eta, strict=True)]
    np.testing.assert_allclose(together, alone, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(optimum(model, data), [optimum(model, d) for d in data], rtol=1e-6)


def test_found_by_name_and_refuses_negative_records() -> None:
    model = by_name("beta-exponential", a=4.0, b=2.0)
    assert model == BetaExponential(a=4.0, b=2.0)
    assert model.grid.bits == (40, 40)
    with pytest.raises(DataError, match="a7"):
        model.shard([0.3, -0.1], "a7")


def test_a_posterior_without_density_is_refused() -> None:
    model = BetaExponential(a=3, b=3)
    with pytest.raises(ConfigError, match="all records are 0"):
        model.exact(np.array([50.0, 0.0]))
