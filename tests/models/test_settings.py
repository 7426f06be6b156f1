"""Settings of models: plain values of the declared types, or an error that names the setting."""

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from unweave.errors import ConfigError, DomainError
from unweave.models import (
    BetaBernoulli,
    BetaBinomial,
    BetaExponential,
    DirichletCategorical,
    LinearRegression,
    LinearRegressionUnknownNoise,
    MultivariateNormalModel,
    NormalKnownVariance,
    NormalUnknown,
)


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (lambda: BetaBernoulli(a=np.float64(2), b=np.int32(3)), BetaBernoulli(a=2.0, b=3)),
        (lambda: BetaBernoulli(a=np.array(2.5)), BetaBernoulli(a=2.5)),
        (lambda: BetaBernoulli(bits=np.array([20, 21])), BetaBernoulli(bits=(20, 21))),
        (lambda: BetaBernoulli(bits=np.int64(20)), BetaBernoulli(bits=20)),
        (
            lambda: DirichletCategorical(np.int64(2), np.array([1.0, 2.0])),
            DirichletCategorical(2, (1.0, 2.0)),
        ),
        (
            lambda: LinearRegression(np.array(["u", "v"]), sd=[1, 2], intercept=np.bool_(False)),
            LinearRegression(("u", "v"), sd=(1, 2)),
        ),
        (lambda: LinearRegression("conc"), LinearRegression(["conc"])),
        (lambda: MultivariateNormalModel("conc"), MultivariateNormalModel(["conc"])),
        (
            lambda: MultivariateNormalModel(2, psi=np.eye(2)),
            MultivariateNormalModel(2, psi=((1.0, 0.0), (0.0, 1.0))),
        ),
    ],
)
def test_numpy_values_become_plain_ones(given, plain):
    model = given()
    assert model == plain
    assert hash(model) == hash(plain)
    assert json.dumps(model.settings()) == json.dumps(plain.settings())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: BetaBernoulli(a="x"), "beta-bernoulli: a = 'x'.* Fix: give a finite number"),
        (lambda: BetaBernoulli(a=None), "a = None"),
        (lambda: BetaBernoulli(a=True), "a = True"),
        (lambda: BetaBernoulli(a=[1, 2]), "a = a list"),
        (lambda: BetaBernoulli(b=float("inf")), "b = inf.* Fix: give a finite number"),
        (lambda: BetaBernoulli(bits="x"), "give a whole number or a list of whole numbers"),
        (lambda: BetaBernoulli(bits=[24, 1.5]), r"bits\[1\] = 1.5.* Fix: give a whole number"),
        (lambda: BetaBinomial(trials=2.5), "trials = 2.5.* Fix: give a whole number"),
        (lambda: DirichletCategorical(2.5), "classes = 2.5"),
        (lambda: DirichletCategorical(2, ["x", 1]), r"concentration\[0\] = 'x'"),
        (lambda: NormalKnownVariance(noise="x"), "noise = 'x'"),
        (lambda: LinearRegression(2.5), "features = 2.5.* or a list of names"),
        (lambda: LinearRegression({"u", "v"}), "features = a set"),
        (lambda: LinearRegression(["u", ""]), r"features\[1\] = ''. Fix: give a name"),
        (lambda: LinearRegression(2, intercept="yes"), "intercept = 'yes'. Fix: True or False"),
        (lambda: LinearRegression(2, target=None), "target = None. Fix: give a name"),
        (
            lambda: LinearRegression(["intercept"], intercept=True),
            "the name of the intercept",
        ),
        (lambda: LinearRegressionUnknownNoise(["sigma2"]), "rename it"),
        (lambda: MultivariateNormalModel(2, psi=[[1, 0]]), "a number or a 2×2 matrix"),
        (lambda: MultivariateNormalModel(2, psi="x"), "a matrix, row by row"),
        (lambda: BetaExponential(a=1), "a > 1"),
    ],
)
def test_settings_of_the_wrong_kind_are_named(build, message):
    with pytest.raises(ConfigError, match=message):
        build()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: BetaBernoulli(a=-1), r"beta-bernoulli: impossible prior: .*a = -1 must be"),
        (lambda: NormalKnownVariance(sd=-1), "sd = -1 must be above 0"),
        (lambda: NormalUnknown(kappa=0), "Fix: eigenvalues above 0"),
        (lambda: MultivariateNormalModel(2, df=0), "df = 0 must be above 1"),
    ],
)
def test_the_error_of_an_impossible_prior_names_the_prior(build, message):
    with pytest.raises(DomainError, match=message) as caught:
        build()
    for advice in ("data", "factor", "step", "stronger"):
        assert advice not in str(caught.value)


def test_a_model_of_ones_own_may_have_settings_of_any_type():
    class Anything:
        pass

    @dataclass(frozen=True)
    class Own(BetaBernoulli):
        extra: "Anything | None" = None

        name: ClassVar[str] = "own"

    thing = Anything()
    assert Own(extra=thing).extra is thing
    assert Own(a=3).a == 3
