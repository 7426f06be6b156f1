"""What a newcomer passes: what is meant is accepted, anything else is refused where it is given."""

import networkx
import numpy as np
import pandas
import pytest

from unweave import (
    BetaBernoulli,
    BetaExponential,
    Federation,
    GammaPoisson,
    LinearRegression,
    NaturalGradient,
    NormalUnknown,
    Topology,
    UnweaveError,
    graphs,
    partition,
    simulate,
    solvers,
)
from unweave.errors import ConfigError, DataError, GraphError, GridOverflow
from unweave.experiments.replicas import PerReplica
from unweave.families import Beta, DiagonalNormal
from unweave.models import LogisticRegression, Weibull

COINS = [[0, 1, 1], [1, 0], [1, 1, 0]]
NAMED = {"a1": [0, 1, 1], "a2": [1, 0], "a3": [1, 1, 0]}
MODEL = BetaBernoulli()
LINE = LinearRegression(2).posterior(LinearRegression(2).eta0)
EXPECTED = Federation(MODEL, COINS, "ring").learn().posterior


def network(**settings):
    return Federation(MODEL, COINS, "ring", **settings)


CYCLE = networkx.cycle_graph(3)
PAIRS = [("a1", "a2"), ("a2", "a3")]


@pytest.mark.parametrize(
    "graph",
    [
        "ring",
        CYCLE,
        PAIRS,
        [(0, 1), (1, 2)],
        np.array([(0, 1), (1, 2)]),
        {"a1": ["a2"], "a2": ["a3"]},
        {"a1": "a2", "a2": ("a3",)},
        iter(PAIRS),
    ],
    ids=lambda graph: type(graph).__name__,
)
def test_graphs_are_accepted_as_people_have_them(graph):
    assert Federation(MODEL, COINS, graph).learn().posterior == EXPECTED


def test_edges_name_agents_or_count_them():
    assert Federation(MODEL, COINS, [("x", "y"), ("y", "z")]).agents == ("x", "y", "z")
    assert Federation(MODEL, COINS, [(0, 1), (1, 2)]).agents == ("a1", "a2", "a3")
    numbered = dict(zip((1, 2, 3), COINS, strict=True))
    federation = Federation(MODEL, numbered, [(1, 2), (2, 3)])
    assert federation.agents == ("1", "2", "3")
    assert federation.graph.edges == (("1", "2"), ("2", "3"))
    renamed = networkx.relabel_nodes(CYCLE, {0: "a1", 1: "a2", 2: "a3"})
    assert Federation(MODEL, NAMED, renamed).graph == graphs.ring(3)


def test_models_by_name_solvers_by_estimator_and_numpy_numbers():
    assert Federation("beta-bernoulli", COINS, "ring").learn().posterior == EXPECTED
    assert Federation(MODEL, iter(COINS), "ring", seed=np.int64(3)).learn().posterior == EXPECTED
    assert Federation(MODEL, [iter(c) for c in COINS], "ring").learn().posterior == EXPECTED
    times = [[0.1, 0.3], [0.2]]
    assert Federation(BetaExponential(), times, solver="loo").solver == NaturalGradient("loo")
    assert isinstance(Federation(MODEL, COINS, solver="exact").solver, solvers.Exact)
    assert network().learn(np.int64(2)).history[-1].iteration == 2
    runs = simulate("beta-bernoulli", COINS, "ring", iterations=50, replicas=np.int32(2))
    assert runs.posterior(1) == EXPECTED
    assert simulate(MODEL, NAMED, PAIRS, iterations=50, replicas=2).posterior(0) == EXPECTED
    every = PerReplica(np.ones((2, 3, 4)))
    assert simulate(MODEL, every, "ring", iterations=5, replicas=2).topology == graphs.ring(3)
    assert network().forget(records={"a1": {0, 2}}).erasures[0].records == {"a1": 2}
    assert network().forget(["a1", "a1"]).erasures[0].agents == ("a1",)


@pytest.mark.parametrize(
    ("build", "kind", "message"),
    [
        (lambda: Federation(BetaBernoulli, COINS), ConfigError, r"write BetaBernoulli\(\)"),
        (lambda: Federation(LinearRegression, COINS), ConfigError, "LinearRegression(features=…)"),
        (lambda: Federation("beta-bernouli", COINS), ConfigError, "did you mean 'beta-bernoulli'"),
        (lambda: Federation("linear-regression", COINS), ConfigError, "missing .* 'features'"),
        (lambda: Federation(None, COINS), ConfigError, "model = None: not a model"),
        (lambda: Federation(Beta(a=1, b=1), COINS), ConfigError, "model = a Distribution"),
        (lambda: Federation(MODEL, COINS, np.ones((3, 3))), GraphError, "np.argwhere"),
        (lambda: Federation(MODEL, COINS, 3), GraphError, "graph = 3. Fix: give a name"),
        (lambda: Federation(MODEL, COINS, None), GraphError, "graph = None. Fix: give a name"),
        (lambda: Federation(MODEL, COINS, graphs.ring), GraphError, "write graphs.ring(…)"),
        (lambda: Federation(MODEL, NAMED, CYCLE), ConfigError, "not in the graph: a1, a2, a3"),
        (lambda: Topology(3, [(0, 1.5), (1, 2)]), GraphError, "Fix: give names or indices"),
        (lambda: Federation(MODEL, COINS, [("a1",)]), GraphError, "not a pair"),
        (lambda: Federation(MODEL, None), DataError, "the shards are None. Fix: give one data set"),
        (lambda: Federation(MODEL, 3), DataError, "the shards are of type int. Fix: give one"),
        (lambda: Federation(MODEL, [1, 0, 1]), DataError, "single values.*partition"),
        (lambda: Federation(MODEL, np.array(3)), DataError, "single value"),
        (lambda: Federation(MODEL, pandas.DataFrame({"x": [1]})), DataError, "one table"),
        (lambda: Federation(MODEL, {1: [1], "1": [0]}), ConfigError, "as a number and as text"),
        (lambda: Federation(MODEL, [None, [1]]), DataError, "agent 'a1': the data is None"),
        (lambda: Federation(MODEL, [{0, 1}, [1]]), DataError, "the data is of type set"),
        (lambda: Federation(GammaPoisson(), [[1], [-1]]), DataError, "row 0: the value is below 0"),
        (
            lambda: Federation(GammaPoisson(), [[1], [1e300]]),
            DataError,
            "is above 9007199254740992",
        ),
        (lambda: network(seed="x"), ConfigError, "seed = 'x'.* Fix: give a whole number"),
        (lambda: network(seed=None), ConfigError, "seed = None"),
        (lambda: network(seed=1.5), ConfigError, "seed = 1.5"),
        (lambda: network(retrain_above="x"), ConfigError, "retrain_above = 'x'"),
        (lambda: network(retrain_above=-1), ConfigError, "at least 0"),
        (lambda: network(solver=NaturalGradient), ConfigError, "the class NaturalGradient"),
        (lambda: network(solver=NaturalGradient()), ConfigError, "beta-bernoulli is conjugate"),
        (
            lambda: Federation(BetaExponential(), [[0.1]], solver=solvers.Exact()),
            ConfigError,
            "beta-exponential has no exact factor",
        ),
        (
            lambda: Federation(LogisticRegression(2), [[[0, 0, 1]]], solver="nuts"),
            ConfigError,
            r"unknown solver 'nuts'. Fix: logistic-regression takes natural-gradient, vi, ep,",
        ),
        (
            lambda: Federation(Weibull(), [[1.0]], solver="factor_cv"),
            ConfigError,
            "weibull: its factors are no natural parameters. Fix: use its own solver, 'stages'",
        ),
        (
            lambda: NaturalGradient("bogus"),
            ConfigError,
            "unknown estimator 'bogus'. Fix: choose from",
        ),
        (lambda: NaturalGradient(rho="a"), ConfigError, "rho = 'a'.* Fix: give a finite number"),
        (lambda: NaturalGradient(steps=1.5), ConfigError, "steps = 1.5.* Fix: give a whole number"),
        (lambda: network().learn(1.5), ConfigError, "iterations = 1.5"),
        (lambda: network().learn(True), ConfigError, "iterations = True"),
        (lambda: network().learn(tol=-1), ConfigError, "tol = -1.* Fix: give a finite number, at"),
        (lambda: network().learn(max_iterations=0), ConfigError, "max_iterations = 0"),
        (
            lambda: network().forget(0),
            ConfigError,
            "agents have names, not numbers. Fix: write 'a1'",
        ),
        (lambda: network().forget([1, 2]), ConfigError, "write 'a2'"),
        (lambda: network().forget(9), ConfigError, "agent 9: agents have names"),
        (
            lambda: network().forget(None),
            ConfigError,
            'agents = None: no agents. Fix: write forget("a1")',
        ),
        (
            lambda: network().forget({"a1": [0]}),
            ConfigError,
            r"write forget\(records={agent: rows}",
        ),
        (lambda: network().forget(records=[0]), ConfigError, "write records="),
        (lambda: network().forget(records={0: [1]}), ConfigError, "write 'a1'"),
        (lambda: network().update(0, [1]), ConfigError, "write 'a1'"),
        (lambda: network().factor(None), GraphError, "agent None. Fix: give its name"),
        (lambda: EXPECTED.interval("x"), ConfigError, "interval: p = 'x'"),
        (lambda: EXPECTED.sample(-1), ConfigError, "number of draws = -1"),
        (lambda: EXPECTED.sample(3, seed=None), ConfigError, "seed = None"),
        (lambda: EXPECTED.log_prob("x"), ConfigError, "theta = 'x'.* Fix: give numbers"),
        (lambda: EXPECTED.kl(3), ConfigError, "give a posterior or a distribution"),
        (lambda: EXPECTED.predict(3), ConfigError, "too many .* Fix: write predict"),
        (
            lambda: EXPECTED.predict().interval(2),
            ConfigError,
            "interval: p = 2.* Fix: give a number",
        ),
        (lambda: EXPECTED.predict().quantile(-0.1), ConfigError, "levels from 0 to 1"),
        (lambda: EXPECTED.predict().sample(2.5), ConfigError, "number of draws = 2.5"),
        (lambda: EXPECTED.predict().log_prob("x"), ConfigError, "x = 'x'.* Fix: give numbers"),
        (lambda: LINE.log_prob([1]), ConfigError, "give 2 numbers"),
        (lambda: LINE.log_prob([[1, 2, 3]]), ConfigError, "give 2 numbers"),
        (lambda: LINE.predict([[1, 2]]).interval(0), ConfigError, "interval: p = 0"),
        (lambda: LINE.predict([[1, 2]]).sample(-1), ConfigError, "number of draws = -1"),
        (
            lambda: Federation(MODEL, [np.ma.array([1, 0], mask=[0, 1]), [1]]),
            DataError,
            "agent 'a1', column 'x', row 1: the value is missing",
        ),
        (lambda: partition([1, 2, 3], {"a", "b"}), ConfigError, "agents = a set"),
        (lambda: graphs.ring({"a", "b"}), GraphError, "agents = a set"),
        (lambda: graphs.by_name(3, 3), GraphError, "graph = 3. Fix: give one of star"),
        (
            lambda: DiagonalNormal([0, 1], [1, 2, 3]),
            ConfigError,
            "shapes .* Fix: shapes that broadcast",
        ),
        (lambda: MODEL.posterior([1.5, 2.5]), ConfigError, "consists of whole numbers"),
        (lambda: simulate(MODEL, COINS, "rng"), GraphError, "did you mean 'ring'"),
        (lambda: simulate(MODEL, None, "ring"), DataError, "the shards are None"),
        (lambda: simulate(MODEL, COINS, "ring", iterations=1.5), ConfigError, "iterations = 1.5"),
        (lambda: simulate(MODEL, COINS, "ring", seed="x"), ConfigError, "seed = 'x'"),
        (lambda: simulate(MODEL, COINS, "ring", start=1.5), GraphError, "agent 1.5"),
        (lambda: simulate(MODEL, COINS, "ring", estimator="loo"), ConfigError, "leave them out"),
        (lambda: simulate(MODEL, COINS, "ring", forget=0), ConfigError, "name of an agent"),
        (
            lambda: simulate(MODEL, COINS, "ring", forget={"agent": 1}),
            ConfigError,
            "give agents, how",
        ),
        (lambda: simulate(MODEL, PerReplica("x"), "ring"), DataError, "an array of numbers"),
        (
            lambda: simulate(MODEL, COINS, "ring", iterations=2, replicas=2).posterior(2),
            ConfigError,
            "Fix: choose from 0 to 1",
        ),
        (lambda: partition([1, 2, 3], 2.5), ConfigError, "agents = 2.5 cannot be used"),
        (lambda: partition([1, 2, 3], "ab"), ConfigError, "agents = 'ab'"),
        (lambda: partition([1, 2, 3], 2, seed="x"), ConfigError, "seed = 'x'"),
        (lambda: partition("abc", 2), DataError, "cannot be split. Fix: give an array"),
        (lambda: partition({"x": [1, 2], "y": 3}, 2), DataError, "a column is a single value"),
        (lambda: graphs.ring(3.0), GraphError, "agents = 3.0"),
        (lambda: graphs.grid(6, columns="x"), ConfigError, "grid: columns = 'x'"),
        (lambda: graphs.erdos_renyi(5, "x"), ConfigError, "erdos_renyi: p = 'x'"),
        (lambda: graphs.from_edges(3), GraphError, "edges = 3"),
        (lambda: Topology(["a", "b"], None), GraphError, "edges = None"),
        (lambda: Topology("ab", [("a", "b")]), GraphError, "agents = 'ab'"),
        (lambda: Beta(a="x", b=1), ConfigError, "Beta: a = 'x'.* Fix: give numbers"),
        (lambda: Beta(a=[1, 2], b=[1, 2, 3]), ConfigError, "shapes .* Fix: shapes that broadcast"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(build, kind, message):
    with pytest.raises(kind) as caught:
        build()
    assert isinstance(caught.value, UnweaveError)
    plain = message.replace("(features=…)", r"\(features=…\)").replace("(…)", r"\(…\)")
    caught.match(plain.replace('forget("a1")', r'forget\("a1"\)'))


@pytest.mark.parametrize("seed", range(6))
def test_an_erasure_that_makes_room_is_not_refused(seed):
    """Nor while those who do not fit are visited before it."""
    shards = {name: np.full(20, 9e3) for name in ("north", "south", "west")}
    network = Federation(
        NormalUnknown(), shards, "ring", schedule="metropolis", seed=seed, forget="walk"
    )
    with pytest.raises(GridOverflow):
        network.learn()
    (alone,) = network.included
    network.forget(alone)
    assert network.forgotten == (alone,)


def test_factors_that_do_not_fit_together_are_refused_with_the_reason():
    """Each agent's sum fits the grid; a network that silently leaves some out would mislead."""
    shards = {name: np.full(20, 9e3) for name in ("north", "south", "west")}
    for learn in (lambda net: net.learn(), lambda net: net.learn(iterations=20)):
        network = Federation(NormalUnknown(), shards, "ring")
        with pytest.raises(GridOverflow, match=r"cannot be added to the others: component c leav"):
            learn(network)
        (alone,) = network.included
        network.forget(alone)  # there is room for one of the others now
        with pytest.raises(GridOverflow, match="cannot be added"):
            network.learn()
        network.forget(network.included[0])
        network.learn()
        assert len(network.included) == 1


def test_tables_may_have_more_columns_and_other_names():
    import pandas as pd

    table = {"id": ["p", "q"], "ill": ["True", "false"], 7: [1, 2]}
    plain = Federation("beta-bernoulli", [[1, 0], [0]], "path").learn()
    for form in (dict, pd.DataFrame):
        shards = [form(table), form({"note": ["-"], "ill": [False]})]
        network = Federation("beta-bernoulli", shards, "path", columns={"x": "ill"}).learn()
        assert network.posterior == plain.posterior
        network.update("a1", form({"ill": [1, 1], "id": ["r", "s"]})).learn()
        assert network.posterior == plain.update("a1", [1, 1]).learn().posterior
        plain.update("a1", [1, 0]).learn()
    wide = Federation("beta-bernoulli", [{"x": [1], "id": [5]}, {"x": [0], "w": ["-"]}], "path")
    assert wide.learn().included == ("a1", "a2")
    numbered = pd.DataFrame({0: ["-"], 1: [1]})
    assert Federation("beta-bernoulli", [numbered], columns={"x": 1}).learn().included == ("a1",)


def test_columns_that_cannot_be_meant_are_refused():
    with pytest.raises(ConfigError, match="columns names 'y', which the model does not have"):
        Federation("beta-bernoulli", [{"x": [1]}], columns={"y": "ill"})
    with pytest.raises(DataError, match=r"column 'ill' is missing; .*say columns={'x': …}"):
        Federation("beta-bernoulli", [{"x": [1]}], columns={"x": "ill"})
    with pytest.raises(DataError, match="needs data whose columns have names"):
        Federation("beta-bernoulli", [[1, 0]], columns={"x": "ill"})
