"""The bound of GLMs: it holds, against optima found by SciPy; and how tight it is."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate
from scipy.stats import norm

from unweave.families.point import NormalPoint
from unweave.models import (
    LogisticRegression,
    NegativeBinomialRegression,
    PoissonRegression,
    SoftmaxRegression,
)
from unweave.models.glm.bound import RADIUS, distance_bound, least_curvature


def data(model, rng, n, d):
    x = rng.normal(size=(n, d))
    t = x @ rng.normal(size=d) / np.sqrt(d)
    if isinstance(model, SoftmaxRegression):
        y = (np.stack([t, -t, 0 * t]) + rng.gumbel(size=(3, n))).argmax(axis=0)
    elif isinstance(model, LogisticRegression):
        y = rng.uniform(size=n) < 1 / (1 + np.exp(-t))
    else:
        y = rng.poisson(np.exp(t))
    return np.column_stack([x, y.astype(float)])


def optimum(model, rows, p0):
    """The central optimum: plain natural-gradient steps, halved until the free energy falls."""
    shard = model.shard((rows[:, :-1], rows[:, -1]))
    size = p0.shape[0]

    def energy(h, p):
        if np.linalg.eigvalsh(p)[0] <= 0:
            return np.inf, None
        q = NormalPoint(h, p)
        loss, g, curvature = model.curvature(q, shard)
        kl = 0.5 * (np.trace(p0 @ q.cov) + q.mean @ p0 @ q.mean + q.log_det)
        return loss / model.alpha + kl, (q, g / model.alpha, curvature / model.alpha)

    h, p = np.zeros(size), p0 + model.curvature(np.zeros(size), shard)[2] / model.alpha
    value, at = energy(h, p)
    for _ in range(300):
        q, g, curvature = at
        dh, dp, step = curvature @ q.mean - g - h, p0 + curvature - p, 1.0
        while True:
            found, after = energy(h + step * dh, p + step * dp)
            if found <= value + 1e-12 or step < 1e-9:
                break
            step /= 2
        h, p, value, at = h + step * dh, p + step * dp, found, after
        if q.length(dh, dp) < 1e-26:
            break
    return NormalPoint(h, p)


def kl(q, other):
    d = other.mean - q.mean
    inside = np.trace(other.precision @ q.cov) - len(d) + d @ other.precision @ d
    return 0.5 * (inside + q.log_det - other.log_det)


def moved(q, rng, size):
    """A posterior at a random distance from q."""
    root = np.linalg.cholesky(q.cov)
    mean = q.mean + size * root @ rng.normal(size=len(q.mean))
    a = rng.normal(size=root.shape) / np.sqrt(len(root))
    inverse = np.linalg.inv(root)
    inner = np.eye(len(root)) + size * a
    precision = inverse.T @ inner @ inner.T @ inverse
    return NormalPoint(precision @ mean, precision)


def bound_of(model, q, p0, rows):
    shard = model.shard((rows[:, :-1], rows[:, -1]))
    _, g, curvature = model.curvature(q, shard)
    dh = q.h - (curvature @ q.mean - g) / model.alpha
    dp = q.precision - p0 - curvature / model.alpha
    return distance_bound(q, p0, dh, dp, least_curvature(model, q, shard.rows) / model.alpha)


def cases(kind, count, seed):
    """(KL to the optimum, bound) of random data sets, dimensions, priors and distances."""
    rng = np.random.default_rng(seed)
    found = []
    while len(found) < count:
        d, n = int(rng.integers(1, 9)), int(rng.integers(5, 200))
        sd = float(10 ** rng.uniform(-0.5, 0.7))
        model = kind(features=d, intercept=False, sd=sd, alpha=float(rng.choice([0.5, 1.0, 2.0])))
        rows = data(model, rng, n, d)
        p0 = np.eye(model.size) / sd**2
        best = optimum(model, rows, p0)
        for size in 10 ** rng.uniform(-5, -0.5, 5):
            q = moved(best, rng, size)
            bound = bound_of(model, q, p0, rows)
            found.append((kl(q, best), None if bound is None else bound.kl))
            if bound is not None:  # every mean and every entry of the root
                root, wanted = np.linalg.cholesky(q.cov), np.linalg.cholesky(best.cov)
                sd = np.sqrt(np.square(root).sum(axis=1))
                assert (np.abs(q.mean - best.mean) <= bound.sds * sd).all()
                assert (np.abs(root - wanted) <= bound.sds * sd[:, None]).all()
    return found


@pytest.mark.parametrize(
    "kind", [LogisticRegression, PoissonRegression, NegativeBinomialRegression, SoftmaxRegression]
)
def test_the_bound_holds_and_is_tight_enough_to_be_useful(kind):
    found = cases(kind, 200, 3)
    assert len(found) >= 200
    bounded = [(true, bound) for true, bound in found if bound is not None]
    assert all(true <= bound for true, bound in bounded)
    # Near the optimum there is always a bound; it is some ten times too large.
    assert all(bound is not None for true, bound in found if true < 1e-6)
    ratios = [bound / true for true, bound in bounded if true > 1e-12]
    assert np.median(ratios) < 40
    assert len(bounded) > 80


def test_far_from_the_optimum_there_is_no_bound():
    model = LogisticRegression(features=3, intercept=False)
    rng = np.random.default_rng(0)
    rows = data(model, rng, 50, 3)
    best = optimum(model, rows, np.eye(3))
    assert bound_of(model, moved(best, rng, 3.0), np.eye(3), rows) is None


@pytest.mark.parametrize("spread", [0.01, 1.0, 6.0])
def test_the_least_curvature_is_a_lower_bound_of_what_quad_integrates(spread):
    """λ_min E[f'' e^{−ρ(1+|z|)} (1, z)(1, z)ᵀ] of one record, by adaptive quadrature."""
    model = LogisticRegression(features=1, intercept=False)
    q = NormalPoint(np.array([0.7 / spread**2]), np.array([[1 / spread**2]]))
    found = float(least_curvature(model, q, np.array([[1.0, 1.0]]))[0, 0])
    rho = RADIUS * spread

    def moment(power):
        def inside(z):
            t = 0.7 + spread * z
            second = np.exp(-abs(t)) / (1 + np.exp(-abs(t))) ** 2
            return second * np.exp(-rho * (1 + abs(z))) * z**power * norm.pdf(z)

        return integrate.quad(inside, -10, 10, points=[0.0, -0.7 / spread], limit=400)[0]

    exact = np.linalg.eigvalsh([[moment(0), moment(1)], [moment(1), moment(2)]])[0]
    assert 0.0 < found <= exact * (1 + 1e-9)
    assert found > 0.7 * exact * np.exp(-rho)
