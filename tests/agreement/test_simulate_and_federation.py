"""Replicas on arrays and a Federation on the protocol's core tell the same story, seed by seed.

Conjugate models agree bit for bit, the others to 1e-12 of their natural parameters, iteration by
iteration: the same agent is scheduled, and the token that leaves it holds the same numbers.
"""

import numpy as np
import pytest

from unweave import BetaExponential, Federation, NaturalGradient, graphs
from unweave.errors import ConfigError
from unweave.experiments.replicas import Forget, simulate
from unweave.graph.private_rounds import count_hops
from unweave.solvers import ESTIMATORS
from unweave.testing.models import CASES

ITERATIONS = 40
LEARNED = 200  # everybody is in: while a removal is pending, replicas only forward (the paper)
GRAPHS = {
    "star": graphs.star(5),
    "ring": graphs.ring(6),
    "complete": graphs.complete(5),
    "path": graphs.path(4),
    "grid": graphs.grid(6),
    "random": graphs.erdos_renyi(7, p=0.5, seed=2),
    "alone": graphs.complete(1),
}


def walk(federation):
    """The path and the tokens of a federation's history."""
    path = [federation.graph.index(step.agent) for step in federation.history]
    return np.array(path), np.array([step.units for step in federation.history])


def same(replicas, r, federation):
    path, units = walk(federation)
    assert path.tolist() == replicas.path[r, : len(path)].tolist()
    assert np.array_equal(units, replicas.units[r, : len(path)])


def close(replicas, r, federation, rtol=1e-12):
    path, units = walk(federation)
    assert path.tolist() == replicas.path[r, : len(path)].tolist()
    grid = replicas.model.grid
    np.testing.assert_allclose(
        grid.decode(units), replicas.eta[r, : len(path)], rtol=rtol, atol=0.0
    )


@pytest.mark.parametrize("schedule", ["metropolis", "sweep"])
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_conjugate_models_agree_bit_for_bit(case, graph, schedule):
    shards = [case.rows(3 + k, seed=k) for k in range(len(graph))]
    replicas = simulate(
        case.model, shards, graph, schedule, iterations=ITERATIONS, replicas=2, seed=7
    )
    for r, seed in enumerate(replicas.seeds):
        federation = Federation(case.model, shards, graph, schedule, seed=int(seed))
        same(replicas, r, federation.learn(iterations=ITERATIONS))


@pytest.mark.parametrize("solve", ["pass", "visit"])
@pytest.mark.parametrize("schedule", ["metropolis", "sweep"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_agrees_to_1e_12(name, reduction, schedule, solve):
    model = BetaExponential(a=6, b=4, reduction=reduction, alpha=0.8)
    graph = graphs.star(4)
    shards = [np.random.default_rng(k).exponential(0.4, 5 + k) for k in range(4)]
    rho = 0.005 if name == "reinforce" else None
    settings = {"estimator": name, "rho": rho, "steps": 3, "samples": 20}
    replicas = simulate(
        model, shards, graph, schedule, iterations=20, replicas=2, seed=1, solve=solve, **settings
    )
    for r, seed in enumerate(replicas.seeds):
        solver = NaturalGradient(**settings)
        federation = Federation(
            model, shards, graph, schedule, int(seed), solver=solver, solve=solve
        )
        close(replicas, r, federation.learn(iterations=20))


def forgotten(model, shards, graph, agents, schedule, seed, learn, solve="pass", **solver):
    """A federation that learned for `learn` iterations and then forgot on the schedule's walk."""
    federation = Federation(
        model,
        shards,
        graph,
        schedule,
        seed=seed,
        forget="walk",
        solve=solve,
        retrain_above=np.inf,
        solver=NaturalGradient(**solver) if solver else None,
    )
    return federation.learn(iterations=learn).forget(agents, method="subtract")


@pytest.mark.parametrize("how", ["subtract", "refine"])
@pytest.mark.parametrize("schedule", ["metropolis", "sweep"])
@pytest.mark.parametrize("agents", [["a4"], ["a2", "a5"]], ids=["one", "two"])
@pytest.mark.parametrize("graph", ["star", "ring", "complete", "grid"])
def test_forgetting_agrees_bit_for_bit_for_conjugate_models(graph, agents, schedule, how):
    case, topology = CASES[0], GRAPHS[graph]
    shards = [case.rows(3 + k, seed=k) for k in range(len(topology))]
    replicas = simulate(
        case.model,
        shards,
        topology,
        schedule,
        iterations=LEARNED,
        replicas=3,
        seed=3,
        forget=Forget(agents, how, 60),
    )
    assert replicas.first_visits.max() < LEARNED
    for r, seed in enumerate(replicas.seeds):
        federation = forgotten(case.model, shards, topology, agents, schedule, int(seed), LEARNED)
        assert set(agents).isdisjoint(federation.included)
        same(replicas, r, federation)
        if how == "refine":
            federation.learn(iterations=LEARNED + 60 - len(federation.history))
            same(replicas, r, federation)
            assert len(federation.history) == LEARNED + 60


@pytest.mark.parametrize("solve", ["pass", "visit"])
@pytest.mark.parametrize("how", ["subtract", "refine"])
@pytest.mark.parametrize("schedule", ["metropolis", "sweep"])
@pytest.mark.parametrize("name", ["exact", "factor_cv"])
def test_forgetting_agrees_to_1e_12_for_a_loss(name, schedule, how, solve):
    model, graph, agents = BetaExponential(a=6, b=4), graphs.ring(5), ["a2", "a3"]
    shards = [np.random.default_rng(k).exponential(0.4, 6) for k in range(5)]
    settings = {"estimator": name, "steps": 2, "samples": 20, "solve": solve}
    replicas = simulate(
        model,
        shards,
        graph,
        schedule,
        iterations=30,
        replicas=2,
        seed=5,
        forget=Forget(agents, how, 40),
        **settings,
    )
    for r, seed in enumerate(replicas.seeds):
        federation = forgotten(model, shards, graph, agents, schedule, int(seed), 30, **settings)
        close(replicas, r, federation)
        if how == "refine":
            federation.learn(iterations=70 - len(federation.history))
            close(replicas, r, federation)
            assert len(federation.history) == 70


def test_an_agent_that_was_never_visited_is_forgotten_too():
    """Its factor is not in the token; it must stay out when the walk reaches it later."""
    case, graph = CASES[0], graphs.path(6)
    shards = [case.rows(4, seed=k) for k in range(6)]
    forget = Forget("a6", "refine")
    for schedule in ("metropolis", "sweep"):
        replicas = simulate(
            case.model, shards, graph, schedule, iterations=2, replicas=4, seed=1, forget=forget
        )
        for r, seed in enumerate(replicas.seeds):
            found = forgotten(case.model, shards, graph, ["a6"], schedule, int(seed), 2)
            same(replicas, r, found)


MASKED = {name: GRAPHS[name] for name in ("star", "ring", "complete", "random")}


@pytest.mark.parametrize("schedule", ["metropolis", "sweep"])
@pytest.mark.parametrize("graph", MASKED.values(), ids=MASKED)
def test_masked_replicas_publish_the_plain_sums_when_the_plan_says(graph, schedule):
    """The sum of all agents, bit for bit, and the prior until all have attested it; how many
    iterations that takes is what `plan --privacy masked` counts."""
    model, shards = CASES[0].model, [CASES[0].rows(3 + k, seed=k) for k in range(len(graph))]
    settings = {"iterations": LEARNED, "replicas": 3, "seed": 7}
    plain = simulate(model, shards, graph, schedule, **settings)
    masked = simulate(model, shards, graph, schedule, **settings, privacy="masked")
    assert (plain.settings["privacy"], masked.settings["privacy"]) == ("plain", "masked")
    assert masked.seeds.tolist() == plain.seeds.tolist()
    assert np.array_equal(masked.units[:, -1], plain.units[:, -1])
    assert (masked.kl().values[:, -1] == 0.0).all()
    for r, seed in enumerate(masked.seeds.tolist()):
        learned = count_hops(graph, 0, schedule, seed).learn
        assert np.flatnonzero(masked.changed[r]).tolist() == [learned - 1]
        assert (masked.units[r, : learned - 1] == model.eta0).all()


def test_masked_replicas_forget_by_a_new_round():
    graph, case = graphs.ring(6), CASES[0]
    shards = [case.rows(3 + k, seed=k) for k in range(6)]
    request = Forget("a6", iterations=40)
    replicas = simulate(case.model, shards, graph, iterations=60, replicas=2, seed=3,
                        forget=request, privacy="masked")  # fmt: skip
    assert replicas.settings["forget"]["how"] == "round"
    for r, seed in enumerate(replicas.seeds.tolist()):
        federation = Federation(case.model, shards, graph, seed=seed, privacy="masked").learn()
        learned = len(federation.history)
        federation.forget("a6")
        units = [step.units for step in federation.history[learned:]]
        assert np.array_equal(replicas.units[r, 60 : 60 + len(units)], units)
        assert np.array_equal(replicas.units[r, -1], federation.units)
    assert (replicas.kl().values[:, -1] == 0.0).all()


def test_what_masked_replicas_refuse_is_told_with_the_fix():
    shards = [np.full(4, 0.3 + 0.1 * k) for k in range(5)]

    def run(model="beta-exponential-atoms", **settings):
        return simulate(model, shards, "complete", **({"replicas": 1} | settings))

    with pytest.raises(ConfigError, match=r"no private rounds.*Fix: beta-exponential-atoms, or"):
        run(BetaExponential(a=3, b=3), privacy="masked")
    with pytest.raises(ConfigError, match=r"no agent sees a factor.*Fix: how = 'round'"):
        run(forget=Forget("a1", "subtract"), privacy="masked")
    with pytest.raises(ConfigError, match=r"has no rounds. Fix: how = 'subtract'"):
        run(forget=Forget("a1", "round"))
    with pytest.raises(ConfigError, match="follows from the seed"):
        run(start="a1", privacy="masked")
    with pytest.raises(ConfigError, match="Fix: raise iterations"):
        run(iterations=3, forget="a1", privacy="masked")
    with pytest.raises(ConfigError, match='choose "plain" or "masked"'):
        run(privacy="secret")
    assert (run(privacy="masked").units[:, -1] == run().units[:, -1]).all()
