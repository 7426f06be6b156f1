"""When erased values may be in this process's memory, and when the process is replaced for that.

Wiping is not enough: Python, NumPy, gRPC, SQLite and DuckDB copy what they handle, and freed memory
keeps its content. The end of the process removes all copies. So an agent replaces its process after
an erasure. To its neighbours that is a restart like any other (rule 1).

Erased values may be in the memory after
    a tombstone was learned      the process held sums, or the factor, from before the erasure
    dead state was loaded        the store had been closed before the erasure was complete
    a dead token was received    a neighbour did not know the tombstone yet
    erased records were read     the source still held them; it has changed since

While the source holds erased records, a reader meets them and skips them. A restart would be of no
use then: the next reading brings them back. It is due when the source has lost them, or has changed
and was not read since.

The process is replaced when the token is parked, so that erasures in a row cause one restart, and
not before it has run for `restart_interval` seconds. If the token is not parked for as long, the
process is replaced as soon as this agent has no token under way. Neighbours wait for different
times after the token was parked.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable

from unweave.graph.topology import Topology
from unweave.protocol.messages import Message, Pass
from unweave.protocol.state import Hold, Out, State
from unweave.protocol.timers import is_parked
from unweave.protocol.token import Token, Tombs, dead

__all__ = ["ErasedInMemory", "keep_clean", "place_in_turn"]


_LOOK = 0.5  # seconds between looks, while the process has to be replaced
_SPREAD = 1 / 6  # the restarts after one erasure take this part of the interval
_PATIENCE = 10  # intervals; then requests of the operator under way do not delay the restart


class ErasedInMemory:
    """Why the memory of this process may hold erased values. `interval` 0: it is never replaced."""

    def __init__(self, interval: float) -> None:
        self.why = ""  # empty: no erased values are in the memory
        self.noted = asyncio.Event()
        self._interval = interval
        self._started = time.monotonic()
        self._since = 0.0  # when `why` was set
        self._met: frozenset[str] = frozenset()  # keys of erased records that were read
        self._source = ""  # fingerprint of the files at the last reading
        self._read = 0.0  # when that was
        self._tombs: Tombs | None = None  # of the last state; None: there was no state yet

    def watch_state(self, after: State) -> None:
        """Called with the first state of the process, and with each new one."""
        before, self._tombs = self._tombs, after.known.tombs
        if before is None:
            tokens = (after.token.held, after.token.copy, after.token.published)
            if any(token is not None and _is_dead(after, token) for token in tokens):
                self._note("the store held a sum with erased data")
        elif self._tombs is not before and _size(self._tombs) > _size(before):
            self._note("an erasure")

    def watch_message(self, state: State | None, message: Message) -> None:
        """Called with each message of a neighbour, before it changes the state."""
        if isinstance(message, Pass) and state is not None and _is_dead(state, message.token):
            self._note("a neighbour's token with erased data")

    def watch_reading(self, fingerprint: str, met: frozenset[str]) -> None:
        """A reader has met these erased records."""
        if self._met - met:
            self._note("erased records were deleted from the data")
        self._met |= met
        self._source = fingerprint
        self._read = time.monotonic()

    def watch_source(self, fingerprint: Callable[[], str]) -> None:
        """Called from time to time with the present files."""
        if self._met and not self.why and fingerprint() != self._source:
            self._note("the data have changed since erased records were read")

    def _note(self, why: str) -> None:
        if not self.why and self._interval:
            self.why = why
            self._since = time.monotonic()
            self.noted.set()

    def due(self, s: State | None, now: float) -> bool:
        """Whether the process may be replaced now, and need not wait for anything."""
        if not self.why or s is None or isinstance(s.token.role, Hold | Out):
            return False
        if now < max(self._started, self._read) + self._interval:
            return False
        settled = s.peers.synced and is_parked(s) and not s.known.intents
        return settled or now >= self._since + self._interval

    def overdue(self, now: float) -> bool:
        return now >= self._since + _PATIENCE * self._interval

    def delay(self, topology: Topology, me: int) -> float:
        """Seconds from the moment when the restart is due. They differ between neighbours."""
        place, places = place_in_turn(topology, me)
        return self._interval * _SPREAD * (place + 1) / places


def _is_dead(s: State, token: Token) -> bool:
    return dead(token, s.known.tombs, s.known.retrain_epoch)


def _size(tombs: Tombs) -> int:
    """It grows with every tombstone and every departure, and not when erasures are compacted."""
    return sum(len(tomb.ids) + tomb.whole + tomb.departed for tomb in tombs.values())


def place_in_turn(topology: Topology, me: int) -> tuple[int, int]:
    """A number that no neighbour has, and the count of such numbers: a greedy colouring."""
    places: list[int] = []
    for k, neighbours in enumerate(topology.adjacency):
        taken = {places[n] for n in neighbours if n < k}
        places.append(next(place for place in itertools.count() if place not in taken))
    return places[me], max(places) + 1


async def keep_clean(
    memory: ErasedInMemory,
    state: Callable[[], State | None],
    busy: Callable[[], bool],
    delay: Callable[[], float],
) -> str:
    """Wait until the process must be replaced; return why. `busy`: a request of the operator is
    under way."""
    await memory.noted.wait()
    wait, due_since = delay(), None
    while True:
        now = time.monotonic()
        if not memory.due(state(), now):
            due_since = None
        elif due_since is None:
            due_since = now
        elif now >= due_since + wait and (not busy() or memory.overdue(now)):
            return memory.why
        await asyncio.sleep(min(_LOOK, wait))
