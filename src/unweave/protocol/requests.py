"""Requests of the agent's operator: erase, read new data, wake the token (rules 11 and 12)."""

from __future__ import annotations

from unweave.protocol.batches import hold_back, leave, must_wait
from unweave.protocol.events import (
    Again,
    BatchDue,
    DataChanged,
    EraseRequested,
    InfluenceMeasured,
    Refused,
    WakeRequested,
)
from unweave.protocol.state import Hold, State, Turn
from unweave.protocol.statements import InfluenceReport, Intent, Sign

__all__ = [
    "ERASED_ITSELF",
    "MISMATCHES",
    "OPEN_REQUESTS",
    "UNPROVED",
    "on_data",
    "on_due",
    "on_erase",
    "on_influence_measured",
    "on_wake_requested",
    "record_intent",
]


# Requests of one agent that were not carried out yet; an agent keeps no more of any other agent.
OPEN_REQUESTS = 256

# Audit mismatches of one agent, for each number of departed agents, that an agent keeps: two stop
# the network, more say nothing new.
MISMATCHES = 2

# Bytes of evidence without a certificate, above which further requests are refused.
UNPROVED = 8 << 20


ERASED_ITSELF = "it has erased itself already; the certificate of that request covers it"


def on_erase(s: State, turn: Turn, event: EraseRequested) -> None:
    """Rule 12: record a durable intent. The removal visit writes the tombstone: an earlier one
    would make the token dead, and every erasure would cost a rebuild."""
    if s.tomb.departed:
        turn.do(Refused("this agent was declared departed by a quorum; nothing of it is included"))
    elif event.request in s.own.waiting.requests:
        if event.at_once:
            leave(s)
            revisit(s, turn)
    elif event.request in s.known.intents or event.request in s.tomb.ids:
        return  # a repeated request
    elif s.tomb.whole:
        turn.do(Refused(ERASED_ITSELF))
    elif not event.whole and not event.rows:
        turn.do(Refused("the request names no record. Fix: name at least one key"))
    elif len(s.own_intents()) + len(s.own.waiting.requests) >= OPEN_REQUESTS:
        turn.do(
            Refused(
                f"{OPEN_REQUESTS} requests of this agent wait to be carried out. Fix: ask again "
                "when they are, or name all keys in one request"
            )
        )
    elif unproved_bytes(s) + 40 * len(event.rows) > UNPROVED:
        turn.do(
            Refused(
                "too many erasures wait for their certificate. Fix: ask again when the token is "
                "parked (`unweave status` names the agents that are missing)"
            )
        )
    elif must_wait(s) and not event.whole and not event.at_once:
        found = write_intent(s, turn.sign, event.request, False, event.rows, event.remembered)
        hold_back(s, event, found)
    else:
        record_intent(s, turn.sign, event.request, event.whole, event.rows, event.remembered)
        leave(s)  # what waits here goes with it
        revisit(s, turn)


def record_intent(
    s: State, sign: Sign, request: bytes, whole: bool, rows: frozenset[bytes], remembered: int
) -> None:
    """From now on the agent learns nothing from these rows; the next visit takes them out."""
    intent = write_intent(s, sign, request, whole, rows, remembered)
    s.known.intents = {**s.known.intents, request: intent}
    s.known.gossip = None
    if not rows <= s.own.dropped:
        s.own.dropped |= rows
        s.own.rows += 1


def write_intent(
    s: State, sign: Sign, request: bytes, whole: bool, rows: frozenset[bytes], remembered: int
) -> Intent:
    return Intent.write(
        s.me,
        sign,
        network_id=s.terms.network_id.hex(),
        request=request.hex(),
        agent=s.me,
        whole=whole,
        rows=sorted(row.hex() for row in rows),
        remembered=remembered,
    )


def unproved_bytes(s: State) -> int:
    """The size of the evidence that waits for a certificate, as far as this agent knows."""
    departed = s.departed
    waiting = [
        t
        for r, t in s.known.tombstones.items()
        if r not in s.known.proved and t.agent not in departed
    ]
    return sum(len(statement.raw) for statement in (*s.known.intents.values(), *waiting))


def on_data(s: State, turn: Turn, event: DataChanged) -> None:
    if must_wait(s) and not is_leaving(s):
        hold_back(s, event, None)
        return
    s.own.data += 1
    s.own.infeasible_at = None  # the solver may accept the new data
    revisit(s, turn)


def on_due(s: State, turn: Turn, event: BatchDue) -> None:
    """Rule 21: the period of the first change that waits here has passed."""
    if s.own.waiting.due is not None and event.date >= s.own.waiting.due:
        leave(s)
        revisit(s, turn)


def is_leaving(s: State) -> bool:
    """Whether a change of data has left and no solve has read it: it will read this one, too."""
    current = s.own.current
    return current is None or current.data != s.own.data


def on_wake_requested(s: State, turn: Turn, event: WakeRequested) -> None:
    if s.token.parked is not None and s.token.wake < s.token.parked.stamp:
        s.token.wake = s.token.parked.stamp
        s.known.gossip = None


def on_influence_measured(s: State, turn: Turn, event: InfluenceMeasured) -> None:
    """Publish the influence beside the park notice that it belongs to. Of a small model it nearly
    is the factor, which a private round hides."""
    if s.token.parked is None or s.terms.masked:
        return
    report = InfluenceReport.write(
        s.me,
        turn.sign,
        network_id=s.terms.network_id.hex(),
        agent=s.me,
        stamp=list(s.token.parked.stamp),
        influence=event.influence,
    )
    if s.known.influences.get(s.me) != report:
        s.known.influences = {**s.known.influences, s.me: report}
        s.known.gossip = None


def revisit(s: State, turn: Turn) -> None:
    """The wanted factor may have changed while the token is here: visit again, without the old
    answers."""
    s.token.pending, s.token.memo = None, {}
    if s.peers.synced and isinstance(s.token.role, Hold):
        turn.do(Again())
