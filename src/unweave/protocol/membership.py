"""Agents that a quorum declared gone and that may still run: they are told so, and not listened to.

A process that was stopped while the others voted does not know the last vote. It presumes the token
lost and opens epochs from its old copy, which may hold what was erased since. So whatever a
departed agent says is answered with the votes, and nothing that it says is believed. One that says
nothing, because it believes that the token rests, is told from time to time.
"""

from __future__ import annotations

from unweave.protocol.events import (
    Refused,
    VoteCast,
)
from unweave.protocol.gossip import current_gossip
from unweave.protocol.merge import count_votes
from unweave.protocol.messages import (
    Heard,
    Hello,
    Message,
    Share,
    Welcome,
)
from unweave.protocol.state import State, Turn
from unweave.protocol.statements import (
    Vote,
)

__all__ = ["answer_departed", "on_vote", "tell_departed"]


def answer_departed(s: State, turn: Turn, sender: int, message: Message) -> None:
    """The answer to a message of an agent that has left. Hello is always answered: its process has
    started, perhaps from an old disk. Everything else at most once per `resend`."""
    if isinstance(message, Hello):
        s.peers.aware -= {sender}
        gossip = current_gossip(s)
        turn.send(
            sender,
            Welcome(s.token.fence, gossip, s.incarnation, message.incarnation, message.question),
        )
    elif isinstance(message, Heard):
        if message.digests[:2] == current_gossip(s).digests[:2]:
            s.peers.aware |= {sender}
    elif (
        s.peers.synced
        and turn.now - s.peers.reminded.get(sender, -1e300) >= s.terms.timeouts.resend
    ):
        _remind(s, turn, sender)


def tell_departed(s: State, turn: Turn) -> None:
    """Tell every neighbour that has left and has not acknowledged the votes; again after `loss`."""
    untold = [] if s.tomb.departed else [n for n in s.neighbours if n in s.departed - s.peers.aware]
    for n in untold:
        _remind(s, turn, n)
    if untold:
        s.timers = {**s.timers, "departed": turn.now + s.terms.timeouts.loss}


def _remind(s: State, turn: Turn, departed: int) -> None:
    s.peers.reminded = {**s.peers.reminded, departed: turn.now}
    turn.send(departed, Share(s.token.fence, current_gossip(s)))


def _possible_votes(s: State, target: int) -> int:
    """Of all who are left, and those that were cast before their voters left."""
    cast = sum(1 for t, voter in s.known.votes if t == target and voter in s.departed)
    return s.terms.size - len(s.departed | {target}) + cast


def on_vote(s: State, turn: Turn, event: VoteCast) -> None:
    target = event.target
    name = s.terms.name(target)
    last_heard = s.peers.heard.get(target)
    if s.tomb.departed:
        turn.do(Refused("this agent was declared gone by a quorum; its vote does not count"))
    elif target == s.me:
        turn.do(Refused("an agent cannot vote itself gone: ask it to erase itself instead"))
    elif (voters := _possible_votes(s, target)) < s.terms.quorum:
        turn.do(
            Refused(
                f"{name} can never be voted out: {s.terms.quorum} of {s.terms.size} agents must "
                f"vote, and {voters} other{'s are' if voters != 1 else ' is'} left; start it "
                "again, or make a new network"
            )
        )
    elif not s.peers.synced:
        turn.do(Refused(f"{s.terms.name(s.me)} has just started, and heard nobody yet: wait"))
    elif last_heard is not None and turn.now - last_heard < s.terms.timeouts.loss:
        turn.do(Refused(f"{name} was heard {turn.now - last_heard:.0f} s ago: it is not gone"))
    elif cannot_hear(s, target):
        near = ", ".join(s.terms.name(n) for n in s.terms.topology.adjacency[target])
        turn.do(
            Refused(
                f"{s.terms.name(s.me)} is no neighbour of {name} and cannot hear it: one of its "
                f"neighbours must vote first ({near})"
            )
        )
    elif (target, s.me) not in s.known.votes:
        vote = Vote.write(
            s.me,
            turn.sign,
            network_id=s.terms.network_id.hex(),
            agent=target,
            name=name,
            request=event.request.hex(),
        )
        s.known.votes = {**s.known.votes, (target, s.me): vote}
        s.known.gossip = None
        count_votes(s, turn)


def cannot_hear(s: State, target: int) -> bool:
    """Whether nobody who could hear the target has said that it is gone. Only neighbours hear each
    other: the vote of anybody else seconds one of theirs, unless none of them is left."""
    near = s.terms.topology.adjacency[target]
    if s.me in near or any((target, n) in s.known.votes for n in near):
        return False
    return any(n not in s.departed for n in near)
