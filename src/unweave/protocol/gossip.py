"""What an agent spreads: state, not events.

Each agent keeps the join of what it heard and sends it to every neighbour until that neighbour has
acknowledged it; nothing is forwarded once, and a neighbour that says Hello has acknowledged
nothing. The state has four parts with a digest each, and only the parts whose digest was not
acknowledged are sent: what was put away long ago does not travel again with every small news.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache

from unweave.protocol.certificate.write import evident
from unweave.protocol.merge import join_gossip, raise_fence
from unweave.protocol.messages import (
    Digests,
    Erasures,
    Gossip,
    Heard,
    Hello,
    News,
    ParkNotice,
    Pass,
    Share,
    Welcome,
)
from unweave.protocol.state import State, Turn
from unweave.protocol.statements import CompactedErasures
from unweave.protocol.token import NEVER, NOTHING, Stamp, Token, Tombs, open_tombs, requested_of

__all__ = [
    "attest_ready",
    "current_gossip",
    "handover",
    "hello",
    "on_heard",
    "on_hello",
    "share",
    "silent",
    "welcomed",
]


def current_gossip(s: State) -> Gossip:
    """All that this agent spreads now."""
    if s.known.gossip is None:
        erasures = Erasures(
            open_tombs(s.known.tombs),
            _open(s, s.known.retrain_epoch),
            s.known.tombstones,
            s.known.votes,
        )
        news = News(s.known.intents, s.known.mismatches, s.known.influences, s.token.wake)
        digests = Digests(
            _hash(sorted(s.known.compacted)),
            _erasures_digest(erasures),
            _rest(s.token.parked),
            _news(news),
        )
        s.known.gossip = Gossip(digests, s.known.compacted, erasures, s.token.parked, news)
    return s.known.gossip


def _open(s: State, requests: frozenset[bytes]) -> frozenset[bytes]:
    return frozenset(
        r for r in requests if r not in s.known.tombs.get(requested_of(r), NOTHING).compacted
    )


def silent(s: State) -> bool:
    """Nothing to spread: everybody knows the empty state."""
    return not (
        s.known.tombs
        or s.known.retrain_epoch
        or s.known.intents
        or s.known.votes
        or s.known.mismatches
        or s.known.influences
        or s.token.parked
        or s.token.wake > NEVER
    )


def news_for(s: State, neighbour: int) -> Gossip | None:
    """The parts that a neighbour has not acknowledged; None if it knows everything."""
    gossip = current_gossip(s)
    acked = s.peers.acked.get(neighbour)
    if acked is None:
        return gossip
    if acked == gossip.digests:
        return None
    known = [a == b for a, b in zip(acked, gossip.digests, strict=True)]
    return Gossip(
        gossip.digests,
        None if known[0] else untold(s, neighbour),
        None if known[1] else gossip.erasures,
        None if known[2] else gossip.parked,
        None if known[3] else gossip.news,
    )


def untold(s: State, neighbour: int) -> Mapping[bytes, CompactedErasures]:
    """The chapters that a neighbour has never acknowledged."""
    told = s.peers.told.get(neighbour, {})
    return {name: chapter for name, chapter in s.known.compacted.items() if name not in told}


def attest_ready(s: State) -> bool:
    """Whether every neighbour that has not left has acknowledged the current tombstones, and the
    signed evidence of all of them is here."""
    if not s.known.tombs and not s.known.retrain_epoch:
        return True
    if not evident(s):
        return False
    wanted = current_gossip(s).digests
    left = s.departed
    for n in s.neighbours:
        acked = s.peers.acked.get(n)
        if n not in left and (acked is None or acked[:2] != wanted[:2]):
            return False
    return True


def share(s: State, turn: Turn) -> None:
    """Send to every neighbour what it has not acknowledged."""
    if silent(s):
        return
    behind, left = False, s.departed
    for n in s.neighbours:
        if n in left:
            if n not in s.peers.aware and "departed" not in s.timers:
                s.timers = {**s.timers, "departed": turn.now}
            continue
        gossip = news_for(s, n)
        if gossip is not None:
            turn.send(n, Share(s.token.fence, gossip))
            behind = True
    if behind:
        s.timers = {**s.timers, "gossip": turn.now + s.terms.timeouts.resend}


def handover(s: State, token: Token, to: int) -> Pass:
    """The token for a neighbour, with the signed records behind its tombstones if they are news."""
    if not token.tombs and not token.retrain_epoch:
        return Pass(token)
    return Pass(token, news_for(s, to))


# ------------------------------------------------------------------------------------- digests


def _hash(parts: Iterable[bytes]) -> bytes:
    h = hashlib.sha256()
    for part in parts:
        h.update(part)
    return h.digest()


def _erasures_digest(part: Erasures) -> bytes:
    h = hashlib.sha256(_tombs_digest(part.tombs))
    for request in sorted(part.retrain_epoch):
        h.update(b"g" + request)
    for request in sorted(part.tombstones):
        h.update(part.tombstones[request].name)
    for key in sorted(part.votes):
        h.update(b"%d,%d;" % key)
    return h.digest()


def _tombs_digest(tombs: Tombs) -> bytes:
    h = hashlib.sha256()
    for agent in sorted(tombs):
        tomb = tombs[agent]
        h.update(b"%d %d %d %d\n" % (agent, tomb.whole, tomb.departed, len(tomb.ids)))
        for request in sorted(tomb.ids):
            h.update(request)
    return h.digest()


def _rest(rest: ParkNotice | None) -> bytes:
    if rest is None:
        return hashlib.sha256().digest()
    return _rest_digest(rest[:2], rest.certificate)


@lru_cache(maxsize=2)  # a certificate names every agent, and every agent spreads it
def _rest_digest(place: tuple[Stamp, int], certificate: bytes) -> bytes:
    return hashlib.sha256(repr(place).encode() + certificate).digest()


def _news(part: News) -> bytes:
    h = hashlib.sha256(repr(tuple(part.wake)).encode())
    for request in sorted(part.intents):
        h.update(request)
    for raw in sorted(record.raw for record in part.mismatches):
        h.update(raw)
    for agent in sorted(part.influences):
        h.update(part.influences[agent].raw)
    return h.digest()


# ------------------------------------------------------------------------------
# Who is there? Lives of an agent, and which of them a neighbour's word belongs to (rule 1).
#
# An agent that starts again may have lost its disk or have an old one: it has acknowledged
# nothing, whatever its earlier lives have said. Lives are not ordered, and their words can arrive
# late. So an acknowledgement counts only if it comes from the life that has answered the latest
# question; and a word of another life is a reason to ask again.


def hello(s: State, neighbour: int) -> Hello:
    """The latest question to a neighbour; repeated, it stays the same. It only names what this
    agent knows: it is repeated to neighbours that are down, and those who answer are told."""
    said = Gossip(current_gossip(s).digests)
    return Hello(s.token.fence, said, s.incarnation, s.peers.questions.get(neighbour, 0))


def on_hello(s: State, turn: Turn, sender: int, message: Hello) -> None:
    raise_fence(s, message.fence)
    join_gossip(s, turn, message.gossip)
    if s.peers.incarnations.get(sender) != message.incarnation:
        if (
            sender in s.peers.incarnations
            or s.peers.claimed.get(sender, message.incarnation) != message.incarnation
        ):
            doubt(s, turn, sender)
        s.peers.claimed = {**s.peers.claimed, sender: message.incarnation}
    gossip = current_gossip(s)
    turn.send(
        sender, Welcome(s.token.fence, gossip, s.incarnation, message.incarnation, message.question)
    )


def welcomed(s: State, turn: Turn, sender: int, message: Welcome) -> bool:
    """Take an answer in; whether it is the one to the latest question."""
    raise_fence(s, message.fence)
    join_gossip(s, turn, message.gossip)
    if (message.asker, message.question) != (s.incarnation, s.peers.questions.get(sender, 0)):
        return False
    if s.peers.incarnations.get(sender) != message.incarnation:
        if s.peers.claimed.get(sender, message.incarnation) != message.incarnation:
            doubt(s, turn, sender)  # it answered, and then another life of it said Hello, or before
            return False
        s.peers.incarnations = {**s.peers.incarnations, sender: message.incarnation}
    s.peers.welcomed |= {sender}
    return True


def on_heard(s: State, turn: Turn, sender: int, message: Heard) -> None:
    raise_fence(s, message.fence)
    if s.peers.alone or s.peers.incarnations.get(sender) == message.incarnation:
        s.peers.acked = {**s.peers.acked, sender: message.digests}
        if s.known.compacted and message.digests.compacted == current_gossip(s).digests.compacted:
            s.peers.told = {**s.peers.told, sender: s.known.compacted}
    elif sender in s.peers.incarnations:
        doubt(s, turn, sender)


def doubt(s: State, turn: Turn, sender: int) -> None:
    """Two lives have spoken: which of them goes on? A new question; ask it until it is answered."""
    s.peers.acked = {n: digests for n, digests in s.peers.acked.items() if n != sender}
    s.peers.told = {n: chapters for n, chapters in s.peers.told.items() if n != sender}
    s.peers.incarnations = {n: boot for n, boot in s.peers.incarnations.items() if n != sender}
    s.peers.claimed = {n: boot for n, boot in s.peers.claimed.items() if n != sender}
    s.peers.questions = {**s.peers.questions, sender: s.peers.questions.get(sender, 0) + 1}
    s.peers.welcomed -= {sender}
    turn.send(sender, hello(s, sender))
    s.timers = {**s.timers, "hello": turn.now + s.terms.timeouts.resend}
