"""Normal records: on the line with known or unknown variance, and in several dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import ConfigError
from unweave.families import Distribution, Normal, NormalInverseGamma, NormalInverseWishart
from unweave.families.numerics.packed import unpack
from unweave.models.base import ConjugateModel
from unweave.models.columns import Column, check_size, column_names, real
from unweave.models.fitted.predictive_reals import (
    MultivariateTPredictive,
    NormalPredictive,
    StudentTPredictive,
)
from unweave.models.gram import Exact, GramModel, bordered, upper
from unweave.models.scaling import Scaled, check_names, decade, stated, written
from unweave.models.sums import whole_sum
from unweave.models.units import Affine

__all__ = ["MultivariateNormalModel", "NormalKnownVariance", "NormalUnknown"]

Floats = NDArray[np.float64]

_LOG_2PI = float(np.log(2 * np.pi))


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
    def precision_units(self) -> int:
        """w in units of the grid."""
        return round(float(np.ldexp(1.0, self.grid.bits[1])) / (self._noise * self._noise))

    @property
    def used_noise(self) -> float:
        """The noise whose precision lies on the grid, in z-units. The posterior is exact for
        this noise."""
        w = self.precision_units * 2.0 ** -self.grid.bits[1]
        return float(w**-0.5) if w else np.inf

    @property
    def multiplier(self) -> float:
        """w·2^q: the multiplier of z before it is rounded to a whole number."""
        return float(np.ldexp(float(self.precision_units), self.grid.bits[0] - self.grid.bits[1]))

    @property
    def resolution(self) -> tuple[float, ...]:
        return (self.scale_of("x") / self.multiplier,)

    def sums(self, rows: Floats) -> list[int]:
        whole, _ = self.whole(rows, self.multiplier)
        return [whole_sum(whole[:, 0]), len(rows) * self.precision_units]

    def rounding(self, rows: Floats) -> Floats:
        _, added = self.whole(rows, self.multiplier)
        return np.array([float(added.sum()) * 2.0 ** -self.grid.bits[0], 0.0])

    def log_base(self, rows: Floats) -> Floats:
        z, noise = self.standard(rows)[:, 0] / self.used_noise, self.used_noise
        return np.asarray(-0.5 * z * z - np.log(noise * self.scale_of("x")) - 0.5 * _LOG_2PI)

    def replicate(self, theta: Floats, rows: Floats, rng: np.random.Generator) -> Floats:
        return rng.normal(theta, self.used_noise * self.scale_of("x"), rows.shape)

    def to_user(self) -> Affine:
        return Affine.location(self.scale_of("x"), self.center_of("x"))

    def predictive(self, eta: ArrayLike) -> NormalPredictive:
        pm, p = np.asarray(eta, dtype=np.float64).tolist()
        center, scale = self.center_of("x"), self.scale_of("x")
        spread = scale * np.sqrt(self.used_noise**2 + 1 / p)
        return NormalPredictive("x", np.asarray(center + scale * (pm / p)), np.asarray(spread))


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

    def log_base(self, rows: Floats) -> Floats:
        return np.full(len(rows), -0.5 * _LOG_2PI - np.log(self.scale_of("x")))

    def replicate(self, theta: Floats, rows: Floats, rng: np.random.Generator) -> Floats:
        return rng.normal(theta[0], np.sqrt(theta[1]), rows.shape)

    def to_user(self) -> Affine:
        scale = self.scale_of("x")
        return Affine.with_variance(scale, self.center_of("x"), scale)

    def predictive(self, eta: ArrayLike) -> StudentTPredictive:
        """t with 2a degrees of freedom around the mean, squared scale (b/a)(1 + 1/kappa)."""
        q = self.family.to_params(np.asarray(eta, dtype=np.float64))
        a, b, kappa = float(q["a"]), float(q["b"]), float(q["precision"].ravel()[0])
        center, scale = self.center_of("x"), self.scale_of("x")
        spread = np.asarray(scale * np.sqrt(b / a * (1 + 1 / kappa)))
        where = center + scale * np.asarray(q["m"]).reshape(())
        return StudentTPredictive("x", np.asarray(2 * a), where, spread)


@dataclass(frozen=True)
class MultivariateNormalModel(GramModel):
    """x ~ Normal(theta, Σ), theta | Σ ~ Normal(mean, Σ/kappa), Σ ~ InverseWishart(df, psi):
    a record adds (x, 1, x xᵀ, 1).

    `dim` is the number of columns, or their names; `mean` a number, one for each column, or numbers
    by column; `psi` a number (that multiple of the identity), a matrix, or variances by column;
    `df` is dim + 2 unless given, so that the prior mean of Σ is `psi`. What is not given is a
    column's center, and its squared scale.
    """

    dim: int | Sequence[str]
    mean: float | Sequence[float] | Mapping[str, float] | None = None
    kappa: float = 1.0
    df: float | None = None
    psi: float | Sequence[Sequence[float]] | Mapping[str, float] | None = None

    name: ClassVar[str] = "multivariate-normal"

    def check_settings(self) -> None:
        check_size(self.name, "dim", self.dim, squares=True)
        if not self._names:
            raise ConfigError(
                f"{self.name}: dim has no column. Fix: a number of at least 1, or a list of names"
            )
        d = len(self._names)
        if len(set(self._names)) != d:
            raise ConfigError(f"{self.name}: two columns have the same name. Fix: rename one")
        if self.df is None:
            object.__setattr__(self, "df", float(d + 2))
        super().check_settings()
        if isinstance(self.mean, tuple) and len(self.mean) != d:
            raise ConfigError(
                f"{self.name}: mean has {len(self.mean)} numbers. Fix: give {d}, or one"
            )
        if isinstance(self.psi, tuple) and [len(row) for row in self.psi] != [d] * d:
            raise ConfigError(
                f"{self.name}: psi has the wrong shape. Fix: a number or a {d}×{d} matrix"
            )
        for setting in ("mean", "psi"):
            check_names(self.name, setting, getattr(self, setting), self._names)

    @property
    def _names(self) -> tuple[str, ...]:
        return column_names(self.dim)

    @property
    def prior(self) -> Distribution:
        psi = self.psi
        if psi is None or isinstance(psi, float | int | Mapping):
            matrix = np.diag(stated(psi, self._names, self.scales**2))
        else:
            matrix = np.asarray(psi, dtype=np.float64)
        assert self.df is not None
        mean = (stated(self.mean, self._names, self.centers) - self.centers) / self.scales
        scale = matrix / np.outer(self.scales, self.scales)
        return NormalInverseWishart(mean=mean, kappa=self.kappa, df=self.df, scale=scale)

    @property
    def schema(self) -> tuple[Column, ...]:
        return tuple(real(name) for name in self._names)

    def arrange(self, gram: Exact, n: int) -> list[int]:
        return [*gram[0, 1:], gram[0, 0], *upper(gram[1:, 1:]), n << (2 * self.feature_bits)]

    def prior_matrix(self) -> Floats:
        """[[kappa, kappa·mᵀ], [kappa·m, scale + kappa·m mᵀ]]."""
        q = self.prior.params
        kappa, m = float(q["kappa"]), np.asarray(q["mean"])
        corner = np.asarray(q["scale"]) + kappa * np.outer(m, m)
        return np.block([[np.full((1, 1), kappa), kappa * m[None]], [kappa * m[:, None], corner]])

    @property
    def quantities(self) -> tuple[str, ...]:
        means = (f"mean[{name}]" for name in self._names)
        return (*means, *(f"Sigma[{name},{name}]" for name in self._names))

    def named_samples(self, theta: Floats) -> dict[str, Floats]:
        d = len(self._names)
        return {"mean": theta[:, :d], "Sigma": unpack(theta[:, d:], d)}

    @property
    def coordinates(self) -> dict[str, dict[str, Sequence[Any]]]:
        return {
            "mean": {"column": self._names},
            "Sigma": {"column": self._names, "other_column": self._names},
        }

    def log_base(self, rows: Floats) -> Floats:
        return np.full(
            len(rows), float(-np.log(self.scales).sum()) - 0.5 * rows.shape[1] * _LOG_2PI
        )

    def outcomes_of(self, rows: Floats) -> Floats:
        return rows

    def replicate(self, theta: Floats, rows: Floats, rng: np.random.Generator) -> Floats:
        d = rows.shape[1]
        return rng.multivariate_normal(theta[:d], unpack(theta[d:], d), len(rows))

    def to_user(self) -> Affine:
        return Affine.with_covariance(self.scales, self.centers)

    def predictive(self, eta: ArrayLike) -> MultivariateTPredictive:
        """t with df − d + 1 degrees of freedom, shape scale·(kappa + 1)/(kappa·(df − d + 1))."""
        q = self.family.to_params(np.asarray(eta, dtype=np.float64))
        kappa = float(q["kappa"])
        df = float(q["df"]) - len(self._names) + 1
        shape = q["scale"] * np.outer(self.scales, self.scales) * ((kappa + 1) / (kappa * df))
        return MultivariateTPredictive(df, self.centers + self.scales * q["mean"], shape)
