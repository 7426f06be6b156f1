"""Normal on the line: eta = (P m, P), s = (θ, −½θ²); the DiagonalNormal of one coordinate, with a
scalar θ."""

from __future__ import annotations

from unweave.families.base import Floats
from unweave.families.diagonal_normal import DiagonalNormalFamily

__all__ = ["NormalFamily"]


class NormalFamily(DiagonalNormalFamily):
    """A location; a record x with noise variance v adds (x/v, 1/v)."""

    name = "Normal"

    def __init__(self) -> None:
        super().__init__(1)
        self._set(("h", "P"), ("theta",), (), self.base_constant, self.base_weights)

    def _columns(self, theta: Floats) -> Floats:
        return theta[..., None]

    def __repr__(self) -> str:
        return "NormalFamily()"
