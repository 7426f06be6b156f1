"""Exact noise against noise that only looks like it: NumPy's normal numbers, rounded."""

from __future__ import annotations

import numpy as np

from benchmarks.harness import benchmark, cpu, ratio
from unweave.privacy.discrete_gaussian import DiscreteGaussian

DRAWS = 1_000_000


def _against_rounding(variance: int) -> float:
    sampler, rng = DiscreteGaussian(variance), np.random.default_rng(1)
    sd = float(variance) ** 0.5

    def rounded() -> None:
        np.rint(sd * rng.standard_normal(DRAWS)).astype(np.int64)

    return ratio(lambda: sampler.draw(DRAWS), rounded)


@benchmark(
    "10⁶ exact discrete Gaussians, σ = 2⁴⁰, against rounded normals",
    target=15,
    at_most=True,
    privacy="masked",
)
def large() -> float:
    return _against_rounding(1 << 80)


@benchmark(
    "10⁶ exact discrete Gaussians, σ = 9, against rounded normals",
    target=15,
    at_most=True,
    privacy="masked",
)
def small() -> float:
    return _against_rounding(81)


@benchmark(
    "exact discrete Gaussians, σ = 2⁴⁰, in 10⁶ per second", target=1, unit="M/s", privacy="masked"
)
def rate() -> float:
    sampler = DiscreteGaussian(1 << 80)
    return DRAWS / 1e6 / cpu(lambda: sampler.draw(DRAWS))
