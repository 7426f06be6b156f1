"""Models of atoms: any likelihood in up to six parameters, learned and forgotten exactly."""

from __future__ import annotations

from unweave.models.atoms.library import BetaExponentialAtoms
from unweave.models.atoms.prior import AtomModel

__all__ = ["AtomModel", "BetaExponentialAtoms"]
