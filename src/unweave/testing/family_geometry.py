"""Laws of the maps: mean is ∇A, Fisher is ∇²A, natural inverts mean, parameters return.

Tolerances are in the family's own units: sqrt(F_jj) is the standard deviation of statistic j, and
1/sqrt(F_jj) is the distance over which A curves. Each tolerance includes the unavoidable rounding
error (condition number × 2^-52), so the same laws hold at shape 1e-3 and at 1e8.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unweave.families import Family
from unweave.testing.family_cases import FamilyCase

__all__ = [
    "DRAWS",
    "EPS",
    "all_points",
    "close",
    "fisher_actions_agree_with_the_matrix",
    "fisher_is_the_derivative_of_the_mean",
    "mean_is_the_gradient_of_the_log_partition",
    "natural_inverts_the_mean",
    "ordinary_points",
    "parameters_make_the_round_trip",
    "steps",
]

Floats = NDArray[np.float64]

EPS = 2.0**-52
DRAWS = 20_000


def all_points(case: FamilyCase) -> list[Floats]:
    return [case.eta(p) for p in case.points + case.extremes]


def ordinary_points(case: FamilyCase) -> list[Floats]:
    return [case.eta(p) for p in case.points]


def steps(family: Family, eta: Floats) -> tuple[Floats, Floats]:
    """(sqrt(F_jj), a small step along component j)."""
    spread = np.sqrt(np.diagonal(family.fisher(eta)))
    step = 1e-3 / spread
    # Near the boundary A curves on a shorter scale: halve the step until F_jj is nearly constant.
    for j in range(family.dim):
        while not _is_flat(family, eta, j, step[j], spread[j]):
            step[j] *= 0.5
    return spread, step


def _is_flat(family: Family, eta: Floats, j: int, step: float, spread: float) -> bool:
    around = eta + np.outer([-2.0, 2.0], step * np.eye(family.dim)[j])
    if not (family.margin(around) > 0.0).all():
        return False
    curvature = family.fisher(around)[:, j, j]
    return bool((np.abs(curvature / spread**2 - 1.0) < 0.002).all())


def _difference(f: Callable[[Floats], Floats], eta: Floats, step: Floats) -> Floats:
    """∂f/∂eta_j by the fourth-order central difference; j is the first axis of the result."""
    rows = []
    for e in np.diag(step):
        h = float(e.sum())
        rows.append(
            (8.0 * (f(eta + e) - f(eta - e)) - (f(eta + 2 * e) - f(eta - 2 * e))) / (12 * h)
        )
    return np.array(rows)


def close(actual: Floats, expected: Floats, tolerance: Floats, what: str) -> None:
    error = np.abs(np.asarray(actual) - expected)
    bad = ~(error <= tolerance)
    assert not bad.any(), f"{what}: {actual} is not {expected}, error {error} above {tolerance}"


def mean_is_the_gradient_of_the_log_partition(case: FamilyCase) -> None:
    for eta in all_points(case):
        family = case.family
        spread, step = steps(family, eta)
        slope = _difference(family.log_partition, eta, step)
        # A's own rounding: the sum of the magnitudes that A is made of.
        rounding = 20 * EPS * (np.abs(family.log_partition(eta)) + np.abs(eta).max()) / step
        mu = family.mean(eta)
        close(slope, mu, 1e-8 * (spread + np.abs(mu)) + rounding, f"∇A at {eta}")


def fisher_is_the_derivative_of_the_mean(case: FamilyCase) -> None:
    for eta in all_points(case):
        family = case.family
        spread, step = steps(family, eta)
        slope = _difference(family.mean, eta, step)
        condition = np.abs(eta).max() / family.margin(eta)
        rounding = (
            20
            * EPS
            * min(float(condition), 1e4)
            * (np.abs(family.mean(eta)) + 20.0)
            / step[:, None]
        )
        tolerance = 1e-7 * spread * spread[:, None] + rounding
        close(slope, family.fisher(eta), tolerance, f"∇²A at {eta}")


def fisher_actions_agree_with_the_matrix(case: FamilyCase) -> None:
    rng = np.random.default_rng(7)
    for eta in all_points(case):
        family = case.family
        v = rng.standard_normal(family.dim) / steps(family, eta)[0]
        matrix = family.fisher(eta)
        assert np.array_equal(matrix, np.swapaxes(matrix, -1, -2)) or np.allclose(
            matrix, matrix.T, rtol=1e-7, atol=1e-12 * np.abs(matrix).max()
        )
        pushed = family.fisher_dot(eta, v)
        close(pushed, matrix @ v, 1e-12 * (np.abs(matrix) @ np.abs(v)), f"fisher_dot at {eta}")
        solved = family.fisher_solve(eta, pushed)
        again = family.fisher_dot(eta, solved)
        # Backward error: F·solve(w) gives w back to the rounding of the product F·x.
        scale = np.abs(matrix) @ (np.abs(solved) + np.abs(v))
        close(again, pushed, 1e-11 * scale, f"fisher_solve at {eta}")
    for eta in ordinary_points(case):
        v = rng.standard_normal(case.family.dim)
        back = case.family.fisher_solve(eta, case.family.fisher_dot(eta, v))
        assert np.allclose(back, v, rtol=1e-7, atol=1e-7 * np.abs(v).max())


def natural_inverts_the_mean(case: FamilyCase) -> None:
    for eta in all_points(case):
        family = case.family
        mu = family.mean(eta)
        back = family.natural(mu)
        columns = family.fisher_solve(eta[None, :], np.eye(family.dim))
        # mu is a difference of digammas and logarithms, which are of the size of log eta.
        condition = np.abs(columns).T @ (np.abs(mu) + 20.0)
        close(back, eta, 1e-10 * np.abs(eta) + 1e3 * EPS * condition, f"natural(mean) at {eta}")
        close(family.mean(back), mu, 1e-9 * np.abs(mu) + 1e-12, f"mean(natural) at {eta}")


def parameters_make_the_round_trip(case: FamilyCase) -> None:
    for params in case.points + case.extremes:
        eta = case.eta(params)
        named = case.family.to_params(eta)
        assert np.allclose(case.family.from_params(**named), eta, rtol=1e-7, atol=0.0)
        for name in named.keys() & params.keys():
            want = np.asarray(params[name], dtype=np.float64)
            # b of a normal-inverse-gamma and Ψ are differences of components of eta.
            slack = 1e-7 * np.abs(want) + 1e-12 * np.abs(want).max() + 4 * EPS * np.abs(eta).max()
            close(named[name], want, slack, f"{name} of {params}")
