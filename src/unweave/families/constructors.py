"""Constructors of distributions from their usual parameters.

They are functions, not classes, because every one returns a Distribution.
Arrays give batches where the parameters are numbers (`Beta(a=[2, 3], b=2)`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from unweave.arguments import floats
from unweave.errors import ConfigError, UnweaveError
from unweave.families.base import Family
from unweave.families.beta import BetaFamily
from unweave.families.diagonal_normal import DiagonalNormalFamily, NormalFamily
from unweave.families.dirichlet import DirichletFamily
from unweave.families.distribution import Distribution
from unweave.families.gamma import GammaFamily
from unweave.families.inverse_gamma import InverseGammaFamily
from unweave.families.multivariate_normal import MultivariateNormalFamily
from unweave.families.normal_inverse_gamma import NormalInverseGammaFamily
from unweave.families.normal_inverse_wishart import NormalInverseWishartFamily

__all__ = [
    "Beta",
    "DiagonalNormal",
    "Dirichlet",
    "Gamma",
    "InverseGamma",
    "MultivariateNormal",
    "Normal",
    "NormalInverseGamma",
    "NormalInverseWishart",
]


def Beta(a: ArrayLike, b: ArrayLike) -> Distribution:
    """Beta with pseudo-counts a (successes) and b (failures)."""
    return _distribution(BetaFamily(), a=a, b=b)


def Dirichlet(alpha: ArrayLike) -> Distribution:
    """Dirichlet with pseudo-counts alpha[..., classes]."""
    counts = np.atleast_1d(floats(alpha, "Dirichlet: alpha"))
    family = DirichletFamily(counts.shape[-1])
    return _distribution(family, alpha=counts)


def Gamma(a: ArrayLike, b: ArrayLike) -> Distribution:
    """Gamma with shape a and rate b."""
    return _distribution(GammaFamily(), a=a, b=b)


def InverseGamma(a: ArrayLike, b: ArrayLike) -> Distribution:
    """InverseGamma with shape a and scale b."""
    return _distribution(InverseGammaFamily(), a=a, b=b)


def Normal(mean: ArrayLike, sd: ArrayLike) -> Distribution:
    """Normal on the line."""
    return _distribution(NormalFamily(), mean=mean, sd=sd)


def DiagonalNormal(mean: ArrayLike, sd: ArrayLike) -> Distribution:
    """Independent normals; mean[..., d] and sd[..., d], one of which may be a number."""
    m, spread = floats(mean, "DiagonalNormal: mean"), floats(sd, "DiagonalNormal: sd")
    size = max(np.shape(value)[-1] if np.ndim(value) else 1 for value in (m, spread))
    return _distribution(
        DiagonalNormalFamily(size), mean=np.atleast_1d(m), sd=np.atleast_1d(spread)
    )


def MultivariateNormal(
    mean: ArrayLike, cov: ArrayLike | None = None, *, precision: ArrayLike | None = None
) -> Distribution:
    """Correlated normal; a number for `cov` or `precision` is that multiple of the identity."""
    m = np.atleast_1d(floats(mean, "MultivariateNormal: mean"))
    family = MultivariateNormalFamily(m.shape[-1])
    return _distribution(family, mean=m, **_given(cov=cov, precision=precision))


def NormalInverseGamma(
    m: ArrayLike,
    v: ArrayLike | None = None,
    *,
    a: ArrayLike,
    b: ArrayLike,
    precision: ArrayLike | None = None,
) -> Distribution:
    """Coefficients N(m, σ² v) with σ² ~ InverseGamma(a, b); `precision` = v⁻¹ may be given instead.

    A number m is one coefficient (the mean of a normal); m[..., d] are d coefficients.
    """
    centre = np.atleast_1d(floats(m, "NormalInverseGamma: m"))
    family = NormalInverseGammaFamily(centre.shape[-1])
    params = _given(m=centre, v=v, precision=precision, a=a, b=b)
    return _distribution(family, **params)


def NormalInverseWishart(
    mean: ArrayLike, kappa: ArrayLike, df: ArrayLike, scale: ArrayLike
) -> Distribution:
    """Mean N(mean, Σ/kappa) with covariance Σ ~ InverseWishart(df, scale)."""
    m = np.atleast_1d(floats(mean, "NormalInverseWishart: mean"))
    family = NormalInverseWishartFamily(m.shape[-1])
    return _distribution(family, mean=m, kappa=kappa, df=df, scale=scale)


def _distribution(family: Family, **params: ArrayLike) -> Distribution:
    """The distribution of `family` with these parameters."""
    read = {key: floats(value, f"{family.name}: {key}") for key, value in params.items()}
    try:
        return Distribution(family, family.from_params(**read))
    except ValueError as error:
        if isinstance(error, UnweaveError):
            raise
        shapes = ", ".join(f"{key} {value.shape}" for key, value in read.items())
        raise ConfigError(f"{family.name}: shapes {shapes}. Fix: shapes that broadcast") from None


def _given(**params: ArrayLike | None) -> dict[str, ArrayLike]:
    return {name: value for name, value in params.items() if value is not None}
