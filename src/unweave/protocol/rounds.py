"""Private rounds: what every agent derives about them by itself (rule 20).

    enrol    each agent of the roster signs a one-time key onto the token
    give     when all have enrolled, each adds its factor under a mask, and enrols for the next
             round
    attest   when all have given, the masks have cancelled: the attestation round, with other masks

The roster is every agent that has not, by signed evidence, departed or erased itself. Masks belong
to the round, which is the set of one-time keys and the point, and not to the epoch: a token that
takes a detour, is lost, forked or read from a copy goes on, because an agent that gave a value
gives the same bytes again. A key exists in the memory of one process. An agent that was restarted
enrols again; if others have given, in a new round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from typing import NamedTuple

from unweave.protocol.events import Advance, NextPoint
from unweave.protocol.given import awaits_counts
from unweave.protocol.gossip import attest_ready
from unweave.protocol.merge import has_unknown_rows
from unweave.protocol.messages import ParkNotice
from unweave.protocol.state import Factor, State, Turn, ask
from unweave.protocol.statements import Enrolment
from unweave.protocol.token import Token, Tombs, digest, lacking, roster, round_name

__all__ = [
    "Awaited",
    "advanced",
    "awaited",
    "can_attest",
    "described",
    "given_to",
    "has_masked_work",
    "holds_key",
    "is_exhausted",
    "is_stale",
    "is_too_small",
    "keep_published",
    "must_announce",
    "spent_agents",
]


NO_KEY = 0  # in place of an incarnation: the agent has enrolled without a key


def is_too_small(s: State, tombs: Tombs) -> bool:
    """Whether too few agents remain for a sum that hides each of them."""
    return len(roster(s.terms.size, tombs)) < s.terms.min_roster


def is_exhausted(enrolments: Mapping[int, Enrolment]) -> bool:
    """Rule 22: whether an agent has signed that its privacy budget pays for no other value. No sum
    can follow while it is in the roster."""
    return any(not one.key for one in enrolments.values())


def can_attest(s: State, token: Token) -> bool:
    """Only a complete sum is attested: any other one is noise. An empty token is, if no sum can
    follow: an erasure that leaves too few agents is certified without a posterior, and so is one
    after the budget of an agent is spent."""
    if not token.inside:
        return is_too_small(s, token.tombs) or is_exhausted(token.masked.keys)
    return not lacking(token)


def given_to(s: State, name: bytes) -> Factor | None:
    """The kept factor that was given to this round."""
    for factor in s.own.factors:
        if factor.given is not None and factor.given.round == name:
            return factor
    return None


def holds_key(s: State, mine: Enrolment | None) -> bool:
    """Whether the private half may still be here: this incarnation made it, and has not used it."""
    if mine is None or mine.incarnation != s.incarnation or not mine.key:
        return False
    return all(f.given is None or f.given.key != mine.key for f in s.own.factors)


def is_stale(s: State) -> bool:
    """Whether the data have changed since the factor was computed, and can be read."""
    current = s.own.current
    changed = current is None or current.rows != s.own.rows or current.data != s.own.data
    return changed and s.own.infeasible_at is None


def must_announce(s: State, name: bytes) -> bool:
    """Rule 21: whether the token of this published round must hear how many records wait here."""
    count = s.own.waiting.total - s.own.waiting.leaving
    return count > 0 and s.own.announced != (count, name)


def advanced(s: State, turn: Turn, token: Token) -> NextPoint | None:
    """What follows from the complete sum of a round; None while it is computed."""
    point = token.masked.point
    key = ("advance", digest(token.eta), hashlib.sha256(point).digest())
    answer: NextPoint | None = ask(s, turn, Advance(key, point, token.eta))
    return answer


def has_masked_work(s: State, parked: ParkNotice) -> bool:
    """Rule 11 under masks: whether the parked token must visit this agent."""
    included = parked.included[s.me]
    members = roster(s.terms.size, parked.tombs)
    small = len(members) < s.terms.min_roster
    empty = not any(revision.counter for revision in parked.included)
    complete = all(parked.included[k].counter for k in members)
    exhausted = NO_KEY in parked.enrolled.values()
    unattested = s.me not in parked.attested and attest_ready(s)
    attests = unattested and (small or exhausted if empty else complete)
    # All have attested, and this agent does not hold the sum: its disk was lost or restored.
    rested = complete and not s.terms.beyond(parked.attested, s.departed)
    shown = s.token.published
    attests |= rested and not empty and (shown is None or shown.included != parked.included)
    if s.tomb.out or s.own.detached:
        return bool(included.counter) or attests
    if included.counter:
        held = s.own.factor(included)
        if held is None or held.given is None or held.given.round != parked.masked:
            return True  # the disk was restored: the round cannot go on
        renews = s.terms.noise is not None and parked.enrolled.get(s.me) != s.incarnation
        renews &= not s.own.spent  # or it would wake the token for a key that it cannot make
        changed = is_stale(s) or must_announce(s, parked.masked) or renews
        return attests or (rested and changed and not exhausted and not awaits_counts(s))
    if has_unknown_rows(s):
        return False
    if small or exhausted:
        return attests
    if s.own.spent or awaits_counts(s):
        return False
    return parked.enrolled.keys() == members or parked.enrolled.get(s.me) != s.incarnation


def spent_agents(s: State) -> frozenset[int]:
    """Rule 22: the agents that have signed that they give no more values, by the newest token that
    this agent knows. While one of them is in the roster, no other sum is published."""
    parked, token = s.token.parked, s.token.held or s.token.copy
    if parked is not None and (token is None or parked.stamp >= token.stamp):
        found = {k for k, incarnation in parked.enrolled.items() if incarnation == NO_KEY}
    elif token is None:
        found = set()
    else:
        enrolments = {**token.masked.keys, **token.masked.spare}
        found = {k for k, one in enrolments.items() if not one.key}
    return roster(s.terms.size, s.known.tombs) & found


class Awaited(NamedTuple):
    """The agents that a private round waits for: all but one of the sets are empty."""

    to_enrol: frozenset[int] = frozenset()
    to_give: frozenset[int] = frozenset()
    to_attest: frozenset[int] = frozenset()


def awaited(s: State) -> Awaited:
    """By the newest token that this agent knows: the parked one, or the last one that was here."""
    parked, token = s.token.parked, s.token.held or s.token.copy
    if parked is not None and (token is None or parked.stamp >= token.stamp):
        given = frozenset(k for k, revision in enumerate(parked.included) if revision.counter)
        exhausted = NO_KEY in parked.enrolled.values()
        return _awaited(s, given, parked.enrolled.keys(), parked.attested, exhausted)
    if token is None:
        return _awaited(s, frozenset(), frozenset(), frozenset(), False)
    keys = token.masked.keys
    return _awaited(s, token.inside, keys.keys(), token.round.agents, is_exhausted(keys))


def _awaited(
    s: State, given: Set[int], enrolled: Set[int], attested: Set[int], exhausted: bool
) -> Awaited:
    members = roster(s.terms.size, s.known.tombs)
    if len(members) >= s.terms.min_roster and not exhausted:
        if not given and not members <= enrolled:
            return Awaited(to_enrol=members - enrolled)
        if not members <= given:
            return Awaited(to_give=members - given)
    return Awaited(to_attest=frozenset(s.terms.everybody - attested - s.departed))


def described(s: State, token: Token) -> tuple[bytes, Mapping[int, int]]:
    """What a park notice says about the round of the parked token: its name, and which incarnations
    have enrolled. With noise, if the round is complete: for the next one."""
    if not s.terms.masked:
        return b"", {}
    complete = token.inside and not lacking(token)
    keys = token.masked.spare if s.terms.noise and complete else token.masked.keys
    enrolled = {k: one.incarnation if one.key else NO_KEY for k, one in keys.items()}
    return round_name(s.terms.network_id, token.masked), enrolled


def keep_published(s: State) -> None:
    """Keep the complete sum for readers once the notice says that all have attested it: the next
    round's tokens are noise until it is complete."""
    parked, copy = s.token.parked, s.token.copy
    if not s.terms.masked or parked is None or copy is None or copy is s.token.published:
        return
    if (
        copy.stamp[:3] == parked.stamp[:3]
        and copy.included == parked.included
        and copy.inside
        and not lacking(copy)
        and not s.terms.beyond(parked.attested, s.departed)
    ):
        s.token.published = copy
