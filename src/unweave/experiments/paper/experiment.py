"""Shared by the experiments: sizes, data, and summaries of curves over replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweave.experiments.replicas import PerReplica
from unweave.experiments.replicas.result import Curves, Replicas, Target
from unweave.rng import Stream, derive

__all__ = [
    "AGENTS",
    "BAND",
    "RECORDS",
    "REDUCTIONS",
    "SUMMARY",
    "THETA",
    "THETA_DROP",
    "THETA_OTHER",
    "bernoulli",
    "columns",
    "ending",
    "exact_posterior",
    "exponential",
    "median",
    "outside_note",
    "summarised",
]


Floats = NDArray[np.float64]

AGENTS = 10  # K
RECORDS = 100  # N_k
BAND = 0.75
SUMMARY = ("kl_median", "kl_mean", "kl_low", "kl_high", "outside")  # the columns of `summarised`
REDUCTIONS = ("mean", "sum")
THETA = 0.37  # of the exponential records
THETA_OTHER = 0.8  # of agent 10, where it is unlike the others
THETA_DROP = 0.2  # the same for REINFORCE

# Separate keys keep the data independent of the draws of the walk and the solver.
_BERNOULLI, _EXPONENTIAL = (int.from_bytes(tag, "big") for tag in (b"bern", b"expo"))


def _uniforms(seed: int, tag: int, replicas: int) -> Floats:
    return Stream(derive(seed, tag)).random((replicas, AGENTS, RECORDS))


def bernoulli(seed: int, replicas: int, theta: float) -> PerReplica:
    """x = 1 with probability theta; data of their own for every replica."""
    return PerReplica((_uniforms(seed, _BERNOULLI, replicas) < theta).astype(np.float64))


def exponential(
    seed: int, replicas: int, theta: float = THETA, last: float | None = None
) -> PerReplica:
    """z ~ Exp with mean theta, by inversion; agent 10 may have a mean `last` of its own."""
    z = -np.log1p(-_uniforms(seed, _EXPONENTIAL, replicas))
    means = np.full((AGENTS, 1), theta)
    means[-1] = theta if last is None else last
    return PerReplica(z * means)


def columns(last: int, points: int = 90) -> NDArray[np.int64]:
    """About `points` iterations from 1 to `last`, evenly spaced on a logarithmic axis."""
    spaced = np.rint(np.geomspace(1, last, points)).astype(np.int64)
    return np.unique(np.append(spaced, np.arange(1, min(last, 12) + 1)))


def exact_posterior(replicas: Replicas) -> Target:
    """The posterior of the data of all agents that are not forgotten, one per replica [R, 1]."""
    target = replicas.target
    assert isinstance(target, Target)  # the beta-exponential model has one
    return target


def summarised(curves: Curves) -> Iterator[tuple[float | int | None, ...]]:
    """A row of `SUMMARY` per column of curves: the median, the mean of the replicas inside the
    domain, the ends of the band, and how many replicas are outside. An infinite value is None."""
    inside = np.isfinite(curves.values)
    count = inside.sum(axis=0)
    total = np.where(inside, curves.values, 0.0).sum(axis=0)
    means = np.where(count, total / np.maximum(count, 1), np.inf)
    for *row, out in zip(
        curves.median(), means, *curves.band(BAND), len(inside) - count, strict=True
    ):
        yield (*(float(x) if np.isfinite(x) else None for x in row), int(out))


def median(values: Floats) -> float:
    """The median [R] → number as `Curves` has it: the value of a replica."""
    return float(Curves(values[:, None]).median()[0])


def ending(curves: Curves, lowest: Floats) -> dict[str, float | int | None]:
    """The last KL of the curves and its excess over the floor. Only the median includes replicas
    outside the domain."""
    last = curves.values[:, -1]
    inside = np.isfinite(last)
    kl, excess = last[inside], (last - lowest)[inside]
    median = float(curves.median()[-1])
    return {
        "kl_median": median if np.isfinite(median) else None,
        "kl_mean": float(kl.mean()) if kl.size else None,
        "kl_standard_error": float(kl.std(ddof=1) / np.sqrt(kl.size)) if kl.size > 1 else None,
        "largest_excess_over_floor": float(excess.max()) if kl.size else None,
        "outside": int((~inside).sum()),
        "outside_rate": float((~inside).mean()),
    }


def outside_note(replicas: int, runs: dict[str, dict[str, Any]]) -> str:
    """One sentence on the replicas that left the domain; runs by name, each an `ending`."""
    some = [
        f"{name} {end['outside']} ({100 * end['outside_rate']:.1f}%)"
        for name, end in runs.items()
        if end["outside"]
    ]
    if not some:
        return f"No replica left the domain ({replicas} replicas of {len(runs)} runs)."
    return (
        f"Replicas of {replicas} that left the domain: {'; '.join(some)}; none in the other "
        f"{len(runs) - len(some)} runs. They rank as KL = ∞ in medians and bands; means leave them "
        f"out."
    )
