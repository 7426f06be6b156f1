"""Departures: votes, and agents that a quorum declared departed but that still run (rule 13).

A process that was stopped while the others voted does not know the votes. It presumes the token
lost and opens epochs from its old copy, which may include data erased since. So every message of a
departed agent is answered with the votes, and none is believed. A departed agent that sends
nothing, because it knows of a parked token, is sent the votes at intervals.
"""

from __future__ import annotations

from unweave.protocol.events import Refused, VoteCast
from unweave.protocol.gossip import current_gossip
from unweave.protocol.merge import count_votes
from unweave.protocol.messages import Heard, Hello, Message, Share, Welcome
from unweave.protocol.proofs import expulsion_request
from unweave.protocol.state import State, Turn
from unweave.protocol.statements import Vote

__all__ = ["answer_departed", "automatic_votes", "on_vote", "tell_departed"]


def answer_departed(s: State, turn: Turn, sender: int, message: Message) -> None:
    """Answer a departed agent's message with the votes. Hello is always answered: the process has
    started, perhaps from an old disk. Other messages are answered at most once per `resend`."""
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
    """Send the votes to departed neighbours that have not acknowledged them; again after `loss`."""
    untold = [] if s.tomb.departed else [n for n in s.neighbours if n in s.departed - s.peers.aware]
    for n in untold:
        _remind(s, turn, n)
    if untold:
        s.timers = {**s.timers, "departed": turn.now + s.terms.timeouts.loss}


def _remind(s: State, turn: Turn, departed: int) -> None:
    s.peers.reminded = {**s.peers.reminded, departed: turn.now}
    turn.send(departed, Share(s.token.fence, current_gossip(s)))


def _possible_votes(s: State, target: int) -> int:
    """The votes of all remaining agents, and those cast by agents that departed later."""
    cast = sum(1 for t, voter in s.known.votes if t == target and voter in s.departed)
    return s.terms.size - len(s.departed | {target}) + cast


def on_vote(s: State, turn: Turn, event: VoteCast) -> None:
    target = event.target
    name = s.terms.name(target)
    last_heard = s.peers.heard.get(target)
    if s.tomb.departed:
        turn.do(Refused("this agent was declared departed by a quorum; its vote does not count"))
    elif target == s.me:
        turn.do(Refused("an agent cannot vote on itself. Fix: ask it to erase itself"))
    elif (voters := _possible_votes(s, target)) < s.terms.quorum:
        turn.do(
            Refused(
                f"{name} can never be voted out: {s.terms.quorum} of {s.terms.size} agents must "
                f"vote, and {voters} other{'s' if voters != 1 else ''} can. "
                f"Fix: start {name} again, or make a new network"
            )
        )
    elif not s.peers.synced:
        turn.do(Refused(f"{s.terms.name(s.me)} has just started and is in quarantine. Fix: wait"))
    elif (
        not event.lying and last_heard is not None and turn.now - last_heard < s.terms.timeouts.loss
    ):
        turn.do(
            Refused(
                f"{name} was heard {turn.now - last_heard:.0f} s ago: it has not departed. Fix: "
                f"vote after {s.terms.timeouts.loss:.0f} s of silence, or --lying if it lies"
            )
        )
    elif not event.lying and cannot_hear(s, target):
        near = ", ".join(s.terms.name(n) for n in s.terms.topology.adjacency[target])
        turn.do(
            Refused(
                f"{s.terms.name(s.me)} is no neighbour of {name} and cannot hear it. "
                f"Fix: one of its neighbours must vote first ({near})"
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


def automatic_votes(s: State, now: float) -> list[VoteCast]:
    """Rule 19: the votes that an agent casts without asking its operator. Each needs a proof of a
    lie. Silence is none: if agents seconded votes about a silent agent by themselves, one false
    vote would expel an honest agent that is down."""
    return [
        VoteCast(liar, expulsion_request(s, liar), now, lying=True)
        for liar in s.known.proofs
        if (liar, s.me) not in s.known.votes
    ]


def cannot_hear(s: State, target: int) -> bool:
    """Whether this agent must wait for a vote of the target's neighbours. Only neighbours hear each
    other, so any other agent votes after one of them, unless all of them have departed."""
    near = s.terms.topology.adjacency[target]
    if s.me in near or any((target, n) in s.known.votes for n in near):
        return False
    return any(n not in s.departed for n in near)
