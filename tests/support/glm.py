"""GLMs written a second time, centrally, with SciPy's densities: what federated results must equal.

The variational optimum is found by L-BFGS over a mean and a Cholesky factor. Gradients follow from
the loss alone by Stein's identities, E f' = E[f z]/s and E f'' = E[f (z² − 1)]/s².
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, stats

from unweave.models import (
    LogisticRegression,
    NegativeBinomialRegression,
    PoissonRegression,
    ProbitRegression,
    RobustRegression,
    SoftmaxRegression,
)
from unweave.models.glm import GLM

__all__ = ["CASES", "Central", "GlmCase", "central_optimum", "gaussian_kl", "split"]

Loss = Callable[[np.ndarray, np.ndarray], np.ndarray]
_Z, _W = np.polynomial.hermite_e.hermegauss(90)
_W = _W / _W.sum()


class GlmCase(NamedTuple):
    """A model without scaling, its loss per record of t and y, and targets drawn at t."""

    model: GLM
    loss: Loss
    draw: Callable[[np.random.Generator, np.ndarray], np.ndarray]

    def rows(self, n: int, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((n, 3))
        t = 0.3 + x @ [0.8, -0.5, 0.3]
        return np.asarray(np.column_stack([x, self.draw(rng, t)]))

    def design(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One row per expectation: records, or pairs of classes."""
        x, y = np.column_stack([np.ones(len(rows)), rows[:, :3]]), rows[:, 3]
        if not isinstance(self.model, SoftmaxRegression):
            return x, y
        pairs = []
        for one, own in zip(x, y.astype(int), strict=True):
            for other in set(range(self.model.number)) - {own}:
                direction = np.zeros((self.model.number, 4))
                direction[own], direction[other] = one, -one
                pairs.append(direction.ravel())
        return np.array(pairs), np.ones(len(pairs))


def _classes(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
    scores = np.stack([t, -t, np.zeros_like(t)], axis=1) + rng.gumbel(size=(len(t), 3))
    return np.asarray(scores.argmax(axis=1), dtype=float)


_SETTINGS: dict[str, Any] = {"features": 3, "intercept": True}
CASES = {
    case.model.name: case
    for case in (
        GlmCase(
            LogisticRegression(**_SETTINGS),
            lambda t, y: np.logaddexp(0, np.where(y == 1, -t, t)),
            lambda rng, t: (rng.random(len(t)) < 1 / (1 + np.exp(-t))).astype(float),
        ),
        GlmCase(
            ProbitRegression(**_SETTINGS),
            lambda t, y: -stats.norm.logcdf(np.where(y == 1, t, -t)),
            lambda rng, t: (t + rng.standard_normal(len(t)) > 0).astype(float),
        ),
        GlmCase(
            PoissonRegression(**_SETTINGS),
            lambda t, y: -stats.poisson.logpmf(y, np.exp(t)),
            lambda rng, t: rng.poisson(np.exp(t)).astype(float),
        ),
        GlmCase(
            NegativeBinomialRegression(**_SETTINGS, shape=2.0),
            lambda t, y: -stats.nbinom.logpmf(y, 2.0, 2.0 / (2.0 + np.exp(t))),
            lambda rng, t: rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(t))).astype(float),
        ),
        GlmCase(
            SoftmaxRegression(**_SETTINGS, classes=3), lambda t, y: np.logaddexp(0, -t), _classes
        ),
        GlmCase(
            RobustRegression(**_SETTINGS, df=4.0, noise=0.5),
            lambda t, y: -stats.t.logpdf(y, 4.0, t, 0.5),
            lambda rng, t: t + 0.5 * rng.standard_t(4.0, len(t)),
        ),
    )
}


class Central(NamedTuple):
    mean: np.ndarray
    cov: np.ndarray


def central_optimum(
    x: np.ndarray, y: np.ndarray, loss: Loss, prior_sd: float = 1.0, diagonal: bool = False
) -> Central:
    """The best normal distribution for all records, with prior Normal(0, prior_sd²)."""
    d = x.shape[1]
    lower = np.diag_indices(d) if diagonal else np.tril_indices(d)
    on_diagonal = lower[0] == lower[1]

    def unpack(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        c = np.zeros((d, d))
        c[lower] = np.where(on_diagonal, np.exp(np.clip(theta[d:], -50, 50)), theta[d:])
        return theta[:d], c

    def energy(theta: np.ndarray) -> tuple[float, np.ndarray]:
        m, c = unpack(theta)
        s = np.sqrt(np.square(x @ c).sum(axis=1))
        f = loss((x @ m)[:, None] + s[:, None] * _Z, y[:, None])
        first, second = (f * _Z) @ _W / s, (f * (_Z**2 - 1)) @ _W / s**2
        value = float((f @ _W).sum()) + 0.5 * (m @ m + (c * c).sum()) / prior_sd**2
        value -= float(np.log(np.diag(c)).sum())
        slope_m = x.T @ first + m / prior_sd**2
        slope_c = ((x.T * second) @ x + np.eye(d) / prior_sd**2) @ c
        chosen = slope_c[lower] * np.where(on_diagonal, c[lower], 1.0) - on_diagonal
        return value, np.concatenate([slope_m, chosen])

    start = np.concatenate([np.zeros(d), np.where(on_diagonal, np.log(0.3), 0.0)])
    options = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-15, "gtol": 1e-9}
    found = optimize.minimize(energy, start, jac=True, method="L-BFGS-B", options=options)
    m, c = unpack(found.x)
    return Central(m, c @ c.T)


def gaussian_kl(m: np.ndarray, cov: np.ndarray, to: Central) -> float:
    """KL(N(m, cov) ‖ to)."""
    turned, far = np.linalg.solve(to.cov, cov), to.mean - m
    spread = np.trace(turned) - len(m) - np.linalg.slogdet(turned)[1]
    return 0.5 * float(spread + far @ np.linalg.solve(to.cov, far))


def split(rows: np.ndarray, agents: int, by_label: bool = True, seed: int = 0) -> list[np.ndarray]:
    """One shard per agent: sorted by the target, or at random."""
    order = np.random.default_rng(seed).permutation(len(rows))
    if by_label:
        order = np.argsort(rows[:, -1], kind="stable")
    return [rows[part] for part in np.array_split(order, agents)]
