"""One case per family: points inside and outside its domain, and reference values from SciPy.

A new family adds one FamilyCase here and inherits every law of `unweave.testing.families`. SciPy
and the textbook formulas here share no code with the families.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from unweave.families import (
    BetaFamily,
    DiagonalNormalFamily,
    DirichletFamily,
    Family,
    GammaFamily,
    InverseGammaFamily,
    MultivariateNormalFamily,
    NormalFamily,
    NormalInverseGammaFamily,
    NormalInverseWishartFamily,
    RepeatedFamily,
)

__all__ = ["CASES", "FamilyCase", "Reference"]

Floats = NDArray[np.float64]
Params = dict[str, Any]


@dataclass(frozen=True)
class Reference:
    """Values of one distribution from an independent source; None if the source has no value."""

    log_prob: Callable[[Floats], float]  # of one θ
    entropy: float
    marginals: tuple[Any, ...]  # frozen SciPy distributions
    line: Any = None  # the frozen distribution itself, for a family on the line


@dataclass(frozen=True)
class FamilyCase:
    """`points` are ordinary, `extremes` reach 1e-3 and 1e8, `outside` has (eta, words of error)."""

    family: Family
    points: tuple[Params, ...]
    extremes: tuple[Params, ...]
    outside: tuple[tuple[tuple[float, ...], str], ...]
    reference: Callable[[Params], Reference]
    kl: Callable[[Params, Params], float] | None = None  # a textbook closed form

    def __str__(self) -> str:
        return repr(self.family)

    def eta(self, params: Params) -> Floats:
        return self.family.from_params(**params)


def _on_the_line(frozen: Any) -> Reference:
    return Reference(frozen.logpdf, float(frozen.entropy()), (frozen,), frozen)


def _beta(p: Params) -> Reference:
    return _on_the_line(stats.beta(p["a"], p["b"]))


def _gamma(p: Params) -> Reference:
    return _on_the_line(stats.gamma(p["a"], scale=1.0 / p["b"]))


def _two_gammas(p: Params) -> Reference:
    laws = tuple(stats.gamma(a, scale=1.0 / b) for a, b in zip(p["a"], p["b"], strict=True))

    def log_prob(theta: Floats) -> float:
        return float(sum(law.logpdf(t) for law, t in zip(laws, theta, strict=True)))

    return Reference(log_prob, float(sum(law.entropy() for law in laws)), laws)


def _inverse_gamma(p: Params) -> Reference:
    return _on_the_line(stats.invgamma(p["a"], scale=p["b"]))


def _normal(p: Params) -> Reference:
    return _on_the_line(stats.norm(p["mean"], p["sd"]))


def _dirichlet(p: Params) -> Reference:
    alpha = np.asarray(p["alpha"], dtype=np.float64)
    law = stats.dirichlet(alpha)
    marginals = tuple(stats.beta(a, alpha.sum() - a) for a in alpha)
    return Reference(law.logpdf, float(law.entropy()), marginals)


def _dirichlet_kl(p: Params, q: Params) -> float:
    a, b = np.asarray(p["alpha"], dtype=np.float64), np.asarray(q["alpha"], dtype=np.float64)
    norms = special.gammaln(a.sum()) - special.gammaln(b.sum())
    norms += (special.gammaln(b) - special.gammaln(a)).sum()
    return float(norms + ((a - b) * (special.digamma(a) - special.digamma(a.sum()))).sum())


def _diagonal(p: Params) -> Reference:
    laws = tuple(stats.norm(m, s) for m, s in zip(p["mean"], p["sd"], strict=True))

    def log_prob(theta: Floats) -> float:
        return float(sum(law.logpdf(t) for law, t in zip(laws, theta, strict=True)))

    return Reference(log_prob, float(sum(law.entropy() for law in laws)), laws)


def _normal_kl(m0: Any, s0: Any, m1: Any, s1: Any) -> float:
    d, inverse = len(m0), np.linalg.inv(s1)
    gap = np.asarray(m1) - np.asarray(m0)
    logs = np.linalg.slogdet(s1)[1] - np.linalg.slogdet(s0)[1]
    return float(0.5 * (np.trace(inverse @ s0) - d + gap @ inverse @ gap + logs))


def _diagonal_kl(p: Params, q: Params) -> float:
    s, t = np.diag(np.square(p["sd"])), np.diag(np.square(q["sd"]))
    return _normal_kl(p["mean"], s, q["mean"], t)


def _mvn(p: Params) -> Reference:
    law = stats.multivariate_normal(p["mean"], p["cov"])
    sds = np.sqrt(np.diag(p["cov"]))
    marginals = tuple(stats.norm(m, s) for m, s in zip(p["mean"], sds, strict=True))
    return Reference(law.logpdf, float(law.entropy()), marginals)


def _mvn_kl(p: Params, q: Params) -> float:
    return _normal_kl(p["mean"], p["cov"], q["mean"], q["cov"])


def _nig(p: Params) -> Reference:
    m, v, a, b = np.asarray(p["m"]), np.asarray(p["v"]), p["a"], p["b"]
    variance = stats.invgamma(a, scale=b)

    def log_prob(theta: Floats) -> float:
        given = stats.multivariate_normal(m, v * theta[-1])
        return float(given.logpdf(theta[:-1]) + variance.logpdf(theta[-1]))

    mean_log = np.log(b) - special.digamma(a)
    entropy = stats.multivariate_normal(m, v).entropy() + 0.5 * len(m) * mean_log
    scales = np.sqrt(np.diag(v) * b / a)
    coefficients = tuple(stats.t(2 * a, mi, si) for mi, si in zip(m, scales, strict=True))
    return Reference(log_prob, float(entropy + variance.entropy()), (*coefficients, variance))


def _gamma_kl(a: float, b: float, c: float, d: float) -> float:
    logs = c * np.log(b / d) + special.gammaln(c) - special.gammaln(a)
    return float((a - c) * special.digamma(a) + logs + a * (d - b) / b)


def _nig_kl(p: Params, q: Params) -> float:
    """KL of the variances + the mean over σ² of the KL of the coefficients."""
    d, (s, t) = len(p["m"]), (np.asarray(p["v"]), np.asarray(q["v"]))
    gap = np.asarray(q["m"]) - np.asarray(p["m"])
    spread = _normal_kl(np.zeros(d), s, np.zeros(d), t)
    shift = 0.5 * p["a"] / p["b"] * gap @ np.linalg.inv(t) @ gap
    return _gamma_kl(p["a"], p["b"], q["a"], q["b"]) + spread + float(shift)


def _niw(p: Params) -> Reference:
    m, kappa, df, scale = np.asarray(p["mean"]), p["kappa"], p["df"], np.asarray(p["scale"])
    d = len(m)
    covariance = stats.invwishart(df, scale)

    def log_prob(theta: Floats) -> float:
        sigma = np.zeros((d, d))
        sigma[np.triu_indices(d)] = theta[d:]
        sigma = sigma + np.triu(sigma, 1).T
        given = stats.multivariate_normal(m, sigma / kappa)
        return float(given.logpdf(theta[:d]) + covariance.logpdf(sigma))

    half = 0.5 * (df - np.arange(d))
    log_volume = np.linalg.slogdet(scale)[1] - d * np.log(2) - special.digamma(half).sum()
    location = 0.5 * (d * np.log(2 * np.pi * np.e / kappa) + log_volume)
    free, variances = df - d + 1, np.diag(scale)
    means = (
        stats.t(free, mi, np.sqrt(v / kappa / free)) for mi, v in zip(m, variances, strict=True)
    )
    spreads = (stats.invgamma(free / 2, scale=v / 2) for v in variances)
    return Reference(log_prob, _inverse_wishart_entropy(df, scale) + location, (*means, *spreads))


def _inverse_wishart_entropy(df: float, scale: Floats) -> float:
    """Gupta and Srivastava (2010), eq. 17. SciPy 1.17 takes log 2 for d log 2."""
    d = len(scale)
    digammas = special.digamma(0.5 * (df - np.arange(d))).sum()
    volume = 0.5 * (d + 1) * np.linalg.slogdet(scale / 2)[1]
    constant = special.multigammaln(df / 2, d) + 0.5 * d * df
    return float(constant + volume - 0.5 * (df + d + 1) * digammas)


def _niw_kl(p: Params, q: Params) -> float:
    """KL of the inverse-Wishart laws + the mean over Σ of the KL of the means."""
    d, (s, t) = len(p["mean"]), (np.asarray(p["scale"]), np.asarray(q["scale"]))
    n, k = p["df"], q["df"]
    logs = np.linalg.slogdet(s)[1] - np.linalg.slogdet(t)[1]
    wishart = 0.5 * k * logs + 0.5 * n * (np.trace(np.linalg.solve(s, t)) - d)
    wishart += special.multigammaln(k / 2, d) - special.multigammaln(n / 2, d)
    wishart += 0.5 * (n - k) * special.digamma(0.5 * (n - np.arange(d))).sum()
    gap = np.asarray(q["mean"]) - np.asarray(p["mean"])
    r = q["kappa"] / p["kappa"]
    location = d * (r - 1 - np.log(r)) + q["kappa"] * n * gap @ np.linalg.solve(s, gap)
    return float(wishart + 0.5 * location)


def _matrix(d: int, seed: int, scale: float = 1.0) -> Floats:
    root = np.random.default_rng(seed).standard_normal((d, d + 2))
    return scale * (root @ root.T) / (d + 2)


def _pairs(*values: tuple[float, float]) -> tuple[Params, ...]:
    return tuple({"a": a, "b": b} for a, b in values)


_FAR_PAIRS = _pairs((1e-3, 1e-3), (1e8, 1e8), (1e-3, 1e4), (1e8, 3.0), (1e8, 2e-3))

CASES: tuple[FamilyCase, ...] = (
    FamilyCase(
        BetaFamily(),
        _pairs((2.0, 2.0), (0.7, 3.1), (55.0, 12.0), (1.0, 1.0)),
        _FAR_PAIRS,
        (((0.0, 1.0), "a = 0"), ((2.0, -1.5), "b = -1.5"), ((1.0, np.nan), "b = nan")),
        _beta,
        lambda p, q: _dirichlet_kl({"alpha": (p["a"], p["b"])}, {"alpha": (q["a"], q["b"])}),
    ),
    FamilyCase(
        DirichletFamily(4),
        tuple({"alpha": a} for a in ((1.0, 2.0, 3.0, 0.5), (10.0, 20.0, 5.0, 7.0), (1.0,) * 4)),
        tuple({"alpha": a} for a in ((1e-3,) * 4, (1e8, 2e8, 3e8, 1e8), (1e-3, 1.0, 1e3, 1e6))),
        (((1.0, 2.0, -3.0, 1.0), r"alpha\[2\] = -3"),),
        _dirichlet,
        _dirichlet_kl,
    ),
    FamilyCase(
        GammaFamily(),
        _pairs((2.0, 3.0), (0.8, 0.1), (40.0, 7.0)),
        _FAR_PAIRS,
        (((-1.0, 1.0), "a = -1"), ((1.0, 0.0), "b = 0")),
        _gamma,
        lambda p, q: _gamma_kl(p["a"], p["b"], q["a"], q["b"]),
    ),
    FamilyCase(
        InverseGammaFamily(),
        _pairs((3.0, 2.0), (0.8, 0.1), (1.5, 4.0), (40.0, 7.0)),
        _FAR_PAIRS,
        (((-1.0, 1.0), "a = -1"), ((1.0, 0.0), "b = 0")),
        _inverse_gamma,
        lambda p, q: _gamma_kl(p["a"], p["b"], q["a"], q["b"]),
    ),
    FamilyCase(
        NormalFamily(),
        ({"mean": 0.0, "sd": 1.0}, {"mean": -3.0, "sd": 0.2}, {"mean": 5.0, "sd": 9.0}),
        ({"mean": 1.0, "sd": 1e-4}, {"mean": 1e8, "sd": 1e4}, {"mean": -1e-3, "sd": 1e-3}),
        (((1.0, 0.0), "precision P = 0"), ((1.0, -2.0), "P = -2")),
        _normal,
        lambda p, q: _normal_kl([p["mean"]], [[p["sd"] ** 2]], [q["mean"]], [[q["sd"] ** 2]]),
    ),
    FamilyCase(
        DiagonalNormalFamily(3),
        (
            {"mean": (0.0, 1.0, -2.0), "sd": (1.0, 0.3, 4.0)},
            {"mean": (1.0, 1.0, 1.0), "sd": (2.0, 2.0, 0.5)},
        ),
        ({"mean": (0.0, 1e3, -1e-3), "sd": (1e-4, 1e4, 1e-3)},),
        (((0.0, 0.0, 0.0, 1.0, -4.0, 1.0), r"P\[1\] = -4"),),
        _diagonal,
        _diagonal_kl,
    ),
    FamilyCase(
        MultivariateNormalFamily(3),
        (
            {"mean": (1.0, -2.0, 0.5), "cov": _matrix(3, 1)},
            {"mean": (0.0, 1.0, 0.0), "cov": _matrix(3, 2)},
            {"mean": (0.0, 0.0, 0.0), "cov": np.eye(3)},
        ),
        (
            {"mean": (1.0, -2.0, 0.5), "cov": _matrix(3, 3, 1e-8)},
            {"mean": (1e3, 0.0, 1e4), "cov": _matrix(3, 4, 1e8)},
            {"mean": (0.0, 0.0, 0.0), "cov": np.diag([1e-3, 1.0, 1e3])},
        ),
        (((0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 1.0, 0.0, 1.0), "smallest eigenvalue is -1"),),
        _mvn,
        _mvn_kl,
    ),
    FamilyCase(
        RepeatedFamily(GammaFamily(), ("north", "south")),
        (
            {"a": (2.0, 0.7), "b": (3.0, 1.5)},
            {"a": (1.2, 5.0), "b": (0.4, 20.0)},
        ),
        ({"a": (1e-3, 1e6), "b": (1e-3, 1e6)},),
        (((1.0, 1.0, -2.0, 1.0), r"south: a = -2 must"),),
        _two_gammas,
    ),
    FamilyCase(
        NormalInverseGammaFamily(1),
        (
            {"m": (0.5,), "v": ((2.0,),), "a": 3.0, "b": 2.0},
            {"m": (-1.0,), "v": ((0.1,),), "a": 0.9, "b": 0.5},
            {"m": (0.0,), "v": ((1.0,),), "a": 20.0, "b": 30.0},
        ),
        (
            {"m": (1.0,), "v": ((1e-8,),), "a": 1e8, "b": 1e8},
            {"m": (0.01,), "v": ((1e3,),), "a": 1e-3, "b": 1e-3},
        ),
        (
            ((1.0, -1.0, 2.0, 3.0), "smallest eigenvalue is -1"),
            ((1.0, 1.0, 5.0, -2.0), "n = 2a = -2"),
            ((3.0, 1.0, 5.0, 2.0), "b = .* = -2 must"),
        ),
        _nig,
        _nig_kl,
    ),
    FamilyCase(
        NormalInverseGammaFamily(3),
        (
            {"m": (1.0, -2.0, 0.5), "v": _matrix(3, 5), "a": 3.0, "b": 2.0},
            {"m": (0.0, 1.0, 0.0), "v": _matrix(3, 6), "a": 1.4, "b": 7.0},
        ),
        ({"m": (0.3, -0.2, 0.1), "v": _matrix(3, 7, 1e-8), "a": 1e8, "b": 2e8},),
        (((0.0,) * 3 + (1.0, 0.0, 0.0, 1.0, 0.0, -1.0, 1.0, 1.0), "smallest eigenvalue is -1"),),
        _nig,
        _nig_kl,
    ),
    FamilyCase(
        NormalInverseWishartFamily(2),
        (
            {"mean": (1.0, -2.0), "kappa": 2.0, "df": 5.0, "scale": _matrix(2, 8, 4.0)},
            {"mean": (0.0, 1.0), "kappa": 0.5, "df": 2.2, "scale": _matrix(2, 9)},
            {"mean": (0.0, 0.0), "kappa": 30.0, "df": 40.0, "scale": _matrix(2, 10, 40.0)},
        ),
        (
            {"mean": (0.1, 0.2), "kappa": 1e8, "df": 1e8, "scale": _matrix(2, 11, 1e8)},
            {"mean": (0.1, 0.2), "kappa": 1e-3, "df": 1.001, "scale": _matrix(2, 12, 1e-3)},
        ),
        (
            ((0.0, 0.0, -1.0, 1.0, 0.0, 1.0, 4.0), "kappa = -1"),
            ((0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0), "df = 1 must be above 1"),
            ((2.0, 0.0, 1.0, 1.0, 0.0, 1.0, 4.0), "smallest eigenvalue is -3"),
        ),
        _niw,
        _niw_kl,
    ),
    FamilyCase(
        NormalInverseWishartFamily(3),
        (
            {"mean": (1.0, -2.0, 0.0), "kappa": 2.0, "df": 6.0, "scale": _matrix(3, 13, 4.0)},
            {"mean": (0.0, 1.0, 1.0), "kappa": 3.0, "df": 4.0, "scale": _matrix(3, 14, 2.0)},
        ),
        (),
        (),
        _niw,
        _niw_kl,
    ),
)
