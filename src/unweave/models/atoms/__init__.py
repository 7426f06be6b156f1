"""Models of atoms: any likelihood in up to six parameters, learned and forgotten exactly."""

from __future__ import annotations

from unweave.models.atoms.library import BetaExponentialAtoms, NegativeBinomial, StudentT, Weibull
from unweave.models.atoms.prior import AtomModel
from unweave.models.atoms.staged import StagedAtomModel

__all__ = [
    "AtomModel",
    "BetaExponentialAtoms",
    "NegativeBinomial",
    "StagedAtomModel",
    "StudentT",
    "Weibull",
]
