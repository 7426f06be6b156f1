"""State that spreads by joining: tombstones, intents, votes, rest, wake, mismatches.

Nothing is forwarded once. Each agent keeps the join of what it heard and sends it to every
neighbour until that neighbour has acknowledged this very digest; growth changes the digest, and a
neighbour that says Hello has acknowledged nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from unweave.protocol.certificate import evident
from unweave.protocol.events import Detach
from unweave.protocol.hearing import hear, learn, settled
from unweave.protocol.ids import NEVER, bit
from unweave.protocol.messages import Gossip, Pass, Share
from unweave.protocol.records import Figure, Halt, Intent, Tombstone, Vote
from unweave.protocol.state import State
from unweave.protocol.token import Token
from unweave.protocol.tombs import Tomb, Tombs
from unweave.protocol.turn import Turn

__all__ = ["attest_ready", "current_gossip", "handover", "listen", "share"]


def current_gossip(s: State) -> Gossip:
    """What this agent spreads now."""
    if s.gossip is None:
        tombs = tombs_digest(s.tombs, s.generation)
        s.gossip = Gossip(
            s.tombs,
            s.generation,
            s.tombstones,
            s.intents,
            s.votes,
            s.halts,
            s.figures,
            s.rest,
            s.wake,
            _digest(s, tombs),
            tombs,
        )
    return s.gossip


def silent(s: State) -> bool:
    """Nothing to spread: everybody knows the empty state."""
    return not (
        s.tombs
        or s.generation
        or s.intents
        or s.votes
        or s.halts
        or s.figures
        or s.rest
        or s.wake > NEVER
    )


def attest_ready(s: State) -> bool:
    """Whether every neighbour that has not left has acknowledged the current tombstones, and the
    signed evidence of all of them is here."""
    if not s.tombs and not s.generation:
        return True
    if not evident(s):
        return False
    wanted = current_gossip(s).tombs_digest
    left = s.left
    for n in s.neighbours:
        acked = s.acked.get(n)
        if not left & bit(n) and (acked is None or acked[1] != wanted):
            return False
    return True


def share(s: State, turn: Turn) -> None:
    """Send the current state to every neighbour that has not acknowledged it."""
    if silent(s):
        return
    gossip = current_gossip(s)
    behind = False
    for n in s.neighbours:
        acked = s.acked.get(n)
        if acked is None or acked[0] != gossip.digest:
            turn.send(n, Share(s.fence, gossip))
            behind = True
    if behind:
        s.alarms = {**s.alarms, "gossip": turn.now + s.terms.patience.resend}


def handover(s: State, token: Token, to: int) -> Pass:
    """The token for a neighbour, with the signed records behind its tombstones if they are news."""
    if not token.tombs and not token.generation:
        return Pass(token)
    gossip = current_gossip(s)
    acked = s.acked.get(to)
    return Pass(token, None if acked is not None and acked[0] == gossip.digest else gossip)


def listen(s: State, turn: Turn, heard: Gossip) -> None:
    """Join what a neighbour knows. Stamps were compared before this, tombstones come first."""
    if s.gossip is not None and heard.digest == s.gossip.digest:
        return
    new_records = {r: t for r, t in heard.tombstones.items() if _supersedes(t, s.tombstones.get(r))}
    new_votes = {key: vote for key, vote in heard.votes.items() if key not in s.votes}
    if heard.rest is not None:
        hear(s, heard.rest.stamp)
    hear(s, heard.wake)
    if new_records:
        s.tombstones = {**s.tombstones, **new_records}
        s.gossip = None
        _drop_rows_again(s, turn, new_records.values())
    if new_votes:
        s.votes = {**s.votes, **new_votes}
        s.gossip = None
    if not heard.halts <= s.halts:
        s.halts |= heard.halts
        s.gossip = None
    learn(s, turn, heard.tombs, heard.generation)
    elect(s, turn)
    _take_intents(s, heard.intents.values())
    if heard.rest is not None and (s.rest is None or heard.rest.stamp > s.rest.stamp):
        s.rest = heard.rest
        s.gossip = None
    newer = {k: f for k, f in heard.figures.items() if _is_newer(f, s.figures.get(k))}
    if newer:
        s.figures = {**s.figures, **newer}
        s.gossip = None
    if heard.wake > s.wake:
        s.wake = heard.wake
        s.gossip = None


def _supersedes(record: Tombstone, known: Tombstone | None) -> bool:
    """Two records of one request come from an owner that was restored and removed its rows again;
    everybody keeps the same one: that which asks for more, then the larger bytes."""
    if known is None:
        return True
    return (record.retrain, record.whole, record.raw) > (known.retrain, known.whole, known.raw)


def _is_newer(figure: Figure, known: Figure | None) -> bool:
    return known is None or (figure.stamp, figure.raw) > (known.stamp, known.raw)


def elect(s: State, turn: Turn) -> None:
    """Rule 13: a majority of the original manifest declares an agent gone."""
    count: dict[int, int] = {}
    for target, _ in s.votes:
        count[target] = count.get(target, 0) + 1
    gone: Tombs = {k: Tomb(left=True) for k, votes in count.items() if votes >= s.terms.quorum}
    learn(s, turn, gone, frozenset())


def _drop_rows_again(s: State, turn: Turn, records: Iterable[Tombstone]) -> None:
    """An own tombstone that this disk does not remember: its rows must go again."""
    rows: frozenset[bytes] = frozenset()
    for record in records:
        if record.agent == s.me:
            rows |= record.rows
    if not rows <= s.dropped:
        s.dropped |= rows
        s.rows += 1
        s.pending, s.memo = None, {}
        turn.do(Detach(False))


def _take_intents(s: State, intents: Iterable[Intent]) -> None:
    for intent in intents:
        if intent.request in s.intents or settled(s, intent.agent, intent.request):
            continue
        s.intents = {**s.intents, intent.request: intent}
        s.gossip = None
        if intent.agent == s.me and not intent.rows <= s.dropped:
            s.dropped |= intent.rows
            s.rows += 1


# ------------------------------------------------------------------------------------- digests


def tombs_digest(tombs: Tombs, generation: frozenset[bytes]) -> bytes:
    h = hashlib.sha256()
    for agent in sorted(tombs):
        tomb = tombs[agent]
        h.update(b"%d %d %d %d\n" % (agent, tomb.whole, tomb.left, len(tomb.ids)))
        for request in sorted(tomb.ids):
            h.update(request)
    for request in sorted(generation):
        h.update(b"g" + request)
    return h.digest()


def _digest(s: State, tombs: bytes) -> bytes:
    h = hashlib.sha256(tombs)
    for request in sorted(s.tombstones):
        h.update(hashlib.sha256(s.tombstones[request].raw).digest())
    h.update(b"|")
    for request in sorted(s.intents):
        h.update(request)
    for key in sorted(s.votes):
        h.update(b"%d,%d;" % key)
    for halt in sorted(s.halts, key=_raw):
        h.update(halt.raw)
    for agent in sorted(s.figures):
        h.update(s.figures[agent].raw)
    if s.rest is not None:
        h.update(repr(s.rest[:2]).encode())
    h.update(repr(tuple(s.wake)).encode())
    return h.digest()


def _raw(record: Halt | Vote) -> bytes:
    return record.raw
