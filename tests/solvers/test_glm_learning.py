"""Federated GLMs: the central optimum, the number of visits, both solvers, and what fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.support.glm import CASES, GlmCase, central_optimum, gaussian_kl, split
from tests.support.real_data import REAL, real_case, real_data

from unweave import Federation
from unweave.errors import ConfigError, SolverError
from unweave.models import LogisticRegression, Model, PoissonRegression, by_name
from unweave.protocol.events import Appraise, Freeze, Solve
from unweave.rng import Stream
from unweave.solvers import Context, ExpectationPropagation, Solution, Solver, Variational
from unweave.solvers.worker import ModelWorker

all_cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def moments(posterior: Any) -> tuple[np.ndarray, np.ndarray]:
    params = posterior.distribution.params
    return params["mean"], params["cov"] if "cov" in params else np.diag(params["sd"] ** 2)


@all_cases
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_agents_find_the_central_optimum(case: GlmCase, covariance: str) -> None:
    rows = case.rows(240, 11)
    model = by_name(case.model.name, **{**case.model.settings(), "covariance": covariance})
    found = Federation(model, split(rows, 6), "ring").learn(tol=1e-11).posterior
    x, y = case.design(rows)
    best = central_optimum(x, y, case.loss, diagonal=covariance == "diagonal")
    far = gaussian_kl(*moments(found), best)
    if case.model.convex:
        assert far < 1e-6
        return
    # A clipped curvature has a fixed point of its own, near the best normal distribution.
    alone = Federation(model, [rows]).learn(tol=1e-11).posterior
    assert found.kl(alone) < 1e-6
    assert far < 0.02


class Counted(Solver):
    """Counts the calls of another solver."""

    def __init__(self, solver: Solver) -> None:
        self.solver = solver
        self.calls = 0

    def solve(self, *arguments: Any) -> Solution:
        self.calls += 1
        return self.solver.solve(*arguments)


def visits(
    model: Model, shards: list[np.ndarray], goal: np.ndarray, solver: Solver, **how: Any
) -> dict[float, float]:
    """Solver calls per agent until KL(q ‖ goal) is at most 1e-2, 1e-4 and 1e-6."""
    counted = Counted(solver)
    federation = Federation(model, shards, "complete", solver=counted, **how)
    found: dict[float, float] = {}
    while len(found) < 3 and counted.calls < 20 * len(shards):
        federation.learn(iterations=1)
        if len(federation.included) == len(shards):
            far = float(model.family.kl(model.decode(federation.units), goal))
            for limit in (1e-2, 1e-4, 1e-6):
                if far <= limit:
                    found.setdefault(limit, counted.calls / len(shards))
    return found


def goal_of(model: Model, rows: np.ndarray, solver: Any) -> np.ndarray:
    """The fixed point of one agent with all records; `test_agents_find_the_central_optimum` ties
    it to an independent optimiser."""
    factor = type(solver)(steps=400).update(model, model.shard(rows), model.carrier_prior, None)[0]
    return model.decode(model.grid.encode(model.carrier_prior + factor))


LIMITS = {10: (2.7, 3.9, 5.2), 50: (3.6, 5.4, 7.2)}
FEW = [
    ("breast_cancer", 10, True),
    ("diabetes", 10, False),
    ("wine", 10, False),
    ("digits 0-8", 10, False),
]
PAIRS = [f"digits {a}-{b}" for a in range(10) for b in range(a + 1, 10)]
ALL = [
    (name, agents, by_label)
    for agents, names in ((10, PAIRS), (50, PAIRS[::4]))
    for name in ("breast_cancer", "wine", "diabetes", "digits", *names)
    for by_label in (True, False)
]


def check_visits(name: str, agents: int, by_label: bool) -> None:
    rows = real_data(name)
    model = LogisticRegression(features=rows.shape[1] - 1, intercept=True)
    goal = goal_of(model, rows, Variational())
    found = visits(model, split(rows, agents, by_label), goal, Variational())
    for limit, most in zip((1e-2, 1e-4, 1e-6), LIMITS[agents], strict=True):
        assert found[limit] <= most, found


@pytest.mark.parametrize(("name", "agents", "by_label"), FEW)
def test_logistic_regression_needs_few_visits(name: str, agents: int, by_label: bool) -> None:
    check_visits(name, agents, by_label)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "agents", "by_label"), ALL)
def test_logistic_regression_needs_few_visits_everywhere(
    name: str, agents: int, by_label: bool
) -> None:
    check_visits(name, agents, by_label)


class Noted(Solver):
    """Notes the contexts of another solver's calls."""

    def __init__(self, solver: Solver) -> None:
        self.solver = solver
        self.contexts: list[Context] = []

    def solve(self, *arguments: Any) -> Solution:
        self.contexts.append(arguments[-1])
        return self.solver.solve(*arguments)


def test_a_solver_knows_the_share_of_the_agents_that_is_present() -> None:
    case = CASES["logistic-regression"]
    noted = Noted(Variational())
    federation = Federation(case.model, split(case.rows(80, 3), 4), "complete", solver=noted)
    federation.learn(iterations=8)
    shares = [context.share for context in noted.contexts]
    assert shares[:4] == [0.25, 0.5, 0.75, 1.0]
    assert set(shares[4:]) == {1.0}
    noted.contexts.clear()
    federation.forget("a2", method="refine")
    assert {context.share for context in noted.contexts} == {1.0}
    noted.contexts.clear()
    federation.forget("a3", method="retrain")
    assert [context.share for context in noted.contexts[:2]] == [0.5, 1.0]


def test_the_first_solution_anticipates_the_agents_that_are_missing() -> None:
    """If all agents have the same records, the first one knows the result."""
    case = CASES["logistic-regression"]
    model, rows = case.model, case.rows(30, 8)
    goal = goal_of(model, np.concatenate([rows] * 5), Variational())
    far = {}
    for share in (0.2, 1.0):
        context = Context(Stream(0), share=share)
        units = Variational().solve(model, model.shard(rows), model.eta0, None, context).factor
        far[share] = float(model.family.kl(model.decode(model.eta0 + 5 * units), goal))
    assert far[0.2] < 1e-9
    assert far[1.0] > 1e-3


def test_a_factor_moves_farther_where_passes_take_little_away() -> None:
    case = CASES["logistic-regression"]
    model, data = case.model, case.model.shard(case.rows(80, 2))
    best = Variational(steps=50).solve(model, data, model.eta0, None, Context(Stream(0))).factor

    def reach(shortened: float, passes: int, **settings: Any) -> float:
        """How far a factor moves that is `shortened` times the solution, in ways to it."""
        start = model.grid.encode(shortened * model.grid.decode(best))
        context = Context(Stream(0), passes)
        found = Variational(**settings).solve(model, data, model.eta0, start, context).factor
        way = (best - start).astype(np.float64)
        return float(way @ (found - start) / (way @ way))

    # A step of a tenth of the factor is short after one pass, and long after four.
    for passes, expected in ((0, 1.06), (1, 1.06), (2, 1.12), (4, 1.12)):
        assert reach(0.9, passes) == pytest.approx(expected, abs=2e-3)
    assert reach(0.9998, 4) == pytest.approx(1.06, abs=2e-3)
    assert reach(0.98, 2) == pytest.approx(1.0 + 0.5 * 0.02**0.5, abs=2e-3)
    assert reach(0.9, 4, relax=1.0) == pytest.approx(1.0, abs=2e-3)


def check_real_visits(kind: str, name: str, covariance: str, by_label: bool) -> None:
    """KL 1e-4 to the model's own central optimum within 10 visits per agent."""
    model, rows = real_case(kind, name, covariance=covariance)
    goal = goal_of(model, rows, Variational())
    shards = split(rows, min(10, len(rows) // 3), by_label)
    assert visits(model, shards, goal, Variational())[1e-4] <= 10.0


EVERYWHERE = [
    (kind, name, covariance, by_label)
    for kind, names in REAL.items()
    for name in names
    for covariance in ("full", "diagonal")
    for by_label in (True, False)
]
ONE_EACH = [case for case in EVERYWHERE if case[1] == REAL[case[0]][0] and case[3]]


@pytest.mark.parametrize(("kind", "name", "covariance", "by_label"), ONE_EACH)
def test_every_glm_needs_few_visits(kind: str, name: str, covariance: str, by_label: bool) -> None:
    check_real_visits(kind, name, covariance, by_label)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name", "covariance", "by_label"), EVERYWHERE)
def test_every_glm_needs_few_visits_everywhere(
    kind: str, name: str, covariance: str, by_label: bool
) -> None:
    check_real_visits(kind, name, covariance, by_label)


def test_a_visit_solves_its_own_problem_where_whole_steps_swing() -> None:
    """Probit on digits: with whole steps alone the residual of this agent is 1e-4 after 10 steps,
    and 13 passes do not reach KL 1e-6."""
    model, rows = real_case("probit-regression", "digits")
    goal = goal_of(model, rows, Variational())
    assert visits(model, split(rows, 10, False), goal, Variational())[1e-6] <= 7.5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["breast_cancer", "wine", "diabetes", "digits"])
@pytest.mark.parametrize("by_label", [True, False])
def test_other_ways_to_learn_need_few_visits(name: str, by_label: bool) -> None:
    """The diagonal posterior, the random walk on the complete graph, and EP to its own result."""
    rows = real_data(name)
    shards = split(rows, 10, by_label)
    full = LogisticRegression(features=rows.shape[1] - 1, intercept=True)
    diagonal = LogisticRegression(features=rows.shape[1] - 1, intercept=True, covariance="diagonal")
    goal = goal_of(diagonal, rows, Variational())
    assert visits(diagonal, shards, goal, Variational())[1e-4] <= 5.0
    goal = goal_of(full, rows, Variational())
    assert visits(full, shards, goal, Variational(), schedule="metropolis")[1e-4] <= 10.0
    ep = ExpectationPropagation()
    assert visits(full, shards, goal_of(full, rows, ep), ep)[1e-4] <= 5.0


@pytest.mark.parametrize("solver", [Variational(), ExpectationPropagation()])
def test_a_solution_stays_the_same(solver: Any) -> None:
    """A repeated visit at the solution changes nothing, so that a network comes to rest."""
    case = CASES["logistic-regression"]
    model, data = case.model, case.model.shard(case.rows(80, 2))
    factor = None
    for _ in range(6):
        solution = solver.solve(model, data, model.eta0, factor, Context(Stream(0)))
        factor = solution.factor
    assert (
        np.abs(
            factor - solver.solve(model, data, model.eta0, factor, Context(Stream(0))).factor
        ).max()
        <= 64
    )


@pytest.mark.parametrize("name", ["logistic-regression", "probit-regression", "poisson-regression"])
def test_ep_is_nearer_to_the_exact_posterior(name: str) -> None:
    """Against importance sampling from few records, where the posterior is not normal."""
    case = CASES[name]
    rows = case.rows(60, 21)
    model = by_name(name, **{**case.model.settings(), "sd": 2.0})
    results = {
        solver: moments(
            Federation(model, split(rows, 3), "ring", solver=solver).learn(tol=1e-9).posterior
        )
        for solver in ("vi", "ep")
    }
    m, cov = results["ep"]
    rng = np.random.default_rng(0)
    root = 1.3 * np.linalg.cholesky(cov)
    noise = rng.standard_t(8, (200_000, len(m)))
    theta = m + noise @ root.T
    x, y = case.design(rows)
    log = -case.loss(theta @ x.T, y).sum(axis=1) - (theta**2).sum(axis=1) / 8.0
    log += 4.5 * np.log1p(noise**2 / 8.0).sum(axis=1)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    mean = weight @ theta
    sd = np.sqrt(weight @ (theta - mean) ** 2)
    far = np.abs(results["ep"][0] - mean) / sd
    ratios = {name: np.sqrt(np.diag(found[1])) / sd for name, found in results.items()}
    assert far.max() < 0.04
    assert np.abs(ratios["ep"] - 1.0).max() < 0.04
    assert np.abs(ratios["ep"] - 1.0).max() < np.abs(ratios["vi"] - 1.0).max()


def test_ep_is_the_one_of_the_textbook() -> None:
    """Sequential EP with the closed moments of the probit, one record at a time, on pooled data."""
    case = CASES["probit-regression"]
    rows = case.rows(24, 22)
    x, y = case.design(rows)
    sign, tau, nu = 2 * y - 1, np.zeros(24), np.zeros(24)
    for _ in range(60):
        for n in range(24):
            cov = np.linalg.inv(np.eye(4) + (x.T * tau) @ x)
            a, v = x[n] @ cov @ (x.T @ nu), x[n] @ cov @ x[n]
            rest = 1 / (1 / v - tau[n])
            mean = rest * (a / v - nu[n])
            z = sign[n] * mean / np.sqrt(1 + rest)
            r = stats.norm.pdf(z) / stats.norm.cdf(z)
            matched = mean + sign[n] * rest * r / np.sqrt(1 + rest)
            spread = rest - rest**2 * r * (z + r) / (1 + rest)
            tau[n], nu[n] = 1 / spread - 1 / rest, matched / spread - mean / rest
    cov = np.linalg.inv(np.eye(4) + (x.T * tau) @ x)
    federation = Federation(case.model, split(rows, 4), "ring", solver="ep").learn(tol=1e-12)
    m, found = moments(federation.posterior)
    np.testing.assert_allclose(m, cov @ (x.T @ nu), atol=1e-5)
    np.testing.assert_allclose(found, cov, atol=1e-5)


@pytest.mark.parametrize("sd", [10.0, 100.0, 1000.0])
@pytest.mark.parametrize("name", ["logistic-regression", "poisson-regression"])
def test_wide_priors_converge(name: str, sd: float) -> None:
    case = CASES[name]
    rows = case.rows(200, 4)
    model = by_name(name, **{**case.model.settings(), "sd": sd, "bits": 40})
    federation = Federation(model, split(rows, 5), "ring").learn(tol=1e-8)
    x, y = case.design(rows)
    best = central_optimum(x, y, case.loss, prior_sd=sd)
    assert gaussian_kl(*moments(federation.posterior), best) < 1e-4


def test_what_a_solver_cannot_do_is_refused() -> None:
    rows = CASES["robust-regression"].rows(20, 1)
    with pytest.raises(ConfigError, match="log-concave"):
        Federation(CASES["robust-regression"].model, [rows], solver="ep")
    for settings, message in (
        ({"covariance": "diagonal"}, "full covariance"),
        ({"alpha": 2.0}, "alpha = 1"),
        ({"reduction": "mean"}, "alpha = 1"),
    ):
        model = LogisticRegression(features=3, intercept=True, **settings)
        with pytest.raises(ConfigError, match=message):
            Federation(model, [CASES["logistic-regression"].rows(20, 1)], solver="ep")
    with pytest.raises(ConfigError, match="no curvature"):
        Federation(by_name("beta-exponential"), [[0.5]], solver="vi")
    with pytest.raises(ConfigError, match="its own solver"):
        Federation(
            LogisticRegression(features=3, covariance="diagonal"),
            [CASES["logistic-regression"].rows(20, 1)],
            solver="factor_cv",
        )


def test_a_failed_solve_names_the_agent_the_pass_and_a_fix() -> None:
    model = PoissonRegression(features=1)
    shard = model.shard([[1e6, 3.0], [-1e6, 2.0]], "north")
    with pytest.raises(SolverError, match=r"agent 'north', pass 3: .* Fix: .*scale"):
        Variational().solve(model, shard, model.eta0, None, Context(Stream(0), passes=2))


def test_temperature_and_mean_weigh_the_loss() -> None:
    case = CASES["logistic-regression"]
    rows = case.rows(60, 9)
    model = by_name(case.model.name, **{**case.model.settings(), "alpha": 0.5})
    found = Federation(model, split(rows, 3), "ring").learn(tol=1e-11).posterior
    x, y = case.design(rows)
    best = central_optimum(x, y, lambda t, y: 2.0 * case.loss(t, y))
    assert gaussian_kl(*moments(found), best) < 1e-6
    model = by_name(case.model.name, **{**case.model.settings(), "reduction": "mean"})
    found = Federation(model, [rows]).learn(tol=1e-11).posterior
    best = central_optimum(x, y, lambda t, y: case.loss(t, y) / len(rows))
    assert gaussian_kl(*moments(found), best) < 1e-6


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_the_estimate_of_a_certificate_is_near_the_kl(covariance: str) -> None:
    case = CASES["logistic-regression"]
    rows = case.rows(240, 13)
    model = by_name(case.model.name, **{**case.model.settings(), "covariance": covariance})
    shards = [model.shard(part, f"a{k}") for k, part in enumerate(split(rows, 6, False))]
    solver = Variational()
    goal = goal_of(model, rows, solver)
    workers = [ModelWorker(model, solver, shard, 0) for shard in shards]
    factors = [model.grid.zeros() for _ in shards]
    eta = model.eta0.copy()
    ratios = []
    for _ in range(3):
        for k, worker in enumerate(workers):
            cavity = eta - factors[k]
            work = Solve(("s",), 1, 1, cavity, factors[k], frozenset())
            factors[k] = worker.solve(work).units
            eta = cavity + factors[k]
        frozen = sum(
            worker.freeze(Freeze(("f",), eta, factors[k], frozenset()))
            for k, worker in enumerate(workers)
        )
        said = workers[0].appraise(Appraise(("a",), eta, frozen))
        true = float(model.family.kl(model.decode(eta), goal))
        ratios.append(said["kl_to_optimum"] / true)
        assert said["accuracy"] == "typically within 3×"
        assert model.family.name in said["optimum"]
        assert said["bound"] == "no bound" or (covariance == "full" and said["bound"] >= true)
    assert all(1 / 3 < ratio < 3 for ratio in ratios), ratios
    other = ModelWorker(model, ExpectationPropagation(), shards[0], 0)
    assert other.appraise(Appraise(("a",), eta, frozen))["kl_to_optimum"] is None


def ratios_of_the_estimate(kind: str, name: str, covariance: str, by_label: bool) -> list[float]:
    """Estimate / true KL after an erasure and after each of three passes of refining; for the agent
    with the first records and for one in the middle."""
    model, rows = real_case(kind, name, covariance=covariance)
    agents = min(10, len(rows) // 3)
    shards = split(rows, agents, by_label)
    found = []
    for gone in (0, agents // 2):
        federation = Federation(model, shards, "complete", retrain_above=np.inf).learn()
        federation.forget(f"a{gone + 1}", method="subtract")
        rest = {
            name: model.shard(shards[k]) for k, name in enumerate(federation.agents) if k != gone
        }
        goal = goal_of(model, np.concatenate([part.rows for part in rest.values()]), Variational())
        for _ in range(4):
            units = federation.units
            frozen = [model.freeze(units, federation.factor(k), part) for k, part in rest.items()]
            said = model.appraise(units, np.sum(frozen, axis=0))
            assert said["accuracy"] == f"typically within {model.estimate_within:g}×"
            true = float(model.family.kl(model.decode(units), goal))
            if 1e-9 < true < 0.1:
                found.append(said["kl_to_optimum"] / true)
            federation.learn(iterations=len(rest))
    return found


def check_estimates(kind: str, covariance: str, names: tuple[str, ...]) -> None:
    ratios = np.concatenate(
        [
            ratios_of_the_estimate(kind, name, covariance, by)
            for name in names
            for by in (True, False)
        ]
    )
    within = real_case(kind, names[0])[0].estimate_within
    assert within is not None
    held = (ratios < within) & (ratios > 1 / within)
    assert held.mean() >= 0.9, sorted(ratios)
    # Nothing is far off.
    assert ratios.min() > 0.2, ratios.min()
    assert ratios.max() < 10.0, ratios.max()


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("kind", REAL)
def test_the_stated_accuracy_of_the_estimate_holds(kind: str, covariance: str) -> None:
    check_estimates(kind, covariance, tuple({"wine", "linnerud"} & {*REAL[kind]}))


@pytest.mark.slow
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("kind", REAL)
def test_the_stated_accuracy_of_the_estimate_holds_on_all_data(kind: str, covariance: str) -> None:
    check_estimates(kind, covariance, REAL[kind])


def test_an_accuracy_that_was_not_measured_is_not_stated() -> None:
    class Unmeasured(LogisticRegression, registered=False):
        estimate_within = None

    assert Unmeasured(features=2).estimate(1e-3)["accuracy"] == "not measured for this model"


@pytest.mark.parametrize("name", ["logistic-regression", "probit-regression"])
def test_separated_classes_with_a_flat_prior_are_told(name: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((60, 2))
    rows = np.column_stack([x, x[:, 0] + x[:, 1] > 0])
    shards = np.array_split(rows, 3)
    with pytest.warns(UserWarning, match=r"separate the classes.*nearly flat.*Fix: a smaller sd"):
        Federation(by_name(name, features=2, sd=100.0), shards, "ring").learn()
    Federation(by_name(name, features=2, sd=2.0), shards, "ring").learn()  # a prior that is one
    rows[:5, 2] = 1 - rows[:5, 2]
    Federation(by_name(name, features=2, sd=100.0), np.array_split(rows, 3), "ring").learn()


def check_forgetting(name: str, by_label: bool, which: str) -> None:
    """Passes over the remaining agents until the result is as near to their optimum as asked; and
    the same by retraining."""
    rows = real_data(name)
    shards = split(rows, 10, by_label)
    model = LogisticRegression(features=rows.shape[1] - 1, intercept=True)
    counted = Counted(Variational())
    federation = Federation(model, shards, "complete", solver=counted, retrain_above=np.inf)
    order = list(federation.learn().influence())
    gone = order[0 if which == "most influential" else len(order) // 2]
    rest = [s for name, s in zip(federation.agents, shards, strict=True) if name != gone]
    goal = goal_of(model, np.concatenate(rest), Variational())
    federation.forget(gone, method="subtract")
    found: dict[float, float] = {}
    counted.calls = 0
    while len(found) < 3 and counted.calls < 10 * len(rest):
        far = float(model.family.kl(model.decode(federation.units), goal))
        for limit in (1e-2, 1e-4, 1e-6):
            if far <= limit:
                found.setdefault(limit, counted.calls / len(rest))
        federation.learn(iterations=1)
    again = visits(model, rest, goal, Variational())
    limits = (2.5, 3.5, 4.5) if which == "most influential" else (2.0, 2.0, 3.0)
    for limit, most in zip((1e-2, 1e-4, 1e-6), limits, strict=True):
        assert found[limit] <= most, found
        assert found[limit] <= again[limit] + 0.5, (found, again)


def test_forgetting_a_typical_agent_needs_few_passes() -> None:
    check_forgetting("breast_cancer", True, "typical")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["breast_cancer", "wine", "diabetes", "digits"])
@pytest.mark.parametrize("by_label", [True, False])
@pytest.mark.parametrize("which", ["most influential", "typical"])
def test_forgetting_needs_few_passes(name: str, by_label: bool, which: str) -> None:
    check_forgetting(name, by_label, which)


def check_forgetting_the_worst_record(name: str, by_label: bool) -> None:
    """The record that moves the optimum most, to first order: ½ (p − y)² xᵀSx. KL 1e-4 to the
    optimum without it in 2.5 passes; retraining needs more."""
    rows = real_data(name)
    shards = split(rows, 10, by_label)
    model = LogisticRegression(features=rows.shape[1] - 1, intercept=True)
    counted = Counted(Variational())
    federation = Federation(model, shards, "complete", solver=counted, retrain_above=np.inf)
    mean, cov = moments(federation.learn().posterior)
    found = []
    for k, part in enumerate(shards):
        x, y, _ = model.outcomes(part)
        p = 1.0 / (1.0 + np.exp(-x @ mean))
        moved = np.square(p - y) * np.einsum("ni,ij,nj->n", x, cov, x)
        found.append((moved.max(), k, int(moved.argmax())))
    _, k, row = max(found)
    rest = [np.delete(part, row, 0) if j == k else part for j, part in enumerate(shards)]
    goal = goal_of(model, np.concatenate(rest), Variational())
    counted.calls = 0
    federation.forget(records={federation.agents[k]: [row]}, method="subtract")
    while float(model.family.kl(model.decode(federation.units), goal)) > 1e-4:
        federation.learn(iterations=1)
    assert counted.calls <= 2.5 * len(shards)
    assert counted.calls <= len(shards) * visits(model, rest, goal, Variational())[1e-4]


def test_forgetting_the_worst_record_needs_few_passes() -> None:
    check_forgetting_the_worst_record("breast_cancer", True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["breast_cancer", "wine", "diabetes", "digits"])
@pytest.mark.parametrize("by_label", [True, False])
def test_forgetting_the_worst_record_needs_few_passes_everywhere(name: str, by_label: bool) -> None:
    check_forgetting_the_worst_record(name, by_label)
