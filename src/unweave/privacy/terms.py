"""What a manifest states about differential privacy. Reading it loads no statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from unweave.errors import ConfigError

__all__ = ["Bounds", "PrivacyTerms"]


@dataclass(frozen=True)
class Bounds:
    """Declared by all agents together, from what is known without looking at records.

    `columns`: the lowest and the highest value of a column, in the user's units. `norm`: the
    largest length of a regression's record, (1, features, target) in units of their scales.
    """

    columns: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    norm: float | None = None


@dataclass(frozen=True)
class PrivacyTerms:
    """What the agents of a network promise for every record: (epsilon, delta) for all that the
    network ever publishes, in at most `releases` values of each agent, if at most
    `colluders` agents put together what they know."""

    epsilon: float
    delta: float
    releases: int = 20
    colluders: int = 0
    bounds: Bounds = field(default_factory=Bounds)

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= 100:
            raise ConfigError(
                f"epsilon = {self.epsilon:g}. Fix: a number above 0; 1 is strong, above 10 is weak"
            )
        if not 1e-30 <= self.delta <= 0.01:
            raise ConfigError(f"delta = {self.delta:g}. Fix: far below 1/records, for example 1e-6")
        if not 1 <= self.releases <= 1_000_000:
            raise ConfigError(
                f"releases = {self.releases}. Fix: how often each agent may give a value, from 1 "
                "to 1000000; every round of the network takes one"
            )
        if self.colluders < 0:
            raise ConfigError(f"colluders = {self.colluders}. Fix: a number of agents, from 0 on")
