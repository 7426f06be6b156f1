"""Owners in a rehearsal: they ask for erasures, but never for so many that nothing is left.

A swarm of storms may erase a whole network; a rehearsal of somebody's own may not, for its last
sentence compares what is left with a run without faults. So a majority of the agents keep records,
the number of requests follows the hops, and hardly anybody asks where all is erased already.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from unweave.protocol.events import EraseRequested
from unweave.protocol.ids import request_id
from unweave.simulate.faults import Profile
from unweave.simulate.worker import record_key
from unweave.simulate.world import World

__all__ = ["DOWN", "LOST", "NOTHING_LEFT", "Owners", "spared"]

# Why a request that was asked is not certified; nothing was promised for it.
DOWN = "its agent was down and did not hear it"
NOTHING_LEFT = "its agent had erased everything, or had left"
LOST = "lost in a crash, or with a disk, before anybody else knew of it"

_HOPS_PER_REQUEST = 5
_AGAIN = 0.15  # of the requests: the last one, repeated
_LATE = 0.05  # of the requests: to an agent that has erased everything
_WHOLE = 0.15  # of the requests: everything that the agent has
_TWICE = 0.2  # of the requests: at once with one more elsewhere


def spared(agents: int) -> int:
    """How many of so many agents with records keep some: a majority, or one of two."""
    return agents // 2 + 1 if agents > 2 else min(agents, 1)


class Owners:
    """Ask for erasures while the weather is bad; `asked` and `reasons` say what came of it.

    What was asked counts as erased at once, heard or not: a request may be repeated, and a disk may
    come back, so this is the most that can be gone in the end.
    """

    def __init__(
        self, world: World, weather: Profile, records: Sequence[int], hops: int, seed: int
    ) -> None:
        self.world = world
        self.records = records  # of each agent
        self.rate = weather.erase
        self.most = 1 + hops // _HOPS_PER_REQUEST
        self.rng = random.Random(f"owners {seed}")
        self.rows: list[set[int]] = [set() for _ in records]
        self.full = {k for k, n in enumerate(records) if n}
        # An agent that is voted out takes its records with it.
        self.spared = spared(len(self.full)) + (weather.gone > 0)
        self.asked: list[bytes] = []  # the ids of all requests, in order
        self.reasons: list[str] = []  # of each: why it would have no effect, if it had none
        self.last: tuple[int, EraseRequested] | None = None

    def between_events(self, progress: float) -> None:
        """Maybe ask; `progress` of the weather, from 0 to 1, spreads the requests over it."""
        if self.rng.random() < self.rate and len(self.asked) < self.most * progress:
            self.ask()

    def ask(self) -> None:
        """An erasure; sometimes the last one again, sometimes one more elsewhere at once."""
        rng, world = self.rng, self.world
        if self.last is not None and rng.random() < _AGAIN:
            k, request = self.last
            world.tell(k, request._replace(now=world.clock(k)))
            return
        candidates = [k for k in sorted(self.full) if self._may_ask(k)]
        empty = [k for k, n in enumerate(self.records) if n and k not in self.full]
        if empty and rng.random() < _LATE:
            candidates = empty
        if not candidates:
            return
        k = rng.choice(candidates)
        whole, rows = self._draw(k)
        request = EraseRequested(request_id(k, rng.randbytes(12)), whole, rows, world.clock(k))
        self.asked.append(request.request)
        self.reasons.append(self._excuse(k))
        self.last = (k, request)
        world.tell(k, request)
        if rng.random() < _TWICE:
            self.ask()

    def _draw(self, k: int) -> tuple[bool, frozenset[bytes]]:
        """Everything now and then, or one record."""
        if self._may_empty(k) and self.rng.random() < _WHOLE:
            self.full.discard(k)
            return True, frozenset()
        row = self.rng.randrange(self.records[k])
        self.rows[k].add(row)
        if len(self.rows[k]) == self.records[k]:
            self.full.discard(k)
        return False, frozenset({record_key(row)})

    def _may_ask(self, k: int) -> bool:
        return len(self.rows[k]) + 1 < self.records[k] or self._may_empty(k)

    def _may_empty(self, k: int) -> bool:
        return k in self.full and len(self.full) > self.spared

    def _excuse(self, k: int) -> str:
        state = self.world.agents[k].state
        if state is None:
            return DOWN
        out = state.detached or state.tomb.whole or state.tomb.left
        return NOTHING_LEFT if out else LOST
