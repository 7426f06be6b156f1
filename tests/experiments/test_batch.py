"""Replicas equal a straightforward loop over visits, whatever the schedule, solver or phase."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from unweave.errors import ConfigError, DataError, DomainError, GraphError, SolverError
from unweave.experiments.replicas import Forget, PerReplica, Replicas, simulate
from unweave.graph import (
    Topology,
    first_agent,
    graphs,
    metropolis_next,
    route_key,
    sweep_next,
    sweep_order,
)
from unweave.models import Model, by_name
from unweave.models.beta_exponential import BetaExponential
from unweave.persistent import NOBODY, Stack
from unweave.rng import Purpose, Stream, derive
from unweave.solvers import ESTIMATORS, Context, Exact, NaturalGradient, Solver

BERNOULLI = by_name("beta-bernoulli")
RNG = np.random.default_rng(1)
COINS = RNG.integers(0, 2, (6, 20))
TIMES = RNG.exponential(0.4, (6, 40))
NETWORKS = {
    "complete": graphs.complete(6),
    "star": graphs.star(6),
    "ring": graphs.ring(6),
    "path": graphs.path(6),
}


def reference_path(graph: Topology, schedule: str, seed: int, iterations: int) -> list[int]:
    k = first_agent(len(graph), seed)
    path, stack, visited = [k], Stack(), NOBODY
    for hop in range(1, iterations):
        if schedule == "metropolis":
            k = metropolis_next(graph, k, route_key(seed, 1, hop))
        else:
            order = sweep_order(graph, k, seed)
            step = sweep_next(graph, k, stack, visited, order)
            k, stack, visited = step.next, step.stack, NOBODY if step.done else step.visited
        path.append(k)
    return path


def reference_run(
    model: Model,
    data: np.ndarray,
    solver: Solver,
    path: list[int],
    seed: int,
    once: bool = False,
) -> np.ndarray:
    """One federation, visit by visit: eta on the grid after each. `once`: a pass is over when
    everybody was visited, and an agent solves at its first visit of each."""
    shards = [model.shard(rows, f"a{k + 1}") for k, rows in enumerate(data)]
    eta, held, states, seen = model.eta0, {}, [], set()
    for hop, k in enumerate(path, start=1):
        if len(seen) == len(data):
            seen.clear()
        if once and k in seen:
            states.append(eta)
            continue
        seen.add(k)
        cavity = eta - held.get(k, 0)
        stream = Stream(derive(seed, 1, hop, Purpose.SOLVE))
        held[k] = solver.solve(model, shards[k], cavity, held.get(k), Context(stream)).factor
        eta = cavity + held[k]
        states.append(eta)
    return np.array(states)


@pytest.mark.parametrize("network", list(NETWORKS))
@pytest.mark.parametrize("schedule", ["metropolis", "sweep"])
def test_conjugate_replicas_equal_the_loop_bit_for_bit(network: str, schedule: str) -> None:
    graph = NETWORKS[network]
    result = simulate(BERNOULLI, COINS, graph, schedule, iterations=40, replicas=8, seed=3)
    for r, seed in enumerate(result.seeds.tolist()):
        assert seed == derive(3, Purpose.REPLICA, r)
        path = reference_path(graph, schedule, seed, 40)
        assert result.path[r].tolist() == path
        expected = reference_run(BERNOULLI, COINS, Exact(), path, seed)
        assert np.array_equal(result.units[r], expected)


@pytest.mark.parametrize("solve", ["visit", "pass"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize(
    ("name", "rho"),
    [(name, 0.05) for name in ESTIMATORS]
    + [(name, None) for name in ESTIMATORS if name != "reinforce"],  # it has no step control
)
def test_natural_gradient_replicas_agree_with_the_loop(
    name: str, reduction: str, rho: float | None, solve: str
) -> None:
    model = BetaExponential(a=3, b=3, alpha=0.8, reduction=reduction)
    solver = NaturalGradient(name, rho=rho, steps=2)
    graph = NETWORKS["complete"]
    settings = {"iterations": 30, "replicas": 3, "solver": solver, "seed": 1, "solve": solve}
    result = simulate(model, TIMES, graph, "metropolis", **settings)
    for r, seed in enumerate(result.seeds.tolist()):
        path = reference_path(graph, "metropolis", seed, 30)
        run = reference_run(model, TIMES, solver, path, seed, once=solve == "pass")
        expected = model.grid.decode(run)
        # Noisy steps of size 1 do not contract: they carry rounding errors on and amplify them.
        limit = 1e-12 if rho is not None or not ESTIMATORS[name].noisy else 1e-9
        np.testing.assert_allclose(result.eta[r], expected, rtol=limit, atol=2e-12)


@pytest.mark.parametrize("rho", [0.3, 1.0])
def test_shortened_steps_agree_too(rho: float) -> None:
    """A prior near the edge of the domain, and agents that pull in different directions."""
    model, data = BetaExponential(a=1.2, b=0.3), TIMES * np.array([1, 1, 1, 0.05, 1, 3])[:, None]
    graph = NETWORKS["complete"]
    settings = {"iterations": 40, "replicas": 20, "estimator": "exact", "rho": rho, "steps": 2}
    fast = simulate(model, data, graph, **settings)
    slow = simulate(model, data, graph, kernels=False, **settings)
    assert fast.shortened.sum() > 0
    assert np.array_equal(fast.shortened, slow.shortened)
    # Steps of size 1 without control swing widely here, and rounding errors with them.
    np.testing.assert_allclose(fast.eta, slow.eta, rtol=1e-10)


def test_a_step_from_far_inside_out_of_the_domain_is_shortened() -> None:
    model, data = BetaExponential(a=30, b=30), TIMES * 1e-6  # 40 records near 0 ask for a − 40
    settings = {"iterations": 3, "replicas": 4, "estimator": "exact", "rho": 1.0, "steps": 1}
    fast = simulate(model, data, NETWORKS["complete"], **settings)
    slow = simulate(model, data, NETWORKS["complete"], kernels=False, **settings)
    assert (fast.shortened > 0).all()
    assert np.array_equal(fast.shortened, slow.shortened)
    np.testing.assert_allclose(fast.eta, slow.eta, rtol=1e-10)


def test_general_code_makes_the_same_draws() -> None:
    model, graph = BetaExponential(a=3, b=3), NETWORKS["ring"]
    settings = {"iterations": 12, "replicas": 2, "estimator": "loo", "rho": 0.1, "steps": 2}
    fast = simulate(model, TIMES, graph, **settings)
    slow = simulate(model, TIMES, graph, kernels=False, **settings)
    np.testing.assert_allclose(fast.eta, slow.eta, rtol=1e-12)


@pytest.mark.parametrize("kernels", [True, False])
def test_divergence_is_an_error(kernels: bool) -> None:
    settings = {"iterations": 200, "replicas": 3, "estimator": "reinforce", "rho": 1.0}
    settings |= {"schedule": "metropolis", "solve": "visit"}
    with pytest.raises(SolverError, match=r"diverged and left the grid. Fix: a smaller rho"):
        simulate(
            BetaExponential(a=3, b=3), TIMES, NETWORKS["complete"], kernels=kernels, **settings
        )


@pytest.mark.parametrize("how", ["subtract", "refine", "retrain"])
@pytest.mark.parametrize("model", [BERNOULLI, BetaExponential(a=3, b=3)], ids=lambda m: m.name)
def test_kernels_equal_the_general_code_when_forgetting(how: str, model: Model) -> None:
    data = COINS if model.conjugate else TIMES
    forget = Forget(["a2", "a5"], how=how, iterations=40)

    def run(kernels: bool) -> Replicas:
        return simulate(
            model,
            data,
            NETWORKS["complete"],
            iterations=15,
            replicas=10,
            forget=forget,
            kernels=kernels,
        )

    fast, slow = run(True), run(False)
    assert np.array_equal(fast.path, slow.path)
    if model.conjugate:
        assert np.array_equal(fast.units, slow.units)
        assert np.array_equal(fast.changed, slow.changed)
        np.testing.assert_array_equal(fast.kl().values, slow.kl().values)
    np.testing.assert_allclose(fast.eta, slow.eta, rtol=1e-12)
    assert np.array_equal(fast.shortened, slow.shortened)


def test_forgetting_follows_the_paper() -> None:
    """Forward until the agent is scheduled, then subtract, then forward only."""
    forget = Forget("a4", iterations=60)
    result = simulate(
        BERNOULLI, COINS, NETWORKS["ring"], iterations=50, replicas=50, forget=forget, seed=2
    )
    factor = BERNOULLI.factor(BERNOULLI.shard(COINS[3], "a4"))
    for r in range(50):
        seen = 3 in result.path[r, :50]
        visits = np.flatnonzero(result.path[r, 50:] == 3)
        before, after = result.units[r, 49], result.units[r, 50:]
        when = visits[0] if visits.size and seen else 60
        assert np.array_equal(after[:when], np.broadcast_to(before, (when, 2)))
        assert np.array_equal(after[when:], np.broadcast_to(before - factor, (60 - when, 2)))


def test_refining_and_retraining_end_at_the_posterior_without_the_agent() -> None:
    for how in ("refine", "retrain"):
        forget = Forget("a1", how=how, iterations=200)
        result = simulate(
            BERNOULLI, COINS, NETWORKS["complete"], iterations=5, replicas=40, forget=forget
        )
        assert result.mean()[-1] == 0.0
        rest = simulate(
            BERNOULLI, COINS[1:], graphs.complete(5), "sweep", iterations=20, replicas=1
        )
        assert np.array_equal(result.units[:, -1], np.broadcast_to(rest.units[0, -1], (40, 2)))
    assert not (result.path[:, 5:] == 0).any()


def test_a_dissimilar_agent_leaves_a_residual_that_refining_removes() -> None:
    model = BetaExponential(a=3, b=3)
    data = TIMES.copy()
    data[5] *= 1.5

    def after(how: str) -> float:
        forget = Forget("a6", how=how, iterations=120)
        return float(
            simulate(
                model, data, NETWORKS["complete"], iterations=120, replicas=20, forget=forget
            ).mean()[-1]
        )

    subtracted, refined, retrained = after("subtract"), after("refine"), after("retrain")
    assert subtracted > 10 * refined
    assert refined == pytest.approx(retrained, rel=1e-4)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("how", ["subtract", "refine"])
def test_a_removal_that_leaves_no_distribution_is_refused(kernels: bool, how: str) -> None:
    data = TIMES.copy()
    data[5] *= 4.0  # no mean below 1 explains these records
    forget = Forget("a6", how=how, iterations=60)
    with pytest.raises(DomainError, match=r"taking out a6 .* how='retrain'"):
        simulate(
            BetaExponential(a=3, b=3),
            data,
            NETWORKS["complete"],
            iterations=60,
            replicas=5,
            forget=forget,
            kernels=kernels,
        )


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("how", ["subtract", "refine"])
def test_replicas_that_leave_the_domain_are_marked_and_the_others_go_on(
    kernels: bool, how: str
) -> None:
    data = np.stack([TIMES] * 4)
    data[1, 5] *= 4.0
    forget = Forget("a6", how=how, iterations=60)
    settings: dict = {"iterations": 60, "replicas": 4, "forget": forget, "kernels": kernels}
    model, graph = BetaExponential(a=3, b=3), NETWORKS["complete"]
    found = simulate(model, PerReplica(data), graph, **settings)
    assert found.outside.any(axis=1).tolist() == [False, True, False, False]
    first = int(found.outside[1].argmax())
    assert found.path[1, first] == 5
    assert first >= 60
    assert found.outside[1, first:].all()
    assert np.isinf(found.kl().values[1, first:]).all()
    assert np.isfinite(found.kl().values[~found.outside]).all()
    assert "1 left the domain" in repr(found)
    # The others are what they are without it.
    data[1] = data[0]
    clean = simulate(model, PerReplica(data), graph, **settings)
    assert not clean.outside.any()
    rest = [0, 2, 3]
    assert np.array_equal(found.units[rest], clean.units[rest])


def test_replicas_whose_steps_diverge_are_marked() -> None:
    settings: dict = {"iterations": 200, "estimator": "reinforce", "rho": 0.2}
    model, graph = BetaExponential(a=3, b=3), NETWORKS["complete"]
    fast = simulate(model, TIMES, graph, replicas=20, **settings)
    gone = fast.outside.any(axis=1)
    assert 0 < gone.sum() < 20
    slow = simulate(model, TIMES, graph, replicas=3, kernels=False, **settings)
    assert np.array_equal(slow.outside.any(axis=1), gone[:3])
    r = int(gone.argmax())
    assert fast.outside[r, int(fast.outside[r].argmax()) :].all()
    assert np.isinf(fast.kl().values[r, -1])
    assert (fast.shortened >= 0).all()


def test_kl_curves_and_bands() -> None:
    result = simulate(BERNOULLI, COINS, NETWORKS["star"], iterations=60, replicas=300)
    posterior = np.array([2.0 + COINS.sum(), 2.0 + COINS.size - COINS.sum()])
    direct = BERNOULLI.family.kl(result.eta, posterior)
    np.testing.assert_array_equal(result.kl().values, direct)
    np.testing.assert_array_equal(result.kl(posterior).values, direct)
    low, high = result.band(0.75)
    ranked = np.sort(direct, axis=0)
    np.testing.assert_array_equal(low, ranked[37])  # the 38th of 300: 12.5%
    np.testing.assert_array_equal(high, ranked[262])
    np.testing.assert_array_equal(result.kl().median(), ranked[149])
    np.testing.assert_allclose(result.mean(), direct.mean(axis=0))
    at = np.array([1, 7, 60])
    np.testing.assert_array_equal(result.kl(at=at).values, direct[:, at - 1])
    covered = (result.first_visits > 0).all(axis=1)
    assert np.all(direct[covered, -1] == 0.0)
    assert np.all(direct[~covered, -1] > 0.0)


def test_first_visits() -> None:
    result = simulate(BERNOULLI, COINS, NETWORKS["star"], iterations=50, replicas=20)
    for r in range(20):
        path = result.path[r].tolist()
        expected = [path.index(k) + 1 if k in path else 0 for k in range(6)]
        assert result.first_visits[r].tolist() == expected


def test_unlearning_takes_as_long_as_the_paper_says() -> None:
    """Complete graph, K = 10, uniform start: 1/K + K − 1 = 9.1 iterations."""
    coins = np.zeros((10, 1))
    graph = graphs.complete(10)
    result = simulate(BERNOULLI, coins, graph, "metropolis", iterations=300, replicas=20_000)
    first = result.first_visits[:, 9]
    assert (first > 0).all()
    assert abs(first.mean() - 9.1) < 5 * first.std() / np.sqrt(20_000)


def test_data_of_its_own_for_every_replica() -> None:
    data = np.random.default_rng(3).integers(0, 2, (4, 6, 20))
    result = simulate(
        BERNOULLI, PerReplica(data), NETWORKS["complete"], iterations=80, replicas=4, seed=9
    )
    for r in range(4):
        alone = simulate(
            BERNOULLI, data[r], NETWORKS["complete"], iterations=80, replicas=4, seed=9
        )
        assert np.array_equal(result.units[r], alone.units[r])
        np.testing.assert_array_equal(result.kl().values[r], alone.kl().values[r])
    model = BetaExponential(a=3, b=3)
    times = np.random.default_rng(3).exponential(0.3, (4, 6, 20))
    result = simulate(model, PerReplica(times), NETWORKS["ring"], iterations=30, replicas=4)
    alone = simulate(model, times[2], NETWORKS["ring"], iterations=30, replicas=4)
    assert np.array_equal(result.units[2], alone.units[2])
    np.testing.assert_allclose(result.kl().values[2], alone.kl().values[2], atol=1e-9)


def test_more_replicas_extend_fewer() -> None:
    few = simulate(BERNOULLI, COINS, NETWORKS["ring"], iterations=20, replicas=5)
    many = simulate(BERNOULLI, COINS, NETWORKS["ring"], iterations=20, replicas=50)
    assert np.array_equal(few.units, many.units[:5])


def test_shards_by_name_and_given_start() -> None:
    named = dict(zip(["a6", "a5", "a4", "a3", "a2", "a1"], COINS[::-1], strict=True))
    a = simulate(BERNOULLI, named, NETWORKS["ring"], iterations=9, replicas=4, start="a3")
    b = simulate(BERNOULLI, COINS, NETWORKS["ring"], iterations=9, replicas=4, start=2)
    assert np.array_equal(a.units, b.units)
    assert (a.path[:, 0] == 2).all()


def test_errors_say_what_to_do() -> None:
    graph = NETWORKS["star"]
    with pytest.raises(ConfigError, match="5 shards for 6 agents"):
        simulate(BERNOULLI, COINS[:5], graph)
    with pytest.raises(ConfigError, match="no shard for a2, a3"):
        simulate(BERNOULLI, {"a1": COINS[0]}, graph)
    with pytest.raises(DataError, match=r"give \(7, 6, records, 1\)"):
        simulate(BERNOULLI, PerReplica(np.zeros((4, 6, 20))), graph, replicas=7)
    with pytest.raises(ConfigError, match="'metropolis' or 'sweep'"):
        simulate(BERNOULLI, COINS, graph, "seek")
    with pytest.raises(ConfigError, match="iterations = 0"):
        simulate(BERNOULLI, COINS, graph, iterations=0)
    with pytest.raises(ConfigError, match="leave at least one"):
        simulate(BERNOULLI, COINS, graph, forget={"agents": graph.agents})
    with pytest.raises(ConfigError, match="choose 'subtract'"):
        Forget("a1", how="wipe")
    with pytest.raises(GraphError, match="disconnected"):
        simulate(BERNOULLI, COINS, graph, forget={"agents": "a1", "how": "retrain"})
    with pytest.raises(GraphError, match="no agent is named 'a9'"):
        simulate(BERNOULLI, COINS, graph, forget="a9")
    with pytest.raises(SolverError, match=r"replica 0, iteration 1, .* a > 2"):
        simulate(BetaExponential(a=1.5, b=3), TIMES, graph, estimator="loo")


@pytest.mark.parametrize("model", [BetaExponential(a=3, b=0.05), BetaExponential(a=1.05, b=3)])
def test_quadrature_runs_where_q_is_near_the_edge_of_its_domain(model: BetaExponential) -> None:
    settings: dict = {"iterations": 8, "replicas": 2, "seed": 3}
    exact = simulate(model, TIMES, NETWORKS["star"], **settings)
    for kernels in (True, False):
        found = simulate(
            model, TIMES, NETWORKS["star"], estimator="quadrature", kernels=kernels, **settings
        )
        np.testing.assert_allclose(found.eta, exact.eta, rtol=1e-8)


PLAIN = """
import json
import sys
sys.modules["numba"] = None
import numpy as np
from unweave.graph import graphs
from unweave.models import by_name
from unweave.experiments.replicas import simulate, jit
assert not jit.COMPILED
graph = graphs.complete(4)
coins = simulate(by_name("beta-bernoulli"), np.eye(4), graph, iterations=9, replicas=3)
times = simulate(by_name("beta-exponential"), np.eye(4) + 0.1, graph, iterations=9, replicas=3,
                 estimator="factor_cv", samples=5, steps=2)
print(json.dumps([coins.units.ravel().tolist(), times.eta.ravel().tolist()]))
"""


def test_without_numba_the_same_code_runs_as_plain_python() -> None:
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    output = subprocess.run(
        [sys.executable, "-c", PLAIN], capture_output=True, text=True, env=environment, check=True
    ).stdout
    units, eta = json.loads(output)
    graph = graphs.complete(4)
    coins = simulate(BERNOULLI, np.eye(4), graph, iterations=9, replicas=3)
    times = simulate(
        by_name("beta-exponential"),
        np.eye(4) + 0.1,
        graph,
        iterations=9,
        replicas=3,
        estimator="factor_cv",
        samples=5,
        steps=2,
    )
    assert np.array_equal(units, coins.units.ravel())
    np.testing.assert_allclose(eta, times.eta.ravel(), rtol=1e-12)
