"""Linear regression, y = xᵀtheta + noise, with the noise known or learned."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import ConfigError, DataError
from unweave.families import Distribution, MultivariateNormal, NormalInverseGamma
from unweave.models.columns import Column, column_names, real
from unweave.models.gram import Exact, GramModel, bordered, upper
from unweave.models.predictive_reals import NormalPredictive, StudentTPredictive
from unweave.models.sums import FEATURE_LIMIT, round_to

__all__ = ["LinearRegression", "LinearRegressionUnknownNoise"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Regression(GramModel):
    """Design and prior shared by both regressions. `features` is their number, or their names;
    `mean` and `sd` describe the prior of the coefficients, one number or one for each."""

    features: int | Sequence[str]
    mean: float | Sequence[float] = 0.0
    sd: float | Sequence[float] = 1.0
    intercept: bool = False
    target: str = "y"

    def check_settings(self) -> None:
        if not self.feature_names:
            raise ConfigError(f"{self.name}: features: a number of at least 1, or a list of names")
        if len({*self.feature_names, self.target}) != len(self.feature_names) + 1:
            raise ConfigError(f"{self.name}: features and target need different names")
        if len(set(self.quantities)) != len(self.quantities):
            raise ConfigError(
                f"{self.name}: a feature may not be called 'intercept' beside an intercept, nor "
                "'sigma2' where the noise is learned: rename it"
            )
        for key in ("mean", "sd"):
            value = getattr(self, key)
            if isinstance(value, tuple) and len(value) != self.size:
                raise ConfigError(
                    f"{self.name}: {key} has {len(value)} numbers for {self.size} coefficients "
                    f"({', '.join(self.coefficients)})"
                )
        if not np.all(np.asarray(self.sd) > 0):
            raise ConfigError(f"{self.name}: sd must be above 0")

    @property
    def feature_names(self) -> tuple[str, ...]:
        return column_names(self.features)

    @property
    def coefficients(self) -> tuple[str, ...]:
        """Names of the coefficients, in order."""
        return (("intercept",) if self.intercept else ()) + self.feature_names

    @property
    def quantities(self) -> tuple[str, ...]:
        return self.coefficients

    @property
    def size(self) -> int:
        return len(self.coefficients)

    @property
    def schema(self) -> tuple[Column, ...]:
        return tuple(real(name) for name in (*self.feature_names, self.target))

    @property
    @abstractmethod
    def scale(self) -> float:
        """What a feature is multiplied by before it is rounded to a whole number."""

    def design(self, x: Any) -> Floats:
        """Rows of features, with the intercept's 1 in front if there is one."""
        if isinstance(x, Mapping) or hasattr(x, "columns"):  # by name, as in learning
            absent = [name for name in self.feature_names if name not in x]
            if absent:
                raise DataError(f"{self.name}: rows to predict lack the column {absent[0]!r}")
            x = np.column_stack([np.atleast_1d(x[name]) for name in self.feature_names])
        try:
            rows = np.atleast_2d(np.asarray(x, dtype=np.float64))
        except (TypeError, ValueError):
            raise DataError(
                f"{self.name}: rows to predict must be numbers, {len(self.feature_names)} in each "
                f"row ({', '.join(self.feature_names)})"
            ) from None
        if rows.ndim != 2 or rows.shape[1] != len(self.feature_names):
            raise DataError(
                f"{self.name}: rows to predict have shape {np.shape(x)}; expected "
                f"{len(self.feature_names)} columns ({', '.join(self.feature_names)})"
            )
        if not np.isfinite(rows).all():
            row, j = (int(i) for i in np.argwhere(~np.isfinite(rows))[0])
            raise DataError(
                f"{self.name}: rows to predict, column {self.feature_names[j]!r}, row {row}: the "
                "value is missing (NaN) or infinite"
            )
        return np.insert(rows, 0, 1.0, axis=1) if self.intercept else rows

    def z(self, rows: Floats) -> Floats:
        whole = round_to(rows, self.scale, f"{self.name}, a feature or target", FEATURE_LIMIT)
        return np.insert(whole, 0, self.scale, axis=1) if self.intercept else whole

    def named_samples(self, theta: Floats) -> dict[str, Floats]:
        return {name: theta[:, j] for j, name in enumerate(self.coefficients)}

    def _prior_moments(self) -> tuple[Floats, Floats]:
        mean, sd = (np.broadcast_to(np.asarray(v, dtype=np.float64), (self.size,))
                    for v in (self.mean, self.sd))  # fmt: skip
        return np.array(mean), np.array(sd)


@dataclass(frozen=True)
class LinearRegression(_Regression):
    """y ~ Normal(xᵀtheta, noise²) with `noise` known, theta ~ Normal(mean, diag(sd²)):

        P ← P + Σ x xᵀ / noise²,     P m ← P m + Σ x y / noise²

    Features and target are divided by the noise before they are rounded, with 1/noise itself on
    the grid: products then carry 1/noise² exactly.
    """

    noise: float = 1.0

    name: ClassVar[str] = "linear-regression"

    def check_settings(self) -> None:
        super().check_settings()
        if not self.noise > 0:
            raise ConfigError(f"{self.name}: noise = {self.noise}: must be above 0")
        if self.scale < 2**10:
            raise ConfigError(
                f"{self.name}: noise = {self.noise} needs more bits than {min(self.grid.bits)}, or "
                "a target in other units"
            )

    @property
    def prior(self) -> Distribution:
        mean, sd = self._prior_moments()
        return MultivariateNormal(mean=mean, cov=np.diag(sd * sd))

    def default_bits(self) -> Sequence[int]:
        bits = min(max(24, 32 + 2 * round(float(np.log2(self.noise)))), 62)
        return (bits,) * self.family.dim

    @property
    def feature_bits(self) -> int:
        finest = 16 + round(float(np.log2(self.noise)))
        return max(min(min(self.grid.bits) // 2, finest), 0)

    @cached_property
    def scale(self) -> float:
        """2^p / noise, rounded to a whole number."""
        return float(np.rint(np.ldexp(1.0 / self.noise, self.feature_bits)))

    @property
    def used_noise(self) -> float:
        """The noise whose inverse lies on the grid; what the posterior is exact for."""
        return float(np.ldexp(1.0, self.feature_bits) / self.scale)

    @property
    def resolution(self) -> tuple[float, ...]:
        return (1.0 / self.scale,) * len(self.schema)

    def arrange(self, gram: Exact, n: int) -> list[int]:
        d = self.size
        return [*gram[:d, d], *upper(gram[:d, :d])]

    def prior_matrix(self) -> Floats:
        _, sd = self._prior_moments()
        return np.diag(1 / (sd * sd))

    def predictive(self, eta: ArrayLike, x: ArrayLike) -> NormalPredictive:
        """The targets of rows x: Normal(xᵀm, noise² + xᵀP⁻¹x), each row on its own."""
        rows = self.design(x)
        params = self.family.to_params(np.asarray(eta, dtype=np.float64))
        spread = ((rows @ params["cov"]) * rows).sum(axis=1)
        return NormalPredictive(rows @ params["mean"], np.sqrt(self.used_noise**2 + spread))


@dataclass(frozen=True)
class LinearRegressionUnknownNoise(_Regression):
    """y ~ Normal(xᵀtheta, σ²), theta | σ² ~ Normal(mean, σ² diag(sd²)), σ² ~ InverseGamma(a, b):
    a record adds (x y, x xᵀ, y², 1)."""

    a: float = 2.0
    b: float = 1.0

    name: ClassVar[str] = "linear-regression-unknown-noise"

    @property
    def prior(self) -> Distribution:
        mean, sd = self._prior_moments()
        return NormalInverseGamma(m=mean, precision=np.diag(1 / (sd * sd)), a=self.a, b=self.b)

    @property
    def quantities(self) -> tuple[str, ...]:
        return (*self.coefficients, "sigma2")

    @property
    def scale(self) -> float:
        return 2.0**self.feature_bits

    def arrange(self, gram: Exact, n: int) -> list[int]:
        d = self.size
        return [*gram[:d, d], *upper(gram[:d, :d]), gram[d, d], n << (2 * self.feature_bits)]

    def prior_matrix(self) -> Floats:
        """[[P, Pm], [mᵀP, c]]: positive definite exactly where P is and b > 0."""
        return bordered(self.prior.eta, self.size)

    def named_samples(self, theta: Floats) -> dict[str, Floats]:
        return {**super().named_samples(theta), "sigma2": theta[:, -1]}

    def predictive(self, eta: ArrayLike, x: ArrayLike) -> StudentTPredictive:
        """The targets of rows x: t with 2a degrees of freedom, location xᵀm and squared scale
        (b/a)(1 + xᵀP⁻¹x), each row on its own."""
        rows = self.design(x)
        q = self.family.to_params(np.asarray(eta, dtype=np.float64))
        spread = (rows * np.linalg.solve(q["precision"], rows.T).T).sum(axis=1)
        a, b = float(q["a"]), float(q["b"])
        return StudentTPredictive(2 * a, rows @ q["m"], np.sqrt(b / a * (1 + spread)))
