"""The privacy mode of a network: what its agents see of each other's data.

    privacy = "masked"          # short for a table with the defaults for this number of agents

    [privacy]
    mode = "masked"             # private rounds: only the sum of all agents can be read
    min_roster = 3              # no sum is published for fewer agents
    degree = 0                  # an agent shares masks with this many others; 0: with all
    epsilon = 1.0               # differential privacy: for every record, over all rounds
    delta = 1e-6
    releases = 20               # values that each agent may give
    colluders = 1
    bounds = { x = [-5.0, 5.0] }  # or norm = 4.0 for a regression

`plain` is the paper's walk: whoever sees two tokens in a row can compute the factor between them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from unweave.errors import ConfigError
from unweave.manifest.entries import StrictTable
from unweave.privacy.terms import Bounds, PrivacyTerms
from unweave.protocol.terms import Batches, Noise

if TYPE_CHECKING:
    from unweave.models import Model
    from unweave.privacy.mechanism import Mechanism

__all__ = [
    "LEAST_AGENTS",
    "SEEN",
    "PrivacyEntry",
    "PublishEntry",
    "RoundTerms",
    "default_mode",
    "least_roster",
    "ring_degree",
    "seen_words",
]

Mode = Literal["plain", "masked"]

LEAST_AGENTS = 4  # two colluding agents still leave the sum of two others
_COMPLETE = 200  # agents up to which everybody shares masks with everybody
_FAILURE = 40  # bits: the probability that a ring splits, for one round
_TRIES = 30  # bits: rounds that an agent could start to find a bad order

# What stays visible, in one sentence; `init`, `status` and the pages say it in the same words.
SEEN: dict[Mode, str] = {
    "plain": "Neighbours can compute an agent's sufficient statistics (sums over its records) from "
    "two tokens in a row.",
    "masked": "No agent sees another's sums: only the sum of all agents can be read, and the "
    "difference of two published sums shows what changed between them.",
}


# The same, if every published sum carries noise.
NOISY_SEEN = (
    "No agent sees another's sums, and every published sum carries noise: whatever is computed "
    "from all of them tells little about any one record (epsilon {epsilon:g}, delta {delta:g}). "
    "Erasing refunds nothing, and that an erasure was requested is not hidden."
)


def seen_words(mode: Mode, epsilon: float | None = None, delta: float | None = None) -> str:
    """What stays visible in a network with this mode and promise."""
    if epsilon is None:
        return SEEN[mode]
    return NOISY_SEEN.format(epsilon=epsilon, delta=delta)


_Pair = Annotated[list[float], Field(min_length=2, max_length=2)]
_NEEDS_EPSILON = ("delta", "releases", "colluders", "bounds", "norm")


class PrivacyEntry(StrictTable):
    """The `[privacy]` table. Settings that are left out follow from the number of agents. With
    `epsilon`, every published sum carries noise (`unweave.privacy`)."""

    mode: Mode = "masked"
    min_roster: Annotated[int, Field(ge=1, le=100_000)] | None = None
    degree: Annotated[int, Field(ge=0, le=100_000)] | None = None
    epsilon: float | None = None
    delta: float | None = None
    releases: int | None = None
    colluders: int | None = None
    bounds: Annotated[dict[str, _Pair], Field(max_length=10_000)] | None = None
    norm: float | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.epsilon is None:
            unused = [key for key in _NEEDS_EPSILON if getattr(self, key) is not None]
            if unused:
                raise ConfigError(f"{unused[0]} has no epsilon. Fix: add epsilon, or remove it")
            return self
        if self.mode != "masked":
            raise ConfigError(
                "epsilon needs masked rounds: without masks, neighbours see every factor with "
                'little noise. Fix: mode = "masked", or remove epsilon'
            )
        if self.delta is None:
            raise ConfigError(
                "epsilon has no delta. Fix: delta, far below 1/records, for example delta = 1e-6"
            )
        self.noise_terms()
        return self

    @classmethod
    def of(cls, terms: PrivacyTerms) -> PrivacyEntry:
        """A masked network with this promise."""
        bounds = {name: list(pair) for name, pair in terms.bounds.columns.items()}
        return cls(
            epsilon=terms.epsilon,
            delta=terms.delta,
            releases=terms.releases,
            colluders=terms.colluders,
            bounds=bounds or None,
            norm=terms.bounds.norm,
        )

    @property
    def masked(self) -> bool:
        return self.mode == "masked"

    @property
    def seen(self) -> str:
        """What stays visible, in words."""
        return seen_words(self.mode, self.epsilon, self.delta)

    def noise_terms(self) -> PrivacyTerms | None:
        """The promise of differential privacy; None without epsilon."""
        if self.epsilon is None:
            return None
        assert self.delta is not None
        columns = {name: (low, high) for name, (low, high) in (self.bounds or {}).items()}
        return PrivacyTerms(
            epsilon=self.epsilon,
            delta=self.delta,
            releases=PrivacyTerms.releases if self.releases is None else self.releases,
            colluders=PrivacyTerms.colluders if self.colluders is None else self.colluders,
            bounds=Bounds(columns, self.norm),
        )

    def mechanism(self, model: Model) -> Mechanism | None:
        """The noise, checked against the model; None without epsilon. Its `model` clips records,
        and takes the place of the given one. The entry is resolved."""
        from unweave.privacy.mechanism import Mechanism

        terms = self.noise_terms()
        if terms is None:
            return None
        assert self.min_roster is not None
        return Mechanism.of(model, terms, self.min_roster)

    def resolved(self, agents: int) -> PrivacyEntry:
        """With all defaults for this number of agents; ConfigError if masks would hide nothing."""
        if not self.masked:
            for name in ("min_roster", "degree"):
                if getattr(self, name) is not None:
                    raise ConfigError(
                        f"privacy: {name} is a setting of masked networks. Fix: "
                        f'mode = "masked", or remove {name}'
                    )
            return self
        if agents < LEAST_AGENTS:
            raise ConfigError(
                f'privacy: mode = "masked" needs at least {LEAST_AGENTS} agents, not {agents}: the '
                f'sum of fewer gives each one away. Fix: mode = "plain", or add agents'
            )
        least = least_roster(agents)
        roster = least if self.min_roster is None else self.min_roster
        if not least <= roster <= agents:
            raise ConfigError(
                f"privacy: min_roster = {roster}: with {agents} agents it is at least {least}, so "
                f"that no minority is left alone in a sum, and at most {agents}. Fix: give a "
                f"number from {least} to {agents}, or remove it"
            )
        degree = ring_degree(agents) if self.degree is None else self.degree
        if degree >= agents - 1:
            degree = 0
        needed = ring_degree(agents, colluding=1 / 3, always=True)
        if degree and degree < needed:
            raise ConfigError(
                f"privacy: degree = {degree}: if a third of {agents} agents collude, masks with so "
                f"few others may leave an agent alone. Fix: at least {needed}, or 0 (all others)"
            )
        update = {"min_roster": roster, "degree": degree}
        noise = self.noise_terms()
        if noise is not None:  # stated, so that a later default does not change the terms
            update |= {"releases": noise.releases, "colluders": noise.colluders}
        return self.model_copy(update=update)


def default_mode(agents: int) -> Mode:
    """The mode of a new network of this size."""
    return "masked" if agents >= LEAST_AGENTS else "plain"


def least_roster(agents: int) -> int:
    """The fewest agents for whom a sum is published: a majority, so that no vote of a minority can
    isolate an agent, and at least three."""
    return max(3, agents // 2 + 1)


def ring_degree(agents: int, colluding: float = 0.5, *, always: bool = False) -> int:
    """With how many others an agent shares masks; 0: with all, as in every small network.

    On a ring in random order the honest agents split, so that a part of them has a sum of its own,
    with probability ≤ ½ K² γ^degree for a share γ of colluding agents. This is at most 2^−40, also
    for the best of 2^30 orders.
    """
    if agents <= _COMPLETE and not always:
        return 0
    bits = _FAILURE + _TRIES + 2.0 * math.log2(agents) - 1.0
    return 2 * math.ceil(bits / -math.log2(colluding) / 2.0)


class PublishEntry(StrictTable):
    """`publish = { records = 20, agents = 2, at_most = "30d" }`: changes of records wait until as
    many have gathered, over as many agents, or the period has passed."""

    records: Annotated[int, Field(ge=2, le=1_000_000_000)]
    agents: Annotated[int, Field(ge=2, le=100_000)] = 2
    at_most: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}[smhd]$")] = "30d"

    @property
    def batches(self) -> Batches:
        seconds = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}[self.at_most[-1]]
        return Batches(self.records, self.agents, int(self.at_most[:-1]) * seconds)

    @property
    def waiting(self) -> str:
        """What waits, and for how long, as `init` says it."""
        return (
            f"Changes and erasures of records will wait until {self.records} records of "
            f"{self.agents} agents have changed, or for {self.at_most}; `unweave forget --now` "
            "does not wait, nor does the erasure of an agent."
        )

    def check(self, privacy: PrivacyEntry, agents: int) -> None:
        """ConfigError for batches that hide nothing."""
        if not privacy.masked:
            raise ConfigError(
                "publish: in a plain network every token shows changes. Fix: "
                'privacy = "masked", or remove publish'
            )
        if self.agents > agents:
            raise ConfigError(
                f"publish: changes of {self.agents} agents among {agents}. Fix: fewer agents"
            )

    def check_model(self, model: Model) -> None:
        """ConfigError if a batch of this model gives its records away, or cannot wait."""
        from unweave.models.gram import GramModel
        from unweave.models.grouped import Grouped
        from unweave.models.regression import Regression

        if model.iterates:
            raise ConfigError(
                f"publish: {model.name} learns in several rounds, each from the data as they are, "
                "so no change can wait. Fix: remove publish, or choose a conjugate model"
            )
        each = model.model if isinstance(model, Grouped) else model
        size = each.size if isinstance(each, Regression) else len(each.columns)
        if isinstance(each, GramModel) and self.records <= size:
            raise ConfigError(
                f"publish: records = {self.records}: the sums of products over at most {size} rows "
                f"of {each.name} show their span. Fix: at least {size + 1}"
            )


@dataclass(frozen=True)
class RoundTerms:
    """The terms of a network that follow from its privacy mode and its model."""

    privacy: Mode
    min_roster: int = 3
    degree: int = 0
    first_point: bytes = b""
    iterates: bool = False
    noise: Noise | None = None

    @classmethod
    def of(cls, entry: PrivacyEntry, model: Model, mechanism: Mechanism | None) -> RoundTerms:
        """`entry` is resolved, and `model` the model of rounds if it is masked."""
        if not entry.masked:
            return cls("plain")
        assert entry.min_roster is not None
        assert entry.degree is not None
        return cls(
            "masked",
            entry.min_roster,
            entry.degree,
            model.first_point(),
            model.iterates,
            None if mechanism is None else mechanism.noise(),
        )
