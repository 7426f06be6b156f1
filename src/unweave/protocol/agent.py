"""The agent's state machine: `handle(state, event) → (state, effects)`, pure.

The driver commits the durable part of the new state, then carries out the effects in order. If it
dies in between, `start` and `resume` recompute every effect that is still outstanding.

    event            what follows                                                          rule
    ---------------  --------------------------------------------------------------------  -----
    start            new boot nonce, quarantine, Hello to every neighbour                  1
    Hello            hear, join, forget what the neighbour acknowledged, answer Welcome    1
    Welcome          hear, join; when all have answered: leave quarantine, resume          1
    Pass (token)     stale: learn only. Else hold it and acknowledge; dead: rebuild        4
    Continue         visit: cavity, wanted, one transaction, route or rest                 5–7
    Done             the answer that a visit waits for: visit again from its start         5
    Ack              the neighbour has it: no longer responsible                           8
    Share, Heard     join what a neighbour knows; note what it has acknowledged            3
    Alive            the token lives                                                       10
    EraseRequested   a durable intent                                                      12
    VoteCast         a vote; with a quorum the target has left                             13
    DataChanged      a new version of the data                                             11
    Roused           a token at rest walks once more                                       11
    Figured          one number about this agent is published
    Tick             resend, go elsewhere, presume the token lost                          8–10

After each event `settle` compares what the agent has to do with the place of rest (rule 11) and
spreads what has grown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unweave.protocol.archive import keep_certificate
from unweave.protocol.backing import unbacked
from unweave.protocol.epochs import drop_role, open_epoch
from unweave.protocol.events import (
    Again,
    Continue,
    DataChanged,
    Detach,
    Done,
    Effect,
    EraseRequested,
    Event,
    Figured,
    Received,
    Refused,
    Roused,
    Tick,
    VoteCast,
)
from unweave.protocol.gossip import attest_ready, handover, share, silent
from unweave.protocol.greeting import hello, on_heard, on_hello, welcomed
from unweave.protocol.hearing import hear, learn, recheck
from unweave.protocol.ids import FAR, NEVER, bit
from unweave.protocol.joining import elect, listen, stamps
from unweave.protocol.messages import Ack, Alive, Heard, Hello, Pass, Share, Welcome
from unweave.protocol.records import Figure, Intent, Sign, Vote
from unweave.protocol.route import unpark
from unweave.protocol.state import Hold, Idle, Out, Parked, State
from unweave.protocol.tombs import dead, includes, whole_bitmap
from unweave.protocol.turn import Turn, unsigned
from unweave.protocol.visit import visit
from unweave.protocol.waiting import deadline, pulse, resting, set_loss_alarm, tick

__all__ = ["UNPROVED", "deadline", "handle", "resume", "start"]

# Bytes of evidence that may wait for a certificate before further requests must wait too.
UNPROVED = 16 << 20


def start(
    state: State, boot: int, now: float, sign: Sign = unsigned, *, alone: bool = False
) -> tuple[State, list[Effect]]:
    """Rule 1: a new process on this durable state. `alone` skips quarantine: nobody else has a past
    (a network that begins now, in one memory)."""
    s = state.rebooted(boot)
    turn = Turn(now, sign)
    s.alone = alone
    if alone or not s.neighbours:
        leave_quarantine(s, turn)
    else:
        for n in s.neighbours:
            turn.send(n, hello(s, n))
        patience = s.terms.patience
        s.alarms = {"hello": now + patience.resend, "welcome": now + patience.welcome}
    return s, turn.effects


def handle(state: State, event: Event, sign: Sign = unsigned) -> tuple[State, list[Effect]]:
    """One transition. `state` is not changed."""
    s = state.fork()
    turn = Turn(event.now, sign)
    _EVENTS[type(event)](s, turn, event)
    if s.sought and (s.intents is not state.intents or s.wake is not state.wake):
        s.sought = frozenset()
    if s.synced:
        settle(s, turn)
        watch(s, turn, state)
        if (s.gossip is None or s.gossip is not state.gossip) and not silent(s):
            share(s, turn)  # it was written anew: something has grown
    return s, turn.effects


def resume(state: State) -> list[Effect]:
    """Every effect that is outstanding in this durable state."""
    turn = Turn(0.0, unsigned)
    _resume(state.fork(), turn)
    return turn.effects


def _resume(s: State, turn: Turn) -> None:
    if s.detached or s.dropped:
        turn.do(Detach(s.detached))
    keep_certificate(s, turn, again=True)
    if isinstance(s.role, Out):
        patience = s.terms.patience
        turn.send(s.role.to, handover(s, s.role.token, s.role.to))
        s.alarms = {
            **s.alarms,
            "resend": turn.now + patience.resend,
            "ack": turn.now + patience.ack,
        }
    elif isinstance(s.role, Hold):
        turn.do(Again())
    share(s, turn)


# -------------------------------------------------------------------------------- quarantine


def leave_quarantine(s: State, turn: Turn) -> None:
    """Fence, learn, resume; the genesis opens epoch 1 if nobody has heard of any."""
    s.synced = True
    s.alarms = {k: at for k, at in s.alarms.items() if k == "hello"}
    recheck(s, turn)
    set_loss_alarm(s, turn)
    s.alarms = {**s.alarms, "alive": turn.now + s.terms.patience.alive}
    if s.me == s.terms.genesis and max(s.last, s.fence) == NEVER and not s.halted:
        open_epoch(s, turn, None, "genesis")
    else:
        _resume(s, turn)


def on_tick(s: State, turn: Turn, event: Tick) -> None:
    welcome = s.alarms.get("welcome")
    if not s.synced and welcome is not None and welcome <= turn.now:
        # Patience has passed: start with those who answered, if there is at least one.
        s.alarms = {**s.alarms, "welcome": turn.now + s.terms.patience.welcome}
        if s.welcomed:
            leave_quarantine(s, turn)
    tick(s, turn)


def on_welcome(s: State, turn: Turn, sender: int, message: Welcome) -> None:
    if welcomed(s, turn, sender, message) and not s.synced:
        left = s.left
        if all(s.welcomed & bit(n) or left & bit(n) for n in s.neighbours):
            leave_quarantine(s, turn)


# ------------------------------------------------------------------------------------ tokens


def on_pass(s: State, turn: Turn, sender: int, message: Pass) -> None:
    """Rule 4. Stamps are compared before tombstones are learned."""
    token = message.token
    if token.run != s.terms.run or s.tomb.left or s.halted:
        return
    if token.stamp.epoch - s.fence.epoch >= FAR:
        turn.do(Refused(f"{s.terms.name(sender)} sent a token from an impossible epoch"))
        return
    gossip = message.gossip
    if gossip is not None:
        stamps(s, gossip)
    stale = token.stamp <= s.last or token.stamp < s.fence
    if not stale:
        s.last = token.stamp
        hear(s, token.stamp)
        drop_role(s)
    if gossip is not None:
        listen(s, turn, gossip)
    if stale:
        learn(s, turn, token.tombs, token.generation)
    else:
        learn(s, turn, token.tombs, token.generation)
        pulse(s, turn, token.stamp, turn.now)
        if dead(token, s.tombs, s.generation):
            open_epoch(s, turn, None, "the token included what a tombstone forbids")
        else:
            s.role = Hold(token)
    turn.send(sender, Ack(s.fence, token.stamp))
    if not stale and isinstance(s.role, Hold) and s.role.token is token:
        visit(s, turn)


def on_ack(s: State, turn: Turn, sender: int, message: Ack) -> None:
    hear(s, message.fence)
    if isinstance(s.role, Out) and s.role.to == sender and s.role.token.stamp == message.stamp:
        drop_role(s)


def on_continue(s: State, turn: Turn, event: Continue) -> None:
    if s.synced and isinstance(s.role, Hold):
        visit(s, turn)


def on_done(s: State, turn: Turn, event: Done) -> None:
    """An answer counts only while its question stands."""
    if event.key == s.pending and s.synced and isinstance(s.role, Hold):
        s.pending = None
        s.memo = {**s.memo, event.key: event.result}
        visit(s, turn)


# ------------------------------------------------------------------------------------ gossip


def on_share(s: State, turn: Turn, sender: int, message: Share) -> None:
    hear(s, message.fence)
    listen(s, turn, message.gossip)
    turn.send(sender, Heard(s.fence, message.gossip.digests, s.boot))


def on_alive(s: State, turn: Turn, sender: int, message: Alive) -> None:
    hear(s, message.stamp)
    pulse(s, turn, message.stamp, message.beat)


# ---------------------------------------------------------------------------------- requests


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
        intent = Intent.write(
            s.me,
            turn.sign,
            run=s.terms.run.hex(),
            request=event.request.hex(),
            agent=s.me,
            whole=event.whole,
            rows=sorted(row.hex() for row in event.rows),
        )
        s.intents = {**s.intents, event.request: intent}
        s.gossip = None
        if not event.rows <= s.dropped:
            s.dropped |= event.rows
            s.rows += 1
        revisit(s, turn)


def unproved_bytes(s: State) -> int:
    """The size of the evidence that is kept and spread until it is proved and put away."""
    records = (*s.intents.values(), *s.tombstones.values())
    return sum(len(record.raw) for record in records)


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


def on_vote(s: State, turn: Turn, event: VoteCast) -> None:
    target = event.target
    name = s.terms.name(target)
    last_heard = s.heard.get(target)
    if target == s.me:
        turn.do(Refused("an agent cannot vote itself gone: ask it to erase itself instead"))
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
    return any(not s.left & bit(n) for n in near)


# ------------------------------------------------------------------------------------ settle


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


# ------------------------------------------------------------------------------------- table


def on_received(s: State, turn: Turn, event: Received) -> None:
    sender = event.sender
    if sender in s.suspects:
        s.suspects -= {sender}
    if event.now - s.heard.get(sender, float("-inf")) > s.terms.patience.alive:
        s.heard = {**s.heard, sender: event.now}
    message = event.message
    why = unbacked(message, s)
    if why is not None:
        turn.do(Refused(f"{s.terms.name(sender)} claims {why}"))
        return
    # In quarantine nothing is accepted, but Hello is answered, or a power cut would never heal.
    if s.synced or isinstance(message, Hello | Welcome):
        _MESSAGES[type(message)](s, turn, sender, message)


_EVENTS: dict[type, Callable[[State, Turn, Any], None]] = {
    Received: on_received,
    Done: on_done,
    Continue: on_continue,
    Tick: on_tick,
    EraseRequested: on_erase,
    VoteCast: on_vote,
    DataChanged: on_data,
    Roused: on_roused,
    Figured: on_figured,
}

_MESSAGES: dict[type, Callable[[State, Turn, int, Any], None]] = {
    Hello: on_hello,
    Welcome: on_welcome,
    Pass: on_pass,
    Ack: on_ack,
    Share: on_share,
    Heard: on_heard,
    Alive: on_alive,
}
