"""What operators ask of their agent: erase, vote, look at new data, walk on (rules 11–13)."""

from __future__ import annotations

from unweave.protocol.events import (
    Again,
    DataChanged,
    EraseRequested,
    Figured,
    Refused,
    Roused,
    VoteCast,
)
from unweave.protocol.merge import elect
from unweave.protocol.records import Figure, Intent, Sign, Vote
from unweave.protocol.state import Hold, State, Turn

__all__ = ["UNPROVED", "intend", "on_data", "on_erase", "on_figured", "on_roused", "on_vote"]


# Bytes of evidence that may wait for a certificate before further requests must wait too.
UNPROVED = 8 << 20


def on_erase(s: State, turn: Turn, event: EraseRequested) -> None:
    """Rule 12: a durable intent. The tombstone is written by the removal visit, not before, or the
    live token would die and every erasure would cost a rebuild."""
    if s.tomb.left:
        turn.do(Refused("this agent was declared gone by a quorum; nothing of it is included"))
    elif event.request in s.intents or event.request in s.tomb.ids:
        return  # asked again: one intent is enough
    elif s.tomb.whole:
        turn.do(Refused("it has erased itself already; the certificate of that request covers it"))
    elif unproved_bytes(s) + 40 * len(event.rows) > UNPROVED:
        turn.do(
            Refused(
                "too many erasures wait for their certificate: ask again when the token has "
                "rested (`unweave status` says who is missing)"
            )
        )
    else:
        intend(s, turn.sign, event.request, event.whole, event.rows, event.remembered)
        revisit(s, turn)


def intend(
    s: State, sign: Sign, request: bytes, whole: bool, rows: frozenset[bytes], remembered: int
) -> None:
    """From now on nothing of these rows is learned, and the token is awaited to take them out."""
    intent = Intent.write(
        s.me,
        sign,
        run=s.terms.run.hex(),
        request=request.hex(),
        agent=s.me,
        whole=whole,
        rows=sorted(row.hex() for row in rows),
        remembered=remembered,
    )
    s.intents = {**s.intents, request: intent}
    s.gossip = None
    if not rows <= s.dropped:
        s.dropped |= rows
        s.rows += 1


def unproved_bytes(s: State) -> int:
    """The size of the evidence that waits for a certificate, as far as this agent can tell."""
    left = s.left
    waiting = [t for r, t in s.tombstones.items() if r not in s.proved and t.agent not in left]
    return sum(len(record.raw) for record in (*s.intents.values(), *waiting))


def on_data(s: State, turn: Turn, event: DataChanged) -> None:
    s.data += 1
    s.baulked = None  # the solver may think otherwise of the new data
    revisit(s, turn)


def on_roused(s: State, turn: Turn, event: Roused) -> None:
    if s.rest is not None and s.wake < s.rest.stamp:
        s.wake = s.rest.stamp
        s.gossip = None


def on_figured(s: State, turn: Turn, event: Figured) -> None:
    """Published beside the place of rest that it belongs to."""
    if s.rest is None:
        return
    figure = Figure.write(
        s.me,
        turn.sign,
        run=s.terms.run.hex(),
        agent=s.me,
        stamp=list(s.rest.stamp),
        influence=event.influence,
    )
    if s.figures.get(s.me) != figure:
        s.figures = {**s.figures, s.me: figure}
        s.gossip = None


def revisit(s: State, turn: Turn) -> None:
    """What is wanted has changed while the token is here: look again, without the old answers."""
    s.pending, s.memo = None, {}
    if s.synced and isinstance(s.role, Hold):
        turn.do(Again())


def _possible_votes(s: State, target: int) -> int:
    """Of all who are left, and those that were cast before their voters left."""
    cast = sum(1 for t, voter in s.votes if t == target and voter in s.left)
    return s.terms.size - len(s.left | {target}) + cast


def on_vote(s: State, turn: Turn, event: VoteCast) -> None:
    target = event.target
    name = s.terms.name(target)
    last_heard = s.heard.get(target)
    if s.tomb.left:
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
    elif not s.synced:
        turn.do(Refused(f"{s.terms.name(s.me)} has just started, and heard nobody yet: wait"))
    elif last_heard is not None and turn.now - last_heard < s.terms.patience.loss:
        turn.do(Refused(f"{name} was heard {turn.now - last_heard:.0f} s ago: it is not gone"))
    elif blind(s, target):
        near = ", ".join(s.terms.name(n) for n in s.terms.topology.adjacency[target])
        turn.do(
            Refused(
                f"{s.terms.name(s.me)} is no neighbour of {name} and cannot hear it: one of its "
                f"neighbours must vote first ({near})"
            )
        )
    elif (target, s.me) not in s.votes:
        vote = Vote.write(
            s.me,
            turn.sign,
            run=s.terms.run.hex(),
            agent=target,
            name=name,
            request=event.request.hex(),
        )
        s.votes = {**s.votes, (target, s.me): vote}
        s.gossip = None
        elect(s, turn)


def blind(s: State, target: int) -> bool:
    """Whether nobody who could hear the target has said that it is gone. Only neighbours hear each
    other: the vote of anybody else seconds one of theirs, unless none of them is left."""
    near = s.terms.topology.adjacency[target]
    if s.me in near or any((target, n) in s.votes for n in near):
        return False
    return any(n not in s.left for n in near)
