"""The settings of the experiments: what the paper states, and what it leaves open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unweave.experiments.paper.experiment import AGENTS, RECORDS, THETA

__all__ = [
    "BANDS",
    "GRAPHS_SHOWN",
    "NO_ROUNDS",
    "WALK",
    "Setting",
    "exponential_settings",
    "ours",
    "paper",
]

# Why figures 4 and 5 have no masked form: their subject is what private rounds do without.
NO_ROUNDS = (
    "beta-exponential with local steps has no private rounds, because its factors depend on the "
    'other agents\' factors. Fix: --privacy plain, or simulate("beta-exponential-atoms", '
    'privacy="masked")'
)


@dataclass(frozen=True)
class Setting:
    """One setting of an experiment, its source, and the reason if the choice is ours."""

    name: str
    value: Any
    source: str  # "paper", or "ours" if the paper does not state the setting
    why: str = ""


def paper(name: str, value: Any, why: str = "") -> Setting:
    """A setting that the paper states."""
    return Setting(name, value, "paper", why)


def ours(name: str, value: Any, why: str) -> Setting:
    """A setting that the paper leaves open: our choice, with its reason."""
    return Setting(name, value, "ours", why)


WALK = paper("schedule", "metropolis (`eq:mh_rule`), uniform start, the start is iteration 1")
GRAPHS_SHOWN = paper("graphs", "star (agent 1 is the hub), ring, complete")
BANDS = ours("bands", "12.5% to 87.5% of the replicas", "what a 75% credible interval is over")


def exponential_settings() -> list[Setting]:
    """The settings that all experiments with the beta-exponential model have in common."""
    return [
        paper("model", "z ~ Exp with mean θ (likelihood (1/θ) exp(−z/θ)), θ ~ Beta(a, b)"),
        paper("K", AGENTS),
        paper("graph", "complete"),
        WALK,
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
        BANDS,
        ours(
            "lines",
            "median over replicas; means are in the CSV files",
            "the paper's are means, which a few replicas with a KL a thousand times larger decide",
        ),
        ours(
            "replicas outside the domain",
            "counted (column `outside`) and ranked as KL = ∞ in medians and bands; means leave "
            "them out; such a replica learns no more",
            "the product without agent 10's factor need not be a distribution, and noisy steps may "
            "diverge: a finding about a method. Leaving such replicas out would flatter it",
        ),
        ours(
            "floor",
            "KL of the best Beta to the exact posterior, median over replicas",
            "no member of the family comes closer; not in the paper",
        ),
        ours(
            "grid",
            "factors are multiples of 2^−40",
            "so that subtraction undoes addition bit for bit; far below anything shown here",
        ),
    ]
