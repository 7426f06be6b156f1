"""A mixin for families whose domain is the positive numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Positive"]

Floats = NDArray[np.float64]


class Positive:
    """The domain is eta > 0 in each component. List this class before `Family` among the bases."""

    component_names: tuple[str, ...]

    def margin(self, eta: Floats) -> Floats:
        result: Floats = eta.min(-1)
        return result

    def violation(self, eta: Floats) -> str:
        j = int(np.argmin(eta))
        return f"{self.component_names[j]} = {eta[j]:.6g} must be above 0"
