"""Divergences and entropies against 60-digit arithmetic, from shape 1e-3 to 1e8.

The log-gamma function and its derivative here are Stirling's series after a shift beyond 60, in
`decimal`: nothing is shared with the families, and nothing cancels in 60 digits.
"""

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special as sp

from unweave.errors import DomainError
from unweave.families import (
    BetaFamily,
    DirichletFamily,
    GammaFamily,
    InverseGammaFamily,
    MultivariateNormalFamily,
    NormalInverseGamma,
    NormalInverseGammaFamily,
    NormalInverseWishartFamily,
)
from unweave.families.numerics import special

DIGITS = 60
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")


@lru_cache
def bernoulli(n: int) -> Fraction:
    if n == 0:
        return Fraction(1)
    return -sum((comb(n + 1, k) * bernoulli(k) for k in range(n)), Fraction(0)) / (n + 1)


def _shifted(x: float) -> tuple[list[Decimal], Decimal]:
    z, low = Decimal(x), []
    while z < 60:
        low.append(z)
        z += 1
    return low, z


def log_gamma(x: Decimal) -> Decimal:
    low, z = _shifted(x)
    total = (z - Decimal("0.5")) * z.ln() - z + (2 * PI).ln() / 2
    for k in range(1, 26):
        b = bernoulli(2 * k)
        total += Decimal(b.numerator) / b.denominator / (2 * k * (2 * k - 1)) / z ** (2 * k - 1)
    return total - sum((v.ln() for v in low), Decimal(0))


def digamma(x: Decimal) -> Decimal:
    low, z = _shifted(x)
    total = z.ln() - 1 / (2 * z)
    for k in range(1, 26):
        b = bernoulli(2 * k)
        total -= Decimal(b.numerator) / b.denominator / (2 * k) / z ** (2 * k)
    return total - sum((1 / v for v in low), Decimal(0))


def dirichlet_kl(x: list[float], y: list[float]) -> float:
    with localcontext() as context:
        context.prec = DIGITS
        p, q = [Decimal(v) for v in x], [Decimal(v) for v in y]
        total = log_gamma(sum(p)) - log_gamma(sum(q))
        top = digamma(sum(p))
        for a, b in zip(p, q, strict=True):
            total += log_gamma(b) - log_gamma(a) + (a - b) * (digamma(a) - top)
        return float(total)


def gamma_kl(x: list[float], y: list[float]) -> float:
    with localcontext() as context:
        context.prec = DIGITS
        a, b, c, d = (Decimal(v) for v in (*x, *y))
        total = (a - c) * digamma(a) - log_gamma(a) + log_gamma(c)
        return float(total + c * (b / d).ln() + a * (d - b) / b)


def dirichlet_entropy(x: list[float]) -> float:
    with localcontext() as context:
        context.prec = DIGITS
        p = [Decimal(v) for v in x]
        total = -log_gamma(sum(p)) + (sum(p) - len(p)) * digamma(sum(p))
        return float(total + sum(log_gamma(a) - (a - 1) * digamma(a) for a in p))


shapes = st.floats(-3.0, 8.0).map(lambda e: 10.0**e)
nudges = st.sampled_from([0.0, 1e-9, -1e-7, 1e-5, -1e-3, 0.05, -0.2, 0.4, -0.7, 3.0])


def test_the_reference_itself() -> None:
    with localcontext() as context:
        context.prec = DIGITS
        # Γ(1/2) = √π, ψ(1/2) = −γ − 2 log 2.
        assert abs(log_gamma(Decimal("0.5")) - PI.ln() / 2) < Decimal("1e-50")
        gamma = Decimal("0.5772156649015328606065120900824024310421593359399235988057672348849")
        assert abs(digamma(Decimal("0.5")) + gamma + 2 * Decimal(2).ln()) < Decimal("1e-50")


@given(st.lists(st.tuples(shapes, nudges), min_size=2, max_size=4))
def test_dirichlet_kl_near_and_far(pairs: list[tuple[float, float]]) -> None:
    p = [a for a, _ in pairs]
    q = [a * (1.0 + u) for a, u in pairs]
    family = BetaFamily() if len(p) == 2 else DirichletFamily(len(p))
    want = dirichlet_kl(p, q)
    # Differences between components are lost below the last bit of their total.
    assert family.kl(p, q) == pytest.approx(want, rel=2e-9, abs=1e-30)


@given(shapes, shapes, nudges, nudges)
def test_gamma_kl_near_and_far(a: float, b: float, u: float, v: float) -> None:
    p, q = [a, b], [a * (1.0 + u), b * (1.0 + v)]
    assert GammaFamily().kl(p, q) == pytest.approx(gamma_kl(p, q), rel=1e-11, abs=1e-30)
    assert InverseGammaFamily().kl(p, q) == GammaFamily().kl(p, q)


@given(shapes, shapes, shapes, shapes)
def test_kl_between_any_two(a: float, b: float, c: float, d: float) -> None:
    beta, gamma = BetaFamily().kl([a, b], [c, d]), GammaFamily().kl([a, b], [c, d])
    assert beta == pytest.approx(dirichlet_kl([a, b], [c, d]), rel=2e-9, abs=1e-30)
    assert gamma == pytest.approx(gamma_kl([a, b], [c, d]), rel=1e-11, abs=1e-30)


@given(st.lists(shapes, min_size=2, max_size=4))
def test_dirichlet_entropy(p: list[float]) -> None:
    want = dirichlet_entropy(p)
    assert DirichletFamily(len(p)).entropy(p) == pytest.approx(want, rel=1e-11, abs=1e-10)


@given(st.lists(shapes, min_size=2, max_size=4))
def test_dirichlet_natural_inverts_the_mean(p: list[float]) -> None:
    family = DirichletFamily(len(p))
    mu = family.mean(np.array(p))
    assert family.mean(family.natural(mu)) == pytest.approx(mu, rel=1e-12, abs=1e-13)


@given(shapes, shapes)
def test_gamma_natural_inverts_the_mean(a: float, b: float) -> None:
    mu = GammaFamily().mean(np.array([a, b]))
    back = GammaFamily().natural(mu)
    # log E[x] − E[log x] ≈ 1/(2a) is known to 1e-15: the shape to 1e-15·a.
    assert back == pytest.approx([a, b], rel=1e-11 + 4e-14 * a)


@given(st.floats(-1e5, 20.0))
def test_inverse_digamma(y: float) -> None:
    x = special.inverse_digamma(np.array(y))
    assert sp.psi(x) == pytest.approx(y, rel=1e-13, abs=1e-13)


def test_a_million_records_forget_one() -> None:
    """A posterior with and without one record: KL ≈ ½ d'Fd, far below the rounding of A."""
    family = NormalInverseGammaFamily(2)
    rng = np.random.default_rng(0)
    n = 1_000_000
    x = np.column_stack([np.ones(n), rng.standard_normal(n)])
    y = x @ [1.0, -2.0] + rng.standard_normal(n)
    prior = NormalInverseGamma([0.0, 0.0], 1.0, a=2.0, b=2.0).eta
    gram = x.T @ x
    full = prior + np.array([*(x.T @ y), gram[0, 0], gram[0, 1], gram[1, 1], y @ y, n])
    u, v = x[0], y[0]
    one = np.array([*(u * v), u[0] ** 2, u[0] * u[1], u[1] ** 2, v * v, 1.0])
    want = 0.5 * one @ family.fisher_dot(full - 0.5 * one, one)
    assert family.kl(full, full - one) == pytest.approx(want, rel=1e-5)
    assert want < 1e-6


@pytest.mark.parametrize("d", [1, 2, 5, 12])
def test_matrix_families_in_any_dimension(d: int) -> None:
    """Small relative changes at large counts: all three matrix families follow ½ d'Fd."""
    rng = np.random.default_rng(d)
    root = rng.standard_normal((d, 2 * d))
    cov = root @ root.T / (2 * d)
    cases = [
        (MultivariateNormalFamily(d), {"mean": np.ones(d), "cov": 1e-6 * cov}),
        (NormalInverseGammaFamily(d), {"m": np.ones(d), "v": 1e-6 * cov, "a": 1e6, "b": 1e6}),
        (
            NormalInverseWishartFamily(d),
            {"mean": np.ones(d), "kappa": 1e6, "df": 1e6, "scale": 1e6 * cov},
        ),
    ]
    for family, params in cases:
        p = family.from_params(**params)
        push = family.fisher_solve(p, rng.standard_normal(family.dim))
        push *= 1e-5 / np.sqrt(push @ family.fisher_dot(p, push))
        q = p + push
        want = 0.5 * (q - p) @ family.fisher_dot(0.5 * (p + q), q - p)
        assert family.kl(p, q) == pytest.approx(want, rel=1e-3), family
        assert family.kl(p, p) == 0.0


@pytest.mark.parametrize(
    ("family", "mu"),
    [
        (BetaFamily(), [-0.1, -0.1]),
        (GammaFamily(), [1.0, -1.0]),
        (GammaFamily(), [0.0, 1.0]),
        (MultivariateNormalFamily(1), [2.0, -1.0]),
        (NormalInverseGammaFamily(1), [1.0, -1.0, 0.5, 0.0]),
        (NormalInverseWishartFamily(1), [1.0, 0.5, -0.5, 0.0]),
        (NormalInverseWishartFamily(1), [0.0, -0.5, -0.5, 5.0]),
    ],
)
def test_impossible_means_are_refused(family: BetaFamily, mu: list[float]) -> None:
    with pytest.raises(DomainError, match="mu of"):
        family.natural(np.array(mu))
