"""What an agent does with what it hears: stamps first, then tombstones (rules 2 and 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from unweave.protocol.compaction import compact, keep_certificate
from unweave.protocol.events import Detach
from unweave.protocol.messages import (
    Ack,
    Alive,
    Erasures,
    Gossip,
    Heard,
    Message,
    News,
    ParkNotice,
    Pass,
)
from unweave.protocol.recovery import drop_role, rebuild
from unweave.protocol.state import State, Turn
from unweave.protocol.statements import (
    CompactedErasures,
    InfluenceReport,
    Intent,
    Tombstone,
    Vote,
    tombs_in,
)
from unweave.protocol.token import FAR, NOTHING, Stamp, Tomb, Tombs, dead, join, requested_of

__all__ = [
    "has_unknown_rows",
    "is_carried_out",
    "join_gossip",
    "learn",
    "raise_fence",
    "raise_fence_by",
    "recheck",
    "unsupported_claim",
]


def raise_fence(s: State, stamp: Stamp) -> None:
    """Rule 2: raise the fence; a token with a smaller stamp has been superseded."""
    if stamp > s.token.fence and stamp.epoch - s.token.fence.epoch < FAR:
        s.token.fence = stamp
        token = s.token.held
        if s.peers.synced and token is not None and token.stamp < stamp:
            drop_role(s)


def learn(s: State, turn: Turn, tombs: Tombs, generation: frozenset[bytes]) -> None:
    """Rule 3: union; whatever the new tombstones forbid is wiped in the same transaction."""
    mine = s.tomb
    joined = join(s.known.tombs, tombs)
    if joined is s.known.tombs and generation <= s.known.retrain_epoch:
        return
    s.known.tombs = joined
    s.known.retrain_epoch |= generation
    s.known.gossip = None
    compact(s)
    if s.tomb != mine:
        forget_own(s, turn, mine)
    if not all(s.known.retrain_epoch <= factor.retrain_epoch for factor in s.own.factors):
        s.own.factors = tuple(f for f in s.own.factors if s.known.retrain_epoch <= f.retrain_epoch)
        s.own.solved_for = b""
        s.token.pending, s.token.memo = None, {}
    done = [
        request for request, i in s.known.intents.items() if is_carried_out(s, i.agent, request)
    ]
    if done:
        s.known.intents = {
            request: i for request, i in s.known.intents.items() if request not in done
        }
    if s.token.copy is not None and (
        s.tomb.departed or dead(s.token.copy, s.known.tombs, s.known.retrain_epoch)
    ):
        s.token.copy = None
    if s.peers.synced:
        recheck(s, turn)


def forget_own(s: State, turn: Turn, before: Tomb) -> None:
    """An erasure of this agent that its own disk does not remember: a backup was restored. The rows
    go again, and every factor that was computed from them."""
    if s.tomb.ids != before.ids or s.tomb.whole != before.whole:
        s.own.factors = ()
        s.own.rows += 1
        s.own.solved_for = b""
        s.token.pending, s.token.memo = None, {}
        s.own.detached = s.own.detached or s.tomb.whole
        turn.do(Detach(s.own.detached))


def is_carried_out(s: State, agent: int, request: bytes) -> bool:
    """Whether this request was carried out already, or overtaken by the end of its agent."""
    tomb = s.known.tombs.get(agent)
    return tomb is not None and (tomb.out or request in tomb.ids)


def recheck(s: State, turn: Turn) -> None:
    """Is the token this agent is responsible for still alive? Nobody purges one silently."""
    if s.tomb.departed or s.audit_failed:
        drop_role(s)
        return
    token = s.token.held
    if token is None:
        return
    if token.stamp < s.token.fence:
        drop_role(s)
    elif dead(token, s.known.tombs, s.known.retrain_epoch):
        rebuild(s, turn, "the token included what a tombstone forbids")


def has_unknown_rows(s: State) -> bool:
    """Whether an own erasure is known by id only: which rows it covers is still to arrive."""
    tomb = s.tomb
    return not tomb.out and bool(tomb.ids) and not tomb.open <= s.known.tombstones.keys()


# ------------------------------------------------------------------------------
# How an agent takes in what a neighbour knows: the join, part by part.


def raise_fence_by(s: State, heard: Gossip) -> None:
    """Hear every stamp in it: stamps are compared before tombstones are learned."""
    if heard.parked is not None:
        raise_fence(s, heard.parked.stamp)
    if heard.news is not None:
        raise_fence(s, heard.news.wake)


def join_gossip(s: State, turn: Turn, heard: Gossip) -> None:
    """Join what a neighbour knows. Stamps were compared before this, tombstones come first."""
    if s.known.gossip is not None and heard.digests == s.known.gossip.digests:
        return
    raise_fence_by(s, heard)
    if heard.compacted is not None:
        _take_compacted(s, turn, heard.compacted)
    if heard.erasures is not None:
        _take_erasures(s, turn, heard.erasures)
    if heard.news is not None:
        _take_intents(s, heard.news.intents.values())
    if heard.parked is not None and _supersedes_rest(heard.parked, s.token.parked):
        s.token.parked = heard.parked
        s.known.gossip = None
        keep_certificate(s, turn)
    if heard.news is not None:
        _take_news(s, heard.news)


def _supersedes_rest(rest: ParkNotice, known: ParkNotice | None) -> bool:
    """The larger stamp; at the same one the rest that brings its certificate."""
    if known is None or rest.stamp != known.stamp:
        return known is None or rest.stamp > known.stamp
    return bool(rest.certificate) and not known.certificate


def _take_compacted(s: State, turn: Turn, chapters: Mapping[bytes, CompactedErasures]) -> None:
    """Erasures that were put away: their ids are learned like any others, their evidence goes. A
    chapter that says less than another one is not kept, whichever came first."""
    new = {
        name: chapter
        for name, chapter in chapters.items()
        if name not in s.known.compacted and _says_more(chapter, s)
    }
    if not new:
        return
    said = {**s.known.compacted, **new}
    s.known.compacted = {name: c for name, c in said.items() if not _taken_up(c, new.values())}
    s.known.gossip = None
    own = (chapter.rows for chapter in new.values() if chapter.agent == s.me)
    _drop_rows_again(s, turn, frozenset().union(*own))
    generation = frozenset().union(*(chapter.generation for chapter in new.values()))
    again = [t for t in s.known.tombstones.values() if t.agent == s.me and t.retrain]
    learn(s, turn, tombs_in(new.values()), generation)
    again = [t for t in again if t.request in s.tomb.compacted - generation]
    if again:
        # A restored owner carried out again what was put away, and asked for retraining this time:
        # the records go, and the generation needs its word.
        chapter = CompactedErasures.write_all(s.me, turn.sign, s.terms.network_id, again)
        s.known.compacted = {**s.known.compacted, chapter.name: chapter}
        s.known.gossip = None


def _says_more(chapter: CompactedErasures, s: State) -> bool:
    """Whether it has something that was not put away, or not with that generation, or takes up a
    shorter one."""
    if not chapter.ids <= s.known.tombs.get(chapter.agent, NOTHING).compacted:
        return True
    known = [c for c in s.known.compacted.values() if c.agent == chapter.agent]
    generation = frozenset().union(*(c.generation for c in known))
    return not chapter.generation <= generation or any(_taken_up(c, [chapter]) for c in known)


def _taken_up(chapter: CompactedErasures, others: Iterable[CompactedErasures]) -> bool:
    return any(
        c.agent == chapter.agent and chapter.ids < c.ids and chapter.generation <= c.generation
        for c in others
    )


def _take_erasures(s: State, turn: Turn, heard: Erasures) -> None:
    records = {
        request: record
        for request, record in heard.tombstones.items()
        if request not in s.known.tombs.get(record.agent, NOTHING).compacted
        and _supersedes(record, s.known.tombstones.get(request))
    }
    votes = {key: vote for key, vote in heard.votes.items() if key not in s.known.votes}
    if records:
        s.known.tombstones = {**s.known.tombstones, **records}
        s.known.gossip = None
        own = (record.rows for record in records.values() if record.agent == s.me)
        _drop_rows_again(s, turn, frozenset().union(*own))
    if votes:
        s.known.votes = {**s.known.votes, **votes}
        s.known.gossip = None
    learn(s, turn, heard.tombs, heard.retrain_epoch)
    count_votes(s, turn)


def _supersedes(record: Tombstone, known: Tombstone | None) -> bool:
    """Two records of one request come from an owner that was restored and removed its rows again;
    everybody keeps the same one: that which asks for more, then the larger bytes."""
    if known is None:
        return True
    return (record.retrain, record.whole, record.raw) > (known.retrain, known.whole, known.raw)


def _drop_rows_again(s: State, turn: Turn, rows: frozenset[bytes]) -> None:
    """Rows of an own erasure that this disk does not remember must go again."""
    if not rows <= s.own.dropped:
        s.own.dropped |= rows
        s.own.rows += 1
        s.token.pending, s.token.memo = None, {}
        turn.do(Detach(False))


def _take_intents(s: State, intents: Iterable[Intent]) -> None:
    for intent in intents:
        if intent.request in s.known.intents or is_carried_out(s, intent.agent, intent.request):
            continue
        s.known.intents = {**s.known.intents, intent.request: intent}
        s.known.gossip = None
        if intent.agent == s.me and not intent.rows <= s.own.dropped:
            s.own.dropped |= intent.rows
            s.own.rows += 1


def _take_news(s: State, heard: News) -> None:
    if not heard.mismatches <= s.known.mismatches:
        s.known.mismatches |= heard.mismatches
        s.known.gossip = None
    figures = {k: f for k, f in heard.influences.items() if _is_newer(f, s.known.influences.get(k))}
    if figures:
        s.known.influences = {**s.known.influences, **figures}
        s.known.gossip = None
    if heard.wake > s.token.wake:
        s.token.wake = heard.wake
        s.known.gossip = None


def _is_newer(figure: InfluenceReport, known: InfluenceReport | None) -> bool:
    return known is None or (figure.stamp, figure.raw) > (known.stamp, known.raw)


# ------------------------------------------------------------------------------
# Hearsay is not enough: what forbids must be backed by the signatures of those who may forbid it.
#
# A tombstone of an agent needs the agent's own signed record, or its chapter; a departure needs the
# signed votes of a quorum, and a new generation a record that asks for it. Otherwise one lying
# neighbour could take out anybody. What this agent knows was backed when it was learned.

_CLAIM_NOTHING = (Ack, Alive, Heard)


def unsupported_claim(message: Message, s: State) -> str | None:
    """What `message` claims without evidence, in it or known to `s`; None if it is all backed."""
    if isinstance(message, _CLAIM_NOTHING):
        return None
    gossip = message.gossip
    if gossip is None and isinstance(message, Pass):
        token = message.token
        if not token.tombs and not token.retrain_epoch:
            return None
    backing = _Backing(s, gossip)
    if isinstance(message, Pass):
        token = message.token
        problem = backing.problem(token.tombs, token.retrain_epoch)
        if problem is not None or gossip is None:
            return problem
    assert gossip is not None
    said = gossip.erasures
    return None if said is None else backing.problem(said.tombs, said.retrain_epoch)


class _Backing:
    """The signed word that a message brings along, beside what is known."""

    def __init__(self, s: State, gossip: Gossip | None) -> None:
        self.s = s
        said = None if gossip is None else gossip.erasures
        self.tombstones: Mapping[bytes, Tombstone] = {} if said is None else said.tombstones
        self.votes: Mapping[tuple[int, int], Vote] = {} if said is None else said.votes
        chapters = None if gossip is None else gossip.compacted
        self.chapters: tuple[CompactedErasures, ...] = tuple((chapters or {}).values())

    def problem(self, tombs: Tombs, generation: frozenset[bytes]) -> str | None:
        s = self.s
        if tombs is not s.known.tombs:
            for agent, tomb in tombs.items():
                known = s.known.tombs.get(agent, NOTHING)
                if not known.covers(tomb):
                    problem = self._tomb(agent, tomb, known)
                    if problem is not None:
                        return problem
        for request in generation - s.known.retrain_epoch:
            if not self._retrains(request):
                return "a new generation without a signed tombstone that asks for it"
        return None

    def _tomb(self, agent: int, tomb: Tomb, known: Tomb) -> str | None:
        name = self.s.terms.name(agent)
        chapters = [chapter for chapter in self.chapters if chapter.agent == agent]
        filed = known.compacted.union(*(chapter.ids for chapter in chapters))
        if not tomb.compacted <= filed:
            return f"that erasures of {name} were put away, without its signed chapter"
        whole = known.whole or any(chapter.tomb.whole for chapter in chapters)
        for request in tomb.ids - known.ids - filed:
            record = self.tombstones.get(request)
            if record is None or record.agent != agent:
                return f"an erasure of {name} without its signed tombstone"
        if tomb.whole and not whole:
            # A restored owner may have carried out a request twice: either record will do.
            records = [self.tombstones.get(request) for request in tomb.ids]
            if not any(record is not None and record.whole for record in records):
                return f"an erasure of all of {name} without its signed tombstone"
        if tomb.departed and not known.departed and not self._elected(agent):
            return f"the departure of {name} without a quorum of signed votes"
        return None

    def _retrains(self, request: bytes) -> bool:
        records = (self.s.known.tombstones.get(request), self.tombstones.get(request))
        return any(record is not None and record.retrain for record in records) or any(
            request in chapter.generation
            for chapter in self.chapters
            if chapter.agent == requested_of(request)
        )

    def _elected(self, agent: int) -> bool:
        voters = {voter for target, voter in self.s.known.votes if target == agent}
        voters |= {voter for target, voter in self.votes if target == agent}
        return len(voters) >= self.s.terms.quorum


def count_votes(s: State, turn: Turn) -> None:
    """Rule 13: a majority of the original manifest declares an agent gone."""
    count: dict[int, int] = {}
    for target, _ in s.known.votes:
        count[target] = count.get(target, 0) + 1
    gone: Tombs = {k: Tomb(departed=True) for k, votes in count.items() if votes >= s.terms.quorum}
    learn(s, turn, gone, frozenset())
