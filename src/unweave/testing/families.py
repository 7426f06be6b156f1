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
from scipy import integrate

from unweave.errors import DomainError
from unweave.families import Distribution, Family
from unweave.rng import Rng, Stream
from unweave.testing.family_cases import CASES, FamilyCase

__all__ = ["CASES", "LAWS", "FamilyCase", "Law", "laws_for"]

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


_LEVELS = np.array([0.001, 0.025, 0.3, 0.5, 0.9, 0.999])


def log_prob_equals_scipy(case: FamilyCase) -> None:
    for number, params in enumerate(case.points + case.extremes):
        eta = case.eta(params)
        theta = case.family.sample(eta, cast(Rng, np.random.default_rng(5)), (8,))
        # At shape 1e-3 most draws are near the limits of float64, where SciPy returns no number.
        with np.errstate(all="ignore"):
            want = np.array([_or_nan(case.reference(params).log_prob, t) for t in theta])
        theta, want = theta[np.isfinite(want)], want[np.isfinite(want)]
        assert want.size or number >= len(case.points)
        # Both sides subtract terms of the size of A for large shapes.
        slack = 1e-9 * (1.0 + np.abs(want)) + 50 * EPS * np.abs(eta).max() * 10.0
        close(case.family.log_prob(eta, theta), want, slack, f"log_prob at {params}")
        by_parts = (
            case.family.log_base(theta)
            + (eta * case.family.statistics(theta)).sum(-1)
            - case.family.log_partition(eta)
        )
        if number < len(case.points):
            close(by_parts, want, 1e-8 * (1.0 + np.abs(want)), f"h, s and A at {params}")


def _or_nan(f: Callable[[Floats], float], theta: Floats) -> float:
    try:
        return f(theta)
    except np.linalg.LinAlgError:
        return float("nan")


def entropy_equals_scipy_and_the_mean_surprise(case: FamilyCase) -> None:
    for number, params in enumerate(case.points + case.extremes):
        eta, want = case.eta(params), case.reference(params).entropy
        got = case.family.entropy(eta)
        assert abs(got - want) <= 1e-6 * (1.0 + abs(want)), f"{params}: {got}, not {want}"
        if number < len(case.points):
            assert np.isclose(got, want, rtol=1e-10, atol=1e-10)
            assert np.isclose(got, Family._entropy(case.family, eta), rtol=1e-10, atol=1e-10)
            theta = case.family.sample(eta, cast(Rng, np.random.default_rng(9)), (DRAWS,))
            surprise = -case.family.log_prob(eta, theta)
            error = abs(surprise.mean() - got)
            assert error <= 6.0 * surprise.std() / np.sqrt(DRAWS) + 1e-12, f"−E[log q] at {params}"


def marginals_equal_scipy(case: FamilyCase) -> None:
    for number, params in enumerate(case.points + case.extremes):
        ordinary = number < len(case.points)
        marginals = case.family.marginals(case.eta(params))
        names = tuple(m.name for m in marginals)
        assert names == case.family.theta_names
        for got, want in zip(marginals, case.reference(params).marginals, strict=True):
            place = f"{got.name} at {params}"
            # SciPy returns inf for every mean that does not exist; ours is NaN if undefined.
            if np.isfinite(want.mean()):
                assert np.isclose(got.mean(), want.mean(), rtol=1e-7), place
                assert np.isclose(got.sd(), want.std(), rtol=1e-7), place
            else:
                assert not np.isfinite(got.mean()), place
                assert not np.isfinite(got.sd()), place
            with np.errstate(all="ignore"):
                x = want.ppf(_LEVELS)
            finite = np.isfinite(x)
            quantiles = got.quantile(_LEVELS)
            # Zero may come out as 1e-17 of the spread.
            slack = 1e-6 * np.abs(x[finite]) + 1e-15 * np.abs(x[finite]).max(initial=0.0)
            close(quantiles[finite], x[finite], slack, f"quantiles of {place}")
            if ordinary:
                assert np.allclose(got.cdf(x), _LEVELS, rtol=1e-8), place
                assert np.allclose(got.pdf(x), want.pdf(x), rtol=1e-8), place
                low, high = got.interval(0.95)
                assert np.allclose((low, high), want.interval(0.95), rtol=1e-8), place


def samples_have_the_right_moments(case: FamilyCase) -> None:
    family = case.family
    for number, eta in enumerate(ordinary_points(case)):
        sources = (cast(Rng, np.random.default_rng(number)), cast(Rng, Stream(number)))
        for rng in sources:
            s = family.statistics(family.sample(eta, rng, (DRAWS,)))
            spread = np.sqrt(np.diagonal(family.fisher(eta)))
            z = (s.mean(0) - family.mean(eta)) / spread * np.sqrt(DRAWS)
            assert np.abs(z).max() < 5.0, f"E[s] at {eta}: z = {z}"
            products = (s - family.mean(eta)) ** 2
            z = (products.mean(0) - spread**2) / products.std(0) * np.sqrt(DRAWS)
            assert np.abs(z).max() < 6.0, f"Var[s] at {eta}: z = {z}"


def extreme_samples_stay_in_the_support(case: FamilyCase) -> None:
    for eta in all_points(case):
        for rng in (cast(Rng, np.random.default_rng(2)), cast(Rng, Stream(2))):
            theta = case.family.sample(eta, rng, (200,))
            assert theta.shape == (200, *case.family.event_shape)
            assert case.family.in_support(theta).all()
            assert not np.isnan(case.family.log_prob(eta, theta)).any()


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


def an_eta_outside_the_domain_is_refused_by_name(case: FamilyCase) -> None:
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
    an_eta_outside_the_domain_is_refused_by_name,
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
