"""What the law suite cannot say in general: constructors, messages, boundaries, speed of shape."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from unweave import families
from unweave.errors import ConfigError, DomainError
from unweave.families import (
    Beta,
    BetaFamily,
    DiagonalNormal,
    Dirichlet,
    DirichletFamily,
    Distribution,
    Family,
    Gamma,
    InverseGamma,
    MultivariateNormal,
    MultivariateNormalFamily,
    Normal,
    NormalFamily,
    NormalInverseGamma,
    NormalInverseGammaFamily,
    NormalInverseWishart,
)
from unweave.rng import Stream
from unweave.testing.families import CASES


def test_every_family_has_a_case() -> None:
    tested = {type(case.family) for case in CASES}
    exported = {
        value
        for value in vars(families).values()
        if isinstance(value, type) and issubclass(value, Family) and value is not Family
    }
    assert exported == tested


def test_constructors_say_what_they_made() -> None:
    assert repr(Beta(a=2, b=2)) == "Beta(a=2, b=2)"
    assert repr(Normal(mean=1, sd=2)) == "Normal(mean=1, sd=2)"
    assert repr(Dirichlet([1, 2])) == "Dirichlet(alpha=[1., 2.])"
    assert Gamma(a=2, b=4).mean() == 0.5
    assert InverseGamma(a=3, b=4).mean() == 2.0
    assert DiagonalNormal(mean=[0, 1], sd=2).sd() == pytest.approx([2, 2])
    assert MultivariateNormal([0, 1], precision=4).sd() == pytest.approx([0.5, 0.5])
    assert NormalInverseGamma(1.0, 2.0, a=3, b=4).mean() == pytest.approx([1.0, 2.0])
    assert NormalInverseWishart([1, 2], 2, 6, np.eye(2)).mean() == pytest.approx(
        [1, 2, 1 / 3, 1 / 3]
    )


def test_numbers_make_batches() -> None:
    batch = Beta(a=[1, 2, 3], b=2)
    assert batch.batch_shape == (3,)
    assert batch.mean() == pytest.approx([1 / 3, 1 / 2, 3 / 5])
    assert batch.sample(5).shape == (5, 3)
    assert batch.interval(0.5)[0].shape == (3,)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Beta(a=0, b=1), "a = 0 must be above 0"),
        (lambda: Gamma(a=1, b=-2), "b = -2 must be above 0"),
        (lambda: Normal(mean=0, sd=0), "sd = 0 must be above 0"),
        (lambda: Dirichlet([1, -1]), r"alpha\[1\] = -1"),
        (lambda: MultivariateNormal([0, 0], [[1, 2], [2, 1]]), "not positive definite"),
        (lambda: MultivariateNormal([0, 0], [[1, 0.5], [0, 1]]), "symmetric"),
        (lambda: MultivariateNormal([0, 0], [[1, np.nan], [np.nan, 1]]), "NaN"),
        (lambda: NormalInverseGamma(0, 1, a=-1, b=1), "n = 2a = -2"),
        (lambda: NormalInverseWishart([0, 0], 1, 1, np.eye(2)), "df = 1 must be above 1"),
        (lambda: Distribution(BetaFamily(), np.ones(3)), r"give 2 numbers \(a, b\)"),
    ],
)
def test_impossible_parameters(make: object, words: str) -> None:
    with pytest.raises(DomainError, match=words):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MultivariateNormal([0, 0]), "Fix: give cov or precision"),
        (lambda: MultivariateNormal([0], 1, precision=1), "Fix: give cov or precision"),
        (lambda: MultivariateNormal([0, 0], np.eye(3)), "2×2"),
        (lambda: DirichletFamily(1), "at least 2 classes"),
        (lambda: MultivariateNormalFamily(0), "at least 1"),
        (lambda: Beta(1, 1).kl(Gamma(1, 1)), "one family"),
        (lambda: Beta(1, 1).interval(95), "between 0 and 1"),
        (lambda: Beta(1, 1).marginals[0].quantile(1.5), "from 0 to 1"),
    ],
)
def test_impossible_requests(make: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()  # type: ignore[operator]


def test_families_are_equal_by_type_and_size() -> None:
    assert BetaFamily() == BetaFamily()
    assert hash(DirichletFamily(3)) == hash(DirichletFamily(3))
    assert DirichletFamily(2) != BetaFamily()
    assert NormalInverseGammaFamily(2) != NormalInverseGammaFamily(3)
    assert NormalFamily() != MultivariateNormalFamily(1)


def test_a_distribution_is_frozen() -> None:
    eta = np.array([2.0, 3.0])
    law = Distribution(BetaFamily(), eta)
    eta[0] = 9.0
    assert law.params["a"] == 2.0
    with pytest.raises(ValueError, match="read-only"):
        law.eta[0] = 5.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        law.eta = eta  # type: ignore[misc]
    assert law != Beta(2, 4)
    assert law != "Beta"


def test_density_at_and_beyond_the_boundary() -> None:
    assert Beta(1, 1).log_prob([0.0, 0.5, 1.0]) == pytest.approx([0, 0, 0])
    assert Beta(2, 2).log_prob([0.0, -0.1, 1.1]).tolist() == [-np.inf] * 3
    assert Beta(0.5, 2).log_prob(0.0) == np.inf
    assert Gamma(1, 3).log_prob([0.0, -1.0]).tolist() == [pytest.approx(np.log(3)), -np.inf]
    assert InverseGamma(1, 3).log_prob([0.0, -1.0]).tolist() == [-np.inf, -np.inf]
    assert (
        Dirichlet([2, 2, 2]).log_prob([[0.2, 0.3, 0.4], [0.2, -0.1, 0.9]]).tolist() == [-np.inf] * 2
    )
    assert NormalInverseGamma(0, 1, a=1, b=1).log_prob([0.0, -1.0]) == -np.inf
    singular = [0.0, 0.0, 1.0, 2.0, 1.0]
    assert NormalInverseWishart([0, 0], 1, 3, np.eye(2)).log_prob(singular) == -np.inf


def test_moments_that_do_not_exist() -> None:
    for a, mean, sd in ((0.5, np.inf, np.nan), (1.5, 2.0, np.inf), (3.0, 0.5, 0.5)):
        marginal = InverseGamma(a, 1).marginals[0]
        assert marginal.mean() == mean
        assert np.array_equal(marginal.sd(), sd, equal_nan=True)
    for a, mean, sd in (
        (0.4, np.nan, np.nan),
        (0.8, 0.0, np.inf),
        (2.0, 0.0, np.sqrt(0.5 * 4 / 2)),
    ):
        marginal = NormalInverseGamma(0, 1, a=a, b=1).marginals[0]
        assert np.array_equal(marginal.mean(), mean, equal_nan=True)
        assert np.array_equal(marginal.sd(), sd, equal_nan=True) or marginal.sd() == pytest.approx(
            sd
        )


def test_marginals_follow_their_samples() -> None:
    law = NormalInverseWishart([1.0, -1.0], 3.0, 8.0, [[4.0, 1.0], [1.0, 2.0]])
    draws = law.sample(4000, seed=3)
    columns = (0, 1, 2, 4)  # mean[0], mean[1], Sigma[0,0], Sigma[1,1] in (x̄, triangle of Σ)
    for marginal, column in zip(law.marginals, columns, strict=True):
        assert stats.kstest(draws[:, column], marginal.cdf).pvalue > 1e-3, marginal.name
    assert law.marginals[0].renamed("x").name == "x"


def test_streams_and_generators_both_draw() -> None:
    law = NormalInverseGamma([1.0, 2.0], 1.0, a=3, b=2)
    assert np.array_equal(law.sample(4, seed=Stream(1)), law.sample(4, seed=Stream(1)))
    assert law.sample((2, 3), seed=5).shape == (2, 3, 3)
    assert law.sample().shape == (3,)


def test_a_regression_factor_is_linear_in_its_sums() -> None:
    """eta_0 + (X'y, X'X, y'y, N) is the textbook posterior."""
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((30, 2)), rng.standard_normal(30)
    gram = x.T @ x
    prior = NormalInverseGamma([0.5, -0.5], np.diag([2.0, 3.0]), a=2, b=1)
    counts = [*(x.T @ y), gram[0, 0], gram[0, 1], gram[1, 1], y @ y, 30.0]
    got = prior.family.to_params(prior.eta + np.array(counts))
    precision = np.diag([1 / 2, 1 / 3]) + gram
    m = np.linalg.solve(precision, np.array([0.25, -0.5 / 3]) + x.T @ y)
    old = 0.25 / 2 + 0.25 / 3
    assert got["precision"] == pytest.approx(precision)
    assert got["m"] == pytest.approx(m)
    assert got["a"] == pytest.approx(17.0)
    assert got["b"] == pytest.approx(1.0 + 0.5 * (old + y @ y - m @ precision @ m))


def test_the_fisher_information_must_be_supplied() -> None:
    with pytest.raises(TypeError, match="fisher or fisher_dot"):
        type("Incomplete", (Family,), {})


def test_moments_are_methods_everywhere():
    import inspect

    from unweave.experiments.replicas import result
    from unweave.families import marginals
    from unweave.models.fitted import predictive_counts, predictive_reals
    from unweave.models.fitted import predictive_reals as predictive_mixtures

    modules = (marginals, predictive_counts, predictive_mixtures, predictive_reals, result)
    found = [
        (cls, name)
        for module in modules
        for cls in vars(module).values()
        if inspect.isclass(cls) and cls.__module__.startswith("unweave.")
        for name in ("mean", "sd")
        if hasattr(cls, name)
    ]
    assert len(found) > 20
    for cls, name in found:
        assert inspect.isfunction(inspect.getattr_static(cls, name)), f"{cls.__name__}.{name}"
