"""Logistic regression between real agents: it learns by name, by the manifest's solver, forgets and
certifies, and small shards need the consent of all."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from tests.support.glm import CASES, central_optimum, gaussian_kl
from tests.support.processes import Processes, erase

from unweave.errors import UnweaveError
from unweave.keys import verifier
from unweave.manifest import load
from unweave.models import LogisticRegression
from unweave.operations.preflight import check_folder
from unweave.operations.status import concerns
from unweave.protocol.certificate.verify import verify

CASE = CASES["logistic-regression"]


def write(net: Processes, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Replace the data of all agents."""
    parts = dict(zip(net.names, np.array_split(rows, len(net.names)), strict=True))
    for name, part in parts.items():
        with (net.folder(name) / "data.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *CASE.model.columns])
            writer.writerows([f"{name}-{i}", *row] for i, row in enumerate(part.tolist()))
    return parts


def distance(net: Processes, name: str, rows: np.ndarray) -> float:
    """KL from the agent's posterior to the central optimum of these records."""
    report = net.ask(name, "posterior")["posterior"]
    assert report["state"] == "complete"
    x, y = CASE.design(rows)
    best = central_optimum(x, y, CASE.loss)
    means = np.array([row["mean"] for row in report["marginals"]])
    sds = np.array([row["sd"] for row in report["marginals"]])
    assert sds == pytest.approx(np.sqrt(np.diag(best.cov)), rel=0.02)
    return gaussian_kl(means, best.cov, best)


@pytest.mark.parametrize(
    ("privacy", "solver"),
    [("plain", {"name": "vi", "steps": 8, "tol": 1e-6}), ("masked", {"tol": 1e-6})],
)
def test_agents_learn_forget_and_certify_a_glm(
    tmp_path: Path, privacy: str, solver: dict[str, object]
) -> None:
    more = {"privacy": privacy, "solver": solver}
    with Processes(tmp_path / "net", agents=4, model=CASE.model, rows=0, **more) as net:
        rows = CASE.rows(160, 1)
        parts = write(net, rows)
        net.start()
        assert len(net.settled()) == 1
        assert distance(net, "a1", rows) < 1e-4
        certificate = erase(net, "a4")
        assert len(net.settled()) == 1
        rest = np.concatenate([parts[name] for name in ("a1", "a2", "a3")])
        assert distance(net, "a2", rest) < 1e-4
        manifest = load(net.root / "network.toml")
        assert manifest.solver.tol == 1e-6
        raw = json.dumps(certificate).encode()
        account = verify(raw, manifest.terms(), verifier(manifest.pems()))
        assert account.converged
        assert account.estimate is not None
        assert account.estimate["kl_to_optimum"] < 1e-4
        assert account.estimate["accuracy"].startswith("typically within 3×")


def test_separated_classes_with_a_flat_prior_are_told(tmp_path: Path) -> None:
    """By `check` before the agents run, by each agent's log, and by `status` if it is so at all."""
    model = LogisticRegression(features=3, intercept=True, sd=100.0)
    solver = {"name": "vi", "tol": 1e-2}
    with Processes(tmp_path / "net", agents=3, model=model, solver=solver, rows=0) as net:
        rows = CASE.rows(60, 1)
        rows[:, 3] = rows[:, 0] > 0
        write(net, rows)
        before = [r["warning"] for r in check_folder(net.root, print) if r["what"] == "data"]
        assert len(before) == 3
        assert all("separate the classes" in text and "other agents" in text for text in before)
        net.start()
        assert len(net.settled()) == 1
        (said,) = concerns(net.statuses())
        assert said.startswith("logistic-regression: the features separate the classes")
        assert "at all agents here" in said
        assert "the own records alone decide little" in net.log("a1")
    # One record of one agent on the wrong side is enough.
    statuses = {"a1": {"revision": 1, "concern": said}, "a2": {"revision": 2, "concern": None}}
    assert concerns(statuses) == []


def test_small_shards_need_the_consent_of_all(tmp_path: Path) -> None:
    model = LogisticRegression(features=3, intercept=True)
    for number, (consent, starts) in enumerate(
        (({}, False), ({"small_shards": "neighbours can reconstruct records"}, True))
    ):
        root = tmp_path / f"net{number}"
        with Processes(root, agents=2, graph="complete", model=model, rows=0, **consent) as net:
            write(net, CASE.rows(2 * 8, 3))
            for name in net.names:
                toml = net.folder(name) / "agent.toml"
                toml.write_text(toml.read_text().replace("min_records = 10", "min_records = 1"))
            if starts:
                net.start()
                assert len(net.settled()) == 1
            else:
                with pytest.raises((UnweaveError, AssertionError), match="reconstruct"):
                    net.start()
