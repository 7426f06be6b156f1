"""Merging what neighbours send: stamps first, then tombstones, then the rest (rules 2 and 3).

A claim that forbids something needs the signatures of those who may forbid it: a tombstone the
agent's own signed statement, a departure the votes of a quorum, a retrain epoch a tombstone that
asks for it. Otherwise one dishonest neighbour could take out any agent. `unsupported_claim` checks
that before a message is joined; everything that the agent knows was checked when it was learned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from unweave.protocol.batches import drop_carried_out
from unweave.protocol.compaction import compact, keep_certificate
from unweave.protocol.events import Detach, Refused
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
from unweave.protocol.openings import is_backed, is_opened, join_openings
from unweave.protocol.proofs import drop_proofs, take_proof
from unweave.protocol.recovery import drop_role, open_epoch, rebuild
from unweave.protocol.requests import MISMATCHES, OPEN_REQUESTS, UNPROVED
from unweave.protocol.state import State, Turn
from unweave.protocol.statements import (
    AuditMismatch,
    CompactedErasures,
    InfluenceReport,
    Intent,
    Tombstone,
    Vote,
    tombs_in,
)
from unweave.protocol.token import NOTHING, Stamp, Tomb, Tombs, dead, join, requested_of

__all__ = [
    "add_mismatches",
    "count_votes",
    "has_unknown_rows",
    "is_carried_out",
    "join_gossip",
    "learn",
    "raise_fence",
    "raise_fence_by",
    "recheck",
    "take_openings",
    "unsupported_claim",
]


def raise_fence(s: State, stamp: Stamp) -> None:
    """Rule 2: raise the fence; a token with a smaller stamp has been superseded. A stamp of an
    epoch that no agent has opened is not believed (rule 17)."""
    if stamp > s.token.fence and is_backed(s, stamp):
        s.token.fence = stamp
        token = s.token.held
        if s.peers.synced and token is not None and token.stamp < stamp:
            drop_role(s)


def learn(s: State, turn: Turn, tombs: Tombs, retrain_epoch: frozenset[bytes]) -> None:
    """Rule 3: union; everything that the new tombstones forbid is wiped in the same transaction."""
    mine = s.tomb
    joined = join(s.known.tombs, tombs)
    if joined is s.known.tombs and retrain_epoch <= s.known.retrain_epoch:
        return
    s.known.tombs = joined
    s.known.retrain_epoch |= retrain_epoch
    s.known.gossip = None
    compact(s)
    if s.tomb != mine:
        drop_carried_out(s)
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
        s.token.copy = s.token.copy_origin = None
    published = s.token.published
    if published is not None and dead(published, s.known.tombs, s.known.retrain_epoch):
        s.token.published = None  # it is never served again, also not before the next one is there
    drop_proofs(s)
    if s.peers.synced:
        recheck(s, turn)


def forget_own(s: State, turn: Turn, before: Tomb) -> None:
    """A restored backup lacks an erasure of this agent: the rows, and every factor computed from
    them, are wiped again."""
    if s.tomb.ids != before.ids or s.tomb.whole != before.whole:
        s.own.factors = ()
        s.own.rows += 1
        s.own.solved_for = b""
        s.token.pending, s.token.memo = None, {}
        s.own.detached = s.own.detached or s.tomb.whole
        turn.do(Detach(s.own.detached))


def is_carried_out(s: State, agent: int, request: bytes) -> bool:
    """Whether this request was carried out, or its agent is erased or departed."""
    tomb = s.known.tombs.get(agent)
    return tomb is not None and (tomb.out or request in tomb.ids)


def recheck(s: State, turn: Turn) -> None:
    """Rule 15: drop the role token if it is superseded, rebuild if it is dead."""
    if s.tomb.departed or s.audit_failed:
        drop_role(s)
        return
    token = s.token.held
    if token is None:
        return
    if token.stamp < s.token.fence:
        drop_role(s)
    elif not is_opened(s, token.stamp):
        # The initiator lost its disk and has opened later epochs: no agent believes this one.
        open_epoch(s, turn, token, "the token's epoch is no longer known", s.token.origin)
    elif dead(token, s.known.tombs, s.known.retrain_epoch):
        rebuild(s, turn, "the token included what a tombstone forbids")


def has_unknown_rows(s: State) -> bool:
    """Whether an erasure of this agent is known by id only: its rows have not arrived yet."""
    tomb = s.tomb
    return not tomb.out and bool(tomb.ids) and not tomb.open <= s.known.tombstones.keys()


def take_openings(s: State, turn: Turn, heard: Gossip) -> None:
    """Rule 17: the openings come before every stamp, and raise the fence to their epochs."""
    if not heard.openings:
        return
    new = join_openings(s, heard.openings)
    for opening in new:
        raise_fence(s, Stamp(*opening.epoch, 0, 0))
    if new and s.peers.synced:
        recheck(s, turn)


def raise_fence_by(s: State, heard: Gossip) -> None:
    """Raise the fence to every stamp in the gossip, before its tombstones are learned."""
    if heard.parked is not None:
        raise_fence(s, heard.parked.stamp)
    if heard.news is not None:
        raise_fence(s, heard.news.wake)


def join_gossip(s: State, turn: Turn, heard: Gossip) -> None:
    """Join a neighbour's knowledge, part by part: stamps, tombstones, then the other parts."""
    if s.known.gossip is not None and heard.digests == s.known.gossip.digests:
        return
    raise_fence_by(s, heard)
    if heard.compacted is not None:
        _take_compacted(s, turn, heard.compacted)
    if heard.erasures is not None:
        _take_erasures(s, turn, heard.erasures)
    if heard.news is not None:
        _take_intents(s, turn, heard.news.intents.values())
    if (
        heard.parked is not None
        and heard.parked.stamp <= s.token.fence  # otherwise no agent has opened its epoch
        and _supersedes_notice(heard.parked, s.token.parked)
    ):
        s.token.parked = heard.parked
        s.known.gossip = None
        keep_certificate(s, turn)
    if heard.news is not None:
        _take_news(s, turn, heard.news)


def _supersedes_notice(notice: ParkNotice, known: ParkNotice | None) -> bool:
    """The larger stamp wins; of equal stamps, the notice with a certificate."""
    if known is None or notice.stamp != known.stamp:
        return known is None or notice.stamp > known.stamp
    return bool(notice.certificate) and not known.certificate


def _take_compacted(s: State, turn: Turn, heard: Mapping[bytes, CompactedErasures]) -> None:
    """Learn the ids of compacted erasures and drop their evidence. A statement that another one
    includes is not kept, whichever came first."""
    new = {
        name: compacted
        for name, compacted in heard.items()
        if name not in s.known.compacted and _adds(compacted, s)
    }
    if not new:
        return
    joined = {**s.known.compacted, **new}
    s.known.compacted = {name: c for name, c in joined.items() if not _included(c, new.values())}
    s.known.gossip = None
    own = (compacted.rows for compacted in new.values() if compacted.agent == s.me)
    _drop_rows_again(s, turn, frozenset().union(*own))
    retrain_epoch = frozenset().union(*(compacted.retrain_epoch for compacted in new.values()))
    repeated = [t for t in s.known.tombstones.values() if t.agent == s.me and t.retrain]
    learn(s, turn, tombs_in(new.values()), retrain_epoch)
    repeated = [t for t in repeated if t.request in s.tomb.compacted - retrain_epoch]
    if repeated:
        # A restored owner repeated a compacted erasure and asked for retraining this time. The
        # tombstone is dropped, and the retrain epoch needs a signed statement.
        compacted = CompactedErasures.write_all(s.me, turn.sign, s.terms.network_id, repeated)
        s.known.compacted = {**s.known.compacted, compacted.name: compacted}
        s.known.gossip = None


def _adds(compacted: CompactedErasures, s: State) -> bool:
    """Whether the statement has an erasure or a retrain request that the known statements of its
    agent lack, or replaces a shorter one."""
    if not compacted.ids <= s.known.tombs.get(compacted.agent, NOTHING).compacted:
        return True
    known = [c for c in s.known.compacted.values() if c.agent == compacted.agent]
    retrain_epoch = frozenset().union(*(c.retrain_epoch for c in known))
    return not compacted.retrain_epoch <= retrain_epoch or any(
        _included(c, [compacted]) for c in known
    )


def _included(compacted: CompactedErasures, others: Iterable[CompactedErasures]) -> bool:
    return any(
        c.agent == compacted.agent
        and compacted.ids < c.ids
        and compacted.retrain_epoch <= c.retrain_epoch
        for c in others
    )


def _take_erasures(s: State, turn: Turn, heard: Erasures) -> None:
    tombstones = {
        request: tombstone
        for request, tombstone in heard.tombstones.items()
        if request not in s.known.tombs.get(tombstone.agent, NOTHING).compacted
        and _supersedes(tombstone, s.known.tombstones.get(request))
    }
    votes = {key: vote for key, vote in heard.votes.items() if key not in s.known.votes}
    if tombstones:
        s.known.tombstones = {**s.known.tombstones, **tombstones}
        s.known.gossip = None
        own = [tombstone for tombstone in tombstones.values() if tombstone.agent == s.me]
        _drop_rows_again(s, turn, frozenset().union(*(tombstone.rows for tombstone in own)))
        _count_past(s, own)
    if votes:
        s.known.votes = {**s.known.votes, **votes}
        s.known.gossip = None
    learn(s, turn, heard.tombs, heard.retrain_epoch)
    count_votes(s, turn)


def _supersedes(new: Tombstone, known: Tombstone | None) -> bool:
    """A restored owner may write a second tombstone for one request. All agents keep the same one:
    the one that asks for more, then the one with the larger bytes."""
    if known is None:
        return True
    return (new.retrain, new.whole, new.raw) > (known.retrain, known.whole, known.raw)


def _drop_rows_again(s: State, turn: Turn, rows: frozenset[bytes]) -> None:
    """Drop the rows of an erasure of this agent that its disk has lost."""
    if not rows <= s.own.dropped:
        s.own.dropped |= rows
        s.own.rows += 1
        s.token.pending, s.token.memo = None, {}
        turn.do(Detach(False))


def _count_past(s: State, own: Iterable[Tombstone]) -> None:
    """The disk has lost these removals, so its counter may have fallen back. Factors get new names
    with larger counters: a verifier compares them with the revisions before the removal."""
    counter = max((tombstone.counter for tombstone in own), default=-1)
    if counter >= s.own.counter:
        s.own.counter = counter
        s.own.factors = ()
        s.token.pending, s.token.memo = None, {}


def _take_intents(s: State, turn: Turn, intents: Iterable[Intent]) -> None:
    """Keep the open requests of others, up to a number and a size for each agent: its own process
    makes no more, so the rest cannot be honest."""
    new = [
        intent
        for intent in intents
        if intent.request not in s.known.intents
        and not is_carried_out(s, intent.agent, intent.request)
    ]
    if not new:
        return
    number, size = Counter[int](), Counter[int]()
    for known in s.known.intents.values():
        number[known.agent] += 1
        size[known.agent] += len(known.raw)
    kept, refused = {}, set()
    for intent in new:
        agent, length = intent.agent, len(intent.raw)
        if number[agent] >= OPEN_REQUESTS or size[agent] + length > UNPROVED:
            refused.add(agent)
            continue
        number[agent] += 1
        size[agent] += length
        kept[intent.request] = intent
        if intent.agent == s.me and not intent.rows <= s.own.dropped:
            s.own.dropped |= intent.rows
            s.own.rows += 1
    if kept:
        s.known.intents = {**s.known.intents, **kept}
        s.known.gossip = None
    for agent in sorted(refused):
        turn.do(Refused(f"{s.terms.name(agent)} has more open requests than an agent may have"))


def _take_news(s: State, turn: Turn, heard: News) -> None:
    add_mismatches(s, heard.mismatches)
    for proof in heard.proofs.values():
        take_proof(s, turn, proof)
    known = s.known.influences
    newer = {k: report for k, report in heard.influences.items() if _is_newer(report, known.get(k))}
    if newer:
        s.known.influences = {**known, **newer}
        s.known.gossip = None
    if s.token.wake < heard.wake <= s.token.fence:
        s.token.wake = heard.wake
        s.known.gossip = None


def add_mismatches(s: State, mismatches: Iterable[AuditMismatch]) -> None:
    """Keep few mismatches of each author for each number of departed agents: a liar could invent
    any number of sets of departed agents."""
    new = sorted(set(mismatches) - s.known.mismatches, key=lambda one: one.raw)
    if not new:
        return
    number = Counter((one.author, len(one.departed)) for one in s.known.mismatches)
    for mismatch in new:
        by = (mismatch.author, len(mismatch.departed))
        if number[by] < MISMATCHES:
            number[by] += 1
            s.known.mismatches |= {mismatch}
            s.known.gossip = None


def _is_newer(report: InfluenceReport, known: InfluenceReport | None) -> bool:
    return known is None or (report.stamp, report.raw) > (known.stamp, known.raw)


_CLAIM_NOTHING = (Ack, Alive, Heard)


def unsupported_claim(message: Message, s: State) -> str | None:
    """A claim of `message` without signed evidence, in the message or in `s`; None if there is
    none."""
    if isinstance(message, _CLAIM_NOTHING):
        return None
    gossip = message.gossip
    if gossip is None and isinstance(message, Pass):
        token = message.token
        if not token.tombs and not token.retrain_epoch:
            return None
    evidence = _Evidence(s, gossip)
    if isinstance(message, Pass):
        token = message.token
        problem = evidence.problem(token.tombs, token.retrain_epoch)
        if problem is not None or gossip is None:
            return problem
    assert gossip is not None
    erasures = gossip.erasures
    return None if erasures is None else evidence.problem(erasures.tombs, erasures.retrain_epoch)


class _Evidence:
    """The signed statements in a message, beside those that the agent knows."""

    def __init__(self, s: State, gossip: Gossip | None) -> None:
        self.s = s
        erasures = None if gossip is None else gossip.erasures
        self.tombstones: Mapping[bytes, Tombstone] = {} if erasures is None else erasures.tombstones
        self.votes: Mapping[tuple[int, int], Vote] = {} if erasures is None else erasures.votes
        compacted = None if gossip is None else gossip.compacted
        self.compacted: tuple[CompactedErasures, ...] = tuple((compacted or {}).values())

    def problem(self, tombs: Tombs, retrain_epoch: frozenset[bytes]) -> str | None:
        s = self.s
        if tombs is not s.known.tombs:
            for agent, tomb in tombs.items():
                known = s.known.tombs.get(agent, NOTHING)
                if not known.covers(tomb):
                    problem = self._tomb(agent, tomb, known)
                    if problem is not None:
                        return problem
        for request in retrain_epoch - s.known.retrain_epoch:
            if not self._retrains(request):
                return "a new retrain epoch without a signed tombstone that asks for it"
        return None

    def _tomb(self, agent: int, tomb: Tomb, known: Tomb) -> str | None:
        name = self.s.terms.name(agent)
        own = [compacted for compacted in self.compacted if compacted.agent == agent]
        compacted_ids = known.compacted.union(*(compacted.ids for compacted in own))
        if not tomb.compacted <= compacted_ids:
            return f"that erasures of {name} were compacted, without its signed statement"
        whole = known.whole or any(compacted.tomb.whole for compacted in own)
        for request in tomb.ids - known.ids - compacted_ids:
            tombstone = self.tombstones.get(request)
            if tombstone is None or tombstone.agent != agent:
                return f"an erasure of {name} without its signed tombstone"
        if tomb.whole and not whole:
            # A restored owner may have carried out a request twice: either tombstone suffices.
            tombstones = [self.tombstones.get(request) for request in tomb.ids]
            if not any(tombstone is not None and tombstone.whole for tombstone in tombstones):
                return f"an erasure of all of {name} without its signed tombstone"
        if tomb.departed and not known.departed and not self._voted_out(agent):
            return f"the departure of {name} without a quorum of signed votes"
        return None

    def _retrains(self, request: bytes) -> bool:
        tombstones = (self.s.known.tombstones.get(request), self.tombstones.get(request))
        return any(tombstone is not None and tombstone.retrain for tombstone in tombstones) or any(
            request in compacted.retrain_epoch
            for compacted in self.compacted
            if compacted.agent == requested_of(request)
        )

    def _voted_out(self, agent: int) -> bool:
        voters = {voter for target, voter in self.s.known.votes if target == agent}
        voters |= {voter for target, voter in self.votes if target == agent}
        return len(voters) >= self.s.terms.quorum


def count_votes(s: State, turn: Turn) -> None:
    """Rule 13: a majority of the original manifest declares an agent departed."""
    count: dict[int, int] = {}
    for target, _ in s.known.votes:
        count[target] = count.get(target, 0) + 1
    quorum = s.terms.quorum
    departed: Tombs = {k: Tomb(departed=True) for k, votes in count.items() if votes >= quorum}
    learn(s, turn, departed, frozenset())
