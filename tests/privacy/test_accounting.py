"""Costs and conversions: golden values of OpenDP and dp-accounting, other formulas, and exact
divergences of sums of discrete Gaussians."""

import json
from fractions import Fraction
from math import exp, log, log1p, pi, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special, stats

from unweave.errors import ConfigError
from unweave.privacy.accounting import (
    budget,
    cost,
    delta,
    epsilon,
    excess,
    share_variances,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "privacy.json").read_text())


@pytest.mark.parametrize("case", GOLDEN["conversions"], ids=lambda c: f"{c['rho']},{c['delta']}")
def test_conversions_are_those_of_other_software(case):
    found = epsilon(case["rho"], case["delta"])
    assert found == pytest.approx(case["opendp"], rel=1e-6)
    # dp-accounting tries a list of orders, so its ε is a little larger.
    assert found <= case["dp_accounting"] * (1 + 1e-9)
    assert found == pytest.approx(case["dp_accounting"], rel=1e-3)
    # The exact ε of a single Gaussian is smaller: zCDP forgets its shape.
    assert case["dp_accounting_pld"] <= found


@given(rho=st.floats(1e-6, 20), eps=st.floats(0.01, 60))
@settings(max_examples=60)
def test_delta_is_the_infimum_over_orders(rho, eps):
    def log_delta(t):
        alpha = 1 + exp(t)
        return (alpha - 1) * (alpha * rho - eps) - log(alpha - 1) + alpha * log1p(-1 / alpha)

    start = min(np.linspace(-12, 16, 300), key=log_delta)
    least = optimize.minimize_scalar(log_delta, bracket=(start - 0.1, start + 0.1)).fun
    if least > -600:
        assert log(delta(rho, eps)) == pytest.approx(min(least, 0.0), abs=1e-6)


@pytest.mark.parametrize("eps", [0.1, 1, 4, 12])
def test_what_is_promised_holds_for_the_gaussian_mechanism(eps):
    """The exact δ of Gaussian noise (Balle and Wang 2018) is below the one that zCDP states."""
    for ratio in (0.05, 0.3, 1.0, 3.0):
        cdf = stats.norm.cdf
        exact = cdf(ratio / 2 - eps / ratio) - exp(eps) * cdf(-ratio / 2 - eps / ratio)
        assert exact <= delta(ratio**2 / 2, eps)


@given(eps=st.floats(0.01, 50), d=st.sampled_from([1e-3, 1e-6, 1e-12]))
@settings(max_examples=40)
def test_a_budget_is_the_largest_cost_that_keeps_its_promise(eps, d):
    rho = budget(eps, d)
    assert delta(rho, eps) <= d < delta(rho * (1 + 1e-9), eps)
    assert epsilon(rho, d) == pytest.approx(eps, rel=1e-9)


def test_published_ratios():
    """σ/Δ of one release at δ = 10⁻⁶."""
    found = [(1 / (2 * budget(eps, 1e-6))) ** 0.5 for eps in (0.5, 1, 4)]
    assert found == pytest.approx([8.677, 4.531, 1.268], abs=1e-3)
    assert (delta(0.0, 1.0), epsilon(0.0, 1e-6)) == (0.0, 0.0)


def gaussian(variance, reach):
    x = np.arange(-reach, reach + 1)
    p = np.exp(-(x**2) / (2 * variance))
    return p / p.sum()


def summed(variance, shares, reach):
    found = one = gaussian(variance, reach)
    for _ in range(shares - 1):
        found = np.convolve(found, one)
    return found


@pytest.mark.parametrize(("variance", "shares"), [(1, 2), (1, 4), (2, 3)])
def test_the_excess_bounds_the_distance_of_a_sum_from_a_discrete_gaussian(variance, shares):
    reach = 60
    p = summed(variance, shares, reach)
    q = gaussian(variance * shares, shares * reach)
    near = slice(shares * reach - 8, shares * reach + 9)
    distance = np.abs(np.log(p[near] / q[near])).max()
    assert 1e-13 < distance < excess(variance, shares)


@pytest.mark.parametrize("shares", [2, 3, 6])
@pytest.mark.parametrize("shift", [1, 3, 7])
def test_costs_bound_the_exact_renyi_divergence_of_sums(shares, shift):
    variance = 4
    p = summed(variance, shares, 60)
    a, b = p[shift:], p[:-shift]
    seen = (a > 0) & (b > 0)
    log_a, log_b = np.log(a[seen]), np.log(b[seen])
    rho = cost(Fraction(shift**2, shares * variance), (variance,), shares)
    for alpha in (1.01, 2.0, 8.0, 30.0):
        divergence = special.logsumexp(alpha * log_a + (1 - alpha) * log_b) / (alpha - 1)
        assert divergence <= alpha * rho * (1 + 1e-6)
    # And the cost is not much more than that.
    assert rho == pytest.approx(shift**2 / (2 * shares * variance), rel=1e-6)


def test_the_cost_of_coarse_noise_is_refused():
    with pytest.raises(ConfigError, match="variance 3 on the grid is too coarse"):
        cost(Fraction(1), (3, 100), 4)
    assert excess(4, 10) == pytest.approx(
        10 * sum(exp(-8 * pi**2 * k / (k + 1)) for k in range(1, 10))
    )


@given(
    squared=st.fractions(1, 10**12),
    scale=st.integers(1, 2**33),
    rho=st.floats(1e-7, 5),
    shares=st.integers(2, 500),
)
def test_shares_pay_for_their_cost(squared, scale, rho, shares):
    scales = (Fraction(scale), Fraction(2 * scale))
    variances = share_variances(squared, scales, rho, shares)
    ratio = max(squared * s * s / (shares * v) for s, v in zip(scales, variances, strict=True))
    assert cost(ratio, variances, shares) <= rho
    if min(variances) > 10**9:
        assert cost(ratio, variances, shares) == pytest.approx(rho, rel=1e-6)
    assert sqrt(min(variances)) >= 2
