"""What an agent has to do with a token that rests; who gives signs of life (rules 10 and 11)."""

from __future__ import annotations

from unweave.protocol.epochs import drop_role
from unweave.protocol.gossip import attest_ready
from unweave.protocol.ids import bit
from unweave.protocol.route import unpark
from unweave.protocol.state import Idle, Parked, State
from unweave.protocol.tombs import includes, whole_bitmap
from unweave.protocol.turn import Turn
from unweave.protocol.waiting import resting, set_loss_alarm

__all__ = ["settle", "watch"]


def settle(s: State, turn: Turn) -> None:
    """Rule 11, level-triggered: business is durable, so a lost wake-up call is repeated."""
    if s.halted or s.tomb.left:
        if not isinstance(s.role, Idle):
            drop_role(s)
    elif s.rest is not None:
        if s.wake < s.rest.stamp and has_business(s):
            s.wake = s.rest.stamp
            s.gossip = None
        if isinstance(s.role, Parked) and (s.wake >= s.role.token.stamp or not s.terms.rest):
            unpark(s, turn)


def has_business(s: State) -> bool:
    """Whether the token that rests must come here, or this agent must let it go."""
    rest = s.rest
    assert rest is not None
    if rest.holder == s.me and not (
        isinstance(s.role, Parked) and s.role.token.stamp == rest.stamp
    ):
        return True
    if s.tomb.left:
        return False
    if s.own_intents() or not includes(rest.tombs, s.tombs):
        return True  # an erasure that this rest does not cover
    current = s.current
    included = rest.included[s.me]
    if s.tomb.out or s.detached:
        return bool(included.counter) or unattested(s)
    if current is None:
        # Not in yet: the token must come here, unless it has been here and nothing has changed.
        return bool(included.counter) or rest.included != s.baulked or unattested(s)
    stale = current.rows != s.rows or current.data != s.data
    if stale and rest.included == s.baulked:
        stale = False  # the solver has looked at them, and refused: not before something changes
    return stale or current.revision != included or unattested(s)


def unattested(s: State) -> bool:
    """Whether a visit would add this agent's word. Unless the model is conjugate, nobody signs an
    incomplete token: to wake it before the missing have come would be to wake it for ever."""
    rest = s.rest
    if rest is None or rest.quiet & bit(s.me) or not attest_ready(s):
        return False
    if s.terms.conjugate or s.tomb.out or s.detached:
        return True
    out = whole_bitmap(s.tombs) | bit(s.me)
    return all(r.counter or out >> k & 1 for k, r in enumerate(rest.included))


def watch(s: State, turn: Turn, before: State) -> None:
    """Rule 10: whoever has the token gives signs of life; everybody else waits for them. The wait
    starts anew when the token has been handed over or a rest has ended: the silence before counts
    against nobody."""
    if isinstance(s.role, Idle):
        if not isinstance(before.role, Idle) or (
            before.rest is not None and resting(before) and not resting(s)
        ):
            set_loss_alarm(s, turn)
    elif "alive" not in s.alarms and not isinstance(s.role, Parked):
        s.alarms = {**s.alarms, "alive": turn.now + s.terms.patience.alive}
