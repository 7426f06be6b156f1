"""Kernels compute what their vectorised counterparts do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from unweave.experiments.replicas import (
    beta_exact,
    beta_exponential,
    beta_gradients,
    beta_numerics,
    kernels,
)
from unweave.families import BetaFamily
from unweave.models.beta_exponential import BetaExponential
from unweave.rng import Stream, derive, mix64, uniform
from unweave.solvers import ESTIMATORS
from unweave.solvers.estimators import Point

GRID = np.logspace(-3, 8, 1501)


@pytest.fixture(autouse=True)
def _wrapping_words() -> object:
    with np.errstate(over="ignore"):
        yield


@pytest.mark.parametrize(
    ("kernel", "reference"),
    [
        (beta_numerics.digamma, special.digamma),
        (beta_numerics.trigamma, lambda x: special.zeta(2.0, x)),
        (beta_numerics.lgamma, special.gammaln),
    ],
    ids=["digamma", "trigamma", "lgamma"],
)
def test_gamma_functions(kernel: object, reference: object) -> None:
    ours = np.array([kernel(float(x)) for x in GRID])  # type: ignore[operator]
    theirs = reference(GRID)  # type: ignore[operator]
    assert np.max(np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1.0)) < 1e-14


@pytest.mark.parametrize("a", [1e-3, 0.7, 9.9, 500.0, 1e8])
@pytest.mark.parametrize("b", [0.02, 3.0, 520.0, 1e7])
def test_beta_moments(a: float, b: float) -> None:
    family, eta, v = BetaFamily(), np.array([a, b]), np.array([0.3, -0.7])
    np.testing.assert_allclose(beta_numerics.mean(a, b), family.mean(eta), rtol=1e-13, atol=1e-15)
    solved = beta_numerics.fisher_solve(a, b, *v)
    np.testing.assert_allclose(solved, family.fisher_solve(eta, v), rtol=1e-11)
    # F applied to F⁻¹v returns v; as a quadratic form: vᵀF⁻¹v.
    quad = beta_numerics.fisher_quad(a, b, *solved)
    assert quad == pytest.approx(float(v @ np.array(solved)), rel=1e-7)
    reference = special.gammaln(a) + special.gammaln(b) - special.gammaln(a + b)
    size = abs(special.gammaln(a + b)) + 1.0
    assert abs(beta_numerics.log_beta(a, b) - reference) < 1e-14 * size


@pytest.mark.parametrize(("a", "b"), [(500.0, 520.0), (3.0, 1.2), (2.5, 0.1), (0.3, 0.5)])
def test_draws_are_those_of_the_stream(a: float, b: float) -> None:
    ours = np.empty(2000)
    beta_numerics.draw_beta(a, b, np.uint64(derive(99, 1)), ours)
    theirs = BetaFamily().sample(np.array([a, b]), Stream(99), (2000,))
    np.testing.assert_allclose(ours, theirs, rtol=1e-13)


@given(x=st.integers(0, 2**64 - 1), counter=st.integers(0, 2**32))
def test_the_finaliser_is_one_function_in_three_forms(x: int, counter: int) -> None:
    with np.errstate(over="ignore"):
        words = np.array([x, x ^ 1], dtype=np.uint64)
        assert mix64(words).tolist() == [mix64(x), mix64(x ^ 1)]
        assert words.tolist() == [x, x ^ 1]
        assert int(kernels.mix(np.uint64(x))) == mix64(x)
        assert kernels.u01(np.uint64(x), np.uint64(counter)) == uniform(x, counter)


def test_words_are_those_of_draws() -> None:
    key = np.uint64(derive(5, 6))
    assert int(kernels.absorb(key, np.uint64(17))) == derive(int(key), 17)
    seeds = np.empty(3, dtype=np.uint64)
    kernels.seed_replicas(np.uint64(2**64 - 3), seeds)
    assert seeds.tolist() == [derive(2**64 - 3, 5, r) for r in range(3)]


@pytest.mark.parametrize("name", list(ESTIMATORS))
@pytest.mark.parametrize(
    ("a", "b"), [(500.0, 520.0), (4.0, 0.6), (2.3, 60.0), (3.0, 0.03), (1.05, 3.0)]
)
def test_gradients(name: str, a: float, b: float) -> None:
    model = BetaExponential(a=3, b=3)
    data, factor, key = np.array([20.0, 8.0]), np.array([2.0, 1.0]), 12345
    at = Point(model, np.array([a, b]), factor, data, Stream(key), 30, 1.5)
    call = np.uint64(derive(key, 1))
    ours = beta_gradients.gradient(
        beta_gradients.ESTIMATORS[name],
        a,
        b,
        *data,
        *factor,
        1.5,
        call,
        np.empty(30),
        np.empty((3, 30)),
    )
    theirs = ESTIMATORS[name].gradient(at)
    assert np.isfinite(theirs).all()
    np.testing.assert_allclose(ours, theirs, atol=1e-10 * np.max(np.abs(theirs)))


@settings(max_examples=25)
@given(
    a=st.floats(3.0, 500.0),
    b=st.floats(3.0, 500.0),
    records=st.floats(1.0, 100.0),
    scale=st.floats(0.05, 0.9),
    rho=st.sampled_from([0.005, 0.1, 0.5]),
    steps=st.integers(1, 4),
)
def test_the_kernel_in_lanes_equals_the_general_one(
    a: float, b: float, records: float, scale: float, rho: float, steps: int
) -> None:
    """`learn_exact` arranges the steps of `learn` for vector instructions, and decides nothing."""
    model, replicas, agents, visits = BetaExponential(a=a, b=b), 19, 3, 12
    rng = np.random.default_rng(0)
    path = rng.integers(0, agents, (replicas, visits)).astype(np.int32)
    solving = rng.random(path.shape) < 0.8
    for r, visited in enumerate(path):
        solving[r, np.unique(visited, return_index=True)[1]] = True  # nobody is in before
    sums = rng.uniform(0.5, 1.5, (replicas, agents)) * records * scale
    data = np.stack([np.full_like(sums, records), sums], axis=-1)
    found = [np.empty((replicas, visits, 2), dtype=np.int64) for _ in range(2)]
    short = [np.empty(replicas, dtype=np.int64) for _ in range(2)]
    grid = model.grid.scale
    beta_exact.learn_exact(
        path, solving, model.eta0, data, rho, steps, 1.0, grid, found[0], short[0]
    )
    beta_exponential.learn(
        np.zeros(replicas, dtype=np.uint64), 1, 1, path, solving, model.eta0, data,
        np.zeros(agents, dtype=bool), visits, kernels.SUBTRACT, 0, rho, steps, 2, 0.0, 1.0, grid,
        found[1], short[1],
    )  # fmt: skip
    assert np.array_equal(*short)
    np.testing.assert_allclose(found[0] / grid, found[1] / grid, rtol=1e-10)


def test_a_gradient_that_is_not_finite_ends_the_solve() -> None:
    """Halving such a step would never end."""
    for rho in (0.0, 0.5):
        found = beta_exponential.solve(
            3.0,
            3.0,
            0.0,
            0.0,
            1.0,
            np.inf,
            np.uint64(1),
            0,
            rho,
            5,
            0.0,
            1.0,
            np.empty(1),
            np.empty((3, 1)),
        )
        assert found == (0.0, 0.0, -1)
