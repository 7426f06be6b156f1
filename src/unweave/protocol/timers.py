"""Patience: what an agent does when nothing happens (rules 1, 8, 9, 10).

All timers are safe at any value. They are deadlines in `state.alarms`; the driver feeds a `Tick`
when `deadline(state)` has come.
"""

from __future__ import annotations

from unweave.protocol.gossip import handover, hello, share
from unweave.protocol.membership import tell_departed
from unweave.protocol.messages import Alive
from unweave.protocol.recovery import open_epoch
from unweave.protocol.state import Hold, Idle, Out, State, Turn
from unweave.protocol.token import Stamp, dead

__all__ = ["deadline", "is_parked", "note_heartbeat", "set_loss_timer", "tick"]


_OUTBOX = 1e10  # seconds; more than any clock shows


def deadline(s: State) -> float | None:
    """When the next `Tick` is due."""
    return min(s.alarms.values(), default=None)


def tick(s: State, turn: Turn) -> None:
    """Run every alarm whose time has come, each once."""
    due = [name for name, at in s.alarms.items() if at <= turn.now]
    s.alarms = {name: at for name, at in s.alarms.items() if name not in due}
    for name in due:
        if s.synced or name == "hello":
            _TIMERS[name](s, turn)


def _set_timer(s: State, name: str, at: float) -> None:
    s.alarms = {**s.alarms, name: at}


def _resend(s: State, turn: Turn) -> None:
    """Rule 8: the same token to the same neighbour, until acknowledged or superseded."""
    if isinstance(s.role, Out):
        turn.send(s.role.to, handover(s, s.role.token, s.role.to))
        _set_timer(s, "resend", turn.now + s.terms.patience.resend)


def _ack(s: State, turn: Turn) -> None:
    """Rule 9: the neighbour does not take the token. Go elsewhere, in a new epoch."""
    if not isinstance(s.role, Out):
        return
    left = s.left
    blocked = s.suspects | {s.role.to}
    if any(n not in blocked and n not in left for n in s.neighbours):
        s.suspects = frozenset(blocked)
        open_epoch(s, turn, s.role.token, f"{s.terms.name(s.role.to)} does not answer")
    else:
        _set_timer(s, "ack", turn.now + s.terms.patience.ack)


def _gossip(s: State, turn: Turn) -> None:
    """Rule 3: repeat. An agent that has left says once what it knows: nobody acknowledges it."""
    if not s.tomb.left:
        share(s, turn)


def _hello(s: State, turn: Turn) -> None:
    """Rule 1: repeat Hello to those who have not answered."""
    left = s.left
    if s.synced and s.tomb.left:
        return
    missing = [n for n in s.neighbours if n not in s.welcomed and n not in left]
    for n in missing:
        turn.send(n, hello(s, n))
    if missing:
        _set_timer(s, "hello", turn.now + s.terms.patience.resend)


def note_heartbeat(s: State, turn: Turn, stamp: Stamp, beat: float) -> None:
    """A sign of life of the token: pass it on at the next beat, and wait anew."""
    if (stamp, beat) > s.pulse:
        s.pulse = (stamp, beat)
        s.relay = True
        s.losses = 0
        set_loss_timer(s, turn)
        if "alive" not in s.alarms:
            _set_timer(s, "alive", turn.now + s.terms.patience.alive)


def _alive(s: State, turn: Turn) -> None:
    """The holder says that the token lives; everybody else passes on what is news to them."""
    if isinstance(s.role, Hold | Out):
        # An outbox beats below every clock: its receiver may have the token already, under the same
        # stamp, and two clocks must not compete.
        beat = turn.now if isinstance(s.role, Hold) else turn.now - _OUTBOX
        s.pulse = (s.role.token.stamp, beat)
        s.relay = True
    if s.relay and not s.tomb.left:
        for n in s.neighbours:
            turn.send(n, Alive(*s.pulse))
        s.relay = False
        _set_timer(s, "alive", turn.now + s.terms.patience.alive)


def set_loss_timer(s: State, turn: Turn) -> None:
    """Staggered by rank, so that one agent acts first; doubled after every false alarm."""
    rank = 1.0 + s.me / s.terms.size
    _set_timer(s, "loss", turn.now + s.terms.patience.loss * rank * 2.0 ** min(s.losses, 10))


def is_parked(s: State) -> bool:
    """Whether a rest is known that nothing has overtaken: silence is then as it should be."""
    rest = s.rest
    return (
        rest is not None
        and rest.stamp >= max(s.last, s.fence)
        and s.wake < rest.stamp
        and rest.holder not in s.left
    )


def _loss(s: State, turn: Turn) -> None:
    """Rule 10: no sign of life. A new epoch from the last token seen, or from nothing."""
    if not isinstance(s.role, Idle) or is_parked(s) or s.tomb.left or s.halted:
        set_loss_timer(s, turn)
        return
    s.losses += 1
    set_loss_timer(s, turn)
    copy = s.copy
    if copy is not None and dead(copy, s.tombs, s.generation):
        copy = None
    open_epoch(s, turn, copy, "no sign of life of the token")


_TIMERS = {
    "resend": _resend,
    "ack": _ack,
    "gossip": _gossip,
    "hello": _hello,
    "alive": _alive,
    "loss": _loss,
    "departed": tell_departed,
}
