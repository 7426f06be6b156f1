"""Learn one Bayesian model together over a peer graph, with no server and no data leaving home;
then take any contribution out again, with evidence.

    from unweave import BetaBernoulli, Federation, graphs

    federation = Federation(BetaBernoulli(a=2, b=2), shards, graphs.ring(5))
    federation.learn().forget("a3")
    print(federation.posterior)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Public name → the module that defines it. Modules are imported when a name is first used.
_HOMES = {
    "AtomModel": "unweave.models",
    "Audit": "unweave.federation",
    "BetaBernoulli": "unweave.models",
    "BetaBinomial": "unweave.models",
    "BetaExponential": "unweave.models",
    "BetaExponentialAtoms": "unweave.models",
    "BetaGeometric": "unweave.models",
    "BetaNegativeBinomial": "unweave.models",
    "CustomModel": "unweave.models",
    "DirichletCategorical": "unweave.models",
    "DirichletMultinomial": "unweave.models",
    "Erasure": "unweave.federation",
    "FederatedClassifier": "unweave.federation.estimator",
    "Federation": "unweave.federation",
    "GammaEvents": "unweave.models",
    "GammaExponential": "unweave.models",
    "GammaPoisson": "unweave.models",
    "LinearRegression": "unweave.models",
    "LinearRegressionUnknownNoise": "unweave.models",
    "LogisticRegression": "unweave.models",
    "MultivariateNormalModel": "unweave.models",
    "NaturalGradient": "unweave.solvers",
    "NegativeBinomial": "unweave.models",
    "NegativeBinomialRegression": "unweave.models",
    "NormalKnownVariance": "unweave.models",
    "NormalUnknown": "unweave.models",
    "PoissonRegression": "unweave.models",
    "Posterior": "unweave.models.fitted.posterior",
    "ProbitRegression": "unweave.models",
    "RobustRegression": "unweave.models",
    "SoftmaxRegression": "unweave.models",
    "StagedAtomModel": "unweave.models",
    "StudentT": "unweave.models",
    "Topology": "unweave.graph",
    "UnweaveError": "unweave.errors",
    "Weibull": "unweave.models",
    "families": "unweave",
    "graphs": "unweave.graph",
    "models": "unweave",
    "partition": "unweave.sharding",
    "simulate": "unweave.experiments.replicas",
    "solvers": "unweave",
}

if TYPE_CHECKING:
    from unweave import families, models, solvers
    from unweave.errors import UnweaveError
    from unweave.experiments.replicas import simulate
    from unweave.federation import Audit, Erasure, Federation
    from unweave.federation.estimator import FederatedClassifier
    from unweave.graph import Topology, graphs
    from unweave.models import (
        AtomModel,
        BetaBernoulli,
        BetaBinomial,
        BetaExponential,
        BetaExponentialAtoms,
        BetaGeometric,
        BetaNegativeBinomial,
        CustomModel,
        DirichletCategorical,
        DirichletMultinomial,
        GammaEvents,
        GammaExponential,
        GammaPoisson,
        LinearRegression,
        LinearRegressionUnknownNoise,
        LogisticRegression,
        MultivariateNormalModel,
        NegativeBinomial,
        NegativeBinomialRegression,
        NormalKnownVariance,
        NormalUnknown,
        PoissonRegression,
        ProbitRegression,
        RobustRegression,
        SoftmaxRegression,
        StagedAtomModel,
        StudentT,
        Weibull,
    )
    from unweave.models.fitted.posterior import Posterior
    from unweave.sharding import partition
    from unweave.solvers import NaturalGradient

__all__ = [
    "AtomModel",
    "Audit",
    "BetaBernoulli",
    "BetaBinomial",
    "BetaExponential",
    "BetaExponentialAtoms",
    "BetaGeometric",
    "BetaNegativeBinomial",
    "CustomModel",
    "DirichletCategorical",
    "DirichletMultinomial",
    "Erasure",
    "FederatedClassifier",
    "Federation",
    "GammaEvents",
    "GammaExponential",
    "GammaPoisson",
    "LinearRegression",
    "LinearRegressionUnknownNoise",
    "LogisticRegression",
    "MultivariateNormalModel",
    "NaturalGradient",
    "NegativeBinomial",
    "NegativeBinomialRegression",
    "NormalKnownVariance",
    "NormalUnknown",
    "PoissonRegression",
    "Posterior",
    "ProbitRegression",
    "RobustRegression",
    "SoftmaxRegression",
    "StagedAtomModel",
    "StudentT",
    "Topology",
    "UnweaveError",
    "Weibull",
    "families",
    "graphs",
    "models",
    "partition",
    "simulate",
    "solvers",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'unweave' has no attribute {name!r}")
    home = _HOMES[name]
    if home == "unweave":
        return importlib.import_module(f"unweave.{name}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
