"""The front door: a whole network in one memory.

    federation = Federation(BetaBernoulli(), shards, graphs.ring(5))
    federation.learn()
    federation.forget("a3")
    federation.posterior

It runs the protocol core of `unweave.protocol` on the calm world of `unweave.simulate`: the rules
are those of real agents, only the wire is instant.
"""

from __future__ import annotations

from unweave.federation.front import Federation
from unweave.federation.results import Audit, Erasure

__all__ = ["Audit", "Erasure", "Federation"]
