"""Agents that a quorum declared gone and that may still run: they are told so, and not listened to.

A process that was stopped while the others voted does not know the last vote. It presumes the token
lost and opens epochs from its old copy, which may hold what was erased since. So whatever a
departed agent says is answered with the votes, and nothing that it says is believed. One that says
nothing, because it believes that the token rests, is told from time to time.
"""

from __future__ import annotations

from unweave.protocol.gossip import current_gossip
from unweave.protocol.messages import Heard, Hello, Message, Share, Welcome
from unweave.protocol.state import State, Turn

__all__ = ["answer_departed", "tell_departed"]


def answer_departed(s: State, turn: Turn, sender: int, message: Message) -> None:
    """The answer to a message of an agent that has left. Hello is always answered: its process has
    started, perhaps from an old disk. Everything else at most once per `resend`."""
    if isinstance(message, Hello):
        s.aware -= {sender}
        gossip = current_gossip(s)
        turn.send(sender, Welcome(s.fence, gossip, s.boot, message.boot, message.question))
    elif isinstance(message, Heard):
        if message.digests[:2] == current_gossip(s).digests[:2]:
            s.aware |= {sender}
    elif s.synced and turn.now - s.reminded.get(sender, -1e300) >= s.terms.patience.resend:
        _remind(s, turn, sender)


def tell_departed(s: State, turn: Turn) -> None:
    """Tell every neighbour that has left and has not acknowledged the votes; again after `loss`."""
    untold = [] if s.tomb.left else [n for n in s.neighbours if n in s.left - s.aware]
    for n in untold:
        _remind(s, turn, n)
    if untold:
        s.alarms = {**s.alarms, "departed": turn.now + s.terms.patience.loss}


def _remind(s: State, turn: Turn, departed: int) -> None:
    s.reminded = {**s.reminded, departed: turn.now}
    turn.send(departed, Share(s.fence, current_gossip(s)))
