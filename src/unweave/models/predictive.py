"""What predictives of one number share."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.arguments import share

__all__ = ["ScalarPredictive"]


class ScalarPredictive(ABC):
    """The law of one new number."""

    @abstractmethod
    def quantile(self, p: ArrayLike) -> NDArray[np.float64]: ...

    def interval(self, p: float = 0.95) -> tuple[float, float]:
        """The central interval that holds probability p."""
        p = share(p, "interval: p")
        low, high = self.quantile([(1 - p) / 2, (1 + p) / 2])
        return float(low), float(high)
