"""What a neighbour computes from factors seen in plain mode (docs/explanation/security.md)."""

import numpy as np
import pytest
from scipy import optimize
from sklearn.datasets import load_breast_cancer

from unweave import AtomModel
from unweave.models import BetaExponentialAtoms, LogisticRegression
from unweave.rng import Stream
from unweave.solvers import Context, Variational


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_two_factors_of_a_glm_give_few_records(covariance):
    """H_1 = XᵀW_1X and H_2 = XᵀW_2X have the generalised eigenvectors v_n with Xv_n ∝ e_n, so that
    H_1 v_n ∝ x_n; the intercept's column of ones gives the scale."""
    x, y = load_breast_cancer(return_X_y=True)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    model = LogisticRegression(30, intercept=True, covariance=covariance)
    seen = []
    own, others = model.shard((x[:12], y[:12])), model.shard((x[12:80], y[12:80]))
    cavities = (model.eta0, model.eta0 + solved(model, others, model.eta0))
    for cavity in cavities:
        factor = model.grid.decode(solved(model, own, cavity))
        seen.append(model.gaussian(factor).precision)
    spectrum, basis = np.linalg.eigh(seen[0])
    basis = basis[:, -12:] / np.sqrt(spectrum[-12:])
    _, turned = np.linalg.eigh(basis.T @ seen[1] @ basis)
    found = (seen[0] @ basis @ turned).T
    found = found[:, 1:] / found[:, :1]
    nearest = [np.abs(found - record).max(axis=1).min() for record in x[:12]]
    assert np.median(nearest) < 0.01
    assert np.mean(np.array(nearest) < 0.05) >= 0.8


def solved(model, data, cavity):
    return Variational().solve(model, data, cavity, None, Context(Stream(0))).factor


def test_one_factor_at_atoms_gives_its_records():
    """A log-likelihood at a thousand points, in steps of 2^-24, has few records as its solution."""
    model = AtomModel(
        lambda theta, record: (
            -np.log(theta["scale"])
            - 2.5 * np.log1p(((record["x"] - theta["mean"]) / theta["scale"]) ** 2 / 4)
        ),
        params={"mean": "normal(0, 2)", "scale": "lognormal(0, 1)"},
        records={"x": "real"},
        atoms=1024,
    )
    rng = np.random.default_rng(0)
    records = np.sort(rng.standard_t(4, 3))

    def at_atoms(values):
        return np.array(model.sums(values[:, None]), dtype=float) * 2.0 ** -model.grid.bits[0]

    factor = at_atoms(records)
    found = [
        optimize.least_squares(
            lambda values: at_atoms(values) - factor, rng.standard_t(4, 3), diff_step=1e-3
        )
        for _ in range(4)
    ]
    best = min(found, key=lambda one: one.cost)
    np.testing.assert_allclose(np.sort(best.x), records, atol=1e-6)


def test_atoms_of_a_conjugate_likelihood_give_sums_only():
    """Other records with the same number and sum have the same factor, up to rounding."""
    model = BetaExponentialAtoms()
    one, other = (model.factor(model.shard(z)) for z in ([0.2, 0.5, 0.8], [0.45, 0.5, 0.55]))
    assert np.abs(one - other).max() <= 3
