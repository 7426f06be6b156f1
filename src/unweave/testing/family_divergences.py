"""Laws of KL(p‖q): a divergence, Bregman's, the Fisher information's integral, the textbook's."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy import integrate

from unweave.families import Family
from unweave.rng import Rng
from unweave.testing.family_cases import FamilyCase
from unweave.testing.family_geometry import DRAWS, all_points, close, ordinary_points, steps

__all__ = [
    "kl_equals_its_sample_average",
    "kl_equals_quadrature",
    "kl_equals_the_textbook",
    "kl_is_a_divergence",
    "kl_is_the_bregman_divergence_of_the_log_partition",
    "kl_is_the_integral_of_the_fisher_information",
]


Floats = NDArray[np.float64]


def kl_is_a_divergence(case: FamilyCase) -> None:
    points = all_points(case)
    for p in points:
        assert case.family.kl(p, p) == 0.0
        for q in points:
            divergence = case.family.kl(p, q)
            assert divergence > 0.0 or np.array_equal(p, q), f"KL({p}, {q}) = {divergence}"


def kl_is_the_bregman_divergence_of_the_log_partition(case: FamilyCase) -> None:
    for p in ordinary_points(case):
        for q in ordinary_points(case):
            # The base class computes the identity; the family may override it with a stable form.
            plain = Family._kl(case.family, p, q)
            scale = np.abs((q - p) * case.family.mean(p)).sum() + np.abs(plain)
            close(case.family.kl(p, q), plain, 1e-12 * (1.0 + scale), f"KL({p}, {q})")


def kl_is_the_integral_of_the_fisher_information(case: FamilyCase) -> None:
    """KL(p‖q) = ∫₀¹ (1−t) dᵀF(p+td)d dt: near p it needs no subtraction, also at 1e8."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    t, w = 0.5 * (nodes + 1.0), 0.5 * weights
    rng = np.random.default_rng(3)
    for p in all_points(case):
        family = case.family
        for size in (1e-1, 1e-3, 1e-6):
            push = family.fisher_solve(p, rng.standard_normal(family.dim) * steps(family, p)[0])
            length = np.sqrt(push @ family.fisher_dot(p, push))
            room = np.abs(push).max() / family.margin(p)
            q = p + push * min(size / length, 0.1 / room)
            d = q - p
            curve = (
                d * family.fisher_dot(p + t[:, None] * d, np.broadcast_to(d, (20, d.size)))
            ).sum(-1)
            want = float(((1.0 - t) * curve) @ w)
            # fisher_dot's own rounding, and that of d, relative to the size of its terms.
            floor = 1e-13 * float(np.abs(d) @ np.abs(family.fisher(p)) @ np.abs(d))
            close(family.kl(p, q), np.array(want), np.array(1e-6 * want + floor), f"KL near {p}")


def kl_equals_the_textbook(case: FamilyCase) -> None:
    assert case.kl is not None
    for p in case.points:
        for q in case.points:
            want = case.kl(p, q)
            got = case.family.kl(case.eta(p), case.eta(q))
            assert abs(got - want) <= 1e-9 * (1.0 + abs(want)), f"KL({p}, {q}): {got}, not {want}"


def kl_equals_quadrature(case: FamilyCase) -> None:
    for p in case.points:
        for q in case.points:
            first, second = case.reference(p).line, case.reference(q).line

            def gap(u: float, first: object = first, second: object = second) -> float:
                x = first.ppf(u)  # type: ignore[attr-defined]
                return float(first.logpdf(x) - second.logpdf(x))  # type: ignore[attr-defined]

            want = integrate.quad(gap, 1e-14, 1.0 - 1e-14, limit=200, epsabs=1e-10)[0]
            got = case.family.kl(case.eta(p), case.eta(q))
            assert abs(got - want) <= 1e-6 * (1.0 + abs(want)), f"KL({p}, {q}): {got}, not {want}"


def kl_equals_its_sample_average(case: FamilyCase) -> None:
    rng = cast(Rng, np.random.default_rng(11))
    family = case.family
    for p in ordinary_points(case):
        for q in ordinary_points(case):
            theta = family.sample(p, rng, (DRAWS,))
            gaps = family.log_prob(p, theta) - family.log_prob(q, theta)
            error = abs(gaps.mean() - family.kl(p, q))
            assert error <= 6.0 * gaps.std() / np.sqrt(DRAWS) + 1e-12, f"KL({p}, {q})"
