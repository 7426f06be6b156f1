"""A model that is not conjugate: real agents converge, forget and certify what they earned."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.support.processes import Processes, erase

from unweave import Federation
from unweave.keys import verifier
from unweave.manifest import load
from unweave.models import BetaExponential
from unweave.protocol.certificate.verify import verify


def moments(net: Processes, name: str) -> tuple[float, float]:
    report = net.ask(name, "posterior")["posterior"]
    assert report["state"] == "complete"
    (row,) = report["marginals"]
    return row["mean"], row["sd"]


def in_memory(net: Processes, gone: list[str]) -> tuple[float, float]:
    data = {
        name: np.array([value for key, value in rows.items() if key not in gone])
        for name, rows in net.rows.items()
        if name not in net.out
    }
    posterior = Federation(net.model, data, "complete").learn().refine().posterior
    return float(np.ravel(posterior.mean())[0]), float(np.ravel(posterior.sd())[0])


def test_learn_forget_and_certify(tmp_path):
    def draw(rng, n):
        return rng.exponential(1.5, n)

    model = BetaExponential()
    with Processes(tmp_path / "net", agents=4, rows=12, model=model, draw=draw) as net:
        net.start()
        assert len(net.settled()) == 1
        assert moments(net, "a1") == pytest.approx(in_memory(net, []), rel=0.02)

        gone = list(net.rows["a1"])[:3]
        erase(net, "a1", gone)
        net.kill("a2")
        net.start("a2")
        certificate = erase(net, "a4")
        assert len(net.settled()) == 1
        for name in ("a1", "a4"):  # who is erased relays, and knows the result like everybody
            assert moments(net, name) == pytest.approx(in_memory(net, gone), rel=0.02)

        manifest = load(net.root / "network.toml")
        account = verify(
            json.dumps(certificate).encode(), manifest.terms(), verifier(manifest.pems())
        )
        assert {e.kind for e in account.erasures} <= {"refined", "retrained"}
        assert account.included == ("a1", "a2", "a3")
        assert account.converged
        assert account.estimate is not None
        assert account.estimate["kl_to_optimum"] < 1e-2
