"""How fast does a star learn and forget? A thousand replicas, with a band over them."""

import numpy as np

from unweave import BetaBernoulli, graphs, simulate
from unweave.experiments.replicas import Forget

coins = np.random.default_rng(0).integers(0, 2, (10, 100))
for name in ("star", "ring", "complete"):
    graph = graphs.by_name(name, 10)
    runs = simulate(
        BetaBernoulli(), coins, graph, iterations=200, replicas=1000, forget=Forget("a10")
    )
    low, high = runs.band(0.75)
    cover = runs.first_visits.max(axis=1)
    after = 199 + 20
    print(
        f"{name:9} everybody in after {np.median(cover):.0f} iterations (median); "
        f"20 iterations after the request KL = {runs.mean[after]:.2g} "
        f"({low[after]:.2g} … {high[after]:.2g})"
    )
