"""Regressions: the design and the prior of their coefficients, and the linear ones,
y = xᵀtheta + noise, with the noise known or learned."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import ConfigError
from unweave.families import Distribution, MultivariateNormal, NormalInverseGamma
from unweave.grid import Ints
from unweave.models.columns import Column, check_size, feature_columns, real
from unweave.models.fitted.predictive_reals import NormalPredictive, StudentTPredictive
from unweave.models.gram import Exact, GramModel, bordered, upper
from unweave.models.scaling import Prior, Scaled, check_names, decade, stated, written
from unweave.models.shards import Shard, feature_rows
from unweave.models.units import Affine

__all__ = ["LinearRegression", "LinearRegressionUnknownNoise", "Regression", "check_agent_sd"]


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Regression(Scaled):
    """Design and prior that all regressions share. `features` is their number, or their names;
    `mean` and `sd` describe the prior of the coefficients in the user's units: one number, one for
    each, or numbers by name. What is not stated is 0 ± 1 in z-units; for the intercept that is the
    predictor at the center of the features. `levels` lists the texts of a feature of text: each
    level but the first, the reference, has a coefficient, `ward[south]`."""

    features: int | Sequence[str]
    mean: float | Sequence[float] | Mapping[str, float] | None = None
    sd: float | Sequence[float] | Mapping[str, float] | None = None
    intercept: bool = False
    target: str = "y"
    levels: Mapping[str, Sequence[str]] | None = None

    def check_settings(self) -> None:
        check_size(self.name, "features", self.features, squares=True)
        check_size(self.name, "features and levels", len(self.feature_names), squares=True)
        if not self.feature_names:
            raise ConfigError(
                f"{self.name}: no features. Fix: a number of at least 1, or a list of names"
            )
        if len({*self.feature_names, self.target}) != len(self.feature_names) + 1:
            raise ConfigError(
                f"{self.name}: two columns have the same name. Fix: rename a feature or the target"
            )
        if len(set(self.quantities)) != len(self.quantities):
            raise ConfigError(
                f"{self.name}: a feature has the name of the intercept or of 'sigma2'. Fix: "
                "rename it"
            )
        super().check_settings()
        for key in ("mean", "sd"):
            value = getattr(self, key)
            check_names(self.name, key, value, self.coefficients)
            if isinstance(value, tuple) and len(value) != len(self.coefficients):
                raise ConfigError(
                    f"{self.name}: {key} has {len(value)} numbers. Fix: give one for each of "
                    f"{', '.join(self.coefficients)}"
                )
        if not np.all(stated(self.sd, self.coefficients, np.ones(len(self.coefficients))) > 0):
            raise ConfigError(f"{self.name}: an sd is not above 0. Fix: numbers above 0")

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self._feature_columns)

    @cached_property
    def _feature_columns(self) -> tuple[Column, ...]:
        return feature_columns(self.name, self.features, self.levels)

    @cached_property
    def coefficients(self) -> tuple[str, ...]:
        """Names of the coefficients, in order."""
        return (("intercept",) if self.intercept else ()) + self.feature_names

    @property
    def quantities(self) -> tuple[str, ...]:
        return self.coefficients

    @cached_property
    def size(self) -> int:
        return len(self.coefficients)

    @property
    def schema(self) -> tuple[Column, ...]:
        """The features come first."""
        return (*self._feature_columns, real(self.target))

    def movable(self, name: str) -> bool:
        """Without an intercept, the model depends on the zero of every column."""
        return self.intercept

    @property
    @abstractmethod
    def unit_sd(self) -> float:
        """A coefficient with prior sd 1 in z-units has the prior sd `unit_sd` / (scale of its
        feature) in the user's units."""

    def design(self, x: Any) -> Floats:
        """Rows of features in z-units, with a leading 1 if the model has an intercept; a shard has
        validated records, whose texts are coded."""
        if isinstance(x, Shard):
            return self.standard_design(x.rows)
        rows = feature_rows(x, self.schema[: len(self.feature_names)], self.name)
        return self.standard_design(rows)

    def standard_design(self, rows: Floats) -> Floats:
        """The design of validated records, whose first columns are the features."""
        first, inputs = int(self.intercept), slice(len(self.feature_names))
        x = np.ones((len(rows), len(self.coefficients)))
        x[:, first:] = (rows[:, inputs] - self.centers[inputs]) / self.scales[inputs]
        return x

    @property
    def predictor_units(self) -> tuple[float, float]:
        """Scale and center of the linear predictor: the target's, if it has the target's units."""
        return self.scale_of(self.target), self.center_of(self.target)

    def _replicated(
        self, theta: Floats, noise: float, rows: Floats, rng: np.random.Generator
    ) -> Floats:
        """The same features with new targets; theta is in the user's units."""
        x = rows[:, :-1]
        x = np.insert(x, 0, 1.0, axis=1) if self.intercept else x
        return np.column_stack([rows[:, :-1], rng.normal(x @ theta, noise)])

    def named_samples(self, theta: Floats) -> dict[str, Floats]:
        return {name: theta[:, j] for j, name in enumerate(self.coefficients)}

    def outward(self) -> tuple[Floats, Floats]:
        """Coefficients in the user's units are A·(those in z-units) + k: a slope is multiplied by
        the target's scale over its feature's, and the intercept moves to x = 0."""
        y, center = self.predictor_units
        slopes = y / self.scales[: len(self.feature_names)]
        if not self.intercept:
            return np.diag(slopes), np.zeros(len(self.coefficients))
        matrix = np.diag([y, *slopes])
        matrix[0, 1:] = -self.centers[: len(slopes)] * slopes
        shift = np.zeros(len(self.coefficients))
        shift[0] = center
        return matrix, shift

    def to_user(self) -> Affine:
        return Affine.location(*self.outward())

    def prior_moments(self) -> tuple[Floats, Floats]:
        """Mean and precision of the coefficients in z-units (over the noise's where it is learned):
        P_z = AᵀPA. An intercept of which nothing is stated is independent of the slopes there."""
        matrix, shift = Regression.outward(self)
        scales = self.scales[: len(self.feature_names)]
        ratio = self.unit_sd / np.concatenate([np.ones(int(self.intercept)), scales])
        mean = stated(self.mean, self.coefficients, np.zeros(len(self.coefficients)))
        sd = stated(self.sd, self.coefficients, ratio) * (self.predictor_units[0] / self.unit_sd)
        if self.intercept and not (_names(self.mean) or _names(self.sd)):
            matrix, shift = np.diag(np.diag(matrix)), np.zeros(len(self.coefficients))
        precision = matrix.T @ np.diag(1 / (sd * sd)) @ matrix
        return np.asarray(np.linalg.solve(matrix, mean - shift), np.float64), precision


@dataclass(frozen=True)
class _Linear(Regression, GramModel):
    """A regression whose statistics are products of features and target."""

    @property
    def constant(self) -> bool:
        return self.intercept


@dataclass(frozen=True)
class LinearRegression(_Linear):
    """y ~ Normal(xᵀtheta, noise²) with `noise` known (unless given, the target's scale),
    theta ~ Normal(mean, diag(sd²)):

        P ← P + Σ x xᵀ / noise²,     P m ← P m + Σ x y / noise²

    Features and target are divided by the noise before they are rounded, with 1/noise itself on
    the grid: products then carry 1/noise² exactly.

    With `agent_sd`, every agent has an intercept of its own, Normal(0, agent_sd²) around the shared
    one, which it integrates out: only the factor of the shared coefficients leaves the agent. With
    the bordered sums G = Σ (x, y)(x, y)ᵀ/noise², whose first column belongs to the intercept, that
    is the Schur complement

        G − G_0 G_0ᵀ · agent_sd²/(1 + agent_sd² G_00)

    in exact rational arithmetic, rounded once: a function of the agent's set of records.
    """

    noise: float | None = None
    agent_sd: float | None = None

    name: ClassVar[str] = "linear-regression"

    def check_settings(self) -> None:
        super().check_settings()
        check_agent_sd(self, self.agent_sd)
        if not self._noise > 0:
            raise ConfigError(f"{self.name}: noise = {self.noise}. Fix: a number above 0")
        if self.multiplier < 2**10:
            y = self.scale_of(self.target)
            raise ConfigError(
                f"{self.name}: the grid cannot hold the noise {self.noise} at scale {y:g} of "
                f"{self.target!r}. Fix: scale = {written({self.target: decade(self._noise * y)})}"
            )

    @property
    def _noise(self) -> float:
        """The noise in z-units."""
        return 1.0 if self.noise is None else self.noise / self.scale_of(self.target)

    @property
    def unit_sd(self) -> float:
        return self.scale_of(self.target)

    @property
    def prior(self) -> Distribution:
        mean, precision = self.prior_moments()
        return MultivariateNormal(mean=mean, precision=precision)

    def default_bits(self) -> Sequence[int]:
        bits = min(max(24, 32 + 2 * round(float(np.log2(self._noise)))), 62)
        return (bits,) * self.family.dim

    @property
    def feature_bits(self) -> int:
        finest = 16 + round(float(np.log2(self._noise)))
        return max(min(min(self.grid.bits) // 2, finest), 0)

    @cached_property
    def multiplier(self) -> float:
        """2^p / noise, rounded to a whole number."""
        return float(np.rint(np.ldexp(1.0 / self._noise, self.feature_bits)))

    @property
    def used_noise(self) -> float:
        """The noise whose inverse lies on the grid, in z-units; the posterior is exact for it."""
        return float(np.ldexp(1.0, self.feature_bits) / self.multiplier)

    def arrange(self, gram: Exact, n: int) -> list[int]:
        d = self.size
        return [*gram[:d, d], *upper(gram[:d, :d])]

    @property
    def rounds_factors(self) -> bool:
        return super().rounds_factors or self.agent_sd is not None

    def finished(self, sums: Sequence[int] | Ints, n: int) -> Ints:
        if self.agent_sd is None or not n:
            return super().finished(sums, n)
        d, weight = self.size, self.weight(n)
        one = [1 << bits for bits in self.grid.bits]
        values = [weight * int(v) / unit for v, unit in zip(sums, one, strict=True)]
        h, triangle = values[:d], values[d:]
        first = triangle[:d]  # G_0: the row of the intercept
        variance = Fraction(self.agent_sd / self.scale_of(self.target)) ** 2
        share = variance / (1 + variance * first[0])
        rows, columns = np.triu_indices(d)
        values = [a - share * first[i] * h[0] for i, a in enumerate(h)] + [
            a - share * first[i] * first[j] for a, i, j in zip(triangle, rows, columns, strict=True)
        ]
        return self.grid.units([round(v * unit) for v, unit in zip(values, one, strict=True)])

    def prior_matrix(self) -> Floats:
        return self.prior_moments()[1]

    def log_base(self, rows: Floats) -> Floats:
        y, noise = self.standard(rows)[:, -1] / self.used_noise, self.used_noise
        scale = noise * self.scale_of(self.target) * np.sqrt(2 * np.pi)
        return np.asarray(-0.5 * y * y - np.log(scale))

    def replicate(self, theta: Floats, rows: Floats, rng: np.random.Generator) -> Floats:
        noise = self.used_noise * self.scale_of(self.target)
        return self._replicated(theta, noise, rows, rng)

    def predictive(self, eta: ArrayLike, x: ArrayLike) -> NormalPredictive:
        """The targets of rows x: Normal(xᵀm, noise² + xᵀP⁻¹x), each row on its own."""
        rows = self.design(x)
        params = self.family.to_params(np.asarray(eta, dtype=np.float64))
        spread = ((rows @ params["cov"]) * rows).sum(axis=1)
        y, zero = self.scale_of(self.target), self.center_of(self.target)
        scale = np.sqrt(self.used_noise**2 + spread)
        return NormalPredictive(self.target, zero + y * (rows @ params["mean"]), y * scale)


@dataclass(frozen=True)
class LinearRegressionUnknownNoise(_Linear):
    """y ~ Normal(xᵀtheta, σ²), theta | σ² ~ Normal(mean, σ² diag(sd²)), σ² ~ InverseGamma(a, b):
    a record adds (x y, x xᵀ, y², 1). `b` is the target's squared scale unless given."""

    a: float = 2.0
    b: float | None = None

    name: ClassVar[str] = "linear-regression-unknown-noise"

    @property
    def prior(self) -> Distribution:
        mean, precision = self.prior_moments()
        b = 1.0 if self.b is None else self.b / self.scale_of(self.target) ** 2
        return NormalInverseGamma(m=mean, precision=precision, a=self.a, b=b)

    @property
    def unit_sd(self) -> float:
        """sd is in units of σ."""
        return 1.0

    @property
    def quantities(self) -> tuple[str, ...]:
        return (*self.coefficients, "sigma2")

    def arrange(self, gram: Exact, n: int) -> list[int]:
        d = self.size
        return [*gram[:d, d], *upper(gram[:d, :d]), gram[d, d], n << (2 * self.feature_bits)]

    def prior_matrix(self) -> Floats:
        """[[P, Pm], [mᵀP, c]]: positive definite exactly where P is and b > 0."""
        return bordered(self.prior.eta, self.size)

    def named_samples(self, theta: Floats) -> dict[str, Floats]:
        return {**super().named_samples(theta), "sigma2": theta[:, -1]}

    def log_base(self, rows: Floats) -> Floats:
        return np.full(len(rows), -np.log(self.scale_of(self.target) * np.sqrt(2 * np.pi)))

    def replicate(self, theta: Floats, rows: Floats, rng: np.random.Generator) -> Floats:
        return self._replicated(theta[:-1], float(np.sqrt(theta[-1])), rows, rng)

    def to_user(self) -> Affine:
        return Affine.with_variance(*self.outward(), self.scale_of(self.target))

    def predictive(self, eta: ArrayLike, x: ArrayLike) -> StudentTPredictive:
        """The targets of rows x: t with 2a degrees of freedom, location xᵀm and squared scale
        (b/a)(1 + xᵀP⁻¹x), each row on its own."""
        rows = self.design(x)
        q = self.family.to_params(np.asarray(eta, dtype=np.float64))
        spread = (rows * np.linalg.solve(q["precision"], rows.T).T).sum(axis=1)
        a, b = float(q["a"]), float(q["b"])
        y, zero = self.scale_of(self.target), self.center_of(self.target)
        where, scale = zero + y * (rows @ q["m"]), y * np.sqrt(b / a * (1 + spread))
        return StudentTPredictive(self.target, np.asarray(2 * a), where, scale)


def check_agent_sd(model: Regression, sd: float | None) -> None:
    """ConfigError unless the agents may have intercepts of this spread."""
    if sd is None:
        return
    if not 0.0 < sd < np.inf:
        raise ConfigError(f"{model.name}: agent_sd = {sd}. Fix: a number above 0, or none")
    if not model.intercept or getattr(model, "reduction", "sum") != "sum":
        raise ConfigError(
            f"{model.name}: agent_sd is the spread of the agents' intercepts. Fix: intercept = "
            'true and reduction = "sum"'
        )


def _names(prior: Prior) -> bool:
    """Whether a setting contains a value for the intercept."""
    return prior is not None and (not isinstance(prior, Mapping) or "intercept" in prior)
