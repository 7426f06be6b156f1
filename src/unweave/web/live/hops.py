"""When the token moved, from the visits that agents tell with their own times.

An agent tells of its visits when it is asked, which may be long after them, and it keeps the last
ones only. Every visit has the number of its hop, so two known visits tell how many hops lie between
them, also where the visits between are not known: the rate there is the mean of that time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["Hops"]

_KEPT = 4096  # visits
_SPAN = 2.0  # seconds over which hops are counted
_STILL = 5.0  # seconds between two known visits that have a line of their own
_STEP = 0.1  # seconds: points of a line have different times

Point = tuple[float, float]


class Hops:
    """The visits of the token at all agents."""

    def __init__(self) -> None:
        self.last_at = 0.0  # the latest visit
        self._times: dict[tuple[int, int], float] = {}  # epoch, hop → when
        self._new: dict[tuple[int, int], float] = {}  # in no point yet
        self._drawn = (0, 0)  # up to this visit
        self._drawn_at = self._from = 0.0  # its time, and since when `_count` hops are counted
        self._count = 0
        self._closed = True  # the line ends at zero

    def take(self, visits: Iterable[tuple[float, int, int]]) -> None:
        """Visits as [seconds since 1970, epoch, hop], in any order."""
        for at, epoch, hop in visits:
            self._times[epoch, hop] = self._new[epoch, hop] = at
            self.last_at = max(self.last_at, at)
        while len(self._times) > _KEPT:
            del self._times[next(iter(self._times))]

    def when(self, stamp: Sequence[int] | None) -> float | None:
        """When the sum with this stamp was made: when the token came with it, or the visit before,
        which made it. None: no agent has told of this visit."""
        if stamp is None:
            return None
        epoch, hop = stamp[0], stamp[3]
        found = self._times.get((epoch, hop), self._times.get((epoch, hop - 1)))
        return None if found is None else round(found, 1)

    def points(self, still_at: float) -> list[Point]:
        """New points of the line of hops per second. All visits up to `still_at` have been told: if
        the last one was long before, the token stands still since."""
        found: list[Point] = []
        new, self._new = sorted(self._new.items()), {}
        for visit, at in new:
            if visit > self._drawn:
                found += self._add(visit, at)
        if not self._closed and still_at - self._drawn_at >= _STILL:
            found += [*self._counted(), (self._drawn_at + _STEP, 0.0)]
            self._closed = True
        return [(round(at, 1), round(rate, 2)) for at, rate in found]

    def _add(self, visit: tuple[int, int], at: float) -> list[Point]:
        (epoch, hop), (old_epoch, old_hop), before = visit, self._drawn, self._drawn_at
        found: list[Point] = []
        hops = hop - old_hop if epoch == old_epoch else hop - 1  # an epoch begins with hop 1
        self._drawn, self._drawn_at = visit, max(at, before)
        if not before:
            self._from = at
        elif at - before >= _STILL:
            rate = (hops - 1) / (at - before)  # the last one ends this time
            self._drawn_at = before
            found = [*self._counted(), (before + _STEP, rate), (at - _STEP, rate)]
            self._drawn_at = self._from = at
        else:
            self._count += hops
            if self._drawn_at - self._from >= _SPAN:
                found = self._counted()
        self._closed = False
        return found

    def _counted(self) -> list[Point]:
        """A point for the hops that were counted up to the last visit."""
        passed, count = self._drawn_at - self._from, self._count
        self._from, self._count = self._drawn_at, 0
        return [(self._drawn_at, count / passed)] if count and passed >= _STEP else []
