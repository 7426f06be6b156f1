"""Which epochs exist: an epoch number counts only with its opener's signature (rule 17).

Every agent signs how many epochs it has opened, and the number of the last one. No number may be
larger than 1 + the sum of all counts. An honest opener takes the largest number + 1, and adds one
to its own count, so its number is always allowed. A lying agent can only use up its own count: no
message makes an agent believe a number that the others would refuse.
"""

from __future__ import annotations

from collections.abc import Mapping

from unweave.protocol.state import State, Turn
from unweave.protocol.statements import Opening
from unweave.protocol.token import HOPS, OPENINGS, Stamp

__all__ = ["is_backed", "is_opened", "join_openings", "may_open", "sign_opening"]


def may_open(s: State) -> bool:
    """Whether this agent may open another epoch. Only one that has lied has used up its count."""
    known = s.known.openings.get(s.me)
    return not s.terms.checked or known is None or known.count + 1 < OPENINGS


def sign_opening(s: State, turn: Turn, stamp: Stamp) -> bool:
    """Sign that this agent opens this epoch; False if it has opened as many as it may."""
    if not may_open(s):
        return False
    known = s.known.openings.get(s.me)
    count = 1 if known is None else known.count + 1
    opening = Opening.write(
        s.me,
        turn.sign,
        network_id=s.terms.network_id.hex(),
        agent=s.me,
        count=count,
        epoch=stamp.epoch,
        incarnation=stamp.incarnation,
    )
    s.known.openings = {**s.known.openings, s.me: opening}
    s.known.gossip = None
    return True


def is_opened(s: State, stamp: Stamp) -> bool:
    """Whether the epoch of this stamp is the last one that its initiator has opened."""
    opening = s.known.openings.get(stamp.initiator)
    return not s.terms.checked or (opening is not None and opening.epoch == stamp[:3])


def is_backed(s: State, stamp: Stamp) -> bool:
    """Whether this stamp may be believed: its epoch is not above the fence's, or was opened."""
    return stamp.hop < HOPS and (stamp[:3] <= s.token.fence[:3] or is_opened(s, stamp))


def join_openings(s: State, heard: Mapping[int, Opening]) -> list[Opening]:
    """Keep the later opening of each agent, unless its number is not covered by the counts; return
    the new ones. Counts only grow, so what one honest agent believes all others will believe."""
    known = s.known.openings
    new = {
        agent: opening
        for agent, opening in heard.items()
        if opening.count < OPENINGS and (agent not in known or opening.order > known[agent].order)
    }
    while new:
        joined = {**known, **new}
        most = 1 + sum(opening.count for opening in joined.values())
        uncovered = [agent for agent, opening in new.items() if opening.epoch[0] > most]
        if not uncovered:
            s.known.openings = joined
            s.known.gossip = None
            return list(new.values())
        for agent in uncovered:
            del new[agent]
    return []
