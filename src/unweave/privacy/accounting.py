"""Privacy accounting in zCDP: what one given value costs, and what a total cost promises.

A value with noise of standard deviation σ and sensitivity Δ costs ρ = Δ²/2σ² (zero-concentrated
differential privacy; Bun and Steinke 2016), and the costs of several values add up, also if each
was chosen after seeing the others. A total cost ρ promises (ε, δ) for every δ; `epsilon`, `delta`
and `budget` convert with the optimal formula of Canonne, Kamath and Steinke (2020, corollary 13):

    δ = inf over α > 1 of exp((α−1)(αρ−ε)) / (α−1) · (1 − 1/α)^α

Every agent adds a share of noise of variance v. A sum of n discrete Gaussians is not a discrete
Gaussian; Kairouz, Liu and Steinke (2021, proposition 14) bound the difference, for d components:

    τ = 10 Σ_{k<n} exp(−2π² v k/(k+1)),     D_α ≤ min( α/2 · Δ²/σ² + τd,  α/2 · (Δ/σ + τ√d)² )

with σ² = n·v. zCDP asks for D_α ≤ αρ at every α > 1, hence ρ = min(Δ²/2σ² + τd, (Δ/σ + τ√d)²/2).
(Their theorem 1 has τd/4 in place of τd. The larger term follows from the proposition, and from
v = 4 on it is below 10^-15.) Results are rounded to the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from unweave.errors import ConfigError

__all__ = ["LEAST_VARIANCE", "budget", "cost", "delta", "epsilon", "share_variances"]

# Of one agent's share of the noise, in squared units of the grid.
LEAST_VARIANCE = 4

_UP, _DOWN = 1 + 2.0**-40, 1 - 2.0**-40  # beyond every rounding error of this module


def delta(rho: float, epsilon: float) -> float:
    """The δ that a total cost ρ promises at ε."""
    if rho <= 0.0:
        return 0.0

    def slope(alpha: float) -> float:
        """The derivative of the logarithm; it grows with α."""
        return (2 * alpha - 1) * rho - epsilon + math.log1p(-1 / alpha)

    low, high = 1.0 + 1e-9, 2.0 + (epsilon + 1) / (2 * rho)
    while slope(high) < 0:
        high *= 2
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    alpha = high
    log = (alpha - 1) * (alpha * rho - epsilon) - math.log(alpha - 1)
    return min(1.0, math.exp(min(log + alpha * math.log1p(-1 / alpha), 0.0)) * _UP)


def epsilon(rho: float, delta_: float) -> float:
    """The ε that a total cost ρ promises at δ."""
    if rho <= 0.0:
        return 0.0
    low, high = 0.0, rho + 2 * math.sqrt(rho * math.log(1 / delta_))  # (Bun and Steinke)
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if delta(rho, middle) <= delta_ else (middle, high)
    return high


def budget(epsilon: float, delta_: float) -> float:
    """The largest total cost ρ that promises (ε, δ)."""
    low, high = 0.0, 1.0
    while delta(high, epsilon) <= delta_:
        high *= 2
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if delta(middle, epsilon) <= delta_ else (low, middle)
    return low


def excess(variance: int, shares: int) -> float:
    """τ: how far a sum of so many shares of this variance is from a discrete Gaussian."""
    return 10 * sum(math.exp(-2 * math.pi**2 * variance * k / (k + 1)) for k in range(1, shares))


def cost(ratio: Fraction, variances: Sequence[int], shares: int) -> float:
    """ρ of one given value, of which at least `shares` honest agents add noise with these variances
    per component; `ratio` is Δ²/σ²."""
    if min(variances) < LEAST_VARIANCE:
        raise ConfigError(
            f"a share of noise of variance {min(variances)} on the grid is too coarse. Fix: at "
            f"least {LEAST_VARIANCE}, with more bits of the grid (bits=…)"
        )
    tau, d = excess(min(variances), shares), len(variances)
    square = float(ratio) * _UP
    return _UP * min(0.5 * square + tau * d, 0.5 * (math.sqrt(square) + tau * math.sqrt(d)) ** 2)


def share_variances(
    sensitivity: Fraction, scales: Sequence[Fraction], rho: float, shares: int
) -> tuple[int, ...]:
    """The variance of an agent's share per component, in squared grid units, with which a value
    costs at most ρ: v_j = Δ²·scale_j²/2ρn, rounded up. `sensitivity` is Δ²."""
    # The term τd of `cost` is far below what this leaves.
    exact = sensitivity / (2 * Fraction(rho * _DOWN**4) * shares)
    return tuple(max(LEAST_VARIANCE, math.ceil(exact * scale * scale)) for scale in scales)
