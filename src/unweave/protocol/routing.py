"""Where the token goes after a visit, and when a pass is over (rule 7)."""

from __future__ import annotations

from collections.abc import Iterator

from unweave.graph import Topology
from unweave.graph.schedules import metropolis_next, route_key, seek_next, sweep_next, sweep_order
from unweave.persistent import NOBODY, Stack
from unweave.protocol.compaction import keep_certificate
from unweave.protocol.gossip import attest_ready, handover
from unweave.protocol.messages import ParkNotice
from unweave.protocol.recovery import drop_role, hold
from unweave.protocol.state import Hold, Idle, Out, Parked, State, Turn
from unweave.protocol.timers import is_parked, set_loss_timer
from unweave.protocol.token import (
    NO_ROUND,
    NOTHING,
    Token,
    includes,
    is_missing,
    lacking,
    open_tombs,
)

__all__ = ["check_pending_work", "park", "send_on", "watch_heartbeat"]


def send_on(s: State, turn: Turn) -> None:
    """Send the token on, keep it for another iteration, or park it."""
    assert isinstance(s.token.role, Hold)
    token = s.token.role.token
    skip = s.peers.suspects
    left = s.departed
    if left:
        skip = skip | left
    target = seek_target(s, skip)
    if target is not None:
        go(s, turn, token._replace(stack=Stack()), target)
    elif sweeping(s, token):
        order = sweep_order_of(s)
        # Nobody waits for one that left; a suspect may answer somebody else, so it stays unseen.
        step = sweep_next(s.terms.topology, s.me, token.stack, token.seen | left, order, skip)
        if step.done:
            end_pass(s, turn, token, step.next, skip)
        else:
            go(s, turn, token._replace(seen=step.visited, stack=step.stack), step.next)
    else:
        # An agent that is known not to answer is not waited for: the token rests, and the agent
        # wakes it when it is back. Otherwise the walk would go on at the network's full speed.
        if not s.terms.beyond(token.seen, skip):
            passes = next_pass(s, token, skip)
            if passes is None:
                park(s, turn, token, b"")
                return
            token = token._replace(seen=NOBODY, passes=passes, busy=False)
        key = route_key(s.terms.seed, token.stamp.epoch, token.stamp.hop)
        go(s, turn, token, metropolis_next(s.terms.topology, s.me, key, skip))


def sweeping(s: State, token: Token) -> bool:
    """Depth first by schedule, or because a complete token is being attested."""
    if s.terms.schedule == "sweep":
        return True
    return s.terms.attest == "sweep" and bool(token.round.agents) and not lacking(token)


def sweep_order_of(s: State) -> tuple[int, ...]:
    orders = s.terms.sweep_orders
    order = orders.get(s.me)
    if order is None:
        order = orders[s.me] = sweep_order(s.terms.topology, s.me, s.terms.seed)
    return order


def seek_target(s: State, skip: frozenset[int]) -> int | None:
    """The next agent on the way to the nearest pending erasure.

    Each way is tried once: a token that comes back found the target down, and would be sent back
    and forth for ever. The schedule goes on then, and the target wakes the token when it is back.
    """
    if not s.known.intents or s.terms.forget != "seek":
        return None
    assert s.token.held is not None
    epoch = s.token.held.stamp.epoch
    tried = frozenset(way for way in s.token.tried_routes if way[0] == epoch)
    targets = {i.agent for i in s.known.intents.values() if i.agent != s.me and i.agent not in skip}
    for agent in by_distance(s.terms.topology, s.me, frozenset(targets)):
        without = frozenset(hop for _, target, hop in tried if target == agent)
        step = seek_next(s.terms.topology, s.me, agent, skip | without)
        if agent not in without and step != s.me:
            s.token.tried_routes = tried | {(epoch, agent, step)}
            return step
    return None


def by_distance(topology: Topology, here: int, targets: frozenset[int]) -> Iterator[int]:
    """The nearest target first. It will mostly do: the others are searched for from here only if
    it does not, because a search costs as much as the graph is large."""
    if targets:
        first = int(topology.nearest(targets)[here])
        yield first
        away = topology.distances(here)
        yield from sorted(targets - {first}, key=lambda k: (away[k], k))


def go(s: State, turn: Turn, token: Token, to: int) -> None:
    """Hand over, in the transaction of the visit; a self-loop is one more hop."""
    token = token._replace(stamp=token.stamp.next(s.incarnation))
    s.token.last = s.token.fence = max(s.token.fence, token.stamp)
    s.token.copy = token
    if to == s.me:
        hold(s, turn, token)
        return
    s.token.role = Out(token, to)
    s.token.pending, s.token.memo = None, {}
    timeouts = s.terms.timeouts
    s.timers = {
        **s.timers,
        "resend": turn.now + timeouts.resend,
        "ack": turn.now + timeouts.ack,
    }
    turn.send(to, handover(s, token, to))


def end_pass(s: State, turn: Turn, token: Token, root: int, skip: frozenset[int]) -> None:
    """The pass is over: rest if it changed nothing, else start another one at its root."""
    passes = next_pass(s, token, skip)
    if passes is None:
        park(s, turn, token, b"")
        return
    token = token._replace(passes=passes, busy=False, seen=NOBODY, stack=Stack())
    go(s, turn, token, root)


def next_pass(s: State, token: Token, skip: frozenset[int]) -> int | None:
    """The number of the next pass; None: this one changed nothing, so rest.

    Agents that were visited and stay out, because their data cannot be read or do not fit, would be
    waited for for ever. If nobody else is waited for, no further pass can change anything:
    the last one comes now, in which everybody attests the token as it is, not converged.
    """
    if token.busy or not s.terms.parks:
        return token.passes + 1
    last = s.terms.max_passes
    if s.terms.conjugate or s.terms.solve != "pass" or token.passes >= last or not lacking(token):
        return None
    return None if any(is_missing(token, agent) for agent in skip) else last


def park(s: State, turn: Turn, token: Token, certificate: bytes) -> None:
    """Rest here and say so; the rest is pending if somebody has not attested."""
    token = token._replace(stamp=token.stamp.next(s.incarnation))
    s.token.last = s.token.fence = max(s.token.fence, token.stamp)
    s.token.copy = token
    s.token.role = Parked(token)
    s.token.pending, s.token.memo = None, {}
    tombs = open_tombs(token.tombs)
    s.token.parked = ParkNotice(
        token.stamp, s.me, token.included, token.round.agents, tombs, certificate
    )
    s.known.gossip = None
    keep_certificate(s, turn)
    s.timers = {k: at for k, at in s.timers.items() if k not in ("resend", "ack", "loss")}


def unpark(s: State, turn: Turn) -> None:
    """Rule 11: somebody has business. The bitmap starts empty, or nobody would be visited."""
    assert isinstance(s.token.role, Parked)
    token = s.token.role.token
    # A pending rest was no end: passes go on, or somebody who cannot be solved for would never
    # reach the last one.
    pending = bool(s.terms.beyond(token.round.agents, s.departed))
    token = token._replace(
        stamp=token.stamp.next(s.incarnation),
        seen=NOBODY,
        stack=Stack(),
        round=NO_ROUND,
        busy=True,
        passes=token.passes if pending else 0,
    )
    s.token.last = s.token.fence = max(s.token.fence, token.stamp)
    hold(s, turn, token)


# ------------------------------------------------------------------------------
# What an agent has to do with a token that rests; who gives signs of life (rules 10 and 11).


def check_pending_work(s: State, turn: Turn) -> None:
    """Rule 11, level-triggered: business is durable, so a lost wake-up call is repeated."""
    if s.audit_failed or s.tomb.departed:
        if not isinstance(s.token.role, Idle):
            drop_role(s)
    elif s.token.parked is not None:
        if s.token.wake < s.token.parked.stamp and has_pending_work(s):
            s.token.wake = s.token.parked.stamp
            s.known.gossip = None
        if isinstance(s.token.role, Parked) and (
            s.token.wake >= s.token.role.token.stamp or not s.terms.parks
        ):
            unpark(s, turn)


def has_pending_work(s: State) -> bool:
    """Whether the token that rests must come here, or this agent must let it go."""
    rest = s.token.parked
    assert rest is not None
    if rest.holder == s.me and not (
        isinstance(s.token.role, Parked) and s.token.role.token.stamp == rest.stamp
    ):
        return True
    if s.tomb.departed:
        return False
    if s.own_intents() or not includes(rest.tombs, s.known.tombs):
        return True  # an erasure that this rest does not cover
    current = s.own.current
    included = rest.included[s.me]
    if s.tomb.out or s.own.detached:
        return bool(included.counter) or unattested(s)
    if current is None:
        # Not in yet: the token must come here, unless it has been here and nothing has changed.
        return bool(included.counter) or rest.included != s.own.infeasible_at or unattested(s)
    stale = current.rows != s.own.rows or current.data != s.own.data
    if stale and rest.included == s.own.infeasible_at:
        stale = False  # the solver has looked at them, and refused: not before something changes
    return stale or current.revision != included or unattested(s)


def unattested(s: State) -> bool:
    """Whether a visit would add this agent's word. Unless the model is conjugate, nobody signs an
    incomplete token: to wake it before the missing have come would be to wake it for ever."""
    rest = s.token.parked
    if rest is None or s.me in rest.attested or not attest_ready(s):
        return False
    if s.terms.conjugate or s.tomb.out or s.own.detached:
        return True
    return all(
        revision.counter or k == s.me or s.known.tombs.get(k, NOTHING).out
        for k, revision in enumerate(rest.included)
    )


def watch_heartbeat(s: State, turn: Turn, before: State) -> None:
    """Rule 10: whoever has the token gives signs of life; everybody else waits for them. The wait
    starts anew when the token has been handed over or a rest has ended: the silence before counts
    against nobody."""
    if isinstance(s.token.role, Idle):
        if not isinstance(before.token.role, Idle) or (
            before.token.parked is not None and is_parked(before) and not is_parked(s)
        ):
            set_loss_timer(s, turn)
    elif "alive" not in s.timers and not isinstance(s.token.role, Parked):
        s.timers = {**s.timers, "alive": turn.now + s.terms.timeouts.alive}
