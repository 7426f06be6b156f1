"""`unweave evaluate`: a table, JSON and a figure; every model; wrong inputs are named."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from tests.support.commands import run_command as unweave

from unweave.cli.simulate import shards_of
from unweave.experiments.evaluation import methods
from unweave.models import Model, Shard, by_name, names
from unweave.models.columns import Column

MANIFEST = """name = "clinics"
graph = "ring"
agents = 4
[model]
name = "beta-exponential"
"""


@pytest.fixture
def network(tmp_path):
    (tmp_path / "network.toml").write_text(MANIFEST)
    return tmp_path


@pytest.mark.parametrize("option", ["--out", "--plot"])
def test_a_file_that_cannot_be_written_is_refused_before_the_work(network, option, monkeypatch):
    def work(*_: Any) -> Any:
        raise AssertionError("the work has begun")

    monkeypatch.setattr(methods, "compare", work)
    done = unweave("evaluate", network, option, network / "none" / "x")
    assert done.code == 2
    assert "its folder does not exist. Fix: create it, or name another" in done.err


def test_a_report_has_all_methods_and_a_figure(network):
    shown = unweave("evaluate", network, "--records", "a1:0,3", "--sequence", "2",
                    "--membership", "12", "--plot", network / "f.png",
                    "--out", network / "report.json")  # fmt: skip
    assert shown.code == 0, shown.err
    for word in ("subtract", "refine", "retrain", "Membership attack", "After 2 erasures"):
        assert word in shown.out
    report = json.loads((network / "report.json").read_text())
    assert report["forgotten"] == {"agents": [], "records": {"a1": 2}}
    assert [one["method"] for one in report["methods"]] == ["subtract", "refine", "retrain"]
    assert (network / "f.png").read_bytes().startswith(b"\x89PNG")
    again = unweave("evaluate", network / "network.toml", "--json")
    found = json.loads(again.out)
    assert len(found["forgotten"]["agents"]) == 1  # the most influential agent
    assert found["held_out"] == 80


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (("--records", "a1"), "no rows. Fix: write NAME:0,4,7"),
        (("--records", "a1:x"), "no rows. Fix"),
        (("--records", "a1:99999"), "does not exist"),
        (("--agent", "nobody"), "nobody"),
        (("--held-out", "1"), "Fix: a share"),
        (("--membership", "3"), "at least 12"),
    ],
)
def test_wrong_inputs_are_named(network, wrong, told):
    shown = unweave("evaluate", network, *wrong)
    assert shown.code == 2 or shown.code == 1
    assert told in shown.err


AGENTS = ("a1", "a2", "a3", "a4")
WARDS = ["north", "south", "icu"]
FEATURES = {
    "features": ["age", "ward"],
    "levels": {"ward": WARDS},
    "intercept": True,
    "target": "y",
    "center": {"age": 50.0},
    "scale": {"age": 10.0},
}
RATES = {**FEATURES, "exposure": "days"}
SETTINGS: dict[str, dict[str, Any]] = {
    "beta-binomial": {"trials": 5},
    "dirichlet-categorical": {"classes": WARDS},
    "dirichlet-multinomial": {"classes": 3},
    "gamma-events": {"scale": {"exposure": 10.0}},
    "gamma-exponential": {"scale": {"x": 10.0}},
    "grouped": {
        "groups": WARDS,
        "by": "ward",
        "each": {"name": "normal-known-variance", "center": {"x": 50.0}, "scale": {"x": 10.0}},
    },
    "linear-regression": FEATURES,
    "linear-regression-unknown-noise": FEATURES,
    "logistic-regression": FEATURES,
    "multivariate-normal": {
        "dim": ["x1", "x2"],
        "center": {"x1": 50.0, "x2": 50.0},
        "scale": {"x1": 10.0, "x2": 10.0},
    },
    "negative-binomial-regression": {**RATES, "shape": 2.0},
    "normal-known-variance": {"center": {"x": 50.0}, "scale": {"x": 10.0}},
    "normal-unknown": {"center": {"x": 50.0}, "scale": {"x": 10.0}},
    "poisson-regression": RATES,
    "probit-regression": FEATURES,
    "robust-regression": FEATURES,
    "softmax-regression": {**FEATURES, "classes": 3},
    "student-t": {"loc": 50.0, "loc_sd": 3.0, "scale": 8.0, "scale_sd": 0.3, "df_sd": 0.3},
}


def cells(column: Column, rng: np.random.Generator, rows: int) -> Any:
    """Values of a column in the user's units, with texts where the model codes texts."""
    if column.codes:
        return rng.choice([text for text, _ in column.codes], rows)
    if column.whole:
        return rng.integers(int(column.low), int(min(column.high, column.low + 4)) + 1, rows)
    if column.low == 0.0:
        return rng.exponential(0.4, rows) + 0.01
    return rng.normal(50.0, 8.0, rows)


def write_network(folder: Path, model: Model, rows: int = 10) -> None:
    """A manifest of a masked network with a CSV file for each agent."""
    rng = np.random.default_rng(7)
    for name in AGENTS:
        table = {column.given: cells(column, rng, rows) for column in model.schema}
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(table)
            writer.writerows(zip(*table.values(), strict=True))
    manifest = {
        "name": "clinics",
        "graph": "ring",
        "model": {"name": model.name, **model.settings()},
        "privacy": {"mode": "masked"},
        "agents": [{"name": name, "data": f"{name}.csv"} for name in AGENTS],
    }
    (folder / "network.toml").write_text(tomli_w.dumps(manifest))


@pytest.mark.parametrize("name", names())
def test_every_model_is_evaluated(tmp_path: Path, name: str) -> None:
    """With scales, centers, levels and exposures in the user's units, of a masked network."""
    model = by_name(name, **SETTINGS.get(name, {}))
    write_network(tmp_path, model)
    done = unweave("evaluate", tmp_path, "--agent", "a2", "--json")
    assert done.code == 0, done.err
    found = done.json
    assert (found["mode"], found["privacy"]) == ("plain", "masked")
    assert found["held_out"] == 8
    exact = model.conjugate or model.settles
    methods = {one["method"]: one for one in found["methods"]}
    assert list(methods) == (["exact", "retrain"] if exact else ["subtract", "refine", "retrain"])
    for one in methods.values():
        assert np.isfinite([one["nll"], one["prediction_change"]]).all()
    assert methods["retrain"]["kl_to_reference"] < 1e-4
    assert methods["exact" if exact else "refine"]["kl_to_reference"] < 1e-4


def test_the_report_says_in_which_mode(tmp_path: Path) -> None:
    write_network(tmp_path, by_name("beta-bernoulli"))
    assert "in plain mode; the network is masked" in unweave("evaluate", tmp_path).out


def test_an_agent_that_was_forgotten_passes_the_token_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(*args: Any) -> Any:
        shards, *rest = shards_of(*args)
        return [shards[0], Shard("a2", shards[1].rows[:0].copy()), *shards[2:]], *rest

    monkeypatch.setattr(sys.modules["unweave.cli.evaluate"], "shards_of", without)
    for name in ("beta-bernoulli", "logistic-regression"):
        write_network(tmp_path, by_name(name, **SETTINGS.get(name, {})))
        words = ("evaluate", tmp_path, "--membership", "12", "--sequence", "1")
        done = unweave(*words, "--json")
        assert done.code == 0, done.out
        assert done.json["forgotten"]["agents"] != ["a2"]
        for wrong in (("--agent", "a2"), ("--records", "a2:0")):
            done = unweave(*words, *wrong)
            assert done.code == 2
            assert "agent a2: it has no records" in done.err


def test_rows_have_the_numbers_of_the_file(tmp_path: Path) -> None:
    """The records to forget are not held out, and count in the data as they are."""
    write_network(tmp_path, by_name("beta-bernoulli", a=2, b=2))
    for name in AGENTS:  # one record of a1 is 1, all others are 0
        bits = [str(int(name == "a1" and row == 9)) for row in range(10)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["x", *bits]) + "\n")
    for seed in range(4):
        words = ("--records", "a1:9", "--held-out", "0.5", "--seed", seed, "--json")
        found = unweave("evaluate", tmp_path, *words).json
        zeros = 40 - 1 - found["held_out"]  # learned, after a Beta(2, 2)
        nll = -np.log((zeros + 2) / (zeros + 4))  # of nothing but zeros
        assert found["methods"][0]["nll"] == pytest.approx(nll)
