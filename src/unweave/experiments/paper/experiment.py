"""What the experiments share: sizes, data, and how many curves become one with a band."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unweave.experiments.paper.report import Setting, ours, paper
from unweave.experiments.replicas import PerReplica
from unweave.experiments.replicas.result import Replicas, Target
from unweave.rng import Stream, derive

__all__ = [
    "AGENTS",
    "BAND",
    "RECORDS",
    "REDUCTIONS",
    "THETA",
    "THETA_OTHER",
    "band",
    "bernoulli",
    "columns",
    "exact_posterior",
    "exponential",
    "exponential_settings",
    "kl_at",
]


Floats = NDArray[np.float64]

AGENTS = 10  # K
RECORDS = 100  # N_k
BAND = 0.75
REDUCTIONS = ("mean", "sum")
THETA = 0.37  # of the exponential records
THETA_OTHER = 0.8  # of agent 10, where it is unlike the others

# Data have keys of their own, apart from all draws of the walk and the solver.
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


def exponential_settings() -> list[Setting]:
    """The settings that all experiments with the beta-exponential model have in common."""
    return [
        paper("model", "z ~ Exp with mean θ (likelihood (1/θ) exp(−z/θ)), θ ~ Beta(a, b)"),
        paper("K", AGENTS),
        paper("graph", "complete"),
        paper("schedule", "metropolis (`eq:mh_rule`), uniform start, the start is iteration 1"),
        paper("alpha", 1),
        ours(
            "N_k",
            RECORDS,
            "not stated for this model; the number that the beta-Bernoulli experiment states",
        ),
        ours(
            "a, b",
            "3, 3",
            "not stated; E[1/θ] needs a > 1 and a finite variance of REINFORCE a > 2, so a = b = 2 "
            "of the beta-Bernoulli experiment will not do: the next symmetric prior",
        ),
        ours(
            "true θ",
            THETA,
            "not stated; the loss near the posterior is about N_k(1 + log θ), which is nearly 0 at "
            "θ = 1/e, so this is the kindest choice for REINFORCE with c = 0, whose noise grows "
            "with that arbitrary offset",
        ),
        ours(
            "loss scale",
            "mean and sum, both shown, each against its own exact posterior",
            "L_k is defined as a mean over N_k, but the conjugate update sums; the mean gives a "
            "tempered posterior worth K records, the sum the conventional one worth K·N_k",
        ),
        ours(
            "exact posterior",
            "p0(θ) exp(−(1/alpha) Σ_k L_k(θ)), normalised by a trapezoid in logit θ (≥ 257 nodes)",
            "how the paper computes it is not stated; KL(q‖p) is a closed form but for this "
            "normaliser",
        ),
        ours(
            "data",
            "drawn anew for every replica",
            "not stated; so bands include the randomness of data, walk and gradients",
        ),
        ours("bands", "12.5% to 87.5% of the replicas", "what a 75% credible interval is over"),
        ours(
            "floor",
            "KL of the best Beta to the exact posterior, mean over replicas",
            "no member of the family comes closer; not in the paper",
        ),
        ours(
            "grid",
            "factors are multiples of 2^−40",
            "so that subtraction undoes addition bit for bit; far below anything shown here",
        ),
    ]


def columns(last: int, points: int = 90) -> NDArray[np.int64]:
    """About `points` iterations from 1 to `last`, evenly spaced on a logarithmic axis."""
    spaced = np.rint(np.geomspace(1, last, points)).astype(np.int64)
    return np.unique(np.append(spaced, np.arange(1, min(last, 12) + 1)))


def kl_at(replicas: Replicas, iterations: NDArray[np.int64]) -> Floats:
    """KL(q‖exact posterior) [R, len] after some iterations; all of them would cost too much."""
    units = replicas.units[:, iterations - 1]
    return exact_posterior(replicas).kl_from(replicas.model.grid.decode(units))


def exact_posterior(replicas: Replicas) -> Target:
    """The posterior of the data of all who are not forgotten, one per replica [R, 1]."""
    target = replicas.target
    assert isinstance(target, Target)  # the beta-exponential model has one
    return target


def band(kl: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean over replicas, and the ends of the central band, per column of [R, I]."""
    low, high = np.quantile(kl, [0.5 - BAND / 2, 0.5 + BAND / 2], axis=0)
    return kl.mean(axis=0), low, high
