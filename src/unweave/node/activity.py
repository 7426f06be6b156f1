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
from unweave.protocol.messages import Rest
from unweave.protocol.records import Intent, Tombstone
from unweave.protocol.state import State
from unweave.protocol.token import NEVER, NOTHING, Tomb, digest, requested_of
from unweave.text import listed

__all__ = ["MISMATCH", "Entry", "journal", "news"]


MISMATCH = "an audit did not add up: the factors of all agents are not the token"


class Entry(NamedTuple):
    """One line: what happened, and its facts."""

    what: str
    facts: dict[str, Any]
    level: str = "info"


def journal(log: Log, before: State, after: State) -> None:
    """Write what a step has changed. A line is never worth a step: what goes wrong here is told,
    and the agent goes on."""
    try:
        for entry in news(before, after):
            getattr(log, entry.level)(entry.what, **entry.facts)
    except Exception as error:
        log.error("the journal has a gap", error=f"{type(error).__name__}: {error}")


def news(before: State, after: State) -> Iterator[Entry]:
    """What is worth a line; unchanged fields are the same objects, so most steps cost little."""
    name = after.terms.name
    if after.synced and not before.synced:
        heard = [name(k) for k in after.neighbours if k in after.welcomed]
        yield Entry("joined", {"neighbours": listed(heard)})
    if after.suspects is not before.suspects:
        for k in sorted(after.suspects - before.suspects):
            yield Entry("a neighbour does not answer", {"agent": name(k)}, "warning")
        for k in sorted(before.suspects - after.suspects):
            yield Entry("a neighbour answers again", {"agent": name(k)})
    if after.fence.epoch != before.fence.epoch and before.fence != NEVER:
        facts = {"epoch": after.fence.epoch, "by": name(after.fence.initiator)}
        yield Entry(_renewed(before, after), facts)
    if after.intents is not before.intents:
        for request in sorted(after.intents.keys() - before.intents.keys()):
            intent = after.intents[request]
            facts = {"agent": name(intent.agent), "scope": _scope(intent)}
            yield Entry("asked to erase", facts | {"request": request.hex()})
    if after.tombs is not before.tombs:
        yield from _buried(before, after)
    if after.votes is not before.votes:
        for target, voter in sorted(after.votes.keys() - before.votes.keys()):
            votes = sum(1 for t, _ in after.votes if t == target)
            facts = {"agent": name(target), "by": name(voter)}
            count = {"votes": votes, "needed": after.terms.quorum}
            yield Entry("a vote that an agent is gone", facts | count)
    if after.factors is not before.factors:
        yield from _learned(before, after)
    if after.rest is not before.rest and after.rest is not None:
        yield from _rested(before, after)
    if after.halts is not before.halts:
        for author in sorted(halt.author for halt in after.halts - before.halts):
            yield Entry(MISMATCH, {"found_at": name(author)}, "error")
    if after.halted and not before.halted:
        yield Entry("halted: two audits did not add up", {}, "error")


def _renewed(before: State, after: State) -> str:
    """Only who opens an epoch knows why, and tells so; others know what they hear with it."""
    if after.generation != before.generation:
        return "a new token: an erasure asked everybody to start from nothing"
    if after.left != before.left:
        return "a new token, without an agent that is gone"
    return "a new token in place of the last one"


def _learned(before: State, after: State) -> Iterator[Entry]:
    now, then = after.current, before.current
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
    yield Entry(what, {"revision": now.revision.counter})


def _buried(before: State, after: State) -> Iterator[Entry]:
    for agent, tomb in after.tombs.items():
        then: Tomb = before.tombs.get(agent, NOTHING)
        if tomb is then:
            continue
        who = after.terms.name(agent)
        if tomb.left and not then.left:
            yield Entry("gone by a quorum of votes: it is taken out", {"agent": who})
        for request in sorted(tomb.ids - then.ids):
            stone = after.tombstones.get(request)
            facts = {"agent": who} | ({} if stone is None else {"scope": _scope(stone)})
            yield Entry("taken out of the token", facts | {"request": request.hex()})


def _rested(before: State, after: State) -> Iterator[Entry]:
    rest = after.rest
    assert rest is not None
    name = after.terms.name
    waiting = after.terms.beyond(rest.quiet, after.left)
    if not waiting and (before.rest is None or rest.stamp != before.rest.stamp):
        facts: dict[str, Any] = {"at": name(rest.holder), "attested": len(rest.quiet)}
        if after.copy is not None and after.copy.included == rest.included:
            facts["digest"] = digest(after.copy.eta).hex()[:12]
        yield Entry("the token rests", facts)
    proved = _proved(rest)
    if proved - _proved(before.rest):
        agents = [name(agent) for agent in sorted({requested_of(request) for request in proved})]
        requests = sorted(request.hex() for request in proved)
        yield Entry("certified", {"agents": listed(agents), "requests": listed(requests)})


def _proved(rest: Rest | None) -> set[bytes]:
    if rest is None or not rest.certificate:
        return set()
    return {request for tomb in rest.tombs.values() for request in tomb.ids}


def _scope(record: Intent | Tombstone) -> str:
    if record.whole:
        return "everything"
    return "1 record" if len(record.rows) == 1 else f"{len(record.rows)} records"
