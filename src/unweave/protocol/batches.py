"""Batches: changes of records wait until enough of them have gathered (rule 21).

The difference of two published sums shows what changed between them. With `publish` in the manifest
a change waits at its agent, on its disk alone. The agent writes how many records wait into its
enrolment for the next private round. When the enrolments of a round show enough records of enough
agents, every agent that is counted among them lets its changes into that round. All agents read the
same signed enrolments, so they decide alike.

A count belongs to the published sum that it is a change of: enrolments name that round (`base`). A
batch that was published counts no more; one whose round was broken off still does.
"""

from __future__ import annotations

from collections.abc import Mapping

from unweave.protocol.events import DataChanged, EraseRequested
from unweave.protocol.state import NOTHING_WAITS, State
from unweave.protocol.statements import Enrolment, Intent
from unweave.protocol.terms import Terms

__all__ = ["drop_carried_out", "gathered", "hold_back", "leave", "must_wait", "start_over"]


def must_wait(s: State) -> bool:
    """Whether a change of records waits. The first contribution does not: it is in no sum yet."""
    return s.terms.publish is not None and s.own.counter > 0 and not s.tomb.out


def hold_back(s: State, event: EraseRequested | DataChanged, intent: Intent | None) -> None:
    """Let a change wait, for one period after the first one that waits here at most."""
    assert s.terms.publish is not None
    waiting = s.own.waiting
    if intent is not None:
        waiting = waiting._replace(requests={**waiting.requests, intent.request: intent})
    else:
        assert isinstance(event, DataChanged)
        waiting = waiting._replace(data=True, records=event.records)
    if waiting.due is None:
        waiting = waiting._replace(due=event.date + s.terms.publish.period)
    s.own.waiting = waiting


def leave(s: State) -> None:
    """Everything that waits here leaves now: requests become intents, and new data are read. They
    leave together, because a solver reads the data as they are now."""
    requests = s.own.waiting.requests
    _leave(s, {})
    if requests:
        s.known.intents = {**s.known.intents, **requests}
        s.known.gossip = None
        rows = frozenset().union(*(intent.rows for intent in requests.values()))
        if not rows <= s.own.dropped:
            s.own.dropped |= rows
            s.own.rows += 1


def start_over(s: State) -> None:
    """The disk lacks the value that the sum holds, so the next one is computed from the data as
    they are now: from the rows of waiting requests, too, which so stay out of the difference."""
    if s.terms.publish is not None:
        _leave(s, s.own.waiting.requests)
        s.own.factors = ()


def _leave(s: State, requests: Mapping[bytes, Intent]) -> None:
    """Let all but these requests leave."""
    waiting = s.own.waiting
    if waiting is NOTHING_WAITS:
        return
    kept = NOTHING_WAITS._replace(requests=requests, due=waiting.due if requests else None)
    s.own.waiting = kept._replace(leaving=waiting.total - kept.total)
    if waiting.data:
        s.own.data += 1
        s.own.infeasible_at = None


def drop_carried_out(s: State) -> None:
    """Requests that wait on a restored disk may have been carried out before."""
    waiting, tomb = s.own.waiting, s.tomb
    if not waiting.requests:
        return
    open_ones = {r: one for r, one in waiting.requests.items() if r not in tomb.ids}
    if tomb.out or len(open_ones) < len(waiting.requests):
        kept = waiting._replace(requests={} if tomb.out else open_ones)
        due = kept.due if kept.requests or kept.data else None
        s.own.waiting = kept._replace(due=due)


def gathered(terms: Terms, enrolments: Mapping[int, Enrolment], base: bytes) -> bool:
    """Whether these enrolments show enough changes since the published round `base`."""
    if terms.publish is None:
        return False
    counts = [one.changed for one in enrolments.values() if one.changed and one.base == base]
    return len(counts) >= terms.publish.agents and sum(counts) >= terms.publish.records
