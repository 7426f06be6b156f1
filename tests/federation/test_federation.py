"""The front door: what it refuses, records, reports and earns."""

import csv
import io
import math
import sys

import numpy as np
import pytest

from unweave import (
    BetaBernoulli,
    BetaExponential,
    Federation,
    NaturalGradient,
    NormalUnknown,
    graphs,
)
from unweave import progress as progress_module
from unweave.errors import ConfigError, DataError, GraphError, SolverError
from unweave.solvers import optimum

COINS = {"a1": [1, 0, 1], "a2": [0, 0], "a3": [1, 1, 1, 0], "a4": [0, 1]}
MODEL = BetaBernoulli(a=2, b=2)


def coins(graph="ring", **settings):
    return Federation(MODEL, COINS, graph, **settings)


# ------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (
            lambda: coins(schedule="seek"),
            ConfigError,
            "schedule = 'seek': unknown. Fix: choose \"metropolis\"",
        ),
        (lambda: coins(forget="run"), ConfigError, 'choose "seek" or "walk"'),
        (
            lambda: coins(solve="once"),
            ConfigError,
            'solve = .once.: unknown. Fix: choose "pass" or "visit"',
        ),
        (lambda: coins("circle"), GraphError, "circle"),
        (lambda: coins(graphs.ring(5)), ConfigError, "no shard for a5"),
        (lambda: coins(graphs.ring(["a1", "a2", "b"])), ConfigError, "not in the graph: a3, a4"),
        (lambda: Federation(MODEL, [[1], [0]], graphs.ring(3)), ConfigError, "2 shards for 3"),
        (lambda: Federation(MODEL, [[1], []], "ring"), DataError, "'a2' has no records"),
        (lambda: Federation(MODEL, [[1], [2]], "ring"), DataError, "'a2', column 'x', row 0"),
        (lambda: Federation(MODEL, [], "ring"), GraphError, "Fix: at least one"),
        (lambda: coins(graphs.ring(["a1", "a1", "a2"])), GraphError, "a1"),
        (
            lambda: coins(graphs.from_edges([("a1", "a2"), ("a3", "a4")])),
            GraphError,
            "a1, a2.*a3, a4",
        ),
    ],
)
def test_a_network_that_cannot_be(build, error, words):
    with pytest.raises(error, match=words):
        build()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({}, ConfigError, "no agent and no records"),
        ({"agents": []}, ConfigError, "no agent and no records"),
        ({"agents": "a9"}, GraphError, "a9"),
        ({"agents": ["a1", "b1"]}, GraphError, "b1"),
        ({"records": {"a9": [0]}}, GraphError, "a9"),
        ({"records": {"a1": [True, False]}}, DataError, r"'a1'.*one entry for each of 3 records"),
        ({"records": {"a1": [3]}}, DataError, "'a1': record 3 does not exist"),
        ({"records": {"a1": [-1]}}, DataError, "'a1': record -1"),
        ({"records": {"a1": [0.5]}}, DataError, "boolean mask, or row indices"),
        ({"records": {"a1": []}}, DataError, "no record is chosen"),
        ({"records": {"a1": [False] * 3}}, DataError, "no record is chosen"),
    ],
)
def test_a_request_that_makes_no_sense_changes_nothing(arguments, error, words):
    federation = coins().learn()
    before, steps = federation.posterior, len(federation.history)
    with pytest.raises(error, match=words):
        federation.forget(**arguments)
    assert federation.posterior == before
    assert len(federation.history) == steps
    assert federation.erasures == []


def test_an_agent_is_forgotten_once_and_for_all():
    federation = coins().learn().forget("a2")
    with pytest.raises(DataError, match="'a2' was forgotten before"):
        federation.forget("a2")
    with pytest.raises(DataError, match="'a2' was forgotten before"):
        federation.forget(records={"a2": [0]})
    with pytest.raises(DataError, match="'a2' was forgotten and cannot contribute again"):
        federation.update("a2", [1, 1])
    assert federation.learn().forgotten == ("a2",)


def test_forgetting_a_record_twice_is_forgetting_it_once():
    federation = coins().learn().forget(records={"a3": [1]})
    once = federation.posterior
    assert federation.forget(records={"a3": [1]}).posterior == once
    assert federation.forget(records={"a3": [1, 2]}).posterior != once


def test_learning_stops_at_the_given_limit():
    federation = coins().learn(iterations=0)
    assert len(federation.history) == 0
    assert len(federation.learn(iterations=7).history) == 7
    with pytest.raises(ConfigError, match="iterations = -1"):
        federation.learn(iterations=-1)
    with pytest.raises(SolverError, match="not done after 2 iterations"):
        coins(graphs.path(4)).learn(max_iterations=2)


def test_noise_that_never_settles_is_reported():
    solver = NaturalGradient("reinforce", rho=0.05)
    shards = [np.random.default_rng(k).exponential(0.4, 20) for k in range(3)]
    federation = Federation(BetaExponential(a=6, b=4), shards, "ring", solver=solver)
    with pytest.raises(SolverError, match=r"did not converge.*moved the posterior by KL"):
        federation.learn(tol=1e-12, max_iterations=60)


# ---------------------------------------------------------------------------- what can be read


def test_before_anything_happened_the_posterior_is_the_prior():
    federation = coins()
    assert federation.posterior == MODEL.posterior(MODEL.eta0)
    assert federation.included == federation.forgotten == ()
    assert federation.influence() == {}
    assert not federation.factor("a1").any()
    assert repr(federation.history) == "History(nothing has happened yet)"


def test_one_agent_alone():
    federation = Federation(MODEL, [[1, 1, 0]], "complete").learn()
    assert federation.posterior.params == {"a": 4.0, "b": 3.0}
    assert federation.audit().attested == ("a1",)
    federation.forget("a1")
    assert federation.posterior == MODEL.posterior(MODEL.eta0)


def test_influence_is_the_kl_with_and_without_each_agent():
    federation = coins().learn()
    whole = federation.posterior
    found = federation.influence()
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert set(found) == set(COINS)
    for name, value in found.items():
        others = {other: rows for other, rows in COINS.items() if other != name}
        without = Federation(MODEL, others, "complete").learn().posterior
        assert value == pytest.approx(whole.kl(without), rel=1e-12)


def test_audit_attests_the_sum_and_lets_the_walk_go_on():
    federation = coins().learn().forget("a4")
    audit = federation.audit()
    assert audit.digest == federation.posterior.digest
    assert audit.attested == ("a1", "a2", "a3", "a4")
    assert audit.included == ("a1", "a2", "a3")
    assert audit.iterations > 0
    steps = len(federation.history)
    assert federation.learn(iterations=5).posterior.digest == audit.digest
    assert len(federation.history) == steps + 5
    assert federation.audit().digest == audit.digest


def test_history_is_a_tidy_table(tmp_path):
    federation = coins(seed=3).learn().forget("a2")
    table = federation.history.columns()
    assert list(table) == [
        "iteration",
        "epoch",
        "agent",
        "action",
        "included",
        "digest",
        "theta_mean",
        "theta_sd",
    ]
    n = len(federation.history)
    assert table["iteration"] == list(range(1, n + 1))
    assert table["action"][0] == "learn"
    assert table["action"][-1] == "forget"
    assert table["agent"][-1] == "a2"
    assert table["action"].count("learn") == 4
    assert set(table["action"]) <= {"learn", "pass", "forget"}
    assert table["included"][-1] == 3
    assert table["digest"][-1] == federation.posterior.digest
    assert table["theta_mean"][-1] == pytest.approx(federation.posterior.mean())
    assert table["theta_sd"][-1] == pytest.approx(federation.posterior.sd())
    path = federation.history.to_csv(tmp_path / "history.csv")
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == list(table)
    assert [row[2] for row in rows] == table["agent"]
    frame = federation.history.to_pandas()
    assert list(frame.columns) == list(table)
    assert frame["theta_sd"].to_list() == table["theta_sd"]


def test_history_of_several_quantities():
    federation = Federation(NormalUnknown(), [[0.1, 0.9], [1.2, 0.4]], "ring").learn()
    table = federation.history.columns()
    for marginal, mean in zip(
        federation.posterior.marginals, federation.posterior.mean(), strict=True
    ):
        assert table[f"{marginal.name}_mean"][-1] == pytest.approx(mean)
    assert all(len(column) == len(federation.history) for column in table.values())


def test_seek_is_the_shortest_path_and_walk_keeps_to_the_schedule():
    graph = graphs.path(9)
    shards = [[1, 0]] * 9
    away = {}
    for way in ("seek", "walk"):
        federation = Federation(MODEL, shards, graph, seed=4, forget=way).learn()
        here = federation.history[-1].agent
        federation.forget("a1")
        away[way] = federation.erasures[-1].iterations
        if way == "seek":  # the token may have left already: one hop more at most
            assert away[way] <= graph.distances("a1")[graph.index(here)] + 2
    assert away["seek"] < away["walk"]


def test_the_same_seed_tells_the_same_story():
    one, two = (coins(seed=8).learn().forget("a3") for _ in range(2))
    assert [s[:5] for s in one.history] == [s[:5] for s in two.history]
    other = coins(seed=9).learn()
    assert [s.agent for s in other.history] != [s.agent for s in one.history]


# --------------------------------------------------------------------- models that are not exact


def exponentials(strange=0.4, n=30, **settings):
    """Four agents alike, and a5, whose records have another mean."""
    rng = np.random.default_rng(0)
    shards = [rng.exponential(0.4, n) for _ in range(4)] + [rng.exponential(strange, n)]
    return shards, Federation(BetaExponential(a=3, b=3), shards, "complete", **settings)


def best(model, shards):
    """The best q for these records, from all of them at once."""
    data = [model.summary(model.shard(rows, "all")) for rows in shards]
    return optimum(model, model.combine(np.array(data)))


def test_subtracting_leaves_a_residual_and_refining_removes_it():
    shards, federation = exponentials(strange=0.08, retrain_above=math.inf)
    model = federation.model
    federation.learn()
    target, before = best(model, shards[:4]), len(federation.history)
    federation.forget("a5", method="subtract")
    erasure = federation.erasures[-1]
    assert (erasure.kind, erasure.agents) == ("subtracted", ("a5",))
    residual = float(model.family.kl(federation.posterior.eta, target))
    federation.refine(tol=1e-10)
    assert federation.erasures[-1].kind == "refined"
    assert federation.erasures[-1].iterations == len(federation.history) - before
    left = float(model.family.kl(federation.posterior.eta, target))
    assert residual > 1e-3
    assert left < 1e-7
    assert federation.audit().included == ("a1", "a2", "a3", "a4")


def test_a_large_removal_makes_everybody_start_from_zero():
    shards, federation = exponentials(strange=0.08, retrain_above=1e-6)
    before = len(federation.learn().history)
    federation.forget("a5")
    assert federation.erasures[-1].kind == "retrained"
    assert federation.erasures[-1].iterations == len(federation.history) - before
    target = best(federation.model, shards[:4])
    assert float(federation.model.family.kl(federation.posterior.eta, target)) < 1e-4
    assert federation.included == ("a1", "a2", "a3", "a4")
    federation.refine(tol=1e-10)
    assert federation.erasures[-1].kind == "retrained"
    assert float(federation.model.family.kl(federation.posterior.eta, target)) < 1e-7


def test_refining_counts_for_every_erasure_that_was_only_subtracted():
    _, federation = exponentials(retrain_above=math.inf)
    federation.learn().forget("a5", method="subtract")
    federation.forget(records={"a2": range(5)}, method="subtract")
    own = [e.iterations for e in federation.erasures]
    before = len(federation.history)
    took = len(federation.refine().history) - before
    assert [(e.kind, e.iterations) for e in federation.erasures] == [
        ("refined", n + took) for n in own
    ]
    again = federation.refine().erasures
    assert [e.iterations for e in again] == [n + took for n in own]


@pytest.mark.parametrize("schedule", ["sweep", "metropolis"])
@pytest.mark.parametrize("graph", ["path", "star", "complete"])
def test_an_agent_solves_once_per_pass(graph, schedule):
    """Between two solves of an agent everybody else has solved; the others are only relays."""
    shards = [np.random.default_rng(k).exponential(0.4, 20) for k in range(5)]
    solver = NaturalGradient("loo", rho=0.1)  # noisy: each solve moves the factor
    settings = {"solver": solver, "seed": 3}
    federation = Federation(BetaExponential(a=6, b=4), shards, graph, schedule, **settings)
    federation.learn(iterations=300)
    solves = [step.agent for step in federation.history if step.action != "pass"]
    assert len(solves) > 10
    for i in range(0, len(solves) - 4, 5):
        assert len(set(solves[i : i + 5])) == 5
    every = Federation(
        BetaExponential(a=6, b=4), shards, graph, schedule, solve="visit", **settings
    ).learn(iterations=60)
    assert all(step.action != "pass" for step in every.history)


@pytest.mark.parametrize("graph", ["path", "complete"])
def test_convergence_is_judged_by_a_pass_in_which_everybody_solved(graph):
    """Wherever the walk stands when refining begins, relays do not count as solves."""
    shards, model = [np.full(30, mean) for mean in (0.2, 0.5, 0.3)], BetaExponential(a=3, b=3)
    target = best(model, shards)
    for iterations in range(3, 12):
        federation = Federation(model, shards, graph, seed=2, solver=NaturalGradient(steps=1))
        federation.learn(iterations=iterations)
        federation.learn(tol=1e-12)
        assert float(model.family.kl(federation.posterior.eta, target)) < 1e-8


def test_sweep_is_the_default():
    assert [s[:3] for s in coins(seed=3).learn().history] == [
        s[:3] for s in coins(seed=3, schedule="sweep").learn().history
    ]


def test_records_are_refined_too():
    shards, federation = exponentials()
    federation.learn().forget(records={"a2": range(20)}).refine(tol=1e-10)
    left = [*shards[:1], shards[1][20:], *shards[2:]]
    target = best(federation.model, left)
    assert float(federation.model.family.kl(federation.posterior.eta, target)) < 1e-7


def test_an_agent_without_remaining_records_is_not_waited_for():
    for model, rows in ((MODEL, [[1, 0], [1]]), (BetaExponential(), [[0.3, 0.2], [0.4]])):
        federation = Federation(model, rows, "ring").learn().forget(records={"a2": [0]})
        federation.learn().refine(tol=1e-12)
        alone = Federation(model, rows[:1], "complete").learn(tol=1e-12)
        assert not federation.factor("a2").any()
        np.testing.assert_allclose(federation.posterior.eta, alone.posterior.eta, rtol=1e-6)


def test_refining_an_exact_model_is_nothing_to_do():
    federation = coins().learn().forget("a1")
    steps = len(federation.history)
    assert len(federation.refine().history) == steps
    assert federation.erasures[-1].kind == "exact"


# ------------------------------------------------------------------------------------ progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_for_people(monkeypatch):
    """Quiet into a file or a pipe; in a terminal only when the work takes a while."""
    monkeypatch.setattr(progress_module, "_AFTER", -1.0)
    for stream, wanted, shown in (
        (io.StringIO(), None, False),
        (Terminal(), None, True),
        (Terminal(), False, False),
        (io.StringIO(), True, True),
    ):
        monkeypatch.setattr(sys, "stderr", stream)
        coins().learn(iterations=3, progress=wanted)
        assert bool(stream.getvalue()) is shown
    monkeypatch.setattr(progress_module, "_AFTER", 1e9)
    monkeypatch.setattr(sys, "stderr", Terminal())
    coins().learn(iterations=3)
    assert sys.stderr.getvalue() == ""


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("auto", "refined"),
        ("subtract", "subtracted"),
        ("refine", "refined"),
        ("retrain", "retrained"),
    ],
)
def test_the_method_of_forgetting(method, kind):
    shards, federation = exponentials()
    federation.learn(tol=1e-10).forget("a5", method=method, tol=1e-10)
    assert federation.erasures[-1].kind == kind
    target = best(federation.model, shards[:4])
    far = float(federation.model.family.kl(federation.posterior.eta, target))
    assert far > 1e-7 if method == "subtract" else far < 1e-7
    federation.forget(records={"a1": [0]})  # the agents' own threshold holds again
    assert federation.erasures[-1].kind == "refined"


def test_forgetting_before_learning_learns_nothing():
    _, federation = exponentials()
    federation.forget("a5")
    assert federation.erasures[-1].kind == "subtracted"
    assert len(federation.included) < 4
    with pytest.raises(ConfigError, match=r"method = 'burn'.*auto, subtract"):
        federation.forget("a1", method="burn")
