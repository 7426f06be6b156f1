"""The agent's state machine: `handle(state, event) → (state, effects)`, pure.

The driver commits the durable part of the new state, then carries out the effects in order. If it
dies in between, `start` and `resume` recompute every effect that is still outstanding.

    event               what follows                                                       rule
    ------------------  -----------------------------------------------------------------  -----
    start               new incarnation, quarantine, Hello to every neighbour              1
    Hello               fence, join; a new incarnation has acknowledged nothing; Welcome   1
    Welcome             fence, join; when all have answered: leave quarantine, resume      1
    Pass                stale: learn only. Else hold and acknowledge; dead: rebuild        4
    Continue            visit: cavity, wanted, one transaction, then send or park          5–7
    Done                the awaited answer: visit again from the start                     5
    Ack                 the neighbour has the token: no longer responsible                 8
    Share, Heard        join a neighbour's knowledge; note what it has acknowledged        3
    Alive               a heartbeat of the token                                           10
    from a departed agent: nothing is believed; the answer is the votes                    13
    EraseRequested      a durable intent                                                   12
    VoteCast            a vote; with a quorum the target is departed                       13
    DataChanged         a new version of the data; with batches it may wait                11
    BatchDue            the changes that wait here have waited for their period            21
    WakeRequested       a parked token walks once more                                     11
    CertificateKept     the certificate is on the disk: its evidence may be compacted
    InfluenceMeasured   the agent's influence is published
    Tick                resend, go elsewhere, presume the token lost                       8–10

After each event `handle` compares the agent's pending work with the parked token (rule 11) and
shares knowledge that has grown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from unweave.protocol.compaction import keep_certificate, on_kept
from unweave.protocol.events import (
    Again,
    BatchDue,
    CertificateKept,
    Continue,
    DataChanged,
    Detach,
    Done,
    Effect,
    EraseRequested,
    Event,
    InfluenceMeasured,
    Received,
    Refused,
    Tick,
    VoteCast,
    WakeRequested,
)
from unweave.protocol.given import remember_given
from unweave.protocol.gossip import (
    handover,
    hello,
    note_heard,
    on_heard,
    on_hello,
    share,
    silent,
    welcomed,
)
from unweave.protocol.masked_visit import visit_masked
from unweave.protocol.membership import answer_departed, on_vote
from unweave.protocol.merge import (
    join_gossip,
    learn,
    raise_fence,
    raise_fence_by,
    recheck,
    take_openings,
    unsupported_claim,
)
from unweave.protocol.messages import Ack, Alive, Heard, Hello, Pass, Share, Welcome
from unweave.protocol.openings import is_backed
from unweave.protocol.proofs import step_problem
from unweave.protocol.recovery import drop_role, open_epoch
from unweave.protocol.requests import (
    on_data,
    on_due,
    on_erase,
    on_influence_measured,
    on_wake_requested,
)
from unweave.protocol.rounds import keep_published
from unweave.protocol.routing import check_pending_work, watch_heartbeat
from unweave.protocol.state import Hold, Out, State, Turn, unsigned
from unweave.protocol.statements import Sign
from unweave.protocol.steps import received_from
from unweave.protocol.timers import deadline, note_heartbeat, set_loss_timer, tick
from unweave.protocol.token import NEVER, SECRET_BYTES, dead
from unweave.protocol.visit import visit as visit_plain

__all__ = ["MOVES", "RoleChange", "deadline", "handle", "resume", "start"]


class RoleChange(NamedTuple):
    """A change of an agent's role: the events that can cause it, and why it happens. "Quarantine"
    stands for the time before an agent is synced, whatever its durable role."""

    before: str
    after: str
    events: tuple[str, ...]
    why: str


_MESSAGES_WITH_STAMPS = ("Pass", "Ack", "Share", "Heard", "Alive", "Hello", "Welcome")
_WAKES = (
    *("Pass", "Share", "Heard", "Hello", "Welcome"),
    *("EraseRequested", "VoteCast", "DataChanged", "BatchDue", "WakeRequested", "Tick"),
)

# Every change of role. Fault runs are compared with this table, and the diagram is drawn from it.
MOVES: tuple[RoleChange, ...] = (
    RoleChange("Quarantine", "Idle", ("Welcome", "Tick"), "the neighbours answered"),
    RoleChange("Quarantine", "Hold", ("Welcome", "Tick"), "genesis, or a durable role"),
    RoleChange("Quarantine", "Out", ("Welcome", "Tick"), "a durable role: send again"),
    RoleChange("Quarantine", "Parked", ("Welcome", "Tick"), "a durable role"),
    RoleChange("Idle", "Hold", ("Pass", "Tick"), "a token arrives, or is lost"),
    RoleChange("Idle", "Out", ("Pass",), "visited and sent on"),
    RoleChange("Idle", "Parked", ("Pass",), "visited, nothing is left"),
    RoleChange("Hold", "Out", ("Continue", "Done", "Pass"), "visited and sent on"),
    RoleChange("Hold", "Parked", ("Continue", "Done", "Pass"), "visited, nothing is left"),
    RoleChange("Hold", "Idle", _MESSAGES_WITH_STAMPS, "a larger stamp"),
    RoleChange("Out", "Idle", _MESSAGES_WITH_STAMPS, "Ack, or a larger stamp"),
    RoleChange("Out", "Hold", _WAKES, "no Ack, or a newer token"),
    RoleChange("Out", "Parked", ("Pass",), "a newer token, nothing is left"),
    RoleChange("Parked", "Hold", _WAKES, "pending work, or a dead token"),
    RoleChange("Parked", "Out", ("Pass",), "a newer token, sent on"),
    RoleChange("Parked", "Idle", _MESSAGES_WITH_STAMPS, "a larger stamp"),
)

_ONE_ANSWER = 5  # waits for all neighbours, after which one answer ends quarantine


def start(
    state: State, incarnation: int, now: float, sign: Sign = unsigned, *, alone: bool = False
) -> tuple[State, list[Effect]]:
    """Rule 1: a new process on this durable state. `alone` skips quarantine: no agent has had
    another incarnation (a network that begins now, in one memory)."""
    s = state.restarted(incarnation)
    turn = Turn(now, sign)
    s.peers.alone = alone
    if alone or not s.neighbours:
        leave_quarantine(s, turn)
    else:
        for n in s.neighbours:
            turn.send(n, hello(s, n))
        timeouts = s.terms.timeouts
        s.timers = {"hello": now + timeouts.resend, "welcome": now + timeouts.welcome}
    return s, turn.effects


def handle(
    state: State, event: Event, sign: Sign = unsigned, entropy: bytes = bytes(SECRET_BYTES)
) -> tuple[State, list[Effect]]:
    """One transition. `state` is not changed. `entropy` is fresh at every call; the default is for
    simulations in which nothing is secret."""
    s = state.fork()
    turn = Turn(event.now, sign, entropy)
    _EVENTS[type(event)](s, turn, event)
    if s.token.tried_routes and (
        s.known.intents is not state.known.intents or s.token.wake is not state.token.wake
    ):
        s.token.tried_routes = frozenset()
    if s.token.parked is not state.token.parked:
        keep_published(s)
    if s.peers.synced:
        check_pending_work(s, turn)
        watch_heartbeat(s, turn, state)
        if (s.known.gossip is None or s.known.gossip is not state.known.gossip) and not silent(s):
            share(s, turn)
    return s, turn.effects


def resume(state: State, sign: Sign = unsigned) -> list[Effect]:
    """Every effect that is outstanding in this durable state."""
    turn = Turn(0.0, sign)
    _resume(state.fork(), turn)
    return turn.effects


def _resume(s: State, turn: Turn) -> None:
    if s.own.detached or s.own.dropped:
        turn.do(Detach(s.own.detached))
    keep_certificate(s, turn)
    if isinstance(s.token.role, Out):
        timeouts = s.terms.timeouts
        turn.send(s.token.role.to, handover(s, turn, s.token.role.token, s.token.role.to))
        s.timers = {
            **s.timers,
            "resend": turn.now + timeouts.resend,
            "ack": turn.now + timeouts.ack,
        }
    elif isinstance(s.token.role, Hold):
        turn.do(Again())
    share(s, turn)


def leave_quarantine(s: State, turn: Turn) -> None:
    """Check the role token and resume; the genesis agent opens epoch 1 if it has heard of none."""
    s.peers.synced = True
    s.timers = {k: at for k, at in s.timers.items() if k == "hello"}
    recheck(s, turn)
    set_loss_timer(s, turn)
    s.timers = {**s.timers, "alive": turn.now + s.terms.timeouts.alive}
    if s.me == s.terms.genesis and max(s.token.last, s.token.fence) == NEVER and not s.audit_failed:
        open_epoch(s, turn, None, "genesis")
    else:
        _resume(s, turn)


def on_tick(s: State, turn: Turn, event: Tick) -> None:
    welcome = s.timers.get("welcome")
    if not s.peers.synced and welcome is not None and welcome <= turn.now:
        # Start with the neighbours that answered. One answer could be a lie: wait for a second one,
        # but not for ever.
        s.timers = {**s.timers, "welcome": turn.now + s.terms.timeouts.welcome}
        s.peers.waited += 1
        others = sum(n not in s.departed for n in s.neighbours)
        enough = 1 if s.peers.waited >= _ONE_ANSWER else min(2, others)
        if len(s.peers.welcomed) >= max(enough, 1):
            leave_quarantine(s, turn)
    tick(s, turn)


def on_welcome(s: State, turn: Turn, sender: int, message: Welcome) -> None:
    if welcomed(s, turn, sender, message) and not s.peers.synced:
        departed = s.departed
        if all(n in s.peers.welcomed or n in departed for n in s.neighbours):
            leave_quarantine(s, turn)


def on_pass(s: State, turn: Turn, sender: int, message: Pass) -> None:
    """Rule 4. Stamps are compared before tombstones are learned."""
    token = message.token
    if token.network_id != s.terms.network_id or s.tomb.departed or s.audit_failed:
        return
    gossip = message.gossip
    problem = step_problem(s, turn, sender, message) if s.terms.checked else None
    if problem is None and not is_backed(s, token.stamp):
        problem = "a token of an epoch that no agent has opened"
    if problem is not None:
        turn.do(Refused(f"{s.terms.name(sender)} sent {problem}"))
        return
    if gossip is not None:
        raise_fence_by(s, gossip)
    stale = token.stamp <= s.token.last or token.stamp < s.token.fence
    if not stale:
        s.token.last = token.stamp
        raise_fence(s, token.stamp)
        drop_role(s)
    if gossip is not None:
        join_gossip(s, turn, gossip)
    learn(s, turn, token.tombs, token.retrain_epoch)
    if not stale:
        note_heartbeat(s, turn, token.stamp, turn.now)
        if dead(token, s.known.tombs, s.known.retrain_epoch):
            open_epoch(s, turn, None, "the token included what a tombstone forbids")
        else:
            s.token.role = Hold(token)
            s.token.origin = received_from(message.header, token, s.me)
    turn.send(sender, Ack(s.token.fence, token.stamp))
    if not stale and isinstance(s.token.role, Hold) and s.token.role.token is token:
        visit(s, turn)


def on_ack(s: State, turn: Turn, sender: int, message: Ack) -> None:
    raise_fence(s, message.fence)
    if (
        isinstance(s.token.role, Out)
        and s.token.role.to == sender
        and s.token.role.token.stamp == message.stamp
    ):
        drop_role(s)


def visit(s: State, turn: Turn) -> None:
    if s.terms.masked:
        visit_masked(s, turn)
    else:
        visit_plain(s, turn)


def on_continue(s: State, turn: Turn, event: Continue) -> None:
    if s.peers.synced and isinstance(s.token.role, Hold):
        visit(s, turn)


def on_done(s: State, turn: Turn, event: Done) -> None:
    """An answer counts only while its question is pending."""
    if event.key == s.token.pending and s.peers.synced and isinstance(s.token.role, Hold):
        s.token.pending = None
        s.token.memo = {**s.token.memo, event.key: event.result}
        visit(s, turn)


def on_share(s: State, turn: Turn, sender: int, message: Share) -> None:
    raise_fence(s, message.fence)
    join_gossip(s, turn, message.gossip)
    turn.send(sender, Heard(s.token.fence, message.gossip.digests, s.incarnation))


def on_alive(s: State, turn: Turn, sender: int, message: Alive) -> None:
    raise_fence(s, message.stamp)
    note_heartbeat(s, turn, message.stamp, message.clock)


def on_received(s: State, turn: Turn, event: Received) -> None:
    sender = event.sender
    if sender in s.peers.suspects:
        s.peers.suspects -= {sender}
    if event.now - s.peers.heard.get(sender, float("-inf")) > s.terms.timeouts.alive:
        s.peers.heard = {**s.peers.heard, sender: event.now}
    if s.peers.repeated:
        note_heard(s, turn.now, sender)
    message = event.message
    if isinstance(message, Pass) and s.terms.noise is not None:
        # Whatever follows: its values have arrived here, and nobody else may know of them.
        remember_given(s, message.token)
    if sender in s.departed:
        answer_departed(s, turn, sender, message)
        return
    claim = unsupported_claim(message, s)
    if claim is not None:
        turn.do(Refused(f"{s.terms.name(sender)} claims {claim}"))
        return
    # Hello is answered in quarantine too: after a power cut all agents are in quarantine.
    if s.peers.synced or isinstance(message, Hello | Welcome):
        if not isinstance(message, Ack | Alive | Heard) and message.gossip is not None:
            take_openings(s, turn, message.gossip)
        _MESSAGES[type(message)](s, turn, sender, message)


_EVENTS: dict[type, Callable[[State, Turn, Any], None]] = {
    Received: on_received,
    Done: on_done,
    Continue: on_continue,
    Tick: on_tick,
    EraseRequested: on_erase,
    VoteCast: on_vote,
    DataChanged: on_data,
    BatchDue: on_due,
    WakeRequested: on_wake_requested,
    CertificateKept: on_kept,
    InfluenceMeasured: on_influence_measured,
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
