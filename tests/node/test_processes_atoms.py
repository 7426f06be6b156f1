"""Atoms between real agents: forgetting leaves the bits of a network that never had the data."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.support.processes import Processes, erase

from unweave import Federation
from unweave.keys import verifier
from unweave.manifest import Manifest, load
from unweave.models import BetaExponentialAtoms, Weibull
from unweave.node.compute import DataWorker
from unweave.node.data.private import DataSource, PrivateData
from unweave.protocol.certificate.verify import verify
from unweave.solvers import default_solver


def in_memory(net: Processes, gone: list[str]) -> str:
    """The digest of another network, in memory, on the remaining records."""
    data = {
        name: np.array([value for key, value in rows.items() if key not in gone])
        for name, rows in net.rows.items()
        if name not in net.out
    }
    return Federation(net.model, data, "complete").learn().posterior.digest


@pytest.mark.parametrize(
    "model", [BetaExponentialAtoms(), Weibull(atoms=256, stages=5)], ids=lambda model: model.name
)
def test_real_agents_forget_exactly_and_certify_it(tmp_path, model):
    def draw(rng, n):
        return rng.exponential(0.4, n)

    with Processes(tmp_path / "net", agents=3, rows=20, model=model, draw=draw) as net:
        net.start()
        assert net.settled() == {in_memory(net, [])}
        report = net.ask("a1", "posterior")["posterior"]
        assert report["state"] == "complete"
        assert [row["name"] for row in report["marginals"]] == list(model.quantities)

        gone = list(net.rows["a1"])[:3]
        erase(net, "a1", gone)
        certificate = erase(net, "a3")
        assert net.settled() == {in_memory(net, gone)}

        manifest = load(net.root / "network.toml")
        account = verify(
            json.dumps(certificate).encode(), manifest.terms(), verifier(manifest.pems())
        )
        assert {e.kind for e in account.erasures} == {"exact"}
        assert account.converged
        if model.settles:
            assert account.estimate is not None
            assert account.estimate["kl_to_optimum"] < 1e-3
            assert account.estimate["stages"] >= 2


def test_an_agent_drops_posteriors_of_erased_records_from_its_memory(tmp_path):
    model = BetaExponentialAtoms(atoms=64)
    (tmp_path / "data.csv").write_text("z\n0.2\n0.4\n")
    terms = Manifest.make(name="n", model=model, agents=1).terms()
    data = PrivateData(tmp_path, DataSource(path="data.csv"), model, "a1", b"s" * 32)
    worker = DataWorker(model, default_solver(model), data, terms)
    _ = model.posterior(data.factor()).mean()
    assert model.family._clouds
    worker.let_go(whole=False)
    assert not model.family._clouds
