"""Turns state changes into log lines.

    joined · a neighbour does not answer · a new epoch · an erasure was requested, carried out,
    certified · a vote · an agent has departed · the factor was added or replaced · the token is
    parked · an audit mismatch · the audit failed
    private rounds: enrolled · gave its value · waits for agents · a sum is published, is withdrawn

The lines are computed from the states before and after an event, so that each change has exactly
one line, whatever caused it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from unweave.node.log import Log
from unweave.protocol.messages import ParkNotice
from unweave.protocol.rounds import awaited
from unweave.protocol.state import State
from unweave.protocol.statements import Intent, Tombstone
from unweave.protocol.token import NEVER, NOTHING, Tomb, commitment, requested_of, roster
from unweave.text import listed

__all__ = ["MISMATCH", "ActivityEntry", "log_activity", "news"]


MISMATCH = "audit mismatch: the factors do not add up to the token"


class ActivityEntry(NamedTuple):
    """One log line: what happened, and its fields."""

    what: str
    facts: dict[str, Any]
    level: str = "info"


def log_activity(log: Log, before: State, after: State) -> None:
    """Log what an event has changed. An error in here is logged and does not stop the agent."""
    try:
        for entry in news(before, after):
            getattr(log, entry.level)(entry.what, **entry.facts)
    except Exception as error:
        log.failure("a change was not logged", error)


def news(before: State, after: State) -> Iterator[ActivityEntry]:
    """One entry per change. Unchanged fields are the same objects, so most events cost little."""
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
        yield ActivityEntry(_new_epoch(before, after), facts)
    if after.known.intents is not before.known.intents:
        for request in sorted(after.known.intents.keys() - before.known.intents.keys()):
            intent = after.known.intents[request]
            facts = {"agent": name(intent.agent), "scope": _scope(intent)}
            yield ActivityEntry("an erasure was requested", facts | {"request": request.hex()})
    if after.known.tombs is not before.known.tombs:
        yield from _erased(before, after)
    if after.known.votes is not before.known.votes:
        for target, voter in sorted(after.known.votes.keys() - before.known.votes.keys()):
            votes = sum(1 for t, _ in after.known.votes if t == target)
            facts = {"agent": name(target), "by": name(voter)}
            count = {"votes": votes, "needed": after.terms.quorum}
            yield ActivityEntry("a vote that an agent has departed", facts | count)
    if after.own.factors is not before.own.factors:
        yield from _new_factor(before, after)
    if after.terms.masked:
        yield from _private_round(before, after)
    if after.token.parked is not before.token.parked and after.token.parked is not None:
        yield from _parked(before, after)
    if after.known.mismatches is not before.known.mismatches:
        for author in sorted(
            one.author for one in after.known.mismatches - before.known.mismatches
        ):
            yield ActivityEntry(MISMATCH, {"found_at": name(author)}, "error")
    if after.audit_failed and not before.audit_failed:
        yield ActivityEntry("audit failed: two audit mismatches stop the network", {}, "error")


def _new_epoch(before: State, after: State) -> str:
    """The agent that opens an epoch logs why. Other agents know only the causes that are part of
    the state."""
    if after.known.retrain_epoch != before.known.retrain_epoch:
        return "new epoch: after an erasure every agent starts from zero"
    if after.departed != before.departed:
        return "new epoch without a departed agent"
    return "new epoch in place of the last one"


def _new_factor(before: State, after: State) -> Iterator[ActivityEntry]:
    now, then = after.own.current, before.own.current
    if now is None or (then is not None and now.revision == then.revision):
        return
    if now.given is not None:
        return  # `_private_round` says so
    if then is None:
        what = "added the factor"
    elif now.rows != then.rows:
        what = "replaced the factor: records were erased"
    elif now.data != then.data:
        what = "replaced the factor: the data have changed"
    else:
        what = "replaced the factor: the other factors have changed"
    yield ActivityEntry(what, {"revision": now.revision.counter})


def _private_round(before: State, after: State) -> Iterator[ActivityEntry]:
    """Never a digest: that of a sum could be guessed, that of a masked value says nothing."""
    key, then = _one_time_key(after), _one_time_key(before)
    if key is not None and key != then:
        size = len(roster(after.terms.size, after.known.tombs))
        enrolled = 0 if after.token.copy is None else len(after.token.copy.masked.keys)
        yield ActivityEntry("enrolled for a private round", {"enrolled": enrolled, "agents": size})
    current = after.own.current
    if current is not None and current.given is not None:
        earlier = (one.given.round for one in before.own.factors if one.given is not None)
        if current.given.round not in earlier:
            facts = {"revision": current.revision.counter}
            yield ActivityEntry("gave its value to a private round", facts)
    if after.token.published is not before.token.published:
        if after.token.published is None:
            yield ActivityEntry("the private sum holds erased data: it is served no more", {})
        else:
            facts = {"agents": len(after.token.published.inside)}
            yield ActivityEntry("the private sum is complete and attested", facts)
    if after.token.parked is not before.token.parked and after.token.parked is not None:
        waits = awaited(after)
        for agents, what in ((waits.to_enrol, "enrolled"), (waits.to_give, "given")):
            if agents:
                names = listed([after.terms.name(k) for k in sorted(agents)])
                yield ActivityEntry("the private round waits", {f"not_{what}": names})


def _one_time_key(s: State) -> bytes | None:
    """This agent's key on the last token that it sent, if this incarnation signed it."""
    copy = s.token.copy
    mine = None if copy is None else copy.masked.keys.get(s.me)
    return None if mine is None or mine.incarnation != s.incarnation else mine.key


def _erased(before: State, after: State) -> Iterator[ActivityEntry]:
    for agent, tomb in after.known.tombs.items():
        then: Tomb = before.known.tombs.get(agent, NOTHING)
        if tomb is then:
            continue
        name = after.terms.name(agent)
        if tomb.departed and not then.departed:
            yield ActivityEntry("an agent has departed by a quorum of votes", {"agent": name})
        for request in sorted(tomb.ids - then.ids):
            stone = after.known.tombstones.get(request)
            facts = {"agent": name} | ({} if stone is None else {"scope": _scope(stone)})
            yield ActivityEntry("an erasure was carried out", facts | {"request": request.hex()})


def _parked(before: State, after: State) -> Iterator[ActivityEntry]:
    parked = after.token.parked
    assert parked is not None
    name = after.terms.name
    missing = after.terms.beyond(parked.attested, after.departed)
    if not missing and (before.token.parked is None or parked.stamp != before.token.parked.stamp):
        facts: dict[str, Any] = {"at": name(parked.holder), "attested": len(parked.attested)}
        if after.token.copy is not None and after.token.copy.included == parked.included:
            about = commitment(after.token.copy)
            facts |= {} if about is None else {"commitment": about.hex()[:12]}
        yield ActivityEntry("the token is parked", facts)
    proved, departed = _proved(parked)
    earlier, gone = _proved(before.token.parked)
    if proved - earlier or departed - gone:
        erased = {requested_of(request) for request in proved} | departed
        agents = [name(agent) for agent in sorted(erased)]
        requests = sorted(request.hex() for request in proved)
        facts = {"agents": listed(agents)} | ({"requests": listed(requests)} if requests else {})
        yield ActivityEntry("certified", facts)


def _proved(parked: ParkNotice | None) -> tuple[set[bytes], set[int]]:
    """The requests of owners that a certificate proves, and the agents that were voted out."""
    if parked is None or not parked.certificate:
        return set(), set()
    tombs = parked.tombs
    requests = {request for tomb in tombs.values() for request in tomb.ids}
    return requests, {agent for agent, tomb in tombs.items() if tomb.departed}


def _scope(statement: Intent | Tombstone) -> str:
    if statement.whole:
        return "everything"
    return "1 record" if len(statement.rows) == 1 else f"{len(statement.rows)} records"
