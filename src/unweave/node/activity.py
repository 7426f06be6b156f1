"""An agent's life in words: one line for what an operator would tell a colleague.

    joined · learned · asked to erase · taken out · certified · the token rests · a neighbour does
    not answer · a new token, and why if that is known here · a vote · gone · an audit that failed

The lines follow from the states before and after a step, so that no step is told twice and none is
left out, whatever caused it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from unweave.node.log import Log
from unweave.protocol.messages import ParkNotice
from unweave.protocol.state import State
from unweave.protocol.statements import Intent, Tombstone
from unweave.protocol.token import NEVER, NOTHING, Tomb, digest, requested_of
from unweave.text import listed

__all__ = ["MISMATCH", "ActivityEntry", "log_activity", "news"]


MISMATCH = "an audit did not add up: the factors of all agents are not the token"


class ActivityEntry(NamedTuple):
    """One line: what happened, and its facts."""

    what: str
    facts: dict[str, Any]
    level: str = "info"


def log_activity(log: Log, before: State, after: State) -> None:
    """Write what a step has changed. A line is never worth a step: what goes wrong here is told,
    and the agent goes on."""
    try:
        for entry in news(before, after):
            getattr(log, entry.level)(entry.what, **entry.facts)
    except Exception as error:
        log.error("the journal has a gap", error=f"{type(error).__name__}: {error}")


def news(before: State, after: State) -> Iterator[ActivityEntry]:
    """What is worth a line; unchanged fields are the same objects, so most steps cost little."""
    name = after.terms.name
    if after.peers.synced and not before.peers.synced:
        heard = [name(k) for k in after.neighbours if k in after.peers.welcomed]
        yield ActivityEntry("joined", {"neighbours": listed(heard)})
    if after.peers.suspects is not before.peers.suspects:
        for k in sorted(after.peers.suspects - before.peers.suspects):
            yield ActivityEntry("a neighbour does not answer", {"agent": name(k)}, "warning")
        for k in sorted(before.peers.suspects - after.peers.suspects):
            yield ActivityEntry("a neighbour answers again", {"agent": name(k)})
    if after.token.fence.epoch != before.token.fence.epoch and before.token.fence != NEVER:
        facts = {"epoch": after.token.fence.epoch, "by": name(after.token.fence.initiator)}
        yield ActivityEntry(_renewed(before, after), facts)
    if after.known.intents is not before.known.intents:
        for request in sorted(after.known.intents.keys() - before.known.intents.keys()):
            intent = after.known.intents[request]
            facts = {"agent": name(intent.agent), "scope": _scope(intent)}
            yield ActivityEntry("asked to erase", facts | {"request": request.hex()})
    if after.known.tombs is not before.known.tombs:
        yield from _buried(before, after)
    if after.known.votes is not before.known.votes:
        for target, voter in sorted(after.known.votes.keys() - before.known.votes.keys()):
            votes = sum(1 for t, _ in after.known.votes if t == target)
            facts = {"agent": name(target), "by": name(voter)}
            count = {"votes": votes, "needed": after.terms.quorum}
            yield ActivityEntry("a vote that an agent is gone", facts | count)
    if after.own.factors is not before.own.factors:
        yield from _learned(before, after)
    if after.token.parked is not before.token.parked and after.token.parked is not None:
        yield from _rested(before, after)
    if after.known.mismatches is not before.known.mismatches:
        for author in sorted(
            halt.author for halt in after.known.mismatches - before.known.mismatches
        ):
            yield ActivityEntry(MISMATCH, {"found_at": name(author)}, "error")
    if after.audit_failed and not before.audit_failed:
        yield ActivityEntry("halted: two audits did not add up", {}, "error")


def _renewed(before: State, after: State) -> str:
    """Only who opens an epoch knows why, and tells so; others know what they hear with it."""
    if after.known.retrain_epoch != before.known.retrain_epoch:
        return "a new token: an erasure asked everybody to start from nothing"
    if after.departed != before.departed:
        return "a new token, without an agent that is gone"
    return "a new token in place of the last one"


def _learned(before: State, after: State) -> Iterator[ActivityEntry]:
    now, then = after.own.current, before.own.current
    if now is None or (then is not None and now.revision == then.revision):
        return
    if then is None:
        what = "learned: put its contribution in"
    elif now.rows != then.rows:
        what = "put its contribution in again, without the erased records"
    elif now.data != then.data:
        what = "learned: its data had changed"
    else:
        what = "learned: fitted to the others again"
    yield ActivityEntry(what, {"revision": now.revision.counter})


def _buried(before: State, after: State) -> Iterator[ActivityEntry]:
    for agent, tomb in after.known.tombs.items():
        then: Tomb = before.known.tombs.get(agent, NOTHING)
        if tomb is then:
            continue
        who = after.terms.name(agent)
        if tomb.departed and not then.departed:
            yield ActivityEntry("gone by a quorum of votes: it is taken out", {"agent": who})
        for request in sorted(tomb.ids - then.ids):
            stone = after.known.tombstones.get(request)
            facts = {"agent": who} | ({} if stone is None else {"scope": _scope(stone)})
            yield ActivityEntry("taken out of the token", facts | {"request": request.hex()})


def _rested(before: State, after: State) -> Iterator[ActivityEntry]:
    rest = after.token.parked
    assert rest is not None
    name = after.terms.name
    waiting = after.terms.beyond(rest.attested, after.departed)
    if not waiting and (before.token.parked is None or rest.stamp != before.token.parked.stamp):
        facts: dict[str, Any] = {"at": name(rest.holder), "attested": len(rest.attested)}
        if after.token.copy is not None and after.token.copy.included == rest.included:
            facts["digest"] = digest(after.token.copy.eta).hex()[:12]
        yield ActivityEntry("the token rests", facts)
    proved = _proved(rest)
    if proved - _proved(before.token.parked):
        agents = [name(agent) for agent in sorted({requested_of(request) for request in proved})]
        requests = sorted(request.hex() for request in proved)
        yield ActivityEntry("certified", {"agents": listed(agents), "requests": listed(requests)})


def _proved(rest: ParkNotice | None) -> set[bytes]:
    if rest is None or not rest.certificate:
        return set()
    return {request for tomb in rest.tombs.values() for request in tomb.ids}


def _scope(record: Intent | Tombstone) -> str:
    if record.whole:
        return "everything"
    return "1 record" if len(record.rows) == 1 else f"{len(record.rows)} records"
