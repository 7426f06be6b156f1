"""Exponential families on flat natural parameters eta[..., D], batch-first, in float64.

Functions such as `Beta(a=2, b=2)` construct a Distribution. Classes such as `BetaFamily` implement
the mathematics for arrays of natural parameters.
"""

from __future__ import annotations

from unweave.families.base import Family
from unweave.families.beta import BetaFamily
from unweave.families.constructors import (
    Beta,
    DiagonalNormal,
    Dirichlet,
    Gamma,
    InverseGamma,
    MultivariateNormal,
    Normal,
    NormalInverseGamma,
    NormalInverseWishart,
)
from unweave.families.diagonal_normal import DiagonalNormalFamily, NormalFamily
from unweave.families.dirichlet import DirichletFamily
from unweave.families.distribution import Distribution
from unweave.families.gamma import GammaFamily
from unweave.families.inverse_gamma import InverseGammaFamily
from unweave.families.marginals import Marginal
from unweave.families.multivariate_normal import MultivariateNormalFamily
from unweave.families.normal_inverse_gamma import NormalInverseGammaFamily
from unweave.families.normal_inverse_wishart import NormalInverseWishartFamily
from unweave.families.repeated import RepeatedFamily

__all__ = [
    "Beta",
    "BetaFamily",
    "DiagonalNormal",
    "DiagonalNormalFamily",
    "Dirichlet",
    "DirichletFamily",
    "Distribution",
    "Family",
    "Gamma",
    "GammaFamily",
    "InverseGamma",
    "InverseGammaFamily",
    "Marginal",
    "MultivariateNormal",
    "MultivariateNormalFamily",
    "Normal",
    "NormalFamily",
    "NormalInverseGamma",
    "NormalInverseGammaFamily",
    "NormalInverseWishart",
    "NormalInverseWishartFamily",
    "RepeatedFamily",
]
