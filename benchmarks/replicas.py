"""Replicas on arrays against the loops one would write first."""

from __future__ import annotations

import numpy as np

from benchmarks import plain
from benchmarks.harness import benchmark, ratio
from unweave.experiments.replicas import simulate
from unweave.graph import Topology, graphs
from unweave.models import by_name
from unweave.models.beta_exponential import BetaExponential

AGENTS, RECORDS, ITERATIONS, REPLICAS = 10, 100, 100, 1000


def _neighbours(graph: Topology) -> plain.Neighbours:
    return [np.asarray(row) for row in graph.adjacency]


@benchmark("1,000 replicas of figure 3 (KL included) against a NumPy loop", target=100.0)
def figure3() -> float:
    model = by_name("beta-bernoulli")
    data = np.random.default_rng(0).integers(0, 2, (AGENTS, RECORDS))
    factors = np.stack([data.sum(axis=1), RECORDS - data.sum(axis=1)], axis=1).astype(float)
    networks = [graphs.complete(AGENTS), graphs.star(AGENTS), graphs.ring(AGENTS)]
    few = 10

    def loop() -> None:
        for graph in networks:
            plain.beta_bernoulli(_neighbours(graph), factors, ITERATIONS, few, 0)

    def arrays() -> None:
        for graph in networks:
            simulate(
                model, data, graph, "metropolis", iterations=ITERATIONS, replicas=REPLICAS
            ).kl()

    return ratio(loop, arrays) * REPLICAS / few


@benchmark("beta-exponential, exact gradient, against a NumPy loop", target=1000.0)
def beta_exponential() -> float:
    model = BetaExponential(a=3.0, b=3.0)
    data = np.random.default_rng(0).exponential(0.4, (AGENTS, RECORDS))
    summaries = np.stack([np.full(AGENTS, float(RECORDS)), data.sum(axis=1)], axis=1)
    graph = graphs.complete(AGENTS)
    iterations, few = 1000, 1

    def loop() -> None:
        plain.beta_exponential_exact(_neighbours(graph), summaries, 5e-3, iterations, few, 0)

    def arrays() -> None:
        simulate(
            model,
            data,
            graph,
            "metropolis",
            solve="visit",
            iterations=iterations,
            replicas=REPLICAS,
            estimator="exact",
            rho=5e-3,
            steps=1,
        )

    return ratio(loop, arrays) * REPLICAS / few


@benchmark("REINFORCE (S = 30) against drawing its samples in NumPy", target=1.5, at_most=True)
def reinforce() -> float:
    model = BetaExponential(a=3.0, b=3.0)
    data = np.random.default_rng(0).exponential(0.4, (AGENTS, RECORDS))
    graph = graphs.complete(AGENTS)

    def run() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return simulate(
            model,
            data,
            graph,
            "metropolis",
            solve="visit",
            iterations=ITERATIONS,
            replicas=REPLICAS,
            estimator="reinforce",
            rho=5e-3,
            steps=1,
        ).eta

    # The same q at every visit, drawn from by NumPy for all replicas of an iteration at once.
    eta = run()
    rng = np.random.default_rng(0)

    def draw() -> None:
        for i in range(ITERATIONS):
            rng.beta(eta[:, i, :1], eta[:, i, 1:], size=(REPLICAS, 30))

    return ratio(run, draw)
