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
from unweave.models.scaling import Scaled, decade, written
from unweave.models.sums import whole_sum
from unweave.models.units import Affine

__all__ = ["NormalKnownVariance", "NormalUnknown"]


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NormalKnownVariance(Scaled, ConjugateModel):
    """x ~ Normal(theta, noise²) with `noise` known, theta ~ Normal(mean, sd²). Unless given,
    `noise` and `sd` are the scale of x and `mean` is its center.

    A record adds (w·x, w) to the natural parameter, w = 1/noise². The precision w is rounded to the
    grid first and then used for both components, so that rounding cannot bias the mean.
    """

    noise: float | None = None
    mean: float | None = None
    sd: float | None = None

    name: ClassVar[str] = "normal-known-variance"

    def check_settings(self) -> None:
        super().check_settings()
        if not self._noise > 0:
            raise ConfigError(f"{self.name}: noise = {self.noise}. Fix: a number above 0")
        if not abs(self.used_noise / self._noise - 1) < 1e-4:
            size = decade(self._noise * self.scale_of("x"))
            raise ConfigError(
                f"{self.name}: the grid cannot hold the noise {self.noise} at scale "
                f"{self.scale_of('x'):g}. Fix: scale = {written({'x': size})}"
            )

    @property
    def _noise(self) -> float:
        """The noise in z-units."""
        return 1.0 if self.noise is None else self.noise / self.scale_of("x")

    @property
    def prior(self) -> Distribution:
        center, scale = self.center_of("x"), self.scale_of("x")
        return Normal(
            mean=0.0 if self.mean is None else (self.mean - center) / scale,
            sd=1.0 if self.sd is None else self.sd / scale,
        )

    @property
    def schema(self) -> tuple[Column, ...]:
        return (real("x"),)

    def default_bits(self) -> Sequence[int]:
        """x to 24 bits of the noise, w to 30 bits of itself; never less than 24 for the prior."""
        scale = round(float(np.log2(self._noise)))
        return min(max(24, 24 + scale), 62), min(max(24, 30 + 2 * scale), 62)

    @cached_property
    def _units_of_precision(self) -> int:
        return round(float(np.ldexp(1.0, self.grid.bits[1])) / (self._noise * self._noise))

    @property
    def used_noise(self) -> float:
        """The noise whose precision lies on the grid, in z-units. The posterior is exact for
        this noise."""
        w = self._units_of_precision * 2.0 ** -self.grid.bits[1]
        return float(w**-0.5) if w else np.inf

    @property
    def multiplier(self) -> float:
        """w·2^q: the multiplier of z before it is rounded to a whole number."""
        return float(
            np.ldexp(float(self._units_of_precision), self.grid.bits[0] - self.grid.bits[1])
        )

    @property
    def resolution(self) -> tuple[float, ...]:
        return (self.scale_of("x") / self.multiplier,)

    def sums(self, rows: Floats) -> list[int]:
        whole, _ = self.whole(rows, self.multiplier)
        return [whole_sum(whole[:, 0]), len(rows) * self._units_of_precision]

    def rounding(self, rows: Floats) -> Floats:
        _, added = self.whole(rows, self.multiplier)
        return np.array([float(added.sum()) * 2.0 ** -self.grid.bits[0], 0.0])

    def to_user(self) -> Affine:
        return Affine.location(self.scale_of("x"), self.center_of("x"))

    def predictive(self, eta: ArrayLike) -> NormalPredictive:
        pm, p = np.asarray(eta, dtype=np.float64).tolist()
        center, scale = self.center_of("x"), self.scale_of("x")
        spread = scale * np.sqrt(self.used_noise**2 + 1 / p)
        return NormalPredictive(np.asarray(center + scale * (pm / p)), np.asarray(spread))


@dataclass(frozen=True)
class NormalUnknown(GramModel):
    """x ~ Normal(theta, σ²), theta | σ² ~ Normal(mean, σ²/kappa), σ² ~ InverseGamma(a, b):
    a record adds (x, 1, x², 1). It is the regression on a constant. Unless given, `mean` is the
    center of x and `b` its squared scale."""

    mean: float | None = None
    kappa: float = 1.0
    a: float = 2.0
    b: float | None = None

    name: ClassVar[str] = "normal-unknown"

    @property
    def prior(self) -> Distribution:
        center, scale = self.center_of("x"), self.scale_of("x")
        return NormalInverseGamma(
            m=0.0 if self.mean is None else (self.mean - center) / scale,
            precision=self.kappa,
            a=self.a,
            b=1.0 if self.b is None else self.b / scale**2,
        )

    @property
    def schema(self) -> tuple[Column, ...]:
        return (real("x"),)

    def arrange(self, gram: Exact, n: int) -> list[int]:
        return [gram[0, 1], gram[0, 0], gram[1, 1], n << (2 * self.feature_bits)]

    def prior_matrix(self) -> Floats:
        return bordered(self.prior.eta, 1)

    @property
    def quantities(self) -> tuple[str, ...]:
        return "theta", "sigma2"

    def named_samples(self, theta: Floats) -> dict[str, Floats]:
        return dict(zip(self.quantities, theta.T, strict=True))

    def to_user(self) -> Affine:
        scale = self.scale_of("x")
        return Affine.with_variance(scale, self.center_of("x"), scale)

    def predictive(self, eta: ArrayLike) -> StudentTPredictive:
        """t with 2a degrees of freedom around the mean, squared scale (b/a)(1 + 1/kappa)."""
        q = self.family.to_params(np.asarray(eta, dtype=np.float64))
        a, b, kappa = float(q["a"]), float(q["b"]), float(q["precision"].ravel()[0])
        center, scale = self.center_of("x"), self.scale_of("x")
        spread = np.asarray(scale * np.sqrt(b / a * (1 + 1 / kappa)))
        return StudentTPredictive(2 * a, center + scale * np.asarray(q["m"]).reshape(()), spread)
