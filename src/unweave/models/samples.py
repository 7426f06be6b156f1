"""Draws of a posterior, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Samples"]

Floats = NDArray[np.float64]


class Samples(dict[str, Floats]):
    """Name of a variable → its draws, one per row: `samples["dose"]`, `pandas.DataFrame(samples)`.

    A variable with several entries (the classes of a Dirichlet, the columns of a multivariate
    normal) is one array; `Model.coordinates` names its entries. `np.asarray(samples)` is theta, as
    the family draws it.
    """

    def __init__(self, named: Mapping[str, Floats], theta: Floats) -> None:
        super().__init__(named)
        self._theta = theta

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._theta, dtype=dtype, copy=copy)
