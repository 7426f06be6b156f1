"""A visit: cavity, wanted factor, new token (rule 5). Erasing is visiting with wanted = 0.

    cavity = eta − factor_k[included_k]          eta ← cavity + wanted

A visit that needs an answer (a solve, a judgement) asks for it and stops. When the answer arrives,
the visit runs again from its start, so it respects tombstones, requests and data that came in
between. `routing.after_visit` decides where the token goes next.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from unweave.errors import GridOverflow
from unweave.grid import Ints
from unweave.protocol.events import Detach, Judge, Solve, SolveResult, StaysOut
from unweave.protocol.merge import has_unknown_rows
from unweave.protocol.recovery import open_epoch, rebuild
from unweave.protocol.routing import after_visit
from unweave.protocol.state import Factor, Hold, State, Turn, ask
from unweave.protocol.statements import Intent, Receipt, Sign, Tombstone
from unweave.protocol.steps import Revealed, new_salt
from unweave.protocol.token import (
    HOPS,
    NO_ROUND,
    OUT,
    Revision,
    Token,
    Tomb,
    digest,
    entomb,
    is_missing,
    join,
    lacking,
)

__all__ = ["carry_out", "chain", "merge_tombs", "uses_last_hops", "visit", "write_receipts"]


_MARGIN = 8  # hops: more than one visit adds


class Wanted(NamedTuple):
    """The factor that the agent wants in the token."""

    factor: Factor | None  # None: no factor
    fresh: bool = False  # a new revision, to be made durable with the token
    solved: bool = False  # a solver has answered for this cavity
    withdrawn: bool = False  # the factor was withdrawn: passes are counted from here


def visit(s: State, turn: Turn) -> None:
    """Rule 5. On return the token was sent or parked, or the visit awaits an answer."""
    assert isinstance(s.token.role, Hold)
    if uses_last_hops(s, turn, s.token.role.token):
        return
    token = merge_tombs(s, s.token.role.token)
    before = token.included[s.me]
    held = s.own.factor(before)
    if before.counter and held is None:
        rebuild(s, turn, "the token includes a revision that is no longer kept")
        return
    try:
        # A conjugate factor does not depend on the cavity; most visits then need none.
        cavity = token.eta if s.terms.conjugate else without(s, token, held)
        wanted = choose(s, turn, token, cavity)
        if wanted is None:
            return  # the solver's answer is awaited
        if wanted.factor is not held:
            cavity = without(s, token, held)
    except GridOverflow:
        if held is not None and stays(s, held):
            # The sum without this factor does not fit the grid: the factor stays. The audit finds
            # a false sum.
            commit(s, turn, token, token.eta, token.eta, Wanted(held), [])
        else:
            rebuild(s, turn, "the token's sum leaves the grid without this agent's factor")
        return
    eta = token.eta if wanted.factor is held else cavity
    if wanted.factor is not None and wanted.factor is not held:
        try:
            eta = s.terms.grid.add(cavity, wanted.factor.units)
        except GridOverflow as error:
            # The sum of the other agents goes on; this factor stays out until the data change.
            turn.do(StaysOut(str(error)))
            s.own.factors = ()
            s.own.infeasible_at = token.included.set(s.me, OUT)
            wanted = Wanted(None)
    intents = s.own_intents()
    if intents and not s.terms.conjugate and before.counter:
        verdict = ask(s, turn, Judge(("judge", digest(token.eta), digest(eta)), token.eta, eta))
        if verdict is None:
            return
        if not verdict:
            retrain(s, turn, token, intents)
            return
    commit(s, turn, token, cavity, eta, wanted, intents)


def uses_last_hops(s: State, turn: Turn, token: Token) -> bool:
    """Go on in a new epoch when the hops of this one are used up."""
    if token.stamp.hop < HOPS - _MARGIN:
        return False
    open_epoch(s, turn, token, "the hops of this epoch are used up", s.token.origin)
    return True


def stays(s: State, held: Factor) -> bool:
    """Whether the included factor is the wanted one."""
    out = s.tomb.out or s.own.detached or has_unknown_rows(s) or s.own_intents()
    return held is s.own.current and held.rows == s.own.rows and held.data == s.own.data and not out


def without(s: State, token: Token, held: Factor | None) -> Ints:
    """The cavity: eta − factor_k[included_k]."""
    return token.eta if held is None else s.terms.grid.subtract(token.eta, held.units)


def merge_tombs(s: State, token: Token) -> Token:
    """Add the agent's tombstones to the token. The token is not dead, so this adds only ids of
    agents that it does not include, and a retrain epoch only while it is empty. Passes are counted
    anew: the pass no longer waits for departed agents."""
    tombs = join(token.tombs, s.known.tombs)
    if tombs is token.tombs and s.known.retrain_epoch <= token.retrain_epoch:
        return token
    retrain_epoch = token.retrain_epoch | s.known.retrain_epoch
    return token._replace(
        tombs=tombs, retrain_epoch=retrain_epoch, round=NO_ROUND, busy=True, passes=0
    )


def choose(s: State, turn: Turn, token: Token, cavity: Ints) -> Wanted | None:
    """The wanted factor; None while the solver's answer is awaited."""
    if s.tomb.out or s.own.detached or any(intent.whole for intent in s.own_intents()):
        return Wanted(None)
    if has_unknown_rows(s):
        return Wanted(None)  # the erased rows are not known yet: stay out until they are
    current = s.own.current
    stale = current is None or current.rows != s.own.rows or current.data != s.own.data
    if s.terms.conjugate:
        return solve_conjugate(s, turn) if stale else Wanted(current)
    if not must_solve(s, token, cavity, stale):
        return Wanted(current)
    answer = ask_solver(s, turn, token, cavity, current)
    if answer is None:
        return None
    if answer.units is not None:
        return Wanted(new_factor(s, turn, answer.units), fresh=True, solved=True)
    usable = current if current is not None and current.rows == s.own.rows else None
    if answer.keep:
        return Wanted(usable, solved=True)
    if (
        s.own.infeasible_at == token.included
        and not answer.failed
        and (not usable or usable.units.any())
    ):
        return withdraw(s, turn)
    s.own.infeasible_at = token.included
    # The cavity is outside the domain: try again in a later pass, after another agent has changed.
    return Wanted(usable)


def withdraw(s: State, turn: Turn) -> Wanted:
    """The cavity is outside the domain, and the token has not changed since its last visit here, so
    no solver can start. The agent withdraws its factor: eta_k = 0 is always a factor. If all agents
    withdraw, the prior remains and all learn anew."""
    return Wanted(new_factor(s, turn, s.terms.grid.zeros()), fresh=True, withdrawn=True)


def must_solve(s: State, token: Token, cavity: Ints, stale: bool) -> bool:
    """A cavity-dependent agent solves when its data changed, or once per pass when all other agents
    are included and the cavity is not the one it has solved for. With `solve="visit"` it solves at
    every visit. With `solve="visit"`, or in a network that never parks, agents only forward the
    token while a removal is pending, as in the paper."""
    if stale:
        return True
    every_visit = s.terms.solve == "visit"
    if s.known.intents and (every_visit or not s.terms.parks):
        return False
    if every_visit:
        return True
    return (
        lacking(token) == is_missing(token, s.me)
        and s.me not in token.seen
        and token.passes < s.terms.max_passes
        and digest(cavity) != s.own.solved_for
    )


def solve_conjugate(s: State, turn: Turn) -> Wanted | None:
    key = ("solve", s.own.rows, s.own.data)
    answer: SolveResult | None = ask(s, turn, Solve(key, 0, 0, None, None, s.own.dropped))
    if answer is None:
        return None
    if answer.units is None:
        assert s.token.held is not None
        s.own.infeasible_at = s.token.held.included
        current = s.own.current
        if answer.failed and current is not None and current.rows == s.own.rows:
            return Wanted(current)  # the data cannot be read: the factor stays
        return Wanted(None)  # no rows remain
    return Wanted(new_factor(s, turn, answer.units), fresh=True)


def ask_solver(
    s: State, turn: Turn, token: Token, cavity: Ints, current: Factor | None
) -> SolveResult | None:
    stamp = token.stamp
    key = ("solve", s.own.rows, s.own.data, stamp, digest(cavity))
    # A factor that was fitted to erased rows must not be a starting point.
    units = None if current is None or current.rows != s.own.rows else current.units
    absent = lacking(token) - is_missing(token, s.me)
    share = 1.0 - absent / max(1, len(token.inside) + lacking(token))
    work = Solve(key, stamp.epoch, stamp.hop, cavity, units, s.own.dropped, share, token.passes)
    answer: SolveResult | None = ask(s, turn, work)
    return answer


def new_factor(s: State, turn: Turn, units: Ints) -> Factor:
    """A revision that was never used before: it names this incarnation."""
    counter = s.own.counter + 1
    salt = new_salt(turn.sign, s.terms.network_id, counter, s.incarnation)
    return Factor(
        Revision(counter, s.incarnation, Revealed(salt, units).commitment),
        units,
        s.known.retrain_epoch,
        s.own.rows,
        s.own.data,
        salt,
    )


def commit(
    s: State,
    turn: Turn,
    token: Token,
    cavity: Ints,
    eta: Ints,
    wanted: Wanted,
    intents: list[Intent],
) -> None:
    """One transaction: factor, eta, tombstones for intents, wipe, receipt and route."""
    before = token.included[s.me]
    held = s.own.factor(before)
    external = (
        bool(intents) or wanted.withdrawn or (wanted.factor is not None and not before.counter)
    )
    if wanted.fresh and wanted.factor is not None:
        external = external or not s.own.factors or s.own.factors[0].data != wanted.factor.data
        s.own.counter += 1
        s.own.factors = (wanted.factor, *s.own.factors[: s.terms.kept])
    elif wanted.solved and wanted.factor is not None and wanted.factor.data != s.own.data:
        # The solver kept the factor for the new data: it now stands for them.
        s.own.factors = (wanted.factor._replace(data=s.own.data), *s.own.factors[1:])
    after = OUT if wanted.factor is None else wanted.factor.revision
    if wanted.solved:
        # A solver takes a few steps at a time: it has finished when it keeps the factor.
        s.own.solved_for = b"" if wanted.fresh else digest(cavity)
    elif wanted.withdrawn:
        s.own.solved_for = b""
    origin = s.token.origin
    if before != after and held is not None and origin is not None and before == origin.revision:
        s.token.origin = origin._replace(removed=held.revealed)
    if before != after or intents:
        inside = token.inside.plus(s.me) if after.counter else token.inside.minus(s.me)
        receipts = write_receipts(s, turn.sign, token, before, after, intents)
        if intents:
            token = carry_out(s, turn, token, intents, receipts, retrain=False)
        token = token._replace(
            eta=eta,
            included=token.included.set(s.me, after),
            inside=inside,
            round=NO_ROUND,
            busy=True,
            passes=0 if external else token.passes,
            receipts=chain(token.receipts, *receipts),
        )
        s.own.receipts = (*receipts[::-1], *s.own.receipts[: s.terms.kept])
    elif wanted.solved:
        token = token._replace(busy=True)
    if s.me not in token.seen:
        token = token._replace(seen=token.seen.plus(s.me))
    after_visit(s, turn, token, cavity)


def carry_out(
    s: State,
    turn: Turn,
    token: Token,
    intents: list[Intent],
    receipts: list[Receipt],
    retrain: bool,
) -> Token:
    """Turn intents into signed tombstones, each with its receipt, and wipe the data they forbid, in
    this transaction."""
    whole = any(intent.whole for intent in intents)
    requests = frozenset(intent.request for intent in intents)
    tombstones = dict(s.known.tombstones)
    for intent, receipt in zip(intents, receipts, strict=True):
        tombstones[intent.request] = Tombstone.write(
            s.me,
            turn.sign,
            network_id=s.terms.network_id.hex(),
            request=intent.request.hex(),
            agent=s.me,
            name=s.terms.name(s.me),
            whole=intent.whole,
            rows=sorted(row.hex() for row in intent.rows),
            remembered=intent.remembered,
            retrain=retrain,
            receipt=receipt.raw.decode(),
            receipt_signature=receipt.signature.hex(),
        )
        s.own.dropped |= intent.rows
    s.known.tombstones = tombstones
    s.known.intents = {r: i for r, i in s.known.intents.items() if r not in requests}
    s.known.tombs = entomb(s.known.tombs, s.me, Tomb(requests, whole=whole))
    if retrain:
        s.known.retrain_epoch |= requests
    # Only the factor that was computed without the erased rows may stay.
    keep = s.own.current if s.own.current is not None and s.own.current.rows == s.own.rows else None
    s.own.factors = (keep,) if keep is not None and not whole and not retrain else ()
    s.own.detached = s.own.detached or whole
    s.token.copy = s.token.copy_origin = None
    s.known.gossip = None
    turn.do(Detach(whole))
    return token._replace(tombs=join(token.tombs, s.known.tombs))


def retrain(s: State, turn: Turn, token: Token, intents: list[Intent]) -> None:
    """Rule 16: the token without this agent is outside the domain, or too far away. The requests
    join the retrain epoch: the factors of all agents are void, and the next solves start from
    zero."""
    receipts = write_receipts(s, turn.sign, token, token.included[s.me], OUT, intents)
    carry_out(s, turn, token, intents, receipts, retrain=True)
    s.own.solved_for = b""
    s.own.receipts = (*receipts[::-1], *s.own.receipts[: s.terms.kept])
    rebuild(s, turn, "an erasure asked all agents to start from zero")


def write_receipts(
    s: State,
    sign: Sign,
    token: Token,
    before: Revision,
    after: Revision,
    intents: list[Intent],
) -> list[Receipt]:
    """The receipts of one change of the token: one for each request that it carries out, or one
    without a request. A tombstone holds its own receipt, so a receipt that named all requests would
    make the evidence grow with the square of their number. A receipt spreads with its tombstone, so
    it names revisions, and no sum."""
    found: list[Receipt] = []
    previous = token.receipts
    requests: list[str | None] = [intent.request.hex() for intent in intents]
    for request in requests or [None]:
        receipt = Receipt.write(
            s.me,
            sign,
            network_id=s.terms.network_id.hex(),
            agent=s.me,
            stamp=list(token.stamp),
            before=list(before[:2]),
            after=list(after[:2]),
            request=request,
            previous=previous.hex(),
        )
        previous = chain(previous, receipt)
        found.append(receipt)
    return found


def chain(previous: bytes, *receipts: Receipt) -> bytes:
    """For each receipt: hash ← SHA-256(hash ‖ SHA-256(receipt))."""
    for receipt in receipts:
        previous = hashlib.sha256(previous + receipt.name).digest()
    return previous
