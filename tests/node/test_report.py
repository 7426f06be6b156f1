"""What an agent tells its operator speaks of the model's own quantities."""

from types import SimpleNamespace

from unweave.cli.posterior import _show
from unweave.manifest import Manifest
from unweave.models import LinearRegressionUnknownNoise
from unweave.node.report import posterior_report
from unweave.simulate.faults import Storm
from unweave.simulate.rehearsal import CLEAR, draw_shards
from unweave.simulate.worker import ModelWorker
from unweave.simulate.world import World
from unweave.solvers import default_solver


def test_coefficients_have_their_features_names():
    model = LinearRegressionUnknownNoise(features=["dose", "age"], target="effect", intercept=True)
    terms = Manifest.make(name="n", model=model, agents=2, graph="path").terms()
    shards = draw_shards(model, terms.topology.agents, 1)
    workers = [ModelWorker(model, default_solver(model), shard, terms.seed) for shard in shards]
    world = World(terms, workers, seed=1, weather=Storm(CLEAR, 2, 1), observers=[])
    for k in range(2):
        world.boot(k)
    for _ in range(500):
        world.step()
    report = posterior_report(SimpleNamespace(state=world.state(0), terms=terms, model=model))
    assert report["state"] == "complete"
    names = [row["name"] for row in report["marginals"]]
    assert names[:3] == ["intercept", "dose", "age"]

    printed = []
    _show(SimpleNamespace(print=lambda what, **_: printed.append(what)), report)
    (names_column, *_) = printed[0].columns
    assert list(names_column.cells)[:3] == ["intercept", "dose", "age"]
