"""What an agent tells its operator speaks of the model's own quantities."""

from types import SimpleNamespace

from unweave.cli.posterior import _show
from unweave.manifest import Manifest
from unweave.models import BetaExponential, LinearRegressionUnknownNoise
from unweave.node.api.report import posterior_report
from unweave.protocol.state import State
from unweave.protocol.token import Tomb
from unweave.simulator.faults import RandomFaults
from unweave.simulator.run import draw_shards
from unweave.simulator.session import NO_FAULTS
from unweave.simulator.world import World
from unweave.solvers import default_solver
from unweave.solvers.worker import ModelWorker


def test_coefficients_have_their_features_names():
    model = LinearRegressionUnknownNoise(features=["dose", "age"], target="effect", intercept=True)
    terms = Manifest.make(name="n", model=model, agents=2, graph="path").terms()
    shards = draw_shards(model, terms.topology.agents, 1)
    workers = [ModelWorker(model, default_solver(model), shard, terms.seed) for shard in shards]
    world = World(terms, workers, seed=1, faults=RandomFaults(NO_FAULTS, 2, 1), observers=[])
    for k in range(2):
        world.start_agent(k)
    for _ in range(500):
        world.step()
    report = posterior_report(
        SimpleNamespace(state=world.state(0), terms=terms, model=model, mechanism=None)
    )
    assert report["state"] == "complete"
    names = [row["name"] for row in report["marginals"]]
    assert names[:3] == ["intercept", "dose", "age"]

    printed = []
    _show(SimpleNamespace(print=lambda what, **_: printed.append(what)), report)
    (names_column, *_) = printed[0].columns
    assert list(names_column.cells)[:3] == ["intercept", "dose", "age"]


def test_a_model_that_is_still_fitting_says_so():
    """Complete, but other numbers at the next pass: whoever asks must not take them for the end."""
    model = BetaExponential()
    terms = Manifest.make(name="n", model=model, agents=3, graph="path").terms()
    assert not terms.conjugate
    shards = draw_shards(model, terms.topology.agents, 1)
    workers = [ModelWorker(model, default_solver(model), shard, terms.seed) for shard in shards]
    world = World(terms, workers, seed=1, faults=RandomFaults(NO_FAULTS, 3, 1), observers=[])
    for k in range(3):
        world.start_agent(k)
    node = SimpleNamespace(state=None, terms=terms, model=model, mechanism=None)
    passes, digests = [], []
    for _ in range(5000):
        world.step()
        node.state = world.state(0)
        report = posterior_report(node)
        if report["state"] == "complete":
            passes.append(report["fitting"])
            digests.append(report["digest"])
            if report["fitting"] is None:
                break
    assert passes[-1] is None
    assert passes[0] is not None
    assert len(set(digests)) > 1
    assert digests[-1] != digests[0]
    for fitting in (2, None):
        printed = []
        _show(
            SimpleNamespace(print=lambda what, **_: printed.append(what)),  # noqa: B023
            report | {"fitting": fitting},
        )
        assert any("pass 2" in str(line) for line in printed) is (fitting == 2)


def test_who_was_voted_out_has_no_posterior_to_wait_for():
    terms = Manifest.make(name="n", model=BetaExponential(), agents=3, graph="path").terms()
    state = State(terms, 1)
    state.known.tombs = {1: Tomb(departed=True)}
    report = posterior_report(SimpleNamespace(state=state, terms=terms))
    assert report["state"] == "departed"
    assert "declared departed by a quorum" in report["why"]
