"""Laws on atoms: finite exponential families, clouds of weighted nodes, spaces of parameters."""

from __future__ import annotations

from unweave.families.atoms.family import AtomFamily, CloudFamily, ess

__all__ = ["AtomFamily", "CloudFamily", "ess"]
