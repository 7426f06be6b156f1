"""Hearsay is not enough: what forbids must be backed by the signatures of those who may forbid it.

A tombstone of an agent needs the agent's own signed record, or its chapter; a departure needs the
signed votes of a quorum, and a new generation a record that asks for it. Otherwise one lying
neighbour could take out anybody. What this agent knows was backed when it was learned.
"""

from __future__ import annotations

from collections.abc import Mapping

from unweave.protocol.chapters import Chapter
from unweave.protocol.ids import requested_of
from unweave.protocol.messages import Ack, Alive, Gossip, Heard, Message, Pass
from unweave.protocol.records import Tombstone, Vote
from unweave.protocol.state import State
from unweave.protocol.tombs import NOTHING, Tomb, Tombs

__all__ = ["unbacked"]


_CLAIM_NOTHING = (Ack, Alive, Heard)


def unbacked(message: Message, s: State) -> str | None:
    """What `message` claims without evidence, in it or known to `s`; None if it is all backed."""
    if isinstance(message, _CLAIM_NOTHING):
        return None
    gossip = message.gossip
    if gossip is None and isinstance(message, Pass):
        token = message.token
        if not token.tombs and not token.generation:
            return None
    backing = _Backing(s, gossip)
    if isinstance(message, Pass):
        token = message.token
        problem = backing.problem(token.tombs, token.generation)
        if problem is not None or gossip is None:
            return problem
    assert gossip is not None
    said = gossip.erasures
    return None if said is None else backing.problem(said.tombs, said.generation)


class _Backing:
    """The signed word that a message brings along, beside what is known."""

    def __init__(self, s: State, gossip: Gossip | None) -> None:
        self.s = s
        said = None if gossip is None else gossip.erasures
        self.tombstones: Mapping[bytes, Tombstone] = {} if said is None else said.tombstones
        self.votes: Mapping[tuple[int, int], Vote] = {} if said is None else said.votes
        chapters = None if gossip is None else gossip.chapters
        self.chapters: tuple[Chapter, ...] = tuple((chapters or {}).values())

    def problem(self, tombs: Tombs, generation: frozenset[bytes]) -> str | None:
        s = self.s
        if tombs is not s.tombs:
            for agent, tomb in tombs.items():
                known = s.tombs.get(agent, NOTHING)
                if not known.covers(tomb):
                    problem = self._tomb(agent, tomb, known)
                    if problem is not None:
                        return problem
        for request in generation - s.generation:
            if not self._retrains(request):
                return "a new generation without a signed tombstone that asks for it"
        return None

    def _tomb(self, agent: int, tomb: Tomb, known: Tomb) -> str | None:
        name = self.s.terms.name(agent)
        chapters = [chapter for chapter in self.chapters if chapter.agent == agent]
        filed = known.filed.union(*(chapter.ids for chapter in chapters))
        if not tomb.filed <= filed:
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
        if tomb.left and not known.left and not self._elected(agent):
            return f"the departure of {name} without a quorum of signed votes"
        return None

    def _retrains(self, request: bytes) -> bool:
        records = (self.s.tombstones.get(request), self.tombstones.get(request))
        return any(record is not None and record.retrain for record in records) or any(
            request in chapter.generation
            for chapter in self.chapters
            if chapter.agent == requested_of(request)
        )

    def _elected(self, agent: int) -> bool:
        voters = {voter for target, voter in self.s.votes if target == agent}
        voters |= {voter for target, voter in self.votes if target == agent}
        return len(voters) >= self.s.terms.quorum
