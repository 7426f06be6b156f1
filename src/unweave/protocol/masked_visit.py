"""A visit in a private round: enrol, give, go on (rule 20).

A value that was given cannot be taken back under the same mask. So there is no cavity and nothing
is subtracted: an erasure, a change of the data or of the roster starts a new round from eta_0.
Before an agent has given, its round goes on.

Each step returns the token, or None if the visit is over: an answer is awaited, or a new round has
started.
"""

from __future__ import annotations

import hashlib

import numpy as np

from unweave.grid import LIMIT, Ints
from unweave.protocol.batches import gathered, leave, start_over
from unweave.protocol.events import (
    Advance,
    Enrol,
    Judge,
    Mask,
    MaskedValue,
    NewKey,
    NextPoint,
    Solve,
    SolveResult,
    StaysOut,
)
from unweave.protocol.given import awaits_counts, is_vouched, remember_given
from unweave.protocol.merge import has_unknown_rows
from unweave.protocol.openings import may_open
from unweave.protocol.recovery import following_round, open_epoch
from unweave.protocol.rounds import (
    advanced,
    given_to,
    holds_key,
    is_exhausted,
    is_stale,
    is_too_small,
)
from unweave.protocol.routing import after_visit
from unweave.protocol.state import Factor, GivenValue, Hold, State, Turn, ask
from unweave.protocol.statements import Enrolment
from unweave.protocol.steps import Revealed, new_salt
from unweave.protocol.token import (
    NO_ROUND,
    OUT,
    Revision,
    Token,
    digest,
    lacking,
    roster,
    round_name,
)
from unweave.protocol.visit import carry_out, chain, merge_tombs, uses_last_hops, write_receipts

__all__ = ["visit_masked"]

_SPENT = (
    "the privacy budget of its records is spent: it gives no more values. Fix: a new network with "
    "other terms; what its records have spent here stays spent"
)
_NO_KEY = "it could make no one-time key. Fix: read agent.log, and start the agent again"


def visit_masked(s: State, turn: Turn) -> None:
    """Rule 5 in a private round. On return the token was sent or parked, or the visit awaits an
    answer."""
    assert isinstance(s.token.role, Hold)
    if uses_last_hops(s, turn, s.token.role.token):
        return
    token: Token | None = merge_tombs(s, s.token.role.token)
    if s.terms.noise is not None:
        remember_given(s, s.token.role.token)
    for step in (remove, settle_roster, take_part, iterate):
        assert token is not None
        token = step(s, turn, token)
        if token is None:
            return
    assert token is not None
    if s.me not in token.seen:
        token = token._replace(seen=token.seen.plus(s.me))
    after_visit(s, turn, token, token.eta)


def new_round(s: State, turn: Turn, token: Token, why: str) -> None:
    """Start again from eta_0, at the point from which learning goes on."""
    point = restarted(s, turn, token)
    if point is not None:
        open_epoch(s, turn, None, why, masked=following_round(s, token, point))


def replace_key(s: State, turn: Turn, token: Token) -> None:
    """The private half of this agent's key is gone: a new round, for which it enrols again."""
    new_round(s, turn, without_key(s, token), "the one-time key of this agent is gone")


def without_key(s: State, token: Token) -> Token:
    masked = token.masked
    keys = {k: one for k, one in masked.keys.items() if k != s.me}
    spare = {k: one for k, one in masked.spare.items() if k != s.me}
    return token._replace(masked=masked._replace(keys=keys, spare=spare))


def restarted(s: State, turn: Turn, token: Token) -> bytes | None:
    """The point at which the next round starts after a change; None while it is computed."""
    point = token.masked.point
    if not s.terms.iterates or point == s.terms.first_point:
        return point
    key = ("restart", hashlib.sha256(point).digest())
    answer: NextPoint | None = ask(s, turn, Advance(key, point, None))
    return None if answer is None else answer.point or s.terms.first_point


# Steps of a visit


def announce(s: State, turn: Turn, token: Token) -> Token | None:
    """Rule 21, at a published sum: enrol again with the number of records that wait here, and start
    a round if enough have gathered."""
    waiting, masked = s.own.waiting, token.masked
    if waiting.leaving and s.own.current is s.own.factor(token.included[s.me]):
        waiting = s.own.waiting = waiting._replace(leaving=0)  # this sum shows them
    if not waiting.total:
        return token
    name, mine = round_name(s.terms.network_id, masked), masked.spare.get(s.me)
    if mine is None or (mine.changed, mine.base) != (waiting.total, name) or not holds_key(s, mine):
        mine = enrol(s, turn, ("announce", name, waiting.total), name)
        if mine is None or not mine.key:
            return token if s.token.pending is None else None
        masked = masked._replace(spare={**masked.spare, s.me: mine})
        token = token._replace(masked=masked)
    s.own.announced = (waiting.total, name)
    if gathered(s.terms, masked.spare, name):
        new_round(s, turn, token, "enough changes have gathered")
        return None
    return token


def renew(s: State, turn: Turn, token: Token) -> Token | None:
    """Rule 22, at a published sum: an agent that was started again enrols anew for the next round.
    Otherwise that round would break off when others have paid for their values."""
    masked = token.masked
    mine = masked.spare.get(s.me)
    if s.terms.noise is None or (mine is not None and holds_key(s, mine)):
        return token
    base = round_name(s.terms.network_id, masked)
    mine = enrol(s, turn, ("renew", base), base)
    if mine is None:
        return token if s.token.pending is None else None
    return token._replace(masked=masked._replace(spare={**masked.spare, s.me: mine}))


def remove(s: State, turn: Turn, token: Token) -> Token | None:
    """Carry out this agent's erasures. If its value was given, the tombstone ends the round."""
    intents = s.own_intents()
    if not intents:
        return token
    before = token.included[s.me]
    retrain, point = False, s.terms.first_point
    if before.counter and s.terms.iterates:
        requests = sorted(intent.request for intent in intents)
        verdict = ask(s, turn, Judge(("judge", *requests), None, None))
        if verdict is None:
            return None
        retrain = not verdict
        start = s.terms.first_point if retrain else restarted(s, turn, token)
        if start is None:
            return None
        point = start
    receipts = write_receipts(s, turn.sign, token, before, OUT, intents)
    token = carry_out(s, turn, token, intents, receipts, retrain=retrain)
    s.token.published = None
    # A restored disk may not know the value that is removed: the next ones have larger numbers.
    s.own.counter = max(s.own.counter, before.counter)
    s.own.receipts = (*receipts[::-1], *s.own.receipts[: s.terms.kept])
    if before.counter:
        following = following_round(s, token, point)
        open_epoch(s, turn, None, "this round has a value with erased data", masked=following)
        return None
    token = token._replace(
        round=NO_ROUND, busy=True, passes=0, receipts=chain(token.receipts, *receipts)
    )
    s.token.role = Hold(token)
    return token


def settle_roster(s: State, turn: Turn, token: Token) -> Token | None:
    """The round is for exactly the roster that this agent derives from the signed evidence."""
    members, masked = roster(s.terms.size, token.tombs), token.masked
    if token.inside:
        if masked.keys.keys() != members:
            new_round(s, turn, token, "the roster is not that of this round")
            return None
        return token
    if masked.keys.keys() <= members:
        return token
    keys = {k: one for k, one in masked.keys.items() if k in members}
    return token._replace(masked=masked._replace(keys=keys))


def take_part(s: State, turn: Turn, token: Token) -> Token | None:
    if s.tomb.out or s.own.detached:
        return token
    name = round_name(s.terms.network_id, token.masked)
    here = token.included[s.me]
    if here.counter:
        held = s.own.factor(here)
        if held is None or held.given is None or held.given.round != name:
            start_over(s)
            new_round(s, turn, token, "the token includes a value that is no longer kept")
            return None
        if not token.masked.rested or is_exhausted(token.masked.spare) or awaits_counts(s):
            return token
        if is_stale(s):
            new_round(s, turn, token, "the data have changed")
            return None
        renewed = renew(s, turn, token)
        return None if renewed is None else announce(s, turn, renewed)
    if has_unknown_rows(s):
        return token  # the erased rows are not known yet: nothing is given until they are
    again = given_to(s, name)
    if again is not None:
        # The token is another copy of one that was here: the same bytes again.
        s.own.factors = (again, *(one for one in s.own.factors if one is not again))
        return add(s, turn, token, again)
    if is_too_small(s, token.tombs):
        return token
    mine = token.masked.keys.get(s.me)
    if mine is not None and not mine.key:
        # By the agent's own word, perhaps before it was started again.
        s.own.spent = s.own.exhausted = True
        return token
    if not holds_key(s, mine):
        if token.inside:
            replace_key(s, turn, token)
            return None
        if awaits_counts(s):
            return without_key(s, token)  # nobody gives for a key that does not exist any more
        mine = enrol(s, turn, ("enrol", token.stamp), token.masked.base)
        if mine is None:
            return token if s.token.pending is None else None
        keys = {**token.masked.keys, s.me: mine}
        token = token._replace(
            masked=token.masked._replace(keys=keys), round=NO_ROUND, busy=True, passes=0
        )
    enrolled = token.masked.keys
    if enrolled.keys() != roster(s.terms.size, token.tombs) or is_exhausted(enrolled):
        return token
    if leaves_with(s, token):
        leave(s)
        s.token.role = Hold(token)
        without = remove(s, turn, token)
        assert without is not None  # nothing of this agent is in this round
        token = without
    return give(s, turn, token)


def leaves_with(s: State, token: Token) -> bool:
    """Rule 21: whether the changes that wait here leave with this round, for which all agents have
    enrolled: the enrolments show enough changes, and these among them."""
    waiting, mine = s.own.waiting, token.masked.keys[s.me]
    counted = mine.changed > 0 and mine.base == token.masked.base
    if not counted or not (waiting.requests or waiting.data):
        return False
    return gathered(s.terms, token.masked.keys, token.masked.base)


def enrol(
    s: State, turn: Turn, question: tuple[object, ...], base: bytes, ahead: int = 0
) -> Enrolment | None:
    """A new one-time key of this agent, signed; None while it is made, or if there is none. With
    batches it says how many records of the agent have changed since the published round `base`;
    with noise, how many values the agent has given, and by an empty key that its budget is spent.
    `ahead`: the values that it will give before it uses the key."""
    if s.own.spent and not s.own.exhausted:
        return None  # nothing is awaited: there is no key until the agent is started again
    key: NewKey | None = ask(s, turn, Enrol(question, s.own.counter, ahead, is_vouched(s)))
    if key is None:
        return None
    if not key.public:
        spent = key.spent and s.terms.noise is not None
        if not (spent and ahead):  # else the value of this round is still given
            turn.do(StaysOut(_SPENT if key.spent else _NO_KEY))
            s.own.spent, s.own.exhausted = True, spent
        if not spent:
            return None
    return Enrolment.write(
        s.me,
        turn.sign,
        network_id=s.terms.network_id.hex(),
        agent=s.me,
        incarnation=s.incarnation,
        key=key.public.hex(),
        **({"changed": s.own.waiting.total, "base": base.hex()} if s.terms.publish else {}),
        **({"given": key.given} if s.terms.noise else {}),
    )


def give(s: State, turn: Turn, token: Token) -> Token | None:
    """Add this agent's factor under its mask, and enrol for the next round."""
    name = round_name(s.terms.network_id, token.masked)
    found = factor_units(s, turn, token)
    if found is None:
        return None
    units = found
    spare = enrol(s, turn, ("spare", name), token.masked.base, ahead=1)
    if spare is None and (s.terms.noise is not None or s.token.pending is not None):
        # Rule 22: a value leaves with the number of values that its agent has given by then.
        return token if s.token.pending is None else None
    keys = {k: one.key for k, one in token.masked.keys.items()}
    # With a digest in its name, a late answer for other data is not taken for this one.
    question = ("mask", name, digest(units))
    value: MaskedValue | None = ask(s, turn, Mask(question, name, keys, units))
    if value is None:
        return None
    if value.units is None or value.audit is None:
        replace_key(s, turn, token)
        return None
    s.own.counter += 1
    salt = new_salt(turn.sign, s.terms.network_id, s.own.counter, s.incarnation)
    shown = Revealed(salt, value.units, value.audit)
    factor = Factor(
        Revision(s.own.counter, s.incarnation, shown.commitment),
        units,
        s.known.retrain_epoch,
        s.own.rows,
        s.own.data,
        salt,
        GivenValue(name, keys[s.me], value.units, value.audit),
        hashlib.sha256(token.masked.point).digest(),
    )
    s.own.factors = (factor, *s.own.factors[: s.terms.kept])
    if spare is not None:
        masked = token.masked
        token = token._replace(masked=masked._replace(spare={**masked.spare, s.me: spare}))
    return add(s, turn, token, factor)


def factor_units(s: State, turn: Turn, token: Token) -> Ints | None:
    """The factor at the round's point; None while it is computed. An agent with nothing to add
    gives zero: the others' masks wait for its mask."""
    point = token.masked.point
    at, current = hashlib.sha256(point).digest(), s.own.current
    fitting = current is not None and current.rows == s.own.rows and current.point == at
    if fitting and current is not None and (current.data == s.own.data or s.own.infeasible_at):
        return current.units
    key = ("solve", s.own.rows, s.own.data, at)
    stamp = token.stamp
    work = Solve(key, stamp.epoch, stamp.hop, None, None, s.own.dropped, point=point)
    answer: SolveResult | None = ask(s, turn, work)
    if answer is None:
        return None
    if answer.no_point:
        why = "the point of this round is none of the model"
        first = following_round(s, token, s.terms.first_point)
        open_epoch(s, turn, None, why, masked=first)
        return None
    if answer.units is None:
        s.own.infeasible_at = token.included
        kept = answer.failed and fitting and current is not None
        return current.units if kept and current is not None else s.terms.grid.zeros()
    s.own.infeasible_at = None
    share = share_of_grid(s)
    if ((answer.units > share) | (answer.units < -share)).any():
        # No agent can see whether a masked sum has wrapped: each keeps to its share of the grid.
        turn.do(StaysOut("its sums do not fit its share of the grid. Fix: fewer bits, or a scale"))
        return s.terms.grid.zeros()
    return answer.units


def share_of_grid(s: State) -> Ints:
    """What one of K agents may give, so that no sum of all leaves the grid."""
    share: Ints = (LIMIT - np.abs(s.terms.eta0)) // s.terms.size
    return share if s.terms.noise is None else np.maximum(share - s.terms.noise.reach, 0)


def add(s: State, turn: Turn, token: Token, factor: Factor) -> Token:
    """Add the masked value modulo 2^64."""
    eta = token.eta + factor.added
    receipts = write_receipts(s, turn.sign, token, OUT, factor.revision, [])
    s.own.receipts = (*receipts[::-1], *s.own.receipts[: s.terms.kept])
    return token._replace(
        eta=eta,
        included=token.included.set(s.me, factor.revision),
        inside=token.inside.plus(s.me),
        round=NO_ROUND,
        busy=True,
        passes=0,
        receipts=chain(token.receipts, *receipts),
    )


def iterate(s: State, turn: Turn, token: Token) -> Token | None:
    """The sum of this round is complete: go on to the next point, unless it is final."""
    if not s.terms.iterates or not token.inside or lacking(token):
        return token
    answer = advanced(s, turn, token)
    if answer is None:
        return None
    if answer.point is None or token.masked.step >= s.terms.max_rounds or not may_open(s):
        return token  # after a failure, too: another agent goes on to the next point
    following = following_round(s, token, answer.point, token.masked.step + 1)
    open_epoch(s, turn, None, "the next private round", masked=following)
    return None
