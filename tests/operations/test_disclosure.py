"""What `unweave forget` says beforehand about the difference of two published sums."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unweave.manifest import Manifest
from unweave.models import BetaBernoulli
from unweave.operations.create import create_network
from unweave.operations.disclosure import disclosed


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    def make(privacy: str, **status: Any) -> Any:
        names = [f"a{k}" for k in range(1, 6)]
        manifest: Manifest = create_network(
            tmp_path / privacy,
            name="n",
            model=BetaBernoulli(),
            agents=names,
            addresses=[f"127.0.0.1:{7000 + k}" for k in range(5)],
            data={},
            graph="ring",
            privacy=privacy,
        )
        folders = {name: tmp_path / privacy / "agents" / name for name in names}
        statuses = {"a1": {"erased": [], "departed": []} | status}
        return SimpleNamespace(manifest=manifest, folders=folders, statuses=lambda within: statuses)

    return make


def test_a_lone_agent_is_the_difference_of_two_sums(cluster: Any) -> None:
    told = disclosed(cluster("masked"), "a2", None)
    assert "the difference is the contribution of a2" in told
    assert disclosed(cluster("plain"), "a2", None) == ""


def test_an_empty_sum_is_told_beforehand(cluster: Any) -> None:
    agents = cluster("masked", erased=["a4"], departed=["a5"])
    told = disclosed(agents, "a2", None)
    assert "without a2 2 agents remain, fewer than min_roster = 3" in told
    assert "certified with an empty sum" in told
    # An agent that was erased and has departed counts once.
    agents.statuses = lambda within: {"a1": {"erased": ["a4"], "departed": ["a4"]}}
    assert "the difference is the contribution" in disclosed(agents, "a2", None)


@pytest.mark.parametrize("privacy", ["plain", "masked"])
def test_few_records_are_told_in_both_modes(cluster: Any, privacy: str) -> None:
    agents = cluster(privacy)
    assert "3 records, fewer than min_records = 10" in disclosed(agents, "a2", ["1", "2", "3", "3"])
    assert disclosed(agents, "a2", [str(k) for k in range(10)]) == ""
