"""Poisson regression: counts with a rate exp(t), per unit of exposure."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import ConfigError
from unweave.models.columns import Column, count, positive
from unweave.models.glm.base import GLM
from unweave.models.glm.predictive import CountsPredictive, PoissonPredictive, exposures
from unweave.models.glm.quadrature import Triple
from unweave.models.shards import Shard

__all__ = ["PoissonRegression", "RateModel"]


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RateModel(GLM):
    """Counts per exposure. `exposure` names a column of times, populations or areas above 0; the
    mean of a record is then exposure·exp(xᵀtheta). Without it every exposure is 1."""

    exposure: str | None = None

    def check_settings(self) -> None:
        if self.exposure is not None and self.exposure in (*self.feature_names, self.target):
            raise ConfigError(
                f"{self.name}: {self.exposure!r} is a feature or the target, too. Fix: name "
                "another column as exposure"
            )
        super().check_settings()

    def target_column(self) -> Column:
        return count(self.target)

    @property
    def schema(self) -> tuple[Column, ...]:
        own = () if self.exposure is None else (positive(self.exposure),)
        return (*super().schema, *own)

    def outcomes(self, rows: Floats) -> tuple[Floats, Floats, Floats | float]:
        x, y, offset = super().outcomes(rows)
        return x, y, offset if self.exposure is None else np.log(rows[:, -1])

    def log_density(self, eta: Floats, rows: Floats) -> Floats:
        if self.exposure is None:
            return super().log_density(eta, rows)
        at = len(self.feature_names)
        law = self.predictive(eta, Shard("", rows.view()), rows[:, -1])
        found: Floats = law.log_prob(rows[:, at])
        return found

    def rates(self, eta: ArrayLike, x: Any, exposure: ArrayLike | None) -> tuple[Floats, Floats]:
        """Mean and sd of the predictor of rows x, with their exposures: as given, else from the
        column of x that the model names, else 1."""
        a, s = self.predictor(eta, x)
        if exposure is None and self.exposure is not None:
            if (isinstance(x, Mapping) or hasattr(x, "columns")) and self.exposure in x:
                exposure = np.atleast_1d(np.asarray(x[self.exposure], dtype=object))
            else:
                warnings.warn(
                    f"{self.name}: the rows have no exposure (column {self.exposure!r}), and 1 is "
                    "assumed",
                    stacklevel=4,
                )
        return a + np.log(exposures(1.0 if exposure is None else exposure, len(a))), s

    def unit_law(self) -> Any:
        return self.predictive(self.decode(self.eta0), self._zero_row, 1.0)


@dataclass(frozen=True)
class PoissonRegression(RateModel):
    """y ~ Poisson(exposure·exp(xᵀtheta)). With one record per interval of survival, the number of
    events as y and the time at risk as exposure, it is a piecewise-exponential survival model."""

    name: ClassVar[str] = "poisson-regression"
    self_concordant: ClassVar[bool] = True
    estimate_within: ClassVar[float | None] = 3.0

    def pointwise(self, t: Floats, y: Floats) -> Triple:
        """f = e^t − y t."""
        rate = np.exp(t)
        return rate - y * t, rate - y, rate

    def derivatives(self, a: Floats, v: Floats, y: Floats) -> Triple:
        """E e^t = exp(a + v/2)."""
        rate = np.exp(a + 0.5 * v)
        return rate - y * a, rate - y, rate

    def start(
        self, mean: Floats, gradient: Floats, curvature: Floats
    ) -> tuple[Floats, Floats] | None:
        """The intercept at which the rates add up to the counts, Σ y = Σ rate − g_0. It multiplies
        all rates, and with them the curvature. Newton's step would add (Σ y)/(Σ rate) − 1 to the
        intercept instead of its logarithm."""
        if not self.intercept or not curvature[0, 0] > 0.0:
            return None
        ratio = 1.0 - gradient[0] / curvature[0, 0]
        if not 0.0 < ratio < np.inf:
            return None
        found = mean.copy()
        found[0] += np.log(ratio)
        return found, ratio * curvature

    def predictive(
        self, eta: ArrayLike, x: Any, exposure: ArrayLike | None = None
    ) -> CountsPredictive:
        """The counts of rows x with these exposures (default: their column in x, or 1)."""
        return PoissonPredictive(*self.rates(eta, x, exposure))
