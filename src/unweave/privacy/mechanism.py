"""The noise that every agent of a network adds to every value it gives, and what it costs.

`Mechanism.of(model, terms, min_roster)` follows from the manifest alone, so all agents have the
same one. An agent charges `rho` to its ledger and then adds `draw()` to the value (`release`), once
per value: in the sum and in the audit's sum it is the same noise.

At least `min_roster` agents give a value before a sum can be read. At most `colluders` of them put
together what they know; they know their own noise, or have left it out. So at least
n = min_roster − colluders unknown shares remain in every sum: σ² = n·v. The shares of further
agents make the guarantee stronger, and are not counted.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from fractions import Fraction
from functools import cached_property
from math import isqrt
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from unweave.errors import ConfigError
from unweave.grid import LIMIT, Ints
from unweave.models.base import ConjugateModel, Model
from unweave.privacy import accounting
from unweave.privacy.discrete_gaussian import MOST_VARIANCE, DiscreteGaussian, Source
from unweave.privacy.noisy import NoisyPosterior
from unweave.privacy.sensitivity import Sensitivity, clipped, sensitivity
from unweave.privacy.terms import PrivacyTerms
from unweave.protocol.terms import Noise

__all__ = ["Mechanism"]

Floats = NDArray[np.float64]

# |noise| of one share stays below so many standard deviations, but for a probability of 2^-180.
_REACH = 16


@dataclass(frozen=True)
class Mechanism:
    """`model` sums clipped records, `stated` is the manifest's model; `variances` are those of a
    share, in squared grid units."""

    model: ConjugateModel
    stated: Model
    terms: PrivacyTerms
    honest: int
    sensitivity: Sensitivity
    variances: tuple[int, ...]
    rho: float
    budget: float

    @classmethod
    def of(cls, model: Model, terms: PrivacyTerms, min_roster: int) -> Self:
        """ConfigError if the model, the bounds or the numbers allow no differential privacy."""
        honest = min_roster - terms.colluders
        if honest < 2:
            raise ConfigError(
                f"colluders = {terms.colluders} of at least {min_roster} agents leave {honest}. "
                f"Fix: at most {min_roster - 2}, so that two agents' noise is unknown"
            )
        bounded = clipped(model, terms.bounds)
        found = sensitivity(bounded)
        # Rounded down: agents on different machines, whose logarithms may differ in the last digit,
        # have the same budget, and sign the same statement about it.
        total = _digits(accounting.budget(terms.epsilon, terms.delta), ROUND_FLOOR)
        variances = accounting.share_variances(
            found.squared, found.scales, total / terms.releases, honest
        )
        if max(variances) > MOST_VARIANCE:
            j = variances.index(max(variances))
            raise ConfigError(
                f"{model.name}: the noise of {bounded.grid.names[j]} leaves the grid. Fix: fewer "
                f"bits than {bounded.grid.bits[j]} (bits=…), tighter bounds, or fewer releases"
            )
        # Δ²/σ² with the rounded variances.
        ratio = max(
            found.squared * scale * scale / (honest * v)
            for scale, v in zip(found.scales, variances, strict=True)
        )
        rho = accounting.cost(ratio, variances, honest)
        assert rho * terms.releases <= total
        return cls(bounded, model, terms, honest, found, variances, rho, total)

    def draw(self, source: Source = os.urandom) -> Ints:
        """One share of noise, in grid units."""
        share = self.model.grid.zeros()
        for sampler, components in self._samplers:
            share[components] = sampler.draw(len(components), source)
        return share

    @cached_property
    def _samplers(self) -> list[tuple[DiscreteGaussian, Ints]]:
        """The components by the variance of their noise; nearly always there is one variance."""
        components: dict[int, list[int]] = {}
        for j, variance in enumerate(self.variances):
            components.setdefault(variance, []).append(j)
        return [(DiscreteGaussian(v), np.array(js)) for v, js in components.items()]

    @property
    def releases(self) -> int:
        """How many values an agent may give."""
        return int(Fraction(self.budget) / Fraction(self.rho))

    @cached_property
    def reach(self) -> Ints:
        """A share is at most so large, in grid units: what a factor must leave free on the grid, so
        that no masked sum wraps."""
        return np.array([min(_REACH * (isqrt(v) + 1), LIMIT) for v in self.variances], np.int64)

    def noise_variances(self, shares: int) -> Floats:
        """The variance of the noise in a sum of so many shares, per component of the carrier."""
        steps = 0.25 ** np.asarray(self.model.grid.bits, dtype=np.float64)
        return shares * np.array(self.variances, dtype=np.float64) * steps

    def posterior(self, units: Ints, shares: int) -> NoisyPosterior:
        """The posterior given a published sum (with the prior) of so many agents' noisy values."""
        return NoisyPosterior(self.stated, units, self.noise_variances(shares))

    def noise(self) -> Noise:
        """What the protocol needs to know."""
        return Noise(self.reach, self.statement())

    def statement(self) -> dict[str, Any]:
        """What a certificate may state about the noise. That the agents drew it as stated cannot be
        verified."""
        return {
            "mechanism": "a discrete Gaussian share of noise per agent and given value",
            "neighbours": "add or remove one record",
            "epsilon": self.terms.epsilon,
            "delta": self.terms.delta,
            "colluders": self.terms.colluders,
            "sensitivity": float(self.sensitivity.squared) ** 0.5,
            "share_variances": sorted(set(self.variances)),
            "honest_shares": self.honest,
            "rho": _digits(self.rho, ROUND_CEILING),
            "releases": self.releases,
        }


def _digits(value: float, rounding: str) -> float:
    """Six digits."""
    return float(Context(prec=6, rounding=rounding).create_decimal(repr(value)))
