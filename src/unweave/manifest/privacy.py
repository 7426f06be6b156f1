"""The table [privacy] of `network.toml`.

[privacy]
mode = "masked"
epsilon = 1.0                        # differential privacy: for every record, over all rounds
delta = 1e-6
releases = 20                        # values that each agent may give
colluders = 1
bounds = { x = [-5.0, 5.0] }         # or norm = 4.0 for a regression
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from unweave.errors import ConfigError
from unweave.manifest.entries import StrictTable
from unweave.privacy.terms import Bounds, PrivacyTerms

__all__ = ["PrivacyEntry"]

_Pair = Annotated[list[float], Field(min_length=2, max_length=2)]
_NEEDS_EPSILON = ("delta", "bounds", "norm")


class PrivacyEntry(StrictTable):
    """Who sees what. With `epsilon`, every published sum carries noise (`unweave.privacy`)."""

    mode: Literal["plain", "masked"] = "masked"
    epsilon: float | None = None
    delta: float | None = None
    releases: int = PrivacyTerms.releases
    colluders: int = PrivacyTerms.colluders
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
        self.terms()
        return self

    def terms(self) -> PrivacyTerms | None:
        """The promise of differential privacy; None without epsilon."""
        if self.epsilon is None:
            return None
        assert self.delta is not None
        columns = {name: (low, high) for name, (low, high) in (self.bounds or {}).items()}
        return PrivacyTerms(
            epsilon=self.epsilon,
            delta=self.delta,
            releases=self.releases,
            colluders=self.colluders,
            bounds=Bounds(columns, self.norm),
        )
