"""Generalised linear models: regressions of classes, counts and numbers with heavy tails."""

from __future__ import annotations

from unweave.models.glm.base import GLM
from unweave.models.glm.logistic import LogisticRegression
from unweave.models.glm.negative_binomial import NegativeBinomialRegression
from unweave.models.glm.poisson import PoissonRegression
from unweave.models.glm.probit import ProbitRegression
from unweave.models.glm.robust import RobustRegression
from unweave.models.glm.softmax import SoftmaxRegression

__all__ = [
    "GLM",
    "LogisticRegression",
    "NegativeBinomialRegression",
    "PoissonRegression",
    "ProbitRegression",
    "RobustRegression",
    "SoftmaxRegression",
]
