"""The loops one would write first: NumPy and SciPy, one replica, one iteration at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, polygamma

__all__ = ["beta_bernoulli", "beta_exponential_exact"]

Floats = NDArray[np.float64]
Neighbours = list[NDArray[np.int64]]


def _next(rng: np.random.Generator, neighbours: Neighbours, k: int) -> int:
    j = int(neighbours[k][rng.integers(len(neighbours[k]))])
    return j if rng.random() < len(neighbours[k]) / len(neighbours[j]) else k


def _log_partition(eta: Floats) -> float:
    return float(gammaln(eta).sum() - gammaln(eta.sum()))


def _kl(p: Floats, q: Floats) -> float:
    mean = digamma(p) - digamma(p.sum())
    return _log_partition(q) - _log_partition(p) - float((q - p) @ mean)


def beta_bernoulli(
    neighbours: Neighbours, factors: Floats, iterations: int, replicas: int, seed: int
) -> Floats:
    """Learning with a conjugate model; KL to the posterior at every iteration."""
    target = np.array([2.0, 2.0]) + factors.sum(axis=0)
    kl = np.empty((replicas, iterations))
    for r in range(replicas):
        rng = np.random.default_rng([seed, r])
        eta = np.array([2.0, 2.0])
        visited = np.zeros(len(factors), dtype=bool)
        k = int(rng.integers(len(factors)))
        for i in range(iterations):
            if not visited[k]:
                eta = eta + factors[k]
                visited[k] = True
            kl[r, i] = _kl(eta, target)
            k = _next(rng, neighbours, k)
    return kl


def beta_exponential_exact(
    neighbours: Neighbours, data: Floats, rho: float, iterations: int, replicas: int, seed: int
) -> Floats:
    """One exact natural-gradient step per visit; eta at every iteration."""
    path = np.empty((replicas, iterations, 2))
    for r in range(replicas):
        rng = np.random.default_rng([seed, r])
        eta = np.array([3.0, 3.0])
        factors = np.zeros((len(data), 2))
        k = int(rng.integers(len(data)))
        for i in range(iterations):
            a, b = eta
            curvature = polygamma(1, np.array([a, b, a + b]))
            fisher = np.diag(curvature[:2]) - curvature[2]
            slope = np.array([-b / (a - 1.0) ** 2, 1.0 / (a - 1.0)])
            gradient = data[k, 1] * np.linalg.solve(fisher, slope)
            gradient[0] += data[k, 0]
            step = rho * (factors[k] + gradient)
            eta = eta - step
            factors[k] -= step
            path[r, i] = eta
            k = _next(rng, neighbours, k)
    return path
