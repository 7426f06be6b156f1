"""A saved federation goes on where it was, bit for bit, and its file holds no erased record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unweave import Federation
from unweave.errors import ConfigError
from unweave.models import BetaExponential, Grouped, LogisticRegression, NormalUnknown

RNG = np.random.default_rng(4)
KINDS: dict[str, tuple[Any, list[Any]]] = {
    "conjugate": (NormalUnknown(), [RNG.normal(size=6).round(3) for _ in range(4)]),
    "groups": (
        Grouped(["a", "b"]),
        [{"group": RNG.choice(["a", "b"], 5), "x": RNG.integers(0, 2, 5)} for _ in range(4)],
    ),
    "loss": (BetaExponential(), [RNG.exponential(0.4, 5) for _ in range(4)]),
    "logistic": (
        LogisticRegression(1, intercept=True),
        [{"x1": RNG.normal(size=12), "y": RNG.integers(0, 2, 12)} for _ in range(4)],
    ),
}
OPERATIONS = ("learn", "walk", "record", "agent", "update", "audit", "refine")


def carry_out(fed: Federation, kind: str, step: tuple[str, int]) -> None:
    what, k = step
    name = f"a{k % 4 + 1}"
    if what in ("record", "agent", "update") and name in fed.forgotten:
        return
    if what == "learn":
        fed.learn()
    elif what == "walk":
        fed.learn(k + 1)
    elif what == "record":
        fed.forget(records={name: [k % 5]})
    elif what == "agent" and len(fed.forgotten) < 2:
        fed.forget(name)
    elif what == "update":
        fed.update(name, KINDS[kind][1][(k + 1) % 4])
    elif what == "audit":
        fed.audit()
    elif what == "refine" and fed.included:
        fed.refine()


steps = st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 6)), min_size=1, max_size=5)


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(before=steps, after=steps, schedule=st.sampled_from(["sweep", "metropolis"]))
def test_a_saved_federation_goes_on_bit_for_bit(
    tmp_path: Path,
    kind: str,
    before: list[tuple[str, int]],
    after: list[tuple[str, int]],
    schedule: Any,
) -> None:
    model, shards = KINDS[kind]
    fed = Federation(model, shards, "ring", schedule, seed=3)
    for step in before:
        carry_out(fed, kind, step)
    fed.save(tmp_path / "fed.json")
    again = Federation.load(tmp_path / "fed.json")
    assert again.posterior == fed.posterior
    assert (again.included, again.forgotten) == (fed.included, fed.forgotten)
    assert repr(again.erasures) == repr(fed.erasures)
    assert again.influence() == fed.influence()
    for step in after:
        carry_out(fed, kind, step)
        carry_out(again, kind, step)
        assert np.array_equal(again.units, fed.units), step
        assert all(np.array_equal(again.factor(a), fed.factor(a)) for a in fed.agents)


def test_the_file_holds_no_erased_record(tmp_path: Path) -> None:
    shards = [[1.5, 7770.777, 2.5], [8880.888, 3.5], [4.25, None, 5.25]]
    fed = Federation(NormalUnknown(scale={"x": 1e4}), shards, missing="drop").learn()
    fed.forget("a2", records={"a1": [1]})
    fed.save(tmp_path / "fed.json")
    text = (tmp_path / "fed.json").read_text()
    assert "7770" not in text
    assert "8880" not in text
    again = Federation.load(tmp_path / "fed.json")
    again.forget(records={"a3": [2]})  # rows keep the numbers of the table
    clean = Federation(NormalUnknown(scale={"x": 1e4}), [[1.5, 2.5], [4.25]]).learn()
    assert np.array_equal(again.units, clean.units)
    assert again.dropped["a3"].records == 1


def test_files_that_are_no_federation(tmp_path: Path) -> None:
    path = tmp_path / "fed.json"
    Federation(NormalUnknown(), [[1.0, 2.0], [3.0]]).learn().save(path)
    good = json.loads(path.read_text())
    evil = {"class": "subprocess:Popen", "values": ["true"]}
    inner = {"class": "unweave.protocol.state:Any", "fields": {}}
    wrong: list[Any] = [[], {}, "text", {**good, "token": evil}, {**good, "token": inner}]
    wrong += [{**good, "token": {"class": "unweave.protocol.machine:handle", "values": []}}]
    wrong += [{**good, "shards": []}, {k: v for k, v in good.items() if k != "world"}]
    wrong += [{**good, "solver": {"name": "by_name", "settings": {}}}]
    for values in wrong:
        path.write_text(json.dumps(values))
        with pytest.raises(ConfigError, match=f"{path.name}: this is no saved federation"):
            Federation.load(path)
    path.write_text("{")
    with pytest.raises(ConfigError, match="no saved federation"):
        Federation.load(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        Federation.load(tmp_path / "absent")
