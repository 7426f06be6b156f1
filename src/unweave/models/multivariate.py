"""Normal records in several dimensions, with unknown mean and covariance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import ConfigError
from unweave.families import Distribution, NormalInverseWishart
from unweave.families.packed import unpack
from unweave.models.columns import Column, check_size, column_names, real
from unweave.models.gram import Exact, GramModel, upper
from unweave.models.predictive_reals import MultivariateTPredictive
from unweave.models.scaling import check_names, stated
from unweave.models.units import Affine

__all__ = ["MultivariateNormalModel"]


Floats = NDArray[np.float64]


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

    def to_user(self) -> Affine:
        return Affine.with_covariance(self.scales, self.centers)

    def predictive(self, eta: ArrayLike) -> MultivariateTPredictive:
        """t with df − d + 1 degrees of freedom, shape scale·(kappa + 1)/(kappa·(df − d + 1))."""
        q = self.family.to_params(np.asarray(eta, dtype=np.float64))
        kappa = float(q["kappa"])
        df = float(q["df"]) - len(self._names) + 1
        shape = q["scale"] * np.outer(self.scales, self.scales) * ((kappa + 1) / (kappa * df))
        return MultivariateTPredictive(df, self.centers + self.scales * q["mean"], shape)
