"""The results of forgetting and auditing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["Audit", "Erasure", "Kind"]

Kind = Literal["exact", "exact_before_noise", "subtracted", "refined", "retrained"]


@dataclass(frozen=True)
class Erasure:
    """What one call of `forget` has erased, and how.

    - `agents`: those that were erased as a whole.
    - `records`: agent → number of its records that were erased.
    - `iterations`: of `forget`, and of the `refine` that followed.
    - `moved`: KL(posterior before ‖ after); nan if one of them is improper.
    - `kind`: "exact", "exact_before_noise" (with differential privacy), "subtracted" (`refine()`
      comes next), "refined" or "retrained".
    """

    agents: tuple[str, ...]
    records: Mapping[str, int]
    iterations: int
    moved: float
    kind: Kind


@dataclass(frozen=True)
class Audit:
    """The result of an attestation round in which all agents attested the same sum.

    - `digest`: names the sum; equal to that of the posterior.
    - `attested`: the agents that attested, forgotten ones as well.
    - `included`: the agents whose contribution is in the sum.
    - `iterations`: of the round.
    """

    digest: str
    attested: tuple[str, ...]
    included: tuple[str, ...]
    iterations: int
