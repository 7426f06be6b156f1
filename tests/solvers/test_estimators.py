"""Every gradient estimates the same number; some with much less noise than others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from unweave.errors import ConfigError
from unweave.families import BetaFamily
from unweave.models.beta_exponential import BetaExponential
from unweave.rng import Stream
from unweave.solvers import ESTIMATORS
from unweave.solvers.estimators import Point, choose

MODEL = BetaExponential(a=3, b=3)
FAMILY = BetaFamily()
NOISY = [e.name for e in ESTIMATORS.values() if e.noisy]
# The setting of the published comparison of estimators: 100 records with mean ½, ten alike agents.
ETA, DATA = np.array([500.0, 520.0]), np.array([100.0, 50.0])
SOLUTION = -MODEL.exact_gradient(ETA, DATA)


def gradients(
    name: str, repeats: int, factor: np.ndarray = SOLUTION, samples: int = 30
) -> np.ndarray:
    """`repeats` independent estimates [repeats, 2], from one batch."""
    eta = np.broadcast_to(ETA, (repeats, 2))
    at = Point(MODEL, eta, np.broadcast_to(factor, (repeats, 2)), DATA, Stream(11), samples, 0.0)
    return ESTIMATORS[name].gradient(at)


def numerical_gradient(eta: np.ndarray, data: np.ndarray) -> np.ndarray:
    """F⁻¹∇_eta E_q[L] with E_q by adaptive integration and ∇ by central differences."""

    def expected(point: np.ndarray) -> float:
        q = stats.beta(*point)
        low, high = q.ppf(1e-15), q.isf(1e-15)
        return integrate.quad(
            lambda t: q.pdf(t) * (data[0] * np.log(t) + data[1] / t),
            low,
            high,
            epsabs=0,
            epsrel=1e-12,
            limit=500,
        )[0]

    slope = []
    for j in range(2):
        h = 1e-4 * eta[j]
        up, down = eta.copy(), eta.copy()
        up[j] += h
        down[j] -= h
        slope.append((expected(up) - expected(down)) / (2 * h))
    return FAMILY.fisher_solve(eta, np.array(slope))


@pytest.mark.parametrize(("a", "b"), [(5.0, 4.0), (30.0, 12.0), (9.5, 60.0)])
def test_exact_equals_a_numerical_derivative(a: float, b: float) -> None:
    eta, data = np.array([a, b]), np.array([20.0, 7.0])
    exact = MODEL.exact_gradient(eta, data)
    np.testing.assert_allclose(exact, numerical_gradient(eta, data), rtol=2e-5)


@given(
    st.floats(1.3, 2000.0), st.floats(0.3, 2000.0), st.floats(0.0, 300.0), st.floats(0.01, 300.0)
)
def test_exact_equals_quadrature(a: float, b: float, w0: float, w1: float) -> None:
    eta, data = np.array([a, b]), np.array([w0, w1])
    at = Point(MODEL, eta, np.zeros(2), data, Stream(0), 2, 0.0)
    exact = ESTIMATORS["exact"].gradient(at)
    scale = np.max(np.abs(exact))
    np.testing.assert_allclose(ESTIMATORS["quadrature"].gradient(at), exact, atol=1e-9 * scale)


def test_exact_keeps_its_digits_for_large_parameters() -> None:
    # For large a and b q is a point θ0 with variance v, and to leading order
    # ∇_mu E[1/θ] solves the quadratic expansion of 1/θ in (log θ, log(1−θ)) at θ0.
    t = 0.4
    slope = np.linalg.solve(
        [[1 / t, -1 / (1 - t)], [-1 / t**2, -1 / (1 - t) ** 2]], [-1 / t**2, 2 / t**3]
    )
    eta = np.array([t, 1 - t]) * 1e8
    np.testing.assert_allclose(MODEL.exact_gradient(eta, np.array([0.0, 1.0])), slope, rtol=1e-6)


@pytest.mark.parametrize("name", NOISY)
@pytest.mark.parametrize("factor", [SOLUTION, np.array([10.0, -3.0])], ids=["solved", "early"])
def test_unbiased(name: str, factor: np.ndarray) -> None:
    exact = MODEL.exact_gradient(ETA, DATA)
    estimates = gradients(name, 4000, factor, samples=3)  # few: a bias of 1/S would show
    error = (estimates.mean(axis=0) - exact) / (estimates.std(axis=0) / np.sqrt(4000))
    assert np.all(np.abs(error) < 5)


def test_published_noise() -> None:
    """sd of the first component at q = Beta(500, 520), S = 30; the exact value is −54.4."""
    assert MODEL.exact_gradient(ETA, DATA)[0] == pytest.approx(-54.4, abs=0.05)
    sd = {name: gradients(name, 3000)[:, 0].std() for name in NOISY}
    assert sd["reinforce"] == pytest.approx(3967, rel=0.05)
    assert sd["loo"] == pytest.approx(44, rel=0.1)
    assert sd["implicit"] == pytest.approx(16, rel=0.1)
    assert sd["factor_cv"] < 6
    assert sd["factor_cv"] < sd["implicit"] < sd["loo"] < sd["reinforce"] / 10


def test_baseline_constant_of_reinforce() -> None:
    """With c near E[L], REINFORCE is almost the leave-one-out baseline."""
    c = float(MODEL.expected_loss(ETA, DATA))
    at = Point(MODEL, np.broadcast_to(ETA, (3000, 2)), np.zeros((3000, 2)), DATA, Stream(1), 30, c)
    assert ESTIMATORS["reinforce"].gradient(at)[:, 0].std() < 60


def test_path_derivative_moves_quantiles() -> None:
    eta = np.array([6.0, 3.0])
    p = np.array([0.01, 0.3, 0.7, 0.99])
    theta = stats.beta(*eta).ppf(p)
    derivative = MODEL.path_derivative(np.broadcast_to(eta, (4, 2)), theta)
    for j in range(2):
        h = np.zeros(2)
        h[j] = 1e-5
        difference = (stats.beta(*(eta + h)).ppf(p) - stats.beta(*(eta - h)).ppf(p)) / 2e-5
        np.testing.assert_allclose(derivative[:, j], difference, rtol=1e-6, atol=1e-9)


def test_choice_by_name() -> None:
    assert choose(None, MODEL).name == "exact"
    with pytest.raises(ConfigError, match="choose from exact, quadrature, factor_cv"):
        choose("reinfroce", MODEL)


@pytest.mark.parametrize(("a", "b"), [(1.02, 3.0), (1.08, 0.02), (3.0, 0.004), (40.0, 1e5)])
def test_quadrature_holds_near_the_edge_of_the_domain(a: float, b: float) -> None:
    """Nodes lie so far out there that 1/θ must be kept from overflowing."""
    eta, data = np.array([a, b]), np.array([20.0, 7.0])
    at = Point(MODEL, eta, SOLUTION, data, Stream(1), 30, 0.0)
    found = ESTIMATORS["quadrature"].gradient(at)
    np.testing.assert_allclose(
        found, MODEL.exact_gradient(eta, data), rtol=1e-3 if a < 1.05 else 1e-9
    )
