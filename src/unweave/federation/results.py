"""What forgetting and auditing return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["Audit", "Erasure"]


@dataclass(frozen=True)
class Erasure:
    """What was taken out, and how: `exact`, `subtracted` (refine to go on), or `retrained`."""

    agents: tuple[str, ...]
    records: Mapping[str, int]
    iterations: int  # of forget(), retraining included, and of the refine() that followed
    moved: float  # KL(posterior before ‖ after); nan if one of them is improper
    kind: Literal["exact", "subtracted", "refined", "retrained"]


@dataclass(frozen=True)
class Audit:
    """The result of a quiet cover: everybody has attested the same sum."""

    digest: str
    attested: tuple[str, ...]
    included: tuple[str, ...]
    iterations: int
