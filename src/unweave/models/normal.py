"""Normal records on the line: known variance, or unknown mean and variance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import ConfigError
from unweave.families import Distribution, Normal, NormalInverseGamma
from unweave.models.base import ConjugateModel
from unweave.models.columns import Column, real
from unweave.models.gram import Exact, GramModel, bordered
from unweave.models.predictive_reals import NormalPredictive, StudentTPredictive
from unweave.models.sums import FEATURE_LIMIT, real_sum, round_to

__all__ = ["NormalKnownVariance", "NormalUnknown"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NormalKnownVariance(ConjugateModel):
    """x ~ Normal(theta, noise²) with `noise` known, theta ~ Normal(mean, sd²).

    A record adds (w·x, w) to the natural parameter, w = 1/noise². The precision w is rounded to the
    grid first and then used for both components, so that rounding cannot bias the mean.
    """

    noise: float = 1.0
    mean: float = 0.0
    sd: float = 1.0

    name: ClassVar[str] = "normal-known-variance"

    def check_settings(self) -> None:
        if not self.noise > 0:
            raise ConfigError(f"{self.name}: noise = {self.noise}: must be above 0")
        if not abs(self.used_noise / self.noise - 1) < 1e-4:
            raise ConfigError(
                f"{self.name}: with {self.grid.bits[1]} bits (of at most 62) the noise "
                f"{self.noise} would become {self.used_noise:.6g}; use more bits, or measure x in "
                "other units"
            )

    @property
    def prior(self) -> Distribution:
        return Normal(mean=self.mean, sd=self.sd)

    @property
    def schema(self) -> tuple[Column, ...]:
        return (real("x"),)

    def default_bits(self) -> Sequence[int]:
        """x to 24 bits of the noise, w to 30 bits of itself; never less than 24 for the prior."""
        scale = round(float(np.log2(self.noise)))
        return min(max(24, 24 + scale), 62), min(max(24, 30 + 2 * scale), 62)

    @cached_property
    def _units_of_precision(self) -> int:
        return round(float(np.ldexp(1.0, self.grid.bits[1])) / (self.noise * self.noise))

    @property
    def used_noise(self) -> float:
        """The noise whose precision lies on the grid; what the posterior is exact for."""
        w = self._units_of_precision * 2.0 ** -self.grid.bits[1]
        return float(w**-0.5) if w else np.inf

    @property
    def resolution(self) -> tuple[float, ...]:
        """w·x is rounded to 2^-q, so x is to noise²·2^-q."""
        return (self.used_noise**2 * 2.0 ** -self.grid.bits[0],)

    def sums(self, rows: Floats) -> list[int]:
        w = self._units_of_precision * 2.0 ** -self.grid.bits[1]
        total = real_sum(w * rows[:, 0], self.grid.bits[0], self.grid.names[0])
        return [total, len(rows) * self._units_of_precision]

    def predictive(self, eta: ArrayLike) -> NormalPredictive:
        pm, p = np.asarray(eta, dtype=np.float64).tolist()
        scale = np.sqrt(self.used_noise**2 + 1 / p)
        return NormalPredictive(np.asarray(pm / p), np.asarray(scale))


@dataclass(frozen=True)
class NormalUnknown(GramModel):
    """x ~ Normal(theta, σ²), theta | σ² ~ Normal(mean, σ²/kappa), σ² ~ InverseGamma(a, b):
    a record adds (x, 1, x², 1). It is the regression on a constant."""

    mean: float = 0.0
    kappa: float = 1.0
    a: float = 2.0
    b: float = 1.0

    name: ClassVar[str] = "normal-unknown"

    @property
    def prior(self) -> Distribution:
        return NormalInverseGamma(m=self.mean, precision=self.kappa, a=self.a, b=self.b)

    @property
    def schema(self) -> tuple[Column, ...]:
        return (real("x"),)

    def z(self, rows: Floats) -> Floats:
        whole = round_to(rows, 2.0**self.feature_bits, f"{self.name}, x", FEATURE_LIMIT)
        return np.insert(whole, 0, 2.0**self.feature_bits, axis=1)

    def arrange(self, gram: Exact, n: int) -> list[int]:
        return [gram[0, 1], gram[0, 0], gram[1, 1], n << (2 * self.feature_bits)]

    def prior_matrix(self) -> Floats:
        return bordered(self.prior.eta, 1)

    @property
    def quantities(self) -> tuple[str, ...]:
        return "theta", "sigma2"

    def named_samples(self, theta: Floats) -> dict[str, Floats]:
        return dict(zip(self.quantities, theta.T, strict=True))

    def predictive(self, eta: ArrayLike) -> StudentTPredictive:
        """t with 2a degrees of freedom around the mean, squared scale (b/a)(1 + 1/kappa)."""
        q = self.family.to_params(np.asarray(eta, dtype=np.float64))
        a, b, kappa = float(q["a"]), float(q["b"]), float(q["precision"].ravel()[0])
        scale = np.asarray(np.sqrt(b / a * (1 + 1 / kappa)))
        return StudentTPredictive(2 * a, np.asarray(q["m"]).reshape(()), scale)
