"""∫ θ^(A−1) (1−θ)^(B−1) exp(−W/θ) dθ over (0, 1): a Beta density times exponential likelihoods."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from unweave.lazy import special

__all__ = ["logit_density", "tilted_beta"]

Floats = NDArray[np.float64]


def logit_density(x: Floats, a: Floats, b: Floats) -> Floats:
    """a·log θ + b·log(1−θ): the log-density of x = logit θ up to its normaliser."""
    result: Floats = a * special.log_expit(x) + b * special.log_expit(-x)
    return result


def tilted_beta(a: Floats, b: Floats, w: Floats) -> tuple[Floats, Floats, Floats]:
    """The logarithm of the integral, with the nodes θ [n, ...] and their probabilities.

    A trapezoid in x = logit θ, placed around the integrand's own mode. A may be negative where
    W > 0: exp(−W/θ) still makes the integral finite.
    """

    def log_density(x: Floats) -> Floats:
        # W/θ = W + W·exp(−x): the constant W is added at the end, because it would cancel the
        # significant digits of the rest in a far tail.
        return logit_density(x, a, b) - w * np.exp(-x)

    # The mode in x solves (A+B)θ² + (W−A)θ − W = 0; each form is stable where it is used. Where θ
    # would round to 1, 1−θ solves (A+B)(1−θ)² − (A+2B+W)(1−θ) + B = 0.
    p, sum_ab = w - a, a + b
    unit = np.abs(a) + b + w  # squares of large numbers would overflow
    root = unit * np.sqrt((p / unit) ** 2 + 4.0 * (sum_ab / unit) * (w / unit))
    with np.errstate(invalid="ignore", divide="ignore"):
        theta = np.where(p > 0.0, 2.0 * w / (p + root), (root - p) / (2.0 * sum_ab))
    rest = 2.0 * b / (a + 2.0 * b + w + root)
    mode = np.log(theta) - np.log(rest)
    peak = log_density(mode)
    curvature = sum_ab * theta * rest + w * np.exp(-mode)
    ends = []
    for sign in (-1.0, 1.0):
        width = 1.0 / np.sqrt(curvature)
        while np.any(near := peak - log_density(mode + sign * width) < 45.0):
            width = np.where(near, 1.3 * width, width)
        ends.append(mode + sign * width)
    low, high = ends
    n = max(257, math.ceil(float(np.max(high - low)) / 0.25) + 1)
    x = low + (high - low) * np.linspace(0.0, 1.0, n).reshape(-1, *(1,) * low.ndim)
    weight = np.exp(log_density(x) - peak)
    total = weight.sum(axis=0)
    log_z = peak - w + np.log(total * (high - low) / (n - 1))
    return log_z, special.expit(x), weight / total
