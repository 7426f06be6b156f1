"""A whole network in one memory: the library's main entry point.

    federation = Federation(BetaBernoulli(), shards, graphs.ring(5))
    federation.learn()
    federation.forget("a3")
    federation.posterior

It runs `unweave.protocol` in `unweave.simulator.world`, without faults: the rules are those of real
agents, and messages arrive at once.
"""

from __future__ import annotations

from unweave.federation.federation import Federation
from unweave.federation.results import Audit, Erasure

__all__ = ["Audit", "Erasure", "Federation"]
