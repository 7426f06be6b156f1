"""Regression of classes with one predictor for each class (softmax, multinomial logit)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import ConfigError
from unweave.lazy import special
from unweave.models.columns import Column, check_levels, check_size, label, labels
from unweave.models.glm.base import GLM
from unweave.models.glm.predictive import ClassesPredictive
from unweave.models.glm.quadrature import Triple, softplus

__all__ = ["SoftmaxRegression"]


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SoftmaxRegression(GLM):
    """P(y = c) ∝ exp(xᵀtheta_c) for the classes 0 to `classes` − 1, or the texts `classes`, each
    with all coefficients.

    The likelihood is replaced by its one-vs-each bound, Π_k≠c σ(xᵀ(theta_c − theta_k)) ≤ P(y = c):
    it has expectations of one variable, and its curvature is positive. The posterior is that of the
    bound; predictions use the softmax itself.
    """

    classes: int | Sequence[str] = 3

    name: ClassVar[str] = "softmax-regression"
    classifies: ClassVar[bool] = True
    self_concordant: ClassVar[bool] = True
    estimate_within: ClassVar[float | None] = 5.0

    def check_settings(self) -> None:
        if self.number < 2:
            raise ConfigError(f"{self.name}: classes = {self.number}. Fix: at least 2")
        if not isinstance(self.classes, int):
            check_levels(self.name, "classes", self.classes)
        check_size(self.name, "coefficients of all classes", self.size, squares=True)
        super().check_settings()

    @property
    def number(self) -> int:
        """The number of classes."""
        return self.classes if isinstance(self.classes, int) else len(self.classes)

    @property
    def class_names(self) -> Sequence[Any]:
        return range(self.classes) if isinstance(self.classes, int) else self.classes

    def target_column(self) -> Column:
        if isinstance(self.classes, int):
            return label(self.target, self.classes)
        return labels(self.target, self.classes)

    @property
    def quantities(self) -> tuple[str, ...]:
        """Class by class."""
        return tuple(f"{name}[{c}]" for c in self.class_names for name in self.coefficients)

    @cached_property
    def size(self) -> int:
        return self.number * len(self.coefficients)

    @property
    def expansion(self) -> int:
        return self.number - 1

    def outward(self) -> tuple[Floats, Floats]:
        matrix, shift = super().outward()
        blocks = np.asarray(np.kron(np.eye(self.number), matrix), np.float64)
        return blocks, np.tile(shift, self.number)

    def prior_moments(self) -> tuple[Floats, Floats]:
        """The classes have independent coefficients with the same prior."""
        mean, precision = super().prior_moments()
        blocks = np.asarray(np.kron(np.eye(self.number), precision), np.float64)
        return np.tile(mean, self.number), blocks

    def named_samples(self, theta: Floats) -> dict[str, Floats]:
        """One variable for each coefficient, with an entry for each class."""
        blocks = theta.reshape(len(theta), self.number, -1)
        return {name: blocks[:, :, j] for j, name in enumerate(self.coefficients)}

    @property
    def coordinates(self) -> dict[str, dict[str, Sequence[Any]]]:
        return {name: {"class": self.class_names} for name in self.coefficients}

    def outcomes(self, rows: Floats) -> tuple[Floats, Floats, Floats | float]:
        """Each record becomes one binary record for every other class: x ⊗ (e_c − e_k), y = 1."""
        x, y, offset = super().outcomes(rows)
        own = y.astype(np.intp)
        # The classes other than the own, in order: 0 … c−1, c+1 …
        others = np.arange(self.expansion) + (np.arange(self.expansion) >= own[:, None])
        n, d = x.shape
        pairs = np.zeros((n, self.expansion, self.number, d))
        at = np.arange(n)
        pairs[at, :, own] = x[:, None]
        pairs[at[:, None], np.arange(self.expansion), others] = -x[:, None]
        flat = pairs.reshape(n * self.expansion, self.size)
        return flat, np.ones(len(flat)), offset

    def predictors(self, x: Floats, theta: Floats, rows: Floats) -> Floats:
        """[N, classes]"""
        found: Floats = x @ theta.reshape(self.number, -1).T
        return found

    def pointwise(self, t: Floats, y: Floats) -> Triple:
        """f = log(1 + e^−t)."""
        p = special.expit(-t)
        return np.logaddexp(0.0, -t), -p, p * special.expit(t)

    def derivatives(self, a: Floats, v: Floats, y: Floats) -> Triple:
        f, first, second = softplus(-a, v)
        return f, -first, second

    def predictive(self, eta: ArrayLike, x: Any) -> ClassesPredictive:
        """The classes of rows x."""
        design = self.design(x)
        mean, cov = self.mean_and_cov(eta)
        d, classes = design.shape[1], self.number
        means = design @ mean.reshape(classes, d).T
        blocks = cov.reshape(classes, d, classes, d)
        spread = np.einsum("ni,aibj,nj->nab", design, blocks, design, optimize=True)
        texts = () if isinstance(self.classes, int) else self.classes
        return ClassesPredictive(means, spread, texts)
