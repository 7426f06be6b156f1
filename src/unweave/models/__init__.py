"""The models that a user can choose: each has a family, a prior and a likelihood."""

from __future__ import annotations

from unweave.models.atoms import (
    AtomModel,
    BetaExponentialAtoms,
    NegativeBinomial,
    StagedAtomModel,
    StudentT,
    Weibull,
)
from unweave.models.base import ConjugateModel, LossModel, Model
from unweave.models.beta import BetaBernoulli, BetaBinomial, BetaGeometric, BetaNegativeBinomial
from unweave.models.beta_exponential import BetaExponential
from unweave.models.custom import CustomModel
from unweave.models.data import Data
from unweave.models.dirichlet import DirichletCategorical, DirichletMultinomial
from unweave.models.fitted.posterior import Posterior
from unweave.models.gamma import GammaEvents, GammaExponential, GammaPoisson
from unweave.models.glm import (
    LogisticRegression,
    NegativeBinomialRegression,
    PoissonRegression,
    ProbitRegression,
    RobustRegression,
    SoftmaxRegression,
)
from unweave.models.grouped import Grouped
from unweave.models.normal import MultivariateNormalModel, NormalKnownVariance, NormalUnknown
from unweave.models.registry import as_model, by_name, names
from unweave.models.regression import LinearRegression, LinearRegressionUnknownNoise
from unweave.models.shards import Shard

__all__ = [
    "AtomModel",
    "BetaBernoulli",
    "BetaBinomial",
    "BetaExponential",
    "BetaExponentialAtoms",
    "BetaGeometric",
    "BetaNegativeBinomial",
    "ConjugateModel",
    "CustomModel",
    "Data",
    "DirichletCategorical",
    "DirichletMultinomial",
    "GammaEvents",
    "GammaExponential",
    "GammaPoisson",
    "Grouped",
    "LinearRegression",
    "LinearRegressionUnknownNoise",
    "LogisticRegression",
    "LossModel",
    "Model",
    "MultivariateNormalModel",
    "NegativeBinomial",
    "NegativeBinomialRegression",
    "NormalKnownVariance",
    "NormalUnknown",
    "PoissonRegression",
    "Posterior",
    "ProbitRegression",
    "RobustRegression",
    "Shard",
    "SoftmaxRegression",
    "StagedAtomModel",
    "StudentT",
    "Weibull",
    "as_model",
    "by_name",
    "names",
]
