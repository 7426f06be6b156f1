"""Figure 4: exact gradients reach the best Beta; REINFORCE stays above it; large L is slower."""

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from unweave.experiments.paper import FIGURES
from unweave.experiments.paper.experiment import columns, exponential
from unweave.experiments.paper.fig4 import BUDGET, Method, floor, run
from unweave.experiments.paper.report import ResultTable
from unweave.models import BetaExponential

REPLICAS, SEED = 12, 3


@pytest.fixture(scope="module")
def report():
    return FIGURES["fig4"].compute(REPLICAS, SEED, lambda done: None)


def final(report, reduction, method):
    return report.results[reduction]["after_the_budget"][method]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_exact_gradients_reach_the_floor(report, reduction):
    exact = final(report, reduction, "exact, rho controlled, L=1")
    assert abs(exact["largest_excess_over_floor"]) < 1e-6
    assert exact["kl_median"] == pytest.approx(report.results[reduction]["floor"], abs=1e-6)
    assert exact["local_steps_to_twice_the_floor"] < 200


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_floor_by_integration_and_search(reduction):
    """The best Beta, with Simpson's rule in θ and SciPy's search instead of ours."""
    data = exponential(SEED, 2)
    z = np.asarray(data.data)[0]
    powers, total = (z.size, z.sum()) if reduction == "sum" else (len(z), z.mean(axis=1).sum())
    t = np.linspace(1e-4, 1 - 1e-4, 20_001)
    log_p = (2 - powers) * np.log(t) + 2 * np.log1p(-t) - total / t
    log_p -= log_p.max()
    log_p -= np.log(integrate.simpson(np.exp(log_p), x=t))

    def kl(logs):
        log_q = stats.beta(*np.exp(logs)).logpdf(t)
        return integrate.simpson(np.exp(log_q) * (log_q - log_p), x=t)

    mean = integrate.simpson(np.exp(log_p) * t, x=t)
    size = 1000 if reduction == "sum" else 20
    begin = np.log([size * mean, size * (1 - mean)])
    best = optimize.minimize(kl, begin, method="Nelder-Mead", options={"fatol": 1e-10}).fun
    found = floor(BetaExponential(a=3, b=3, reduction=reduction), data)[0]
    assert found == pytest.approx(best, abs=1e-7)


def test_reinforce_levels_off_above_the_floor(report):
    lowest = report.results["sum"]["floor"]
    for L in (1, 10, 50):
        end = final(report, "sum", f"reinforce, rho 0.005, L={L}")
        assert end["kl_mean"] - 3 * end["kl_standard_error"] > 3 * lowest
        assert end["kl_median"] > 3 * lowest
    rows = report.table.where(reduction="sum", estimator="reinforce", L=1)
    steps, kl = rows.values("local_steps"), rows.values("kl_mean")
    late = kl[steps > BUDGET / 2]
    # An exact gradient falls by a factor of 20 in this time.
    assert late.min() > 0.3 * late.max()
    fixed = report.table.where(reduction="sum", estimator="exact", rho="0.005")
    assert fixed.values("kl_mean")[-1] < 0.1 * kl[-1]


def test_the_plateau_moves_with_an_offset_of_the_loss():
    """θ = 0.5 shifts the loss by about 31: more noise, the same distance to learn."""
    model, at = BetaExponential(a=3, b=3), np.arange(3000, 5001, 200)
    kl = {}
    for theta in (0.37, 0.5):
        data = exponential(SEED, 24, theta)
        found = run(model, data, Method("reinforce", 5e-3, 1), 5000, replicas=24, seed=SEED)
        kl[theta] = found.kl(at=at).mean().mean()
    assert kl[0.5] > 4 * kl[0.37]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_more_local_steps_are_slower_in_total(report, reduction):
    rows = report.table.where(reduction=reduction, estimator="reinforce")
    for steps in (400, 1000):
        kl = [
            np.interp(
                steps, rows.where(L=L).values("local_steps"), rows.where(L=L).values("kl_mean")
            )
            for L in (1, 50, 200)
        ]
        assert kl[0] < kl[1] < kl[2]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_control_variate_follows_the_exact_gradient(report, reduction):
    rows = report.table.where(reduction=reduction, rho="0.005", L=1)
    noisy = rows.where(estimator="factor_cv").values("kl_mean")
    exact = rows.where(estimator="exact").values("kl_mean")
    np.testing.assert_allclose(noisy[-30:], exact[-30:], rtol=0.05)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("theta", [0.37, 0.8])
def test_step_control_of_a_noisy_gradient_does_not_diverge(reduction, theta):
    """With whole steps (rho = 1) a replica of `paper fig4 --replicas 400 --seed 5` diverged."""
    replicas, model = 500, BetaExponential(a=3, b=3, reduction=reduction)
    data = exponential(5, replicas, theta)
    found = run(model, data, Method("factor_cv", None, 1), 250, replicas=replicas, seed=5)
    assert not found.outside.any()
    kl = found.kl(at=np.array([250]))
    assert kl.values.max() < 1.0
    assert kl.mean()[0] == pytest.approx(kl.median()[0], rel=0.35)  # no replica carries the mean


def test_table(report):
    table = report.table
    assert set(table.values("floor")) == {report.results[r]["floor"] for r in ("mean", "sum")}
    assert (table.values("kl_low") <= table.values("kl_high")).all()
    assert (table.values("local_steps") == table.values("iteration") * table.values("L")).all()
    assert table.values("local_steps").max() == BUDGET
    for reduction in ("mean", "sum"):
        rows = [row for row in table.where(reduction=reduction).rows if "atoms" not in row]
        above = ResultTable(table.columns, rows)
        assert (above.values("kl_median") > above.values("floor") - 1e-9).all()
    assert (table.values("outside") == 0).all()
    assert "No replica left the domain" in report.notes[-1]


def test_columns_are_iterations_once_each():
    at = columns(8000)
    assert (np.diff(at) > 0).all()
    assert (at[0], at[-1]) == (1, 8000)
    assert columns(3).tolist() == [1, 2, 3]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_atoms_reach_the_exact_posterior_far_below_the_best_beta(report, reduction):
    """As soon as all agents were visited: a curve of its own in the table."""
    end = report.results[reduction]["atoms"]
    assert end["kl_median"] < 1e-6 < report.results[reduction]["floor"]
    curve = report.table.where(reduction=reduction, estimator="atoms")
    assert curve.values("kl_median")[0] > 0.1
    assert curve.values("kl_high")[-1] < 1e-6
