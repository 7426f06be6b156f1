"""Repetitions to a silent neighbour come at growing intervals (rule 8).

The intervals double from `resend` to `resend` · 2^DOUBLINGS and stay there, so a neighbour that
comes back without a word is still found. They start again when the neighbour is heard. What is
repeated has a name, that of its timer: the token, the gossip, Hello. Each has its own intervals.
"""

from __future__ import annotations

from unweave.protocol.state import State

__all__ = ["DOUBLINGS", "is_due", "next_due", "note_heard", "note_repetition"]


DOUBLINGS = 4  # 8 s, if `resend` is half a second


def is_due(s: State, now: float, name: str, neighbour: int) -> bool:
    """Whether it is time to repeat this to a neighbour."""
    return s.peers.repeated.get((name, neighbour), (0, now))[1] <= now


def note_repetition(s: State, now: float, name: str, neighbour: int) -> None:
    """This was sent to a neighbour again: the next interval is twice as long."""
    count = min(s.peers.repeated.get((name, neighbour), (0, 0.0))[0] + 1, DOUBLINGS)
    next_at = now + s.terms.timeouts.resend * 2.0**count
    s.peers.repeated = {**s.peers.repeated, (name, neighbour): (count, next_at)}


def next_due(s: State, now: float, name: str, neighbours: list[int]) -> float:
    """When the next of these neighbours is due; never sooner than after `resend`."""
    soonest = now + s.terms.timeouts.resend
    due = [s.peers.repeated.get((name, n), (0, soonest))[1] for n in neighbours]
    return max(soonest, min(due, default=soonest))


def note_heard(s: State, now: float, neighbour: int) -> None:
    """A neighbour was heard: what it has not acknowledged is repeated soon."""
    repeated = s.peers.repeated
    if not any(n == neighbour for _, n in repeated):
        return
    soon = now + s.terms.timeouts.resend
    names = {name for name, n in repeated if n == neighbour} & s.timers.keys()
    s.timers = {name: min(at, soon) if name in names else at for name, at in s.timers.items()}
    s.peers.repeated = {key: value for key, value in repeated.items() if key[1] != neighbour}
