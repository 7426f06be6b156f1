"""The quiet cover: everybody attests an unchanged token, then it rests (rules 5 and 6).

Over a cover in which nothing changes, each agent adds its factor to a second sum that started from
eta_0 and signs the same statement. When the last one has signed, the second sum must equal eta, bit
for bit.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping
from typing import Any

import numpy as np

from unweave.errors import GridOverflow
from unweave.grid import Ints
from unweave.persistent import NOBODY, Stack
from unweave.protocol.certificate.write import attestation, certificate, sign_statement
from unweave.protocol.events import UNKNOWN, Appraise, Certified, Freeze, Unknown
from unweave.protocol.gossip import attest_ready
from unweave.protocol.merge import has_unknown_rows
from unweave.protocol.recovery import drop_role, rebuild
from unweave.protocol.routing import park
from unweave.protocol.state import Hold, State, Turn, ask
from unweave.protocol.statements import AuditMismatch
from unweave.protocol.token import NO_ROUND, AttestationRound, Token, digest, lacking

__all__ = ["SharedSignatures", "join_round"]


def join_round(s: State, turn: Turn, token: Token, cavity: Ints) -> bool:
    """Attest if possible; close the cover if complete. False: the token stays here for now."""
    if not s.terms.parks:
        return True
    if may_attest(s, token, cavity):
        frozen = frozen_vector(s, turn, token)
        if frozen is None and not s.terms.conjugate:
            return False
        token = attest(s, turn, token, cavity, frozen)
        s.token.role = Hold(token)
    if token.round.agents and not s.terms.beyond(token.round.agents, s.departed):
        if token.round.statement != attestation(s.terms, token):
            s.token.role = Hold(token._replace(round=NO_ROUND, busy=True))
            return True  # everybody signed, but not this: a new cover
        close(s, turn, token)
        return False
    return True


def may_attest(s: State, token: Token, cavity: Ints) -> bool:
    """Only what will stand: nothing pending here, all neighbours know the tombstones, and (unless
    the model is conjugate) the factor was solved against this very cavity."""
    if s.me in token.round.agents or (not token.passes and lacking(token)):
        return False  # during the first cover every visit is a change: do not sign for nothing
    if s.own_intents() or has_unknown_rows(s) or not attest_ready(s):
        return False
    if s.terms.conjugate or s.tomb.out or s.own.detached:
        return True
    if s.terms.solve == "visit":
        return False
    return token.passes >= s.terms.max_passes or is_solved(s, token, cavity)


def is_solved(s: State, token: Token, cavity: Ints) -> bool:
    return s.me in token.inside and s.own.solved_for == digest(cavity)


def frozen_vector(s: State, turn: Turn, token: Token) -> Ints | Unknown | None:
    """This agent's part of the estimate at the token's eta; None while it is computed."""
    if s.terms.conjugate:
        return None
    factor = s.own.factor(token.included[s.me])
    if factor is None:
        return s.terms.grid.zeros()
    key = ("freeze", digest(token.eta), factor.revision)
    answer: Ints | Unknown | None = ask(
        s, turn, Freeze(key, token.eta, factor.units, s.own.dropped)
    )
    return answer


def attest(
    s: State, turn: Turn, token: Token, cavity: Ints, frozen: Ints | Unknown | None
) -> Token:
    """Add the own factor to the audit and sign the statement; all fields of the group together."""
    so_far = token.round
    statement = attestation(s.terms, token)
    if so_far.agents and so_far.statement != statement:
        so_far = (
            AttestationRound()
        )  # somebody wrote a statement that is not about this token: start again
    elif so_far.agents:
        statement = so_far.statement  # the same bytes: in one process, one object for all
    restart = not so_far.agents and s.terms.schedule == "metropolis" and s.terms.attest == "sweep"
    out = s.tomb.out or s.own.detached
    solved = s.terms.conjugate or out or is_solved(s, token, cavity)
    total = frozen_sum(s, so_far, frozen)
    so_far = AttestationRound(
        agents=so_far.agents.plus(s.me),
        audit=audit_sum(s, token, so_far),
        frozen=None if isinstance(total, Unknown) else total,
        statement=statement,
        signatures=SharedSignatures(so_far.signatures, s.me, sign_statement(statement, turn.sign)),
        converged=so_far.converged and solved,
        unknown=isinstance(total, Unknown),
    )
    token = token._replace(round=so_far, busy=True)
    # The attesting cover is a sweep of its own: it starts here with an empty bitmap.
    return token._replace(seen=NOBODY.plus(s.me), stack=Stack()) if restart else token


def audit_sum(s: State, token: Token, so_far: AttestationRound) -> Ints:
    """The second sum with the own factor. Only its end has to fit the grid: it may wrap around on
    the way, as sums of 64 bits do, and come back."""
    factor = s.own.factor(token.included[s.me])
    audit = s.terms.eta0 if so_far.audit is None else so_far.audit
    return audit if factor is None else audit + factor.units


def frozen_sum(
    s: State, so_far: AttestationRound, frozen: Ints | Unknown | None
) -> Ints | Unknown | None:
    """The sum of the frozen vectors with the own one. Where one of them does not exist, or their
    sum does not fit the grid, nothing can be said about it."""
    if so_far.unknown or isinstance(frozen, Unknown):
        return UNKNOWN
    if frozen is None or so_far.frozen is None:
        return frozen
    try:
        return s.terms.grid.add(so_far.frozen, frozen)
    except GridOverflow:
        return UNKNOWN


def close(s: State, turn: Turn, token: Token) -> None:
    """Rule 6: the audit must add up; then rest, and certify every tombstone on the token."""
    so_far = token.round
    if so_far.audit is None or not np.array_equal(so_far.audit, token.eta):
        record_mismatch(s, turn, token)
        return
    estimate: Mapping[str, Any] | None = None
    if so_far.unknown:
        estimate = {"kl_to_optimum": None, "method": "none: an agent could not compute its part"}
    elif so_far.frozen is not None:
        key = ("appraise", digest(token.eta), digest(so_far.frozen))
        estimate = ask(s, turn, Appraise(key, token.eta, so_far.frozen))
        if estimate is None:
            return
    evidence = certificate(s, token, turn.sign, estimate) if has_open_erasures(token) else b""
    park(s, turn, token, evidence)
    if evidence:
        turn.do(Certified(evidence))


def has_open_erasures(token: Token) -> bool:
    """Whether there is anything on the token that this cover is the proof of."""
    return any(tomb.open or tomb.departed for tomb in token.tombs.values())


def record_mismatch(s: State, turn: Turn, token: Token) -> None:
    """The first mismatch is recorded for ever and answered by a rebuild; the second one halts."""
    record = AuditMismatch.write(
        s.me,
        turn.sign,
        network_id=s.terms.network_id.hex(),
        stamp=list(token.stamp),
        eta=digest(token.eta).hex(),
        audit="" if token.round.audit is None else digest(token.round.audit).hex(),
    )
    s.known.mismatches |= {record}
    s.known.gossip = None
    if s.audit_failed:
        drop_role(s)
    else:
        rebuild(s, turn, "the audit did not add up to the token")


# ------------------------------------------------------------------------------
# Who has signed, as a cover collects it: one more at every visit.


class SharedSignatures(Mapping[int, bytes]):
    """Signatures and one more. Nothing is copied: agents of one process share what they have in
    common, and thousands of them do not keep thousands of signatures each."""

    __slots__ = ("_agent", "_before", "_signature", "_size")

    def __init__(self, before: Mapping[int, bytes], agent: int, signature: bytes) -> None:
        self._before = before
        self._agent = agent
        self._signature = signature
        self._size = len(before) + 1

    def _pairs(self) -> Iterator[tuple[int, bytes]]:
        here: Mapping[int, bytes] = self
        while isinstance(here, SharedSignatures):
            yield here._agent, here._signature
            here = here._before
        yield from here.items()

    def __iter__(self) -> Iterator[int]:
        return (agent for agent, _ in self._pairs())

    def __getitem__(self, agent: int) -> bytes:
        for who, signature in self._pairs():
            if who == agent:
                return signature
        raise KeyError(agent)

    def items(self) -> ItemsView[int, bytes]:
        return dict(self._pairs()).items()

    def __len__(self) -> int:
        return self._size
