"""Gossip: how knowledge spreads, and which incarnation of a neighbour acknowledges it (rule 1).

Agents spread state, not events. Each agent keeps the join of everything it has heard, and sends it
to every neighbour until the neighbour acknowledges it. The state has five parts with a digest each;
only parts whose digest was not acknowledged are sent.

A restarted neighbour may have lost its disk or have an old one: its new incarnation has
acknowledged nothing. Incarnations are not ordered, and their messages can arrive late. So an
acknowledgement counts only from the incarnation that answered the latest question (`Hello`), and a
message of another incarnation is a reason to ask again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache

from unweave.protocol.certificate.write import evident
from unweave.protocol.given import count_welcome
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
from unweave.protocol.steps import START, make_step, write_header
from unweave.protocol.token import NEVER, NOTHING, Stamp, Token, Tombs, open_tombs, requested_of

__all__ = [
    "DOUBLINGS",
    "attest_ready",
    "current_gossip",
    "handover",
    "hello",
    "is_due",
    "next_due",
    "note_heard",
    "note_repetition",
    "on_heard",
    "on_hello",
    "share",
    "silent",
    "welcomed",
]


def current_gossip(s: State) -> Gossip:
    """Everything that this agent spreads now."""
    if s.known.gossip is None:
        erasures = Erasures(
            open_tombs(s.known.tombs),
            _open(s, s.known.retrain_epoch),
            s.known.tombstones,
            s.known.votes,
        )
        news = News(
            s.known.intents,
            s.known.mismatches,
            s.known.influences,
            s.token.wake,
            s.known.proofs,
        )
        digests = Digests(
            _hash(sorted(s.known.compacted)),
            _erasures_digest(erasures),
            _park_digest(s.token.parked),
            _news_digest(news),
            _hash(opening.raw for _, opening in sorted(s.known.openings.items())),
        )
        s.known.gossip = Gossip(
            digests, s.known.compacted, erasures, s.token.parked, news, s.known.openings
        )
    return s.known.gossip


def _open(s: State, requests: frozenset[bytes]) -> frozenset[bytes]:
    return frozenset(
        r for r in requests if r not in s.known.tombs.get(requested_of(r), NOTHING).compacted
    )


def silent(s: State) -> bool:
    """Whether there is nothing to spread."""
    return not (
        s.known.tombs
        or s.known.retrain_epoch
        or s.known.intents
        or s.known.votes
        or s.known.mismatches
        or s.known.influences
        or s.known.openings
        or s.known.proofs
        or s.token.parked
        or s.token.wake > NEVER
    )


def news_for(s: State, neighbour: int) -> Gossip | None:
    """The parts that a neighbour has not acknowledged; None if it has acknowledged all."""
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
        None if known[4] else gossip.openings,
    )


def untold(s: State, neighbour: int) -> Mapping[bytes, CompactedErasures]:
    """The compacted erasures that a neighbour has not acknowledged."""
    told = s.peers.told.get(neighbour, {})
    return {name: compacted for name, compacted in s.known.compacted.items() if name not in told}


def attest_ready(s: State) -> bool:
    """Whether every neighbour that has not departed has acknowledged the current tombstones, and
    this agent holds the signed evidence of all of them."""
    if not s.known.tombs and not s.known.retrain_epoch:
        return True
    if not evident(s):
        return False
    wanted = current_gossip(s).digests
    departed = s.departed
    for n in s.neighbours:
        acked = s.peers.acked.get(n)
        if n not in departed and (acked is None or acked[:2] != wanted[:2]):
            return False
    return True


# Repetitions to a silent neighbour come at intervals that double (rule 8) and stay bounded, so that
# a neighbour that comes back without a word is found. They start again when it is heard. What is
# repeated has a name, that of its timer: the token, the gossip, Hello.
DOUBLINGS = 4  # 8 s, if `resend` is half a second


def is_due(s: State, now: float, name: str, neighbour: int) -> bool:
    """Whether it is time to repeat this to a neighbour."""
    return s.peers.repeated.get((name, neighbour), (0, now))[1] <= now


def note_repetition(s: State, now: float, name: str, neighbour: int) -> None:
    """This was sent to a neighbour again: the next interval is twice as long."""
    count = min(s.peers.repeated.get((name, neighbour), (0, 0.0))[0] + 1, DOUBLINGS)
    next_at = now + s.terms.timeouts.resend * 2.0**count
    s.peers.repeated = {**s.peers.repeated, (name, neighbour): (count, next_at)}


def next_due(s: State, now: float, name: str, neighbours: list[int]) -> float:
    """When the next of these neighbours is due; never sooner than after `resend`."""
    soonest = now + s.terms.timeouts.resend
    due = [s.peers.repeated.get((name, n), (0, soonest))[1] for n in neighbours]
    return max(soonest, min(due, default=soonest))


def note_heard(s: State, now: float, neighbour: int) -> None:
    """A neighbour was heard: what it has not acknowledged is repeated soon."""
    repeated = s.peers.repeated
    if not any(n == neighbour for _, n in repeated):
        return
    soon = now + s.terms.timeouts.resend
    names = {name for name, n in repeated if n == neighbour} & s.timers.keys()
    s.timers = {name: min(at, soon) if name in names else at for name, at in s.timers.items()}
    s.peers.repeated = {key: value for key, value in repeated.items() if key[1] != neighbour}


def share(s: State, turn: Turn, *, again: bool = False) -> None:
    """Send every neighbour the gossip that it has not acknowledged; `again`: repeat it to those
    that are due. No agent believes a departed one, so a departed agent sends none."""
    if silent(s) or s.tomb.departed:
        return
    waiting: list[int] = []
    departed = s.departed
    for n in s.neighbours:
        if n in departed:
            if n not in s.peers.aware and "departed" not in s.timers:
                s.timers = {**s.timers, "departed": turn.now}
            continue
        gossip = news_for(s, n)
        if gossip is None:
            continue
        waiting.append(n)
        if not again:
            turn.send(n, Share(s.token.fence, gossip))
        elif is_due(s, turn.now, "gossip", n):
            turn.send(n, Share(s.token.fence, gossip))
            note_repetition(s, turn.now, "gossip", n)
    if waiting:
        s.timers = {**s.timers, "gossip": next_due(s, turn.now, "gossip", waiting)}


def handover(s: State, turn: Turn, token: Token, to: int) -> Pass:
    """The token for a neighbour: with the step that made it (rule 18), and with the signed evidence
    of its tombstones and its epoch if the neighbour has not acknowledged that."""
    if not s.terms.checked:
        evidence = bool(token.tombs or token.retrain_epoch)
        return Pass(token, news_for(s, to) if evidence else None)
    factor = s.own.factor(token.included[s.me])
    origin = s.token.origin or START
    step = make_step(origin, token, s.me, None if factor is None else factor.revealed)
    header = write_header(s.terms.network_id, s.me, turn.sign, token, step)
    return Pass(token, news_for(s, to), header, step)


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


def _park_digest(parked: ParkNotice | None) -> bytes:
    if parked is None:
        return hashlib.sha256().digest()
    return _certificate_digest(parked[:2], parked.certificate)


@lru_cache(maxsize=2)  # a certificate is long, and all agents of one process spread the same one
def _certificate_digest(place: tuple[Stamp, int], certificate: bytes) -> bytes:
    return hashlib.sha256(repr(place).encode() + certificate).digest()


def _news_digest(part: News) -> bytes:
    h = hashlib.sha256(repr(tuple(part.wake)).encode())
    for request in sorted(part.intents):
        h.update(request)
    for raw in sorted(mismatch.raw for mismatch in part.mismatches):
        h.update(raw)
    for agent in sorted(part.influences):
        h.update(part.influences[agent].raw)
    for agent in sorted(part.proofs):
        h.update(b"p%d" % agent)  # one proof is as good as another
    return h.digest()


def hello(s: State, neighbour: int) -> Hello:
    """The latest question to a neighbour; a repetition is equal. It carries digests only, because
    it is repeated to neighbours that are down."""
    digests = Gossip(current_gossip(s).digests)
    return Hello(s.token.fence, digests, s.incarnation, s.peers.questions.get(neighbour, 0))


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
    asked, known = (message.incarnation, message.question), s.known.enrolments.get(sender)
    turn.send(sender, Welcome(s.token.fence, gossip, s.incarnation, *asked, known))


def welcomed(s: State, turn: Turn, sender: int, message: Welcome) -> bool:
    """Join the answer; return whether it answers the latest question."""
    raise_fence(s, message.fence)
    join_gossip(s, turn, message.gossip)
    if (message.asker, message.question) != (s.incarnation, s.peers.questions.get(sender, 0)):
        return False
    if s.peers.incarnations.get(sender) != message.incarnation:
        if s.peers.claimed.get(sender, message.incarnation) != message.incarnation:
            doubt(s, turn, sender)  # another incarnation has said Hello since the question
            return False
        s.peers.incarnations = {**s.peers.incarnations, sender: message.incarnation}
    s.peers.welcomed |= {sender}
    count_welcome(s, sender, message)
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
    """Two incarnations of a neighbour have sent messages: ask a new question until the running one
    answers."""
    s.peers.acked = {n: digests for n, digests in s.peers.acked.items() if n != sender}
    s.peers.told = {n: told for n, told in s.peers.told.items() if n != sender}
    s.peers.incarnations = {n: i for n, i in s.peers.incarnations.items() if n != sender}
    s.peers.claimed = {n: i for n, i in s.peers.claimed.items() if n != sender}
    s.peers.questions = {**s.peers.questions, sender: s.peers.questions.get(sender, 0) + 1}
    s.peers.welcomed -= {sender}
    turn.send(sender, hello(s, sender))
    s.timers = {**s.timers, "hello": turn.now + s.terms.timeouts.resend}
