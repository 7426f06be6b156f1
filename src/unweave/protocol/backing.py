"""Hearsay is not enough: what forbids must be backed by the signatures of those who may forbid it.

A tombstone of an agent needs the agent's own signed record, a departure needs the signed votes of a
quorum, and a new generation needs a record that asks for it. Otherwise one lying neighbour could
take out anybody.
"""

from __future__ import annotations

from unweave.protocol.messages import Ack, Alive, Gossip, Heard, Message, Pass
from unweave.protocol.state import State
from unweave.protocol.tombs import Tombs

__all__ = ["unbacked"]


_CLAIM_NOTHING = (Ack, Alive, Heard)


def unbacked(message: Message, s: State) -> str | None:
    """What `message` claims without evidence, in it or known to `s`; None if it is all backed."""
    if isinstance(message, _CLAIM_NOTHING):
        return None
    gossip = message.gossip
    if isinstance(message, Pass):
        token = message.token
        problem = _unbacked(token.tombs, token.generation, gossip, s)
        if problem is not None or gossip is None:
            return problem
    assert gossip is not None
    return _unbacked(gossip.tombs, gossip.generation, gossip, s)


def _unbacked(
    tombs: Tombs, generation: frozenset[bytes], gossip: Gossip | None, s: State
) -> str | None:
    if tombs is s.tombs and generation <= s.generation:
        return None
    said = {} if gossip is None else gossip.tombstones
    for agent, tomb in tombs.items():
        name = s.terms.name(agent)
        whole = False
        for request in tomb.ids:
            # A restored owner may have carried out a request twice: either record will do.
            records = [r for r in (s.tombstones.get(request), said.get(request)) if r is not None]
            if not any(record.agent == agent for record in records):
                return f"an erasure of {name} without its signed tombstone"
            whole = whole or any(record.whole for record in records)
        if tomb.whole and not whole:
            return f"an erasure of all of {name} without its signed tombstone"
        if tomb.left and not _elected(agent, gossip, s):
            return f"the departure of {name} without a quorum of signed votes"
    for request in generation:
        records = [r for r in (s.tombstones.get(request), said.get(request)) if r is not None]
        if not any(record.retrain for record in records):
            return "a new generation without a signed tombstone that asks for it"
    return None


def _elected(agent: int, gossip: Gossip | None, s: State) -> bool:
    voters = {voter for target, voter in s.votes if target == agent}
    if gossip is not None:
        voters |= {voter for target, voter in gossip.votes if target == agent}
    return len(voters) >= s.terms.quorum
