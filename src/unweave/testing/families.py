"""The laws that every exponential family obeys, as functions of a FamilyCase.

    for law in laws_for(case):
        law(case)

A law raises AssertionError. Add a FamilyCase for a new family and it inherits all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import NDArray

from unweave.errors import DomainError
from unweave.families import Distribution, Family
from unweave.rng import Rng
from unweave.testing.family_cases import CASES, FamilyCase
from unweave.testing.family_densities import (
    entropy_equals_scipy_and_the_mean_surprise,
    extreme_samples_stay_in_the_support,
    log_prob_equals_scipy,
    marginals_equal_scipy,
    samples_have_the_right_moments,
)
from unweave.testing.family_divergences import (
    kl_equals_its_sample_average,
    kl_equals_quadrature,
    kl_equals_the_textbook,
    kl_is_a_divergence,
    kl_is_the_bregman_divergence_of_the_log_partition,
    kl_is_the_integral_of_the_fisher_information,
)
from unweave.testing.family_geometry import (
    all_points,
    fisher_actions_agree_with_the_matrix,
    fisher_is_the_derivative_of_the_mean,
    mean_is_the_gradient_of_the_log_partition,
    natural_inverts_the_mean,
    ordinary_points,
    parameters_make_the_round_trip,
)

__all__ = ["CASES", "LAWS", "FamilyCase", "Law", "laws_for"]


Floats = NDArray[np.float64]
Law = Callable[[FamilyCase], None]


def batches_equal_their_elements(case: FamilyCase) -> None:
    family, points = case.family, np.array(ordinary_points(case))
    single = {name: [f(points[i]) for i in range(len(points))] for name, f in _maps(family, points)}
    for shape in ((), (3,), (2, 3), (0,), (1, 2, 1)):
        index = np.arange(int(np.prod(shape))).reshape(shape) % len(points)
        for name, f in _maps(family, points):
            want = np.array(single[name])[index]
            got = f(points[index])
            assert got.shape == want.shape, f"{name} on batch {shape}: shape {got.shape}"
            assert np.allclose(got, want, rtol=1e-11, atol=1e-13), f"{name} on batch {shape}"
        draws = family.sample(points[index], cast(Rng, np.random.default_rng(0)), (4, 2))
        assert draws.shape == (4, 2, *shape, *family.event_shape)
        for marginal in family.marginals(points[index]):
            assert marginal.mean().shape == marginal.sd().shape == shape
            assert marginal.quantile([0.1, 0.9]).shape == (2, *shape)


def _maps(family: Family, points: Floats) -> list[tuple[str, Callable[[Floats], Floats]]]:
    q, v = points[0], np.linspace(0.1, 1.0, family.dim)
    theta = family.sample(q, cast(Rng, np.random.default_rng(1)))
    return [
        ("log_partition", family.log_partition),
        ("mean", family.mean),
        ("natural", lambda eta: family.natural(family.mean(eta))),
        ("fisher", family.fisher),
        ("fisher_dot", lambda eta: family.fisher_dot(eta, v)),
        ("fisher_solve", lambda eta: family.fisher_solve(eta, v)),
        ("kl from", lambda eta: family.kl(eta, q)),
        ("kl to", lambda eta: family.kl(q, eta)),
        ("entropy", family.entropy),
        ("log_prob", lambda eta: family.log_prob(eta, theta)),
        ("margin", family.margin),
        ("check", family.check),
    ]


def the_domain_has_a_boundary_that_is_named(case: FamilyCase) -> None:
    family = case.family
    for eta in all_points(case):
        assert family.margin(eta) > 0.0
        assert np.array_equal(family.check(eta), eta)
    for point, words in case.outside:
        outside = np.array(point)
        if np.isfinite(outside).all():
            assert not family.margin(outside) > 0.0, f"margin at {outside}"
        batch = np.stack([case.eta(case.points[0]), outside])
        for eta, place in ((outside, "x is outside"), (batch, r"x\[1\] is outside")):
            said = _refusal(family, eta)
            assert re.search(words, said), f"{said!r} does not say {words}"
            assert re.search(place, said), f"{said!r} does not say {place}"


def _refusal(family: Family, eta: Floats) -> str:
    try:
        family.check(eta, "x")
    except DomainError as error:
        return str(error)
    return "nothing: it was accepted"


def a_distribution_reports_its_family(case: FamilyCase) -> None:
    for params in case.points:
        eta = case.eta(params)
        law = Distribution(case.family, eta)
        assert law == Distribution(case.family, eta.copy())
        assert hash(law) == hash(Distribution(case.family, eta.copy()))
        assert repr(law).startswith(case.family.name)
        low, high = law.interval(0.9)
        assert (np.asarray(low) < high).all()
        assert law.kl(law) == 0.0
        assert np.array_equal(law.sample(3, seed=1), law.sample(3, seed=1))


LAWS: tuple[Law, ...] = (
    mean_is_the_gradient_of_the_log_partition,
    fisher_is_the_derivative_of_the_mean,
    fisher_actions_agree_with_the_matrix,
    natural_inverts_the_mean,
    parameters_make_the_round_trip,
    kl_is_a_divergence,
    kl_is_the_bregman_divergence_of_the_log_partition,
    kl_is_the_integral_of_the_fisher_information,
    kl_equals_the_textbook,
    kl_equals_quadrature,
    kl_equals_its_sample_average,
    log_prob_equals_scipy,
    entropy_equals_scipy_and_the_mean_surprise,
    marginals_equal_scipy,
    samples_have_the_right_moments,
    extreme_samples_stay_in_the_support,
    batches_equal_their_elements,
    the_domain_has_a_boundary_that_is_named,
    a_distribution_reports_its_family,
)


def laws_for(case: FamilyCase) -> tuple[Law, ...]:
    """The laws for which the reference of `case` has values."""
    missing: set[Law] = set()
    if case.kl is None:
        missing.add(kl_equals_the_textbook)
    if case.reference(case.points[0]).line is None:
        missing.add(kl_equals_quadrature)
    return tuple(law for law in LAWS if law not in missing)
