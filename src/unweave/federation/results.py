"""The results of forgetting and auditing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["Audit", "Erasure"]


@dataclass(frozen=True)
class Erasure:
    """Forgotten agents and records. `kind` is `exact`, `subtracted` (`refine()` comes
    next), `refined`, or `retrained`."""

    agents: tuple[str, ...]
    records: Mapping[str, int]
    iterations: int  # of forget(), and of the refine() that followed
    moved: float  # KL(posterior before ‖ after); nan if one of them is improper
    kind: Literal["exact", "subtracted", "refined", "retrained"]


@dataclass(frozen=True)
class Audit:
    """The result of an attestation round in which all agents attested the same sum."""

    digest: str
    attested: tuple[str, ...]
    included: tuple[str, ...]
    iterations: int
