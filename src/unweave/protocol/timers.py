"""Timers: what an agent does when no message arrives (rules 1, 8, 9, 10).

All timers are safe at any value. They are deadlines in `state.timers`; the driver feeds a `Tick`
when `deadline(state)` has come.
"""

from __future__ import annotations

from unweave.protocol.gossip import handover, hello, is_due, next_due, note_repetition, share
from unweave.protocol.membership import tell_departed
from unweave.protocol.messages import Alive
from unweave.protocol.recovery import open_epoch
from unweave.protocol.state import Hold, Idle, Out, State, Turn
from unweave.protocol.token import Stamp, dead

__all__ = ["deadline", "is_parked", "note_heartbeat", "set_loss_timer", "tick"]


_UNACKNOWLEDGED = 1e10  # seconds; more than any clock shows


def deadline(s: State) -> float | None:
    """When the next `Tick` is due."""
    return min(s.timers.values(), default=None)


def tick(s: State, turn: Turn) -> None:
    """Run every timer that is due, each once."""
    due = [name for name, at in s.timers.items() if at <= turn.now]
    s.timers = {name: at for name, at in s.timers.items() if name not in due}
    for name in due:
        if s.peers.synced or name == "hello":
            _TIMERS[name](s, turn)


def _set_timer(s: State, name: str, at: float) -> None:
    s.timers = {**s.timers, name: at}


def _resend(s: State, turn: Turn) -> None:
    """Rule 8: the same token to the same neighbour, until acknowledged or superseded."""
    if isinstance(s.token.role, Out):
        to = s.token.role.to
        turn.send(to, handover(s, turn, s.token.role.token, to))
        note_repetition(s, turn.now, "resend", to)
        _set_timer(s, "resend", next_due(s, turn.now, "resend", [to]))


def _ack(s: State, turn: Turn) -> None:
    """Rule 9: the neighbour does not acknowledge the token. Go elsewhere, in a new epoch."""
    if not isinstance(s.token.role, Out):
        return
    departed = s.departed
    blocked = s.peers.suspects | {s.token.role.to}
    if any(n not in blocked and n not in departed for n in s.neighbours):
        s.peers.suspects = frozenset(blocked)
        why = f"{s.terms.name(s.token.role.to)} does not answer"
        open_epoch(s, turn, s.token.role.token, why, s.token.origin)
    else:
        _set_timer(s, "ack", turn.now + s.terms.timeouts.ack)


def _gossip(s: State, turn: Turn) -> None:
    """Rule 3: repeat the gossip."""
    share(s, turn, again=True)


def _hello(s: State, turn: Turn) -> None:
    """Rule 1: repeat Hello to the neighbours that have not answered."""
    departed = s.departed
    if s.peers.synced and s.tomb.departed:
        return
    missing = [n for n in s.neighbours if n not in s.peers.welcomed and n not in departed]
    for n in missing:
        if is_due(s, turn.now, "hello", n):
            turn.send(n, hello(s, n))
            note_repetition(s, turn.now, "hello", n)
    if missing:
        _set_timer(s, "hello", next_due(s, turn.now, "hello", missing))


def note_heartbeat(s: State, turn: Turn, stamp: Stamp, clock: float) -> None:
    """A newer heartbeat: relay it with the next `Alive`, and restart the loss timer."""
    if (stamp, clock) > s.token.heartbeat:
        s.token.heartbeat = (stamp, clock)
        s.token.relay = True
        s.token.losses = 0
        set_loss_timer(s, turn)
        if "alive" not in s.timers:
            _set_timer(s, "alive", turn.now + s.terms.timeouts.alive)


def _alive(s: State, turn: Turn) -> None:
    """The holder sends a heartbeat; every other agent relays a newer one."""
    if isinstance(s.token.role, Hold | Out):
        # The sender of an unacknowledged token beats below every clock: the receiver may have the
        # token already, under the same stamp, and two clocks must not compete.
        clock = turn.now if isinstance(s.token.role, Hold) else turn.now - _UNACKNOWLEDGED
        s.token.heartbeat = (s.token.role.token.stamp, clock)
        s.token.relay = True
    if s.token.relay and not s.tomb.departed:
        for n in s.neighbours:
            turn.send(n, Alive(*s.token.heartbeat))
        s.token.relay = False
        _set_timer(s, "alive", turn.now + s.terms.timeouts.alive)


def set_loss_timer(s: State, turn: Turn) -> None:
    """Staggered by rank, so that one agent acts first; doubled whenever it fires in vain."""
    rank = 1.0 + s.me / s.terms.size
    _set_timer(s, "loss", turn.now + s.terms.timeouts.loss * rank * 2.0 ** min(s.token.losses, 10))


def is_parked(s: State) -> bool:
    """Whether a parked token is known that nothing has superseded: it needs no heartbeat."""
    parked = s.token.parked
    return (
        parked is not None
        and parked.stamp >= max(s.token.last, s.token.fence)
        and s.token.wake < parked.stamp
        and parked.holder not in s.departed
    )


def _loss(s: State, turn: Turn) -> None:
    """Rule 10: no heartbeat. A new epoch from the last token seen, or from nothing."""
    if not isinstance(s.token.role, Idle) or is_parked(s) or s.tomb.departed or s.audit_failed:
        set_loss_timer(s, turn)
        return
    s.token.losses += 1
    set_loss_timer(s, turn)
    copy = s.token.copy
    if copy is not None and dead(copy, s.known.tombs, s.known.retrain_epoch):
        copy = None
    open_epoch(s, turn, copy, "no heartbeat of the token", s.token.copy_origin)


_TIMERS = {
    "resend": _resend,
    "ack": _ack,
    "gossip": _gossip,
    "hello": _hello,
    "alive": _alive,
    "loss": _loss,
    "departed": tell_departed,
}
