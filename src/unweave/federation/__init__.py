"""A whole network in one process: the library's main entry point.

    federation = Federation(BetaBernoulli(), shards, graphs.ring(5))
    federation.learn()
    federation.forget("a3")
    federation.posterior

The federation runs `unweave.protocol` in `unweave.simulator.world` without faults: the rules are
those of agent processes, and messages arrive immediately.
"""

from __future__ import annotations

from unweave.federation.federation import Federation
from unweave.federation.results import Audit, Erasure

__all__ = ["Audit", "Erasure", "Federation"]
