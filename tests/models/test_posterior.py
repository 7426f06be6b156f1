"""What a posterior says about itself."""

from __future__ import annotations

import hashlib
import struct
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from unweave.errors import ConfigError, DomainError, MissingExtra
from unweave.families import Beta
from unweave.models import (
    BetaBernoulli,
    BetaExponential,
    DirichletCategorical,
    LinearRegression,
    LinearRegressionUnknownNoise,
    LossModel,
    MultivariateNormalModel,
    NormalUnknown,
    Posterior,
)
from unweave.testing.models import CASES, Case


def learned(case: Case, n: int = 30) -> Posterior:
    model = case.model
    return model.posterior(model.grid.add(model.eta0, model.factor(model.shard(case.rows(n, 4)))))


def test_the_digest_is_over_little_endian_int64() -> None:
    model = BetaBernoulli(bits=0)
    posterior = model.posterior(np.array([5, 3]))
    assert posterior.digest == hashlib.sha256(struct.pack("<2q", 5, 3)).hexdigest()
    assert repr(posterior).startswith("Posterior(beta-bernoulli: theta = 0.625 ± 0.16; ")


def test_equality_is_equality_of_bits_and_settings() -> None:
    model = BetaBernoulli()
    one, two = model.posterior(model.eta0), model.posterior(model.eta0.copy())
    assert one == two
    assert len({one, two}) == 1
    assert one != model.posterior(model.eta0 + 1)
    assert one != BetaBernoulli(alpha=2).posterior(model.eta0)


def test_a_posterior_is_frozen_and_checked() -> None:
    model = BetaBernoulli()
    units = model.eta0.copy()
    posterior = model.posterior(units)
    units[0] = 0
    assert posterior == model.posterior(model.eta0)
    with pytest.raises(DomainError, match="posterior of beta-bernoulli"):
        model.posterior(np.array([0, 5]))
    with pytest.raises(ConfigError, match="give 2 components"):
        model.posterior(np.array([1, 2, 3]))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_summaries_agree_with_samples(case: Case) -> None:
    posterior = learned(case)
    draws = np.asarray(posterior.sample(40_000, seed=3))
    mean, sd = np.atleast_1d(posterior.mean()), np.atleast_1d(posterior.sd())
    if case.id == "multivariate-normal":  # marginals: means and variances, not covariances
        draws = draws[:, [0, 1, 2, 3, 6, 8]]
    draws = draws.reshape(len(draws), -1)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 6 * sd / np.sqrt(len(draws)))
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.1)
    low, high = (np.atleast_1d(v) for v in posterior.interval(0.9))
    inside = ((draws > low) & (draws < high)).mean(axis=0)
    np.testing.assert_allclose(inside, 0.9, atol=0.01)
    assert np.isfinite(posterior.log_prob(np.asarray(posterior.sample(3)))).all()
    assert posterior.kl(posterior) == 0
    prior = case.model.posterior(case.model.eta0)
    assert posterior.kl(prior) > 0.1


def test_kl_to_a_plain_distribution() -> None:
    model = BetaBernoulli(a=2, b=2)
    assert model.posterior(model.eta0).kl(Beta(a=3, b=1)) == pytest.approx(
        float(Beta(a=2, b=2).kl(Beta(a=3, b=1)))
    )
    assert {k: float(v) for k, v in model.posterior(model.eta0).params.items()} == {"a": 2, "b": 2}


def test_a_missing_predictive_is_an_error_with_a_fix() -> None:
    @dataclass(frozen=True)
    class Silent(BetaExponential):
        def predictive(self, eta, *args, **kwargs):
            return LossModel.predictive(self, eta, *args, **kwargs)

    model = Silent()
    with pytest.raises(ConfigError, match=r"no posterior predictive. Fix: .* posterior.sample"):
        model.posterior(model.eta0).predict()


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (BetaBernoulli(), ["theta"]),
        (NormalUnknown(), ["theta", "sigma2"]),
        (LinearRegression(["dose", "age"], intercept=True), ["intercept", "dose", "age"]),
        (LinearRegressionUnknownNoise(["dose"]), ["dose", "sigma2"]),
        (
            MultivariateNormalModel(["u", "v"]),
            ["mean[u]", "mean[v]", "Sigma[u,u]", "Sigma[v,v]"],
        ),
    ],
    ids=lambda v: getattr(v, "name", ""),
)
def test_quantities_bear_the_names_that_the_model_knows(model, names) -> None:
    posterior = model.posterior(model.eta0)
    assert [law.name for law in posterior.marginals] == names
    rows = posterior.table(0.9)
    assert [row.name for row in rows] == names
    low, high = (np.atleast_1d(end) for end in posterior.interval(0.9))
    for j, row in enumerate(rows):
        expected = [np.atleast_1d(posterior.mean())[j], np.atleast_1d(posterior.sd())[j]]
        assert list(row[1:]) == pytest.approx([*expected, low[j], high[j]], nan_ok=True)
        assert f"{row.name} = " in repr(posterior)
    assert "beta[0]" not in repr(posterior)


@pytest.mark.filterwarnings("ignore")  # other people's deprecations
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_arviz_reads_every_posterior(case: Case) -> None:
    posterior = learned(case)
    data = posterior.to_arviz(draws=50, chains=2, seed=1)
    assert data.posterior.attrs["digest"] == posterior.digest
    for variable in data.posterior.data_vars.values():
        assert variable.shape[:2] == (2, 50)


@pytest.mark.filterwarnings("ignore")
def test_arviz_names_coefficients() -> None:
    model = LinearRegressionUnknownNoise(features=["age"], intercept=True)
    data = model.posterior(model.eta0).to_arviz(draws=10, chains=1)
    assert set(data.posterior.data_vars) == {"intercept", "age", "sigma2"}


def test_without_arviz_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(MissingExtra, match=r"pip install 'unweave\[arviz\]'"):
        BetaBernoulli().posterior(BetaBernoulli().eta0).to_arviz()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_samples_carry_names(case: Case) -> None:
    posterior = learned(case)
    samples = posterior.sample(5, seed=2)
    theta = posterior.distribution.sample(5, seed=2)
    np.testing.assert_array_equal(np.asarray(samples), theta)
    named = posterior.model.named_samples(theta)
    assert list(samples) == list(named)
    for name, values in samples.items():
        np.testing.assert_array_equal(values, named[name])
        labels = posterior.model.coordinates.get(name, {})
        assert values.shape == (5, *map(len, labels.values()))
    assert np.isfinite(posterior.log_prob(samples)).all()


def test_samples_are_columns_of_a_table() -> None:
    import pandas as pd

    model = LinearRegressionUnknownNoise(["dose", "age"])
    table = pd.DataFrame(model.posterior(model.eta0).sample(4))
    assert list(table) == ["dose", "age", "sigma2"]
    assert table.shape == (4, 3)


@pytest.mark.filterwarnings("ignore")
def test_arviz_has_coordinates() -> None:
    model = MultivariateNormalModel(["u", "v"])
    data = model.posterior(model.eta0).to_arviz(draws=3, chains=2).posterior
    assert data["mean"].dims == ("chain", "draw", "column")
    assert data["Sigma"].sel(column="u", other_column="v").shape == (2, 3)
    dirichlet = DirichletCategorical(3)
    classes = dirichlet.posterior(dirichlet.eta0).to_arviz(draws=3, chains=1).posterior
    assert classes["theta"].sel({"class": 2}).shape == (1, 3)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_plot_has_a_panel_per_quantity(case: Case, tmp_path) -> None:
    posterior = learned(case)
    figure = posterior.plot(0.9)
    panels = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title() for axes in panels] == [m.name for m in posterior.marginals]
    for axes, law in zip(panels, posterior.marginals, strict=True):
        curve, prior, mean = axes.get_lines()
        x, density = curve.get_data()
        np.testing.assert_allclose(density, law.pdf(x))
        assert x[0] <= law.quantile(0.01)
        assert law.quantile(0.99) <= x[-1]
        assert mean.get_xdata()[0] == float(law.mean())
        assert np.isfinite(axes.get_ylim()).all()
        assert prior.get_label() == "prior"
    figure.savefig(tmp_path / "q.png", dpi=40)
    assert (tmp_path / "q.png").read_bytes()[:4] == b"\x89PNG"


def test_a_plot_of_many_quantities_or_without_moments() -> None:
    wide = MultivariateNormalModel(15, df=16.5)
    figure = wide.posterior(wide.eta0).plot()
    assert figure.get_suptitle() == "multivariate-normal (and 6 more quantities)"
    prior = NormalUnknown(a=0.4)  # no mean exists
    assert len(prior.posterior(prior.eta0).plot().axes) == 2
    with pytest.raises(ConfigError, match="plot: p = 2"):
        prior.posterior(prior.eta0).plot(2)


def test_without_matplotlib_the_error_names_the_extra(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"pip install 'unweave\[plot\]'"):
        BetaBernoulli().posterior(BetaBernoulli().eta0).plot()
