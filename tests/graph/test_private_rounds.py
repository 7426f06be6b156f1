"""`plan --privacy masked` against the hops that the protocol takes."""

from __future__ import annotations

import numpy as np
import pytest

from unweave import BetaBernoulli, Federation
from unweave.graph import Topology, graphs
from unweave.graph.private_rounds import count_hops, round_forecast

GRAPHS = {
    "ring": graphs.ring(6),
    "star": graphs.star(7),
    "path": graphs.path(5),
    "complete": graphs.complete(5),
    "grid": graphs.grid(9),
    "random": graphs.by_name("erdos-renyi", 11, p=0.3, seed=1),
}


@pytest.mark.parametrize("schedule", ["sweep", "metropolis"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_forecast_counts_the_visits_of_the_protocol(graph: str, schedule: str) -> None:
    topology = GRAPHS[graph]
    for seed in range(3):
        target = (2 * seed + 1) % len(topology)
        name = topology.agents[target]
        found = count_hops(topology, target, schedule, seed)
        network = learned(topology, schedule, seed)
        assert len(network.history) == found.learn
        network.update(name, np.zeros(2)).learn()
        assert len(network.history) == found.learn + found.change
        for what in ({"agents": name}, {"records": {name: [0]}}):
            erased = learned(topology, schedule, seed).forget(**what).erasures[0]
            assert erased.iterations == found.forget


def learned(topology: Topology, schedule: str, seed: int) -> Federation:
    shards = [np.ones(3)] * len(topology)
    network = Federation(BetaBernoulli(), shards, topology, schedule, seed=seed, privacy="masked")
    return network.learn()


def test_laps_of_rings_and_complete_graphs_have_one_length() -> None:
    """K visits, and K − 1 for every further lap: the agent that ends a lap starts the next."""
    for topology in (graphs.ring(9), graphs.complete(9)):
        found = round_forecast(topology, "a4", replicas=40)["sweep"]
        assert (found.learn.value, found.learn.ci95) == (9 + 8 + 8, (25, 25))
        assert found.round.value == 8
        assert found.retrain is not None
        # To the agent: at least its own visit, on a complete graph one hop before it.
        assert 16 + 1 <= found.forget.value <= 16 + (2 if topology.degrees[0] == 8 else 5)
        assert found.forget.value <= found.change.value <= 16 + 9
