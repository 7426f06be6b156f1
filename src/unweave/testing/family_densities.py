"""Laws of densities, entropies, marginals and samples, against SciPy and against each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import NDArray

from unweave.families import Family
from unweave.rng import Rng, Stream
from unweave.testing.family_cases import FamilyCase
from unweave.testing.family_geometry import DRAWS, EPS, all_points, close, ordinary_points

__all__ = [
    "entropy_equals_scipy_and_the_mean_surprise",
    "extreme_samples_stay_in_the_support",
    "log_prob_equals_scipy",
    "marginals_equal_scipy",
    "samples_have_the_right_moments",
]


Floats = NDArray[np.float64]

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
