"""Steps go down, stay inside the domain, and end where they should."""

import signal
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unweave.errors import ConfigError, SolverError
from unweave.models import by_name
from unweave.models.beta_exponential import BetaExponential
from unweave.rng import Stream
from unweave.solvers import Context, Exact, NaturalGradient, default_solver, optimum
from unweave.solvers.estimators import Point
from unweave.solvers.steps import Move

MODEL = BetaExponential(a=3, b=3)
RNG = np.random.default_rng(5)
SHARDS = [MODEL.shard(RNG.exponential(0.4, 100), f"a{k + 1}") for k in range(10)]
DATA = np.array([MODEL.summary(shard) for shard in SHARDS])


def federate(solver: NaturalGradient, visits: int, model: BetaExponential = MODEL) -> np.ndarray:
    """Visit all agents in turn; the token's eta on the grid."""
    eta, held = model.eta0, {}
    for i in range(visits):
        k = i % len(SHARDS)
        cavity = eta - held.get(k, 0)
        solution = solver.solve(model, SHARDS[k], cavity, held.get(k), Context(Stream(i)))
        held[k] = solution.factor
        eta = cavity + solution.factor
    return eta


def test_reaches_the_best_beta() -> None:
    total = MODEL.combine(DATA)
    posterior = MODEL.exact(total)
    floor = float(posterior.kl_from(optimum(MODEL, total)))
    reached = float(posterior.kl_from(MODEL.grid.decode(federate(NaturalGradient(), 60))))
    assert 0.0 < floor < 2e-3
    assert floor - 1e-11 <= reached <= floor + 1e-9


def test_nothing_new_changes_nothing() -> None:
    solver = NaturalGradient(steps=50)
    first = solver.solve(MODEL, SHARDS[0], MODEL.eta0, None, Context(Stream(0)))
    again = solver.solve(MODEL, SHARDS[0], MODEL.eta0, first.factor, Context(Stream(1)))
    assert first.factor.any()
    assert np.array_equal(first.factor, again.factor)


@given(
    st.floats(1.2, 300.0),
    st.floats(0.2, 300.0),
    st.floats(0.0, 200.0),
    st.floats(0.05, 100.0),
    st.floats(-0.5, 0.9),
)
def test_every_controlled_step_decreases_the_local_free_energy(
    a: float, b: float, w0: float, w1: float, share: float
) -> None:
    eta, data = np.array([a, b]), np.array([w0, w1])
    factor = share * eta
    cavity = eta - factor
    after, info = NaturalGradient(steps=1).update(MODEL, data, cavity, factor, Stream(0))
    move = Move(Point(MODEL, eta, factor, data, Stream(0), 2, 0.0), after - factor, 1)
    before_energy, size = move.free_energy(np.zeros(()))
    after_energy, _ = move.free_energy(np.ones(()))
    assert after_energy <= before_energy + 1e-12 * size
    assert MODEL.margin(cavity + after) > 0
    assert info["residual"] < 1e-14 or not np.array_equal(after, factor)


def test_batch_equals_one_by_one() -> None:
    solver = NaturalGradient(steps=3)
    cavity = np.array([[3.0, 3.0], [40.0, 60.0], [1.2, 0.4]])
    factor = np.array([[0.0, 0.0], [5.0, -2.0], [0.5, 0.5]])
    together, _ = solver.update(MODEL, DATA[:3], cavity, factor, Stream(0))
    for j in range(3):
        alone, _ = solver.update(MODEL, DATA[j], cavity[j], factor[j], Stream(0))
        np.testing.assert_allclose(together[j], alone, rtol=1e-14)


def test_a_step_that_would_leave_the_domain_is_shortened_and_counted() -> None:
    # A factor far above what its data support: the full step would take a below 1.
    solver = NaturalGradient("exact", rho=1.0, steps=1)
    cavity, factor = np.array([-20.0, 3.0]), np.array([25.0, 3.0])
    after, info = solver.update(MODEL, np.array([5.0, 0.5]), cavity, factor, Stream(0))
    assert info["shortened"] == 1
    assert info["rho"] < 1.0
    assert MODEL.margin(cavity + after) >= 0.5 * MODEL.margin(cavity + factor)


@pytest.mark.parametrize("estimator", ["factor_cv", "loo", "implicit"])
def test_noisy_steps_at_most_halve_the_margin(estimator: str) -> None:
    solver = NaturalGradient(estimator, steps=1, samples=2)
    cavity = np.full((500, 2), 3.0)
    after, info = solver.update(MODEL, DATA[0], cavity, np.full((500, 2), 2.0), Stream(3))
    margin = MODEL.margin(cavity + after, moments=2)
    assert np.all(margin >= 0.5 * 3.0)
    assert info["shortened"] > 0


def test_fixed_rho_is_the_papers_update() -> None:
    eta, factor = np.array([20.0, 30.0]), np.array([4.0, 5.0])
    after, info = NaturalGradient("exact", rho=0.25, steps=1).update(
        MODEL, DATA[0], eta - factor, factor, Stream(0)
    )
    gradient = MODEL.exact_gradient(eta, DATA[0])
    np.testing.assert_allclose(after, factor - 0.25 * (factor + gradient), rtol=1e-14)
    assert info["shortened"] == 0


def test_temperature_and_reduction_only_scale_the_loss() -> None:
    """alpha = ½ is as good as every record twice; "mean" is "sum" at alpha = N_k."""
    cold = BetaExponential(a=3, b=3, alpha=0.5)
    twice = [MODEL.shard(np.repeat(s.rows, 2), s.agent) for s in SHARDS]
    mean = BetaExponential(a=3, b=3, reduction="mean")
    warm = BetaExponential(a=3, b=3, alpha=100.0)
    solver = NaturalGradient(steps=20)

    def factor(model: BetaExponential, shard: object) -> np.ndarray:
        return model.grid.decode(
            solver.solve(model, shard, model.eta0, None, Context(Stream(0))).factor
        )  # type: ignore[arg-type]

    np.testing.assert_allclose(factor(cold, SHARDS[0]), factor(MODEL, twice[0]), rtol=1e-9)
    np.testing.assert_allclose(factor(mean, SHARDS[0]), factor(warm, SHARDS[0]), rtol=1e-6)


def test_row_order_cannot_matter() -> None:
    rows = SHARDS[0].rows
    assert np.array_equal(DATA[0], MODEL.summary(MODEL.shard(rows[::-1], "a1")))


def test_an_empty_shard_contributes_nothing() -> None:
    empty = SHARDS[0].drop(np.ones(100, dtype=bool))
    solution = NaturalGradient().solve(MODEL, empty, MODEL.eta0, None, Context(Stream(0)))
    assert not solution.factor.any()


def test_moments_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"a = 1: .* a > 1"):
        BetaExponential(a=1.0, b=2.0)
    narrow = BetaExponential(a=1.5, b=2.0)
    shard = narrow.shard([0.2, 0.4], "clinic")
    found = NaturalGradient("exact").solve(narrow, shard, narrow.eta0, None, Context(Stream(0)))
    assert found.factor.any()
    with pytest.raises(SolverError, match=r"agent 'clinic'.*'loo' needs .* a > 2 .* a = 1.5"):
        NaturalGradient("loo").solve(narrow, shard, narrow.eta0, None, Context(Stream(0)))


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="rho = 0"):
        NaturalGradient(rho=0.0)
    with pytest.raises(ConfigError, match="steps = 0"):
        NaturalGradient(steps=0)
    with pytest.raises(ConfigError, match="samples = 1"):
        NaturalGradient(samples=1)
    with pytest.raises(ConfigError, match="'reinforce' has too much noise"):
        NaturalGradient("reinforce")


def test_conjugate_models_take_exact_factors() -> None:
    model = by_name("beta-bernoulli")
    shard = model.shard([1, 1, 0], "a1")
    solver = default_solver(model)
    assert isinstance(solver, Exact)
    solution = solver.solve(model, shard, model.eta0, None, Context(Stream(0)))
    assert model.grid.decode(solution.factor).tolist() == [2.0, 1.0]
    again = solver.solve(model, shard, model.eta0, solution.factor, Context(Stream(0)))
    assert np.array_equal(again.factor, solution.factor)
    with pytest.raises(ConfigError, match="use solver=NaturalGradient"):
        solver.solve(MODEL, SHARDS[0], MODEL.eta0, None, Context(Stream(0)))
    with pytest.raises(ConfigError, match="use solver=Exact"):
        NaturalGradient().solve(model, shard, model.eta0, None, Context(Stream(0)))


@pytest.mark.parametrize("rho", [None, 0.3])
def test_a_gradient_that_is_not_finite_is_an_error_not_an_endless_search(rho: float | None) -> None:
    @dataclass(frozen=True)
    class Broken(BetaExponential):
        def exact_gradient(self, eta: np.ndarray, data: np.ndarray) -> np.ndarray:
            return np.full(2, np.nan)

    def too_long(*_: object) -> None:
        raise TimeoutError("the step was halved for ever")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(20)
    try:
        with pytest.raises(SolverError, match="agent 'a1': steps diverged"):
            NaturalGradient(rho=rho).solve(
                Broken(), SHARDS[0], MODEL.eta0, None, Context(Stream(1))
            )
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
