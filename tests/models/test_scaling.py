"""Center and scale: results and priors are in the user's units, whatever the constants."""

from dataclasses import replace

import numpy as np
import pytest

from unweave import Federation, partition
from unweave.errors import ConfigError
from unweave.models import (
    BetaBernoulli,
    GammaExponential,
    LinearRegression,
    LinearRegressionUnknownNoise,
    MultivariateNormalModel,
    NormalKnownVariance,
    NormalUnknown,
)
from unweave.testing import models as laws

RNG = np.random.default_rng(11)
X = RNG.normal(size=(200, 2)) + 3
LINE = np.column_stack([X, X @ [1.5, -0.5] + 2 + 0.5 * RNG.normal(size=200)])

# Models with every prior stated, their records, and other units for them.
CASES = [
    (GammaExponential(a=2, b=3), RNG.exponential(0.7, (200, 1)), {}, {"x": 0.25}),
    (NormalKnownVariance(noise=1.5, mean=1, sd=10), X[:, :1], {"x": 5}, {"x": 7}),
    (NormalUnknown(mean=1, kappa=0.1, a=3, b=0.7), X[:, :1], {"x": -5}, {"x": 0.3}),
    (
        MultivariateNormalModel(["u", "v"], mean=1, psi=2, df=7),
        X,
        {"u": 4, "v": 1},
        {"v": 0.1, "u": 3},
    ),
    (
        LinearRegression(2, mean=[1, 0, 1], sd=[3, 4, 5], noise=0.5, intercept=True),
        LINE,
        {"x1": 3, "y": 20},
        {"x1": 2, "x2": 0.5, "y": 4},
    ),
    (LinearRegression(2, sd=3, noise=0.5), LINE, {}, {"x1": 2, "x2": 0.5, "y": 4}),
    (
        LinearRegressionUnknownNoise(2, sd={"intercept": 3, "x1": 4, "x2": 5}, b=2, intercept=True),
        LINE,
        {"x1": 3, "y": 20},
        {"x1": 2, "x2": 0.5, "y": 4},
    ),
]
each = pytest.mark.parametrize(
    ("model", "rows", "center", "scale"), CASES, ids=lambda v: getattr(v, "name", "")
)


def learned(model, rows):
    return model.posterior(model.grid.add(model.eta0, model.factor(model.shard(rows))))


@each
def test_a_posterior_is_the_same_in_any_units(model, rows, center, scale):
    plain, other = learned(model, rows), learned(replace(model, center=center, scale=scale), rows)
    assert other.model.affine is not None
    assert plain.model.affine is None
    for one, two in zip(plain.table(), other.table(), strict=True):
        assert one.name == two.name
        np.testing.assert_allclose(one[1:], two[1:], rtol=1e-3, atol=1e-3 * one.sd)
    for key, value in plain.params.items():
        np.testing.assert_allclose(other.params[key], value, rtol=1e-3, atol=1e-3)
    theta = plain.sample(5, seed=2)
    np.testing.assert_allclose(other.log_prob(theta), plain.log_prob(theta), atol=0.05)
    inputs = ([[1.0, 2.0], [0.0, 0.0]],) if isinstance(model, LinearRegression) else ()
    if isinstance(model, LinearRegressionUnknownNoise):
        inputs = ([[1.0, 2.0], [0.0, 0.0]],)
    before, after = plain.predict(*inputs), other.predict(*inputs)
    np.testing.assert_allclose(after.mean(), before.mean(), rtol=1e-3)
    np.testing.assert_allclose(after.sd(), before.sd(), rtol=1e-3)


@each
def test_draws_have_the_moments_that_are_reported(model, rows, center, scale):
    posterior = learned(replace(model, center=center, scale=scale), rows)
    draws = np.asarray(posterior.sample(40_000, seed=3)).reshape(40_000, -1)
    shown = [0, 1, 2, 4] if isinstance(model, MultivariateNormalModel) else slice(None)
    means, sds = np.atleast_1d(posterior.mean()), np.atleast_1d(posterior.sd())
    np.testing.assert_allclose(draws[:, shown].mean(axis=0), means, atol=5 * sds.max() / 200)
    np.testing.assert_allclose(draws[:, shown].std(axis=0), sds, rtol=0.03)


@each
def test_constants_are_settings_and_the_laws_of_models_hold(model, rows, center, scale):
    scaled = replace(model, center=center, scale=scale)
    laws.settings_round_trip(scaled)
    assert scaled != model
    assert hash(scaled) == hash(replace(scaled))
    laws.parts_sum_to_the_whole(scaled, rows, 70)
    laws.dropped_records_leave_no_trace(scaled, rows, [0, 3, 199])
    laws.order_and_chunks_do_not_matter(scaled, rows, np.random.default_rng(1).permutation(200), 7)
    network = Federation(scaled, partition(rows, 3, seed=1), "ring").learn()
    network.forget("a2").forget(records={"a1": [0, 4]})
    shards = partition(rows, 3, seed=1)
    left = {"a1": np.delete(shards["a1"], [0, 4], axis=0), "a3": shards["a3"]}
    assert network.posterior == Federation(scaled, left, "path", seed=5).learn().posterior


def test_what_is_not_stated_is_standard_in_scaled_units():
    model = LinearRegression(
        ["dose", "age"], sd={"age": 3}, intercept=True, center={"age": 50}, scale={"dose": 1e-5}
    )
    prior = {row.name: row for row in model.posterior(model.eta0).table()}
    assert prior["dose"].sd == pytest.approx(1e5)
    assert prior["age"].sd == pytest.approx(3)
    assert prior["intercept"].sd == pytest.approx(np.hypot(1, 50 * 3), rel=1e-3)
    same = LinearRegression(["dose", "age"], intercept=True, scale={"dose": 1, "age": 1})
    assert same == LinearRegression(["dose", "age"], intercept=True)
    assert "scale" not in same.settings()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NormalUnknown(scale={"y": 1}), "scale names 'y', which is no column"),
        (lambda: NormalUnknown(scale={"x": 0}), "from 1e-100 to 1e100"),
        (lambda: NormalUnknown(scale=3), "give numbers by name"),
        (lambda: NormalUnknown(center={"x": "a"}), r"center\[x\] = 'a'"),
        (lambda: GammaExponential(center={"x": 1}), "cannot have a center"),
        (lambda: LinearRegression(1, center={"y": 1}), "intercept = true"),
        (lambda: LinearRegression(1, sd={"z": 1}), "sd has no 'z'"),
        (lambda: BetaBernoulli(scale={"x": 1}), "unexpected keyword"),
    ],
)
def test_constants_that_make_no_sense(make, message):
    with pytest.raises((ConfigError, TypeError), match=message):
        make()


def test_posteriors_in_different_units_are_not_compared():
    rows = [[1.0], [2.0]]
    one, two = NormalUnknown(), NormalUnknown(scale={"x": 10})
    with pytest.raises(ConfigError, match="different center or scale"):
        learned(one, rows).kl(learned(two, rows))


@pytest.mark.parametrize("scale", [0.0, -1.0, 1e-101, 1e101, 1e300])
def test_a_scale_whose_products_could_overflow_is_refused(scale):
    with pytest.raises(ConfigError, match="scale of 'x'"):
        NormalUnknown(scale={"x": scale})
