"""Where the token goes: after a visit, and when it is woken (rules 6, 7, 10 and 11).

`after_visit` is the one place that decides what happens after a visit; the functions that it calls
answer its questions or carry out its decision. `check_pending_work` compares, after every event,
what the agent has to do with the parked token.
"""

from __future__ import annotations

from collections.abc import Iterator

from unweave.graph import Topology
from unweave.graph.schedules import (
    SweepStep,
    metropolis_next,
    route_key,
    seek_next,
    sweep_next,
    sweep_order,
)
from unweave.grid import Ints
from unweave.persistent import NOBODY, Stack
from unweave.protocol.audit import (
    audit_matches,
    closing_certificate,
    is_complete,
    join_round,
    record_mismatch,
)
from unweave.protocol.compaction import keep_certificate
from unweave.protocol.events import Certified, Refused
from unweave.protocol.gossip import attest_ready, handover
from unweave.protocol.messages import ParkNotice
from unweave.protocol.recovery import drop_role, hold, rebuild
from unweave.protocol.rounds import described, has_masked_work
from unweave.protocol.state import Hold, Idle, Out, Parked, State, Turn
from unweave.protocol.steps import wrong_step
from unweave.protocol.timers import is_parked, set_loss_timer
from unweave.protocol.token import (
    NO_ROUND,
    NOTHING,
    PASSES,
    Token,
    includes,
    is_missing,
    lacking,
    open_tombs,
)

__all__ = ["after_visit", "check_pending_work", "watch_heartbeat"]


def after_visit(s: State, turn: Turn, token: Token, cavity: Ints) -> None:
    """Rules 6 and 7: decide, after a visit, where the token goes. In this order:

    1. An answer for the attestation is awaited: the token stays, and the answer repeats the visit.
    2. The attestation round is complete: audit it and park; rebuild after a mismatch.
    3. An erasure is pending: seek it.
    4. The pass is over: park if the pass changed nothing, otherwise start the next pass.
    5. The schedule names the next agent.
    """
    s.token.role = Hold(token)
    attested = join_round(s, turn, token, cavity)
    if attested is None:
        return
    token = attested
    s.token.role = Hold(token)
    if is_complete(s, token):
        if not audit_matches(token):
            record_mismatch(s, turn, token)
            if s.audit_failed:
                drop_role(s)
            else:
                rebuild(s, turn, "the audit did not add up to the token")
            return
        evidence = closing_certificate(s, turn, token)
        if evidence is not None:
            park(s, turn, token, evidence)
        return

    skip = s.peers.suspects | s.departed
    target = seek_target(s, skip)
    if target is not None:
        send(s, turn, token._replace(stack=Stack()), target)
        return
    step = scheduled_step(s, token, skip)
    if not step.done:
        send(s, turn, token._replace(seen=step.visited, stack=step.stack), step.next)
        return
    passes = next_pass(s, token, skip)
    if passes is None:
        park(s, turn, token, b"")
        return
    token = token._replace(passes=passes, busy=False, seen=NOBODY, stack=step.stack)
    send(s, turn, token, step.next)


def scheduled_step(s: State, token: Token, skip: frozenset[int]) -> SweepStep:
    """The schedule's next agent, and whether this visit ends the pass."""
    topology = s.terms.topology
    if sweeping(s, token):
        # No agent waits for a departed one. A suspect may answer another agent: it stays unseen.
        visited = token.seen | s.departed
        # A path that a liar has written may repeat agents. One as long as the network would grow
        # beyond what the next agent reads.
        stack = token.stack if len(token.stack) < s.terms.size else Stack()
        return sweep_next(topology, s.me, stack, visited, sweep_order_of(s), skip)
    key = route_key(s.terms.seed, token.stamp.epoch, token.stamp.hop)
    to = metropolis_next(topology, s.me, key, skip)
    # A pass does not wait for suspects: the token is parked, and a suspect that is back wakes it.
    # Otherwise the walk would go on at the network's full speed.
    return SweepStep(to, token.stack, token.seen, not s.terms.beyond(token.seen, skip))


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
    """The next agent on the shortest path to the nearest pending erasure.

    Each route is tried once: a token that comes back found the target down, and would be sent back
    and forth for ever. The schedule goes on, and the target wakes the token when it is back.
    """
    if not s.known.intents or s.terms.forget != "seek":
        return None
    assert s.token.held is not None
    epoch = s.token.held.stamp.epoch
    tried = frozenset(route for route in s.token.tried_routes if route[0] == epoch)
    targets = {i.agent for i in s.known.intents.values() if i.agent != s.me and i.agent not in skip}
    for agent in by_distance(s.terms.topology, s.me, frozenset(targets)):
        without = frozenset(hop for _, target, hop in tried if target == agent)
        step = seek_next(s.terms.topology, s.me, agent, skip | without)
        if agent not in without and step != s.me:
            s.token.tried_routes = tried | {(epoch, agent, step)}
            return step
    return None


def by_distance(topology: Topology, here: int, targets: frozenset[int]) -> Iterator[int]:
    """The nearest target first. The others are sorted only if the caller asks for them: that costs
    a search of the whole graph."""
    if targets:
        first = int(topology.nearest(targets)[here])
        yield first
        away = topology.distances(here)
        yield from sorted(targets - {first}, key=lambda k: (away[k], k))


def send(s: State, turn: Turn, token: Token, to: int) -> None:
    """Send the token, in the transaction of the visit; a self-loop is one more hop."""
    token = token._replace(stamp=token.stamp.next(s.incarnation))
    s.token.last = s.token.fence = max(s.token.fence, token.stamp)
    keep_copy(s, token)
    if to == s.me:
        hold(s, turn, token, s.token.origin)
        return
    message = handover(s, turn, token, to)
    if message.step is not None:
        problem = wrong_step(s.terms, s.me, token, message.step)
        if problem is not None:
            start_again(s, turn, problem)
            return
    s.token.role = Out(token, to)
    s.token.pending, s.token.memo = None, {}
    timeouts = s.terms.timeouts
    s.timers = {
        **s.timers,
        "resend": turn.now + timeouts.resend,
        "ack": turn.now + timeouts.ack,
    }
    turn.send(to, message)


def start_again(s: State, turn: Turn, problem: str) -> None:
    """This agent's own step is wrong: its memory or its disk is faulty. Signed, the step would be a
    proof against it. It solves again, from eta_0; if that fails too, it drops the token."""
    turn.do(Refused(f"this agent would have sent {problem}: its memory or its disk is faulty"))
    from_nothing = s.token.origin is not None and s.token.origin.header is None
    drop_role(s)
    s.token.copy = s.token.copy_origin = None
    s.own.factors = ()
    s.own.solved_for = b""
    if not from_nothing:
        rebuild(s, turn, "this agent's own step was wrong")


def keep_copy(s: State, token: Token) -> None:
    """Keep the token for readers, and as a base for a new epoch. If the agent has taken a factor
    out, the origin would keep that factor: the copy is then no base."""
    origin = s.token.origin
    s.token.copy = token
    s.token.copy_origin = None if origin is None or origin.removed is not None else origin


def next_pass(s: State, token: Token, skip: frozenset[int]) -> int | None:
    """The number of the next pass; None: this pass changed nothing, so the token is parked.

    A visited agent may stay out because its data cannot be read or do not fit. If only such agents
    are missing, no further pass can change anything: the last pass comes now, in which every agent
    attests the token as it is, not converged.
    """
    if token.busy or not s.terms.parks:
        return min(token.passes + 1, PASSES)
    last = s.terms.max_passes
    if not s.terms.freezes or s.terms.solve != "pass" or token.passes >= last or not lacking(token):
        return None
    return None if any(is_missing(token, agent) for agent in skip) else last


def park(s: State, turn: Turn, token: Token, certificate: bytes) -> None:
    """Park the token here. Without a complete attestation round it stays pending."""
    token = token._replace(stamp=token.stamp.next(s.incarnation))
    s.token.last = s.token.fence = max(s.token.fence, token.stamp)
    keep_copy(s, token)
    s.token.role, s.token.origin = Parked(token), s.token.copy_origin
    s.token.pending, s.token.memo = None, {}
    tombs = open_tombs(token.tombs)
    s.token.parked = ParkNotice(
        token.stamp,
        s.me,
        token.included,
        token.round.agents,
        tombs,
        certificate,
        *described(s, token),
    )
    s.known.gossip = None
    keep_certificate(s, turn)
    s.timers = {k: at for k, at in s.timers.items() if k not in ("resend", "ack", "loss")}
    if certificate:
        turn.do(Certified(certificate))


def unpark(s: State, turn: Turn) -> None:
    """Rule 11: wake the parked token. `seen` starts empty, or no agent would be visited."""
    assert isinstance(s.token.role, Parked)
    token = s.token.role.token
    # A token parked before its round was complete keeps its count of passes: otherwise an agent
    # that no solver can serve would never reach the last pass.
    pending = bool(s.terms.beyond(token.round.agents, s.departed))
    token = token._replace(
        stamp=token.stamp.next(s.incarnation),
        seen=NOBODY,
        stack=Stack(),
        round=NO_ROUND,
        busy=True,
        passes=token.passes if pending else 0,
        masked=token.masked._replace(rested=not pending) if s.terms.masked else token.masked,
    )
    s.token.last = s.token.fence = max(s.token.fence, token.stamp)
    if s.token.origin is None and s.terms.checked:
        rebuild(s, turn, "the parked token's origin was not kept")
    else:
        hold(s, turn, token, s.token.origin)


def check_pending_work(s: State, turn: Turn) -> None:
    """Rule 11, level-triggered: pending work is durable, so a lost wake-up is repeated."""
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
    """Whether the parked token must visit this agent, or this agent has lost the parked token."""
    parked = s.token.parked
    assert parked is not None
    if parked.holder == s.me and not (
        isinstance(s.token.role, Parked) and s.token.role.token.stamp == parked.stamp
    ):
        return True
    if s.tomb.departed:
        return False
    if s.own_intents() or not includes(parked.tombs, s.known.tombs):
        return True  # the parked token does not cover an erasure
    if s.terms.masked:
        return has_masked_work(s, parked)
    current = s.own.current
    included = parked.included[s.me]
    if s.tomb.out or s.own.detached:
        return bool(included.counter) or unattested(s)
    if current is None:
        # Not included: the token must visit, unless it has visited and nothing has changed since.
        return bool(included.counter) or parked.included != s.own.infeasible_at or unattested(s)
    stale = current.rows != s.own.rows or current.data != s.own.data
    if stale and parked.included == s.own.infeasible_at:
        stale = False  # the solver refused the new data: not again before something changes
    return stale or current.revision != included or unattested(s)


def unattested(s: State) -> bool:
    """Whether a visit would add this agent's attestation. Unless the model is conjugate, no agent
    attests an incomplete token: agents that woke it for that would wake it for ever."""
    parked = s.token.parked
    if parked is None or s.me in parked.attested or not attest_ready(s):
        return False
    if s.terms.conjugate or s.tomb.out or s.own.detached:
        return True
    return all(
        revision.counter or k == s.me or s.known.tombs.get(k, NOTHING).out
        for k, revision in enumerate(parked.included)
    )


def watch_heartbeat(s: State, turn: Turn, before: State) -> None:
    """Rule 10: the agent that has the token sends heartbeats, the others wait for them. The wait
    starts anew when the token was handed over or is no longer parked: earlier silence does not
    count."""
    if isinstance(s.token.role, Idle):
        if not isinstance(before.token.role, Idle) or (
            before.token.parked is not None and is_parked(before) and not is_parked(s)
        ):
            set_loss_timer(s, turn)
    elif "alive" not in s.timers and not isinstance(s.token.role, Parked):
        s.timers = {**s.timers, "alive": turn.now + s.terms.timeouts.alive}
